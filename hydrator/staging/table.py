"""Table of staging: what was asked, what became of it, and what a person decided. Pure.

The catalogue's list of rules is the truth. The table remembers what the list cannot say: where a call in
doubt must be repeated, which rule vanished before its end, and what was asked in the last hour.

===============================  ==================================================================
a rule of ours                   what follows
===============================  ==================================================================
is listed                        it counts, also after its end: Rucio may keep a locked rule
is listed with an earlier end    another user shortened it: it is not renewed
is not listed, before its end    an approver denied it, or an admin deleted it: closed for a day
is not listed, after its end     its lifetime ended
is not listed, renewed after it  the catalogue's cleaner had picked it before: it is asked again
is listed, and not in the table  the table was lost: it gets a row, and counts
===============================  ==================================================================
"""

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Literal, Protocol

from pydantic import Field

from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import (
    ExistingRule,
    RefusalKind,
    RequestState,
    StagingKind,
    StagingOrder,
    StagingQuery,
)
from hydrator.domain.text import format_count, format_duration, group_pairs
from hydrator.reconcile.state import CommandSource

from .view import KEEP_NEEDS, CatalogueFacts, LiveNeeds

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEEP_ENDED = timedelta(days=7)
KEEP_COMPLETE = timedelta(days=4)
"""Complete data stays requested this long after its last job."""
STUCK_AFTER = DAY
"""A rule of ours that is stuck for longer is reported; a job waits no longer for one of another account."""
REPEAT_AFTER = timedelta(minutes=10)
"""Least time between two renewals or cancellations of one rule; after a failure an hour."""
_TOLERANCE = timedelta(minutes=2)
"""Two ends of a rule that differ by less are the same."""
_CLOCK_SKEW = timedelta(minutes=10)
"""The clock of the catalogue, by which rules end, may be ahead of the daemon's by so much."""
MAX_CALLS = 50
"""Pins in one step, and renewals and cancellations; further ones follow in the next step."""
_SITE_KINDS = frozenset({RefusalKind.QUOTA, RefusalKind.CLOSED})
"""Refusals that every other request to this site would get, too."""
_FINAL_KINDS = frozenset({RefusalKind.NO_SOURCE, RefusalKind.UNKNOWN_DATASET})
HALTED_STATES = frozenset(
    {RequestState.STUCK, RequestState.SUSPENDED, RequestState.FAILED, RequestState.UNAPPROVED}
)
_UNMOVED_STATES = HALTED_STATES | {RequestState.QUEUED}
SHORTENED = "another user has shortened its lifetime in the catalogue"
VANISHED = "the catalogue does not list it any more: it was denied, or deleted before its end"
BY_OPERATOR = "cancelled by the operator"
_PAST = (
    "asked_at", "called_at", "renewed_late_at", "cancelled_at", "unwanted_since", "stuck_since", "ended_at"
)  # fmt: skip
"""The fields of a request with the time of something that happened."""


@dataclass(frozen=True, slots=True)
class Request:
    """One rule of ours: one dataset at one site.

    Attributes:
        did: the dataset.
        site: site whose disk gets or keeps the data.
        catalogue: catalogue that has the request.
        kind: pin: keep data that the site has; stage: bring data to the site.
        bytes: size of the dataset.
        batch: id of the datasets that were requested together; `hydrator staging cancel` takes it.
        asked_at: time of the request.
        lifetime_seconds: lifetime that the last call asked for.
        storage: storage element, also of a repeated call; empty: the catalogue chooses.
        source: site from whose tape the data comes; null: the data is on disk somewhere.
        user: owner of the jobs for which the daemon made the request; empty: unknown.
        rule: id at the catalogue; empty: no call was answered yet.
        state: state in the catalogue; null: not listed yet.
        files: files of the dataset; null: unknown.
        files_done: files on disk.
        expires_at: end of the rule, as the catalogue lists it; null: not listed yet.
        ready_at: expected end of the transfer, by the catalogue's last answer; null: unknown.
        is_complete: all files are on disk, by the locks of the rule.
        is_used: a job that needs the dataset ran at the site.
        called_at: time of the last call.
        granted_seconds: lifetime that the catalogue gave after the last call; null: not seen yet.
        renewed_late_at: time of a renewal after its end, which may not save it from the catalogue's cleaner;
            null: none.
        cancelled_at: time of the call that ended it; null: none.
        job_count: jobs that need the dataset.
        example: id of one of the jobs for which the daemon made the request; empty: unknown.
        unwanted_since: since when no schedd listed such a job; null: one does.
        stuck_since: time since which no file has arrived; null: all have, or nobody counts them.
        is_stuck: it is stuck for longer than a day.
        reason: why it is not done, or why it ended; empty: nothing to say.
        blocked: why the catalogue keeps it after its end, such as "locked"; empty: it does not.
        problem: failure of the last call; empty: none.
        refusal: kind of the failure; null: none.
        closed_until: nothing is asked again before this time; null: no failure.
        ended_at: time when the catalogue did not list it any more; null: it has not ended.
        description: the same in one sentence.
    """

    did: Did
    site: Site
    catalogue: str
    kind: StagingKind
    bytes: int
    batch: str
    asked_at: datetime
    lifetime_seconds: int
    storage: str = ""
    source: Site | None = None
    user: str = ""
    rule: str = ""
    state: RequestState | None = None
    files: int | None = None
    files_done: int = 0
    expires_at: datetime | None = None
    ready_at: datetime | None = None
    is_complete: bool = False
    is_used: bool = False
    called_at: datetime | None = None
    granted_seconds: int | None = None
    renewed_late_at: datetime | None = None
    cancelled_at: datetime | None = None
    job_count: int = 0
    example: str = ""
    unwanted_since: datetime | None = None
    stuck_since: datetime | None = None
    is_stuck: bool = False
    reason: str = ""
    blocked: str = ""
    problem: str = ""
    refusal: RefusalKind | None = None
    closed_until: datetime | None = None
    ended_at: datetime | None = None
    description: str = ""

    @property
    def key(self) -> tuple[Did, Site]:
        return self.did, self.site

    @property
    def is_in_flight(self) -> bool:
        """Return whether its bytes count as on their way."""
        return self.kind is StagingKind.STAGE and not self.is_complete

    @property
    def status(self) -> str:
        """Return its state in a word or two."""
        if self.cancelled_at:
            return "cancelling"
        return self.state.value if self.state else "asking"

    @property
    def share_done(self) -> float | None:
        """Return the share of the files that arrived, 0 to 1; None for a pin, or if it is not known."""
        if self.kind is StagingKind.PIN:
            return None
        if self.is_complete:
            return 1.0
        return min(1.0, self.files_done / self.files) if self.files else None

    @property
    def approval(self) -> str:
        """Return the name of a decision about this dataset alone."""
        return make_batch(self.site, {self.did: self.bytes})

    @property
    def order(self) -> StagingOrder:
        """Return the call that makes or renews its rule."""
        lifetime = timedelta(seconds=self.lifetime_seconds)
        return StagingOrder(
            self.kind, self.site, self.did, self.bytes, lifetime, self.storage, self.source, self.rule
        )

    def explain_lifetime(self, needed: timedelta) -> str:
        """Return that the catalogue gives rules less time than jobs need; empty if it gives enough."""
        least = min(int(needed.total_seconds()), self.lifetime_seconds) - _TOLERANCE.total_seconds()
        if self.granted_seconds is None or self.cancelled_at or self.granted_seconds >= least:
            return ""
        return (
            f"the catalogue gives a rule at {self.site} {format_duration(self.granted_seconds)},"
            f" and jobs need the data for {format_duration(needed.total_seconds())}"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer to a request; that of a dataset is used up once the catalogue has its rule."""

    verb: Literal["approve", "reject"]
    given_at: datetime


@dataclass(frozen=True)
class Table:
    """Everything that staging remembers over a restart: open requests, ended ones, decisions.

    An approval is of each dataset, because some requests of a batch may fail; a rejection is of a batch.
    """

    rows: tuple[Request, ...] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict)

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        """Return the open requests."""
        return tuple(one for one in self.rows if not one.ended_at)

    @cached_property
    def ended(self) -> tuple[Request, ...]:
        """Return the requests that ended, oldest end first."""
        return tuple(one for one in self.rows if one.ended_at)

    @cached_property
    def by_key(self) -> Mapping[tuple[Did, Site], Request]:
        """Return the open requests by dataset and site."""
        return {one.key: one for one in self.requests}

    @cached_property
    def stages(self) -> Mapping[Did, Sequence[Request]]:
        """Return the open requests that bring data, by dataset."""
        return group_pairs((one.did, one) for one in self.requests if one.kind is StagingKind.STAGE)

    @cached_property
    def taken(self) -> Counter[Site | None]:
        """Return the bytes of open requests: those on their way by site, and with None those of all."""
        taken = Counter[Site | None]()
        for one in self.requests:
            taken[None] += one.bytes
            taken[one.site] += one.bytes if one.is_in_flight else 0
        return taken

    @cached_property
    def closed(self) -> Sequence[Request]:
        """Return the requests, open or ended, after whose failure nothing is asked again for some time."""
        return [one for one in self.rows if one.closed_until]

    def without_future(self, now: datetime) -> "Table":
        """Return the table for a daemon that starts at *now*: what it dates in the future happened now.

        The clock was set back then. Nothing stays closed for longer than a failure of now closes it.
        """

        def redate(one: Request) -> Request:
            past = {name: min(at, now) for name in _PAST if (at := getattr(one, name))}
            longest = KEEP_ENDED if one.reason == BY_OPERATOR else DAY
            closed_until = one.closed_until and min(one.closed_until, now + longest)
            return replace(one, closed_until=closed_until, **past)

        decisions = {
            name: replace(one, given_at=min(one.given_at, now)) for name, one in self.decisions.items()
        }
        return Table(tuple(map(redate, self.rows)), decisions)

    def count_last_hour(self, now: datetime) -> int:
        """Return the number of requests for data in the last hour; datasets asked together are one."""
        stages = (one for one in self.rows if one.kind is StagingKind.STAGE)
        return len({(one.batch, one.asked_at) for one in stages if now - one.asked_at < HOUR})

    def rules_at(self, catalogue: str) -> frozenset[str]:
        """Return the rules to read at *catalogue*: also those that vanished, as an answer may have gaps."""
        rows = (one for one in self.rows if not one.ended_at or one.reason == VANISHED)
        return frozenset(one.rule for one in rows if one.catalogue == catalogue and one.rule)

    def put(self, *requests: Request) -> "Table":
        """Return the table with *requests* in the place of the open ones with their keys or rules.

        A request without jobs goes if its rule serves another one: a rule on a file may be on its archive.
        """
        keys = {one.key for one in requests}
        rules = {(one.catalogue, one.rule) for one in requests if one.rule}
        others = (
            one
            for one in self.rows
            if one.ended_at
            or (one.key not in keys and (one.job_count or (one.catalogue, one.rule) not in rules))
        )
        return replace(self, rows=(*others, *requests))

    def is_approved(self, requests: Iterable[Request]) -> bool:
        """Return whether a person approved each of *requests*."""
        found = (self.decisions.get(one.approval) for one in requests)
        return all(one and one.verb == "approve" for one in found)

    def use_up(self, approval: str) -> "Table":
        """Return the table without *approval*: the catalogue has the rule."""
        left = {name: one for name, one in self.decisions.items() if name != approval}
        return replace(self, decisions=left)

    def drop(self, request: Request) -> "Table":
        """Return the table without the open *request*: its call was never made."""
        return replace(self, rows=tuple(one for one in self.rows if one.ended_at or one.key != request.key))

    def forget_old(self, now: datetime, catalogues: Container[str]) -> "Table":
        """Return the table without what no decision needs any more, and ended rules of no catalogue."""

        def is_kept(one: Request) -> bool:
            if one.ended_at:
                return now - one.ended_at < KEEP_ENDED
            return one.catalogue in catalogues or (one.expires_at or one.asked_at + KEEP_ENDED) > now

        decisions = {name: one for name, one in self.decisions.items() if now - one.given_at < KEEP_ENDED}
        return Table(tuple(filter(is_kept, self.rows)), decisions)

    def close(self, one: Request, now: datetime, kind: RefusalKind, reason: str) -> Request:
        """Return *one* after a failure: nothing is asked again for an hour, then two, four … up to a day."""
        failures = sum(each.key == one.key and each.refusal is not None for each in self.ended)
        is_final = kind in _FINAL_KINDS or reason in {SHORTENED, VANISHED}
        pause = DAY if is_final else min(DAY, HOUR * 2 ** min(failures, 5))
        if reason == BY_OPERATOR:
            pause = KEEP_ENDED
        return replace(one, refusal=kind, reason=reason, closed_until=now + pause)

    def explain_closed(self, did: Did, site: Site, kind: StagingKind, now: datetime) -> str:
        """Return the failure that forbids a request of *kind* for *did* at *site* now; empty if none does.

        A request that failed closes its dataset at all sites, so that requests do not go from site to site.
        A refusal of one site closes only that site, for all datasets for an hour. A pin closes only itself;
        so does a request where files or a rule of others are in the way.
        """
        for one in self.closed:
            is_site = one.refusal in _SITE_KINDS
            if one.kind is not kind or not one.closed_until or one.closed_until <= now:
                continue
            if is_site and one.site == site and now - (one.called_at or now) < HOUR:
                return f"{site} refused a request less than an hour ago: {one.reason}"
            is_local = is_site or one.refusal is RefusalKind.NOT_OURS or kind is StagingKind.PIN
            if one.did == did and (one.site == site or not is_local):
                left = format_duration((one.closed_until - now).total_seconds())
                again = f"not asked again for {left}, or until `hydrator staging resume`"
                return f"{did} at {one.site}: {one.reason}; {again}"
        return ""


def make_batch(site: Site, sizes: Mapping[Did, int]) -> str:
    """Return the id of a request for datasets of *sizes* (bytes) at *site*; other sizes give another id."""
    rows = "\n".join(f"{did} {size}" for did, size in sorted(sizes.items()))
    return hashlib.sha256(f"{site}\n{rows}".encode()).hexdigest()[:10]


# -- commands


CommandName = Literal["approve", "reject", "cancel", "resume"]


@dataclass(frozen=True, slots=True)
class StagingCommand:
    """One command.

    *approve* answers a request that waits for a person; its targets are the ids of its datasets. *reject*
    answers it, too; its target is the id of the batch. *cancel* ends the requests of ours of a batch or a
    rule, and nothing is asked again for their datasets for a week, or until *resume*. *resume* forgets all
    failures and rejections; it has no target.
    """

    name: CommandName
    targets: tuple[Annotated[str, Field(max_length=200)], ...] = ()


class StagingControl(CommandSource[StagingCommand], Protocol):
    """The operator's switch and commands, as the daemon reads them."""

    @property
    def stop_reason(self) -> str | None:
        """Return why all asking and renewing is stopped; None if it is not. The switch is read each time."""

    def prepare(self) -> None:
        """Let commands be given from now on.

        Raises:
            StateError: the folder for the commands cannot be created.
        """


def apply_commands(table: Table, commands: Iterable[StagingCommand], now: datetime) -> Table:
    """Return *table* after *commands*; the next plan makes the cancellations."""
    for command in commands:
        if command.name == "resume":  # a cancellation that was given before is made, and closes nothing then
            rows = (
                replace(one, closed_until=now)
                if one.reason == BY_OPERATOR and not one.ended_at
                else replace(one, closed_until=None, refusal=None)
                for one in table.rows
            )
            approved = {name: one for name, one in table.decisions.items() if one.verb == "approve"}
            table = Table(tuple(rows), approved)
        elif command.name == "cancel":
            named = [one for one in table.requests if {one.batch, one.rule}.intersection(command.targets)]
            closed = (table.close(one, now, RefusalKind.OTHER, BY_OPERATOR) for one in named)
            # the next step makes the call, however short ago the last one was
            table = table.put(*(replace(one, called_at=None) if one.rule else one for one in closed))
        else:
            given = dict.fromkeys(command.targets, Decision(command.name, now))
            table = replace(table, decisions={**table.decisions, **given})
    return table


# -- the rules as the catalogue lists them


def follow_rules(
    table: Table, facts: CatalogueFacts, query: StagingQuery, unknown_bytes: int, now: datetime
) -> Table:
    """Return *table* after the catalogue of *facts* answered *query*.

    A rule that the query named and that the answer omits, also as unread, does not exist. A call in doubt
    had no effect if no rule came of it, and then it is dropped once no job needs it. A rule of ours that the
    table lacks gets a row; it counts *unknown_bytes* if its size is unknown.
    """
    answer, catalogue = facts.answer, facts.name
    by_id = {rule.id: rule for rule in answer.rules if rule.is_ours}
    by_place = {(rule.did, rule.site): rule for rule in by_id.values()}
    changed = []
    for one in table.requests:
        if one.catalogue != catalogue:
            continue
        rule = by_id.get(one.rule) if one.rule else by_place.get(one.key)
        is_late = now - (one.called_at or one.asked_at) >= REPEAT_AFTER
        if rule:
            changed.append(_update(table, one, rule, now))
        elif one.rule in query.rules - answer.unread.keys():
            changed.append(_end(table, one, now))
        elif not one.rule and not one.job_count and is_late and one.did in query.dids - answer.unread.keys():
            changed.append(replace(one, ended_at=now, reason="the call had no effect"))
    table = table.put(*changed)
    known, found = {one.rule for one in table.requests}, []
    for (did, site), rule in by_place.items():
        if rule.id not in known and (did, site) not in table.by_key:
            size = rule.bytes or unknown_bytes
            row = Request(
                did, site, catalogue, rule.kind, size, make_batch(site, {did: size}), now,
                int(DAY.total_seconds()), rule.storage,
            )  # fmt: skip
            found.append(_update(table, row, rule, now))
    return table.put(*found)


def _update(table: Table, one: Request, rule: ExistingRule, now: datetime) -> Request:
    granted, was_shortened = one.granted_seconds, False
    if rule.expires_at and granted is None and one.called_at and one.called_at < rule.expires_at:
        granted = int((rule.expires_at - one.called_at).total_seconds())
    elif rule.expires_at and one.expires_at and not one.cancelled_at and granted is not None:
        is_earlier = one.expires_at - rule.expires_at > _TOLERANCE
        was_shortened = is_earlier and not _is_own_end(one, rule.expires_at)
    is_counted = rule.files is not None and not rule.is_whole
    stuck_since = now if rule.files_done > one.files_done else rule.stuck_since or one.stuck_since or now
    new = replace(
        one,
        rule=rule.id,
        state=rule.state,
        bytes=max(one.bytes, rule.bytes or 0),  # a dataset that was opened again grows
        files=one.files if rule.files is None else rule.files,
        files_done=rule.files_done,
        expires_at=rule.expires_at,
        granted_seconds=granted,
        is_complete=rule.is_whole,
        stuck_since=stuck_since if is_counted or rule.state in _UNMOVED_STATES else None,
        reason=one.reason if one.closed_until else rule.reason,
        blocked=rule.blocked,
    )
    if one.closed_until:
        return new
    if was_shortened:
        return table.close(new, now, RefusalKind.OTHER, SHORTENED)
    if rule.state is RequestState.FAILED and not rule.is_whole:
        is_pin = one.kind is StagingKind.PIN
        reason = f"files left {one.site} before the pin was set" if is_pin else rule.reason
        return table.close(new, now, RefusalKind.NO_SOURCE, reason or "the catalogue gave up")
    return new


def _is_own_end(one: Request, expires_at: datetime) -> bool:
    """Return whether the last call, which had no answer, may have given the rule its end *expires_at*."""
    after = expires_at - (one.called_at or one.asked_at)
    is_renewed = abs(after - timedelta(seconds=one.lifetime_seconds)) <= _CLOCK_SKEW
    return bool(one.problem) and (is_renewed or after <= _CLOCK_SKEW)


def _end(table: Table, one: Request, now: datetime) -> Request:
    """Return the request *one*, which the catalogue does not list any more."""
    ended = replace(one, ended_at=now)
    if one.closed_until:
        return ended
    is_late = one.renewed_late_at is not None and now - one.renewed_late_at < HOUR
    if one.cancelled_at or is_late or (one.expires_at is not None and one.expires_at <= now + _CLOCK_SKEW):
        return replace(ended, reason="cancelled" if one.cancelled_at else "its lifetime ended")
    return table.close(ended, now, RefusalKind.OTHER, VANISHED)


# -- demand and upkeep


def apply_needs(table: Table, needs: LiveNeeds, now: datetime) -> Table:
    """Return *table* with the live demand of each open request.

    The demand is seen to be gone only if all schedds answered. Else the last demand counts for KEEP_NEEDS.
    """
    return table.put(*(_apply_needs(one, needs, now) for one in table.requests))


def _apply_needs(one: Request, needs: LiveNeeds, now: datetime) -> Request:
    if wanting := needs.by_did.get(one.did):
        count = sum(need.job_count for need in wanting)
        ran = any(need.is_running and need.running_site == one.site for need in wanting)
        is_used = one.is_used or (ran and one.is_complete)
        return replace(one, job_count=count, unwanted_since=None, is_used=is_used)
    since = one.unwanted_since or now
    is_kept = not needs.is_complete and now - since < KEEP_NEEDS
    return replace(one, job_count=one.job_count if is_kept else 0, unwanted_since=since)


@dataclass(frozen=True, slots=True)
class Write:
    """One call to make: *request* as the table has it before the call, and why the call is made."""

    request: Request
    verb: Literal["ask", "renew", "cancel"]
    reason: str = ""


def plan_upkeep(requests: Iterable[Request], now: datetime, *, is_complete: bool) -> list[Write]:
    """Plan the repeats, renewals and cancellations of this step; those whose rule ends first come first.

    *is_complete*: whether all schedds answered, so that demand can be seen to be gone.
    """
    order = sorted(requests, key=lambda one: (not one.rule, one.expires_at or now, one.did, one.site))
    return [write for one in order if (write := _plan_write(one, now, is_complete=is_complete))]


def _plan_write(one: Request, now: datetime, *, is_complete: bool) -> Write | None:
    is_wanted = one.job_count > 0 and not one.closed_until
    if not one.rule:  # repeated after one minute, then two, four … and at last every ten
        pause = min(REPEAT_AFTER, (now - one.asked_at) / 2)
        is_due = is_wanted and now - (one.called_at or one.asked_at) >= pause
        return Write(one, "ask", "the last call had no answer") if is_due else None
    if one.called_at and now - one.called_at < (HOUR if one.problem else REPEAT_AFTER):
        return None
    left = one.expires_at - now if one.expires_at else timedelta.max
    if one.closed_until and (one.reason != SHORTENED or one.expires_at is None):
        return _cancel(one, one.reason, left)
    if one.expires_at is None:
        return Write(one, "renew", "it had no end")
    if is_wanted:
        given = min(one.lifetime_seconds, one.granted_seconds or one.lifetime_seconds)
        is_due = left < timedelta(seconds=given) / 2
        return Write(one, "renew", f"{format_count(one.job_count, 'job')} need it") if is_due else None
    is_gone = one.unwanted_since and is_complete and now - one.unwanted_since >= HOUR
    if not is_gone or one.closed_until or one.kind is StagingKind.PIN:
        return None  # a pin ends by itself, soon
    if one.is_in_flight:
        return _cancel(one, "no job needs it any more", left)
    if left > KEEP_COMPLETE + HOUR and not one.problem:
        shorter = replace(one, lifetime_seconds=int(KEEP_COMPLETE.total_seconds()))
        return Write(shorter, "renew", "no job needs it any more")
    return None


def _cancel(one: Request, reason: str, left: timedelta) -> Write | None:
    """Return the call that ends *one*; None if it ends soon anyhow."""
    is_ending = left <= (2 * HOUR if one.cancelled_at else timedelta())
    return None if is_ending else Write(one, "cancel", reason)
