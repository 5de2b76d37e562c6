"""The HTTP answers: ads for hooks, readings for programs, one page for people.

Read-only by construction: the app is given a function that shows the present
:class:`ServerState` and nothing that could change it. The webhook hands events on,
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

from hydrator.diagnostics.why.render import RenderedAnswer
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.events import MAX_EVENT_BYTES, RejectReason
from hydrator.domain.model import Did, Fact, Site, SiteAd, Snapshot, to_unix
from hydrator.domain.provenance import public_provenance
from hydrator.domain.redaction import escape_unprintable
from hydrator.server.limits.hosts import AllowedHosts
from hydrator.server.limits.rate import RateLimiter
from hydrator.server.pages.filters import parse_selection
from hydrator.submit.nearest_names import add_similar_names

from . import openapi
from .auth import Grant, Role, TokenAuthenticator
from .dataset_query import parse_dataset_query, parse_dids
from .metrics import HttpMetrics
from .middleware import AuthMiddleware, RequestMiddleware, can_see_all_sites
from .pages import overview as page
from .pages import why as whypage
from .responses import (
    HttpError,
    accepts_gzip,
    bytes_response,
    error_response,
    internal_error_response,
    json_response,
)
from .view import ServerState

AS_OF_HEADER: Final = "X-DataLocality-AsOf"
MAX_NAME_COMPARED: Final = 200
STALE_IF_ERROR: Final = timedelta(days=1)


PseudonymLookup = Callable[[Iterable[Did]], Mapping[Did, Did]]
"""Gives by DID what jobs call it; see :meth:`hydrator.privacy.pseudonym_store.PseudonymStore.exchange`."""


JobExplainer = Callable[[int, int | None, str | None], list[RenderedAnswer]]
"""Says why a job is idle: cluster, proc or None, schedd or None; see :func:`hydrator.diagnostics.why.query.ask_job`."""

WebhookHandler = Callable[[bytes], RejectReason | None]
"""Takes in one event; see :meth:`hydrator.daemon.event_listener.EventListener.on_event`. From several threads."""

EVENTS_PATH: Final = "/v1/events"


def build_app(
    get_state: Callable[[], ServerState],
    registry: CollectorRegistry,
    *,
    max_age: timedelta,
    authenticator: TokenAuthenticator | None = None,
    look_up_pseudonyms: PseudonymLookup | None = None,
    on_event: WebhookHandler | None = None,
    explain_job: JobExplainer | None = None,
    rate_limiter: RateLimiter | None = None,
    name_limiter: RateLimiter | None = None,
    behind_proxy: bool = False,
    hosts: AllowedHosts | None = None,
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
    posted = on_event if authenticator else None
    answers = _Handlers(
        get_state,
        registry,
        max_age,
        is_public=authenticator is None,
        look_up_pseudonyms=look_up_pseudonyms,
        on_event=posted,
        name_limiter=name_limiter,
        explain_job=explain_job,
    )
    read = [
        Middleware(
            AuthMiddleware, authenticator=authenticator, required_role=Role.READ, rate_limiter=rate_limiter
        )
    ]
    submit = [
        Middleware(
            AuthMiddleware, authenticator=authenticator, required_role=Role.SUBMIT, rate_limiter=rate_limiter
        )
    ]
    ad = [
        Middleware(
            AuthMiddleware, authenticator=authenticator, required_role=Role.SITE, rate_limiter=rate_limiter
        )
    ]
    tell = [
        Middleware(
            AuthMiddleware, authenticator=authenticator, required_role=Role.EVENT, rate_limiter=rate_limiter
        )
    ]
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
                RequestMiddleware,
                http_metrics=HttpMetrics(registry, routes),
                rate_limiter=rate_limiter,
                behind_proxy=behind_proxy,
                body_limits={EVENTS_PATH: MAX_EVENT_BYTES} if posted else {},
                hosts=hosts,
            )
        ],
        exception_handlers={HTTPException: error_response, Exception: internal_error_response},
    )
    asgi.router.redirect_slashes = False  # a redirect would trust the Host header
    return asgi


@dataclass(frozen=True, slots=True)
class _RenderedAd:
    """One ad as bytes, plain and gzipped, made once for all requests."""

    ad: SiteAd
    body: bytes
    gzipped_body: bytes


class _Handlers:
    """The endpoints. Async ones run in the event loop, the others in its threads."""

    def __init__(
        self,
        get_state: Callable[[], ServerState],
        registry: CollectorRegistry,
        max_age: timedelta,
        *,
        is_public: bool,
        look_up_pseudonyms: PseudonymLookup | None,
        on_event: WebhookHandler | None,
        explain_job: JobExplainer | None,
        name_limiter: RateLimiter | None,
    ) -> None:
        self._get_state = get_state
        self._on_event = on_event
        self._look_up_pseudonyms = None if is_public else look_up_pseudonyms
        self._explain_job = None if is_public else explain_job
        self._explain_lock = threading.Lock()
        self._name_limiter = name_limiter
        self._name_limit_lock = threading.Lock()
        self._registry = registry
        self._cache_control = (
            f"{'public' if is_public else 'private'}, max-age={int(max_age.total_seconds())}, "
            f"stale-if-error={int(STALE_IF_ERROR.total_seconds())}"
        )
        self._rendered_ads: dict[Site, _RenderedAd] = {}  # touched by the event loop only

    async def ad(self, request: Request) -> Response:
        """What the hook reads; the ETag is the generation, the age travels beside it on 304 too."""
        view = self._get_state()
        ad = view.ads.get(Site(request.path_params["site"]))
        if ad is None:
            raise _ad_not_found(
                view, request.path_params["site"], can_see_all_sites=can_see_all_sites(request.scope)
            )
        etag = f'"{ad.generation}"'
        headers = {
            "ETag": etag,
            AS_OF_HEADER: str(to_unix(ad.as_of)),
            "Cache-Control": self._cache_control,
            "Vary": "Accept-Encoding",
        }
        if _etag_matches(request.headers.get("If-None-Match"), etag):
            return Response(status_code=304, headers=headers)
        rendered = self._render(ad, view)
        body = rendered.body
        if accepts_gzip(request.headers):
            headers["Content-Encoding"] = "gzip"
            body = rendered.gzipped_body
        return Response(body, headers=headers, media_type="text/plain")

    def _render(self, ad: SiteAd, state: ServerState) -> _RenderedAd:
        """The bytes of *ad*, kept until its generation or age moves or its site is gone."""
        kept = self._rendered_ads.get(ad.site)
        if kept is not None and kept.ad == ad:
            return kept
        for gone in self._rendered_ads.keys() - state.ads.keys():
            del self._rendered_ads[gone]
        plain = ad.text.encode()
        made = _RenderedAd(ad, plain, gzip.compress(plain, mtime=0))
        self._rendered_ads[ad.site] = made
        return made

    def sites(self, request: Request) -> Response:
        """Every site with an ad here: its generation, its age, when we last put it there."""
        view = self._get_state()
        rows = [_site_row(view, ad) for _, ad in sorted(view.ads.items())]
        return json_response(request, {"version": 1, "now": to_unix(view.now), "sites": rows})

    def datasets(self, request: Request) -> Response:
        """Say where the datasets are that the query names; else all demanded ones, a page at a time."""
        asked = parse_dataset_query(request.scope["query_string"])
        view = self._get_state()
        if view.snapshot is None:
            raise HttpError(503, "not ready", view.not_ready_reason or "no catalogue has been read yet")
        demanded = view.demand.dids if view.demand else frozenset()
        dids, following = asked.page(demanded)
        rows = _dataset_rows(view, view.snapshot, dids, should_suggest_names=bool(asked.dids))
        answer = {"version": 1, "now": to_unix(view.now), "datasets": rows, "next": following}
        return json_response(request, answer)

    def private(self, request: Request) -> Response:
        """What jobs call the datasets asked about: private ones by opaque names, others as they are."""
        if self._look_up_pseudonyms is None:
            raise HttpError(
                403, "no tokens", "names are exchanged for tokens only: set publish.http.tokens_file"
            )
        asked = parse_dids(request.scope["query_string"])
        if not asked:
            raise HttpError(400, "no DID", "say which: did=scope:name")
        self._limit_names(request, len(asked))
        names = self._look_up_pseudonyms(asked)
        rows = [{"did": did, "name": names[did]} for did in sorted(asked)]
        return json_response(request, {"version": 1, "datasets": rows})

    def _limit_names(self, request: Request, count: int) -> None:
        """Refuse a token that exchanges more names than submissions do: it tries which names are in use."""
        if self._name_limiter is None:
            return
        grant: Grant = request.scope["grant"]
        with self._name_limit_lock:
            wait = self._name_limiter.take(grant.digest, count)
        if wait:
            seconds = str(math.ceil(wait))
            detail = f"too many names were exchanged with this token: ask again in {seconds} s"
            raise HttpError(429, "too many names", detail, headers={"Retry-After": seconds})

    async def events(self, request: Request) -> Response:
        """An event: what it speaks of is looked at soon. Nobody is told whether anybody wants that."""
        if self._on_event is None:
            raise HttpError(
                403, "no events", "no events are taken here: set events.webhook and a tokens_file"
            )
        drop = await run_in_threadpool(self._on_event, await request.body())
        if drop is RejectReason.GARBLED:
            raise HttpError(400, "no event", 'send one JSON object: {"event_type": "close", "payload": {…}}')
        if drop is RejectReason.TOO_MANY:
            wait = {"Retry-After": "1"}
            raise HttpError(429, "too many events", "more events come than are read", headers=wait)
        return json_response(request, {"version": 1}, 202)

    def metrics(self, request: Request) -> Response:
        """The registry, in the form the scraper asks for."""
        encode, media_type = choose_encoder(request.headers.get("Accept", ""))
        return bytes_response(request, encode(self._registry), media_type)

    async def openapi(self, request: Request) -> Response:
        """What can be asked here, for programs."""
        return json_response(request, openapi.build_openapi())

    async def healthz(self, request: Request) -> Response:
        """The process answers and its cycles do not hang; nothing is said of catalogues or pool."""
        why = self._get_state().hang_reason
        if why is not None:
            raise HttpError(503, "hung", why, {"status": "hung"})
        return json_response(request, {"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Ready once a complete state was loaded or read."""
        why = self._get_state().not_ready_reason
        if why is not None:
            raise HttpError(503, "not ready", why, {"ready": False})
        return json_response(request, {"ready": True})

    def page(self, request: Request) -> Response:
        """The page for people."""
        chosen = parse_selection(request.scope["query_string"])
        return _html_response(
            request,
            page.render_overview(self._get_state(), chosen, can_explain_jobs=self._explain_job is not None),
        )

    def why(self, request: Request) -> Response:
        """Why a job is idle, for people; one question at a time, since each asks the whole pool."""
        if self._explain_job is None:
            raise HttpError(
                403,
                "no tokens",
                "jobs are explained for tokens only (publish.http.tokens_file); hydrator why",
            )
        asked = whypage.parse_job_query(request.scope["query_string"])
        told, status = self._answer_query(asked, self._explain_job) if asked else ([], 200)
        return _html_response(
            request, whypage.render_why_page(asked, told, now=self._get_state().now), status
        )

    def _answer_query(
        self, query: whypage.JobQuery, explain_job: JobExplainer
    ) -> tuple[list[RenderedAnswer] | str, int]:
        if query.cluster_and_proc is None:
            return whypage.BAD_JOB, 400
        if not self._explain_lock.acquire(blocking=False):
            detail = "another job is being asked about: ask again in 5 s"
            raise HttpError(429, "too many requests", detail, headers={"Retry-After": "5"})
        try:
            return explain_job(*query.cluster_and_proc, query.schedd or None), 200
        except ConfigError as error:
            return "; ".join(error.problems), 400
        except PoolError as error:
            return str(error), 404 if error.daemon.startswith("job ") else 502
        finally:
            self._explain_lock.release()


def _html_response(request: Request, text: str, status: int = 200) -> Response:
    return bytes_response(
        request, escape_unprintable(text, "\n").encode(), "text/html; charset=utf-8", status
    )


def _ad_not_found(state: ServerState, site: str, *, can_see_all_sites: bool) -> HttpError:
    """Before the first complete state an unknown site is no fact yet, so hooks are told to wait."""
    if state.not_ready_reason is not None:
        return HttpError(503, "not ready", state.not_ready_reason, {"ready": False})
    near = _similar_names(site, state.ads) if can_see_all_sites else []
    hint = f"did you mean {', '.join(map(repr, near))}?" if near else "GET /v1/sites lists those known"
    more = {"nearby": near}
    return HttpError(404, "unknown site", f"no ad for site {site[:MAX_NAME_COMPARED]!r}; {hint}", more)


def _similar_names(name: str, ads: Mapping[Site, SiteAd], limit: int = 5) -> list[str]:
    """Up to *most* known sites whose names look like *name*, letter case aside."""
    if len(name) > MAX_NAME_COMPARED:
        return []
    by_lower: dict[str, list[str]] = {}
    for site in sorted(ads):
        by_lower.setdefault(site.lower(), []).append(site)
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=limit, cutoff=0.5)
    return [site for lower in close for site in by_lower[lower]][:limit]


def _site_row(state: ServerState, ad: SiteAd) -> dict[str, object]:
    facts = state.snapshot.sites.get(ad.site) if state.snapshot else None
    return {
        "site": ad.site,
        "generation": ad.generation,
        "as_of": to_unix(ad.as_of),
        "age_seconds": max(0, to_unix(state.now) - to_unix(ad.as_of)),
        "heard": state.published_at.get(ad.site, state.now).timestamp(),
        "known_datasets": len(facts.facts) if facts else None,
        "held": state.held_reasons.get(ad.site),
        "ad": f"/v1/sites/{quote(ad.site, safe='')}/ad",
    }


def _dataset_rows(
    state: ServerState, snapshot: Snapshot, dids: list[Did], *, should_suggest_names: bool
) -> list[dict[str, object]]:
    """The rows of *dids*; where the question *named* them, with the names near those that exist nowhere."""
    beliefs = state.knowledge
    near = add_similar_names(beliefs, dids).similar_names if beliefs and should_suggest_names else {}
    demanded = state.demand.dids if state.demand else frozenset()
    jobs = page.jobs_by_did(state.demand)
    clashes = {did: clash for clash in snapshot.case_collisions for did in clash} | dict(
        snapshot.misspelt_dids
    )
    return [
        {
            "did": did,
            "demanded": did in demanded,
            "jobs": jobs.get(did, 0),
            "bytes": snapshot.bytes_total.get(did),
            "unseen": snapshot.unseen_reasons.get(did),
            "clashes_with": [other for other in clashes.get(did, ()) if other != did],
            "left_out_at": sorted(site for site, dids in state.omitted_dids.items() if did in dids),
            "near": list(near.get(did, ())),
            "sites": [
                _fact_row(site, facts.facts[did], state.now)
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
        "as_of": to_unix(fact.as_of),
        "age_seconds": max(0, to_unix(now) - to_unix(fact.as_of)),
        "told": public_provenance(fact.provenance),
    }


def _etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Weak comparison [1]: a proxy that compresses may have weakened our ETag to ``W/"…"``.

    [1] RFC 9110, 13.1.2 If-None-Match.
    """
    if if_none_match is None:
        return False
    given = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in given or given == ["*"]
