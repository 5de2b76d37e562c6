"""Schedd facts: the settings and figures of a job's schedd that decide where and when the job may run."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hydrator.diagnostics.schedd_budget import ScheddBudget, parse_budget
from hydrator.domain.daemon_probe import DaemonProbe
from hydrator.domain.errors import PoolError

_SETTINGS = (
    "CONDOR_VERSION",
    "FLOCK_COLLECTOR_HOSTS",
    "FLOCK_BY_DEFAULT",
    "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS",
    "MAX_CONCURRENT_UPLOADS_PER_USER",
    "MAX_CONCURRENT_UPLOADS",
    "BYTES_REQUIRED_TO_QUEUE_FOR_TRANSFER",
)
_DEFAULT_MAX_UPLOADS = 100
_DEFAULT_QUEUED_BYTES = 100_000_000
"""HTCondor's defaults for MAX_CONCURRENT_UPLOADS and BYTES_REQUIRED_TO_QUEUE_FOR_TRANSFER."""
MAX_POOLS = 20
"""Maximum number of pools that are queried because the schedd flocks to them."""


@dataclass(frozen=True, slots=True)
class ScheddFacts:
    """The settings of one schedd, and its jobs by its ad (``budget``).

    ``flock_collectors`` are the collectors of other pools. If ``flocks_by_default`` is False, a job flocks
    only to the collectors in its FlockTo. ``max_uploads`` limits the jobs of one user that send, or wait to
    send, ``queued_bytes`` or more of input; None means no limit. At the limit, the schedd requests no slots
    for this user [1].

    [1] HTCondor 25.11, MAX_CONCURRENT_UPLOADS_PER_USER.
    """

    flock_collectors: tuple[str, ...] = ()
    flocks_by_default: bool = True
    max_uploads: int | None = None
    queued_bytes: int = _DEFAULT_QUEUED_BYTES
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
    return parse_schedd_facts(config, ad)


def parse_schedd_facts(config: Mapping[str, str | None], ad: Mapping[str, Any]) -> ScheddFacts:
    """Parse the values that a schedd has for the settings in ``_SETTINGS``, and its *ad*."""
    flocks_to = _split_words(config.get("FLOCK_COLLECTOR_HOSTS"))[:MAX_POOLS]
    queued_bytes = _parse_integer(config.get("BYTES_REQUIRED_TO_QUEUE_FOR_TRANSFER"))
    return ScheddFacts(
        flock_collectors=tuple(dict.fromkeys(flocks_to)),
        flocks_by_default=_is_true(config.get("FLOCK_BY_DEFAULT") or "true"),
        max_uploads=_max_uploads(config),
        queued_bytes=_DEFAULT_QUEUED_BYTES if queued_bytes is None else queued_bytes,
        budget=parse_budget(ad),
    )


def _max_uploads(config: Mapping[str, str | None]) -> int | None:
    """Return the limit of uploading jobs for one user; None without a limit.

    A negative MAX_CONCURRENT_UPLOADS_PER_USER means a fifth of MAX_CONCURRENT_UPLOADS.
    """
    version = re.match(r"\s*([0-9]{1,4})\.", config.get("CONDOR_VERSION") or "")
    if version and int(version[1]) < 25:  # a schedd before HTCondor 25 ignores these settings
        return None
    if not _is_true(config.get("SCHEDD_ENABLE_PER_USER_MATCH_LIMITS") or ""):
        return None  # a schedd before HTCondor 25 does not have this setting
    setting = config.get("MAX_CONCURRENT_UPLOADS_PER_USER")
    if setting is None:
        return None
    limit = _parse_integer(setting)
    if limit is None or limit < 0:
        all_users = _parse_integer(config.get("MAX_CONCURRENT_UPLOADS"))
        limit = (_DEFAULT_MAX_UPLOADS if all_users is None else all_users) // 5
    return limit if limit > 0 else None


def _is_true(text: str) -> bool:
    return text.strip().lower() in {"true", "t", "yes", "1"}


def _parse_integer(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\s*-?[0-9]{1,15}\s*", text) else None


def _split_words(text: str | None) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text or "") if word]
