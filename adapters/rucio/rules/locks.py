"""What Rucio's rules do about datasets: their locks, what moves, what stands still, what is to go."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from adapters.rucio.poll import Poll
from adapters.rucio.responses import did_of, one_of, record, text
from adapters.rucio.session.client import Misread, NotFound
from adapters.rucio.session.connection_pool import Meanwhile
from adapters.rucio.session.queries import Asker, Denials, is_silence, split
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did, Told

from .cache import RuleBook
from .model import (
    LOCK_STATES,
    UNDONE,
    Lock,
    Movement,
    Rule,
    locks,
    movements,
    promised,
    rules,
)

Movements = Mapping[Did, Mapping[str, Movement]]
_MOST_PARENTS = 50
_MOST_HISTORIES = 1000  # in one poll
_EVIDENCE = (CatalogueGarbled, Misread)
"""Errors of a row that cannot be read; of the other kinds nothing was learned."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_ENDED = Told(reason="whole, but its last rule has ended")


@dataclass(frozen=True, slots=True)
class _Lasting:
    """What locks and their rules came to; no rule among them ends, so only a change of these changes it."""

    locks: Sequence[Lock]
    rules: Sequence[Rule | None]
    found: Mapping[str, Movement]


@dataclass(frozen=True, slots=True)
class _Held:
    """The locks of a dataset as read at *at*."""

    at: datetime
    locks: Sequence[Lock]


@dataclass(frozen=True, slots=True)
class _Past:
    """What the history of its rules says of a dataset at *storages*, where no lock holds it.

    *locks* stand for rules that hold single files there, *ended* are the elements of rules that are gone.
    """

    at: datetime
    storages: frozenset[str]
    locks: Sequence[Lock] = ()
    ended: frozenset[str] = frozenset()


class Moves:
    """Asks for locks: of what may be moving in every poll, of what is whole now and then.

    Locks of what is whole tell when its rules end. They are worth asking for
    but no reason to call a dataset unseen, and wait where time is short.
    """

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._book = RuleBook(asker)
        self._held: dict[Did, _Held] = {}
        self._parents: dict[Did, tuple[datetime, frozenset[Did]]] = {}
        self._ended: dict[Did, frozenset[str]] = {}
        self._past: dict[Did, _Past] = {}
        self._no_history_at: dict[Did, datetime] = {}
        self._lasting: dict[Did, _Lasting] = {}
        self._refreshed = Meanwhile[frozenset[Did]](frozenset)
        self._pending: Mapping[Did, list[Rule]] | None = None

    @contextmanager
    def beside(self, poll: Poll, dids: AbstractSet[Did]) -> Iterator[None]:
        """Learn what changed of the rules beside what is asked inside; all else but *dids* is forgotten."""
        dropped = (self._held, self._parents, self._ended, self._lasting, self._past, self._no_history_at)
        for memory in dropped:
            for gone in memory.keys() - dids:
                del memory[gone]
        self._pending = None
        with self._asker.meanwhile(lambda: self._book.refresh(poll.at)) as self._refreshed:
            yield

    def at_once(self, poll: Poll, held: Mapping[Did, AbstractSet[str]]) -> Movements:
        """What rules do with those of *held*, settled datasets, for which nothing more need be asked.

        None of them before the changes of the rules are known.
        """
        if not self._refreshed.ready:
            return {}
        try:
            changed = self._refreshed.result()
        except CatalogueError:
            changed = frozenset()
        known = self._book.known
        return {
            did: self._moves(poll, did)
            for did in held
            if not self._is_due(poll, did, changed)
            and all(lock.rule in known for lock in self._locks_of(did))
        }

    def read(
        self, poll: Poll, settled: Mapping[Did, bool], held: Mapping[Did, AbstractSet[str]]
    ) -> Iterator[tuple[Did, Mapping[str, Movement]]]:
        """Each dataset with what rules do at storage elements, as it is learned, while others are asked for.

        Of unsettled ones, what cannot be learned is lost.

        Args:
            poll: where lost ones are noted.
            settled: every dataset that was counted, and whether nothing can be moving.
            held: the storage elements where rules hold it, by the cheap rows.
        """
        unsettled = {did for did, still in settled.items() if not still}
        try:
            changed = self._refreshed.result()
        except CatalogueError as exc:
            changed = frozenset()
            poll.lost.update(dict.fromkeys(unsettled, exc))
        self._ask_locks(poll, unsettled, poll.lost, held)
        self._ask_file_locks(poll, {did for did in unsettled - poll.lost.keys() if not self._held[did].locks})
        due = {did for did, still in settled.items() if still and self._is_due(poll, did, changed)}
        told = set()
        for did, found in self._listed({did: held[did] for did in due}):
            self._held[did] = _Held(poll.at, found)
            told.add(did)
            yield did, self._moves(poll, did)
        self._ask_locks_of_settled(poll, due - told)
        left = sorted(settled.keys() - told)
        self._learn_rules(poll, {did: settled[did] for did in left})
        for did in left:
            if did not in poll.lost:
                yield did, self._moves(poll, did)

    def _is_due(self, poll: Poll, did: Did, changed: AbstractSet[Did]) -> bool:
        """Whether the locks of a settled dataset must be asked for."""
        held = self._held.get(did)
        if held is None or poll.at - held.at >= self._asker.settings.verify_every:
            return True
        return bool(changed) and not changed.isdisjoint({did, *poll.parents(did)})

    def _locks_of(self, did: Did) -> Sequence[Lock]:
        held = self._held[did].locks if did in self._held else ()
        past = self._past.get(did)
        return [*held, *past.locks] if past and past.locks else held

    # -- locks of whole datasets

    def _ask_locks(
        self,
        poll: Poll,
        dids: AbstractSet[Did],
        lost: dict[Did, CatalogueError],
        held: Mapping[Did, AbstractSet[str]],
    ) -> None:
        """Ask for the locks of *dids*, and again for those of which one is missing: an answer may be cut."""
        found = self._locks_now(dids - lost.keys(), lost)
        fewer = {did for did, rows in found.items() if self._misses(did, rows, held.get(did, frozenset()))}
        again = self._locks_now(fewer, lost)
        for did in fewer - lost.keys():
            if set(again[did]) != set(found[did]):
                lost[did] = CatalogueGarbled(
                    self._asker.name, f"get_locks_for_dids says two things of the locks of {did}"
                )
        self._held.update((did, _Held(poll.at, rows)) for did, rows in found.items() if did not in lost)

    def _locks_now(
        self, dids: AbstractSet[Did], lost: dict[Did, CatalogueError]
    ) -> Mapping[Did, Sequence[Lock]]:
        found: dict[Did, list[Lock]] = {did: [] for did in dids}
        answers = self._asker.in_batches(
            dids,
            lost,
            lambda client, batch: client.get_locks_for_dids([{**did, "type": "dataset"} for did in batch]),
            lambda answer: locks(answer, "get_locks_for_dids"),
        )
        for lock in answers:
            found[lock.did].append(lock)
        return {did: rows for did, rows in found.items() if did not in lost}

    def _misses(self, did: Did, found: Sequence[Lock], named: AbstractSet[str]) -> bool:
        """Return whether *found* lacks a lock: one of a rule that was there, or at a first look one where
        the cheap rows have a rule *named*.
        """
        last = self._held.get(did)
        if last is None:
            return not named <= {lock.storage for lock in found}
        there = {(lock.storage, lock.rule) for lock in found}
        return any(
            (lock.storage, lock.rule) not in there and not self._book.is_gone(lock.rule)
            for lock in last.locks
        )

    def _ask_locks_of_settled(self, poll: Poll, dids: AbstractSet[Did]) -> None:
        """Those never asked about first, then those asked longest ago, until half of the time is spent."""
        settings = self._asker.settings
        never = datetime.min.replace(tzinfo=poll.at.tzinfo)
        due = sorted((self._held[did].at if did in self._held else never, did) for did in dids)
        missed: dict[Did, CatalogueError] = {}
        at_once = settings.batch * settings.concurrent_calls
        for start in range(0, len(due), at_once):
            if self._asker.connection.deadline.left < 0.5 * settings.deadline.total_seconds():
                return
            self._ask_locks(poll, {did for _, did in due[start : start + at_once]}, missed, {})
            poll.lost.update((did, error) for did, error in missed.items() if type(error) in _EVIDENCE)

    def _listed(self, held: Mapping[Did, AbstractSet[str]]) -> Iterator[tuple[Did, Sequence[Lock]]]:
        """Of rules that tell enough, what their locks would; that costs Rucio a tenth of the same locks."""
        try:
            yield from self._book.lasting(held)
        except CatalogueError:
            return  # locks are asked for

    # -- locks of single files

    def _ask_file_locks(self, poll: Poll, dids: AbstractSet[Did]) -> None:
        """Locks of rules that spread files over elements: those (grouping NONE) have none for the dataset."""
        of_did: dict[Did, list[Rule]] = {}
        for did in sorted(dids):
            try:
                found: list[Lock] = []
                for owner in (did, *sorted(self._ancestors(did, poll))):
                    if owner not in of_did:
                        of_did[owner] = self._spreading(owner)
                    for rule in of_did[owner]:
                        found += self._file_locks(did, rule)
                self._held[did] = _Held(poll.at, found)
            except CatalogueError as exc:
                poll.lost[did] = exc

    def _spreading(self, did: Did) -> list[Rule]:
        scope, name = split(did)
        found = self._asker.ask(
            lambda client: client.list_did_rules(scope, name),
            lambda rows: rules(rows, "list_did_rules"),
        )
        return [rule for rule in found if rule.grouping == "NONE" and rule.state in UNDONE]

    def _file_locks(self, did: Did, rule: Rule) -> list[Lock]:
        """What *rule* wants of *did*; of a rule for more than *did*, the locks on its files only."""
        rows = self._asker.ask(lambda client: client.list_replica_locks(rule.id), _file_lock_rows)
        mine = None if rule.did == did else self._files(did)
        states = {(storage, state) for file, storage, state in rows if mine is None or file in mine}
        return [Lock(did, storage, state, rule.id) for storage, state in sorted(states)]

    def _files(self, did: Did) -> frozenset[Did | None]:
        scope, name = split(did)
        return self._asker.ask(
            lambda client: client.list_files(scope, name),
            lambda rows: frozenset(did_of(record(row, "list_files"), "list_files") for row in rows),
        )

    def _ancestors(self, did: Did, poll: Poll) -> frozenset[Did]:
        """The containers *did* is in, at any height, as last looked up."""
        known = self._parents.get(did)
        if known and poll.at - known[0] < self._asker.settings.verify_every:
            return known[1]
        self._parents[did] = (poll.at, self._above(did))
        return self._parents[did][1]

    def _above(self, did: Did) -> frozenset[Did]:
        """The containers *did* is in, at any height."""
        found: set[Did] = set()
        todo = [did]
        while todo and len(found) < _MOST_PARENTS:
            scope, name = split(todo.pop())
            try:
                above = self._asker.ask(
                    lambda client, scope=scope, name=name: client.list_parent_dids(scope, name),  # type: ignore[misc]
                    lambda rows: {
                        did_of(record(row, "list_parent_dids"), "list_parent_dids") for row in rows
                    },
                )
            except NotFound:
                continue
            todo += [each for each in above if each and each not in found]
            found |= {each for each in above if each}
        return frozenset(found)

    # -- rules that are gone

    def unheld(self, poll: Poll, did: Did, whole: AbstractSet[str], held: Container[str]) -> frozenset[str]:
        """The elements of *whole*, less those *held*, where the history of its rules is to be asked for.

        None of a dataset whose locks were not asked for yet.
        """
        if did not in self._held:
            return frozenset()
        locked = {lock.storage for lock in self._held[did].locks if not self._book.is_gone(lock.rule)}
        past = self._past.get(did)
        if past and poll.at - past.at >= self._asker.settings.verify_every:
            past = None
        known = past.storages if past else frozenset()
        return frozenset(each for each in whole - known - locked if each not in held)

    def with_history(
        self, poll: Poll, unheld: Mapping[Did, frozenset[str]]
    ) -> Iterator[tuple[Did, Mapping[str, Movement]]]:
        """Each dataset with what rules do at storage elements, once it is known whether rules ended there.

        Data that a rule let go lies there until it is deleted, as data does that never had a rule. Rucio
        tells the two apart in the history of the rules, whoever was there to see them end. Datasets of
        which it cannot be learned are lost; what is only due to be asked again is as it was.
        """
        settings = self._asker.settings

        def turn(did: Did) -> tuple[datetime, Did]:
            asked_at = self._past[did].at if did in self._past else _NEVER
            return max(asked_at, self._no_history_at.get(did, _NEVER)), did

        jobs = sorted(unheld, key=turn)
        waiting, jobs = jobs[_MOST_HISTORIES:], jobs[:_MOST_HISTORIES][::-1]
        denials, unanswered = Denials(beside=settings.concurrent_calls), 0
        for did, past in self._asker.side_by_side(jobs, lambda each: self._past_of(poll, each, unheld[each])):
            if isinstance(past, CatalogueError):
                poll.lost[did] = past
                self._no_history_at[did] = poll.at
            else:
                known = self._past.get(did)
                locks = (*known.locks, *past.locks) if known and known.at == poll.at else past.locks
                self._past[did] = replace(past, locks=locks)
                self._ended[did] = self._ended.get(did, frozenset()) | past.ended
            unanswered += is_silence(past)
            is_over = self._asker.connection.deadline.left < 0.2 * settings.deadline.total_seconds()
            if denials.denies(past) or unanswered >= self._asker.most_unanswered or is_over:
                waiting += jobs
                jobs.clear()
        late = CatalogueUnreachable(self._asker.name, "the history of its rules was not asked for in time")
        new = {did for did in waiting if did not in self._past or unheld[did] - self._past[did].storages}
        poll.lost.update(dict.fromkeys(new, late))
        done = sorted(unheld.keys() - poll.lost.keys())
        self._learn_rules(poll, dict.fromkeys(done, True))
        for did in done:
            if did not in poll.lost:
                yield did, self._moves(poll, did)

    def _past_of(self, poll: Poll, did: Did, storages: frozenset[str]) -> _Past:
        """Ask what became of the rules that wanted *did* at *storages*, also of those on its containers."""
        parents = self._parents.get(did)
        fresh = parents and poll.at - parents[0] < self._asker.settings.verify_every
        owners = {did, *(parents[1] if parents and fresh else self._above(did))}
        locks, ended = [], set[str]()
        for owner in sorted(owners):
            for rule, expression in sorted(self._history(owner)):
                here = {each for each in storages if self._means(poll, expression, each)}
                if here and self._book.exists(rule):
                    locks += [Lock(did, each, "OK", rule) for each in sorted(here)]
                else:
                    ended |= here
        return _Past(poll.at, storages, locks, frozenset(ended) - {lock.storage for lock in locks})

    def _history(self, did: Did) -> frozenset[tuple[str, str]]:
        """All rules that ever were on *did*, with their expressions."""
        scope, name = split(did)
        try:
            return self._asker.ask(
                lambda client: client.list_replication_rule_full_history(scope, name), _past_rules
            )
        except NotFound:
            return frozenset()

    def _means(self, poll: Poll, expression: str, storage: str) -> bool:
        """Return whether *expression* means *storage*; one that Rucio cannot read any more may have."""
        try:
            return storage in self._book.places(expression, poll.storages, poll.at)
        except CatalogueGarbled:
            return True

    # -- what they do

    def _learn_rules(self, poll: Poll, settled: Mapping[Did, bool]) -> None:
        """Learn the rules of all locks; unsettled datasets of which one could not be learned are lost."""
        late: CatalogueError = CatalogueUnreachable(self._asker.name, "its rules were not asked for in time")
        try:
            missing = self._book.learn(lock for did in settled for lock in self._locks_of(did))
        except CatalogueError as exc:
            known, late = self._book.known, exc
            locks_of_all = (lock.rule for did in settled for lock in self._locks_of(did))
            missing = frozenset(rule for rule in locks_of_all if rule not in known)
        for did, still in settled.items():
            if not still and any(lock.rule in missing for lock in self._locks_of(did)):
                poll.lost.setdefault(did, late)

    def _moves(self, poll: Poll, did: Did) -> Mapping[str, Movement]:
        held_until = poll.at + self._asker.settings.expiry_margin
        lasting = self._of_locks(did, held_until)
        found = dict(lasting)
        for storage, rule in self._waiting(poll, did):
            found.setdefault(storage, promised(rule, held_until=held_until))
        ending = {storage for storage, move in found.items() if move.ends_at and move.ends_at <= held_until}
        ended = self._ended.get(did, frozenset()) - found.keys()
        found.update((storage, Movement(ends_at=poll.at, told=_ENDED)) for storage in ended)
        if ending or ended or did in self._ended:
            self._ended[did] = frozenset(ending | ended)
        return lasting if found == lasting else found

    def _of_locks(self, did: Did, held_until: datetime) -> Mapping[str, Movement]:
        """What its locks come to: the same object as in the last poll where nothing of it changed or can."""
        held, known = self._locks_of(did), self._book.known
        rules_now = [known.get(lock.rule) for lock in held]
        before = self._lasting.get(did)
        if before and before.locks is held and before.rules == rules_now:
            return before.found
        found = movements(held, known, held_until=held_until)
        self._lasting.pop(did, None)
        if all(rule is None or rule.expires_at is None for rule in rules_now):
            self._lasting[did] = _Lasting(held, rules_now, found)
        return found

    def _waiting(self, poll: Poll, did: Did) -> Iterable[tuple[str, Rule]]:
        """Rules without locks that want *did*, where that can be at one site only."""
        if self._pending is None:
            self._pending = self._book.pending()
        pending = self._pending
        if not pending:
            return
        owners = {did, *poll.parents(did)} | self._parents.get(did, (poll.at, frozenset[Did]()))[1]
        for rule in [rule for owner in sorted(owners & pending.keys()) for rule in pending[owner]]:
            try:
                names = self._book.places(rule.expression, poll.storages, poll.at)
            except CatalogueError:
                continue  # it is not known where, so nothing is said of anywhere
            disks = sorted(name for name in names if name in poll.storages and not poll.storages[name].tape)
            if disks and len({poll.storages[name].sites for name in disks}) == 1:
                yield disks[0], rule


def _past_rules(rows: Iterable[object]) -> frozenset[tuple[str, str]]:
    what = "list_replication_rule_full_history"
    each = (record(row, what) for row in rows)
    return frozenset((text(row, "rule_id", what), text(row, "rse_expression", what)) for row in each)


def _file_lock_rows(rows: Iterable[object]) -> set[tuple[Did | None, str, str]]:
    what = "list_replica_locks"
    each = (record(row, what) for row in rows)
    return {
        (did_of(row, what), text(row, "rse", what), one_of(LOCK_STATES, row, "state", what)) for row in each
    }
