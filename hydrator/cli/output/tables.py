"""Tables of the commands, from the entries of the view."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from hydrator.cli.output.plain_table import print_lines, print_table
from hydrator.diagnostics.check.findings import Finding
from hydrator.diagnostics.overview.saved import Status
from hydrator.diagnostics.problems import describe_dataset, find_problems
from hydrator.domain.model import to_unix
from hydrator.domain.text import (
    format_bytes,
    format_duration,
    format_percent,
    format_time,
    group_pairs,
    shorten_list,
)
from hydrator.domain.text import format_count as counted
from hydrator.domain.units import UnixTime
from hydrator.reconcile.state import DatasetChange
from hydrator.reconcile.view import CycleView, DatasetView, DemandView, PacingView, SiteView

if TYPE_CHECKING:
    from hydrator.diagnostics.overview.facts import DatasetSource
    from hydrator.staging.overview import StagingOverview

_MAX_LINES = 5
"""Most lines of one kind that ``hydrator status`` prints."""


def print_cycle(view: CycleView) -> None:
    rows = [
        (
            row.publisher or "-",
            row.site,
            row.action,
            _text_or_empty(row.generation),
            "" if row.as_of is None else format_duration(view.at - row.as_of),
            row.why,
        )
        for row in view.plan
    ]
    print_table(("publisher", "site", "action", "generation", "read", "why"), rows)
    if any(site.held and not site.withheld for site in view.sites):
        print_lines(
            ["an ad with a held change keeps its age: hydrator approve SITE releases the held change"]
        )
    count = sum(site.generation is not None for site in view.sites)
    print_lines([f"{counted(count, 'site')}, {_demand_text(view.demand)}"])
    print_lines(_demand_problems(view.demand), style="yellow")


def _demand_text(demand: DemandView, until: str = "for some time") -> str:
    """Return how many datasets are demanded, by whom, and how many are kept *until* then without a job."""
    has_names = demand.by_origin["pin"] or demand.by_origin["pattern"]
    sources = [
        *([counted(demand.jobs, "job")] if demand.jobs else []),
        *(["pins or patterns"] if has_names else []),
    ]
    text = f"{counted(demand.datasets, 'dataset')} demanded by {' and '.join(sources) or '0 jobs'}"
    if not demand.kept_datasets:
        return text
    return f"{text}; {counted(demand.kept_datasets, 'dataset')} kept {until}, which no job names any more"


def print_status(status: Status, now: datetime) -> None:
    cycle = status.cycle
    if cycle is None:
        print_lines(["last cycle: no cycle has ended yet"])
    else:
        outcome = "complete" if cycle.complete else "with failures"
        print_lines([f"last cycle: {_ago(cycle.at, now)}, {outcome}"])
        _print_catalogues(cycle, now)
        print_table(("publisher", "ads read back"), [(row.name, str(row.ads)) for row in cycle.publishers])
        kept_until = cycle.demand.kept_until
        until = f"until {format_time(kept_until, now)}" if kept_until else ""
        print_lines([_demand_text(cycle.demand, until), pacing_line(cycle.pacing, now)])
    print_lines(_staging_lines(status.staging))
    valid = [one for one in status.credentials if not one.is_renewal_due(now)]
    print_lines(f"{one.name} {one.expiry_text(now)}" for one in valid)
    problems = [f"{one.message}; {one.advice}" for one in find_problems(status, now)]
    print_lines([*problems, *(_demand_problems(cycle.demand) if cycle else ())], style="yellow")


def _staging_lines(overview: "StagingOverview | None") -> Iterable[str]:
    """Yield the state of staging in lines for people, with what the mode propose would request."""
    if overview is None:
        return
    requests = counted(len(overview.requests), "request")
    stuck_count = sum(row.is_stuck for row in overview.requests)
    stuck = f", {stuck_count} stuck" if stuck_count else ""
    in_flight = format_bytes(sum(overview.in_flight_bytes.values()))
    yield f"staging: mode {overview.mode}, {requests}{stuck}, {in_flight} on the way (hydrator staging list)"
    planned = [f"staging: {row.description}" for row in overview.planned]
    yield from _first_lines(planned, "planned requests: see hydrator staging list")


def pacing_line(pacing: PacingView, now: datetime) -> str:
    """Return one line: how many sets are open for reads from elsewhere; or why the reads are not paced."""
    left = pacing.open_until - to_unix(now) if pacing.open_until else 0
    if left <= 0:
        return f"reads from other sites are not paced: {pacing.none or 'the last openings are too old'}"
    sets = counted(pacing.sets, "set")
    opened = f"jobs of {sets} may read for {format_duration(left)}" if pacing.sets else "no set is open"
    return (
        f"reads from other sites: {opened}; {counted(pacing.backlog, 'idle job')} can start beside the data"
    )


def _print_catalogues(cycle: CycleView, now: datetime) -> None:
    rows = [
        (row.name, _ago(row.read_at, now), str(len(row.sites)), str(row.datasets), shorten_list(row.unmapped))
        for row in cycle.catalogues
    ]
    print_table(("catalogue", "read", "sites", "datasets", "storage without site"), rows)


def _ago(moment: UnixTime | None, now: datetime, missing: str = "never") -> str:
    """Return the age of *moment* in words; return *missing* if *moment* is None."""
    return missing if moment is None else f"{format_duration(to_unix(now) - moment)} ago"


def _demand_problems(demand: DemandView) -> Iterable[str]:
    """Yield the demand that is refused, that some catalogue did not answer about, or that none has."""
    refused = [f"a job names {text!r}, which is not a DID: {why}" for text, why in demand.refused.items()]
    yield from _first_lines(refused, "such names: see hydrator status --json")
    unseen = []
    for reason, dids in group_pairs((reason, did) for did, reason in demand.unseen.items()).items():
        some = dids[0] if len(dids) == 1 else f"{counted(len(dids), 'dataset')}, for example {dids[0]}"
        unseen.append(f"not all catalogues answered about {some}: {reason}")
    yield from _first_lines(unseen, "such reasons: see hydrator status --json")
    if absent := demand.absent:
        many = f"no site has {counted(len(absent), 'demanded dataset')}, for example {absent[0]}"
        yield f"{many}: check the spelling with hydrator datasets; hydrator run-anywhere does not help"


def _first_lines(lines: Sequence[str], others: str) -> Iterable[str]:
    """Yield the first of *lines*, and the number of the *others*: jobs can name any number of texts."""
    yield from lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        yield f"{len(lines) - _MAX_LINES} more {others}"


def print_sites(sites: Iterable[SiteView], now: datetime) -> None:
    columns = ("site", "read", "generation", "datasets", "published in")
    print_table(columns, [_site_cells(row, now) for row in sites])


def _site_cells(row: SiteView, now: datetime) -> tuple[str, ...]:
    states = ", ".join(f"{count} {state}" for state, count in (row.states or {}).items())
    publishers = [
        name if ad.generation == row.generation else f"{name} (generation {ad.generation})"
        for name, ad in row.read_back.items()
    ]
    return (
        row.site,
        _ago(row.as_of, now),
        _text_or_empty(row.generation),
        (states or "none demanded")
        + (" (truncated)" if row.truncated else "")
        + (f" (removal of {row.loss.datasets} held back)" if row.loss else ""),
        ", ".join(publishers) or "nowhere",
    )


def print_datasets(datasets: Iterable[DatasetView], now: datetime) -> None:
    rows = [cells for row in datasets for cells in _dataset_cells(row, now)]
    print_table(("dataset", "jobs", "site", "state", "read", "note"), rows)


def _dataset_cells(row: DatasetView, now: datetime) -> Iterable[tuple[str, ...]]:
    dataset, note = (row.did, str(row.jobs)), describe_dataset(row, now)
    if not row.sites:
        nothing = "not known" if row.unseen else "nowhere"
        yield (*dataset, "-", nothing if row.demanded else "not asked", "", note)
    for fact in row.sites:
        yield (*dataset, fact.site, fact.state + format_percent(fact.fraction), _ago(fact.as_of, now), note)
        note = ""  # it is about the dataset, and one text; a long one on each line took most of the time


def print_provenance(rows: "Iterable[DatasetSource]", now: datetime) -> None:
    """Print the sources of datasets' states."""
    cells = []
    for row in rows:
        since_then = f"since then: {row.unseen}" if row.unseen and row.as_of else ""
        why = "; ".join(filter(None, (row.why, since_then)))
        place = (row.site or "-", (row.state or "") + format_percent(row.fraction), _ago(row.as_of, now, ""))
        cells.append((row.did, row.catalogue, *place, row.storage, why))
    print_table(("dataset", "catalogue", "site", "state", "read", "storage", "why"), cells)


def print_site_changes(changes: Iterable[DatasetChange], now: datetime) -> None:
    rows = [
        (_ago(one.at, now), one.did, f"{one.before or 'not listed'} to {one.after or 'not listed'}", one.why)
        for one in changes
    ]
    print_table(("decided", "dataset", "change", "why"), rows)


def print_findings(findings: Sequence[Finding]) -> None:
    rows = [(one.level.value, one.subject, one.message, one.advice) for one in findings]
    print_table(("", "subject", "seen", "to do"), rows)


def _text_or_empty(value: object) -> str:
    return "" if value is None else str(value)
