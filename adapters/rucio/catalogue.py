"""A Catalogue on Rucio: which datasets are at which sites, and what is moving.

Rucio keeps two answers. The cheap one (bulk, "shallow") is a table that daemons
refresh: it says 0 of 0 before they have counted, misses replicas without a
rule, and is not told of files that went bad. The true one ("deep") counts
files and takes one call for each dataset. So the cheap answer tells whom to count: what
it does not show as whole and unchanged is counted in every poll, the rest between
polls, once in ``verify_every``. What was not counted is Unseen, never absent and never complete.
Neither answer distinguishes a container or a name that does not exist from an
empty dataset, so names are looked up first, and containers are taken apart.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from adapters.rucio.datasets.case_variants import Twins
from adapters.rucio.datasets.dids import Entry, Names
from adapters.rucio.datasets.file_unions import FileLists
from adapters.rucio.rules.locks import Moves
from adapters.rucio.rules.model import Movement
from adapters.rucio.rules.recalls import Recalls
from adapters.rucio.session.client import Connection, NotFound, RucioSettings
from adapters.rucio.session.queries import Asker
from adapters.rucio.session.rate_limiter import Pace
from adapters.ska.site_capabilities import SiteCapabilities
from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import Did, Reading, Replica, ReplicaState, Seen, Site, Survey
from hydrator.domain.ports import Clock, Login

from .background import Background
from .poll import Poll
from .progress import Progress
from .replicas import Counted, Counts, Known, Stood, count_one
from .responses import BadRow, Count, Garbled, Storage, each_about, states_of
from .rses import StorageElements
from .states import (
    container_replicas,
    dataset_replicas,
    file_replicas,
    shared_elements,
    while_it_lasts,
)

__all__ = ["RucioCatalogue", "RucioSettings"]

_FILES_A_CALL = 200
Together = Callable[[AbstractSet[Site]], AbstractSet[AbstractSet[Site]]]


def each_alone(sites: AbstractSet[Site]) -> AbstractSet[AbstractSet[Site]]:
    """Each of *sites* by itself: jobs read the storage of their own site only."""
    return frozenset(frozenset({site}) for site in sites)


_ALONE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Still:
    """What was concluded of a dataset of which nothing moves, and from what: these very objects.

    What the time alone can change, a rule that ends, comes as a new object in every poll.
    """

    counts: Mapping[str, Count]
    moves: Mapping[str, Movement]
    storages: Mapping[str, Storage]
    replicas: tuple[Replica, ...]

    def follows_from(
        self, counts: Mapping[str, Count], moves: Mapping[str, Movement], storages: Mapping[str, Storage]
    ) -> bool:
        return self.counts is counts and self.moves is moves and self.storages is storages


class RucioCatalogue:
    """A Rucio server as a Catalogue; see the module's text for what it trusts.

    Its *pace* is by default what *settings* say, on the machine's clock. *capabilities*
    knows downtimes, and the sites of storage elements of which neither *settings* nor Rucio do.
    *together* says which sites' storage jobs somewhere read as their own.
    """

    def __init__(
        self,
        settings: RucioSettings,
        clock: Clock,
        pace: Pace | None = None,
        *,
        capabilities: SiteCapabilities | None = None,
        together: Together = each_alone,
    ) -> None:
        self._settings = settings
        self._clock = clock
        connection = Connection(settings, pace)
        self._asker = Asker(settings, connection)
        beside = Asker(replace(settings, concurrent_calls=1), connection.apart(settings.concurrent_calls))
        self._background = Background[Stood, Counted](beside, self._verify, settings.verify_every)
        self._was_polled = False
        self._capabilities = capabilities
        self._storages = StorageElements(self._asker, capabilities)
        self._names = Names(self._asker, self._background)
        self._part_names = Names(self._asker)
        self._twins = Twins(self._asker, self._names)
        self._counts = Counts(self._asker, self._background)
        self._moves = Moves(self._asker)
        self._recalls = Recalls(self._asker)
        self._together = together
        self._file_lists = FileLists(self._asker)
        self._shared: dict[Did, Mapping[str, Count]] = {}
        self._groups: tuple[Mapping[str, Storage], AbstractSet[AbstractSet[Site]]] | None = None
        self._progress = Progress()
        self._last_storages: Mapping[str, Storage] = {}
        self._still: dict[Did, _Still] = {}
        self._unheld: dict[Did, tuple[Known, frozenset[str]]] = {}
        self._whole_lists: dict[Did, tuple[datetime, AbstractSet[Did]]] = {}
        self._one_at_a_time = threading.Lock()

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def login(self) -> Login | None:
        """How long the token is good that we were given; None without one that we renew."""
        return self._asker.connection.login

    def close(self) -> None:
        """End what is asked in the background, and let go of connections and of the token."""
        self._background.close()
        self._asker.close()
        if self._capabilities:
            self._capabilities.close()

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Say where each of *dids* is; see ``Catalogue.read``.

        Raises:
            CatalogueError: it could not answer, or for none of *dids*.
        """
        with self._one_at_a_time, self._background.paused():
            at = self._clock()
            with self._asker.connection.poll(self._settings.deadline.total_seconds()):
                poll = Poll(self.name, at, self._storages_at(at))
                entries = self._read_all(poll, dids)
                if dids and dids <= poll.lost.keys():
                    raise poll.lost[min(dids)]
                left = self._asker.connection.deadline.left
            self._names.look_up(entries, dids, poll.lost, at, min(left, _ALONE_SECONDS))
            if dids and dids <= poll.lost.keys():
                raise poll.lost[min(dids)]
            readings: Mapping[Did, Reading] = {
                did: poll.reading(did, entries[did].kind) for did in sorted(dids)
            }
            readings = self._twins.among(readings, at)
            self._background.begin(self._counts.round() if self._was_polled else ())
            self._was_polled = True
        return Survey(
            catalogue=self.name,
            at=at,
            sites=frozenset(site for each in poll.storages.values() for site in (*each.sites, *each.left)),
            readings=readings,
            unmapped=frozenset(
                each.name for each in poll.storages.values() if not each.sites and not each.deleted
            ),
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """All datasets and containers whose DIDs match; see ``Catalogue.find``.

        Raises:
            CatalogueError: they could not all be listed.
        """
        with (
            self._one_at_a_time,
            self._background.paused(),
            self._asker.connection.poll(self._settings.deadline.total_seconds()),
        ):
            return self._names.find(patterns)

    def _verify(self, asker: Asker, stood: Stood) -> Counted:
        """Count again what a poll believed; where it differs, the next poll counts it itself."""
        did, counted = stood
        return count_one(asker, did, counted.stamp, self._clock(), counted)

    def _read_all(self, poll: Poll, dids: AbstractSet[Did]) -> dict[Did, Entry]:
        """Learn what *poll* can of *dids*, and what each name is."""
        entries = self._names.remembered(dids, poll.lost, poll.at)
        containers = {did for did in dids if entries[did].kind == "CONTAINER"}
        poll.members = members = self._names.members_of(containers, poll.lost, poll.at)
        datasets = {did for did in dids if entries[did].kind == "DATASET"}
        parts = {part for inside in members.values() for part in inside}
        entries.update(self._part_names.remembered(parts - dids, poll.lost, poll.at))
        datasets |= parts
        self._background.keep(dids | parts)
        self._read_datasets(poll, datasets, entries)
        self._look_again(poll, dids, entries)
        self._read_files(poll, {did for did in dids if entries[did].kind == "FILE"}, entries)
        self._whole_lists = {did: known for did, known in self._whole_lists.items() if did in members}
        for did, inside in members.items():
            self._fold_container(poll, did, inside, entries[did].ends_at)
        return entries

    def _look_again(self, poll: Poll, dids: AbstractSet[Did], entries: dict[Did, Entry]) -> None:
        """Those of *dids* that Rucio does not know any more are ABSENT, whatever we remember."""
        gone = {did for did in dids if isinstance(poll.lost.get(did), NotFound)}
        for did, entry in self._names.gone(gone, poll.at).items():
            entries[did] = entry
            del poll.lost[did]

    def _read_datasets(self, poll: Poll, dids: AbstractSet[Did], entries: Mapping[Did, Entry]) -> None:
        """Count what must be counted, ask what moves, and put the replicas of *dids* into *poll*.

        What can be concluded is, while the rest is asked for.
        """
        self._recalls.begin(dids)
        self._progress.keep(dids)
        self._unheld, self._shared = {}, {}
        self._still = {did: still for did, still in self._still.items() if did in dids}
        waiting: dict[Did, Known] = {}
        settled: dict[Did, bool] = {}
        held: dict[Did, AbstractSet[str]] = {}
        with self._moves.beside(poll, dids):
            for known in self._counts.read(poll, dids):
                still = {did for did, (counted, rows) in known.items() if counted.settled(rows)}
                where = {did: {row.storage for row in rows} for did, (_, rows) in known.items()}
                at_once = self._moves.at_once(poll, {did: where[did] for did in still})
                for did, moves in at_once.items():
                    self._conclude(poll, did, known[did], moves, entries)
                waiting.update((did, each) for did, each in known.items() if did not in at_once)
                settled.update((did, did in still) for did in known.keys() - at_once.keys())
                held.update((did, where[did]) for did in known.keys() - at_once.keys())
            for did, moves in self._moves.read(poll, settled, held):
                self._conclude(poll, did, waiting.pop(did), moves, entries)
        unheld = {did: storages for did, (_, storages) in self._unheld.items()}
        for did, moves in self._moves.with_history(poll, unheld):
            self._settle(poll, did, self._unheld[did][0], moves, entries)
        self._file_lists.read(poll, self._shared)

    def _conclude(
        self, poll: Poll, did: Did, known: Known, moves: Mapping[str, Movement], entries: Mapping[Did, Entry]
    ) -> None:
        """Put what follows of *did* into *poll*, or keep it for when the history of its rules is known."""
        counted = known[0]
        still = self._still.get(did)
        if not (still and still.follows_from(counted.counts, moves, poll.storages)):
            whole = {name for name, count in counted.counts.items() if count.complete and _lasts(poll, name)}
            parts = self._shared_elements(poll, counted.counts, moves, poll.storages)
            if unheld := self._moves.unheld(poll, did, whole | parts, moves):
                self._unheld[did] = known, unheld
                return
        self._settle(poll, did, known, moves, entries)

    def _settle(
        self, poll: Poll, did: Did, known: Known, moves: Mapping[str, Movement], entries: Mapping[Did, Entry]
    ) -> None:
        counted, rows = known
        told = (row.amount for row in rows if row.amount.length > 0)
        count = next(iter(counted.counts.values()), None) or next(told, None)
        entry = entries[did].bytes_total if did in entries else None
        size = int(count.bytes) if count else 0 if counted.empty else entry
        ends_at = entries[did].ends_at if did in entries else None
        poll.conclude(did, size, partial(self._replicas, poll, did, counted, moves, ends_at))
        if counted.empty:
            poll.empty.add(did)

    def _replicas(
        self,
        poll: Poll,
        did: Did,
        counted: Counted,
        moves: Mapping[str, Movement],
        ends_at: datetime | None,
    ) -> tuple[Replica, ...]:
        still = self._still.get(did)
        if still and ends_at is None and still.follows_from(counted.counts, moves, poll.storages):
            return still.replicas
        storages = self._with_unlisted(poll, counted.counts.keys() | moves.keys())
        found = dataset_replicas(did, counted.counts, moves, storages, held_until=self._margin(poll))
        found = while_it_lasts(found, ends_at, self._margin(poll))
        found = self._progress.timed(self._recalls.explained(found, poll.at), poll.at)
        parts = self._shared_elements(poll, counted.counts, moves, storages)
        if parts and (ends_at is None or ends_at > self._margin(poll)):
            self._shared[did] = {name: counted.counts[name] for name in parts}
        if (
            ends_at is None
            and not parts
            and all(replica.state is not ReplicaState.INCOMING for replica in found)
        ):
            self._still[did] = _Still(counted.counts, moves, poll.storages, found)
        return found

    def _shared_elements(
        self,
        poll: Poll,
        counts: Mapping[str, Count],
        moves: Mapping[str, Movement],
        storages: Mapping[str, Storage],
    ) -> frozenset[str]:
        if self._groups is None or self._groups[0] is not poll.storages:
            sites = frozenset(site for each in poll.storages.values() for site in each.sites)
            self._groups = poll.storages, self._together(sites)
        return shared_elements(counts, moves, storages, self._groups[1], self._margin(poll))

    def _with_unlisted(self, poll: Poll, names: AbstractSet[str]) -> Mapping[str, Storage]:
        """The storage elements of *poll*, and those of *names* that their list left out.

        Raises:
            BadRow: one of them could not be learned.
        """
        storages = dict[str, Storage]()
        for name in sorted(names - poll.storages.keys()):
            storage = self._storages.unlisted(name, poll.at)
            if storage is None:
                raise BadRow(f"there is data at {name}, which list_rses did not list")
            storages[name] = storage
        return {**poll.storages, **storages} if storages else poll.storages

    def _storages_at(self, now: datetime) -> Mapping[str, Storage]:
        """All storage elements; the same object as in the last poll where they are as they were."""
        found = self._storages.read(now)
        if found != self._last_storages:
            self._last_storages = found
        return self._last_storages

    def _read_files(self, poll: Poll, dids: AbstractSet[Did], entries: Mapping[Did, Entry]) -> None:
        states: dict[Did, Mapping[str, str]] = {}
        answers = self._asker.in_batches(
            dids,
            poll.lost,
            lambda client, batch: client.list_replicas(batch, all_states=True, sort="random"),
            _file_rows,
            size=_FILES_A_CALL,
        )
        states.update(answers)
        for did in dids - poll.lost.keys() - states.keys():
            poll.lost[did] = CatalogueGarbled(self.name, f"list_replicas says nothing of {did}")
        for did in dids - poll.lost.keys():
            poll.conclude(
                did, entries[did].bytes_total, partial(self._of_file, poll, did, states[did], entries[did])
            )

    def _of_file(self, poll: Poll, did: Did, states: Mapping[str, str], entry: Entry) -> tuple[Replica, ...]:
        margin = self._margin(poll)
        return while_it_lasts(
            file_replicas(did, states, poll.storages, held_until=margin), entry.ends_at, margin
        )

    def _margin(self, poll: Poll) -> datetime:
        """Until when data must be held to start a job on it."""
        return poll.at + self._settings.expiry_margin

    def _check_parts(self, poll: Poll, container: Did, members: AbstractSet[Did]) -> None:
        """Lose *container* where the list of its parts was cut: they have fewer bytes than Rucio says it has.

        Asked when the list is another one than before, and every ``verify_every``. What is still open may
        grow between the two questions.
        """
        known = self._whole_lists.get(container)
        fresh = known is not None and poll.at - known[0] < self._settings.verify_every
        if container in poll.lost or (fresh and known is not None and known[1] == members):
            return
        listed = sum(poll.parts[did].bytes_total or 0 for did in members)
        try:
            size = self._names.size(container)
        except CatalogueError as exc:
            poll.lost[container] = exc
            return
        if size > listed and not self._part_names.is_open(members):
            reason = f"its list has {len(members)} datasets of {listed} bytes in all, and it has {size} bytes"
            poll.lost[container] = CatalogueGarbled(self.name, f"{container}: {reason}")
            return
        self._whole_lists[container] = poll.at, members

    def _fold_container(
        self, poll: Poll, container: Did, members: AbstractSet[Did], ends_at: datetime | None
    ) -> None:
        missing = sorted(did for did in members if did in poll.lost)
        if missing:
            reason = f"of its {len(members)} datasets {len(missing)} are unseen, first {missing[0]}: "
            first: CatalogueError = poll.lost[missing[0]]
            poll.lost[container] = type(first)(self.name, reason + first.reason)
        self._check_parts(poll, container, members)
        if container in poll.lost:
            return
        parts = [poll.parts[did] for did in sorted(members) if did not in poll.empty]
        sizes = [part.bytes_total for part in parts]
        total = sum(size for size in sizes if size is not None) if None not in sizes else None
        found = container_replicas(container, parts) if parts else ()
        found = while_it_lasts(found, ends_at, self._margin(poll))
        poll.parts[container] = Seen(poll.at, found, total)


def _lasts(poll: Poll, name: str) -> bool:
    """Return whether it matters of a whole copy at this element if a rule holds it: on disk, at a site."""
    storage = poll.storages.get(name)
    return storage is not None and not storage.tape and bool(storage.sites)


def _file_rows(rows: Iterable[object]) -> list[tuple[Did, Mapping[str, str]] | Garbled]:
    return list(each_about(rows, "list_replicas", lambda did, row: (did, states_of(row, "list_replicas"))))
