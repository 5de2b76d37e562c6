"""DMAPI catalogue: the locations of datasets from SKA's data management API.

DMAPI returns the locations of a dataset, but not whether the dataset is complete at a location. It returns
no sizes, no states, and no transfers. The metadata of a closed dataset (Rucio's columns) may have the
dataset's number of files. Then the catalogue counts the files at each location. The state is AVAILABLE if
all files are at the location, else PARTIAL. Without the number of files, the setting ``bare_location`` is
the state of each location. The catalogue sends one query for each DID, several at a time.
docs/operators/catalogue-dmapi.md lists which facts about DMAPI come from recorded answers and
which are inferred.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from adapters.did_matching import case_variants, filter_by_patterns, group_by_lower_case
from adapters.http.client import JsonClient
from adapters.worker import asking
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import (
    DatasetState,
    Did,
    FilesOnDisk,
    Provenance,
    Reading,
    Replica,
    Seen,
    Site,
    Survey,
    Unseen,
)
from hydrator.domain.ports import Clock
from hydrator.domain.sites import add_unions

from .dmapi_responses import DatasetSize, Location, check_namespaces
from .dmapi_service import DmapiService
from .site_capabilities import Areas, SiteCapabilities

_RETRY_SHARE = 1 / 12
"""The share of a poll's time for datasets whose last query failed."""
_FIRST_RELIST_AFTER = timedelta(minutes=1)
"""The wait before namespaces are listed again after a failure; it doubles with each failure."""


@dataclass(frozen=True, slots=True)
class DmapiSettings:
    """Settings of one DMAPI catalogue.

    Args:
        name: the catalogue's name.
        storage_sites: the sites by storage element or area id. They override Site Capabilities.
        bare_location: the state of a location whose files cannot be counted. With None, the site counts as
            unreachable for the dataset.
        limit: the row limit that every query sends. An answer with this number of rows counts as
            incomplete.
        parallel, deadline: the number of queries at a time, and the time limit of one poll.
        size_every: query the size of a closed dataset again after this time.
        list_path: the path that lists the datasets of a namespace; empty: do not list. No recorded answer
            has this path.
        twins_every: the interval of the search for DIDs that differ in letter case only.
    """

    name: str
    storage_sites: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    bare_location: DatasetState | None = DatasetState.PARTIAL
    limit: int = 100_000
    parallel: int = 8
    deadline: timedelta = timedelta(seconds=120)
    size_every: timedelta = timedelta(hours=1)
    list_path: str = ""
    twins_every: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _DmapiPoll:
    """The state of one poll; *deadline_at* is monotonic."""

    started_at: datetime
    areas: Areas
    deadline_at: float
    unmapped_storages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _QueryBudget:
    """Limits for a part of a poll's queries; the deadline is a monotonic time."""

    deadline_at: float
    seconds_per_query: float
    max_failures: float
    failures: int = 0


class DmapiCatalogue:
    """A Catalogue that queries a DMAPI server; storage areas and downtimes come from *capabilities*."""

    def __init__(
        self,
        settings: DmapiSettings,
        client: JsonClient,
        clock: Clock,
        *,
        capabilities: SiteCapabilities | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = settings.name
        self._settings = settings
        self._client = client
        self._service = DmapiService(settings.name, client, settings.limit, settings.list_path, monotonic)
        self._clock = clock
        self._capabilities = capabilities
        self._monotonic = monotonic
        self._sizes: dict[Did, tuple[datetime, DatasetSize]] = {}
        self._attempts: dict[Did, int] = {}
        self._last_errors: dict[Did, CatalogueError] = {}
        self._poll_count = 0
        self._case_groups: Mapping[str, list[Did]] = {}
        self._listing_due_at = -math.inf
        self._listing_failures = 0

    def close(self) -> None:
        """Close the connections and forget the tokens."""
        self._client.close()
        if self._capabilities:
            self._capabilities.close()

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Query the sites of *dids*; see ``Catalogue.read``.

        Raises:
            CatalogueError: DMAPI did not answer, or the query failed for every one of *dids*.
        """
        now = self._clock()
        areas = self._capabilities.areas(now) if self._capabilities else Areas()
        poll = _DmapiPoll(now, areas, self._monotonic() + self._settings.deadline.total_seconds())
        self._service.list_namespaces(check_namespaces)
        readings, errors = self._query_all(poll, dids)
        self._last_errors = {
            did: error
            for did, error in errors.items()
            if did in self._last_errors or self._attempts[did] == self._poll_count
        }
        if dids and dids <= errors.keys():
            raise errors[min(self._last_errors.keys() or dids)]
        self._sizes = {did: size for did, size in self._sizes.items() if did in dids}
        readings = self._add_case_variants(poll, readings)
        configured = {Site(site) for sites in self._settings.storage_sites.values() for site in sites}
        return Survey(
            catalogue=self.name,
            started_at=now,
            sites=areas.sites | configured,
            readings=readings,
            unmapped_storages=frozenset(poll.unmapped_storages),
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Return all datasets whose DIDs match; see ``Catalogue.find``.

        Raises:
            CatalogueError: a listing failed or is incomplete, or no ``list_path`` is configured.
        """
        if not patterns:
            return frozenset()
        return filter_by_patterns(self._service.list_datasets(), patterns)

    def _query_all(
        self, poll: _DmapiPoll, dids: AbstractSet[Did]
    ) -> tuple[dict[Did, Reading], dict[Did, CatalogueError]]:
        """Query all *dids*: first the DIDs whose last query succeeded, then the DIDs whose last query failed.

        In both groups the DID with the oldest query is first. The second group has a twelfth of the poll's
        time. When ``parallel`` queries of the second group fail again, the rest of this group waits for the
        next poll. So DIDs that fail again and again do not use the time of other DIDs.
        """
        self._poll_count += 1
        self._attempts = {did: self._attempts.get(did, 0) for did in dids}
        order = sorted(dids, key=lambda did: (self._attempts[did], did))
        failed = [did for did in order if did in self._last_errors]
        others = [did for did in order if did not in self._last_errors]
        retry_seconds = _RETRY_SHARE * self._settings.deadline.total_seconds() if failed else 0.0
        first = _QueryBudget(poll.deadline_at - retry_seconds, math.inf, len(order))
        second = _QueryBudget(poll.deadline_at, retry_seconds, self._settings.parallel)
        errors: dict[Did, CatalogueError] = {}
        readings = self._query_within(poll, first, others, errors)
        readings |= self._query_within(poll, second, failed, errors)
        return dict(sorted(readings.items())), errors

    def _query_within(
        self, poll: _DmapiPoll, budget: _QueryBudget, dids: Sequence[Did], errors: dict[Did, CatalogueError]
    ) -> dict[Did, Reading]:
        def query(did: Did) -> Reading:
            seconds_left = min(budget.deadline_at - self._monotonic(), budget.seconds_per_query)
            if seconds_left <= 0 or budget.failures >= budget.max_failures:
                late = CatalogueUnreachable(self.name, "there was no time left in this poll")
                errors[did] = self._last_errors.get(did, late)
                return Unseen(errors[did].reason)
            self._attempts[did] = self._poll_count
            try:
                with asking(did):
                    return self._query_dataset(poll, did, seconds_left)
            except CatalogueError as error:
                errors[did] = error
                budget.failures += 1
                return Unseen(error.reason)

        with ThreadPoolExecutor(self._settings.parallel, thread_name_prefix=self.name) as pool:
            return dict(zip(dids, pool.map(query, dids), strict=True))

    def _query_dataset(self, poll: _DmapiPoll, did: Did, seconds_left: float) -> Reading:
        locations = self._service.locate(did, seconds_left)
        if locations is None:
            return Seen(poll.started_at)
        may_be_dataset = any(each.is_dataset is not False for each in locations)
        size = self._dataset_size(poll, did, seconds_left) if may_be_dataset else None
        return self._build_reading(poll, did, locations, size)

    def _build_reading(
        self,
        poll: _DmapiPoll,
        did: Did,
        locations: tuple[Location, ...],
        size: DatasetSize | None,
    ) -> Seen:
        replicas: list[Replica] = []
        unreachable_sites: set[Site] = set()
        for location in locations:
            sites, closure_reason = self._location_sites(poll, location)
            if not sites:
                poll.unmapped_storages.add(location.storage)
            state, fraction, reason = self._location_state(did, location, size)
            provenance = Provenance(closure_reason or reason)
            if closure_reason:  # the location is closed: it still has the files, but no job can read them
                state, fraction = DatasetState.UNAVAILABLE, 0.0
            if state is None:
                unreachable_sites |= sites
                continue
            length = size.file_count if size and fraction is not None else None
            is_part = state is DatasetState.PARTIAL and location.mask
            files = FilesOnDisk(location.mask, length) if length and is_part else None
            replicas += [
                Replica(did, site, state, fraction, location.storage, provenance, files)
                for site in sorted(sites)
            ]
        return Seen(
            poll.started_at,
            add_unions(each for each in replicas if each.site not in unreachable_sites),
            size.bytes_total if size else None,
            frozenset(unreachable_sites),
        )

    def _location_state(
        self, did: Did, location: Location, size: DatasetSize | None
    ) -> tuple[DatasetState | None, float | None, str]:
        """Return the state and fraction of a location, and the reason.

        Count the files if the dataset's number of files is final; else use ``bare_location``.
        """
        if location.is_dataset is False or (size and size.kind == "FILE"):
            return DatasetState.AVAILABLE, 1.0, "a single file is complete where it is"
        if size is None or size.file_count is None or not size.is_settled:
            kind = "an open dataset" if size is not None and size.kind == "DATASET" else "a container"
            return self._settings.bare_location, None, f"{kind} cannot be counted"
        if location.file_count > size.file_count:
            counts = f"{size.file_count} files, and {location.file_count} of them are at {location.storage}"
            raise CatalogueGarbled(self.name, f"{did} has {counts}")
        fraction = location.file_count / size.file_count
        state = DatasetState.AVAILABLE if fraction == 1.0 else DatasetState.PARTIAL
        return state, fraction, f"{location.file_count} of {size.file_count} files, by GET /metadata"

    def _location_sites(self, poll: _DmapiPoll, location: Location) -> tuple[frozenset[Site], str]:
        """Return the sites that read a location, and why the location is closed; '' if it is open."""
        area = poll.areas.by_id.get(location.area or "")
        areas = (area,) if area else poll.areas.find_by_name(location.storage)
        reasons = [each.closure_reason(poll.started_at) for each in areas]
        closure_reason = reasons[0] if reasons and all(reasons) else ""
        for key in (location.area, location.storage):
            if key and key in self._settings.storage_sites:
                return frozenset(Site(site) for site in self._settings.storage_sites[key]), closure_reason
        for key in () if area else (location.area, location.storage):
            if key and key in poll.areas.faults:
                raise CatalogueGarbled(self.name, poll.areas.faults[key])
        return frozenset(site for each in areas for site in each.sites), closure_reason

    def _dataset_size(self, poll: _DmapiPoll, did: Did, seconds_left: float) -> DatasetSize:
        """Return the size of *did*. Sizes of closed datasets are cached."""
        cached = self._sizes.get(did)
        if cached and cached[1].is_settled and poll.started_at - cached[0] < self._settings.size_every:
            return cached[1]
        size = self._service.query_size(did, seconds_left)
        self._sizes[did] = poll.started_at, size
        return size

    def _add_case_variants(self, poll: _DmapiPoll, readings: dict[Did, Reading]) -> dict[Did, Reading]:
        """Add to each reading the DIDs that differ from its DID in letter case only.

        For this, DMAPI must list all DIDs (``list_path``). If DMAPI fails to list them, the survey uses
        the last list. The wait before the next attempt doubles with each failure.
        """
        if not self._settings.list_path or not readings:
            return readings
        now = self._monotonic()
        if now >= self._listing_due_at:
            every = self._settings.twins_every
            try:
                self._case_groups = group_by_lower_case(self._service.list_datasets(poll.deadline_at))
                self._listing_failures = 0
            except CatalogueError:
                every = min(every, _FIRST_RELIST_AFTER * 2 ** min(self._listing_failures, 10))
                self._listing_failures += 1
            self._listing_due_at = now + every.total_seconds()
        return {
            did: replace(reading, case_variants=case_variants(did, self._case_groups))
            if isinstance(reading, Seen)
            else reading
            for did, reading in readings.items()
        }
