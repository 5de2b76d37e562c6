"""What a running daemon knows, asked over HTTP by a host that has neither its state nor its catalogues.

It reads like a catalogue, second-hand: a dataset that nobody asked the daemon
for is Unseen, not absent, and it lists nothing, since it knows only part.
"""

import ipaddress
import ssl
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from adapters.http.bounded_exchange import BoundedHttpClient, RawResponse
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueGarbled,
    CatalogueUnreachable,
    ConfigError,
)
from hydrator.domain.model import (
    NO_PROVENANCE,
    DaemonKnowledge,
    DatasetState,
    Did,
    Fact,
    Reading,
    Replica,
    ReplicaState,
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
from hydrator.domain.redaction import read_secret, sanitize
from hydrator.domain.text import reason_of
from hydrator.domain.untrusted import valid_number

from .bounded_json import Bounds, decode

NOT_IN_DEMAND = "no job has asked the daemon for it yet"
_MAX_QUERY_BYTES = 6000
"""Of one question; the daemon takes 8192 bytes of URL."""
_TIMEOUT_SECONDS = 15.0
_DEADLINE_SECONDS = 60.0
_BOUNDS = Bounds(bytes_setting="the client's own", values_setting="the client's own")
_REPLICA_STATES = {
    DatasetState.AVAILABLE: ReplicaState.COMPLETE,
    DatasetState.STAGING: ReplicaState.INCOMING,
    DatasetState.PARTIAL: ReplicaState.PARTIAL,
    DatasetState.NEARLINE: ReplicaState.ON_TAPE,
    DatasetState.STUCK: ReplicaState.STUCK,
}


class DaemonCatalogue:
    """The daemon at *url*, as a catalogue that can be read and not searched.

    Args:
        url: ``https://…``, or ``http://`` for this very machine or without a token.
        token_file: a file with a bearer token, for a daemon that asks for one.
        ca_cert: who signed the daemon's certificate; None: whom the system trusts.
        secret: whether the questions themselves are secret: private datasets.
        transport: for tests.

    Raises:
        ConfigError: a secret would be sent in the clear, or a file cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        token_file: Path | None = None,
        ca_cert: Path | None = None,
        is_secret: bool = False,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.name = f"daemon {url}"
        self._url = url.rstrip("/")
        near = _is_loopback(url)
        if (is_secret or token_file) and urlsplit(url).scheme != "https" and not near:
            what = "our token" if token_file else "names of private datasets"
            raise ConfigError([f"submit.daemon_url: {url} would show {what} on the way; use https"])
        self._http = BoundedHttpClient(
            self.name,
            _BOUNDS,
            headers={"Authorization": f"Bearer {_read_token(token_file)}"} if token_file else {},
            verify=_build_ssl_context(ca_cert) if ca_cert else True,
            timeout=_TIMEOUT_SECONDS,
            trust_env=not near,
            transport=transport,
        )

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """What the daemon holds true of each of *dids*, each with the age of its oldest fact.

        Raises:
            CatalogueError: the daemon could not be asked, or does not answer as one.
        """
        with self._translate_errors():
            answer = self._get_json("/v1/sites")
            sites, times = {Site(str(row["site"])) for row in answer["sites"]}, [answer["now"]]
            rows, more = self._fetch_rows(dids)
            at = from_unix(min([*times, *more]))
            readings = {parse_did(str(row["did"])): _parse_reading(row, at) for row in rows}
        sites |= {
            replica.site for one in readings.values() if isinstance(one, Seen) for replica in one.replicas
        }
        left = Unseen("the daemon left it out of its answer")
        return Survey(self.name, at, frozenset(sites), {did: readings.get(did, left) for did in dids})

    def read_knowledge(self, dids: AbstractSet[Did], now: datetime) -> DaemonKnowledge:
        """Return what the daemon holds true of each of *dids*, as its own state would say it at *now*.

        Raises:
            CatalogueError: the daemon could not be asked, or does not answer as one.
        """
        with self._translate_errors():
            held = {
                Site(str(row["site"])): str(row["held"])
                for row in self._get_json("/v1/sites")["sites"]
                if row.get("held")
            }
            rows, _ = self._fetch_rows(dids)
            return _parse_knowledge(rows, held, now)

    def _fetch_rows(self, dids: AbstractSet[Did]) -> tuple[list[Mapping[str, Any]], list[float]]:
        """Return the rows of *dids*, and the daemon's time at each answer."""
        rows: list[Mapping[str, Any]] = []
        times = []
        for query in _build_queries(sorted(dids)):
            answer = self._get_json(f"/v1/datasets?{query}")
            times.append(answer["now"])
            rows += answer["datasets"]
        return rows, times

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Take an answer that cannot be read for that of something else than our daemon."""
        try:
            yield
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
            OSError,
            RecursionError,
        ) as wrong:
            reason = f"it does not answer as our daemon does: {reason_of(wrong)}"
            raise CatalogueGarbled(self.name, reason) from wrong

    def find(self, patterns: Collection[str]) -> frozenset[Did]:  # noqa: ARG002 - the promise has it
        """It cannot be searched.

        Raises:
            CatalogueError: always; the daemon knows only what jobs have asked for.
        """
        raise CatalogueUnreachable(self.name, "it knows only what jobs have asked for, so it lists nothing")

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def _get_json(self, path: str) -> Any:  # noqa: ANN401 - JSON
        until = time.monotonic() + _DEADLINE_SECONDS
        try:
            return self._http.exchange("GET", self._url + path, until, self._decode_response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CatalogueUnreachable(self.name, reason_of(error)) from None

    def _decode_response(self, response: RawResponse) -> Any:  # noqa: ANN401 - JSON
        if response.status == 200:
            return decode(response.content, _BOUNDS)
        try:
            why = sanitize(str(decode(response.content, _BOUNDS)["detail"]), 300)
        except (LookupError, TypeError, ValueError):
            why = "no reason given"
        text = f"{why} (status {response.status})"
        if response.status in (401, 403):
            raise CatalogueDenied(self.name, f"{text}; see submit.token_file")
        raise CatalogueUnreachable(self.name, text)


def _parse_reading(row: Mapping[str, Any], answered_at: datetime) -> Reading:
    """One row of GET /v1/datasets of *at*; a site whose fact is too old to tell counts as not looked at."""
    facts: Sequence[Mapping[str, Any]] = row["sites"]
    if not facts and row["unseen"]:
        return Unseen(str(row["unseen"]))
    if not facts and not row["demanded"]:
        return Unseen(NOT_IN_DEMAND)
    did = parse_did(str(row["did"]))
    told = [fact for fact in facts if fact["state"] in set(_REPLICA_STATES)]
    return Seen(
        as_of=min([from_unix(int(fact["as_of"])) for fact in told], default=answered_at),
        replicas=tuple(_parse_replica(did, fact) for fact in told),
        bytes_total=None if row["bytes"] is None else int(row["bytes"]),
        unreachable_sites=frozenset(Site(str(fact["site"])) for fact in facts if fact not in told),
        case_variants=frozenset(parse_did(str(other)) for other in row["clashes_with"]),
    )


def _parse_knowledge(
    rows: Iterable[Mapping[str, Any]], held_reasons: Mapping[Site, str], now: datetime
) -> DaemonKnowledge:
    """Read rows of GET /v1/datasets; an older daemon leaves some fields out."""
    sites: dict[Site, dict[Did, Fact]] = {}
    unseen: dict[Did, str] = {}
    sizes: dict[Did, int] = {}
    near: dict[Did, tuple[Did, ...]] = {}
    left_out: dict[Site, set[Did]] = {}
    clashes, demanded = set(), set()
    for row in rows:
        did = parse_did(str(row["did"]))
        for fact in row["sites"]:
            sites.setdefault(Site(str(fact["site"])), {})[did] = _parse_fact(fact)
        if row["demanded"]:
            demanded.add(did)
        if row["unseen"]:
            unseen[did] = str(row["unseen"])
        if row["bytes"] is not None:
            sizes[did] = int(row["bytes"])
        if others := row["clashes_with"]:
            clashes.add(tuple(sorted([did, *(parse_did(str(other)) for other in others)])))
        if alike := row.get("similar_names"):
            near[did] = tuple(parse_did(str(other)) for other in alike)
        for site in row.get("left_out_at", ()):
            left_out.setdefault(Site(str(site)), set()).add(did)
    known = {site: SiteFacts(now, facts) for site, facts in sites.items()}
    snapshot = Snapshot(known, unseen, tuple(sorted(clashes)), sizes)
    return DaemonKnowledge(
        now,
        snapshot,
        frozenset(demanded),
        dids_without_room=left_out,
        held_reasons=held_reasons,
        similar_names=near,
    )


def _parse_fact(row: Mapping[str, Any]) -> Fact:
    told = row.get("provenance") or {}
    fraction = row["fraction"]
    return Fact(
        DatasetState(row["state"]),
        from_unix(int(row["as_of"])),
        None if fraction is None else _parse_fraction(fraction),
        provenance_from_row([told]) if told else NO_PROVENANCE,
    )


def _parse_fraction(value: object) -> float:
    found = valid_number(value)
    if found is None or not 0 <= found <= 1:
        raise ValueError("a fraction is not a number from 0 to 1")
    return float(found)


def _parse_replica(did: Did, fact: Mapping[str, Any]) -> Replica:
    fraction = valid_number(fact["fraction"])
    state = _REPLICA_STATES[DatasetState(fact["state"])]
    if fact["fraction"] is not None and (fraction is None or not 0 <= fraction <= 1):
        raise ValueError(f"the fraction of {did} is not a number from 0 to 1")
    return Replica(did, Site(str(fact["site"])), state, None if fraction is None else float(fraction))


def _build_queries(dids: Iterable[Did]) -> Iterator[str]:
    """Questions for *dids*, none longer than the daemon takes."""
    query = ""
    for did in dids:
        part = f"did={quote(did, safe=':/')}"
        if query and len(query) + len(part) + 1 > _MAX_QUERY_BYTES:
            yield query
            query = ""
        query = f"{query}&{part}" if query else part
    if query:
        yield query


def _is_loopback(url: str) -> bool:
    """Is *url* on this very machine?"""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_token(file: Path) -> str:
    try:
        return read_secret(file.read_text("ascii"))
    except UnicodeDecodeError as error:
        raise ConfigError([f"submit.token_file {file}: it holds no token"]) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError([f"submit.token_file {file}: {why}"]) from error


def _build_ssl_context(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(file))
    except OSError as error:  # SSLError among them
        raise ConfigError([f"submit.ca_cert {file}: {error.strerror or error}"]) from error
