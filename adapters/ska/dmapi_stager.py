"""DMAPI stager: stage datasets by the stage call of SKA's data management API; see the port ``Stager``.

Recorded are only the names of the parameters (``to_storage_area_uuid``, ``lifetime``, ``parent_namespace``,
``dids``) and that the answer has a job id. The path of the call is inferred, so the operator must set it. No
call is known that lists, renews or cancels requests, or that shows those of others. So the requests are kept
in a journal (:mod:`.stage_journal`), and their progress is read from the locations of the dataset.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adapters.bounded_json import is_text
from adapters.http.client import JsonClient
from adapters.http.writes import WriteRefused, WriteUnconfirmed
from hydrator.domain.errors import CatalogueDenied, CatalogueError
from hydrator.domain.model import Did, Site, from_unix
from hydrator.domain.ports import Clock
from hydrator.domain.ports.staging import (
    ExistingRule,
    OwnRequest,
    RefusalKind,
    RequestProgress,
    RequestState,
    SiteSpace,
    StagingError,
    StagingKind,
    StagingOrder,
    StagingOutcomeUnknown,
    StagingPermissions,
    StagingRefused,
    StagingSize,
    StagingUnavailable,
)

from .dmapi_responses import BadAnswer, check_namespaces, is_absent
from .dmapi_service import DmapiService
from .site_capabilities import Areas, SiteCapabilities
from .stage_journal import LOST_JOB, StageEntry, StageJournal

_QUERY_SECONDS = 30.0
_NOTES = (
    "no call of DMAPI is known that renews a stage request: each needs a lifetime that is long enough",
    "no call of DMAPI is known that cancels a stage request: each request ends by its lifetime",
    "no call of DMAPI is known that lists stage requests: those of others are not seen",
)


@dataclass(frozen=True, slots=True)
class StageOptions:
    """Options of the stage requests to one DMAPI.

    Args:
        path: the path of the stage call below the catalogue's url.
        journal: the file with the requests.
        areas: the storage area (its id) to which requests bring data, by site in slots; needed for a site
            with several areas.
        aliases: the name of each site in slots, by its name in Site Capabilities.
        spaces: the bytes for all requests to a site; DMAPI does not know free space.
        call_limit: the time limit of one ``ask``.
    """

    path: str
    journal: Path
    areas: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    aliases: Mapping[Site, Site] = field(default_factory=lambda: MappingProxyType({}))
    spaces: Mapping[Site, int] = field(default_factory=lambda: MappingProxyType({}))
    call_limit: timedelta = timedelta(seconds=20)


class DmapiStager:
    """A Stager for the DMAPI called *name*; it stages only, and neither renews nor cancels."""

    kinds = frozenset({StagingKind.STAGE})

    def __init__(
        self,
        name: str,
        client: JsonClient,
        options: StageOptions,
        clock: Clock,
        *,
        capabilities: SiteCapabilities | None = None,
        limit: int = 100_000,
    ) -> None:
        self.name = name
        self._client = client
        self._service = DmapiService(name, client, limit, "")
        self._options = options
        self._clock = clock
        self._capabilities = capabilities
        self._journal = StageJournal(name, options.journal)
        self._one_at_a_time = threading.Lock()

    def close(self) -> None:
        """See :class:`hydrator.domain.ports.staging.Stager`."""
        self._client.close()
        if self._capabilities:
            self._capabilities.close()

    # -- requests

    def ask(self, orders: Sequence[StagingOrder]) -> Mapping[str, OwnRequest | StagingError]:
        """See :class:`hydrator.domain.ports.staging.Stager`."""
        results: dict[str, OwnRequest | StagingError] = {}
        stop: StagingError | None = None
        with self._one_at_a_time:
            for order in orders:
                results[order.tag] = result = stop or self._ask_one(order)
                if isinstance(result, StagingError) and not isinstance(result, StagingRefused):
                    stop = StagingUnavailable(self.name, f"not sent, after a failure: {result.reason}")
                if isinstance(result, StagingRefused) and result.kind is RefusalKind.PERMISSION:
                    stop = result
        return results

    def _ask_one(self, order: StagingOrder) -> OwnRequest | StagingError:
        try:
            now = self._clock()
            entries = self._journal.read(now)
            if order.tag in entries:
                return entries[order.tag].request
            area = _choose_area(self.name, order, self._options, self._areas(now), now)
            rival = next((one for one in entries.values() if (one.did, one.area) == (order.did, area)), None)
            if rival:
                return StagingRefused(self.name, f"the request {rival.tag} exists already")
            if self._service.locate(order.did, _QUERY_SECONDS) is None:
                reason = f"DMAPI does not have {order.did}"
                return StagingRefused(self.name, reason, RefusalKind.UNKNOWN_DATASET)
            ends_at = (now + order.lifetime).timestamp()
            entry = StageEntry(order.tag, LOST_JOB, order.site, order.did, area, ends_at)
            self._journal.write({**entries, order.tag: entry})
        except StagingRefused as error:
            return error
        except CatalogueDenied as error:
            return StagingRefused(self.name, error.reason, RefusalKind.PERMISSION)
        except CatalogueError as error:
            return StagingUnavailable(self.name, error.reason)
        return self._send(order, entry, entries)

    def _send(
        self, order: StagingOrder, entry: StageEntry, others: Mapping[str, StageEntry]
    ) -> OwnRequest | StagingError:
        """Send *order*, whose *entry* is in the journal; take it out again only if it had no effect."""
        namespace, _, name = order.did.partition(":")
        body = {
            "to_storage_area_uuid": entry.area,
            "lifetime": max(1, round(order.lifetime.total_seconds())),
            "parent_namespace": namespace,
            "dids": [{"namespace": namespace, "name": name}],
        }
        try:
            seconds = self._options.call_limit.total_seconds()
            answer = self._client.post_once(self._options.path, body, within_seconds=seconds, read=_read_job)
            self._journal.write({**others, order.tag: replace(entry, job=answer.body)})
        except (WriteUnconfirmed, BadAnswer) as error:
            return StagingOutcomeUnknown(self.name, f"no usable answer to the stage call: {error}")
        except CatalogueError as error:
            self._journal.write(others)
            return _translate_error(error, order)
        return replace(entry, job=answer.body).request

    def _areas(self, now: datetime) -> Areas:
        return self._capabilities.areas(now) if self._capabilities else Areas()

    def renew(self, request: OwnRequest, lifetime: timedelta) -> None:  # noqa: ARG002 - the port's
        """Refuse: no call is known; see :class:`hydrator.domain.ports.staging.Stager`."""
        raise StagingRefused(self.name, _NOTES[0], RefusalKind.PERMISSION)

    def cancel(self, request: OwnRequest) -> None:  # noqa: ARG002 - the port's
        """Refuse: no call is known; see :class:`hydrator.domain.ports.staging.Stager`."""
        raise StagingRefused(self.name, _NOTES[1], RefusalKind.PERMISSION)

    # -- answers

    @contextmanager
    def _read_journal(self) -> Iterator[tuple[dict[str, StageEntry], datetime]]:
        """Yield the journal and the time, once DMAPI has answered: without an answer nothing is known."""
        with self._one_at_a_time:
            now = self._clock()
            self._service.list_namespaces(check_namespaces)
            yield self._journal.read(now), now

    def look(self, tags: AbstractSet[str], prefix: str) -> Mapping[str, RequestProgress]:
        """See :class:`hydrator.domain.ports.staging.Stager`."""
        with self._read_journal() as (entries, now):
            areas = self._areas(now)
            return {
                tag: self._progress(entry, areas)
                for tag, entry in entries.items()
                if tag in tags or tag.startswith(prefix)
            }

    def _progress(self, entry: StageEntry, areas: Areas) -> RequestProgress:
        """Return the progress of one request: the share of the dataset's files at its storage area."""
        did, ends_at = Did(entry.did), from_unix(entry.ends_at)
        area = areas.by_id.get(entry.area)
        locations = self._service.locate(did, _QUERY_SECONDS) or ()
        places = {entry.area, area.name} if area else {entry.area}
        arrived = max(
            (each.file_count for each in locations if each.area in places or each.storage in places),
            default=0,
        )
        size = self._service.query_size(did, _QUERY_SECONDS) if locations else None
        total = size.file_count if size and size.is_settled else None
        is_done = total is not None and arrived >= total
        state = RequestState.DONE if is_done else RequestState.MOVING if arrived else RequestState.QUEUED
        reason = "DMAPI did not answer the stage call" if entry.job == LOST_JOB and not is_done else ""
        bytes_total = size.bytes_total if size and total else None
        bytes_done = bytes_total * arrived // total if bytes_total and total else None
        return RequestProgress(
            entry.request, state, arrived, total, bytes_done, bytes_total, ends_at, None, reason
        )

    def find_rules(self, dids: AbstractSet[Did], sites: AbstractSet[Site]) -> Sequence[ExistingRule]:
        """Return our own requests: DMAPI does not show those of others."""
        if not dids or not sites:
            return ()
        with self._read_journal() as (entries, _):
            return [
                ExistingRule(
                    request.did,
                    request.site,
                    entry.area,
                    RequestState.MOVING,
                    "",
                    request.handle,
                    request.tag,
                    from_unix(entry.ends_at),
                )
                for entry in entries.values()
                if (request := entry.request).did in dids and request.site in sites
            ]

    def measure(self, dids: AbstractSet[Did]) -> Mapping[Did, StagingSize]:
        """See :class:`hydrator.domain.ports.staging.Stager`."""
        sizes: dict[Did, StagingSize] = {}
        for did in sorted(dids):
            with self._one_at_a_time:
                is_known = self._service.locate(did, _QUERY_SECONDS) is not None
                size = self._service.query_size(did, _QUERY_SECONDS) if is_known else None
            if size and size.is_settled and size.bytes_total:
                sizes[did] = StagingSize(size.bytes_total, size.file_count)
        return sizes

    def read_space(self, sites: AbstractSet[Site]) -> Mapping[Site, SiteSpace]:
        """Return what is left of the space that the operator gave; DMAPI does not know free space."""
        spaces: dict[Site, SiteSpace] = {}
        known = {site: self._options.spaces[site] for site in sites & self._options.spaces.keys()}
        progress = self.look(set(), "").values() if known else ()
        for site, space in known.items():
            arrived = [one.bytes_done for one in progress if one.request.site == site and one.files_done]
            if None not in arrived:
                left = max(0, space - sum(size or 0 for size in arrived))
                spaces[site] = SiteSpace(left, space, self._clock())
        return spaces

    def probe_permissions(self) -> StagingPermissions:
        """See :class:`hydrator.domain.ports.staging.Stager`; whether we may stage is not known before."""
        with self._read_journal():
            return StagingPermissions(None, False, False, _NOTES)


def _read_job(body: Any) -> str:  # noqa: ANN401 - JSON
    """Return the id of the job in the answer to the stage call.

    Raises:
        BadAnswer: the answer has no job id.
    """
    job = body.get("job_id") if isinstance(body, dict) else None
    if not isinstance(job, str) or not is_text(job) or len(job) > 200:
        raise BadAnswer("the answer to the stage call has no job_id")
    return job


def _translate_error(error: CatalogueError, order: StagingOrder) -> StagingError:
    """Return the error of the port for an *error* after which *order* had no effect."""
    name = error.catalogue
    if isinstance(error, CatalogueDenied) or (isinstance(error, WriteRefused) and error.kind == "403"):
        return StagingRefused(name, f"DMAPI denies the stage call: {error.reason}", RefusalKind.PERMISSION)
    if not isinstance(error, WriteRefused):
        return StagingUnavailable(name, error.reason)
    if error.kind == "404" and is_absent(error.reason):
        return StagingRefused(name, f"DMAPI does not have {order.did}", RefusalKind.UNKNOWN_DATASET)
    status = f"status {error.kind}; check stage_path"
    return StagingRefused(name, f"DMAPI refuses the stage call ({status}): {error.reason}")


def _choose_area(name: str, order: StagingOrder, options: StageOptions, areas: Areas, now: datetime) -> str:
    """Return the id of the storage area for *order*.

    Raises:
        StagingRefused: the site has none or several.
    """
    wanted = order.storage or options.areas.get(order.site, "")
    here = sorted(
        area.id
        for area in areas.by_id.values()
        if order.site in {options.aliases.get(site, site) for site in area.sites}
        and not area.closure_reason(now)
        and (not wanted or wanted in {area.id, area.name})
    )
    if len(here) == 1:
        return here[0]
    reason = f"the site {order.site} has {len(here)} open storage areas"
    which = f" with the name {wanted}" if wanted else "; set storage for this site"
    raise StagingRefused(name, reason + which, RefusalKind.CLOSED)
