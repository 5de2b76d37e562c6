"""One site: its row on the overview, and its page. Pure."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.model import DatasetState, Site, to_unix
from hydrator.domain.text import comma_separated
from hydrator.reconcile.state import DatasetChange
from hydrator.reconcile.view import SiteView, view_fact
from hydrator.server.view import ServerState
from hydrator.staging.table import Request

from .html import build_bar, render_page

_KIND: Final = {
    DatasetState.AVAILABLE: "bar",
    DatasetState.STAGING: "move",
    DatasetState.STUCK: "late",
    DatasetState.UNAVAILABLE: "late",
}


def _count_kinds(states: Mapping[str, int]) -> Counter[str]:
    """Return the number of datasets by the class of the part of a bar that shows them."""
    kinds: Counter[str] = Counter()
    for state in DatasetState:
        kinds[_KIND.get(state, "rest")] += states.get(state, 0)
    return kinds


MAX_DATASETS: Final = 50
"""Largest number of datasets that the page of a site lists: those that are not complete come first."""


LATE_PART: Final = 3
"""A reading is late after this part of the largest valid age: 2 of 6 h, as in the alert HydratorSiteStale."""


@dataclass(frozen=True, slots=True)
class SiteRow:
    """One site in the list of the overview.

    ``troubles`` are reasons to look at the site, each in a word or two. ``rank`` sorts the list: the worst
    trouble first, then sites with unreadable, with stuck datasets, then the smallest share of complete ones.
    """

    site: SiteView
    states: Mapping[str, int]
    bar: Sequence[tuple[str, float, float]]
    datasets: str
    troubles: Sequence[str]
    rank: tuple[int, float, Site]

    @classmethod
    def of(cls, site: SiteView, now: datetime, max_age: timedelta) -> "SiteRow":
        """Build the row of *site*."""
        states, as_of = Counter(site.states or {}), site.as_of
        late_at = to_unix(now - max_age / LATE_PART)
        troubles = {
            "held": site.loss is not None,
            "no ad": site.generation is None,
            "late": as_of is None or as_of < late_at,
        }
        bad_counts = states[DatasetState.UNAVAILABLE], states[DatasetState.STUCK]
        severity = [*troubles.values(), *(count > 0 for count in bad_counts), True].index(True)
        datasets, share = "not read" if site.states is None else "none", math.inf
        if total := sum(states.values()):
            complete = states[DatasetState.AVAILABLE]
            datasets, share = f"{complete:,}/{total:,}", complete / total
        return cls(
            site,
            states,
            build_bar(_count_kinds(states)),
            datasets,
            [word for word, is_true in troubles.items() if is_true],
            (severity, share, site.site),
        )


def render_site_page(
    site: SiteView,
    server_state: ServerState,
    changes: Sequence[DatasetChange],
) -> str:
    """Render the page of *site* with its last *changes*, newest first."""
    known = server_state.snapshot.sites.get(site.site)
    facts = known.facts if known else {}
    # by name; those that are not complete come first
    dids = sorted(facts, key=lambda did: (facts[did].state is DatasetState.AVAILABLE, did))
    states = site.states or {}
    return render_page(
        "site.html",
        f"Site {site.site}",
        version=server_state.version,
        now=server_state.now,
        row=site,
        site=site.site,
        states=comma_separated(f"{count:,} {state.lower()}" for state, count in states.items()),
        max_age=server_state.max_age,
        needs=[need for need in server_state.problems if need.site == site.site],
        rows=[(did, view_fact(site.site, known, did)) for did in dids[:MAX_DATASETS]] if known else [],
        more_count=max(0, len(dids) - MAX_DATASETS),
        requests=_find_requests(site.site, server_state),
        changes=changes,
    )


def _find_requests(site: Site, server_state: ServerState) -> list[Request]:
    requests = server_state.staging.requests if server_state.staging else ()
    return [row for row in requests if row.site == site][:MAX_DATASETS]
