"""Overview page for people: held ads, sites with the age of their facts, datasets by site, last changes.

The functions are pure: they take values and return HTML.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hydrator.diagnostics.locality_history import LocalityOverview, describe_bytes, describe_seconds
from hydrator.domain.model import DatasetState, Demand, Did, Site, SiteAd, Snapshot
from hydrator.domain.text import comma_separated, format_count
from hydrator.reconcile.snapshot.breaker import HeldLoss
from hydrator.server.view import ServerState

from .age_chart import AgeChart, build_age_chart
from .filters import PER_PAGE, STATES, Selection
from .html import render_page
from .queued_sets import build_queued_sets
from .share_chart import ShareChart, build_share_chart
from .staging import build_staging_section

MAX_CHANGES: Final = 15
MAX_HELD_DIDS: Final = 20
"""Largest number of datasets that the page names for one held change."""
_SIGNS: Final = {
    DatasetState.AVAILABLE: "✔",
    DatasetState.STAGING: "↻",
    DatasetState.PARTIAL: "◐",
    DatasetState.NEARLINE: "▤",
    DatasetState.STUCK: "✖",
    DatasetState.UNKNOWN: "?",
}


def render_overview(
    server_state: ServerState, selection: Selection | None = None, *, can_explain_jobs: bool = False
) -> str:
    """Render the page with the datasets of *selection*; *can_explain_jobs* adds the form for idle jobs."""
    snapshot = server_state.snapshot or Snapshot({})
    selection = selection or Selection()
    return render_page(
        "overview.html",
        "Where the data is",
        now=server_state.now,
        problems=list(_list_problems(server_state)),
        summary=_summarize(snapshot, server_state.demand),
        held_ads=[_HeldAd.of(site, server_state) for site in sorted(server_state.held_reasons)],
        can_explain_jobs=can_explain_jobs,
        sites=[
            _SiteRow.of(site, server_state, snapshot)
            for site in sorted(server_state.ads.keys() | snapshot.sites.keys())
        ],
        queued_sets=build_queued_sets(server_state),
        snapshot=snapshot,
        datasets=_select_datasets(snapshot, server_state.demand, selection),
        selection=selection,
        states=STATES,
        signs=_SIGNS,
        experiment=server_state.experiment,
        locality=_Locality.of(server_state.locality),
        staging=build_staging_section(server_state.staging, server_state.now),
        changes=server_state.changes[-MAX_CHANGES:][::-1],
    )


def _list_problems(server_state: ServerState) -> Iterator[tuple[str, str]]:
    if server_state.not_ready_reason:
        yield "Not ready", server_state.not_ready_reason
    if server_state.hang_reason:
        yield "The daemon hangs", server_state.hang_reason
    for trouble in server_state.troubles:
        yield "Failed in the last cycle", trouble


def _summarize(snapshot: Snapshot, demand: Demand | None) -> list[tuple[str, str]]:
    """Return numbers and their labels: sites, complete datasets, jobs with all their data at one site."""
    entries = demand.entries if demand else ()
    demanded = demand.dids if demand else frozenset()
    available = [
        frozenset(did for did, fact in site.facts.items() if fact.state is DatasetState.AVAILABLE)
        for site in snapshot.sites.values()
    ]
    complete_count = len(demanded & frozenset().union(*available))
    job_count = sum(entry.job_count for entry in entries)
    placed_count = sum(
        entry.job_count for entry in entries if any(dids.issuperset(entry.dids) for dids in available)
    )
    return [
        (str(len(snapshot.sites)), "sites known"),
        (f"{complete_count} of {len(demanded)}", "wanted datasets are complete at some site"),
        (f"{placed_count} of {job_count}", "jobs have all their data at one site"),
    ]


@dataclass(frozen=True, slots=True)
class _Locality:
    """The share of jobs and bytes beside their data, and the estimates of a week; None: nothing is known."""

    job_chart: ShareChart | None
    byte_chart: ShareChart | None
    bytes_not_moved: str | None
    seconds_gained: str | None

    @classmethod
    def of(cls, overview: LocalityOverview) -> "_Locality":
        saved_bytes, seconds = overview.bytes_not_moved, overview.seconds_gained
        return cls(
            build_share_chart([(day.day, day.share_of_jobs) for day in overview.days]),
            build_share_chart([(day.day, day.share_of_bytes) for day in overview.days]),
            describe_bytes(saved_bytes) if saved_bytes else None,
            describe_seconds(seconds) if seconds else None,
        )


@dataclass(frozen=True, slots=True)
class _HeldAd:
    """A site whose ad the daemon does not change at present, and the reason.

    The shrink breaker holds back a loss of datasets, or the daemon waits for the catalogues' answers, or an
    operator rolled the site back.
    """

    site: Site
    reason: str
    loss: HeldLoss | None
    is_withheld: bool
    named_dids: Sequence[Did]
    unnamed_count: int

    @classmethod
    def of(cls, site: Site, server_state: ServerState) -> "_HeldAd":
        loss = server_state.held_losses.get(site)
        dids = sorted(loss.missing_polls) if loss else []
        return cls(
            site,
            server_state.held_reasons[site],
            loss,
            is_withheld=site in server_state.withheld_reasons,
            named_dids=dids[:MAX_HELD_DIDS],
            unnamed_count=len(dids) - MAX_HELD_DIDS,
        )


@dataclass(frozen=True, slots=True)
class _SiteRow:
    """Table row of one site; ``as_of`` is None if the daemon has never read facts about the site."""

    site: Site
    as_of: datetime | None
    chart: AgeChart | None
    datasets: str
    trust: str
    generation: str

    @classmethod
    def of(cls, site: Site, server_state: ServerState, snapshot: Snapshot) -> "_SiteRow":
        ad = server_state.ads.get(site)
        known = snapshot.sites.get(site)
        chart, datasets, as_of = None, "?", ad.as_of if ad else None
        if known:
            facts = known.facts.values()
            chart = build_age_chart(facts, now=server_state.now, max_age=server_state.max_age)
            datasets = _count_states(Counter(fact.state for fact in facts)) or "none wanted here"
            as_of = known.as_of
        return cls(site, as_of, chart, datasets, _trust(ad), str(ad.generation) if ad else "not served")


def _count_states(counts: Mapping[DatasetState, int]) -> str:
    return comma_separated(
        f"{counts[state]} {state.value.lower()}" for state in DatasetState if state in counts
    )


def _trust(ad: SiteAd | None) -> str:
    return dict(ad.content).get("DataLocalityTrust", "1.000")[:4] if ad else "?"


@dataclass(frozen=True, slots=True)
class _DatasetTable:
    """One page of the selected datasets; ``known_count`` is the number of all known datasets."""

    known_count: int
    caption: str
    dids: Sequence[Did]
    jobs: Mapping[Did, int]
    sites: tuple[Site, ...]
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


def _select_datasets(snapshot: Snapshot, demand: Demand | None, selection: Selection) -> _DatasetTable:
    """Select one page of datasets; a dataset that more jobs name comes first."""
    jobs = jobs_by_did(demand)
    dids = {did for site in snapshot.sites.values() for did in site.facts}
    dids |= snapshot.unseen_reasons.keys() | (demand.dids if demand else frozenset())
    selected = sorted(selection.filter_dids(dids, snapshot), key=lambda did: (-jobs.get(did, 0), did))
    page_count = max(1, -(-len(selected) // PER_PAGE))
    page = min(selection.page, page_count)
    first = (page - 1) * PER_PAGE
    page_dids = selected[first : first + PER_PAGE]
    total = f" of {len(dids)}" if selection.has_filters else ""
    part = f", {first + 1} to {first + len(page_dids)}" if page_count > 1 else ""
    all_sites = sorted(snapshot.sites)
    return _DatasetTable(
        known_count=len(dids),
        caption=f"{format_count(len(selected), 'dataset')}{total} by site, most wanted first{part}",
        dids=page_dids,
        jobs=jobs,
        sites=tuple(site for site in all_sites if selection.site in {"", site}),
        all_sites=all_sites,
        page=page,
        page_count=page_count,
    )


def jobs_by_did(demand: Demand | None) -> Mapping[Did, int]:
    """Count the jobs that name each dataset."""
    jobs: Counter[Did] = Counter()
    for entry in demand.entries if demand else ():
        for did in entry.dids:
            jobs[did] += entry.job_count
    return jobs
