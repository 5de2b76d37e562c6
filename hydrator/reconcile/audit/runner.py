"""Runner of the audit: make expensive queries in separate threads, so that no cycle waits for them.

A cycle calls ``update`` with its memories, and ``take_verdicts`` to get the verdicts since the last call.
Other threads call ``verify_next`` and ``probe_next``. A failed query gives no verdict. After failures in a
row the runner makes fewer queries.
"""

import queue
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import DatasetState, Did, Fact, Seen, Site, Survey
from hydrator.domain.ports import Auditor, Clock, Probe
from hydrator.reconcile.audit.misses import Miss
from hydrator.reconcile.snapshot.update import CatalogueMemory, apply_survey

from .ledger import Audit, AuditQuery, Claim, Verdict, VerificationMethod, claims
from .priority_queue import AuditQueue, NextItem

MAX_SKIPPED_TURNS: Final = 63
"""Maximum number of queries to skip after failures in a row."""
MAX_KNOWN_MISSES: Final = 10_000


@dataclass(frozen=True, slots=True)
class AuditAttempt:
    """One expensive query, with its result or its ``error``.

    ``reported_did`` is the dataset of the query if a job had reported that the dataset is missing.
    """

    catalogue: str
    method: VerificationMethod
    true_count: int = 0
    false_count: int = 0
    error: str | None = None
    reported_did: Did | None = None


@dataclass(frozen=True, slots=True)
class _AuditInput:
    """The results of the last cycle, from which the audit chooses its next queries."""

    memories: Mapping[str, CatalogueMemory]
    audit: Audit
    retired: AbstractSet[Site]


class _Backoff:
    """Exponential backoff: after 1, 2, 3, … failures in a row, skip the next 1, 3, 7, … queries."""

    def __init__(self) -> None:
        self._failures = 0
        self._turns_to_skip = 0

    def should_skip(self) -> bool:
        self._turns_to_skip -= 1
        return self._turns_to_skip >= 0

    def record(self, *, has_failed: bool) -> None:
        self._failures = self._failures + 1 if has_failed else 0
        self._turns_to_skip = min(2**self._failures - 1, MAX_SKIPPED_TURNS) if has_failed else 0


class AuditRunner:
    """A runner of the audit's queries, with the queues of datasets to verify and the new verdicts.

    ``verify_next`` and ``probe_next`` may run at the same time, each in one thread.

    Args:
        auditors: by catalogue, the auditor that verifies its datasets file by file. Without an auditor for
            a catalogue, the audit can only probe the storage.
        probe: the probe of the storage; None if the operator configured none.
        clock: returns the aware UTC time that a new verdict gets.
        seed: a number that decides the order of datasets. Each start of the daemon has another seed, so that
            no dataset is always last.
    """

    def __init__(
        self, auditors: Mapping[str, Auditor], probe: Probe | None, clock: Clock, *, seed: int
    ) -> None:
        self._auditors = dict(auditors)
        self._probe = probe
        self._clock = clock
        self._input: _AuditInput | None = None
        self._files: tuple[AuditQueue[AuditQuery], _Backoff] = (AuditQueue(seed), _Backoff())
        self._storage: tuple[AuditQueue[Claim], _Backoff] = (AuditQueue(seed), _Backoff())
        self._input_used_by: dict[VerificationMethod, _AuditInput] = {}
        self._claims: Mapping[AuditQuery, frozenset[Site]] = {}
        self._new_verdicts: queue.SimpleQueue[Verdict] = queue.SimpleQueue()
        self._suspects: dict[VerificationMethod, queue.SimpleQueue[Miss]] = {
            by: queue.SimpleQueue() for by in VerificationMethod
        }
        self._known_misses: dict[Miss, None] = {}

    @property
    def has_probe(self) -> bool:
        """Return True if the audit can probe the storage."""
        return self._probe is not None

    def update(
        self, memories: Mapping[str, CatalogueMemory], audit: Audit, retired: AbstractSet[Site]
    ) -> None:
        """Store the results of a cycle for the next queries; any thread may call this method."""
        self._input = _AuditInput(memories, audit, retired)

    def take_verdicts(self) -> tuple[Verdict, ...]:
        """Return the verdicts since the last call; any thread may call this method."""
        verdicts = []
        while not self._new_verdicts.empty():
            verdicts.append(self._new_verdicts.get())
        return tuple(verdicts)

    def report_misses(self, misses: Iterable[Miss]) -> tuple[Miss, ...]:
        """Queue the datasets of *misses* for verification; return the misses that were not known before.

        Only one thread may call this method.
        """
        reported = dict.fromkeys(misses)
        new = tuple(miss for miss in reported if miss not in self._known_misses)
        # Move each miss to the end of the dict: the code below forgets misses from the beginning.
        for miss in reported:
            self._known_misses.pop(miss, None)
            self._known_misses[miss] = None
        for miss in {(miss.site, miss.did): miss for miss in new}.values():
            for suspects in self._suspects.values():
                suspects.put(miss)
        while len(self._known_misses) > MAX_KNOWN_MISSES:
            del self._known_misses[next(iter(self._known_misses))]
        return new

    def verify_next(self) -> AuditAttempt | None:
        """Verify one dataset file by file; return None if none is queued or the backoff skips the turn."""
        audit_queue, backoff = self._files
        self._bring_up_to_date(VerificationMethod.FILES)
        turn = None if backoff.should_skip() else audit_queue.take_next()
        if turn is None:
            return None
        query = turn.item
        try:
            reading = self._auditors[query.catalogue].verify(query.did)
        except CatalogueError as error:
            audit_queue.mark_failed(query, is_reported=turn.is_reported)
            backoff.record(has_failed=True)
            return AuditAttempt(
                query.catalogue,
                VerificationMethod.FILES,
                error=error.reason,
                reported_did=_did_if_reported(turn, query.did),
            )
        backoff.record(has_failed=False)
        return self._conclude(turn, reading)

    def probe_next(self) -> AuditAttempt | None:
        """Probe one dataset in the storage; return None if none is queued or the backoff skips the turn."""
        audit_queue, backoff = self._storage
        self._bring_up_to_date(VerificationMethod.PROBE)
        turn = None if self._probe is None or backoff.should_skip() else audit_queue.take_next()
        if turn is None or self._probe is None:
            return None
        claim, reported_did = turn.item, _did_if_reported(turn, turn.item.did)
        is_there = self._probe.check_dataset(claim.catalogue, claim.did, claim.site)
        backoff.record(has_failed=is_there is None)
        if is_there is None:
            audit_queue.mark_failed(claim, is_reported=turn.is_reported)
            error = f"the probe could not verify {claim.did} at {claim.site}"
            return AuditAttempt(
                claim.catalogue, VerificationMethod.PROBE, error=error, reported_did=reported_did
            )
        self._new_verdicts.put(
            Verdict(claim, VerificationMethod.PROBE, self._clock(), is_there, is_recheck=turn.is_recheck)
        )
        return AuditAttempt(
            claim.catalogue,
            VerificationMethod.PROBE,
            true_count=int(is_there),
            false_count=int(not is_there),
            reported_did=reported_did,
        )

    def close(self) -> None:
        """Close the connections of all auditors, also during a query."""
        for auditor in self._auditors.values():
            auditor.close()

    def _conclude(self, next_item: NextItem[AuditQuery], seen: Seen) -> AuditAttempt:
        query, now = next_item.item, self._clock()
        facts = _facts_by_site(query, seen, self._claims[query])
        sites = sorted(self._claims[query] - seen.unreachable_sites)
        verdicts = [
            (fact := facts[site]) is not None and fact.state is DatasetState.AVAILABLE for site in sites
        ]
        for site, is_true in zip(sites, verdicts, strict=True):
            claim = Claim(query.catalogue, query.did, site)
            actual_fact = None if is_true else facts[site]
            self._new_verdicts.put(
                Verdict(claim, VerificationMethod.FILES, now, is_true, actual_fact, next_item.is_recheck)
            )
        reported_did = _did_if_reported(next_item, query.did)
        return AuditAttempt(
            query.catalogue,
            VerificationMethod.FILES,
            verdicts.count(True),
            verdicts.count(False),
            reported_did=reported_did,
        )

    def _bring_up_to_date(self, method: VerificationMethod) -> None:
        audit_input = self._input
        if audit_input is not None and self._input_used_by.get(method) is not audit_input:
            self._input_used_by[method] = audit_input
            (self._update_files if method is VerificationMethod.FILES else self._update_storage)(audit_input)
        suspects = self._suspects[method]
        while audit_input is not None and not suspects.empty():
            self._queue_suspect(method, suspects.get(), audit_input.memories)

    def _update_files(self, audit_input: _AuditInput) -> None:
        self._claims = claims(audit_input.memories, self._auditors.keys(), retired=audit_input.retired)
        disputed_queries = {
            AuditQuery(claim.catalogue, claim.did)
            for claim, by in audit_input.audit.corrections
            if by is VerificationMethod.FILES
        }
        self._files[0].update(
            self._claims,
            disputed_items=sorted(disputed_queries),
            sites_with_false_claims=audit_input.audit.sites_with_false_claims,
        )

    def _update_storage(self, audit_input: _AuditInput) -> None:
        if self._probe is None:
            return
        all_claims = claims(audit_input.memories, audit_input.memories.keys(), retired=audit_input.retired)
        corrected = {claim for claim, by in audit_input.audit.corrections if by is VerificationMethod.FILES}
        sites_by_claim = {
            claim: frozenset({site})
            for query, sites in all_claims.items()
            for site in sites
            if self._probe.can_check(query.catalogue, site)
            and (claim := Claim(query.catalogue, query.did, site)) not in corrected
        }
        disputed_claims = {
            claim for claim, by in audit_input.audit.corrections if by is VerificationMethod.PROBE
        }
        self._storage[0].update(
            sites_by_claim,
            disputed_items=sorted(disputed_claims),
            sites_with_false_claims=audit_input.audit.sites_with_false_claims,
        )

    def _queue_suspect(self, method: VerificationMethod, miss: Miss, catalogues: Iterable[str]) -> None:
        for catalogue in catalogues:
            if method is VerificationMethod.FILES:
                self._files[0].prioritize(AuditQuery(catalogue, miss.did))
            else:
                self._storage[0].prioritize(Claim(catalogue, miss.did, miss.site))


def _did_if_reported(next_item: NextItem[AuditQuery] | NextItem[Claim], did: Did) -> Did | None:
    return did if next_item.is_reported else None


def _facts_by_site(query: AuditQuery, seen: Seen, sites: AbstractSet[Site]) -> dict[Site, Fact | None]:
    """Return, by site, the fact that the audit's answer *seen* gives by the same rules as a poll.

    None means that the answer has no fact about the site.
    """
    did: Did = query.did
    answer = Survey(query.catalogue, seen.as_of, frozenset(sites), {did: seen})
    record = apply_survey(CatalogueMemory(), answer, {did}, now=seen.as_of).records[did]
    return {site: record.facts.get(site) for site in sites}
