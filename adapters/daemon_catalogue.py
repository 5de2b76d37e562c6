"""Catalogue of the facts of a running daemon, read over HTTP.

Commands use this catalogue on a host that can read neither the daemon's state nor the daemon's catalogues.
The daemon has facts only about datasets that jobs name. This catalogue reports any other dataset as Unseen,
not as absent. The daemon searches its catalogues for patterns.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import quote

import httpx
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from adapters.http.client import HttpLimits, JsonClient
from adapters.http.oauth import TokenFile
from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.openings import Opening, Openings, Outlook
from hydrator.domain.ads.set_answers import SetAnswer
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    ConfigError,
)
from hydrator.domain.model import (
    DaemonKnowledge,
    DatasetState,
    Did,
    Fact,
    Reading,
    Replica,
    Seen,
    Site,
    SiteFacts,
    Snapshot,
    Survey,
    Unseen,
    from_unix,
    parse_did,
)
from hydrator.domain.provenance import provenance_from_row
from hydrator.domain.redaction import sanitize
from hydrator.domain.text import list_problems, reason_of
from hydrator.domain.untrusted import keeps_secrets

NOT_IN_DEMAND = "no job has named this dataset to the daemon yet"
_MAX_QUERY_BYTES = 6000
"""Maximum length of the query in one request's URL; the daemon accepts a URL of 8192 bytes."""
_MAX_STAGING_TEXTS = 1000
_ANSWER_SECONDS = 15.0
_SEARCH_SECONDS = 40.0
"""The daemon ends a request after 30 s."""
_LIMITS = HttpLimits(
    timeout=timedelta(seconds=_SEARCH_SECONDS), attempts=2, calls_per_second=1000, only_busy=True
)
"""A command asks again only after the time that a busy daemon names: a person waits for it."""


class _SiteRow(TypedDict):
    """The fields of a row of GET /v1/sites that this module reads. So are the next classes."""

    site: str
    held: str | None
    backlog: int | None
    open_until: int | None


class _Sites(TypedDict):
    now: float
    sites: list[_SiteRow]


class _FactRow(TypedDict):
    site: str
    state: DatasetState
    fraction: Annotated[float, Field(ge=0, le=1, strict=True)] | None
    as_of: int
    provenance: dict[str, str | float]


class _PathRow(TypedDict):
    site: str
    path: str


class _DatasetRow(TypedDict):
    did: str
    demanded: bool
    bytes: int | None
    unseen: str | None
    clashes_with: list[str]
    misspelt: bool
    private: bool
    left_out_at: list[str]
    similar_names: list[str]
    sites: list[_FactRow]
    paths: list[_PathRow]


class _Datasets(TypedDict):
    now: float
    datasets: list[_DatasetRow]


class _Names(TypedDict):
    names: list[str]


class _SetRow(TypedDict):
    key: str
    bytes: int | None
    sites: dict[str, SetAnswer]
    outlook: Outlook | None
    staging: list[str] | None


class _Sets(TypedDict):
    openings_none: str | None
    lists_of_wrong_keys: dict[str, SetKey | None]
    sets: list[_SetRow]


_Answer = TypeVar("_Answer")


_SITES: TypeAdapter[_Sites] = TypeAdapter(_Sites)
_DATASETS: TypeAdapter[_Datasets] = TypeAdapter(_Datasets)
_NAMES: TypeAdapter[_Names] = TypeAdapter(_Names)
_SETS: TypeAdapter[_Sets] = TypeAdapter(_Sets)


class DaemonCatalogue:
    """A catalogue that gets its facts from a running daemon.

    Args:
        url: ``https://…``, or ``http://`` for this machine or without a token.
        token_file: a file with a bearer token, if the daemon requires one.
        ca_cert: the CA of the daemon's certificate; with None, trust the CAs that the system trusts.
        transport: a replacement for the network, for tests.

    Raises:
        ConfigError: the token would be sent unencrypted, or a file cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        token_file: Path | None = None,
        ca_cert: Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.name = f"daemon {url}"
        self._url = url
        if token_file and not keeps_secrets(url):
            raise ConfigError([f"submit.daemon_url: {url} would send the token unencrypted; use https"])
        self._client = JsonClient(
            self.name,
            url,
            token_source=_open_token_file(token_file) if token_file else None,
            limits=_LIMITS,
            ca_cert=ca_cert,
            transport=transport,
        )

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Read the daemon's facts about *dids*; a reading is as old as its oldest fact.

        Raises:
            CatalogueError: the daemon did not answer, or its answer is not from a hydrator daemon.
        """
        with self._translate_errors():
            answer = self._get("/v1/sites", _SITES)
            sites = {Site(row["site"]) for row in answer["sites"]}
            rows, times = self._fetch_rows(dids)
            answered_at = from_unix(min([answer["now"], *times]))
            readings = {parse_did(row["did"]): _parse_reading(row, answered_at) for row in rows}
        sites |= {
            replica.site
            for reading in readings.values()
            if isinstance(reading, Seen)
            for replica in reading.replicas
        }
        missing = Unseen("the daemon left it out of its answer")
        return Survey(
            self.name, answered_at, frozenset(sites), {did: readings.get(did, missing) for did in dids}
        )

    def read_knowledge(
        self, dids: AbstractSet[Did], now: datetime, keys: Collection[str] = ()
    ) -> DaemonKnowledge:
        """Return the daemon's facts about *dids*, and why facts are missing; *now* is the time of the result.

        Args:
            dids: the datasets.
            now: aware UTC time.
            keys: the ``DataLocalityKey`` of jobs; the result has the openings of their sets.

        Raises:
            CatalogueError: the daemon did not answer, or its answer is not from a hydrator daemon.
        """
        with self._translate_errors():
            sites = self._get("/v1/sites", _SITES)["sites"]
            rows, _ = self._fetch_rows(dids)
            knowledge = _parse_knowledge(rows, sites, now)
        if not keys:
            return knowledge
        with suppress(CatalogueError), self._translate_errors():  # the states are an answer without them
            answer = self._fetch_sets(keys)
            reason = answer["openings_none"]
            return replace(
                knowledge,
                openings=None if reason else _parse_openings(sites, answer["sets"]),
                no_openings_reason=reason and sanitize(reason),
                lists_of_wrong_keys=answer["lists_of_wrong_keys"],
            )
        return knowledge

    def read_staging(self, key: str) -> tuple[str, ...]:
        """Return the daemon's sentences about its requests for the jobs with *key*.

        The result is empty if no queued job has it.

        Raises:
            CatalogueError: the daemon did not answer, or its answer is not from a hydrator daemon.
        """
        with self._translate_errors():
            texts = [text for row in self._fetch_sets([key])["sets"] for text in row["staging"] or ()]
            return tuple(sanitize(text) for text in texts[:_MAX_STAGING_TEXTS])

    def read_paths(self, dids: AbstractSet[Did]) -> Mapping[Site, Mapping[Did, str]]:
        """Return the paths of *dids* at each site by the [[storage]] of the daemon's configuration.

        Raises:
            CatalogueError: the daemon did not answer, or its answer is not from a hydrator daemon.
        """
        with self._translate_errors():
            paths: dict[Site, dict[Did, str]] = {}
            for row in self._fetch_rows(dids)[0]:
                for each in row["paths"]:
                    path = each["path"]
                    if not (path.startswith("/") and path.isprintable()):
                        raise ValueError(f"not an absolute path: {path[:100]!r}")
                    paths.setdefault(Site(each["site"]), {})[parse_did(row["did"])] = path
            return paths

    def _fetch_sets(self, keys: Collection[str]) -> _Sets:
        """Fetch the daemon's answer about the sets with *keys*."""
        whole: _Sets = {"openings_none": None, "lists_of_wrong_keys": {}, "sets": []}
        for query in _join_parameters("key", sorted(keys)):
            part = self._get(f"/v1/sets?{query}", _SETS)
            whole["openings_none"] = part["openings_none"]
            whole["lists_of_wrong_keys"] |= part["lists_of_wrong_keys"]
            whole["sets"] += part["sets"]
        return whole

    def _fetch_rows(self, dids: AbstractSet[Did]) -> tuple[list[_DatasetRow], list[float]]:
        """Fetch the daemon's rows about *dids*; also return the daemon's time in each answer."""
        rows: list[_DatasetRow] = []
        times = []
        for query in _join_parameters("did", sorted(dids)):
            answer = self._get(f"/v1/datasets?{query}", _DATASETS)
            times.append(answer["now"])
            rows += answer["datasets"]
        return rows, times

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise CatalogueGarbled if the answer cannot be read: the server is not a hydrator daemon."""
        try:
            yield
        except (ValueError, OverflowError, OSError) as error:  # the last two: of impossible times
            reason = f"the answer is not that of a hydrator daemon: {reason_of(error)}"
            raise CatalogueGarbled(self.name, reason) from error

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Let the daemon search its catalogues; see :meth:`hydrator.domain.ports.Catalogue.find`."""
        found: set[Did] = set()
        with self._translate_errors():
            for query in _join_parameters("match", sorted(patterns)):
                answer = self._get(f"/v1/search?{query}", _NAMES, _SEARCH_SECONDS)
                found.update(map(parse_did, answer["names"]))
        return frozenset(found)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _get(self, path: str, form: TypeAdapter[_Answer], seconds: float = _ANSWER_SECONDS) -> _Answer:
        """Return the answer to GET *path*; raise ValueError if it does not have this *form*."""
        try:
            answer = self._client.get(path, within_seconds=seconds)
        except CatalogueDenied as error:
            raise CatalogueDenied(self.name, f"refused: {error.reason}; set submit.token_file") from None
        except CatalogueUnreachable as error:
            raise CatalogueUnreachable(self.name, error.reason + self._scheme_hint(path, error)) from None
        if answer.status == 404:
            raise ValueError(f"{answer.detail} (status 404)")
        try:
            return form.validate_python(answer.body)
        except ValidationError as error:
            raise ValueError(list_problems(error)[0]) from error

    def _scheme_hint(self, path: str, error: CatalogueUnreachable) -> str:
        """Return the advice to write the other scheme into the address, if *error* is that of a wrong one."""
        if "wrong version number" in error.reason:
            return "; the server does not use TLS: write http:// in submit.daemon_url"
        is_cut = "disconnected without" in error.reason
        is_search = path.startswith("/v1/search")  # the daemon cuts one that takes too long
        if is_cut and not is_search and self._url.startswith("http:"):
            return "; if the server uses TLS, write https:// in submit.daemon_url"
        return ""


def _parse_reading(row: _DatasetRow, answered_at: datetime) -> Reading:
    """Parse one row of GET /v1/datasets. A site with state UNKNOWN (the fact is too old) is unreachable."""
    facts = row["sites"]
    if not facts and row["unseen"]:
        return Unseen(row["unseen"])
    if not facts and not row["demanded"]:
        return Unseen(NOT_IN_DEMAND)
    did = parse_did(row["did"])
    known = [fact for fact in facts if fact["state"] is not DatasetState.UNKNOWN]
    return Seen(
        as_of=min([from_unix(fact["as_of"]) for fact in known], default=answered_at),
        replicas=tuple(Replica(did, Site(fact["site"]), fact["state"], fact["fraction"]) for fact in known),
        bytes_total=row["bytes"],
        unreachable_sites=frozenset(Site(fact["site"]) for fact in facts if fact not in known),
        case_variants=frozenset(map(parse_did, row["clashes_with"])),
    )


def _parse_knowledge(
    rows: Sequence[_DatasetRow], site_rows: Iterable[_SiteRow], now: datetime
) -> DaemonKnowledge:
    """Parse rows of GET /v1/datasets and GET /v1/sites."""
    held_reasons = {Site(row["site"]): row["held"] for row in site_rows if row["held"]}
    sites: dict[Site, dict[Did, Fact]] = {Site(row["site"]): {} for row in site_rows}
    unseen: dict[Did, str] = {}
    sizes: dict[Did, int] = {}
    similar: dict[Did, tuple[Did, ...]] = {}
    omitted: dict[Site, set[Did]] = {}
    misspelt: dict[Did, tuple[Did, ...]] = {}
    collisions, demanded = set(), set()
    for row in rows:
        did = parse_did(row["did"])
        for fact in row["sites"]:
            sites.setdefault(Site(fact["site"]), {})[did] = _parse_fact(fact)
        if row["demanded"]:
            demanded.add(did)
        if row["unseen"]:
            unseen[did] = row["unseen"]
        if row["bytes"] is not None:
            sizes[did] = row["bytes"]
        others = tuple(map(parse_did, row["clashes_with"]))
        if row["misspelt"]:
            misspelt[did] = others
        elif others:
            collisions.add(tuple(sorted([did, *others])))
        if names := row["similar_names"]:
            similar[did] = tuple(map(parse_did, names))
        for site in row["left_out_at"]:
            omitted.setdefault(Site(site), set()).add(did)
    known = {site: SiteFacts(now, facts) for site, facts in sites.items()}
    snapshot = Snapshot(known, unseen, tuple(sorted(collisions)), sizes, misspelt)
    return DaemonKnowledge(
        now,
        snapshot,
        frozenset(demanded),
        dids_without_room=omitted,
        held_reasons=held_reasons,
        similar_names=similar,
        private_dids=frozenset(parse_did(row["did"]) for row in rows if row["private"]),
    )


def _parse_fact(row: _FactRow) -> Fact:
    provenance = provenance_from_row(row["provenance"])
    return Fact(row["state"], from_unix(row["as_of"]), row["fraction"], provenance)


def _parse_openings(sites: Sequence[_SiteRow], rows: Sequence[_SetRow]) -> Openings:
    """Parse the rows of /v1/sites and /v1/sets; a site without valid openings has none."""
    until = {Site(row["site"]): row["open_until"] for row in sites if row["open_until"]}
    openings: dict[Site, dict[str, Opening]] = {site: {} for site in until}
    outlooks = {}
    for row in rows:
        size = row["bytes"] or 0
        for name, each in row["sites"].items():
            if each.open_seconds is not None and (site := Site(name)) in openings:
                missing = round(size * (1 - each.share))
                openings[site][row["key"]] = Opening(each.open_seconds, each.read_from, missing)
        if outlook := row["outlook"]:
            named = tuple(Site(sanitize(site)) for site in outlook.sites)
            outlooks[SetKey(row["key"])] = outlook._replace(sites=named)
    backlog = {Site(row["site"]): row["backlog"] for row in sites if row["backlog"]}
    return Openings(openings, float(min(until.values(), default=0)), backlog, outlooks)


def _join_parameters(name: str, values: Iterable[str]) -> Iterator[str]:
    """Build query strings with *values* of the parameter *name*; none is longer than the daemon accepts."""
    query = ""
    for value in values:
        part = f"{name}={quote(value, safe=':/')}"
        if query and len(query) + len(part) + 1 > _MAX_QUERY_BYTES:
            yield query
            query = ""
        query = f"{query}&{part}" if query else part
    if query:
        yield query


def _open_token_file(file: Path) -> TokenFile:
    source = TokenFile("submit", file)
    try:
        source.token()
    except CatalogueDenied as error:
        raise ConfigError([f"submit.{error.reason}"]) from error
    return source
