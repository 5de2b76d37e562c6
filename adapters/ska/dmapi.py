"""A Catalogue on SKA's data management API (DMAPI): where the files of a dataset are.

DMAPI knows locations and not completeness: it has no sizes, no states, and
shows nothing of what is moving. Where Rucio's columns say how many files a closed dataset
has, its files are counted at each place: all is COMPLETE, fewer PARTIAL. Where they do not,
``bare_location`` says what a location stands for. One question a DID, several at a time.
docs/catalogue-dmapi.md says what was recorded of the service and what is inferred.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from adapters.did_matching import case_variants, filter_by_patterns, group_by_lower_case
from adapters.http.client import JsonClient, JsonResponse
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import (
    Did,
    FilesOnDisk,
    Provenance,
    Reading,
    Replica,
    ReplicaState,
    Seen,
    Site,
    Survey,
    Unseen,
)
from hydrator.domain.ports import Clock, TokenValidity
from hydrator.domain.sites import add_unions

from .dmapi_responses import (
    BadAnswer,
    DatasetSize,
    Location,
    check_namespaces,
    is_absent,
    parse_listing,
    parse_locations,
    parse_namespaces,
    parse_size,
)
from .site_capabilities import Areas, SiteCapabilities

_CALL = "GET /data/locate"
_RETRY_SHARE = 1 / 12
"""Of a poll's time, for datasets that failed when they were last asked for."""
_FIRST_RELIST_AFTER = timedelta(minutes=1)
"""Before namespaces that could not be listed are listed again; twice as long after each failure."""


@dataclass(frozen=True, slots=True)
class DmapiSettings:
    """How one DMAPI is read.

    Args:
        name: the catalogue's.
        storage_sites: by storage element or area id, its sites; wins over Site Capabilities.
        bare_location: what a location is whose files cannot be counted; None: nothing is
            said of such a site, which counts as not looked at.
        count_files: ask for metadata to count files.
        limit: sent with every question; an answer that reaches it was cut.
        parallel, deadline: how many questions at a time, and for how long in one poll.
        size_every: how long the size of a closed dataset is believed.
        list_path: where a namespace is listed; inferred, so empty (never asked) unless configured.
        twins_every: how often to look there for DIDs that differ in letter case only.
    """

    name: str
    storage_sites: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    bare_location: ReplicaState | None = ReplicaState.PARTIAL
    count_files: bool = True
    limit: int = 100_000
    parallel: int = 8
    deadline: timedelta = timedelta(seconds=120)
    size_every: timedelta = timedelta(hours=1)
    list_path: str = ""
    twins_every: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _DmapiPoll:
    """One poll: when it began, what is at which site, and when it must end (monotonic)."""

    started_at: datetime
    areas: Areas
    deadline_at: float
    unmapped_storages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _QueryBudget:
    """Questions of one poll: when they must end, how long one may take, and how many may fail."""

    deadline_at: float
    seconds_per_query: float
    max_failures: float
    failures: int = 0


class DmapiCatalogue:
    """A DMAPI server as a Catalogue; *capabilities* is where storage areas and downtimes come from."""

    def __init__(
        self,
        settings: DmapiSettings,
        client: JsonClient,
        clock: Clock,
        *,
        capabilities: SiteCapabilities | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._capabilities = capabilities
        self._monotonic = monotonic
        self._sizes: dict[Did, tuple[datetime, DatasetSize]] = {}
        self._attempts: dict[Did, int] = {}
        self._last_errors: dict[Did, CatalogueError] = {}
        self._poll_count = 0
        self._case_groups: Mapping[str, frozenset[Did]] = {}
        self._listing_due_at = -math.inf
        self._listing_failures = 0
        self._one_at_a_time = threading.Lock()

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def token_validity(self) -> TokenValidity | None:
        """How long the token is good that we were given; None without one that we renew."""
        return self._client.token_validity

    def close(self) -> None:
        """Let go of connections and of tokens."""
        self._client.close()
        if self._capabilities:
            self._capabilities.close()

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Say where each of *dids* is; see ``Catalogue.read``.

        Raises:
            CatalogueError: it could not answer, or for none of *dids*.
        """
        with self._one_at_a_time:
            at = self._clock()
            areas = self._capabilities.areas(at) if self._capabilities else Areas()
            poll = _DmapiPoll(at, areas, self._monotonic() + self._settings.deadline.total_seconds())
            self._list_namespaces(check_namespaces)
            readings, errors = self._query_all(poll, dids)
            self._last_errors = {
                did: error
                for did, error in errors.items()
                if did in self._last_errors or self._attempts[did] == self._poll_count
            }
            if dids and dids <= errors.keys():
                raise errors[min(self._last_errors.keys() or dids)]
            self._sizes = {did: known for did, known in self._sizes.items() if did in dids}
            readings = self._add_case_variants(poll, readings)
        configured = {Site(site) for sites in self._settings.storage_sites.values() for site in sites}
        return Survey(
            catalogue=self.name,
            started_at=at,
            sites=areas.sites | configured,
            readings=readings,
            unmapped_storages=frozenset(poll.unmapped_storages),
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """All datasets whose DIDs match; see ``Catalogue.find``.

        Raises:
            CatalogueError: they could not all be listed, or no ``list_path`` is configured.
        """
        if not patterns:
            return frozenset()
        with self._one_at_a_time:
            return filter_by_patterns(self._list_all(), patterns)

    def _query_all(
        self, poll: _DmapiPoll, dids: AbstractSet[Did]
    ) -> tuple[dict[Did, Reading], dict[Did, CatalogueError]]:
        """Ask for each, those first whose last attempt is longest ago, and last those that failed then.

        These have a little time of their own, and are left alone for this poll when as many
        fail again as are asked for at a time: datasets that never answer take no others' time.
        """
        self._poll_count += 1
        self._attempts = {did: self._attempts.get(did, 0) for did in dids}
        order = sorted(dids, key=lambda did: (self._attempts[did], did))
        again = [did for did in order if did in self._last_errors]
        spare = _RETRY_SHARE * self._settings.deadline.total_seconds() if again else 0.0
        first = _QueryBudget(poll.deadline_at - spare, math.inf, len(order))
        second = _QueryBudget(poll.deadline_at, spare, self._settings.parallel)
        errors: dict[Did, CatalogueError] = {}
        readings = self._query_within(
            poll, first, [did for did in order if did not in self._last_errors], errors
        )
        readings |= self._query_within(poll, second, again, errors)
        return dict(sorted(readings.items())), errors

    def _query_within(
        self, poll: _DmapiPoll, budget: "_QueryBudget", dids: Sequence[Did], errors: dict[Did, CatalogueError]
    ) -> dict[Did, Reading]:
        def asked(did: Did) -> Reading:
            left = min(budget.deadline_at - self._monotonic(), budget.seconds_per_query)
            if left <= 0 or budget.failures >= budget.max_failures:
                late = CatalogueUnreachable(self.name, "there was no time left in this poll")
                errors[did] = self._last_errors.get(did, late)
                return Unseen(errors[did].reason)
            self._attempts[did] = self._poll_count
            try:
                return self._query_dataset(poll, did, left)
            except CatalogueError as error:
                errors[did] = error
                budget.failures += 1
                return Unseen(error.reason)

        with ThreadPoolExecutor(self._settings.parallel, thread_name_prefix=self.name) as pool:
            return dict(zip(dids, pool.map(asked, dids), strict=True))

    def _query_dataset(self, poll: _DmapiPoll, did: Did, seconds_left: float) -> Reading:
        path = self._did_path(did)
        answer = self._get(
            did,
            f"/data/locate/{path}",
            {"sort": "random", "limit": self._settings.limit},
            seconds_left,
            parse_locations,
        )
        if answer.status == 404:
            self._check_absent(did, answer)
            return Seen(poll.started_at)
        found, longest = answer.body
        self._check_complete(answer, longest, f"the locations of {did}")
        known = (
            self._dataset_size(poll, did, seconds_left)
            if any(each.is_dataset is not False for each in found)
            else None
        )
        return self._build_reading(poll, did, found, known)

    def _get(
        self,
        subject: str,
        path: str,
        params: Mapping[str, str | int],
        seconds_left: float,
        read: Callable[[Any], Any],
    ) -> JsonResponse:
        """Ask for *path* and *read* the answer; a row that cannot be read is CatalogueGarbled for *what*."""
        try:
            return self._client.get(path, params, within_seconds=seconds_left, read=read)
        except BadAnswer as wrong:
            raise CatalogueGarbled(self.name, f"{subject}: {wrong}") from None

    def _build_reading(
        self,
        poll: _DmapiPoll,
        did: Did,
        found_locations: tuple[Location, ...],
        known_size: DatasetSize | None,
    ) -> Seen:
        replicas: list[Replica] = []
        blind: set[Site] = set()
        for location in found_locations:
            sites, closed = self._location_sites(poll, location)
            if not sites:
                poll.unmapped_storages.add(location.storage)
            state, fraction = self._location_state(did, location, known_size)
            told = Provenance(_CALL, reason=closed or _state_reason(location, known_size))
            if closed:  # its files stand there still, and no job can read them
                state, fraction = ReplicaState.STUCK, 0.0
            if state is None:
                blind |= sites
                continue
            length = known_size.file_count if known_size and fraction is not None else None
            is_part = state is ReplicaState.PARTIAL and location.mask
            files = FilesOnDisk(location.mask, length) if length and is_part else None
            replicas += [
                Replica(did, site, state, fraction, location.storage, told, files) for site in sorted(sites)
            ]
        return Seen(
            poll.started_at,
            add_unions(each for each in replicas if each.site not in blind),
            known_size.bytes_total if known_size else None,
            frozenset(blind),
        )

    def _location_state(
        self, did: Did, location: Location, known_size: DatasetSize | None
    ) -> tuple[ReplicaState | None, float | None]:
        """What one location is: counted, where the number of files is known and settled."""
        if location.is_dataset is False or (known_size and known_size.kind == "FILE"):
            return ReplicaState.COMPLETE, 1.0
        if known_size is None or known_size.file_count is None or not known_size.is_settled:
            return self._settings.bare_location, None
        if location.file_count > known_size.file_count:
            raise CatalogueGarbled(
                self.name,
                f"{did} has {known_size.file_count} files, and {location.file_count} of them are at {location.storage}",
            )
        fraction = location.file_count / known_size.file_count
        return (ReplicaState.COMPLETE if fraction == 1.0 else ReplicaState.PARTIAL), fraction

    def _location_sites(self, poll: _DmapiPoll, location: Location) -> tuple[frozenset[Site], str]:
        """The sites that read a location, and why it is closed, if it is."""
        area = poll.areas.by_id.get(location.area or "")
        alike = (area,) if area else poll.areas.find_by_name(location.storage)
        reasons = [each.closure_reason(poll.started_at) for each in alike]
        closed = reasons[0] if reasons and all(reasons) else ""
        for key in (location.area, location.storage):
            if key and key in self._settings.storage_sites:
                return frozenset(Site(site) for site in self._settings.storage_sites[key]), closed
        for key in () if area else (location.area, location.storage):
            if key and key in poll.areas.faults:
                raise CatalogueGarbled(self.name, poll.areas.faults[key])
        return frozenset(site for each in alike for site in each.sites), closed

    def _dataset_size(self, poll: _DmapiPoll, did: Did, seconds_left: float) -> DatasetSize | None:
        """How many files *did* has; None where we are not to ask. Of what is closed the answer is kept."""
        if not self._settings.count_files:
            return None
        known = self._sizes.get(did)
        if known and known[1].is_settled and poll.started_at - known[0] < self._settings.size_every:
            return known[1]
        path = f"/metadata/{self._did_path(did)}"
        answer = self._get(did, path, {"plugin": "DID_COLUMN"}, seconds_left, partial(parse_size, did))
        if answer.status == 404:
            reason = (
                f"it has locations and no metadata (count_files = false asks for none): {answer.detail[:120]}"
            )
            raise CatalogueGarbled(self.name, reason)
        found: DatasetSize = answer.body
        self._sizes[did] = poll.started_at, found
        return found

    def _add_case_variants(self, poll: _DmapiPoll, readings: dict[Did, Reading]) -> dict[Did, Reading]:
        """The same, with the DIDs that differ in letter case only, where they can be listed.

        A listing that fails costs the survey nothing: the last one stands, and the next
        attempt waits, longer after each failure.
        """
        if not self._settings.list_path or not readings:
            return readings
        now = self._monotonic()
        if now >= self._listing_due_at:
            every = self._settings.twins_every
            try:
                self._case_groups = group_by_lower_case(self._list_all(poll.deadline_at))
                self._listing_failures = 0
            except CatalogueError:
                every = min(every, _FIRST_RELIST_AFTER * 2 ** min(self._listing_failures, 10))
                self._listing_failures += 1
            self._listing_due_at = now + every.total_seconds()
        return {
            did: Seen(
                one.as_of,
                one.replicas,
                one.bytes_total,
                one.unreachable_sites,
                case_variants(did, self._case_groups),
            )
            if isinstance(one, Seen)
            else one
            for did, one in readings.items()
        }

    def _list_all(self, deadline_at: float = math.inf) -> frozenset[Did]:
        path = self._settings.list_path
        if not path:
            reason = (
                "where it lists a namespace is not known for sure: set list_path (docs/catalogue-dmapi.md)"
            )
            raise CatalogueUnreachable(self.name, reason)
        found: set[Did] = set()
        for namespace in self._list_namespaces(parse_namespaces):
            where = path.replace("{namespace}", quote(namespace, safe=""))
            answer = self._get(
                where,
                where,
                {"limit": self._settings.limit},
                deadline_at - self._monotonic(),
                partial(_parse_listing, namespace),
            )
            if answer.status == 404:
                raise CatalogueGarbled(self.name, f"{where} is not there: is list_path right?")
            self._check_complete(answer, len(answer.body), f"the listing of {namespace}")
            found |= answer.body
        return frozenset(found)

    def _list_namespaces(self, read: Callable[[Any], Sequence[str]]) -> Sequence[str]:
        """All namespaces: the one question that is always worth asking, since its answer is never empty."""
        answer = self._get("/data/list", "/data/list", {}, math.inf, read)
        if answer.status == 404:
            raise CatalogueGarbled(self.name, "/data/list is not there: is url right?")
        names: Sequence[str] = answer.body
        return names

    def _check_complete(self, answer: JsonResponse, length: int, subject: str) -> None:
        if answer.has_next_page or length >= self._settings.limit:
            raise CatalogueGarbled(
                self.name, f"{subject} were cut: {length} rows, limit = {self._settings.limit}"
            )

    def _check_absent(self, did: Did, answer: JsonResponse) -> None:
        if not is_absent(answer.detail):
            raise CatalogueGarbled(
                self.name, f"{did}: not found, and not as Rucio says it: {answer.detail[:200]}"
            )

    def _did_path(self, did: Did) -> str:
        scope, _, name = did.partition(":")
        if any(part in {"", ".", ".."} for part in (scope, *name.split("/"))):
            raise CatalogueGarbled(self.name, "a name with empty or dotted parts cannot stand in a path")
        return f"{quote(scope, safe='')}/{quote(name, safe='/')}"


def _parse_listing(namespace: str, body: Any) -> set[Did]:  # noqa: ANN401 - JSON
    return set(parse_listing(namespace, body))


def _state_reason(location: Location, known_size: DatasetSize | None) -> str:
    """What a location's state rests on."""
    if location.is_dataset is False or (known_size and known_size.kind == "FILE"):
        return "a file has all of itself"
    if known_size is None:
        return "its files are not counted (count_files)"
    if known_size.file_count is None or not known_size.is_settled:
        return f"what is {'open' if known_size.kind == 'DATASET' else 'a container'} cannot be counted"
    return f"{location.file_count} of {known_size.file_count} files, by GET /metadata"
