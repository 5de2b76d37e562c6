"""Tables of the commands, from the same rows as their ``--json`` output."""

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console

from hydrator.cli.output.json_models.facts import DatasetChangeJson, DatasetJson, SiteJson
from hydrator.cli.output.json_models.status import (
    DemandStatusJson,
    OpeningsStatusJson,
    StatusJson,
)
from hydrator.cli.output.plain_table import format_table
from hydrator.cli.output.rows import (
    StateView,
    dataset_rows,
    find_present_datasets,
    plan_rows,
    status_rows,
)
from hydrator.diagnostics.check.findings import Finding
from hydrator.domain.model import Demand, Did, Origin, to_unix
from hydrator.domain.redaction import escape_unprintable
from hydrator.domain.text import format_bytes, format_duration, format_time
from hydrator.domain.text import format_count as counted
from hydrator.reconcile.demand import describe_withheld_key
from hydrator.reconcile.result import CycleReport
from hydrator.staging.overview import StagingOverview
from hydrator.submit.nearest_names import similar_names

_MAX_MISSPELT_NAMES = 20
"""Largest number of misspelt names in one table for which a similar name is sought."""


def print_plan(report: CycleReport) -> None:
    started_at = to_unix(report.started_at)
    rows = [
        (
            row["publisher"] or "-",
            row["site"],
            row["action"],
            _text_or_empty(row["generation"]),
            "" if row["as_of"] is None else format_duration(started_at - row["as_of"]),
            row["why"],
        )
        for row in plan_rows(report)
    ]
    print_table(("publisher", "site", "action", "generation", "read", "why"), rows)
    if report.held_reasons.keys() - report.evaluation.withheld_reasons.keys():
        _new_console().print(
            "an ad with a held change keeps its age: hydrator approve SITE releases the held change"
        )


def print_cycle(report: CycleReport) -> None:
    print_plan(report)
    _new_console().print(f"{counted(len(report.evaluation.ads), 'site')}, {_wanted_text(report.demand)}")


def _wanted_text(demand: Demand, until: str = "for some time") -> str:
    """Return how many datasets are wanted and by whom, and how many are kept *until* then without a job."""
    jobs = sum(want.job_count for want in demand.entries)
    has_names = any(want.origin is not Origin.JOB for want in demand.entries)
    sources = [*([counted(jobs, "job")] if jobs else []), *(["pins or patterns"] if has_names else [])]
    kept = len(demand.kept_dids)
    text = f"{counted(len(demand.dids) - kept, 'dataset')} wanted by {' and '.join(sources) or '0 jobs'}"
    return text + (f"; {counted(kept, 'dataset')} kept {until}, which no job names any more" if kept else "")


def print_status(view: StateView) -> None:
    status = status_rows(view)
    console = _new_console()
    if status["last_cycle"] is None:
        console.print("last cycle: no cycle has ended yet")
    else:
        ago = _ago_text(status["last_cycle"], view.now)
        console.print(f"last cycle: {ago}, {'complete' if status['complete'] else 'with failures'}")
    _print_warnings(console, _daemon_problem_lines(status, view.now))
    print_table(*_catalogue_table(status, view.now))
    print_table(*_publisher_table(status))
    demand = status["demand"]
    kept_until = demand["kept_until"]
    until = f"until {format_time(kept_until, view.now)}" if kept_until else ""
    console.print(_wanted_text(view.demand, until), highlight=False)
    console.print(openings_line(status["openings"], view.now), highlight=False)
    for text in _staging_lines(status["staging"]):
        console.print(text, highlight=False, markup=False)
    _print_warnings(console, list(_staging_problem_lines(status["staging"])))
    held_lines = [
        f"change held at {row['site']}: {row['why']}"
        f" (hydrator approve {shlex.quote(row['site'])} releases the change)"
        for row in status["held"]
    ]
    problem_lines = [*_ad_problem_lines(status), *_demand_problem_lines(demand)]
    _print_warnings(console, [*held_lines, *problem_lines])
    for one in view.credentials:
        is_due = one.is_renewal_due(view.now)
        line = f"{one.name}: {one.expiry_text(view.now)}" + (f"; {one.todo}" if is_due else "")
        console.print(line, style="yellow" if is_due else None, highlight=False)


def _staging_lines(overview: StagingOverview | None) -> Iterable[str]:
    """Yield the state of staging in lines for people, with what the mode propose would request."""
    if overview is None:
        return
    requests = counted(len(overview.requests), "request")
    stuck_count = sum(row.is_stuck for row in overview.requests)
    stuck = f", {stuck_count} stuck" if stuck_count else ""
    in_flight = format_bytes(sum(overview.in_flight_bytes.values()))
    yield f"staging: mode {overview.mode}, {requests}{stuck}, {in_flight} on the way (hydrator staging list)"
    yield from (f"staging: {row.description}" for row in overview.planned)


def _staging_problem_lines(overview: StagingOverview | None) -> Iterable[str]:
    """Yield the reasons why staging requests nothing, or less."""
    if overview and overview.stop_reason:
        yield f"staging requests and renews nothing: {overview.stop_reason}"
    for part, problem in sorted(overview.problems.items()) if overview else ():
        yield f"staging: {part}: {problem}"


def openings_line(openings: OpeningsStatusJson, now: datetime) -> str:
    """Return one line: how many sets are open for reads from elsewhere; or why the reads are not paced."""
    if openings["none"] or openings["open_until"] is None:
        return f"reads from other sites are not paced: {openings['none']}"
    until = format_duration(openings["open_until"] - to_unix(now))
    sets = counted(openings["sets"], "set")
    waiting = counted(openings["backlog"], "job")
    return f"reads from other sites: {sets} of datasets open for {until}; {waiting} wait beside their data"


def _print_warnings(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, style="yellow", highlight=False)


def _daemon_problem_lines(status: StatusJson, now: datetime) -> Iterable[str]:
    if status["daemon_problem"]:
        yield f"daemon: {status['daemon_problem']}; the values below are from the last cycle"
    if failure := status["reload"]:
        ago, why = _ago_text(failure["at"], now), "; ".join(failure["problems"])
        yield f"the daemon refused the reload {ago} and uses the previous configuration: {why}"


_Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The names of the columns, and the rows."""


def _catalogue_table(status: StatusJson, now: datetime) -> _Table:
    rows = []
    for row in status["catalogues"]:
        trouble = row["failure"] or (
            f"no site for storage elements {', '.join(row['unmapped'])}" if row["unmapped"] else ""
        )
        read = _ago_text(row["read"], now)
        rows.append((row["catalogue"], read, str(len(row["sites"])), str(row["datasets"]), trouble))
    return ("catalogue", "read", "sites", "datasets", "trouble"), rows


def _publisher_table(status: StatusJson) -> _Table:
    rows = []
    for row in status["publishers"]:
        missing = ", ".join(row["not_read_back"])
        trouble = row["error"] or (f"ads sent, but not read back: {missing}" if missing else "")
        rows.append((row["publisher"], str(row["ads"]), trouble))
    return ("publisher", "ads read back", "trouble"), rows


def _ago_text(moment: int | None, now: datetime, missing: str = "never") -> str:
    """Return the age of *moment* (Unix s) in words; return *missing* if *moment* is None."""
    return missing if moment is None else f"{format_duration(to_unix(now) - moment)} ago"


def _ad_problem_lines(rows: StatusJson) -> Iterable[str]:
    for publisher, ads in rows["rejected"].items():
        for name, why in ads.items():
            yield f"publisher {publisher} has an ad {name} that the daemon does not adopt: {why}"
    for publisher, why in rows["rivals"].items():
        yield f"publisher {publisher}: {why}: docs/operators/monitoring.md#hydratorrival"


def _demand_problem_lines(demand_row: DemandStatusJson) -> Iterable[str]:
    for text, reason in demand_row["refused"].items():
        yield f"a job names {text!r}, which is not a DID: {reason}"
    for clash in demand_row["clashes"]:
        names = ", ".join(clash)
        yield f"the daemon advertises none of these datasets, whose names differ only in letter case: {names}"
    for did, spellings in demand_row["misspelt"].items():
        names = ", ".join(spellings)
        yield f"no catalogue has the wanted dataset {did}; names with other letter case exist: {names}"
    for did, reason in demand_row["unseen"].items():
        yield f"no catalogue answered about {did}: {reason}"
    for key, jobs in demand_row["withheld_keys"].items():
        yield describe_withheld_key(key, jobs)
    if nowhere := demand_row["absent_datasets"]:
        many = f"no site has {counted(len(nowhere), 'wanted dataset')}, for example {nowhere[0]}"
        yield f"{many}: check the spelling with hydrator datasets; hydrator run-anywhere does not help"
    for site, wants in demand_row["left_out"].items():
        jobs = sum(max(1, want["jobs"]) for want in wants)
        job_text = counted(jobs, "job")
        example = wants[0]["first"]
        yield f"no space in the ad of {site} for the datasets of {job_text}, for example {example}"


def print_sites(site_rows: Iterable[SiteJson], now: datetime) -> None:
    columns = ("site", "read", "generation", "datasets", "published in")
    print_table(columns, [_site_cells(row, now) for row in site_rows])


def _site_cells(row: SiteJson, now: datetime) -> tuple[str, ...]:
    states = ", ".join(f"{count} {state}" for state, count in row["states"].items())
    publishers = [
        name if ad["generation"] == row["generation"] else f"{name} (generation {ad['generation']})"
        for name, ad in row["read_back"].items()
    ]
    return (
        row["site"],
        _ago_text(row["as_of"], now),
        _text_or_empty(row["generation"]),
        (states or "none wanted")
        + (" (truncated)" if row["truncated"] else "")
        + (f" (removal of {row['held']} held back)" if row["held"] else ""),
        ", ".join(publishers) or "nowhere",
    )


def print_datasets(view: StateView, dids: Sequence[Did] | None) -> None:
    suggest = _NameSuggestions(find_present_datasets(view))
    rows = [cells for row in dataset_rows(view, dids) for cells in _dataset_cells(row, suggest, view.now)]
    print_table(("dataset", "jobs", "site", "state", "read", "note"), rows)


def _dataset_cells(
    row: DatasetJson, suggest: Callable[[str], str], now: datetime
) -> Iterable[tuple[str, ...]]:
    dataset = (row["did"], str(row["jobs"]))
    note = _dataset_note(row, now)
    if not row["sites"]:
        nothing = "not known" if row["unseen"] else "nowhere"
        state = nothing if row["wanted"] else "not asked"
        yield (*dataset, "-", state, "", note or suggest(row["did"]))
    for site, fact in row["sites"].items():
        fraction = "" if fact["fraction"] is None else f" {fact['fraction']:.0%}"
        yield (*dataset, site, fact["state"] + fraction, _ago_text(fact["as_of"], now), note)


class _NameSuggestions:
    """Notes for datasets that no catalogue has, the first of them with the most similar one of *names*."""

    def __init__(self, names: Iterable[Did]) -> None:
        self._names = frozenset(names)
        self._left = _MAX_MISSPELT_NAMES

    def __call__(self, did: str) -> str:
        note = "no catalogue has this dataset: check the spelling"
        self._left -= 1
        near = similar_names(Did(did), self._names) if self._left >= 0 else ()
        return note + (f"; {near[0]} exists" if near else "")


def print_provenance(rows: Sequence[Mapping[str, Any]], now: datetime) -> None:
    """Print the sources of datasets' states; *rows* come from ``provenance_rows``."""
    cells = []
    for row in rows:
        fraction = "" if row.get("fraction") is None else f" {row['fraction']:.0%}"
        why = row["why"] + (f"; since then: {row['unseen']}" if row["unseen"] and row["site"] else "")
        place = (row["site"] or "-", (row["state"] or "") + fraction, _ago_text(row["as_of"], now, ""))
        cells.append((row["did"], row["catalogue"], *place, row.get("storage", ""), row.get("call", ""), why))
    print_table(("dataset", "catalogue", "site", "state", "read", "storage", "by", "why"), cells)


def print_site_changes(changes: Sequence[DatasetChangeJson], now: datetime) -> None:
    rows = [
        (
            _ago_text(row["at"], now),
            row["did"],
            f"{row['before'] or 'not listed'} to {row['after'] or 'not listed'}",
            row["why"],
        )
        for row in changes
    ]
    print_table(("decided", "dataset", "change", "why"), rows)


def print_findings(findings: Sequence[Finding]) -> None:
    rows = [(one.level.value, one.subject, one.message, one.todo) for one in findings]
    print_table(("", "subject", "seen", "to do"), rows)


def _dataset_note(row: DatasetJson, now: datetime) -> str:
    if row["kept_until"] is not None:
        return f"no job names it any more; kept until {format_time(row['kept_until'], now)}"
    if row["clash"]:
        return "not advertised: another dataset's name differs only in letter case"
    if row["misspelt"]:
        return f"no catalogue has this name; names with other letter case exist: {', '.join(row['misspelt'])}"
    if row["unseen"]:
        return f"no catalogue answered: {row['unseen']}"
    return (
        "" if row["wanted"] else "no job, pin or pattern wants this dataset, so the daemon does not poll it"
    )


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print *rows* below the names of their *columns*."""
    console = _new_console()
    head, body = format_table(console, columns, rows)
    console.print("\n".join(head), style="bold", soft_wrap=True)
    sys.stdout.write("".join(f"{line}\n" for line in body))


def print_lines(lines: Iterable[str]) -> None:
    """Print each of *lines*."""
    console = _new_console()
    for line in lines:
        console.print(line)


class PlainConsole(Console):
    """A console that escapes unprintable characters, except its own styles."""

    def print(self, *parts: Any, **more: Any) -> None:  # noqa: ANN401 - Rich's own
        super().print(*map(_to_printable, parts), **more)


def _to_printable(part: Any) -> Any:  # noqa: ANN401 - what Rich can draw
    return escape_unprintable(part, "\n") if isinstance(part, str) else part


def _new_console() -> Console:
    """Build a console as wide as the terminal, or 200 characters without one."""
    width = None if sys.stdout.isatty() else 200
    return PlainConsole(width=width, soft_wrap=False, highlight=False, markup=False)


def _text_or_empty(value: object) -> str:
    return "" if value is None else str(value)
