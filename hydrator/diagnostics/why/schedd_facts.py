"""Schedd facts: the settings and figures of a job's schedd that decide where and when the job may run."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hydrator.diagnostics.schedd_budget import MATCH_LIMITS, ScheddBudget, is_on, parse_budget
from hydrator.domain.daemon_probe import DaemonProbe
from hydrator.domain.errors import PoolError

_SETTINGS = ("FLOCK_COLLECTOR_HOSTS", "FLOCK_BY_DEFAULT", MATCH_LIMITS)
MAX_POOLS = 20
"""Maximum number of pools that are queried because the schedd flocks to them."""


@dataclass(frozen=True, slots=True)
class ScheddFacts:
    """The settings of one schedd, and its jobs by its ad (``budget``).

    ``flock_collectors`` are the collectors of other pools. If ``flocks_by_default`` is False, a job flocks
    only to the collectors in its FlockTo. ``has_match_limits`` is the value of MATCH_LIMITS.
    """

    flock_collectors: tuple[str, ...] = ()
    flocks_by_default: bool = True
    has_match_limits: bool = False
    budget: ScheddBudget | None = None

    def pools_of(self, flock_to: str | None) -> tuple[str, ...]:
        """Return the other pools' collectors to which a job may flock; *flock_to* is the job's FlockTo."""
        if self.flocks_by_default:
            return self.flock_collectors
        names = {word.lower() for word in _split_words(flock_to)}
        return tuple(pool for pool in self.flock_collectors if pool.lower() in names)


def fetch_schedd_facts(pool: DaemonProbe, schedd: str, ad: Mapping[str, Any]) -> ScheddFacts:
    """Query the settings of *schedd*, whose ad the collector has; without an answer the defaults count."""
    config: Mapping[str, str | None] = {}
    with suppress(PoolError):
        config = pool.config_of("schedd", list(_SETTINGS), schedd)
    flocks_to = _split_words(config.get("FLOCK_COLLECTOR_HOSTS"))[:MAX_POOLS]
    return ScheddFacts(
        flock_collectors=tuple(dict.fromkeys(flocks_to)),
        flocks_by_default=is_on(config, "FLOCK_BY_DEFAULT", default="true"),
        has_match_limits=is_on(config, MATCH_LIMITS),
        budget=parse_budget(ad),
    )


def _split_words(text: str | None) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text or "") if word]
