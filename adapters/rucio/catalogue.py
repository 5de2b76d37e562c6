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

from adapters.rucio.datasets.case_variants import CaseVariantFinder
from adapters.rucio.datasets.dids import DidInfo, DidResolver
from adapters.rucio.datasets.file_unions import FileLists
from adapters.rucio.rules.locks import LockTracker
from adapters.rucio.rules.model import Movement
from adapters.rucio.rules.recalls import RecallSampler
from adapters.rucio.session.client import RucioConnection, RucioSettings
from adapters.rucio.session.queries import QueryRunner
from adapters.rucio.session.rate_limiter import RucioRateLimiter
from adapters.rucio.session.transport import NotFound
from adapters.ska.site_capabilities import SiteCapabilities
from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import Did, Reading, Replica, ReplicaState, Seen, Site, Survey
from hydrator.domain.ports import Clock, TokenValidity

from .background import BackgroundVerifier
from .poll import RucioPoll
from .progress import ProgressTracker
from .replicas import CountWithRows, DatasetCount, DatasetCounter, TrustedCount, count_dataset
from .responses import BadRow, Count, GarbledRow, Rse, parse_rows, read_states
from .rses import RseDirectory
from .states import (
    apply_did_expiry,
    combinable_storages,
    container_replicas,
    dataset_replicas,
    file_replicas,
)

__all__ = ["RucioCatalogue", "RucioSettings"]

_FILES_PER_CALL = 200
SiteGrouping = Callable[[AbstractSet[Site]], AbstractSet[AbstractSet[Site]]]


def single_site_groups(sites: AbstractSet[Site]) -> AbstractSet[AbstractSet[Site]]:
    """Each of *sites* by itself: jobs read the storage of their own site only."""
    return frozenset(frozenset({site}) for site in sites)


_SINGLE_QUERY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _CachedReplicas:
    """What was concluded of a dataset of which nothing moves, and from what: these very objects.

    What the time alone can change, a rule that ends, comes as a new object in every poll.
    """

    counts: Mapping[str, Count]
    movements: Mapping[str, Movement]
    rses: Mapping[str, Rse]
    replicas: tuple[Replica, ...]

    def is_valid_for(
        self, counts: Mapping[str, Count], movements: Mapping[str, Movement], rses: Mapping[str, Rse]
    ) -> bool:
        return self.counts is counts and self.movements is movements and self.rses is rses


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
        rate_limiter: RucioRateLimiter | None = None,
        *,
        capabilities: SiteCapabilities | None = None,
        group_sites: SiteGrouping = single_site_groups,
    ) -> None:
        self._settings = settings
        self._clock = clock
        connection = RucioConnection(settings, rate_limiter)
        self._queries = QueryRunner(settings, connection)
        beside = QueryRunner(
            replace(settings, concurrent_calls=1), connection.with_own_deadline(settings.concurrent_calls)
        )
        self._background = BackgroundVerifier[TrustedCount, DatasetCount](
            beside, self._verify, settings.verify_every
        )
        self._has_polled = False
        self._capabilities = capabilities
        self._rses = RseDirectory(self._queries, capabilities)
        self._resolver = DidResolver(self._queries, self._background)
        self._part_resolver = DidResolver(self._queries)
        self._variant_finder = CaseVariantFinder(self._queries, self._resolver)
        self._counter = DatasetCounter(self._queries, self._background)
        self._lock_tracker = LockTracker(self._queries)
        self._recalls = RecallSampler(self._queries)
        self._group_sites = group_sites
        self._file_lists = FileLists(self._queries)
        self._shared_counts: dict[Did, Mapping[str, Count]] = {}
        self._site_groups: tuple[Mapping[str, Rse], AbstractSet[AbstractSet[Site]]] | None = None
        self._progress = ProgressTracker()
        self._last_rses: Mapping[str, Rse] = {}
        self._cached_replicas: dict[Did, _CachedReplicas] = {}
        self._awaiting_history: dict[Did, tuple[CountWithRows, frozenset[str]]] = {}
        self._complete_lists: dict[Did, tuple[datetime, AbstractSet[Did]]] = {}
        self._one_at_a_time = threading.Lock()

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def token_validity(self) -> TokenValidity | None:
        """How long the token is good that we were given; None without one that we renew."""
        return self._queries.connection.token_validity

    def close(self) -> None:
        """End what is asked in the background, and let go of connections and of the token."""
        self._background.close()
        self._queries.close()
        if self._capabilities:
            self._capabilities.close()

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Say where each of *dids* is; see ``Catalogue.read``.

        Raises:
            CatalogueError: it could not answer, or for none of *dids*.
        """
        with self._one_at_a_time, self._background.pause():
            at = self._clock()
            with self._queries.connection.start_poll(self._settings.deadline.total_seconds()):
                poll = RucioPoll(self.name, at, self._read_rses(at))
                entries = self._read_all(poll, dids)
                if dids and dids <= poll.errors.keys():
                    raise poll.errors[min(dids)]
                left = self._queries.connection.deadline.remaining_seconds
            self._resolver.look_up_unresolved(
                entries, dids, poll.errors, at, min(left, _SINGLE_QUERY_SECONDS)
            )
            if dids and dids <= poll.errors.keys():
                raise poll.errors[min(dids)]
            readings: Mapping[Did, Reading] = {
                did: poll.build_reading(did, entries[did].kind) for did in sorted(dids)
            }
            readings = self._variant_finder.add_case_variants(readings, at)
            self._background.start_verifying(self._counter.verification_queue() if self._has_polled else ())
            self._has_polled = True
        return Survey(
            catalogue=self.name,
            started_at=at,
            sites=frozenset(
                site for each in poll.rses.values() for site in (*each.sites, *each.former_sites)
            ),
            readings=readings,
            unmapped_storages=frozenset(
                each.name for each in poll.rses.values() if not each.sites and not each.is_deleted
            ),
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """All datasets and containers whose DIDs match; see ``Catalogue.find``.

        Raises:
            CatalogueError: they could not all be listed.
        """
        with (
            self._one_at_a_time,
            self._background.pause(),
            self._queries.connection.start_poll(self._settings.deadline.total_seconds()),
        ):
            return self._resolver.find(patterns)

    def _verify(self, queries: QueryRunner, trusted_count: TrustedCount) -> DatasetCount:
        """Count again what a poll believed; where it differs, the next poll counts it itself."""
        did, counted = trusted_count
        return count_dataset(queries, did, counted.rows_version, self._clock(), counted)

    def _read_all(self, poll: RucioPoll, dids: AbstractSet[Did]) -> dict[Did, DidInfo]:
        """Learn what *poll* can of *dids*, and what each name is."""
        entries = self._resolver.resolve(dids, poll.errors, poll.started_at)
        containers = {did for did in dids if entries[did].kind == "CONTAINER"}
        poll.members_by_container = members = self._resolver.list_all_members(
            containers, poll.errors, poll.started_at
        )
        datasets = {did for did in dids if entries[did].kind == "DATASET"}
        parts = {part for inside in members.values() for part in inside}
        entries.update(self._part_resolver.resolve(parts - dids, poll.errors, poll.started_at))
        datasets |= parts
        self._background.forget_all_but(dids | parts)
        self._read_datasets(poll, datasets, entries)
        self._confirm_absent(poll, dids, entries)
        self._read_files(poll, {did for did in dids if entries[did].kind == "FILE"}, entries)
        self._complete_lists = {did: known for did, known in self._complete_lists.items() if did in members}
        for did, inside in members.items():
            self._conclude_container(poll, did, inside, entries[did].ends_at)
        return entries

    def _confirm_absent(self, poll: RucioPoll, dids: AbstractSet[Did], did_infos: dict[Did, DidInfo]) -> None:
        """Those of *dids* that Rucio does not know any more are ABSENT, whatever we remember."""
        gone = {did for did in dids if isinstance(poll.errors.get(did), NotFound)}
        for did, entry in self._resolver.confirm_absent(gone, poll.started_at).items():
            did_infos[did] = entry
            del poll.errors[did]

    def _read_datasets(
        self, poll: RucioPoll, dids: AbstractSet[Did], did_infos: Mapping[Did, DidInfo]
    ) -> None:
        """Count what must be counted, ask what moves, and put the replicas of *dids* into *poll*.

        What can be concluded is, while the rest is asked for.
        """
        self._recalls.start_poll(dids)
        self._progress.forget_all_but(dids)
        self._awaiting_history, self._shared_counts = {}, {}
        self._cached_replicas = {did: still for did, still in self._cached_replicas.items() if did in dids}
        waiting: dict[Did, CountWithRows] = {}
        settled: dict[Did, bool] = {}
        held: dict[Did, AbstractSet[str]] = {}
        with self._lock_tracker.refresh_rules(poll, dids):
            for known in self._counter.read(poll, dids):
                still = {did for did, (counted, rows) in known.items() if counted.is_settled(rows)}
                where = {did: {row.storage for row in rows} for did, (_, rows) in known.items()}
                at_once = self._lock_tracker.cached_movements(poll, {did: where[did] for did in still})
                for did, moves in at_once.items():
                    self._conclude(poll, did, known[did], moves, did_infos)
                waiting.update((did, each) for did, each in known.items() if did not in at_once)
                settled.update((did, did in still) for did in known.keys() - at_once.keys())
                held.update((did, where[did]) for did in known.keys() - at_once.keys())
            for did, moves in self._lock_tracker.read_movements(poll, settled, held):
                self._conclude(poll, did, waiting.pop(did), moves, did_infos)
        unheld = {did: storages for did, (_, storages) in self._awaiting_history.items()}
        for did, moves in self._lock_tracker.read_histories(poll, unheld):
            self._conclude_now(poll, did, self._awaiting_history[did][0], moves, did_infos)
        self._file_lists.read(poll, self._shared_counts)

    def _conclude(
        self,
        poll: RucioPoll,
        did: Did,
        count_with_rows: CountWithRows,
        movements: Mapping[str, Movement],
        did_infos: Mapping[Did, DidInfo],
    ) -> None:
        """Put what follows of *did* into *poll*, or keep it for when the history of its rules is known."""
        counted = count_with_rows[0]
        still = self._cached_replicas.get(did)
        if not (still and still.is_valid_for(counted.counts, movements, poll.rses)):
            whole = {
                name
                for name, count in counted.counts.items()
                if count.is_complete and _is_on_disk_at_site(poll, name)
            }
            parts = self._combinable_storages(poll, counted.counts, movements, poll.rses)
            if unheld := self._lock_tracker.storages_needing_history(poll, did, whole | parts, movements):
                self._awaiting_history[did] = count_with_rows, unheld
                return
        self._conclude_now(poll, did, count_with_rows, movements, did_infos)

    def _conclude_now(
        self,
        poll: RucioPoll,
        did: Did,
        count_with_rows: CountWithRows,
        movements: Mapping[str, Movement],
        did_infos: Mapping[Did, DidInfo],
    ) -> None:
        counted, rows = count_with_rows
        told = (row.amount for row in rows if row.amount.length > 0)
        count = next(iter(counted.counts.values()), None) or next(told, None)
        entry = did_infos[did].bytes_total if did in did_infos else None
        size = int(count.bytes) if count else 0 if counted.is_empty else entry
        ends_at = did_infos[did].ends_at if did in did_infos else None
        poll.conclude(did, size, partial(self._build_replicas, poll, did, counted, movements, ends_at))
        if counted.is_empty:
            poll.empty_datasets.add(did)

    def _build_replicas(
        self,
        poll: RucioPoll,
        did: Did,
        dataset_count: DatasetCount,
        movements: Mapping[str, Movement],
        ends_at: datetime | None,
    ) -> tuple[Replica, ...]:
        still = self._cached_replicas.get(did)
        if still and ends_at is None and still.is_valid_for(dataset_count.counts, movements, poll.rses):
            return still.replicas
        storages = self._add_unlisted(poll, dataset_count.counts.keys() | movements.keys())
        found = dataset_replicas(
            did, dataset_count.counts, movements, storages, held_until=self._margin_ends_at(poll)
        )
        found = apply_did_expiry(found, ends_at, self._margin_ends_at(poll))
        found = self._progress.add_estimates(
            self._recalls.add_recall_reasons(found, poll.started_at), poll.started_at
        )
        parts = self._combinable_storages(poll, dataset_count.counts, movements, storages)
        if parts and (ends_at is None or ends_at > self._margin_ends_at(poll)):
            self._shared_counts[did] = {name: dataset_count.counts[name] for name in parts}
        if (
            ends_at is None
            and not parts
            and all(replica.state is not ReplicaState.INCOMING for replica in found)
        ):
            self._cached_replicas[did] = _CachedReplicas(dataset_count.counts, movements, poll.rses, found)
        return found

    def _combinable_storages(
        self,
        poll: RucioPoll,
        counts: Mapping[str, Count],
        movements: Mapping[str, Movement],
        rses: Mapping[str, Rse],
    ) -> frozenset[str]:
        if self._site_groups is None or self._site_groups[0] is not poll.rses:
            sites = frozenset(site for each in poll.rses.values() for site in each.sites)
            self._site_groups = poll.rses, self._group_sites(sites)
        return combinable_storages(counts, movements, rses, self._site_groups[1], self._margin_ends_at(poll))

    def _add_unlisted(self, poll: RucioPoll, names: AbstractSet[str]) -> Mapping[str, Rse]:
        """The storage elements of *poll*, and those of *names* that their list left out.

        Raises:
            BadRow: one of them could not be learned.
        """
        storages = dict[str, Rse]()
        for name in sorted(names - poll.rses.keys()):
            storage = self._rses.find_unlisted(name, poll.started_at)
            if storage is None:
                raise BadRow(f"there is data at {name}, which list_rses did not list")
            storages[name] = storage
        return {**poll.rses, **storages} if storages else poll.rses

    def _read_rses(self, now: datetime) -> Mapping[str, Rse]:
        """All storage elements; the same object as in the last poll where they are as they were."""
        found = self._rses.read(now)
        if found != self._last_rses:
            self._last_rses = found
        return self._last_rses

    def _read_files(self, poll: RucioPoll, dids: AbstractSet[Did], did_infos: Mapping[Did, DidInfo]) -> None:
        states: dict[Did, Mapping[str, str]] = {}
        answers = self._queries.query_in_batches(
            dids,
            poll.errors,
            lambda client, batch: client.list_replicas(batch, all_states=True, sort="random"),
            _parse_file_rows,
            size=_FILES_PER_CALL,
        )
        states.update(answers)
        for did in dids - poll.errors.keys() - states.keys():
            poll.errors[did] = CatalogueGarbled(self.name, f"list_replicas says nothing of {did}")
        for did in dids - poll.errors.keys():
            poll.conclude(
                did,
                did_infos[did].bytes_total,
                partial(self._file_replicas, poll, did, states[did], did_infos[did]),
            )

    def _file_replicas(
        self, poll: RucioPoll, did: Did, states: Mapping[str, str], did_info: DidInfo
    ) -> tuple[Replica, ...]:
        margin = self._margin_ends_at(poll)
        return apply_did_expiry(
            file_replicas(did, states, poll.rses, held_until=margin), did_info.ends_at, margin
        )

    def _margin_ends_at(self, poll: RucioPoll) -> datetime:
        """Until when data must be held to start a job on it."""
        return poll.started_at + self._settings.expiry_margin

    def _check_parts(self, poll: RucioPoll, container: Did, members: AbstractSet[Did]) -> None:
        """Lose *container* where the list of its parts was cut: they have fewer bytes than Rucio says it has.

        Asked when the list is another one than before, and every ``verify_every``. What is still open may
        grow between the two questions.
        """
        known = self._complete_lists.get(container)
        fresh = known is not None and poll.started_at - known[0] < self._settings.verify_every
        if container in poll.errors or (fresh and known is not None and known[1] == members):
            return
        listed = sum(poll.conclusions[did].bytes_total or 0 for did in members)
        try:
            size = self._resolver.query_size(container)
        except CatalogueError as exc:
            poll.errors[container] = exc
            return
        if size > listed and not self._part_resolver.is_any_open(members):
            reason = f"its list has {len(members)} datasets of {listed} bytes in all, and it has {size} bytes"
            poll.errors[container] = CatalogueGarbled(self.name, f"{container}: {reason}")
            return
        self._complete_lists[container] = poll.started_at, members

    def _conclude_container(
        self, poll: RucioPoll, container: Did, members: AbstractSet[Did], ends_at: datetime | None
    ) -> None:
        missing = sorted(did for did in members if did in poll.errors)
        if missing:
            reason = f"of its {len(members)} datasets {len(missing)} are unseen, first {missing[0]}: "
            first: CatalogueError = poll.errors[missing[0]]
            poll.errors[container] = type(first)(self.name, reason + first.reason)
        self._check_parts(poll, container, members)
        if container in poll.errors:
            return
        parts = [poll.conclusions[did] for did in sorted(members) if did not in poll.empty_datasets]
        sizes = [part.bytes_total for part in parts]
        total = sum(size for size in sizes if size is not None) if None not in sizes else None
        found = container_replicas(container, parts) if parts else ()
        found = apply_did_expiry(found, ends_at, self._margin_ends_at(poll))
        poll.conclusions[container] = Seen(poll.started_at, found, total)


def _is_on_disk_at_site(poll: RucioPoll, name: str) -> bool:
    """Return whether it matters of a whole copy at this element if a rule holds it: on disk, at a site."""
    storage = poll.rses.get(name)
    return storage is not None and not storage.is_tape and bool(storage.sites)


def _parse_file_rows(rows: Iterable[object]) -> list[tuple[Did, Mapping[str, str]] | GarbledRow]:
    return list(parse_rows(rows, "list_replicas", lambda did, row: (did, read_states(row, "list_replicas"))))
