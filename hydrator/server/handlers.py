"""Handlers of the HTTP routes for hooks and programs, ads and JSON, and the queries that these take.

Async handlers run in the event loop; the other handlers run in threads.
"""

import difflib
import gzip
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from urllib.parse import unquote
from zlib import crc32

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from hydrator.diagnostics.why.render import RenderedAnswer
from hydrator.domain.ads.dataset_sets import can_be_key
from hydrator.domain.errors import BadDid, CatalogueError
from hydrator.domain.model import DaemonKnowledge, Did, Site, SiteAd, Unseen, parse_did, to_unix
from hydrator.domain.ports import ClusterJobs
from hydrator.domain.text import group_pairs
from hydrator.reconcile.state import DatasetChange
from hydrator.server.limits import QuestionQueue
from hydrator.server.middleware import can_see_all_sites, client_of
from hydrator.server.responses import HttpError, accepts_gzip, bytes_response, json_response
from hydrator.server.view import ServerState, view_datasets, view_sets, view_sites

AS_OF_HEADER: Final = "X-DataLocality-AsOf"
UNTIL_HEADER: Final = "X-DataLocality-OpenUntil"
MAX_AGE: Final = timedelta(seconds=10)
"""HTTP caches may serve an ad this long without a new request: far less than the period of a hook."""
STALE_IF_ERROR: Final = timedelta(days=1)

StateGetter = Callable[[], ServerState]
"""Returns the present state; called once a request, from several threads."""

DatasetFinder = Callable[[Collection[str]], Collection[Did]]
"""Searches the catalogues by patterns: :func:`hydrator.daemon.http_frontend.find_datasets`."""


ChangeReader = Callable[[Site], Sequence[DatasetChange]]
"""Returns the last changes of a site's ad, newest first."""
JobExplainer = Callable[[int, int | None, str | None], list[RenderedAnswer]]
"""Explains a job of cluster, proc or None, schedd or None: :func:`hydrator.diagnostics.why.query.ask_job`."""
ClusterReader = Callable[[int, str | None], Mapping[str, ClusterJobs | Unseen]]
"""Reads the jobs of a cluster, at all schedds or at one; returns schedds with jobs and silent ones."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The functions that the server gets its answers from.

    Attributes:
        get_state: returns the present state.
        get_version: returns a value whose text changes with the content of the pages. It must be cheap.
        explain_job: explains why a job is idle, to clients with a token; None for no such page.
        read_changes: returns the last changes of a site's ad, newest first, each with its time.
        read_cluster: reads the jobs of a cluster, for their page; None if the daemon asks no schedds.
        find_datasets: searches the catalogues by patterns.
    """

    get_state: StateGetter
    get_version: Callable[[], object] = lambda: None
    explain_job: JobExplainer | None = None
    read_changes: ChangeReader = lambda _site: ()
    read_cluster: ClusterReader | None = None
    find_datasets: DatasetFinder = lambda _patterns: ()


MAX_NAME_COMPARED: Final = 200
"""Largest length, in characters, of a name for which the server looks for similar sites."""


def parse_dids(query: bytes) -> frozenset[Did]:
    """Parse the names of ``did=…&did=…``, one at least."""
    texts = _list_values(query, "did")
    if not texts:
        raise HttpError(400, "bad query", "name the datasets: did=scope:name&did=scope:name")
    try:
        return frozenset(map(parse_did, texts))
    except BadDid as exc:
        raise HttpError(400, "bad DID", str(exc)) from exc


def parse_set_keys(query: bytes) -> frozenset[str]:
    """Parse the keys of ``key=…&key=…``."""
    keys = _list_values(query, "key")
    for text in keys:
        if not can_be_key(text):
            detail = f"key is the DataLocalityKey of a job or a dataset (scope:name), not {text[:100]!r}"
            raise HttpError(400, "bad key", detail)
    return frozenset(keys)


def parse_patterns(query: bytes) -> frozenset[str]:
    """Parse the patterns of ``match=…&match=…``."""
    patterns = _list_values(query, "match")
    for text in patterns:
        if not text or not text.isprintable():
            raise HttpError(400, "bad query", f"use match=PATTERN, not {text[:100]!r}")
    return frozenset(patterns)


def _list_values(query: bytes, parameter: str) -> list[str]:
    """Return the values of *parameter*, the only one that *query* may have.

    A ``+`` is not a space: a DID may contain ``+``, but no space.
    """
    values = []
    for part in filter(None, query.decode("latin-1").split("&")):
        name, _, text = map(unquote, part.partition("="))
        if name != parameter:
            raise HttpError(400, "bad query", f"unknown parameter {name[:100]!r}; use {parameter}=…")
        values.append(text)
    return values


def find_similar_sites(name: str, sites: Collection[Site], limit: int = 5) -> list[Site]:
    """Return up to *limit* sites whose names look like *name*, without regard to letter case."""
    if len(name) > MAX_NAME_COMPARED:
        return []
    sites_by_lower = group_pairs((site.lower(), site) for site in sorted(sites))
    matches = difflib.get_close_matches(name.lower(), list(sites_by_lower), n=limit, cutoff=0.5)
    return [site for lower in matches for site in sites_by_lower[lower]][:limit]


class AdRoute:
    """The route of a site's ad, as the hook reads the ad. Each ad is compressed once for all requests.

    Args:
        get_state: returns the present state.
        is_public: True if shared caches may store ads, since the server requires no token.
    """

    def __init__(self, get_state: StateGetter, *, is_public: bool) -> None:
        self._get_state = get_state
        self._cache_control = (
            f"{'public' if is_public else 'private'}, max-age={int(MAX_AGE.total_seconds())}, "
            f"stale-if-error={int(STALE_IF_ERROR.total_seconds())}"
        )
        self._compressed_ads: dict[Site, tuple[SiteAd, bytes]] = {}  # only the event loop uses this dict

    async def get(self, request: Request) -> Response:
        """Return one site's ad, or a 304; headers have the ad's generation (ETag) and the facts' time."""
        state = self._get_state()
        site = Site(request.path_params["site"])
        ad = state.ads.get(site)
        if ad is None:
            raise _ad_not_found(state, site, can_see_all_sites=can_see_all_sites(request.scope))
        until = ad.open_until
        etag = f'"{ad.generation}-{crc32(repr(ad.openings).encode()):08x}"'
        headers = {
            "ETag": etag,
            AS_OF_HEADER: str(to_unix(ad.as_of)),
            **({UNTIL_HEADER: str(to_unix(until))} if until else {}),
            "Cache-Control": self._cache_control,
            "Vary": "Accept-Encoding",
        }
        if _etag_matches(request.headers.get("If-None-Match"), etag):
            return Response(status_code=304, headers=headers)
        if accepts_gzip(request.headers):
            headers["Content-Encoding"] = "gzip"
            return Response(self._compress(ad, state), headers=headers, media_type="text/plain")
        return Response(ad.text, headers=headers, media_type="text/plain")

    def _compress(self, ad: SiteAd, state: ServerState) -> bytes:
        """Return *ad*, gzipped; keep it for the next request, and forget sites without an ad."""
        last_ad, body = self._compressed_ads.get(ad.site, (None, b""))
        if last_ad != ad:
            for site in self._compressed_ads.keys() - state.ads.keys():
                del self._compressed_ads[site]
            body = gzip.compress(ad.text.encode(), mtime=0)
            self._compressed_ads[ad.site] = ad, body
        return body


def _ad_not_found(state: ServerState, site: Site, *, can_see_all_sites: bool) -> HttpError:
    """Return a 404 error. Before the first complete state, return a 503 error: then the hook asks again."""
    if state.not_ready_reason is not None:
        return HttpError(503, "not ready", state.not_ready_reason)
    similar = find_similar_sites(site, state.ads.keys()) if can_see_all_sites else []
    hint = f"did you mean {', '.join(map(repr, similar))}?" if similar else "GET /v1/sites lists all sites"
    detail = f"no ad for site {site[:MAX_NAME_COMPARED]!r}; {hint}"
    return HttpError(404, "unknown site", detail)


def _etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Return whether *if_none_match* has *etag*, with or without ``W/`` (weak comparison [1]).

    A proxy that compresses answers may have changed the ETag to ``W/"…"``.

    [1] RFC 9110, 13.1.2 If-None-Match.
    """
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or tags == ["*"]


@dataclass(eq=False)
class StateRoutes:
    """Routes that show the state of the server to programs.

    Attributes:
        sources: the functions that the routes get their answers from.
        registry: the metrics to expose.
        queue: the searches that run or wait.
    """

    sources: Sources
    registry: CollectorRegistry
    queue: QuestionQueue = field(
        default_factory=lambda: QuestionQueue("the daemon searches the catalogues for others")
    )

    def sites(self, request: Request) -> Response:
        """List every site that has an ad."""
        state = self.sources.get_state()
        rows = [site for site in view_sites(state) if site.generation is not None]
        return _answer(request, state, sites=rows)

    def datasets(self, request: Request) -> Response:
        """List the datasets in `did=…&did=…`."""
        dids = parse_dids(request.scope["query_string"])
        state = self.sources.get_state()
        return _answer(request, state, datasets=view_datasets(state, _knowledge_of(state), sorted(dids)))

    def sets(self, request: Request) -> Response:
        """List the sets of datasets that queued jobs need; with `key=…&key=…`, only these sets."""
        keys = parse_set_keys(request.scope["query_string"])
        state = self.sources.get_state()
        knowledge = _knowledge_of(state)
        reason = knowledge.no_openings_reason
        wrong = {key: of for key, of in knowledge.lists_of_wrong_keys.items() if not keys or key in keys}
        rows = view_sets(state, keys)
        return _answer(request, state, openings_none=reason, lists_of_wrong_keys=wrong, sets=rows)

    def search(self, request: Request) -> Response:
        """List the datasets in the catalogues that match `match=…&match=…` (`*`, `?`, `[…]`)."""
        patterns = parse_patterns(request.scope["query_string"])
        try:
            names = self.queue.ask(client_of(request.scope), lambda: self.sources.find_datasets(patterns))
        except CatalogueError as error:
            raise HttpError(502, "search failed", f"catalogue {error.catalogue}: {error.reason}") from error
        return _answer(request, self.sources.get_state(), names=sorted(names))

    def metrics(self, request: Request) -> Response:
        """Return the registry in the format that the scraper asks for."""
        encode, media_type = choose_encoder(request.headers.get("Accept", ""))
        return bytes_response(request, encode(self.registry), media_type)

    async def healthz(self, request: Request) -> Response:
        """Return 200 unless the daemon's cycles hang; also return 200 while catalogues or the pool fail."""
        reason = self.sources.get_state().hang_reason
        if reason is not None:
            raise HttpError(503, "hung", reason)
        return json_response(request, {"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Return 200 once the daemon loaded a complete state or read one from the catalogues."""
        reason = self.sources.get_state().not_ready_reason
        if reason is not None:
            raise HttpError(503, "not ready", reason)
        return json_response(request, {"ready": True})


def _answer(request: Request, state: ServerState, **parts: object) -> Response:
    """Return an answer of the API: its version, the time, and entries of the view."""
    return json_response(request, {"version": 1, "now": to_unix(state.now), **parts})


def _knowledge_of(state: ServerState) -> DaemonKnowledge:
    """Return the facts of the last cycle; raise a 503 error before the first."""
    if state.knowledge is None:
        raise HttpError(503, "not ready", state.not_ready_reason or "no catalogue has been read yet")
    return state.knowledge
