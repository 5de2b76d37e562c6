"""Overview page for people: what needs a person, shares, sites, arriving data, waiting jobs, datasets.

The query in the page's URL selects the datasets, without a script. The functions are pure: they take values
and return HTML.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final
from urllib.parse import urlencode

from hydrator.diagnostics.overview.locality_history import LocalityOverview
from hydrator.domain.ads.openings import describe_outlook
from hydrator.domain.model import DatasetState, DemandEntry, Did, Snapshot
from hydrator.domain.staging_ports import StagingKind
from hydrator.domain.text import format_count, format_percent, group_pairs, shorten_list
from hydrator.domain.units import Bytes
from hydrator.reconcile.view import SiteView
from hydrator.server.pages.html import format_share, render_page
from hydrator.server.pages.site import SiteRow
from hydrator.server.view import ServerState, view_sites
from hydrator.staging.overview import StagingOverview
from hydrator.staging.table import Request

MAX_ROWS: Final = 8
_NOT_AUTO: Final = "waits beside its data only: no job has the mode auto"


@dataclass(frozen=True, slots=True)
class QueuedSets:
    """The sets with the most waiting jobs; ``note`` says if reads are not paced, and why.

    A row has the set, its size, the number of its jobs, and their prospect, empty if it is not known.
    """

    rows: Sequence[tuple[DemandEntry, Bytes | None, int, str]]
    more_count: int
    caption: str
    note: str


def build_queued_sets(state: ServerState) -> QueuedSets:
    """Select the sets with idle jobs; while the queues are not known, those with queued or running jobs."""
    entries = [entry for entry in state.demand.entries if entry.key]
    counts: Mapping[str | None, int] = {entry.key: entry.job_count for entry in entries}
    auto_keys, kind = frozenset(counts), "queued or running job"
    if state.load:
        groups = state.load.idle
        counts, kind = Counter(), "job"
        for group in groups:
            counts[group.key] += group.job_count
        auto_keys = frozenset(group.key for group in groups if group.is_auto)
    named = sorted((entry for entry in entries if counts.get(entry.key)), key=attrgetter("dids"))
    named.sort(key=lambda entry: counts[entry.key], reverse=True)
    job_count = sum(counts[entry.key] for entry in named)
    rows = []
    for entry in named[:MAX_ROWS]:
        prospect = _NOT_AUTO
        if entry.key and entry.key in auto_keys:
            prospect = describe_outlook(entry.key, state.openings) if state.openings else ""
        rows.append((entry, state.snapshot.sum_bytes(entry.dids), counts[entry.key], prospect))
    note = ""
    if state.openings is None:
        reason = state.knowledge.no_openings_reason if state.knowledge else None
        note = f"The daemon does not pace reads from other sites{f': {reason}' if reason else ''}."
    return QueuedSets(
        rows,
        max(0, len(named) - MAX_ROWS),
        f"{format_count(job_count, kind)}, {format_count(len(named), 'set')}",
        note,
    )


PER_PAGE: Final = 25
_MAX_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of datasets by a part of the DID; empty for all. ``page`` counts from 1."""

    name_contains: str = ""
    page: int = 1

    def query_for_page(self, page: int) -> str:
        """Return the query of another page of the same selection."""
        find = {"find": self.name_contains} if self.name_contains else {}
        return urlencode({**find, "page": page})


def parse_selection(query: Mapping[str, str]) -> Selection:
    """Parse the query in the page's URL; ignore fields that are not valid."""
    page = query.get("page", "").strip()
    return Selection(
        query.get("find", "").strip()[:_MAX_CHARS],
        max(1, int(page)) if page.isascii() and page.isdecimal() and len(page) < 8 else 1,
    )


MAX_CHANGES: Final = 15
MAX_PLACES: Final = 5
"""Largest number of sites that a row of a dataset names for each state."""
MAX_NEEDS: Final = 5
"""Largest number of needs at the top of the page; a reader can open the others."""
MAX_ARRIVALS: Final = 4
"""Largest number of requests on their way that the top of the page shows."""
MAX_REQUESTS: Final = 100
"""Largest number of requests, and of planned requests, that the page lists."""


def render_overview(
    server_state: ServerState,
    selection: Selection | None = None,
    *,
    can_explain_jobs: bool = False,
) -> str:
    """Render the page with the datasets of *selection*; *can_explain_jobs* adds the form for idle jobs."""
    rows = [SiteRow.of(site, server_state.now, server_state.max_age) for site in view_sites(server_state)]
    arrivals = _select_arrivals(server_state.staging)
    needs, cycle = server_state.problems, server_state.cycle
    verdict, summary = _judge(len(needs), server_state.not_ready_reason)
    return render_page(
        "overview.html",
        f"{summary} · classad-hydrator",
        version=server_state.version,
        now=server_state.now,
        needs=needs,
        verdict=verdict,
        summary=summary,
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
        locality=server_state.locality,
        chart_text=_describe_chart(server_state.locality),
        arrivals=arrivals,
        arrived_bytes=sum(row.bytes * (row.share_done or 0) for row in arrivals),
        max_arrivals=MAX_ARRIVALS,
        staging=_sort_requests(server_state.staging),
        max_requests=MAX_REQUESTS,
        changes=server_state.changes[-MAX_CHANGES:][::-1],
    )


def _describe_chart(overview: LocalityOverview) -> str:
    """Return the shares of the days, for a reader who does not see their chart; empty without a share."""
    shares = [day.share_of_jobs for day in overview.days if day.share_of_jobs is not None]
    if not shares:
        return ""
    least, most, last = map(format_share, (min(shares), max(shares), shares[-1]))
    return f"from {least} to {most} in {len(overview.days)} days, lately {last}"


def _judge(need_count: int, waiting_reason: str | None) -> tuple[str, str]:
    """Return the health in one word, and in one sentence.

    A daemon that starts and publishes nothing yet is waiting: no person has to do anything.
    """
    if need_count:
        return (
            "attention",
            f"{format_count(need_count, 'thing')} {'needs' if need_count == 1 else 'need'} you",
        )
    return ("waiting", waiting_reason) if waiting_reason else ("well", "all is well")


def _group_sites(sites: Iterable[SiteView]) -> list[tuple[str, str]]:
    """Return each reason why a published ad is not replaced yet, after the sites that have it, in words."""
    names = group_pairs((one.held, one.site) for one in sites if one.withheld and one.held)
    return [(shorten_list(of_reason), reason) for reason, of_reason in names.items()]


def _select_arrivals(overview: StagingOverview | None) -> list[Request]:
    """Select the requests of data that have not arrived; those that end first come first."""
    requests = overview.requests if overview else ()
    rows = [row for row in requests if row.kind is StagingKind.STAGE and not row.is_complete]
    return sorted(rows, key=lambda row: (row.ready_at is None, row.ready_at or row.asked_at, row.did))


def _sort_requests(overview: StagingOverview | None) -> StagingOverview | None:
    """Return *overview* with stuck requests first; None if staging is off and no request is open."""
    if overview is None or (overview.mode == "off" and not overview.requests):
        return None
    rows = sorted(overview.requests, key=lambda row: (not row.is_stuck, row.is_complete, row.asked_at))
    return replace(overview, requests=tuple(rows))


def _list_places(snapshot: Snapshot, did: Did) -> list[tuple[DatasetState, str]]:
    """Return each state of *did* with the sites that have it, in words; the best state first."""
    names: defaultdict[DatasetState, list[str]] = defaultdict(list)
    for site, known in sorted(snapshot.sites.items()):
        if fact := known.facts.get(did):
            is_part = fact.fraction is not None and 0 < fact.fraction < 1
            names[fact.state].append(site + format_percent(fact.fraction) if is_part else site)
    return [(state, shorten_list(names[state], limit=MAX_PLACES)) for state in DatasetState if names[state]]


@dataclass(frozen=True, slots=True)
class _DatasetTable:
    """One page of the selected datasets; ``known_count`` is the number of all known datasets.

    A row has the DID, the number of its jobs, the reason why no catalogue answered, and its places.
    """

    known_count: int
    caption: str
    rows: Sequence[tuple[Did, int, str | None, list[tuple[DatasetState, str]]]]
    page: int
    page_count: int


def _select_datasets(server_state: ServerState, selection: Selection) -> _DatasetTable:
    """Select one page of datasets; a dataset that more jobs name comes first."""
    jobs, snapshot, dids = server_state.demand.job_counts, server_state.snapshot, server_state.known_dids
    text = selection.name_contains.lower()
    by_name = sorted(did for did in dids if text in did.lower())
    demanded = sorted(filter(jobs.get, by_name), key=jobs.__getitem__, reverse=True)
    selected = demanded + [did for did in by_name if not jobs.get(did)]
    page_count = max(1, -(-len(selected) // PER_PAGE))
    page = min(selection.page, page_count)
    first = (page - 1) * PER_PAGE
    page_dids = selected[first : first + PER_PAGE]
    total = f" of {len(dids)}" if text else ""
    part = f", {first + 1} to {first + len(page_dids)}" if page_count > 1 else ""
    return _DatasetTable(
        known_count=len(dids),
        caption=f"{format_count(len(selected), 'dataset')}{total}, most demanded first{part}",
        rows=[
            (did, jobs.get(did, 0), snapshot.unseen_reasons.get(did), _list_places(snapshot, did))
            for did in page_dids
        ],
        page=page,
        page_count=page_count,
    )
