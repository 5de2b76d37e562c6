"""The HTTP answers: ads for hooks, readings for programs, one page for people.

Read-only by construction: the app is given a function that shows the present
:class:`View` and nothing that could change it. DESIGN.md, "Over HTTP", has
the contract.
"""

import difflib
import gzip
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote, unquote
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import page
from .access import Access, Grant, Refused, Role
from .errors import BadDid
from .model import Demand, Did, Fact, Site, SiteAd, Snapshot, parse_did, unix

AS_OF_HEADER: Final = "X-DataLocality-AsOf"
MAX_URL_BYTES: Final = 8192
MAX_NAME_COMPARED: Final = 200
STALE_IF_ERROR: Final = timedelta(days=1)
RETRY_AFTER: Final = "30"
LATENCY_BUCKETS_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5)

_CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"style-src '{page.STYLE_HASH}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_SECURITY_HEADERS: Final = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


_REFUSAL_HEADERS: Final[Mapping[int, dict[str, str]]] = {
    401: {"WWW-Authenticate": 'Bearer realm="classad-hydrator", Basic realm="classad-hydrator"'},
    503: {"Retry-After": RETRY_AFTER},
}


Exchange = Callable[[Iterable[Did]], Mapping[Did, Did]]
"""Gives by DID what jobs call it; see :meth:`hydrator.register.Register.exchange`."""


@dataclass(frozen=True, slots=True)
class View:
    """What is answered from, at one moment.

    ``ads`` are served to hooks and ``heard`` is when each was last put there
    (a site without one counts as heard *now*: what is served live cannot
    expire). ``ready`` is None, or why there is no complete state yet.
    """

    ads: Mapping[Site, SiteAd]
    snapshot: Snapshot | None
    demand: Demand | None
    ready: str | None
    now: datetime
    heard: Mapping[Site, datetime] = field(default_factory=dict)


class Refusal(HTTPException):
    """An answer other than 200: what is wrong in a word, and in a sentence; *more* joins the JSON."""

    def __init__(
        self, status: int, error: str, detail: str, more: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(status, detail, _REFUSAL_HEADERS.get(status))
        self.error = error
        self.more = more or {}


def app(
    view: Callable[[], View],
    registry: CollectorRegistry,
    *,
    max_age: timedelta,
    access: Access | None = None,
    exchange: Exchange | None = None,
) -> Starlette:
    """Build the ASGI app that answers from *view*.

    Args:
        view: shows the present state; called once a request, from several threads.
        registry: whose metrics ``/metrics`` shows; requests are counted there
            too, and counted on when another app is built on it.
        max_age: how long caches between us and the hooks may keep an ad.
        access: decides who may ask what; everybody may ask everything without it,
            but for the names of private datasets, which nobody gets then.
        exchange: gives the names of private datasets.
    """
    answers = _Answers(view, registry, max_age, shared=access is None, exchange=exchange)
    read = [Middleware(_Doorkeeper, access=access, need=Role.READ)]
    ad = [Middleware(_Doorkeeper, access=access, need=Role.SITE)]
    routes = [
        Route("/", answers.page, middleware=read),
        Route("/v1/sites", answers.sites, middleware=read),
        # a site's name may contain "/", which arrives decoded
        Route("/v1/sites/{site:path}/ad", answers.ad, middleware=ad),
        Route("/v1/datasets", answers.datasets, middleware=read),
        Route(
            "/v1/private",
            answers.private,
            middleware=[Middleware(_Doorkeeper, access=access, need=Role.SUBMIT)],
        ),
        Route("/metrics", answers.metrics, middleware=read),
        # open to all: orchestrators ask without credentials, and learn one word
        Route("/healthz", answers.healthz),
        Route("/readyz", answers.readyz),
    ]
    asgi = Starlette(
        routes=routes,
        middleware=[Middleware(_Gate, metrics=_Metrics(registry, routes))],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    asgi.router.redirect_slashes = False  # a redirect would trust the Host header
    return asgi


@dataclass(frozen=True, slots=True)
class _Rendered:
    """One ad as bytes, plain and gzipped, made once for all requests."""

    ad: SiteAd
    plain: bytes
    zipped: bytes


class _Answers:
    """The endpoints. Async ones run in the event loop, the others in its threads."""

    def __init__(
        self,
        view: Callable[[], View],
        registry: CollectorRegistry,
        max_age: timedelta,
        *,
        shared: bool,
        exchange: Exchange | None,
    ) -> None:
        self._view = view
        self._exchange = None if shared else exchange
        self._registry = registry
        self._cache_control = (
            f"{'public' if shared else 'private'}, max-age={int(max_age.total_seconds())}, "
            f"stale-if-error={int(STALE_IF_ERROR.total_seconds())}"
        )
        self._rendered: dict[Site, _Rendered] = {}  # touched by the event loop only

    async def ad(self, request: Request) -> Response:
        """What the hook reads; the ETag is the generation, the age travels beside it on 304 too."""
        view = self._view()
        ad = view.ads.get(Site(request.path_params["site"]))
        if ad is None:
            raise _no_ad(view, request.path_params["site"], name_others=_may_read(request.scope))
        etag = f'"{ad.generation}"'
        headers = {
            "ETag": etag,
            AS_OF_HEADER: str(unix(ad.as_of)),
            "Cache-Control": self._cache_control,
            "Vary": "Accept-Encoding",
        }
        if _matches(request.headers.get("If-None-Match"), etag):
            return Response(status_code=304, headers=headers)
        rendered = self._render(ad, view)
        body = rendered.plain
        if _accepts_gzip(request.headers):
            headers["Content-Encoding"] = "gzip"
            body = rendered.zipped
        return Response(body, headers=headers, media_type="text/plain")

    def _render(self, ad: SiteAd, view: View) -> _Rendered:
        """The bytes of *ad*, kept until its generation or age moves or its site is gone."""
        kept = self._rendered.get(ad.site)
        if kept is not None and kept.ad == ad:
            return kept
        for gone in self._rendered.keys() - view.ads.keys():
            del self._rendered[gone]
        plain = ad.text.encode()
        made = _Rendered(ad, plain, gzip.compress(plain, mtime=0))
        self._rendered[ad.site] = made
        return made

    def sites(self, request: Request) -> Response:
        """Every site with an ad here: its generation, its age, when we last put it there."""
        view = self._view()
        rows = [_site_row(view, ad) for _, ad in sorted(view.ads.items())]
        return _json(request, {"version": 1, "now": unix(view.now), "sites": rows})

    def datasets(self, request: Request) -> Response:
        """Where the datasets asked about are; all demanded ones when none is named."""
        asked = _asked_dids(request.scope["query_string"])
        view = self._view()
        if view.snapshot is None:
            raise Refusal(503, "not ready", view.ready or "no catalogue has been read yet")
        demanded = view.demand.dids if view.demand else frozenset()
        rows = _dataset_rows(view, view.snapshot, sorted(asked or demanded))
        return _json(request, {"version": 1, "now": unix(view.now), "datasets": rows})

    def private(self, request: Request) -> Response:
        """What jobs call the datasets asked about: private ones by opaque names, others as they are."""
        if self._exchange is None:
            raise Refusal(
                403, "no tokens", "names are exchanged for tokens only: set publish.http.tokens_file"
            )
        asked = _asked_dids(request.scope["query_string"])
        if not asked:
            raise Refusal(400, "no DID", "say which: did=scope:name")
        names = self._exchange(asked)
        rows = [{"did": did, "name": names[did]} for did in sorted(asked)]
        return _json(request, {"version": 1, "datasets": rows})

    def metrics(self, request: Request) -> Response:
        """The registry, in the form the scraper asks for."""
        encode, media_type = choose_encoder(request.headers.get("Accept", ""))
        return _body(request, encode(self._registry), media_type)

    async def healthz(self, request: Request) -> Response:
        """The process answers; nothing is said of catalogues or pool."""
        return _json(request, {"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Ready once a complete state was loaded or read."""
        why = self._view().ready
        if why is not None:
            raise Refusal(503, "not ready", why, {"ready": False})
        return _json(request, {"ready": True})

    def page(self, request: Request) -> Response:
        """The page for people."""
        view = self._view()
        html = page.render(view.ads, view.snapshot, view.demand, ready=view.ready, now=view.now)
        return _body(request, html.encode(), "text/html; charset=utf-8")


def _no_ad(view: View, site: str, *, name_others: bool) -> Refusal:
    """Before the first complete state an unknown site is no fact yet, so hooks are told to wait."""
    if view.ready is not None:
        return Refusal(503, "not ready", view.ready, {"ready": False})
    near = _nearby(site, view.ads) if name_others else []
    hint = f"did you mean {', '.join(map(repr, near))}?" if near else "GET /v1/sites lists those known"
    more = {"nearby": near}
    return Refusal(404, "unknown site", f"no ad for site {site[:MAX_NAME_COMPARED]!r}; {hint}", more)


def _nearby(name: str, known: Mapping[Site, SiteAd], most: int = 5) -> list[str]:
    """Up to *most* known sites whose names look like *name*, letter case aside."""
    if len(name) > MAX_NAME_COMPARED:
        return []
    by_lower: dict[str, list[str]] = {}
    for site in sorted(known):
        by_lower.setdefault(site.lower(), []).append(site)
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=most, cutoff=0.5)
    return [site for lower in close for site in by_lower[lower]][:most]


def _site_row(view: View, ad: SiteAd) -> dict[str, object]:
    facts = view.snapshot.sites.get(ad.site) if view.snapshot else None
    return {
        "site": ad.site,
        "generation": ad.generation,
        "as_of": unix(ad.as_of),
        "age_seconds": max(0, unix(view.now) - unix(ad.as_of)),
        "heard": view.heard.get(ad.site, view.now).timestamp(),
        "known_datasets": len(facts.facts) if facts else None,
        "ad": f"/v1/sites/{quote(ad.site, safe='')}/ad",
    }


def _dataset_rows(view: View, snapshot: Snapshot, dids: list[Did]) -> list[dict[str, object]]:
    demanded = view.demand.dids if view.demand else frozenset()
    jobs = _jobs_by_did(view.demand)
    clashes = {did: clash for clash in snapshot.clashes for did in clash}
    return [
        {
            "did": did,
            "demanded": did in demanded,
            "jobs": jobs.get(did, 0),
            "bytes": snapshot.bytes_total.get(did),
            "unseen": snapshot.unseen.get(did),
            "clashes_with": [other for other in clashes.get(did, ()) if other != did],
            "sites": [
                _fact_row(site, facts.facts[did], view.now)
                for site, facts in sorted(snapshot.sites.items())
                if did in facts.facts
            ],
        }
        for did in dids
    ]


def _jobs_by_did(demand: Demand | None) -> Mapping[Did, int]:
    jobs: dict[Did, int] = {}
    for want in demand.wants if demand else ():
        for did in want.dids:
            jobs[did] = jobs.get(did, 0) + want.jobs
    return jobs


def _fact_row(site: Site, fact: Fact, now: datetime) -> dict[str, object]:
    return {
        "site": site,
        "state": fact.state.value,
        "fraction": fact.fraction,
        "as_of": unix(fact.as_of),
        "age_seconds": max(0, unix(now) - unix(fact.as_of)),
    }


def _asked_dids(query: bytes) -> frozenset[Did]:
    """The DIDs of ``did=…&did=…``. ``+`` stands for itself: DIDs may contain it and never a space."""
    asked = set()
    for part in query.decode("latin-1").split("&"):
        name, _, text = part.partition("=")
        if not part:
            continue
        if name != "did":
            raise Refusal(400, "bad query", f"unknown parameter {unquote(name)[:100]!r}; use did=scope:name")
        try:
            asked.add(parse_did(unquote(text)))
        except BadDid as exc:
            raise Refusal(400, "bad DID", str(exc)) from exc
    return frozenset(asked)


def _matches(if_none_match: str | None, etag: str) -> bool:
    """Weak comparison [1]: a proxy that compresses may have weakened our ETag to ``W/"…"``.

    [1] RFC 9110, 13.1.2 If-None-Match.
    """
    if if_none_match is None:
        return False
    given = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in given or given == ["*"]


def _accepts_gzip(headers: Headers) -> bool:
    """Whether Accept-Encoding names gzip (or ``*``) without forbidding it by ``q=0``."""
    wanted: dict[str, bool] = {}
    for part in headers.get("Accept-Encoding", "").lower().split(","):
        coding, _, parameters = part.partition(";")
        forbidden = re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters)
        wanted[coding.strip()] = forbidden is None
    return wanted.get("gzip", wanted.get("*", False))


def _json(request: Request, answer: Mapping[str, object], status: int = 200) -> Response:
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":")) + "\n"
    return _body(request, text.encode("utf-8", "replace"), "application/json", status)


def _body(request: Request, body: bytes, media_type: str, status: int = 200) -> Response:
    """An answer made for this request alone, gzipped where that is wanted and pays."""
    headers = {"Content-Type": media_type, "Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(body) >= 1024 and _accepts_gzip(request.headers):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=5, mtime=0)
    return Response(body, status, headers)


async def _refused(request: Request, exc: Exception) -> Response:
    """Every refusal, ours and the router's, as JSON."""
    if isinstance(exc, Refusal):
        answer = _json(request, {"error": exc.error, "detail": exc.detail, **exc.more}, exc.status_code)
        answer.headers.update(exc.headers or {})
        return answer
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    if status == 405:
        detail = "this server only answers: use GET or HEAD"
        answer = _json(request, {"error": "method not allowed", "detail": detail}, status)
        answer.headers["Allow"] = "GET, HEAD"
        return answer
    detail = "nothing is here; try /, /v1/sites, /v1/sites/{site}/ad or /v1/datasets?did=scope:name"
    return _json(request, {"error": "not found", "detail": detail}, status)


async def _failed(request: Request, _: Exception) -> Response:
    """A bug: Starlette passes the exception on to the server's log, the client gets one sentence."""
    detail = "the daemon failed to answer this; its log says why"
    return _json(request, {"error": "internal error", "detail": detail}, 500)


_Instruments = tuple[Counter, Histogram]
_instruments: WeakKeyDictionary[CollectorRegistry, _Instruments] = WeakKeyDictionary()
"""By registry, what counts there: an app built anew, after a reload, counts on."""


def _instruments_of(registry: CollectorRegistry) -> _Instruments:
    if registry not in _instruments:
        requests = Counter(
            "hydrator_http_requests", "HTTP requests answered.", ["route", "status"], registry=registry
        )
        seconds = Histogram(
            "hydrator_http_request_duration_seconds",
            "Time to answer an HTTP request.",
            ["route"],
            buckets=LATENCY_BUCKETS_SECONDS,
            registry=registry,
        )
        _instruments[registry] = (requests, seconds)
    return _instruments[registry]


class _Metrics:
    """How many answers of which kind, and how long they took; one series a route, never a raw path."""

    def __init__(self, registry: CollectorRegistry, routes: list[Route]) -> None:
        self._routes: dict[object, str] = {
            route.endpoint: route.path.replace(":path", "") for route in routes
        }
        self._requests, self._seconds = _instruments_of(registry)
        for route in self._routes.values():
            self._requests.labels(route, "200")
            self._seconds.labels(route)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        route = self._routes.get(scope.get("endpoint"), "other")
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)


class _Gate:
    """Around every request: limits, security headers, count and time."""

    def __init__(self, inner: ASGIApp, metrics: _Metrics) -> None:
        self._inner = inner
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(_SECURITY_HEADERS)
            await send(message)

        refusal = _beyond_limits(scope)
        try:
            if refusal is None:
                await self._inner(scope, receive, sending)
            else:
                answer = await _refused(Request(scope), refusal)
                await answer(scope, receive, sending)
        finally:
            self._metrics.count(scope, status, time.perf_counter() - began)


class _Doorkeeper:
    """Before one route: whoever has no token that allows it is refused."""

    def __init__(self, inner: ASGIApp, access: Access | None, need: Role) -> None:
        self._inner = inner
        self._access = access
        self._need = need

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._access is not None:
            site = scope["path_params"].get("site")
            try:
                scope["grant"] = self._access.check(
                    Headers(scope=scope).get("Authorization"), self._need, site
                )
            except Refused as refused:
                raise Refusal(refused.status, _REFUSED[refused.status], str(refused)) from refused
        await self._inner(scope, receive, send)


_REFUSED: Final = {401: "not authenticated", 403: "not authorized", 503: "not ready"}


def _may_read(scope: Scope) -> bool:
    """Whether the names of other sites are for whoever asks."""
    grant: Grant | None = scope.get("grant")
    return grant is None or grant.role is Role.READ


def _beyond_limits(scope: Scope) -> Refusal | None:
    """Why this request is not looked at: a URL too long, or a body, which nothing here reads."""
    length = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"]) + 1
    if length > MAX_URL_BYTES:
        detail = f"the URL has {length} bytes, {MAX_URL_BYTES} are allowed: ask for fewer datasets at a time"
        return Refusal(414, "URL too long", detail)
    headers = Headers(scope=scope)
    if headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in headers:
        return Refusal(413, "body not allowed", "this server only answers: send no body")
    return None
