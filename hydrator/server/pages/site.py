"""One site: its tile on the overview, and its page. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hydrator.diagnostics.overview.placement import Placement, SiteCounts
from hydrator.domain.model import DatasetState, Did, Fact, Site, Snapshot
from hydrator.domain.text import comma_separated, format_count, format_duration
from hydrator.reconcile.history import DatasetChange
from hydrator.server.view import ServerState
from hydrator.staging.table import Request

from .html import SIGNS, PageContext, render_page

COLUMN_COUNT: Final = 12
"""Number of columns for ages up to the largest valid age; one more column has all older facts."""
_BAR_WIDTH: Final = 10
_HEIGHT: Final = 24


@dataclass(frozen=True, slots=True)
class AgeBar:
    """One bar of the chart, in pixels; ``is_late`` means that the facts of this bar are too old."""

    left: int
    height: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class AgeChart:
    """A bar chart in pixels; ``text`` describes the ages in words."""

    bars: tuple[AgeBar, ...]
    text: str
    bar_width: int = _BAR_WIDTH
    height: int = _HEIGHT

    @property
    def width(self) -> int:
        return (COLUMN_COUNT + 1) * self.bar_width


def count_by_age(facts: Iterable[Fact], *, now: datetime, max_age: timedelta) -> list[int]:
    """Count facts by age: for each of ``COLUMN_COUNT`` equal parts of *max_age*, then all older facts."""
    columns = [0] * (COLUMN_COUNT + 1)
    for as_of, fact_count in Counter(fact.as_of for fact in facts).items():
        share = max(now - as_of, timedelta()) / max_age
        columns[min(int(share * COLUMN_COUNT), COLUMN_COUNT)] += fact_count
    return columns


def build_age_chart(facts: Collection[Fact], *, now: datetime, max_age: timedelta) -> AgeChart:
    """Build the chart of one site's facts; a column that is not empty is at least 2 pixels high."""
    columns = count_by_age(facts, now=now, max_age=max_age)
    highest = max(columns) or 1
    bars = tuple(
        AgeBar(
            left=column * _BAR_WIDTH,
            height=max(2, round(count / highest * _HEIGHT)),
            is_late=column == COLUMN_COUNT,
        )
        for column, count in enumerate(columns)
        if count
    )
    oldest_at = min((fact.as_of for fact in facts), default=None)
    return AgeChart(bars, _describe_ages(oldest_at, columns[COLUMN_COUNT], now, max_age))


def _describe_ages(oldest_at: datetime | None, late_count: int, now: datetime, max_age: timedelta) -> str:
    if oldest_at is None:
        return "nothing is known"
    late = f"; too old: {format_count(late_count, 'fact')}" if late_count else ""
    age, limit = format_duration((now - oldest_at).total_seconds()), format_duration(max_age.total_seconds())
    return f"the oldest fact is {age} old; facts are valid for {limit}{late}"


_WIDTH: Final = 100.0
_KIND: Final = {DatasetState.AVAILABLE: "bar", DatasetState.STAGING: "move", DatasetState.STUCK: "late"}


@dataclass(frozen=True, slots=True)
class StateBar:
    """Parts of a bar of 100 units: class, left edge and width of each."""

    parts: tuple[tuple[str, float, float], ...]


def build_state_bar(counts: Mapping[DatasetState, int]) -> StateBar | None:
    """Build the bar; a state that some dataset has is never too thin to see. None without datasets."""
    kinds: dict[str, int] = {}
    for state in DatasetState:
        if counts.get(state):
            kind = _KIND.get(state, "rest")
            kinds[kind] = kinds.get(kind, 0) + counts[state]
    total = sum(kinds.values())
    if not total:
        return None
    widths = {kind: max(2.0, _WIDTH * count / total) for kind, count in kinds.items()}
    scale = _WIDTH / sum(widths.values())
    parts, left = [], 0.0
    for kind, width in widths.items():
        parts.append((kind, round(left, 1), round(width * scale, 1)))
        left += width * scale
    return StateBar(tuple(parts))


MAX_DATASETS: Final = 50
"""Largest number of datasets that the page of a site lists: those that are not complete come first."""


@dataclass(frozen=True, slots=True)
class SiteTile:
    """One site in the grid; ``as_of`` is None if the daemon has never read facts about the site."""

    site: Site
    as_of: datetime | None
    bar: StateBar | None
    datasets: str
    staging_count: int
    is_served: bool
    is_held: bool

    @classmethod
    def of(cls, site: Site, server_state: ServerState, counts: SiteCounts | None) -> "SiteTile":
        """Build the tile of *site*."""
        ad = server_state.ads.get(site)
        bar, datasets, as_of, staging = None, "not read yet", ad.as_of if ad else None, 0
        if counts:
            bar = build_state_bar(counts.by_state)
            datasets = "none wanted here"
            if counts.total:
                datasets = f"{counts.complete:,} of {counts.total:,}"
            staging = counts.by_state.get(DatasetState.STAGING, 0)
            as_of = counts.as_of
        is_held = site in server_state.held_reasons
        return cls(site, as_of, bar, datasets, staging, ad is not None, is_held)


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
        bar=build_state_bar(counts.by_state) if counts else None,
        chart=build_age_chart(facts.values(), now=server_state.now, max_age=server_state.max_age),
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
