"""Answers of the HTTP API: they have the keys of their models, and no request gets status 500."""

import asyncio
import json
import threading
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from hydrator.config import StorageArea
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import DatasetState, Fact, Site, SiteFacts, Snapshot, to_unix
from hydrator.reconcile.view import DatasetView, SiteView
from hydrator.server.auth import Grant, Role
from hydrator.server.handlers import Sources, StateRoutes
from hydrator.server.limits import MAX_QUESTIONS, QuestionQueue
from hydrator.server.middleware import client_of
from hydrator.server.responses import HttpError
from hydrator.server.view import ServerState, SetView
from tests.factories import CAM, L1, L2, L3, NOON, RAL, ad, demand, server_state, want
from tests.served import app_of

pytestmark = pytest.mark.outside

SITES = (CAM, RAL, Site("Žilina (CZ/2) 50% ad"))
FACTS = {
    CAM: SiteFacts(NOON, {L1: Fact(DatasetState.AVAILABLE, NOON)}),
    RAL: SiteFacts(NOON, {L1: Fact(DatasetState.STAGING, NOON, 0.25)}),
}
STATE = server_state(
    {site: ad(L1, site=site) for site in SITES},
    Snapshot(FACTS, unseen_reasons={L2: "timeout"}, bytes_total={L1: 9}, unread_dids=frozenset({L3})),
    demand(want(L1, L2, L3, jobs=3)),
    None,
    NOON,
)
APP = app_of(STATE)
PATHS = sorted(
    route.path.replace("{site:path}", CAM)
    for route in APP.routes
    if isinstance(route, Route) and "GET" in (route.methods or ())
)


def ask(path: str, state: ServerState | None = None) -> httpx.Response:
    return answer_of(app_of(state) if state else APP, path)


def answer_of(app: Starlette, path: str, **options: Any) -> httpx.Response:
    """Return the answer of *app*, without a socket."""

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path, **options)

    return asyncio.run(get())


@pytest.mark.parametrize(
    ("path", "part", "form"),
    [
        ("/v1/sites", "sites", TypeAdapter(list[SiteView])),
        (f"/v1/datasets?did={L1}&did=lofar:nowhere", "datasets", TypeAdapter(list[DatasetView])),
        ("/v1/sets", "sets", TypeAdapter(list[SetView])),
    ],
)
def test_answer_is_entries_of_the_view(path, part, form):
    answer = json.loads(ask(path).content)
    assert (answer["version"], answer["now"]) == (1, to_unix(NOON))
    form.validate_python(answer[part])


def test_paths_are_given_for_named_datasets_that_are_not_private():
    areas = [
        StorageArea(site="UK", prefix="/data", rule="name"),
        StorageArea(site="NL", prefix="/rucio", rule="identity"),
        StorageArea(site="AU", prefix="/own", rule="table", table={"x:secret": "s", "x:L1.ms": "a"}),
    ]
    state = replace(STATE, storage=areas, demand=replace(demand(), never=("x:s*",)))
    rows = ask("/v1/datasets?did=x:L1.ms&did=x:L1.ms.tar&did=x:secret", state).json()["datasets"]
    assert {row["did"]: {each["site"]: each["path"] for each in row["paths"]} for row in rows} == {
        "x:L1.ms": {"UK": "/data/x/L1.ms", "AU": "/own/a"},  # as files its path is not known
        "x:L1.ms.tar": {"UK": "/data/x/L1.ms.tar", "NL": "/rucio/x/L1.ms.tar"},
        "x:secret": {},
    }


@pytest.mark.parametrize("path", [f"/v1/datasets?did={L1}", "/v1/sets", "/v1/sites/NONE/ad", "/readyz"])
def test_server_without_facts_answers_503_with_a_reason(path):
    answer = ask(path, server_state(not_ready_reason="no catalogue has been read yet"))
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    assert json.loads(answer.content)["detail"] == "no catalogue has been read yet"


def test_dataset_that_no_catalogue_answered_for_yet_is_unseen_and_not_absent():
    (row,) = json.loads(ask(f"/v1/datasets?did={L3}").content)["datasets"]
    assert (row["demanded"], row["sites"]) == (True, [])
    assert row["unseen"] == "catalogue rucio has not answered about this dataset yet"


@given(st.sampled_from(PATHS), st.text(st.characters(codec="utf-8", exclude_characters="#"), max_size=60))
@example("/v1/datasets", f"?did={L1}&did=%00")
@example("/v1/sets", "?key=%00")
def test_no_request_gets_status_500(path, more):
    try:
        answer = ask(path + more)
    except httpx.InvalidURL:  # no client can send it
        assume(False)
    assert answer.status_code < 500


def test_search_is_limited_and_checks_its_query():
    assert ask("/v1/search?match=lofar:*").json()["names"] == []
    for query in ("match=", "did=lofar:L1", "match=lofar:%0A"):
        assert ask(f"/v1/search?{query}").status_code == 400
    search = Search(lambda: STATE, lambda _: [L1])
    assert json.loads(bytes(search.of("a").body))["names"] == [L1]
    while search.status("a") == 200:
        assert len(search.clients_served) <= 30
    assert search.status("b") == 200, "each client has its own bucket"


class Search(StateRoutes):
    """Routes with a search whose clock stands still, and that notes who waits and who is served."""

    def __init__(self, get_state, find, **parts):
        self.now, self.waiting, self.clients_served = 0.0, threading.Semaphore(0), []

        class Noting(threading.Condition):
            def wait(_self, timeout=None):  # noqa: N805
                self.waiting.release()
                return super().wait(timeout)

        queue = QuestionQueue("busy", clock=lambda: self.now, changed=Noting(), **parts)
        super().__init__(Sources(get_state, find_datasets=find), CollectorRegistry(), queue)

    def of(self, client: str, text: str = "lofar:*"):
        """Return the answer to a search of *client*."""
        request = {"type": "http", "headers": [], "query_string": f"match={text}".encode()}
        answer = self.search(Request({**request, "client_key": client}))
        self.clients_served.append(client)
        return answer

    def status(self, client: str) -> int:
        try:
            return self.of(client).status_code
        except HttpError as refused:
            return refused.status_code


def test_client_whose_searches_are_slow_leaves_the_catalogues_to_others():
    def find(patterns):
        search.now += 20
        raise CatalogueError("rucio", "too slow")

    search = Search(lambda: STATE, find)
    statuses = [search.status("a") for _ in range(5)]
    assert statuses[0] == 502
    assert statuses[-1] == 429
    assert search.status("b") == 502
    search.now += 40
    assert search.status("a") == 502


def test_searches_of_several_clients_have_turns():
    released = threading.Event()
    search = Search(lambda: STATE, lambda _: released.wait() and [], wait_seconds=3600)
    search.waiting.release()  # for the first, which does not wait
    threads = []
    for client in ("a", "a", "a", "a", "b"):
        threads.append(threading.Thread(target=search.of, args=(client,)))
        threads[-1].start()
        search.waiting.acquire()
    assert search.status("a") == 429, "one client cannot fill the queue"
    released.set()
    for thread in threads:
        thread.join()
    assert search.clients_served == ["a", "b", "a", "a", "a"]


def test_search_waits_for_others_only_for_a_while_and_few_wait():
    statuses = []

    def find(_):
        if not statuses:
            statuses.append(search.status("b"))
        return []

    search = Search(lambda: STATE, find, wait_seconds=0)
    assert search.status("a") == 200
    assert statuses == [429]
    assert search.status("b") == 200, "a search that gave up is forgotten"


def test_searches_that_wait_are_few():
    released = threading.Event()
    search = Search(lambda: STATE, lambda _: released.wait() and [], wait_seconds=3600)
    threads = [threading.Thread(target=search.of, args=(f"{number}",)) for number in range(MAX_QUESTIONS)]
    for thread in threads:
        thread.start()
    for _ in threads[1:]:
        search.waiting.acquire()
    assert search.status("another") == 429
    released.set()
    for thread in threads:
        thread.join()


def test_client_of_a_search_is_its_address_and_its_token():
    grant = Grant("0123", "2026-01-01", Role.READ)
    assert client_of({"client_key": "a"}) == ("a", "")
    assert client_of({"client_key": "a", "grant": grant}) == ("a", "0123")
