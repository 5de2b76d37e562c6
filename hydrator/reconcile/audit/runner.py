"""Runs the audit beside the cycles: one expensive question at a time, and nobody waits for the answers.

A cycle hands over what it holds true (``look``) and takes what was found since
(``verdicts``); between the two run ``ask`` and ``probe``, each in a thread of
its own. What could not be answered is no verdict: it is counted, and after
several failures fewer questions are asked.
"""

import queue
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from hydrator.domain.errors import CatalogueError
from hydrator.domain.misses import Miss
from hydrator.domain.model import DatasetState, Did, Fact, Seen, Site, Survey
from hydrator.domain.ports import Auditor, Clock, Probe
from hydrator.privacy.pseudonyms import is_opaque
from hydrator.reconcile.snapshot.update import Memory, remember

from .ledger import Audit, By, Claim, Question, Verdict, claims
from .priority_queue import Rota, Turn

MAX_REST: Final = 63
"""After failures in a row so many turns at most are left out before it is tried again."""
MISSES_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Asked:
    """One expensive question: to whom, and what came of it; ``error`` when nothing did.

    ``missed`` is the dataset when it was asked about since a job had not found it.
    """

    catalogue: str
    by: By
    true: int = 0
    false: int = 0
    error: str | None = None
    missed: Did | None = None


@dataclass(frozen=True, slots=True)
class _World:
    """What a cycle left to audit."""

    memories: Mapping[str, Memory]
    audit: Audit
    retired: AbstractSet[Site]


class _Patience:
    """How many turns to leave out: 1, 3, 7, … after failures in a row."""

    def __init__(self) -> None:
        self._failures = 0
        self._resting = 0

    def rests(self) -> bool:
        self._resting -= 1
        return self._resting >= 0

    def had(self, *, failed: bool) -> None:
        self._failures = self._failures + 1 if failed else 0
        self._resting = min(2**self._failures - 1, MAX_REST) if failed else 0


class Auditing:
    """The questions, the answers, and what is still to be looked at.

    ``ask`` and ``probe`` may run at the same time, each in one thread.

    Args:
        auditors: by catalogue, whom to ask; a catalogue without one is not audited, but may be probed.
        probe: looks at the storage; None: nobody does.
        clock: stamps verdicts.
        seed: decides the order; another one after each start, so that no dataset is always last.
    """

    def __init__(
        self, auditors: Mapping[str, Auditor], probe: Probe | None, clock: Clock, *, seed: int
    ) -> None:
        self._auditors = dict(auditors)
        self._probe = probe
        self._clock = clock
        self._world: _World | None = None
        self._files: tuple[Rota[Question], _Patience] = (Rota(seed), _Patience())
        self._storage: tuple[Rota[Claim], _Patience] = (Rota(seed), _Patience())
        self._seen_by: dict[By, _World] = {}
        self._claims: Mapping[Question, frozenset[Site]] = {}
        self._found: queue.SimpleQueue[Verdict] = queue.SimpleQueue()
        self._suspects: dict[By, queue.SimpleQueue[Miss]] = {by: queue.SimpleQueue() for by in By}
        self._heard: dict[Miss, None] = {}

    @property
    def probes(self) -> bool:
        """Is there a probe at all?"""
        return self._probe is not None

    def look(self, memories: Mapping[str, Memory], audit: Audit, retired: AbstractSet[Site]) -> None:
        """Take what a cycle left; from any thread."""
        self._world = _World(memories, audit, retired)

    def verdicts(self) -> tuple[Verdict, ...]:
        """What was found since this was last asked; from any thread."""
        found = []
        while not self._found.empty():
            found.append(self._found.get())
        return tuple(found)

    def suspect(self, misses: Iterable[Miss]) -> tuple[Miss, ...]:
        """Look soon at what jobs did not find; from one thread. Answers those not heard of before."""
        reported = dict.fromkeys(misses)
        new = tuple(miss for miss in reported if miss not in self._heard)
        for miss in reported:  # one that is reported again and again is the last one to be forgotten
            self._heard.pop(miss, None)
            self._heard[miss] = None
        for miss in {(miss.site, miss.did): miss for miss in new}.values():
            for suspects in self._suspects.values():
                suspects.put(miss)
        while len(self._heard) > MISSES_KEPT:
            del self._heard[next(iter(self._heard))]
        return new

    def ask(self) -> Asked | None:
        """One question to a catalogue, or None when there is nothing to ask, or too many failed."""
        rota, patience = self._files
        self._bring_up_to_date(By.FILES)
        turn = None if patience.rests() else rota.next()
        if turn is None:
            return None
        question = turn.thing
        try:
            seen = self._auditors[question.catalogue].verify(question.did)
        except CatalogueError as error:
            rota.failed(question, asked=turn.asked)
            patience.had(failed=True)
            return Asked(question.catalogue, By.FILES, error=error.reason, missed=_missed(turn, question.did))
        patience.had(failed=False)
        return self._conclude(turn, seen)

    def probe(self) -> Asked | None:
        """One look at the storage, or None when there is nothing to look at, or too many failed."""
        rota, patience = self._storage
        self._bring_up_to_date(By.PROBE)
        turn = None if self._probe is None or patience.rests() else rota.next()
        if turn is None or self._probe is None:
            return None
        claim, missed = turn.thing, _missed(turn, turn.thing.did)
        there = self._probe.look(claim.catalogue, claim.did, claim.site)
        patience.had(failed=there is None)
        if there is None:
            rota.failed(claim, asked=turn.asked)
            error = f"could not tell of {claim.did} at {claim.site}"
            return Asked(claim.catalogue, By.PROBE, error=error, missed=missed)
        self._found.put(Verdict(claim, By.PROBE, self._clock(), there, again=turn.again))
        return Asked(claim.catalogue, By.PROBE, true=int(there), false=int(not there), missed=missed)

    def close(self) -> None:
        """Let go of all connections, also under a question that is being asked."""
        for auditor in self._auditors.values():
            auditor.close()

    def _conclude(self, turn: Turn[Question], seen: Seen) -> Asked:
        question, now = turn.thing, self._clock()
        found = _facts(question, seen, self._claims[question])
        sites = sorted(self._claims[question] - seen.blind)
        true = [(fact := found[site]) is not None and fact.state is DatasetState.AVAILABLE for site in sites]
        for site, is_true in zip(sites, true, strict=True):
            claim = Claim(question.catalogue, question.did, site)
            other = None if is_true else found[site]
            self._found.put(Verdict(claim, By.FILES, now, is_true, other, turn.again))
        missed = _missed(turn, question.did)
        return Asked(question.catalogue, By.FILES, true.count(True), true.count(False), missed=missed)

    def _bring_up_to_date(self, by: By) -> None:
        world = self._world
        if world is not None and self._seen_by.get(by) is not world:
            self._seen_by[by] = world
            (self._update_files if by is By.FILES else self._update_storage)(world)
        suspects = self._suspects[by]
        while world is not None and not suspects.empty():
            self._complain(by, suspects.get(), world.memories)

    def _update_files(self, world: _World) -> None:
        self._claims = claims(world.memories, self._auditors.keys(), retired=world.retired)
        doubted = {
            Question(claim.catalogue, claim.did) for claim, by in world.audit.corrections if by is By.FILES
        }
        self._files[0].look(self._claims, doubted=sorted(doubted), lying=world.audit.lying)

    def _update_storage(self, world: _World) -> None:
        if self._probe is None:
            return
        all_claims = claims(world.memories, world.memories.keys(), retired=world.retired)
        corrected = {claim for claim, by in world.audit.corrections if by is By.FILES}
        things = {
            claim: frozenset({site})
            for question, sites in all_claims.items()
            if not is_opaque(question.did)  # its name would show in the list of processes
            for site in sites
            if self._probe.looks_at(question.catalogue, site)
            and (claim := Claim(question.catalogue, question.did, site)) not in corrected
        }
        doubted = {claim for claim, by in world.audit.corrections if by is By.PROBE}
        self._storage[0].look(things, doubted=sorted(doubted), lying=world.audit.lying)

    def _complain(self, by: By, miss: Miss, catalogues: Iterable[str]) -> None:
        for catalogue in catalogues:
            if by is By.FILES:
                self._files[0].suspect(Question(catalogue, miss.did))
            else:
                self._storage[0].suspect(Claim(catalogue, miss.did, miss.site))


def _missed(turn: Turn[Question] | Turn[Claim], did: Did) -> Did | None:
    return did if turn.asked else None


def _facts(question: Question, seen: Seen, sites: AbstractSet[Site]) -> dict[Site, Fact | None]:
    """By site, what the expensive answer shows there, folded as a cheap one would be."""
    did: Did = question.did
    answer = Survey(question.catalogue, seen.at, frozenset(sites), {did: seen})
    known = remember(Memory(), answer, {did}, now=seen.at).known[did]
    return {site: known.here.get(site) for site in sites}
