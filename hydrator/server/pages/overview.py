"""Overview page for people: what needs a person, shares, sites, arriving data, waiting jobs, datasets.

The functions are pure: they take values and return HTML.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from operator import attrgetter
from typing import Final

from hydrator.diagnostics.overview.locality_history import LocalityOverview, LocalitySpan
from hydrator.domain.model import DatasetState, Did, Site, Snapshot
from hydrator.domain.text import format_count, format_percent, shorten_list
from hydrator.reconcile.view import SiteView
from hydrator.server.view import ServerState, view_sites
from hydrator.state.locality_hours import begin_of_hour

from .filters import PER_PAGE, STATES, Selection
from .html import SIGNS, PageContext, render_page
from .queued_sets import build_queued_sets
from .site import SiteRow
from .staging import build_arrivals, build_staging_section

SHOWN_HOURS: Final = 48
"""Hours of the chart by hour, the present one included."""
_HOUR: Final = timedelta(hours=1)
_DAY_WIDTH: Final = 8
_HOUR_WIDTH: Final = 5
_HEIGHT: Final = 40


@dataclass(frozen=True, slots=True)
class ShareBar:
    """One bar of the chart, in pixels, and the text that a browser shows above the bar."""

    left: int
    height: int
    text: str


@dataclass(frozen=True, slots=True)
class ShareChart:
    """A bar chart in pixels; ``text`` describes the shares in words. A time without a share has no bar.

    ``begin`` and ``end`` are the ends of the time axis: days, or times.
    """

    bars: tuple[ShareBar, ...]
    text: str
    width: int
    bar_width: int
    begin: date
    end: date
    height: int = _HEIGHT

    @property
    def has_hours(self) -> bool:
        """Return whether the bars are hours; otherwise they are days (UTC)."""
        return isinstance(self.begin, datetime)


def build_day_chart(shares: Sequence[tuple[date, float | None]]) -> ShareChart | None:
    """Build the chart of *shares* (0 to 1) by day, oldest first; None if no day has a share."""
    if not shares:
        return None
    points = [(f"{day}", share) for day, share in shares]
    return _build(points, "days", _DAY_WIDTH, shares[0][0], shares[-1][0])


def build_hour_chart(shares: Sequence[tuple[date, float | None]], *, now: datetime) -> ShareChart | None:
    """Build the chart of the last SHOWN_HOURS hours; None if none of them has a share.

    *shares* (0 to 1) are by the begin of an hour; an hour without jobs may be missing.
    """
    known = dict(shares)
    hours = [begin_of_hour(now) - age * _HOUR for age in reversed(range(SHOWN_HOURS))]
    points = [(f"{hour:%Y-%m-%d %H:%M} UTC", known.get(hour)) for hour in hours]
    return _build(points, "hours", _HOUR_WIDTH, hours[0], now)


def _build(
    points: Sequence[tuple[str, float | None]], unit: str, bar_width: int, begin: date, end: date
) -> ShareChart | None:
    bars = tuple(
        ShareBar(place * bar_width, max(1, round(share * _HEIGHT)), f"{label}: {_percent(share)}")
        for place, (label, share) in enumerate(points)
        if share is not None
    )
    known = [share for _, share in points if share is not None]
    if not known:
        return None
    bounds = f"from {_percent(min(known))} to {_percent(max(known))}"
    text = f"{bounds} in {len(points)} {unit}, lately {_percent(known[-1])}"
    return ShareChart(bars, text, len(points) * bar_width, bar_width, begin, end)


def _percent(share: float) -> str:
    return f"{int(share * 100 + 1e-9)} %"


MAX_CHANGES: Final = 15
MAX_PLACES: Final = 5
"""Largest number of sites that a row of a dataset names for each state."""
MAX_NEEDS: Final = 5
"""Largest number of needs at the top of the page; a reader can open the others."""


def render_overview(
    server_state: ServerState,
    selection: Selection | None = None,
    *,
    can_explain_jobs: bool = False,
    context: PageContext | None = None,
) -> str:
    """Render the page with the datasets of *selection*; *can_explain_jobs* adds the form for idle jobs."""
    rows = [SiteRow.of(site, server_state.now, server_state.max_age) for site in view_sites(server_state)]
    health, cycle = server_state.health, server_state.cycle
    return render_page(
        "overview.html",
        f"{health.summary} · classad-hydrator",
        context=context,
        now=server_state.now,
        health=health,
        max_needs=MAX_NEEDS,
        waiting_ads=_group_sites(cycle.sites if cycle else ()),
        not_ready_reason=server_state.not_ready_reason,
        parts=sorted(cycle.parts if cycle else (), key=lambda part: part.error is None),
        demand=cycle.demand if cycle else None,
        can_explain_jobs=can_explain_jobs,
        sites=sorted(rows, key=attrgetter("rank")),
        queued_sets=build_queued_sets(server_state),
        datasets=_select_datasets(server_state, selection or Selection()),
        selection=selection or Selection(),
        states=STATES,
        signs=SIGNS,
        locality=_Locality.of(server_state.locality, server_state.now),
        arrivals=build_arrivals(server_state.staging),
        staging=build_staging_section(server_state.staging),
        changes=server_state.changes[-MAX_CHANGES:][::-1],
    )


def _group_sites(sites: Iterable[SiteView]) -> list[tuple[str, str]]:
    """Return each reason why a published ad is not replaced yet, after the sites that have it, in words."""
    names: defaultdict[str, list[Site]] = defaultdict(list)
    for one in sites:
        if one.withheld and one.held:
            names[one.held].append(one.site)
    return [(shorten_list(of_reason), reason) for reason, of_reason in names.items()]


@dataclass(frozen=True, slots=True)
class _Locality:
    """The share of jobs that started beside their data, with its charts; None: not known."""

    last_day: LocalitySpan | None
    last_week: LocalitySpan | None
    days: ShareChart | None
    hours: ShareChart | None

    @classmethod
    def of(cls, overview: LocalityOverview, now: datetime) -> "_Locality":
        return cls(
            overview.last_day,
            overview.last_week,
            build_day_chart([(each.started_at, each.share_of_jobs) for each in overview.days]),
            build_hour_chart([(each.started_at, each.share_of_jobs) for each in overview.hours], now=now),
        )


def _list_places(snapshot: Snapshot, did: Did, sites: Sequence[Site]) -> list[tuple[DatasetState, str]]:
    """Return each state of *did* with the sites that have it, in words; the best state first."""
    names: defaultdict[DatasetState, list[str]] = defaultdict(list)
    for site in sites:
        if fact := snapshot.sites[site].facts.get(did):
            is_part = fact.fraction is not None and 0 < fact.fraction < 1
            names[fact.state].append(site + format_percent(fact.fraction) if is_part else site)
    return [(state, shorten_list(names[state], limit=MAX_PLACES)) for state in DatasetState if names[state]]


@dataclass(frozen=True, slots=True)
class _DatasetTable:
    """One page of the selected datasets; ``known_count`` is the number of all known datasets."""

    known_count: int
    caption: str
    rows: Sequence[tuple[Did, list[tuple[DatasetState, str]]]]
    jobs: Mapping[Did, int]
    unseen: Mapping[Did, str]
    all_sites: Sequence[Site]
    page: int
    page_count: int

    @property
    def page_links(self) -> list[tuple[str, int]]:
        links = (
            ("First", 1),
            ("Previous", self.page - 1),
            ("Next", self.page + 1),
            ("Last", self.page_count),
        )
        return [(label, page) for label, page in links if 1 <= page <= self.page_count and page != self.page]


def _select_datasets(server_state: ServerState, selection: Selection) -> _DatasetTable:
    """Select one page of datasets; a dataset that more jobs name comes first."""
    jobs, snapshot, dids = server_state.demand.job_counts, server_state.snapshot, server_state.known_dids
    by_name = sorted(selection.filter_dids(dids, snapshot))
    demanded = sorted(filter(jobs.get, by_name), key=jobs.__getitem__, reverse=True)
    selected = demanded + [did for did in by_name if not jobs.get(did)]
    page_count = max(1, -(-len(selected) // PER_PAGE))
    page = min(selection.page, page_count)
    first = (page - 1) * PER_PAGE
    page_dids = selected[first : first + PER_PAGE]
    total = f" of {len(dids)}" if selection.has_filters else ""
    part = f", {first + 1} to {first + len(page_dids)}" if page_count > 1 else ""
    all_sites = sorted(snapshot.sites)
    sites = [site for site in all_sites if selection.site in {"", site}]
    return _DatasetTable(
        known_count=len(dids),
        caption=f"{format_count(len(selected), 'dataset')}{total}, most demanded first{part}",
        rows=[(did, _list_places(snapshot, did, sites)) for did in page_dids],
        jobs=jobs,
        unseen=snapshot.unseen_reasons,
        all_sites=all_sites,
        page=page,
        page_count=page_count,
    )
