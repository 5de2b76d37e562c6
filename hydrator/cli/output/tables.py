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
from hydrator.diagnostics.check.last_cycle import silence, silent_after
from hydrator.diagnostics.credential_expiry import Credential, credential_rows, credentials_from
from hydrator.diagnostics.trust import distrust, trust_cell, trust_row
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
    unix,
)
from hydrator.domain.redaction import printable
from hydrator.domain.text import count as counted
from hydrator.domain.text import span
from hydrator.reconcile.ads.site_ads import implausible
from hydrator.reconcile.audit.ledger import Audit, corrected
from hydrator.reconcile.demand import demand
from hydrator.reconcile.history import Entry, Rollback
from hydrator.reconcile.reconciler import Report, Rules
from hydrator.reconcile.snapshot.breaker import Cause, Held
from hydrator.reconcile.snapshot.update import Memory, snapshot
from hydrator.state.store import Store

_MOST_COMPARED = 5000
"""Names that a misspelt one is compared with."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the state says, seen at *now*: the same values that the daemon works with."""

    now: datetime
    default_scope: str | None
    memories: Mapping[str, Memory]
    demand: Demand
    snapshot: Snapshot
    ads: Mapping[Site, SiteAd]
    readback: Mapping[str, Mapping[Site, PublishedAd]]
    report: Mapping[str, Any]
    held: Mapping[Site, Held]
    rollbacks: Mapping[Site, Rollback]
    rules: Rules
    audit: Audit = field(default_factory=Audit)
    credentials: Sequence[Credential] = ()
    reload: Mapping[str, Any] = field(default_factory=dict)
    private: str | None = None
    silent: str | None = None
    """Why the daemon counts as dead or hung."""

    @property
    def changes_held(self) -> dict[Site, str]:
        """By site, the change that the daemon holds back, in words."""
        held = {site: one.text(self.rules.limits.polls) for site, one in self.held.items()}
        return held | {site: one.text for site, one in self.rollbacks.items()}

    @classmethod
    def of(
        cls,
        store: Store,
        rules: Rules,
        *,
        now: datetime,
        owner: str | None = None,
        poll_seconds: float = 60,
    ) -> Self:
        """Read the state; *owner* is the process that holds its lock, None where no daemon runs."""
        state = store.load()
        found = frozenset(did for dids in state.found.values() for did in dids)
        wanted = demand(state.demand, pins=rules.pins, found=found, now=now)
        view = snapshot(corrected(state.memories, state.audit), wanted.dids, now=now, bound=rules.bound)
        cycle = store.report("cycle")
        return cls(
            now,
            rules.default_scope,
            state.memories,
            wanted,
            view,
            state.ads,
            store.readback(),
            cycle,
            state.held,
            state.rollbacks,
            rules,
            state.audit,
            credentials_from(store.report("credentials").get("rows", [])),
            store.report("reload"),
            store.report("private").get("trouble"),
            silence(cycle.get("at"), owner, now, silent_after(poll_seconds)),
        )


def action_row(publisher: str, action: Action) -> dict[str, Any]:
    """One decision of a plan."""
    why = action.why if isinstance(action, Publish | Hold | Withdraw) else ""
    ad = getattr(action, "ad", None)
    return {
        "publisher": publisher,
        "site": action.site,
        "action": type(action).__name__.lower(),
        "why": why,
        "generation": ad.generation if ad else None,
        "as_of": unix(ad.as_of) if ad else None,
    }


def plan_rows(report: Report) -> list[dict[str, Any]]:
    """What is to be done, publisher by publisher, and what is held, which is no publisher's."""
    rows = [action_row(outcome.publisher, action) for outcome in report.outcomes for action in outcome.plan]
    for site, why in report.held.items():
        ad = report.thought.ads.get(site)
        rows.append(
            {
                "publisher": None,
                "site": site,
                "action": "held",
                "why": why,
                "generation": ad.generation if ad else None,
                "as_of": unix(ad.as_of) if ad else None,
            }
        )
    return rows


def held_rows(held: Mapping[Site, Held], needed: int) -> list[dict[str, Any]]:
    """What waits to be confirmed, site by site."""
    return [
        {
            "site": site,
            "since": unix(one.since),
            "cause": one.cause.value,
            "datasets": len(one.gone),
            "of": one.of,
            "polls": one.polls,
            "polls_needed": None if one.cause is Cause.UNNAMED else needed,
            "why": one.text(needed),
        }
        for site, one in sorted(held.items())
    ]


def held_lines(held: Mapping[Site, Held], needed: int) -> list[str]:
    """One sentence a site, with what ends it."""
    return [
        f"held at {row['site']}: {row['why']} (hydrator approve {shlex.quote(row['site'])} lets them go)"
        for row in held_rows(held, needed)
    ]


def plan(report: Report) -> None:
    table = _table("publisher", "site", "action", "generation", "read", "why")
    for row in plan_rows(report):
        read = "" if row["as_of"] is None else span(unix(report.at) - row["as_of"])
        table.add_row(
            row["publisher"] or "-", row["site"], row["action"], _text(row["generation"]), read, row["why"]
        )
    _console().print(table)
    if report.held.keys() - report.thought.withheld.keys():
        line = "an ad that is held keeps its age: hydrator approve SITE lets what is held go"
        _console().print(f"{line}, and ends a rollback")


def cycle(report: Report) -> None:
    plan(report)
    jobs = sum(want.jobs for want in report.demand.wants)
    _console().print(
        f"{counted(len(report.thought.ads), 'site')}, {counted(len(report.demand.dids), 'dataset')} "
        f"wanted by {counted(jobs, 'job')}"
    )


def status_rows(known: Known) -> dict[str, Any]:
    report = known.report
    return {
        "last_cycle": report.get("at"),
        "whole": report.get("whole"),
        "catalogues": [
            {
                "catalogue": name,
                "read": unix(memory.at) if memory.at else None,
                "sites": sorted(memory.sites),
                "datasets": len(memory.known),
                "failure": memory.failure,
                "unmapped": sorted(memory.unmapped),
            }
            for name, memory in sorted(known.memories.items())
        ],
        "demand": {
            "datasets": len(known.demand.dids),
            "jobs": sum(want.jobs for want in known.demand.wants),
            "refused": dict(known.demand.refused),
            "unseen": dict(known.snapshot.unseen),
            "clashes": [list(clash) for clash in known.snapshot.clashes],
            "misspelt": {did: list(held) for did, held in known.snapshot.misspelt.items()},
            "nowhere": _nowhere(known),
            "left_out": report.get("left_out", {}),
        },
        "held": held_rows(known.held, known.rules.limits.polls),
        "rolled_back": [
            {
                "site": site,
                "since": unix(one.since),
                "generation": one.ad.generation,
                "as_of": unix(one.ad.as_of),
            }
            for site, one in sorted(known.rollbacks.items())
        ],
        "publishers": [
            {"publisher": name, "ads": len(known.readback.get(name, {})), **outcome}
            for name, outcome in sorted(report.get("publishers", {}).items())
        ],
        "rejected": report.get("rejected", {}),
        "rivals": report.get("rivals", {}),
        "implausible_generations": dict(implausible(known.ads, known.now)),
        "trust": {site: trust_row(known.audit, site) for site in sorted(known.ads)},
        "credentials": credential_rows(known.credentials),
        "reload": dict(known.reload) or None,
        "private": known.private,
        "silent": known.silent,
    }


def _nowhere(known: Known) -> list[Did]:
    """Return the wanted datasets that every catalogue was asked about and no site has."""
    there = _held_somewhere(known)
    clashing = {did for clash in known.snapshot.clashes for did in clash}
    absent = known.demand.dids - there - clashing - known.snapshot.misspelt.keys()
    return sorted(did for did in absent if _unseen(did, known) is None)


def status(known: Known) -> None:
    rows = status_rows(known)
    console = _console()
    if rows["last_cycle"] is None:
        console.print("last cycle: none has ended yet")
    else:
        ago = span(unix(known.now) - rows["last_cycle"])
        console.print(f"last cycle: {ago} ago, {'whole' if rows['whole'] else 'with failures'}")
    if rows["silent"]:
        line = f"daemon: {rows['silent']}; what follows is as old"
        console.print(line, style="yellow", highlight=False)
    if refused := rows["reload"]:
        ago = span(unix(known.now) - refused["at"])
        why = "; ".join(refused["problems"])
        line = f"the reload {ago} ago was refused, the configuration before it is in use: {why}"
        console.print(line, style="yellow", highlight=False)
    table = _table("catalogue", "read", "sites", "datasets", "trouble")
    for row in rows["catalogues"]:
        read = "never" if row["read"] is None else f"{span(unix(known.now) - row['read'])} ago"
        trouble = row["failure"] or (f"no site for {', '.join(row['unmapped'])}" if row["unmapped"] else "")
        table.add_row(row["catalogue"], read, str(len(row["sites"])), str(row["datasets"]), trouble)
    console.print(table)
    table = _table("publisher", "ads read back", "trouble")
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
        for site, one in sorted(known.rollbacks.items())
    ]
    held = held_lines(known.held, known.rules.limits.polls)
    for line in [*held, *returned, *_trouble_with_ads(rows), *_trouble_with_demand(wanted)]:
        console.print(line, style="yellow", highlight=False)
    for one in known.credentials:
        soon = one.soon(known.now)
        line = f"{one.name}: {one.told(known.now)}" + (f"; {one.todo}" if soon else "")
        console.print(line, style="yellow" if soon else None, highlight=False)
    for site, line in distrust(known.audit, 1.0):
        console.print(f"{site}: {line}: docs/trust.md", style="yellow", highlight=False)


def _trouble_with_ads(rows: Mapping[str, Any]) -> Iterable[str]:
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


def _trouble_with_demand(wanted: Mapping[str, Any]) -> Iterable[str]:
    for text, reason in wanted["refused"].items():
        yield f"a job names {text!r}, which is no DID: {reason}"
    for clash in wanted["clashes"]:
        yield f"not advertised, since only letter case tells them apart: {', '.join(clash)}"
    for did, held in wanted["misspelt"].items():
        yield f"no catalogue has {did}, which is wanted; with other letter case: {', '.join(held)}"
    for did, reason in wanted["unseen"].items():
        yield f"could not be asked about {did}: {reason}"
    if nowhere := wanted["nowhere"]:
        many = f"{counted(len(nowhere), 'wanted dataset')} at no site, the first {nowhere[0]}"
        yield f"{many}: no release cures a wrong name; see hydrator datasets"
    for site, wants in wanted["left_out"].items():
        jobs = sum(max(1, want["jobs"]) for want in wants)
        theirs = counted(jobs, "job")
        yield f"no room in the ad of {site} for the datasets of {theirs}, the first {wants[0]['first']}"


def site_rows(known: Known) -> list[dict[str, Any]]:
    rows = []
    for site in sorted(known.ads.keys() | known.snapshot.sites.keys()):
        ad, facts = known.ads.get(site), known.snapshot.sites.get(site)
        states = [fact.state for fact in facts.facts.values()] if facts else []
        rows.append(
            {
                "site": site,
                "as_of": unix(ad.as_of) if ad else None,
                "generation": ad.generation if ad else None,
                "truncated": ("DataLocalityTruncated", "true") in ad.content if ad else None,
                "held": len(known.held[site].gone) if site in known.held else 0,
                "states": {state.value: states.count(state) for state in DatasetState if state in states},
                **trust_row(known.audit, site),
                "read_back": {
                    publisher: {"generation": ads[site].generation, "as_of": unix(ads[site].as_of)}
                    for publisher, ads in sorted(known.readback.items())
                    if site in ads
                },
            }
        )
    return rows


def sites(known: Known) -> None:
    table = _table("site", "read", "generation", "datasets", "trust", "published in")
    for row in site_rows(known):
        states = ", ".join(f"{count} {state}" for state, count in row["states"].items())
        there = [
            name if shown["generation"] == row["generation"] else f"{name} (generation {shown['generation']})"
            for name, shown in row["read_back"].items()
        ]
        read = "never" if row["as_of"] is None else f"{span(unix(known.now) - row['as_of'])} ago"
        table.add_row(
            row["site"],
            read,
            _text(row["generation"]),
            (states or "none wanted")
            + (" (truncated)" if row["truncated"] else "")
            + (f" ({row['held']} of them held)" if row["held"] else ""),
            trust_cell(row),
            ", ".join(there) or "nowhere",
        )
    _console().print(table)


def dataset_rows(known: Known, asked: Sequence[Did] | None) -> list[dict[str, Any]]:
    jobs: dict[Did, int] = {}
    for want in known.demand.wants:
        for did in want.dids:
            jobs[did] = jobs.get(did, 0) + want.jobs
    clashing = {did for clash in known.snapshot.clashes for did in clash}
    return [
        {
            "did": did,
            "jobs": jobs.get(did, 0),
            "wanted": did in jobs,
            "bytes": known.snapshot.bytes_total.get(did),
            "unseen": _unseen(did, known) if did in jobs else known.snapshot.unseen.get(did),
            "clash": did in clashing,
            "misspelt": list(known.snapshot.misspelt.get(did, ())),
            "sites": {
                site: {
                    "state": fact.state.value,
                    "fraction": fact.fraction,
                    "as_of": unix(fact.as_of),
                }
                for site, facts in known.snapshot.sites.items()
                if (fact := facts.facts.get(did))
            },
        }
        for did in (asked if asked is not None else sorted(jobs))
    ]


def _unseen(did: Did, known: Known) -> str | None:
    """Return why nobody can say that *did* is nowhere; None where every catalogue answered about it."""
    if why := known.snapshot.unseen.get(did):
        return why
    silent = [name for name, memory in sorted(known.memories.items()) if did not in memory.known]
    if silent:
        return f"catalogue {silent[0]} has not answered about it yet"
    return None if known.memories else "no catalogue has been asked yet"


def datasets(known: Known, asked: Sequence[Did] | None) -> None:
    table = _table("dataset", "jobs", "site", "state", "read", "note")
    names = _held_somewhere(known)
    for row in dataset_rows(known, asked):
        note = _note(row) or ("" if row["sites"] else _perhaps(row["did"], names))
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
                f"{span(unix(known.now) - fact['as_of'])} ago",
                note,
            )
    _console().print(table)


def _held_somewhere(known: Known) -> frozenset[Did]:
    """Return the datasets that some site has, by what is known."""
    return frozenset(did for facts in known.snapshot.sites.values() for did in facts.facts)


def _perhaps(did: Did, names: Iterable[Did]) -> str:
    """Ask whether the name of a dataset that is nowhere is right, with the nearest one of *names*."""
    near = difflib.get_close_matches(did, sorted(names)[:_MOST_COMPARED], n=1, cutoff=0.8)
    return "no catalogue has it: is the name right?" + (f" {near[0]} is there" if near else "")


def provenance(rows: Sequence[Mapping[str, Any]], now: datetime) -> None:
    """Print what :func:`hydrator.domain.provenance.provenance` found."""
    table = _table("dataset", "catalogue", "site", "state", "read", "storage", "by", "why")
    for row in rows:
        fraction = "" if row.get("fraction") is None else f" {row['fraction']:.0%}"
        read = "" if row["as_of"] is None else f"{span(unix(now) - row['as_of'])} ago"
        why = row["why"] + (f"; since then: {row['unseen']}" if row["unseen"] and row["site"] else "")
        place = (row["site"] or "-", (row["state"] or "") + fraction, read)
        table.add_row(row["did"], row["catalogue"], *place, row.get("storage", ""), row.get("call", ""), why)
    _console().print(table)


def history_rows(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """What was decided, newest first."""
    return [
        {
            "at": unix(one.at),
            "site": one.ad.site,
            "generation": one.ad.generation,
            "as_of": unix(one.ad.as_of),
            "published": {name: unix(when) for name, when in sorted(one.published.items())},
            "changes": [
                {"did": change.did, "before": change.before, "after": change.after, "why": change.why}
                for change in one.changes
            ],
        }
        for one in reversed(list(entries))
    ]


def history(entries: Sequence[Entry], now: datetime) -> None:
    table = _table("decided", "site", "generation", "published in", "what", "for example")
    for one in reversed(entries):
        first = one.changes[0] if one.changes else None
        example = (
            f"{first.did}: {first.before or 'not listed'} to {first.after or 'not listed'}, {first.why}"
            if first
            else ""
        )
        table.add_row(
            f"{one.at:%Y-%m-%d %H:%M:%S} UTC, {span((now - one.at).total_seconds())} ago",
            one.ad.site,
            str(one.ad.generation),
            ", ".join(sorted(one.published)) or "nowhere",
            one.text,
            example,
        )
    _console().print(table)


def finding_rows(findings: Sequence[Finding]) -> list[dict[str, str]]:
    return [{"level": f.level.value, "subject": f.subject, "seen": f.seen, "todo": f.todo} for f in findings]


def findings(found: Sequence[Finding]) -> None:
    table = _table("", "subject", "seen", "to do")
    for finding in found:
        table.add_row(finding.level.value, finding.subject, finding.seen, finding.todo)
    _console().print(table)


def _note(row: Mapping[str, Any]) -> str:
    if row["clash"]:
        return "not advertised: letter case alone tells it from another"
    if row["misspelt"]:
        return f"no catalogue has it; with other letter case: {', '.join(row['misspelt'])}"
    if row["unseen"]:
        return f"could not be asked about: {row['unseen']}"
    return "" if row["wanted"] else "no job, pin or pattern wants it, so no catalogue is asked about it"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print *rows* below the names of their *columns*."""
    _console().print(table(columns, rows))


def print_part(part: RenderableType) -> None:
    """Print what Rich can draw."""
    _console().print(part)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """*rows* below the names of their *columns*."""
    shown = _table(*columns)
    for row in rows:
        shown.add_row(*row)
    return shown


class PlainTable(Table):
    """A table in whose cells only characters that show stand."""

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:  # noqa: ANN401 - Rich's own
        super().add_row(*map(_plain, cells), **more)


class PlainConsole(Console):
    """A console that prints only characters that show, besides what it styles them with."""

    def print(self, *parts: Any, **more: Any) -> None:  # noqa: ANN401 - Rich's own
        super().print(*map(_plain, parts), **more)


def _plain(part: Any) -> Any:  # noqa: ANN401 - what Rich can draw
    return printable(part, "\n") if isinstance(part, str) else part


def _table(*columns: str) -> Table:
    table = PlainTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _console() -> Console:
    """As wide as the terminal, and 200 characters wide where there is none."""
    width = None if sys.stdout.isatty() else 200
    return PlainConsole(width=width, soft_wrap=False, highlight=False, markup=False)


def _text(value: object) -> str:
    return "" if value is None else str(value)
