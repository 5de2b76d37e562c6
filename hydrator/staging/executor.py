"""Executor: make the planned calls, each after the ledger has it on disk, and none without permission.

Before each call the guard is asked: a stop by the operator or a reload ends all calls at
once. A call whose outcome is unknown is never repeated; the next step finds its tag in the catalogue, or not.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from hydrator.domain.bugs import BugReporter
from hydrator.domain.model import Did, Site
from hydrator.domain.ports import Clock
from hydrator.domain.staging_ports import (
    OwnRequest,
    RefusalKind,
    RequestState,
    Stager,
    StagingError,
    StagingKind,
    StagingOutcomeUnknown,
    StagingRefused,
    StagingUnavailable,
)

from .ledger import AskedBatch, EntryState, FailureRecord, Ledger, LedgerEntry, make_tag
from .policy import StagingPolicy
from .upkeep import Cancellation, Renewal, record_failure
from .usage import PlannedBatch

AuditLog = Callable[[str, Mapping[str, Any]], None]
"""A log for the operator and the data manager: one line for each call that changes something."""


class LedgerStore(Protocol):
    """A place that keeps the ledger over a crash. Each method may raise StateError."""

    def save(self, ledger: Ledger) -> None:
        """Save *ledger*; when this returns, it is on disk."""

    def load(self) -> Ledger:
        """Return the saved ledger; an empty one if nothing was saved."""


class StagingExecutor:
    """An executor that keeps ``ledger`` up to date while it makes calls.

    Args:
        stagers: the catalogues by name.
        store: keeps the ledger.
        guard: returns why no call may begin now; None if it may.
        audit: gets one line for each call.
    """

    def __init__(
        self,
        stagers: Mapping[str, Stager],
        store: LedgerStore,
        policy: StagingPolicy,
        clock: Clock,
        guard: Callable[[], str | None],
        audit: AuditLog = lambda _event, _fields: None,
        bugs: BugReporter | None = None,
    ) -> None:
        self._stagers = stagers
        self._store = store
        self._policy = policy
        self._clock = clock
        self._guard = guard
        self._audit = audit
        self._bugs = bugs or BugReporter()
        self.ledger = Ledger()

    def save(self, ledger: Ledger) -> None:
        """Make *ledger* the present one, and write it to disk if it changed.

        Raises:
            StateError: the ledger cannot be written, so no call may be made.
        """
        if ledger != self.ledger:
            self._store.save(ledger)
            self.ledger = ledger

    def ask(self, batch: PlannedBatch) -> None:
        """Ask for *batch*: write its entries, call the catalogue once, and record the answers.

        Raises:
            StateError: the ledger cannot be written. Before the call this means that no call was made.
        """
        now = self._clock()
        if self._guard() is not None or batch.catalogue in self.ledger.halts:
            return
        entries = [
            self._build_entry(batch, item.did, item.bytes, item.files, item.source, item.storage, now)
            for item in batch.items
        ]
        entries = [entry for entry in entries if entry.tag not in self.ledger.entries]
        if not entries:
            return
        before = self.ledger
        self.save(self._reserve(batch, entries, now))
        if self._guard() is not None:  # the write may have taken long
            self.save(before)
            return
        answers = self._call_ask(batch, entries)
        ledger = self.ledger
        for entry in entries:
            answer = answers.get(entry.tag) or StagingOutcomeUnknown(
                batch.catalogue, "no answer for this tag"
            )
            ledger = self._record_answer(ledger, entry, answer)
            self._log("asked", entry, answer, "")
        self.save(ledger)

    def renew(self, action: Renewal) -> None:
        """Make the call of *action*, if its entry still exists.

        Raises:
            StateError: the ledger cannot be written.
        """
        entry = self.ledger.entries.get(action.tag)
        if entry is None or self._guard() is not None:
            return
        stager = self._stagers[entry.catalogue]
        error = self._call(lambda: stager.renew(entry.request, action.lifetime), entry.catalogue)
        now = self._clock()
        new = replace(entry, called_at=now, problem=error.reason if error else "")
        if error is None:
            new = replace(new, expires_at=now + action.lifetime, lifetime=action.lifetime)
        self._log("renewed", entry, error, action.reason)
        totals = self.ledger.totals
        totals = totals if error else replace(totals, renewed=totals.renewed + 1)
        self.save(replace(self.ledger.with_entries([new]), totals=totals))

    def cancel(self, action: Cancellation) -> None:
        """Make the call of *action*; its entry stays until the catalogue was seen without the request.

        Raises:
            StateError: the ledger cannot be written. Before the call this means that no call was made.
        """
        entry = self.ledger.entries.get(action.tag)
        if entry is None or self._guard() is not None:
            return
        now = self._clock()
        marked = replace(entry, state=EntryState.CANCELLING, called_at=now, reason=action.reason)
        self.save(self.ledger.with_entries([marked]))
        stager = self._stagers[entry.catalogue]
        error = self._call(lambda: stager.cancel(entry.request), entry.catalogue)
        self._log("cancelled", entry, error, action.reason)
        totals = self.ledger.totals
        if isinstance(error, StagingRefused | StagingUnavailable):
            new = replace(marked, state=entry.state, problem=error.reason)
        else:
            new = replace(marked, problem=error.reason if error else "")
            is_first = entry.state is not EntryState.CANCELLING
            totals = replace(totals, cancelled=totals.cancelled + is_first)
        self.save(replace(self.ledger.with_entries([new]), totals=totals))

    def _build_entry(
        self,
        batch: PlannedBatch,
        did: Did,
        size: int,
        files: int | None,
        source: Site | None,
        storage: str,
        now: datetime,
    ) -> LedgerEntry:
        return LedgerEntry(
            tag=make_tag(self._policy.prefix, batch.kind, did, batch.site),
            batch=batch.batch,
            catalogue=batch.catalogue,
            kind=batch.kind,
            site=batch.site,
            did=did,
            bytes=size,
            files=files,
            state=EntryState.ASKING,
            asked_at=now,
            lifetime=batch.lifetime,
            user=batch.user,
            source=source,
            storage=storage,
            schedds=batch.schedds,
            job_count=batch.job_count,
            demanded_at=now,
        )

    def _reserve(self, batch: PlannedBatch, entries: list[LedgerEntry], now: datetime) -> Ledger:
        """Return the ledger with *entries*, their request counted, and its approval used up."""
        ledger, totals = self.ledger.with_entries(entries), self.ledger.totals
        size = sum(entry.bytes for entry in entries)
        if batch.kind is StagingKind.PIN:
            return replace(ledger, totals=replace(totals, pinned=totals.pinned + len(entries)))
        tapes = {entry.source: now for entry in entries if entry.source is not None}
        return replace(
            ledger,
            batches=(*ledger.batches, AskedBatch(batch.batch, now, size)),
            tape_asked_at={**ledger.tape_asked_at, **tapes},
            approvals={name: one for name, one in ledger.approvals.items() if name != batch.batch},
            totals=replace(totals, asked=totals.asked + len(entries), asked_bytes=totals.asked_bytes + size),
        )

    def _call_ask(
        self, batch: PlannedBatch, entries: list[LedgerEntry]
    ) -> Mapping[str, OwnRequest | StagingError]:
        try:
            return self._stagers[batch.catalogue].ask([entry.order for entry in entries])
        except StagingError as error:
            return {entry.tag: error for entry in entries}
        except Exception as error:  # noqa: BLE001 - a bug of one adapter; the call may have had an effect
            reason = self._bugs.report(f"staging at {batch.catalogue}", error)
            return {entry.tag: StagingOutcomeUnknown(batch.catalogue, reason) for entry in entries}

    def _call(self, call: Callable[[], None], catalogue: str) -> StagingError | None:
        try:
            call()
        except StagingError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a bug of one adapter
            return StagingOutcomeUnknown(catalogue, self._bugs.report(f"staging at {catalogue}", error))
        return None

    def _record_answer(self, ledger: Ledger, entry: LedgerEntry, answer: OwnRequest | StagingError) -> Ledger:
        now = self._clock()
        if isinstance(answer, OwnRequest):
            new = replace(
                entry,
                state=EntryState.OPEN,
                handle=answer.handle,
                request_state=RequestState.QUEUED,
                expires_at=now + entry.lifetime,
            )
            return ledger.with_entries([new])
        if not isinstance(answer, StagingRefused | StagingUnavailable):
            return ledger.with_entries([replace(entry, reason=answer.reason)])
        ledger = replace(
            ledger, entries={tag: one for tag, one in ledger.entries.items() if tag != entry.tag}
        )
        if isinstance(answer, StagingRefused):
            return record_failure(
                ledger, entry.catalogue, entry.did, entry.site, answer.kind, answer.reason, now,
                self._policy.times,
            )  # fmt: skip
        key = entry.did, entry.site
        attempts = ledger.failures[key].attempts if key in ledger.failures else 0
        # a pin may be urgent, and its call moves no data
        pause = self._policy.times.grace
        retry_at = now + (pause / 5 if entry.kind is StagingKind.PIN else pause)
        failure = FailureRecord(attempts, now, retry_at, RefusalKind.OTHER, answer.reason)
        return replace(ledger, failures={**ledger.failures, key: failure})

    def _log(
        self, event: str, entry: LedgerEntry, answer: OwnRequest | StagingError | None, reason: str
    ) -> None:
        outcome = "done"
        if isinstance(answer, StagingError):
            is_certain = isinstance(answer, StagingRefused | StagingUnavailable)
            outcome = f"{'refused' if is_certain else 'outcome unknown'}: {answer.reason}"
        handle = answer.handle if isinstance(answer, OwnRequest) else entry.handle
        fields = {
            "catalogue": entry.catalogue,
            "kind": entry.kind.value,
            "dataset": entry.did,
            "site": entry.site,
            "bytes": entry.bytes,
            "lifetime_seconds": int(entry.lifetime.total_seconds()),
            "tag": entry.tag,
            "request": handle,
            "user": entry.user,
            "jobs": entry.job_count,
            "outcome": outcome,
        }
        self._audit(event, {**fields, "why": reason} if reason else fields)
