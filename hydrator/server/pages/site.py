"""One site: its row on the overview, and its page. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hydrator.diagnostics.overview.placement import Placement, SiteCounts
from hydrator.domain.model import DatasetState, Did, Fact, Site, Snapshot
from hydrator.domain.text import comma_separated
from hydrator.reconcile.history import DatasetChange
from hydrator.server.view import ServerState
from hydrator.staging.table import Request

from .html import SIGNS, PageContext, render_page

_WIDTH: Final = 100.0
_KIND: Final = {
    DatasetState.AVAILABLE: "bar",
    DatasetState.STAGING: "move",
    DatasetState.STUCK: "late",
    DatasetState.UNAVAILABLE: "late",
}


def build_state_bar(counts: Mapping[DatasetState, int]) -> list[tuple[str, float, float]]:
    """Build a bar of 100 units: class, left edge and width of each part; no part without datasets.

    A state that some dataset has is never too thin to see.
    """
    kinds: dict[str, int] = {}
    for state in DatasetState:
        if counts.get(state):
            kind = _KIND.get(state, "rest")
            kinds[kind] = kinds.get(kind, 0) + counts[state]
    total = sum(kinds.values())
    widths = {kind: max(2.0, _WIDTH * count / total) for kind, count in kinds.items()}
    parts, left = [], 0.0
    for kind, width in widths.items():
        scaled = width * _WIDTH / sum(widths.values())
        parts.append((kind, round(left, 1), round(scaled, 1)))
        left += scaled
    return parts


MAX_DATASETS: Final = 50
"""Largest number of datasets that the page of a site lists: those that are not complete come first."""


LATE_PART: Final = 3
"""A reading is late after this part of the largest valid age: 2 of 6 h, as in the alert HydratorSiteStale."""


@dataclass(frozen=True, slots=True)
class SiteRow:
    """One site in the list of the overview; ``as_of`` is None if the daemon has never read facts about it.

    ``troubles`` are reasons to look at the site, each in a word or two. ``rank`` sorts the list: the worst
    trouble first, then sites with stuck datasets, then the smallest share of complete datasets.
    """

    site: Site
    as_of: datetime | None
    bar: Sequence[tuple[str, float, float]]
    datasets: str
    staging_count: int
    stuck_count: int
    troubles: Sequence[str]
    rank: tuple[int, float, Site]

    @classmethod
    def of(cls, site: Site, server_state: ServerState, counts: SiteCounts | None) -> "SiteRow":
        """Build the row of *site*."""
        ad = server_state.ads.get(site)
        by_state: Mapping[DatasetState, int] = counts.by_state if counts else {}
        as_of = counts.as_of if counts else ad.as_of if ad else None
        stuck_count = by_state.get(DatasetState.STUCK, 0)
        troubles = {
            "held": site in server_state.held_losses,
            "no ad": ad is None,
            "late": as_of is None or server_state.now - as_of > server_state.max_age / LATE_PART,
            "unreadable": DatasetState.UNAVAILABLE in by_state,
        }
        severity = [*troubles.values(), stuck_count > 0, True].index(True)
        datasets, share = "none wanted" if counts else "not read", math.inf
        if counts and counts.total:
            datasets, share = f"{counts.complete:,}/{counts.total:,}", counts.complete / counts.total
        return cls(
            site,
            as_of,
            build_state_bar(by_state),
            datasets,
            by_state.get(DatasetState.STAGING, 0),
            stuck_count,
            [word for word, is_true in troubles.items() if is_true],
            (severity, share, site),
        )


def count_states(counts: Mapping[DatasetState, int]) -> str:
    """Return the counts in words: ``812 available, 3 staging``."""
    return comma_separated(
        f"{counts[state]:,} {state.value.lower()}" for state in DatasetState if counts.get(state)
    )


def is_site_known(site: Site, server_state: ServerState) -> bool:
    """Return whether the site has facts or an ad."""
    return site in server_state.ads or bool(server_state.snapshot and site in server_state.snapshot.sites)


def render_site_page(
    site: Site,
    server_state: ServerState,
    changes: Sequence[tuple[datetime, DatasetChange]],
    *,
    placement: Placement,
    context: PageContext | None = None,
) -> str:
    """Render the page of *site* with its last *changes*, newest first, each with its time."""
    snapshot = server_state.snapshot or Snapshot({})
    facts = snapshot.sites[site].facts if site in snapshot.sites else {}
    counts = placement.sites.get(site)
    ad = server_state.ads.get(site)
    rows = _sort_rows(facts)
    return render_page(
        "site.html",
        f"Site {site}",
        context=context,
        now=server_state.now,
        site=site,
        ad=ad,
        published_at=server_state.published_at.get(site),
        counts=counts,
        states=count_states(counts.by_state) if counts else "",
        max_age=server_state.max_age,
        held_reason=server_state.held_reasons.get(site),
        needs=[need for need in server_state.health.needs if need.site == site],
        omitted_count=len(server_state.omitted_dids.get(site, ())),
        rows=rows[:MAX_DATASETS],
        more_count=max(0, len(rows) - MAX_DATASETS),
        requests=_find_requests(site, server_state),
        signs=SIGNS,
        changes=changes,
    )


def _sort_rows(facts: Mapping[Did, Fact]) -> list[tuple[Did, Fact]]:
    """Return the facts by name; those of datasets that are not complete come first."""
    return sorted(facts.items(), key=lambda row: (row[1].state is DatasetState.AVAILABLE, row[0]))


def _find_requests(site: Site, server_state: ServerState) -> list[Request]:
    requests = server_state.staging.requests if server_state.staging else ()
    return [row for row in requests if row.site == site][:MAX_DATASETS]
