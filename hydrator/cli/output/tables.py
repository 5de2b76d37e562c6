"""Tables of the commands, from the same rows as their ``--json`` output."""

import difflib
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from hydrator.cli.output.rows import (
    StateView,
    _find_present_datasets,
    breaker_lines,
    dataset_rows,
    plan_rows,
    site_rows,
    status_rows,
)
from hydrator.diagnostics.check.findings import Finding
from hydrator.diagnostics.trust import find_distrusted_sites, trust_cell
from hydrator.domain.model import (
    Did,
    to_unix,
)
from hydrator.domain.redaction import escape_unprintable
from hydrator.domain.text import format_count as counted
from hydrator.domain.text import format_duration
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.result import CycleReport

_MAX_COMPARED_NAMES = 5000
"""Largest number of names to compare with a misspelt one."""


def print_plan(report: CycleReport) -> None:
    table = _new_table("publisher", "site", "action", "generation", "read", "why")
    for row in plan_rows(report):
        read = "" if row["as_of"] is None else format_duration(to_unix(report.started_at) - row["as_of"])
        table.add_row(
            row["publisher"] or "-",
            row["site"],
            row["action"],
            _text_or_empty(row["generation"]),
            read,
            row["why"],
        )
    _new_console().print(table)
    if report.held_reasons.keys() - report.evaluation.withheld_reasons.keys():
        line = "a held ad keeps its age: hydrator approve SITE releases the held change"
        _new_console().print(f"{line}, and ends a rollback")


def print_cycle(report: CycleReport) -> None:
    print_plan(report)
    jobs = sum(want.job_count for want in report.demand.entries)
    _new_console().print(
        f"{counted(len(report.evaluation.ads), 'site')}, {counted(len(report.demand.dids), 'dataset')} "
        f"wanted by {counted(jobs, 'job')}"
    )


def print_status(view: StateView) -> None:
    rows = status_rows(view)
    console = _new_console()
    if rows["last_cycle"] is None:
        console.print("last cycle: none has ended yet")
    else:
        ago = format_duration(to_unix(view.now) - rows["last_cycle"])
        console.print(f"last cycle: {ago} ago, {'complete' if rows['complete'] else 'with failures'}")
    if rows["daemon_problem"]:
        line = f"daemon: {rows['daemon_problem']}; the values below are as old"
        console.print(line, style="yellow", highlight=False)
    if failed_reload := rows["reload"]:
        ago = format_duration(to_unix(view.now) - failed_reload["at"])
        why = "; ".join(failed_reload["problems"])
        line = f"the daemon refused the reload {ago} ago and uses the previous configuration: {why}"
        console.print(line, style="yellow", highlight=False)
    table = _new_table("catalogue", "read", "sites", "datasets", "trouble")
    for row in rows["catalogues"]:
        read = "never" if row["read"] is None else f"{format_duration(to_unix(view.now) - row['read'])} ago"
        trouble = row["failure"] or (f"no site for {', '.join(row['unmapped'])}" if row["unmapped"] else "")
        table.add_row(row["catalogue"], read, str(len(row["sites"])), str(row["datasets"]), trouble)
    console.print(table)
    table = _new_table("publisher", "ads read back", "trouble")
    for row in rows["publishers"]:
        missing = ", ".join(row["not_read_back"])
        table.add_row(
            row["publisher"],
            str(row["ads"]),
            row["error"] or (f"not read back: {missing}" if missing else ""),
        )
    console.print(table)
    demand = rows["demand"]
    console.print(f"{counted(demand['datasets'], 'dataset')} wanted by {counted(demand['jobs'], 'job')}")
    rollback_lines = [
        f"{site} is {one.text} (hydrator rollback {shlex.quote(site)} --end)"
        for site, one in sorted(view.rollbacks.items())
    ]
    held_lines = breaker_lines(view.held_losses, view.policy.breaker_limits.confirming_polls)
    for line in [*held_lines, *rollback_lines, *_ad_problem_lines(rows), *_demand_problem_lines(demand)]:
        console.print(line, style="yellow", highlight=False)
    for one in view.credentials:
        soon = one.is_renewal_due(view.now)
        line = f"{one.name}: {one.expiry_text(view.now)}" + (f"; {one.todo}" if soon else "")
        console.print(line, style="yellow" if soon else None, highlight=False)
    for site, line in find_distrusted_sites(view.audit, 1.0):
        console.print(f"{site}: {line}: docs/explanation/trust.md", style="yellow", highlight=False)


def _ad_problem_lines(rows: Mapping[str, Any]) -> Iterable[str]:
    if rows["privacy_problem"]:
        yield f"names of private datasets may be lost: {rows['privacy_problem']}"
    for publisher, ads in rows["rejected"].items():
        for name, why in ads.items():
            yield f"publisher {publisher} shows an ad that the daemon did not adopt, {name}: {why}"
    for publisher, why in rows["rivals"].items():
        yield f"publisher {publisher}: {why}: docs/how-to/operate/stand-by.md"
    for site, generation in rows["implausible_generations"].items():
        yield (
            f"hooks refuse generation {generation} of {site}, which is in the future"
            f" (hydrator renumber {shlex.quote(site)})"
        )


def _demand_problem_lines(demand_row: Mapping[str, Any]) -> Iterable[str]:
    for text, reason in demand_row["refused"].items():
        yield f"a job names {text!r}, which is not a DID: {reason}"
    for clash in demand_row["clashes"]:
        yield f"not advertised, because only letter case distinguishes them: {', '.join(clash)}"
    for did, held in demand_row["misspelt"].items():
        yield f"no catalogue has the wanted dataset {did}; with other letter case: {', '.join(held)}"
    for did, reason in demand_row["unseen"].items():
        yield f"no catalogue answered about {did}: {reason}"
    if nowhere := demand_row["absent_datasets"]:
        many = f"{counted(len(nowhere), 'wanted dataset')} at no site, the first {nowhere[0]}"
        yield f"{many}: check the spelling, since hydrator release cannot help; see hydrator datasets"
    for site, wants in demand_row["left_out"].items():
        jobs = sum(max(1, want["jobs"]) for want in wants)
        theirs = counted(jobs, "job")
        yield f"no space in the ad of {site} for the datasets of {theirs}, the first {wants[0]['first']}"


def print_sites(view: StateView) -> None:
    table = _new_table("site", "read", "generation", "datasets", "trust", "published in")
    for row in site_rows(view):
        states = ", ".join(f"{count} {state}" for state, count in row["states"].items())
        there = [
            name if shown["generation"] == row["generation"] else f"{name} (generation {shown['generation']})"
            for name, shown in row["read_back"].items()
        ]
        read = "never" if row["as_of"] is None else f"{format_duration(to_unix(view.now) - row['as_of'])} ago"
        table.add_row(
            row["site"],
            read,
            _text_or_empty(row["generation"]),
            (states or "none wanted")
            + (" (truncated)" if row["truncated"] else "")
            + (f" ({row['held']} of them held)" if row["held"] else ""),
            trust_cell(row),
            ", ".join(there) or "nowhere",
        )
    _new_console().print(table)


def print_datasets(view: StateView, dids: Sequence[Did] | None) -> None:
    table = _new_table("dataset", "jobs", "site", "state", "read", "note")
    names = _find_present_datasets(view)
    for row in dataset_rows(view, dids):
        note = _dataset_note(row) or ("" if row["sites"] else _suggest_name(row["did"], names))
        if not row["sites"]:
            nothing = "not known" if row["unseen"] else "nowhere"
            state = nothing if row["wanted"] else "not asked"
            table.add_row(row["did"], str(row["jobs"]), "-", state, "", note)
        for site, fact in row["sites"].items():
            fraction = "" if fact["fraction"] is None else f" {fact['fraction']:.0%}"
            table.add_row(
                row["did"],
                str(row["jobs"]),
                site,
                fact["state"] + fraction,
                f"{format_duration(to_unix(view.now) - fact['as_of'])} ago",
                note,
            )
    _new_console().print(table)


def _suggest_name(did: Did, names: Iterable[Did]) -> str:
    """Suggest the nearest one of *names* for a dataset that no catalogue has."""
    near = difflib.get_close_matches(did, sorted(names)[:_MAX_COMPARED_NAMES], n=1, cutoff=0.8)
    return "no catalogue has it: check the spelling" + (f"; {near[0]} exists" if near else "")


def print_provenance(rows: Sequence[Mapping[str, Any]], now: datetime) -> None:
    """Print rows of :func:`hydrator.reconcile.snapshot.provenance_rows.provenance_rows`."""
    table = _new_table("dataset", "catalogue", "site", "state", "read", "storage", "by", "why")
    for row in rows:
        fraction = "" if row.get("fraction") is None else f" {row['fraction']:.0%}"
        read = "" if row["as_of"] is None else f"{format_duration(to_unix(now) - row['as_of'])} ago"
        why = row["why"] + (f"; since then: {row['unseen']}" if row["unseen"] and row["site"] else "")
        place = (row["site"] or "-", (row["state"] or "") + fraction, read)
        table.add_row(row["did"], row["catalogue"], *place, row.get("storage", ""), row.get("call", ""), why)
    _new_console().print(table)


def print_history(entries: Sequence[HistoryEntry], now: datetime) -> None:
    table = _new_table("decided", "site", "generation", "published in", "what", "for example")
    for one in reversed(entries):
        first = one.changes[0] if one.changes else None
        example = (
            f"{first.did}: {first.state_before or 'not listed'} to"
            f" {first.state_after or 'not listed'}, {first.reason}"
            if first
            else ""
        )
        table.add_row(
            f"{one.decided_at:%Y-%m-%d %H:%M:%S} UTC,"
            f" {format_duration((now - one.decided_at).total_seconds())} ago",
            one.ad.site,
            str(one.ad.generation),
            ", ".join(sorted(one.published_at)) or "nowhere",
            one.text,
            example,
        )
    _new_console().print(table)


def print_findings(findings: Sequence[Finding]) -> None:
    table = _new_table("", "subject", "seen", "to do")
    for finding in findings:
        table.add_row(finding.level.value, finding.subject, finding.message, finding.todo)
    _new_console().print(table)


def _dataset_note(row: Mapping[str, Any]) -> str:
    if row["clash"]:
        return "not advertised: another dataset differs in letter case only"
    if row["misspelt"]:
        return f"no catalogue has it; with other letter case: {', '.join(row['misspelt'])}"
    if row["unseen"]:
        return f"no catalogue answered: {row['unseen']}"
    return "" if row["wanted"] else "not in demand (no job, pin or pattern), so it is not polled"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print *rows* below the names of their *columns*."""
    _new_console().print(build_table(columns, rows))


def print_renderable(part: RenderableType) -> None:
    """Print a Rich renderable."""
    _new_console().print(part)


def build_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Build a table of *rows* below the names of their *columns*."""
    table = _new_table(*columns)
    for row in rows:
        table.add_row(*row)
    return table


class PlainTable(Table):
    """A table that escapes unprintable characters in its cells."""

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:  # noqa: ANN401 - Rich's own
        super().add_row(*map(_to_printable, cells), **more)


class PlainConsole(Console):
    """A console that escapes unprintable characters, except its own styles."""

    def print(self, *parts: Any, **more: Any) -> None:  # noqa: ANN401 - Rich's own
        super().print(*map(_to_printable, parts), **more)


def _to_printable(part: Any) -> Any:  # noqa: ANN401 - what Rich can draw
    return escape_unprintable(part, "\n") if isinstance(part, str) else part


def _new_table(*columns: str) -> Table:
    table = PlainTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _new_console() -> Console:
    """Build a console as wide as the terminal, or 200 characters without one."""
    width = None if sys.stdout.isatty() else 200
    return PlainConsole(width=width, soft_wrap=False, highlight=False, markup=False)


def _text_or_empty(value: object) -> str:
    return "" if value is None else str(value)
