"""Overview of staging: the values that the command line, ``why``, the page and the metrics show. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import StagingKind
from hydrator.domain.text import format_bytes, format_count, format_duration, format_time, matches_any

from .ledger import EndedEntry, EntryState, Ledger, LedgerEntry, StagingTotals
from .pin_plan import PinPlan
from .policy import StagingMode, StagingPolicy
from .stage_plan import NotAsked, StagePlan
from .upkeep import STUCK_STATES
from .usage import PlannedBatch, Usage

REPORT_NAME = "staging"
"""Key of the overview in the saved reports."""
STATE_PROBLEM = "state"
"""Key of the problem of a step that could not read or save the ledger, so that it made no call."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request of ours that has not ended.

    Attributes:
        tag: its name, in the comment of the rule as well; `hydrator staging cancel` takes it.
        batch: id of the datasets that were requested together; `hydrator staging cancel` takes it.
        catalogue: catalogue that has the request.
        kind: pin: keep data that the site has; stage: bring data to the site.
        site: site whose disk gets or keeps the data.
        did: the dataset.
        state: asking, cancelling, or the state in the catalogue.
        bytes: size of the dataset.
        bytes_done: bytes on disk.
        files: files of the dataset; null: unknown.
        files_done: files on disk.
        handle: id at the catalogue, such as that of a rule; empty: no answer yet.
        user: owner of the jobs for which the daemon made the request; empty: unknown.
        job_count: jobs that need the dataset.
        asked_at: time of the request.
        expires_at: the catalogue ends the request at this time; null: not known yet.
        ready_at: expected end of the transfer; null: unknown.
        is_complete: all files are or were on disk.
        is_stuck: it is stuck for longer than a day.
        reason: reason of a failure; empty without one.
        description: the same in one sentence.
    """

    tag: str
    batch: str
    catalogue: str
    kind: StagingKind
    site: Site
    did: Did
    state: str
    bytes: int
    bytes_done: int
    files: int | None
    files_done: int
    handle: str
    user: str
    job_count: int
    asked_at: datetime
    expires_at: datetime | None
    ready_at: datetime | None
    is_complete: bool
    is_stuck: bool
    reason: str
    description: str

    @property
    def share_done(self) -> float | None:
        """Return the share of the files that arrived, 0 to 1; None for a pin, or if it is not known."""
        if self.kind is not StagingKind.STAGE:
            return None
        if self.is_complete:
            return 1.0
        return min(1.0, self.files_done / self.files) if self.files else None


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A request that the daemon has not made.

    Attributes:
        batch: id for `hydrator staging approve` and `reject`.
        catalogue: catalogue that would get the request.
        kind: pin or stage.
        site: site whose disk would get or keep the data.
        dids: its datasets.
        bytes: their size.
        files: their files; null: unknown.
        user: owner of the oldest job.
        job_count: jobs that need the datasets.
        example: one of these jobs.
        needs_approval: it waits for `hydrator staging approve`; otherwise the mode is propose.
        description: the same in one sentence.
    """

    batch: str
    catalogue: str
    kind: StagingKind
    site: Site
    dids: tuple[Did, ...]
    bytes: int
    files: int | None
    user: str
    job_count: int
    example: str
    needs_approval: bool
    description: str


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit of which something is taken.

    Attributes:
        name: its name.
        subject: site, tape or user; empty: all together.
        used: bytes, files or requests that are taken.
        limit: bytes, files or requests that are allowed.
    """

    name: str
    subject: str
    used: int
    limit: int

    @property
    def is_reached(self) -> bool:
        """Return whether 95 % of the limit or more are taken."""
        return self.used >= 0.95 * self.limit


@dataclass(frozen=True, slots=True)
class StagingOverview:
    """The result of the last step of staging at ``as_of``.

    Attributes:
        as_of: time of the step.
        mode: highest mode of any catalogue and site: off, propose or ask.
        stop_reason: reason why nothing was requested or renewed in this step; null: it was not stopped.
        problems: catalogues, schedds and parts that failed, with one sentence.
        requests: requests that have not ended.
        planned: requests that are proposed, or that wait for a person.
        not_asked: jobs for whose data nothing is requested, with the reason.
        joined: rules of others that serve the jobs, by dataset and site.
        limits: limits of which something is taken.
        totals: counts since the state was made.
        ended: the last requests that ended, oldest first.
    """

    as_of: datetime
    mode: str
    stop_reason: str | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    requests: tuple[RequestRow, ...] = ()
    planned: tuple[PlannedRow, ...] = ()
    not_asked: tuple[NotAsked, ...] = ()
    joined: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[LimitRow, ...] = ()
    totals: StagingTotals = field(default_factory=StagingTotals)
    ended: tuple[EndedEntry, ...] = ()

    @property
    def in_flight_bytes(self) -> dict[Site, int]:
        """Return the bytes in flight by site."""
        sums: dict[Site, int] = {}
        for row in self.requests:
            if row.kind is StagingKind.STAGE and not row.is_complete:
                sums[row.site] = sums.get(row.site, 0) + row.bytes
        return sums

    @property
    def unused_share(self) -> float:
        """Return the share of the staged bytes that ended without any use, 0 to 1."""
        return self.totals.unused_bytes / self.totals.staged_bytes if self.totals.staged_bytes else 0.0


@cache
def _adapter() -> TypeAdapter[StagingOverview]:
    return TypeAdapter(StagingOverview)  # 50 ms of CPU


def overview_to_row(overview: StagingOverview) -> dict[str, Any]:
    """Return *overview* in JSON values."""
    row: dict[str, Any] = _adapter().dump_python(overview, mode="json")
    return row


def overview_from_row(row: Mapping[str, Any]) -> StagingOverview | None:
    """Return the overview in *row*; None if there is none, or if another version wrote it."""
    if not row:
        return None
    try:
        return _adapter().validate_python(dict(row))
    except ValueError:
        return None


def build_overview(
    ledger: Ledger,
    policy: StagingPolicy,
    now: datetime,
    *,
    stages: StagePlan | None = None,
    pins: PinPlan | None = None,
    not_asked: Sequence[NotAsked] = (),
    problems: Mapping[str, str] | None = None,
    stop_reason: str | None = None,
) -> StagingOverview:
    """Build the overview of *ledger* and of this step's plans, without names that are never published."""

    def is_shown(*dids: Did) -> bool:
        return not any(matches_any(did, policy.never) for did in dids)

    stages, pins = stages or StagePlan(), pins or PinPlan()
    entries = sorted(ledger.entries.values(), key=lambda one: (one.asked_at, one.did, one.site))
    planned = [_plan_row(one, needs_approval=False) for one in (*stages.proposals, *pins.proposals)]
    planned += [_plan_row(one, needs_approval=True) for one in stages.unapproved]
    halts = {f"catalogue {name}": reason for name, reason in ledger.halts.items()}
    return StagingOverview(
        now,
        max((policy.mode_of_catalogue(name) for name in policy.catalogues), default=StagingMode.OFF)
        .name.lower(),
        stop_reason,
        {**(problems or {}), **halts},
        tuple(_request_row(entry, policy, now) for entry in entries if is_shown(entry.did)),
        tuple(row for row in planned if is_shown(*row.dids)),
        tuple(row for row in (*stages.not_asked, *not_asked, *pins.not_pinned) if is_shown(*row.dids)),
        {f"{did} at {site}": rule for (did, site), rule in sorted(ledger.joined.items()) if is_shown(did)},
        tuple(_limit_rows(ledger, policy, now)),
        ledger.totals,
        tuple(row for row in ledger.ended if is_shown(row.did)),
    )  # fmt: skip


def find_requests(overview: StagingOverview, dids: Sequence[Did]) -> tuple[RequestRow, ...]:
    """Return the requests of *overview* for one of *dids*."""
    wanted = frozenset(dids)
    return tuple(row for row in overview.requests if row.did in wanted)


def explain_for_job(overview: StagingOverview, dids: Sequence[Did], now: datetime) -> tuple[str, ...]:
    """Return one sentence for each request, planned request or refusal that concerns a job with *dids*."""
    wanted = frozenset(dids)
    rows = [f"{row.did}: {row.description}" for row in find_requests(overview, dids)]
    rows += [row.description for row in overview.planned if wanted & frozenset(row.dids)]
    rows += [
        f"not asked: {one.reason}"
        for one in overview.not_asked
        if frozenset(one.dids) == wanted and not (rows and one.is_waiting)
    ]
    if rows and overview.stop_reason:
        age = format_duration((now - overview.as_of).total_seconds())
        rows.append(f"{overview.stop_reason} (as of {age} ago)")
    return tuple(rows)


def _request_row(entry: LedgerEntry, policy: StagingPolicy, now: datetime) -> RequestRow:
    in_catalogue = entry.request_state.value if entry.request_state else EntryState.ASKING.value
    state = in_catalogue if entry.state is EntryState.OPEN else entry.state.value
    is_stuck = entry.stuck_since is not None and now - entry.stuck_since >= policy.times.stuck
    return RequestRow(
        entry.tag, entry.batch, entry.catalogue, entry.kind, entry.site, entry.did, state, entry.bytes,
        entry.bytes_done, entry.files, entry.files_done, entry.handle, entry.user, entry.job_count,
        entry.asked_at, entry.expires_at, entry.ready_at, entry.is_complete, is_stuck,
        entry.problem or entry.reason, _describe(entry, now),
    )  # fmt: skip


def _describe(entry: LedgerEntry, now: datetime) -> str:
    """Return one sentence: ``asked 14:02 UTC, rule …, 812 of 1,000 files, ready about 15:10 UTC, …``."""
    verb = "pinned" if entry.kind is StagingKind.PIN else "asked"
    parts = [f"{verb} {format_time(entry.asked_at.timestamp(), now)} at {entry.site}"]
    if entry.handle:
        parts.append(f"request {entry.handle}")
    if entry.state is EntryState.ASKING:
        parts.append("no answer yet")
    elif entry.state is EntryState.CANCELLING:
        parts.append(f"being cancelled ({entry.reason})" if entry.reason else "being cancelled")
    if entry.is_in_flight and entry.files:
        parts.append(f"{entry.files_done:,} of {entry.files:,} files")
    elif entry.is_complete and entry.kind is StagingKind.STAGE:
        parts.append("complete")
    if entry.request_state in STUCK_STATES and entry.request_state:
        left = f", {entry.files - entry.files_done:,} files left" if entry.files else ""
        parts.append(f"{entry.request_state.value}{left}" + (f" ({entry.reason})" if entry.reason else ""))
    if entry.ready_at:
        parts.append(f"ready about {format_time(entry.ready_at.timestamp(), now)}")
    if entry.expires_at:
        parts.append(f"ends {format_time(entry.expires_at.timestamp(), now)}")
    jobs = "1 job needs" if entry.job_count == 1 else f"{entry.job_count} jobs need"
    return ", ".join([*parts, f"{jobs} it"])


def _plan_row(batch: PlannedBatch, *, needs_approval: bool) -> PlannedRow:
    what = f"{format_bytes(batch.bytes)} in {format_count(len(batch.items), 'dataset')}"
    if needs_approval:
        text = f"{what} at {batch.site} wait for `hydrator staging approve {batch.batch}`"
    else:
        verb = "pin" if batch.kind is StagingKind.PIN else "ask for"
        text = f"would {verb} {what} at {batch.site}; the mode is propose"
    return PlannedRow(
        batch.batch, batch.catalogue, batch.kind, batch.site, tuple(item.did for item in batch.items),
        batch.bytes, batch.files, batch.user, batch.job_count, batch.example, needs_approval, text,
    )  # fmt: skip


def _limit_rows(ledger: Ledger, policy: StagingPolicy, now: datetime) -> list[LimitRow]:
    usage, limits = Usage.of(ledger, now), policy.limits
    rows = [
        LimitRow("total_bytes", "", usage.total_bytes, limits.total_bytes),
        LimitRow("hour_requests", "", usage.hour_requests, limits.hour_requests),
        LimitRow("pin_bytes", "", usage.pin_bytes, limits.pin_bytes),
    ]
    counts: list[tuple[str, Mapping[Any, int], int]] = [
        ("user_bytes", usage.user_bytes, limits.user_bytes),
        ("site_bytes", usage.site_bytes, limits.site_bytes),
        ("source_bytes", usage.source_bytes, limits.source_bytes),
    ]
    for name, used, limit in counts:
        rows += [LimitRow(name, str(subject), one, limit) for subject, one in sorted(used.items()) if one]
    return rows
