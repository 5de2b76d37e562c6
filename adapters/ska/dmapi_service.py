"""DMAPI service: query its routes, and check that each answer is complete."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

from adapters.http.client import JsonClient, JsonResponse
from hydrator.domain.errors import CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.model import Did

from .dmapi_responses import (
    BadAnswer,
    DatasetSize,
    Location,
    is_absent,
    parse_listing,
    parse_locations,
    parse_namespaces,
    parse_size,
)


class DmapiService:
    """A client of the DMAPI called *name*.

    Args:
        name: the catalogue's name, for errors.
        client: the HTTP client.
        limit: the row limit that every query sends. An answer with this number of rows counts as
            incomplete.
        list_path: the path that lists a namespace; empty: the path is unknown.
        monotonic: a function that returns the seconds of a monotonic clock.
    """

    def __init__(
        self,
        name: str,
        client: JsonClient,
        limit: int,
        list_path: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._client = client
        self._limit = limit
        self._list_path = list_path
        self._monotonic = monotonic

    def locate(self, did: Did, seconds_left: float) -> tuple[Location, ...] | None:
        """Return the locations of *did*; None if Rucio does not have this DID.

        Raises:
            CatalogueError: the query failed, or its answer is unreadable or incomplete.
        """
        path = f"/data/locate/{self._did_path(did)}"
        params: Mapping[str, str | int] = {"sort": "random", "limit": self._limit}
        answer = self._get(did, path, params, seconds_left, parse_locations)
        if answer.status == 404:
            if not is_absent(answer.detail):
                raise CatalogueGarbled(
                    self._name, f"{did}: status 404, but not from Rucio; check url: {answer.detail[:200]}"
                )
            return None
        locations: tuple[Location, ...]
        locations, longest = answer.body
        self._check_complete(answer, longest, f"the locations of {did}")
        return locations

    def query_size(self, did: Did, seconds_left: float) -> DatasetSize:
        """Return the size of *did* from Rucio's columns.

        Raises:
            CatalogueError: the query failed, or the metadata is missing.
        """
        path = f"/metadata/{self._did_path(did)}"
        answer = self._get(did, path, {"plugin": "DID_COLUMN"}, seconds_left, partial(parse_size, did))
        if answer.status == 404:
            reason = "DMAPI has locations of the dataset but no metadata"
            raise CatalogueGarbled(self._name, f"{reason}: {answer.detail[:120]}")
        size: DatasetSize = answer.body
        return size

    def list_datasets(self, deadline_at: float = math.inf) -> frozenset[Did]:
        """Return the datasets of all namespaces, before *deadline_at* (monotonic).

        Raises:
            CatalogueError: no ``list_path`` is configured, a query failed, or a listing is incomplete.
        """
        if not self._list_path:
            reason = "the path that lists a namespace is not configured: set list_path"
            raise CatalogueUnreachable(self._name, f"{reason} (docs/operators/catalogue-dmapi.md)")
        dids: set[Did] = set()
        for namespace in self.list_namespaces(parse_namespaces):
            path = self._list_path.replace("{namespace}", quote(namespace, safe=""))
            seconds_left = deadline_at - self._monotonic()
            parse = partial(parse_listing, namespace)
            answer = self._get(path, path, {"limit": self._limit}, seconds_left, parse)
            if answer.status == 404:
                raise CatalogueGarbled(self._name, f"{path}: not found (404); check list_path")
            self._check_complete(answer, len(answer.body), f"the listing of {namespace}")
            dids |= answer.body
        return frozenset(dids)

    def list_namespaces(self, read: Callable[[Any], Sequence[str]]) -> Sequence[str]:
        """Return all namespaces. The list is never empty, so this call also checks that DMAPI works.

        Raises:
            CatalogueError: the query failed.
        """
        answer = self._get("/data/list", "/data/list", {}, math.inf, read)
        if answer.status == 404:
            raise CatalogueGarbled(self._name, "/data/list: not found (404); check url")
        names: Sequence[str] = answer.body
        return names

    def _get(
        self,
        subject: str,
        path: str,
        params: Mapping[str, str | int],
        seconds_left: float,
        read: Callable[[Any], Any],
    ) -> JsonResponse:
        """Get *path* and parse the answer with *read*; raise CatalogueGarbled if the answer is unreadable."""
        answer = self._client.get(path, params, within_seconds=seconds_left)
        try:
            return replace(answer, body=read(answer.body)) if answer.status == 200 else answer
        except BadAnswer as error:
            raise CatalogueGarbled(self._name, f"{subject}: {error}") from None

    def _check_complete(self, answer: JsonResponse, length: int, subject: str) -> None:
        if answer.has_next_page or length >= self._limit:
            raise CatalogueGarbled(
                self._name, f"the answer with {subject} is incomplete: {length} rows, limit = {self._limit}"
            )

    def _did_path(self, did: Did) -> str:
        scope, _, name = did.partition(":")
        if any(part in {"", ".", ".."} for part in (scope, *name.split("/"))):
            reason = "DMAPI cannot be queried for a name with an empty part, . or .. between slashes"
            raise CatalogueGarbled(self._name, reason)
        return f"{quote(scope, safe='')}/{quote(name, safe='/')}"
