"""Rucio catalogue: the sites of datasets, and transfers of datasets. Read this module of the package first.

A poll (:meth:`RucioCatalogue.read`) has these steps; each step is a module:

1. RSEs (:mod:`.rse_directory`): the storage elements and their sites.
2. Names (:mod:`.dids`): which names exist, and the datasets in containers.
3. Replicas (:mod:`.replicas`): how many files of each dataset are at each storage element.
4. Locks and rules (:mod:`.locks`): which datasets are moving or stuck, and when their rules end.
5. States (:mod:`.conclusions`, :mod:`.states`): the replicas of datasets, then of files and containers.
6. Survey: one reading for each DID, with its variants in letter case (:mod:`.did_search`).

Rucio has two answers for step 3. The summary (bulk, "shallow") is a table that Rucio's daemons refresh. It
has 0 of 0 files before these daemons have counted. It omits replicas without a rule, and ignores files that
went bad. The count ("deep") is correct, but needs one call for each dataset. So the catalogue uses the
summary only to select the datasets to count. If a dataset's summary is incomplete or has changed, every poll
counts the dataset. All others are counted again when their count is older than ``verify_every``, a tenth of
them in one poll; a dataset that a job did not find at its site is counted in the next poll. A dataset that
was not counted is Unseen, never absent and never complete. Neither answer distinguishes an empty dataset from
a container, or from a name that does not exist, so step 2 looks the names up first.
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from functools import partial

from adapters.http.rate_limiter import HttpRateLimiter
from adapters.ska.site_capabilities import SiteCapabilities
from hydrator.domain.errors import CatalogueGarbled
from hydrator.domain.model import Did, Reading, Site, Survey
from hydrator.domain.ports import Clock

from .conclusions import ContainerConclusions, DatasetConclusions, SiteGrouping
from .did_search import CaseVariantFinder, DidSearch
from .dids import ContainerLister, DidResolver
from .file_lists import FileLists
from .locks import LockTracker
from .poll import Dids, Replicas, RucioPoll
from .replicas import DatasetCount, DatasetCounter
from .rse_directory import RseDirectory
from .session.client import RucioConnection
from .session.queries import QueryRunner
from .session.settings import RucioSettings
from .states import Movements, apply_did_expiry, file_replicas, read_states

__all__ = ["RucioCatalogue", "RucioSettings"]

_FILES_PER_CALL = 200
_SINGLE_QUERY_SECONDS = 10.0


def single_site_groups(sites: AbstractSet[Site]) -> AbstractSet[AbstractSet[Site]]:
    """Return one group for each of *sites*, for pools whose jobs read only the storage of their own site."""
    return frozenset(frozenset({site}) for site in sites)


class RucioCatalogue:
    """A Rucio server as a Catalogue; see the module's docstring for the steps of a poll.

    If *rate_limiter* is None, *settings* give the rate. *capabilities* has downtimes, and the sites of
    storage elements that neither *settings* nor Rucio map to a site. *group_sites* returns groups of sites: a
    job at any site of a group reads the storage of all its sites.
    """

    def __init__(
        self,
        settings: RucioSettings,
        clock: Clock,
        rate_limiter: HttpRateLimiter | None = None,
        *,
        capabilities: SiteCapabilities | None = None,
        group_sites: SiteGrouping = single_site_groups,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._clock = clock
        self._capabilities = capabilities
        connection = RucioConnection(settings, rate_limiter)
        self._queries = queries = QueryRunner(settings, connection)
        self._rses = RseDirectory(queries, capabilities)
        self._resolver = DidResolver(queries)
        self._member_resolver = DidResolver(queries)
        self._container_lister = ContainerLister(queries)
        self._did_search = DidSearch(queries)
        self._variant_finder = CaseVariantFinder(queries, self._did_search)
        self._counter = DatasetCounter(queries)
        self._lock_tracker = LockTracker(queries, self._rses)
        self._file_lists = FileLists(queries)
        self._datasets = DatasetConclusions(queries, self._rses, self._lock_tracker, group_sites)
        self._containers = ContainerConclusions(queries, self._member_resolver)

    def close(self) -> None:
        """Close the connections and forget the token."""
        self._queries.close()
        if self._capabilities:
            self._capabilities.close()

    def read(self, dids: Dids) -> Survey:
        """Query the sites of *dids*; see ``Catalogue.read``.

        Raises:
            CatalogueError: Rucio did not answer, or the query failed for every one of *dids*.
        """
        now = self._clock()
        with self._queries.start_poll():
            # step 1: RSEs
            poll = RucioPoll(self.name, now, now + self._settings.expiry_margin, self._rses.read(now))
            # steps 2 to 5
            self._read_all(poll, dids)
            _raise_if_all_failed(poll, dids)
            seconds_left = self._queries.connection.remaining_seconds
        # step 2 again, for names that the answer of the bulk call did not contain
        self._resolver.look_up_unresolved(poll, dids, min(seconds_left, _SINGLE_QUERY_SECONDS))
        _raise_if_all_failed(poll, dids)
        # step 6: the survey
        readings: Mapping[Did, Reading] = {did: poll.build_reading(did) for did in sorted(dids)}
        readings = self._variant_finder.add_case_variants(readings, now)
        return _build_survey(poll, readings)

    def recount(self, dids: Dids) -> None:
        """Let the next poll count those of *dids* again that it asks about."""
        self._counter.recount(dids)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Return all datasets and containers whose DIDs match; see ``Catalogue.find``.

        Raises:
            CatalogueError: Rucio could not list all matching DIDs.
        """
        with self._queries.start_poll():
            return self._did_search.find(patterns)

    # -- the steps of a poll

    def _read_all(self, poll: RucioPoll, dids: Dids) -> None:
        """Run steps 2 to 5: names, and then the replicas of datasets, files and containers."""
        poll.did_infos = self._resolver.resolve(poll, dids)
        datasets, containers, files = (
            {did for did in dids if poll.did_infos[did].kind == kind}
            for kind in ("DATASET", "CONTAINER", "FILE")
        )
        poll.members_by_container = self._container_lister.list_all(poll, containers)
        members = {did for each in poll.members_by_container.values() for did in each}
        poll.did_infos.update(self._member_resolver.resolve(poll, members - dids))
        self._queries.forget_all_but(dids | members)
        self._read_datasets(poll, datasets | members)
        self._resolver.confirm_absent(poll, dids)
        self._read_files(poll, files)
        self._containers.conclude_all(poll)

    def _read_datasets(self, poll: RucioPoll, dids: Dids) -> None:
        """Run steps 3 to 5 of a poll (see the top of this module) for the datasets *dids*.

        The replicas of a dataset are computed as soon as its files are counted and the effect of its rules
        is known. Datasets whose ended rules must be queried too come last.
        """
        counts: dict[Did, DatasetCount] = {}
        needing_history: dict[Did, frozenset[str]] = {}

        def conclude(did: Did, movements: Movements) -> None:
            storages = self._datasets.storages_needing_history(poll, did, counts[did].counts, movements)
            if storages:
                needing_history[did] = storages
            else:
                self._datasets.conclude(poll, did, counts[did], movements)

        # step 3: replicas
        for batch in self._counter.iter_counts(poll, dids):
            counts.update(batch)
        # step 4: locks and rules; then step 5 for each dataset: states
        for did, movements in self._lock_tracker.iter_movements(poll, counts):
            conclude(did, movements)
        for did, movements in self._lock_tracker.iter_histories(poll, needing_history):
            self._datasets.conclude(poll, did, counts[did], movements)
        self._file_lists.read(poll)

    def _read_files(self, poll: RucioPoll, dids: Dids) -> None:
        """Query and store the replicas of DIDs that are single files."""
        rows = self._queries.query_in_batches(
            dids,
            poll.errors,
            "list_replicas",
            lambda _, row: read_states(row),
            size=_FILES_PER_CALL,
            all_states=True,
            sort="random",
        )
        for did, states in rows.items():
            if not states:
                poll.errors[did] = CatalogueGarbled(self.name, f"list_replicas returns nothing for {did}")
                continue
            poll.conclude(
                did,
                poll.did_infos[did].bytes_total,
                states[-1],
                partial(self._build_file_replicas, poll, did, states[-1]),
            )

    def _build_file_replicas(self, poll: RucioPoll, did: Did, states: Mapping[str, str]) -> Replicas:
        self._rses.add_unlisted(states, poll.started_at)
        replicas = file_replicas(did, states, poll.rses, held_until=poll.held_until)
        return apply_did_expiry(replicas, poll.did_infos[did].ends_at, poll.held_until)


def _build_survey(poll: RucioPoll, readings: Mapping[Did, Reading]) -> Survey:
    rses = poll.rses.values()
    return Survey(
        catalogue=poll.name,
        started_at=poll.started_at,
        sites=frozenset(site for rse in rses for site in (*rse.sites, *rse.former_sites)),
        readings=readings,
        unmapped_storages=frozenset(rse.name for rse in rses if not rse.sites and not rse.is_deleted),
    )


def _raise_if_all_failed(poll: RucioPoll, dids: Dids) -> None:
    if dids and dids <= poll.errors.keys():
        raise poll.errors[min(dids)]
