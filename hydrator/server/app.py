"""The HTTP answers: ads for hooks, readings for programs, one page for people.

Read-only by construction: the app is given a function that shows the present
:class:`View` and nothing that could change it. The webhook hands events on,
which say what to look at and nothing of what is there. DESIGN.md, "Over HTTP",
has the contract.
"""

import difflib
import gzip
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hydrator.daemon.event_queue import MAX_EVENT_BYTES, Drop
from hydrator.diagnostics.why.query import Telling
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.model import Did, Fact, Site, SiteAd, Snapshot, unix
from hydrator.domain.provenance import served_told
from hydrator.domain.redaction import printable
from hydrator.server.limits.hosts import Hosts
from hydrator.server.limits.rate import Buckets
from hydrator.server.pages.filters import selection
from hydrator.submit.nearest_names import with_near

from . import openapi
from .auth import Access, Grant, Role
from .dataset_query import asked_datasets, asked_dids
from .metrics import Traffic
from .middleware import Doorkeeper, Gate, may_read
from .pages import overview as page
from .pages import why as whypage
from .responses import (
    Refusal,
    accepts_gzip,
    body_reply,
    failed,
    json_reply,
    refused,
)
from .view import View

AS_OF_HEADER: Final = "X-DataLocality-AsOf"
MAX_NAME_COMPARED: Final = 200
STALE_IF_ERROR: Final = timedelta(days=1)


Exchange = Callable[[Iterable[Did]], Mapping[Did, Did]]
"""Gives by DID what jobs call it; see :meth:`hydrator.privacy.pseudonym_store.Register.exchange`."""


Question = Callable[[int, int | None, str | None], list[Telling]]
"""Says why a job is idle: cluster, proc or None, schedd or None; see :func:`hydrator.diagnostics.why.query.ask_job`."""

Posted = Callable[[bytes], Drop | None]
"""Takes in one event; see :meth:`hydrator.daemon.event_listener.Hearing.hear`. From several threads."""

EVENTS_PATH: Final = "/v1/events"


def app(
    view: Callable[[], View],
    registry: CollectorRegistry,
    *,
    max_age: timedelta,
    access: Access | None = None,
    exchange: Exchange | None = None,
    events: Posted | None = None,
    question: Question | None = None,
    buckets: Buckets | None = None,
    names: Buckets | None = None,
    behind_proxy: bool = False,
    hosts: Hosts | None = None,
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
        question: says why a job is idle; for tokens only, since it shows jobs and asks the whole pool.
        events: takes in what the webhook is told; it is closed without it, and without *access*.
        buckets: how often one address, and one token, may ask.
        names: how many names of private datasets one token may exchange.
        behind_proxy: clients' addresses stand in ``X-Forwarded-For``.
        hosts: the names that the server answers to; None for any name.
    """
    posted = events if access else None
    answers = _Answers(
        view,
        registry,
        max_age,
        shared=access is None,
        exchange=exchange,
        events=posted,
        names=names,
        question=question,
    )
    read = [Middleware(Doorkeeper, access=access, need=Role.READ, buckets=buckets)]
    submit = [Middleware(Doorkeeper, access=access, need=Role.SUBMIT, buckets=buckets)]
    ad = [Middleware(Doorkeeper, access=access, need=Role.SITE, buckets=buckets)]
    tell = [Middleware(Doorkeeper, access=access, need=Role.EVENT, buckets=buckets)]
    routes = [
        Route("/", answers.page, middleware=read),
        Route("/why", answers.why, middleware=read),
        Route("/v1/sites", answers.sites, middleware=read),
        # a site's name may contain "/", which arrives decoded
        Route("/v1/sites/{site:path}/ad", answers.ad, middleware=ad),
        Route("/v1/datasets", answers.datasets, middleware=read),
        Route(
            "/v1/private",
            answers.private,
            middleware=submit,
        ),
        Route(EVENTS_PATH, answers.events, methods=["POST"], middleware=tell),
        Route("/metrics", answers.metrics, middleware=read),
        # open to all: orchestrators ask without credentials, and learn one word
        Route("/v1/openapi.json", answers.openapi),
        Route("/healthz", answers.healthz),
        Route("/readyz", answers.readyz),
    ]
    asgi = Starlette(
        routes=routes,
        middleware=[
            Middleware(
                Gate,
                traffic=Traffic(registry, routes),
                buckets=buckets,
                behind_proxy=behind_proxy,
                takes={EVENTS_PATH: MAX_EVENT_BYTES} if posted else {},
                hosts=hosts,
            )
        ],
        exception_handlers={HTTPException: refused, Exception: failed},
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
        events: Posted | None,
        question: Question | None,
        names: Buckets | None,
    ) -> None:
        self._view = view
        self._events = events
        self._exchange = None if shared else exchange
        self._question = None if shared else question
        self._asking = threading.Lock()
        self._names = names
        self._counting = threading.Lock()
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
            raise _no_ad(view, request.path_params["site"], name_others=may_read(request.scope))
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
        if accepts_gzip(request.headers):
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
        return json_reply(request, {"version": 1, "now": unix(view.now), "sites": rows})

    def datasets(self, request: Request) -> Response:
        """Say where the datasets are that the query names; else all demanded ones, a page at a time."""
        asked = asked_datasets(request.scope["query_string"])
        view = self._view()
        if view.snapshot is None:
            raise Refusal(503, "not ready", view.ready or "no catalogue has been read yet")
        demanded = view.demand.dids if view.demand else frozenset()
        dids, following = asked.page(demanded)
        rows = _dataset_rows(view, view.snapshot, dids, named=bool(asked.dids))
        answer = {"version": 1, "now": unix(view.now), "datasets": rows, "next": following}
        return json_reply(request, answer)

    def private(self, request: Request) -> Response:
        """What jobs call the datasets asked about: private ones by opaque names, others as they are."""
        if self._exchange is None:
            raise Refusal(
                403, "no tokens", "names are exchanged for tokens only: set publish.http.tokens_file"
            )
        asked = asked_dids(request.scope["query_string"])
        if not asked:
            raise Refusal(400, "no DID", "say which: did=scope:name")
        self._count_names(request, len(asked))
        names = self._exchange(asked)
        rows = [{"did": did, "name": names[did]} for did in sorted(asked)]
        return json_reply(request, {"version": 1, "datasets": rows})

    def _count_names(self, request: Request, number: int) -> None:
        """Refuse a token that exchanges more names than submissions do: it tries which names are in use."""
        if self._names is None:
            return
        grant: Grant = request.scope["grant"]
        with self._counting:
            wait = self._names.wait(grant.digest, number)
        if wait:
            seconds = str(math.ceil(wait))
            detail = f"too many names were exchanged with this token: ask again in {seconds} s"
            raise Refusal(429, "too many names", detail, headers={"Retry-After": seconds})

    async def events(self, request: Request) -> Response:
        """An event: what it speaks of is looked at soon. Nobody is told whether anybody wants that."""
        if self._events is None:
            raise Refusal(403, "no events", "no events are taken here: set events.webhook and a tokens_file")
        drop = await run_in_threadpool(self._events, await request.body())
        if drop is Drop.GARBLED:
            raise Refusal(400, "no event", 'send one JSON object: {"event_type": "close", "payload": {…}}')
        if drop is Drop.TOO_MANY:
            wait = {"Retry-After": "1"}
            raise Refusal(429, "too many events", "more events come than are read", headers=wait)
        return json_reply(request, {"version": 1}, 202)

    def metrics(self, request: Request) -> Response:
        """The registry, in the form the scraper asks for."""
        encode, media_type = choose_encoder(request.headers.get("Accept", ""))
        return body_reply(request, encode(self._registry), media_type)

    async def openapi(self, request: Request) -> Response:
        """What can be asked here, for programs."""
        return json_reply(request, openapi.document())

    async def healthz(self, request: Request) -> Response:
        """The process answers and its cycles do not hang; nothing is said of catalogues or pool."""
        why = self._view().stuck
        if why is not None:
            raise Refusal(503, "hung", why, {"status": "hung"})
        return json_reply(request, {"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Ready once a complete state was loaded or read."""
        why = self._view().ready
        if why is not None:
            raise Refusal(503, "not ready", why, {"ready": False})
        return json_reply(request, {"ready": True})

    def page(self, request: Request) -> Response:
        """The page for people."""
        chosen = selection(request.scope["query_string"])
        return _html(request, page.render(self._view(), chosen, jobs=self._question is not None))

    def why(self, request: Request) -> Response:
        """Why a job is idle, for people; one question at a time, since each asks the whole pool."""
        if self._question is None:
            raise Refusal(
                403,
                "no tokens",
                "jobs are explained for tokens only (publish.http.tokens_file); hydrator why",
            )
        asked = whypage.job_asked(request.scope["query_string"])
        told, status = self._explained(asked, self._question) if asked else ([], 200)
        return _html(request, whypage.render(asked, told, now=self._view().now), status)

    def _explained(self, asked: whypage.JobAsked, question: Question) -> tuple[list[Telling] | str, int]:
        if asked.numbers is None:
            return whypage.BAD_JOB, 400
        if not self._asking.acquire(blocking=False):
            detail = "another job is being asked about: ask again in 5 s"
            raise Refusal(429, "too many requests", detail, headers={"Retry-After": "5"})
        try:
            return question(*asked.numbers, asked.schedd or None), 200
        except ConfigError as error:
            return "; ".join(error.problems), 400
        except PoolError as error:
            return str(error), 404 if error.daemon.startswith("job ") else 502
        finally:
            self._asking.release()


def _html(request: Request, text: str, status: int = 200) -> Response:
    return body_reply(request, printable(text, "\n").encode(), "text/html; charset=utf-8", status)


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
        "held": view.held.get(ad.site),
        "ad": f"/v1/sites/{quote(ad.site, safe='')}/ad",
    }


def _dataset_rows(view: View, snapshot: Snapshot, dids: list[Did], *, named: bool) -> list[dict[str, object]]:
    """The rows of *dids*; where the question *named* them, with the names near those that exist nowhere."""
    beliefs = view.beliefs
    near = with_near(beliefs, dids).near if beliefs and named else {}
    demanded = view.demand.dids if view.demand else frozenset()
    jobs = page.jobs_by_did(view.demand)
    clashes = {did: clash for clash in snapshot.clashes for did in clash} | dict(snapshot.misspelt)
    return [
        {
            "did": did,
            "demanded": did in demanded,
            "jobs": jobs.get(did, 0),
            "bytes": snapshot.bytes_total.get(did),
            "unseen": snapshot.unseen.get(did),
            "clashes_with": [other for other in clashes.get(did, ()) if other != did],
            "left_out_at": sorted(site for site, dids in view.left_out.items() if did in dids),
            "near": list(near.get(did, ())),
            "sites": [
                _fact_row(site, facts.facts[did], view.now)
                for site, facts in sorted(snapshot.sites.items())
                if did in facts.facts
            ],
        }
        for did in dids
    ]


def _fact_row(site: Site, fact: Fact, now: datetime) -> dict[str, object]:
    return {
        "site": site,
        "state": fact.state.value,
        "fraction": fact.fraction,
        "as_of": unix(fact.as_of),
        "age_seconds": max(0, unix(now) - unix(fact.as_of)),
        "told": served_told(fact.told),
    }


def _matches(if_none_match: str | None, etag: str) -> bool:
    """Weak comparison [1]: a proxy that compresses may have weakened our ETag to ``W/"…"``.

    [1] RFC 9110, 13.1.2 If-None-Match.
    """
    if if_none_match is None:
        return False
    given = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in given or given == ["*"]
