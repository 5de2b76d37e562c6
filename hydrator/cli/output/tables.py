"""What the commands print: rows for programs, tables for people, from the same values."""

import difflib
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.table import Table

from hydrator.diagnostics.check.examine import Finding
from hydrator.diagnostics.check.last_cycle import hung_after_seconds, silence_reason
from hydrator.diagnostics.credential_expiry import Credential, credential_rows, parse_credential_rows
from hydrator.diagnostics.trust import find_distrusted_sites, trust_cell, trust_row
from hydrator.domain.model import (
    Action,
    DatasetState,
    Demand,
    Did,
    Hold,
    Publish,
    PublishedAd,
    Site,
    SiteAd,
    Snapshot,
    Withdraw,
    to_unix,
)
from hydrator.domain.redaction import escape_unprintable
from hydrator.domain.text import format_count as counted
from hydrator.domain.text import format_duration
from hydrator.reconcile.ads.site_ads import implausible_generations
from hydrator.reconcile.audit.ledger import Audit, apply_corrections
from hydrator.reconcile.demand import build_demand
from hydrator.reconcile.history import HistoryEntry, Rollback
from hydrator.reconcile.reconciler import CycleReport, ReconcilePolicy
from hydrator.reconcile.snapshot.breaker import HeldLoss, HoldCause
from hydrator.reconcile.snapshot.update import CatalogueMemory, build_snapshot
from hydrator.state.store import Store

_MAX_COMPARED_NAMES = 5000
"""Names that a misspelt one is compared with."""


@dataclass(frozen=True, slots=True)
class StateView:
    """What the state says, seen at *now*: the same values that the daemon works with."""

    now: datetime
    default_scope: str | None
    memories: Mapping[str, CatalogueMemory]
    demand: Demand
    snapshot: Snapshot
    ads: Mapping[Site, SiteAd]
    readback: Mapping[str, Mapping[Site, PublishedAd]]
    last_cycle: Mapping[str, Any]
    held_losses: Mapping[Site, HeldLoss]
    rollbacks: Mapping[Site, Rollback]
    policy: ReconcilePolicy
    audit: Audit = field(default_factory=Audit)
    credentials: Sequence[Credential] = ()
    failed_reload: Mapping[str, Any] = field(default_factory=dict)
    privacy_problem: str | None = None
    daemon_problem: str | None = None
    """Why the daemon counts as dead or hung."""

    @property
    def change_texts_by_site(self) -> dict[Site, str]:
        """By site, the change that the daemon holds back, in words."""
        held = {
            site: one.text(self.policy.breaker_limits.confirming_polls)
            for site, one in self.held_losses.items()
        }
        return held | {site: one.text for site, one in self.rollbacks.items()}

    @classmethod
    def from_store(
        cls,
        store: Store,
        policy: ReconcilePolicy,
        *,
        now: datetime,
        owner: str | None = None,
        poll_seconds: float = 60,
    ) -> Self:
        """Read the state; *owner* is the process that holds its lock, None where no daemon runs."""
        state = store.load()
        found = frozenset(did for dids in state.pattern_matches.values() for did in dids)
        wanted = build_demand(state.demand, pins=policy.pins, matches=found, now=now)
        view = build_snapshot(
            apply_corrections(state.memories, state.audit), wanted.dids, now=now, max_age=policy.max_age
        )
        cycle = store.load_report("cycle")
        return cls(
            now,
            policy.default_scope,
            state.memories,
            wanted,
            view,
            state.ads,
            store.load_readback(),
            cycle,
            state.held_losses,
            state.rollbacks,
            policy,
            state.audit,
            parse_credential_rows(store.load_report("credentials").get("rows", [])),
            store.load_report("reload"),
            store.load_report("private").get("trouble"),
            silence_reason(cycle.get("at"), owner, now, hung_after_seconds(poll_seconds)),
        )


def action_row(publisher: str, action: Action) -> dict[str, Any]:
    """One decision of a plan."""
    why = action.reason if isinstance(action, Publish | Hold | Withdraw) else ""
    ad = getattr(action, "ad", None)
    return {
        "publisher": publisher,
        "site": action.site,
        "action": type(action).__name__.lower(),
        "why": why,
        "generation": ad.generation if ad else None,
        "as_of": to_unix(ad.as_of) if ad else None,
    }


def plan_rows(report: CycleReport) -> list[dict[str, Any]]:
    """What is to be done, publisher by publisher, and what is held, which is no publisher's."""
    rows = [action_row(outcome.publisher, action) for outcome in report.results for action in outcome.plan]
    for site, why in report.held_reasons.items():
        ad = report.evaluation.ads.get(site)
        rows.append(
            {
                "publisher": None,
                "site": site,
                "action": "held",
                "why": why,
                "generation": ad.generation if ad else None,
                "as_of": to_unix(ad.as_of) if ad else None,
            }
        )
    return rows


def breaker_rows(losses: Mapping[Site, HeldLoss], needed_polls: int) -> list[dict[str, Any]]:
    """What waits to be confirmed, site by site."""
    return [
        {
            "site": site,
            "since": to_unix(one.started_at),
            "cause": one.cause.value,
            "datasets": len(one.missing_polls),
            "of": one.listed_count,
            "polls": one.confirmations,
            "polls_needed": None if one.cause is HoldCause.UNNAMED else needed_polls,
            "why": one.text(needed_polls),
        }
        for site, one in sorted(losses.items())
    ]


def breaker_lines(losses: Mapping[Site, HeldLoss], needed_polls: int) -> list[str]:
    """One sentence a site, with what ends it."""
    return [
        f"held at {row['site']}: {row['why']} (hydrator approve {shlex.quote(row['site'])} lets them go)"
        for row in breaker_rows(losses, needed_polls)
    ]


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
        line = "an ad that is held keeps its age: hydrator approve SITE lets what is held go"
        _new_console().print(f"{line}, and ends a rollback")


def print_cycle(report: CycleReport) -> None:
    print_plan(report)
    jobs = sum(want.job_count for want in report.demand.entries)
    _new_console().print(
        f"{counted(len(report.evaluation.ads), 'site')}, {counted(len(report.demand.dids), 'dataset')} "
        f"wanted by {counted(jobs, 'job')}"
    )


def status_rows(view: StateView) -> dict[str, Any]:
    report = view.last_cycle
    return {
        "last_cycle": report.get("at"),
        "whole": report.get("whole"),
        "catalogues": [
            {
                "catalogue": name,
                "read": to_unix(memory.answered_at) if memory.answered_at else None,
                "sites": sorted(memory.sites),
                "datasets": len(memory.records),
                "failure": memory.failure,
                "unmapped": sorted(memory.unmapped_storages),
            }
            for name, memory in sorted(view.memories.items())
        ],
        "demand": {
            "datasets": len(view.demand.dids),
            "jobs": sum(want.job_count for want in view.demand.entries),
            "refused": dict(view.demand.rejected_texts),
            "unseen": dict(view.snapshot.unseen_reasons),
            "clashes": [list(clash) for clash in view.snapshot.case_collisions],
            "misspelt": {did: list(held) for did, held in view.snapshot.misspelt_dids.items()},
            "nowhere": _find_absent_datasets(view),
            "left_out": report.get("left_out", {}),
        },
        "held": breaker_rows(view.held_losses, view.policy.breaker_limits.confirming_polls),
        "rolled_back": [
            {
                "site": site,
                "since": to_unix(one.started_at),
                "generation": one.ad.generation,
                "as_of": to_unix(one.ad.as_of),
            }
            for site, one in sorted(view.rollbacks.items())
        ],
        "publishers": [
            {"publisher": name, "ads": len(view.readback.get(name, {})), **outcome}
            for name, outcome in sorted(report.get("publishers", {}).items())
        ],
        "rejected": report.get("rejected", {}),
        "rivals": report.get("rivals", {}),
        "implausible_generations": dict(implausible_generations(view.ads, view.now)),
        "trust": {site: trust_row(view.audit, site) for site in sorted(view.ads)},
        "credentials": credential_rows(view.credentials),
        "reload": dict(view.failed_reload) or None,
        "private": view.privacy_problem,
        "silent": view.daemon_problem,
    }


def _find_absent_datasets(view: StateView) -> list[Did]:
    """Return the wanted datasets that every catalogue was asked about and no site has."""
    there = _find_present_datasets(view)
    clashing = {did for clash in view.snapshot.case_collisions for did in clash}
    absent = view.demand.dids - there - clashing - view.snapshot.misspelt_dids.keys()
    return sorted(did for did in absent if _unknown_reason(did, view) is None)


def print_status(view: StateView) -> None:
    rows = status_rows(view)
    console = _new_console()
    if rows["last_cycle"] is None:
        console.print("last cycle: none has ended yet")
    else:
        ago = format_duration(to_unix(view.now) - rows["last_cycle"])
        console.print(f"last cycle: {ago} ago, {'whole' if rows['whole'] else 'with failures'}")
    if rows["silent"]:
        line = f"daemon: {rows['silent']}; what follows is as old"
        console.print(line, style="yellow", highlight=False)
    if refused := rows["reload"]:
        ago = format_duration(to_unix(view.now) - refused["at"])
        why = "; ".join(refused["problems"])
        line = f"the reload {ago} ago was refused, the configuration before it is in use: {why}"
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
    wanted = rows["demand"]
    console.print(f"{counted(wanted['datasets'], 'dataset')} wanted by {counted(wanted['jobs'], 'job')}")
    returned = [
        f"{site} is {one.text} (hydrator rollback {shlex.quote(site)} --end)"
        for site, one in sorted(view.rollbacks.items())
    ]
    held = breaker_lines(view.held_losses, view.policy.breaker_limits.confirming_polls)
    for line in [*held, *returned, *_ad_problem_lines(rows), *_demand_problem_lines(wanted)]:
        console.print(line, style="yellow", highlight=False)
    for one in view.credentials:
        soon = one.is_renewal_due(view.now)
        line = f"{one.name}: {one.expiry_text(view.now)}" + (f"; {one.todo}" if soon else "")
        console.print(line, style="yellow" if soon else None, highlight=False)
    for site, line in find_distrusted_sites(view.audit, 1.0):
        console.print(f"{site}: {line}: docs/trust.md", style="yellow", highlight=False)


def _ad_problem_lines(rows: Mapping[str, Any]) -> Iterable[str]:
    if rows["private"]:
        yield f"names of private datasets may be lost: {rows['private']}"
    for publisher, ads in rows["rejected"].items():
        for name, why in ads.items():
            yield f"publisher {publisher} shows an ad that is not adopted, {name}: {why}"
    for publisher, why in rows["rivals"].items():
        yield f"publisher {publisher}: {why}: docs/stand-by.md"
    for site, generation in rows["implausible_generations"].items():
        yield (
            f"hooks refuse generation {generation} of {site}, which is of a time to come"
            f" (hydrator renumber {shlex.quote(site)})"
        )


def _demand_problem_lines(demand_row: Mapping[str, Any]) -> Iterable[str]:
    for text, reason in demand_row["refused"].items():
        yield f"a job names {text!r}, which is no DID: {reason}"
    for clash in demand_row["clashes"]:
        yield f"not advertised, since only letter case tells them apart: {', '.join(clash)}"
    for did, held in demand_row["misspelt"].items():
        yield f"no catalogue has {did}, which is wanted; with other letter case: {', '.join(held)}"
    for did, reason in demand_row["unseen"].items():
        yield f"could not be asked about {did}: {reason}"
    if nowhere := demand_row["nowhere"]:
        many = f"{counted(len(nowhere), 'wanted dataset')} at no site, the first {nowhere[0]}"
        yield f"{many}: no release cures a wrong name; see hydrator datasets"
    for site, wants in demand_row["left_out"].items():
        jobs = sum(max(1, want["jobs"]) for want in wants)
        theirs = counted(jobs, "job")
        yield f"no room in the ad of {site} for the datasets of {theirs}, the first {wants[0]['first']}"


def site_rows(view: StateView) -> list[dict[str, Any]]:
    rows = []
    for site in sorted(view.ads.keys() | view.snapshot.sites.keys()):
        ad, facts = view.ads.get(site), view.snapshot.sites.get(site)
        states = [fact.state for fact in facts.facts.values()] if facts else []
        rows.append(
            {
                "site": site,
                "as_of": to_unix(ad.as_of) if ad else None,
                "generation": ad.generation if ad else None,
                "truncated": ("DataLocalityTruncated", "true") in ad.content if ad else None,
                "held": len(view.held_losses[site].missing_polls) if site in view.held_losses else 0,
                "states": {state.value: states.count(state) for state in DatasetState if state in states},
                **trust_row(view.audit, site),
                "read_back": {
                    publisher: {"generation": ads[site].generation, "as_of": to_unix(ads[site].as_of)}
                    for publisher, ads in sorted(view.readback.items())
                    if site in ads
                },
            }
        )
    return rows


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


def dataset_rows(view: StateView, dids: Sequence[Did] | None) -> list[dict[str, Any]]:
    jobs: dict[Did, int] = {}
    for want in view.demand.entries:
        for did in want.dids:
            jobs[did] = jobs.get(did, 0) + want.job_count
    clashing = {did for clash in view.snapshot.case_collisions for did in clash}
    return [
        {
            "did": did,
            "jobs": jobs.get(did, 0),
            "wanted": did in jobs,
            "bytes": view.snapshot.bytes_total.get(did),
            "unseen": _unknown_reason(did, view) if did in jobs else view.snapshot.unseen_reasons.get(did),
            "clash": did in clashing,
            "misspelt": list(view.snapshot.misspelt_dids.get(did, ())),
            "sites": {
                site: {
                    "state": fact.state.value,
                    "fraction": fact.fraction,
                    "as_of": to_unix(fact.as_of),
                }
                for site, facts in view.snapshot.sites.items()
                if (fact := facts.facts.get(did))
            },
        }
        for did in (dids if dids is not None else sorted(jobs))
    ]


def _unknown_reason(did: Did, view: StateView) -> str | None:
    """Return why nobody can say that *did* is nowhere; None where every catalogue answered about it."""
    if why := view.snapshot.unseen_reasons.get(did):
        return why
    silent = [name for name, memory in sorted(view.memories.items()) if did not in memory.records]
    if silent:
        return f"catalogue {silent[0]} has not answered about it yet"
    return None if view.memories else "no catalogue has been asked yet"


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


def _find_present_datasets(view: StateView) -> frozenset[Did]:
    """Return the datasets that some site has, by what is known."""
    return frozenset(did for facts in view.snapshot.sites.values() for did in facts.facts)


def _suggest_name(did: Did, names: Iterable[Did]) -> str:
    """Ask whether the name of a dataset that is nowhere is right, with the nearest one of *names*."""
    near = difflib.get_close_matches(did, sorted(names)[:_MAX_COMPARED_NAMES], n=1, cutoff=0.8)
    return "no catalogue has it: is the name right?" + (f" {near[0]} is there" if near else "")


def print_provenance(rows: Sequence[Mapping[str, Any]], now: datetime) -> None:
    """Print what :func:`hydrator.domain.provenance.provenance_rows` found."""
    table = _new_table("dataset", "catalogue", "site", "state", "read", "storage", "by", "why")
    for row in rows:
        fraction = "" if row.get("fraction") is None else f" {row['fraction']:.0%}"
        read = "" if row["as_of"] is None else f"{format_duration(to_unix(now) - row['as_of'])} ago"
        why = row["why"] + (f"; since then: {row['unseen']}" if row["unseen"] and row["site"] else "")
        place = (row["site"] or "-", (row["state"] or "") + fraction, read)
        table.add_row(row["did"], row["catalogue"], *place, row.get("storage", ""), row.get("call", ""), why)
    _new_console().print(table)


def history_rows(entries: Iterable[HistoryEntry]) -> list[dict[str, Any]]:
    """What was decided, newest first."""
    return [
        {
            "at": to_unix(one.decided_at),
            "site": one.ad.site,
            "generation": one.ad.generation,
            "as_of": to_unix(one.ad.as_of),
            "published": {name: to_unix(when) for name, when in sorted(one.published_at.items())},
            "changes": [
                {
                    "did": change.did,
                    "before": change.state_before,
                    "after": change.state_after,
                    "why": change.reason,
                }
                for change in one.changes
            ],
        }
        for one in reversed(list(entries))
    ]


def print_history(entries: Sequence[HistoryEntry], now: datetime) -> None:
    table = _new_table("decided", "site", "generation", "published in", "what", "for example")
    for one in reversed(entries):
        first = one.changes[0] if one.changes else None
        example = (
            f"{first.did}: {first.state_before or 'not listed'} to {first.state_after or 'not listed'}, {first.reason}"
            if first
            else ""
        )
        table.add_row(
            f"{one.decided_at:%Y-%m-%d %H:%M:%S} UTC, {format_duration((now - one.decided_at).total_seconds())} ago",
            one.ad.site,
            str(one.ad.generation),
            ", ".join(sorted(one.published_at)) or "nowhere",
            one.text,
            example,
        )
    _new_console().print(table)


def finding_rows(findings: Sequence[Finding]) -> list[dict[str, str]]:
    return [
        {"level": f.level.value, "subject": f.subject, "seen": f.message, "todo": f.todo} for f in findings
    ]


def print_findings(findings: Sequence[Finding]) -> None:
    table = _new_table("", "subject", "seen", "to do")
    for finding in findings:
        table.add_row(finding.level.value, finding.subject, finding.message, finding.todo)
    _new_console().print(table)


def _dataset_note(row: Mapping[str, Any]) -> str:
    if row["clash"]:
        return "not advertised: letter case alone tells it from another"
    if row["misspelt"]:
        return f"no catalogue has it; with other letter case: {', '.join(row['misspelt'])}"
    if row["unseen"]:
        return f"could not be asked about: {row['unseen']}"
    return "" if row["wanted"] else "no job, pin or pattern wants it, so no catalogue is asked about it"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print *rows* below the names of their *columns*."""
    _new_console().print(build_table(columns, rows))


def print_renderable(part: RenderableType) -> None:
    """Print what Rich can draw."""
    _new_console().print(part)


def build_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """*rows* below the names of their *columns*."""
    shown = _new_table(*columns)
    for row in rows:
        shown.add_row(*row)
    return shown


class PlainTable(Table):
    """A table in whose cells only characters that show stand."""

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:  # noqa: ANN401 - Rich's own
        super().add_row(*map(_to_printable, cells), **more)


class PlainConsole(Console):
    """A console that prints only characters that show, besides what it styles them with."""

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
    """As wide as the terminal, and 200 characters wide where there is none."""
    width = None if sys.stdout.isatty() else 200
    return PlainConsole(width=width, soft_wrap=False, highlight=False, markup=False)


def _text_or_empty(value: object) -> str:
    return "" if value is None else str(value)
