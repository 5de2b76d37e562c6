"""Catalogue of a daemon's facts over HTTP: its readings, and its errors."""

import asyncio
import json
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.daemon_catalogue import NOT_IN_DEMAND, DaemonCatalogue
from hydrator.config import StorageArea
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    ConfigError,
)
from hydrator.domain.model import (  # fmt: skip
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Fact,
    Origin,
    Seen,
    Site,
    SiteFacts,
    Snapshot,
    Unseen,
)
from hydrator.server.handlers import DatasetFinder
from hydrator.server.view import ServerState
from tests.factories import CAM, L1, L2, NOON, RAL, server_state
from tests.served import app_of

URL = "https://hydrator.example.org"


def view(
    *, wanted: tuple[Did, ...] = (L1, L2), unseen: dict[Did, str] | None = None, **sites: dict
) -> ServerState:
    facts = {Site(name): SiteFacts(NOON, known) for name, known in sites.items()}
    demand = Demand((DemandEntry(wanted, 1, Origin.JOB, NOON, set_key(wanted)),))
    snapshot = Snapshot(facts, unseen or {}, bytes_total={L1: 100})
    return server_state({}, snapshot, demand, None, NOON + timedelta(minutes=5))


def fact(state: DatasetState, minutes: int = 1, fraction: float | None = None) -> Fact:
    return Fact(state, NOON - timedelta(minutes=minutes), fraction)


def serving(look: ServerState | Callable[[], ServerState], **parts: Any) -> DaemonCatalogue:
    """A client of a daemon in this process, without a socket; see `app_of`."""
    app = app_of(look, **parts)

    def answer(request: httpx.Request) -> httpx.Response:
        response = asyncio.run(get(str(request.url)))
        return httpx.Response(response.status_code, content=response.content)

    async def get(url: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.get(url)

    return DaemonCatalogue(URL, transport=httpx.MockTransport(answer))


def searching(find: DatasetFinder) -> DaemonCatalogue:
    """A client of a daemon that searches by *find*."""
    return serving(server_state(), find_datasets=find)


@pytest.mark.outside
def test_search_asks_for_all_patterns_even_of_several_requests():
    asked: set[str] = set()

    def find(patterns: Collection[str]) -> list[Did]:
        asked.update(patterns)
        return [Did(pattern.replace("*", "1")) for pattern in patterns]

    patterns = {f"lofar:{'L' * 100}{number:03}[*]_+*" for number in range(100)}
    wanted = {pattern.replace("[*]", "x") for pattern in patterns}
    assert searching(find).find(wanted) == {pattern.replace("*", "1") for pattern in wanted}
    assert asked == wanted
    assert searching(lambda _: []).find(patterns) == frozenset()


@pytest.mark.outside
def test_search_that_fails_or_is_refused_is_an_error():
    def fail(_: Collection[str]) -> list[Did]:
        raise CatalogueUnreachable("rucio", "timed out")

    with pytest.raises(CatalogueError, match="catalogue rucio: timed out"):
        searching(fail).find(["lofar:*"])
    with pytest.raises(CatalogueGarbled):
        searching(lambda _: [Did("no scope")]).find(["lofar:*"])


def test_search_names_the_other_scheme_if_the_address_has_a_wrong_one():
    def refuse(_: httpx.Request) -> httpx.Response:
        raise error

    error: httpx.HTTPError = httpx.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version number")
    with pytest.raises(CatalogueError, match="write http://"):
        DaemonCatalogue(URL, transport=httpx.MockTransport(refuse)).read(frozenset())
    error = httpx.RemoteProtocolError("Server disconnected without sending a response.")
    with pytest.raises(CatalogueError, match="write https://"):
        DaemonCatalogue("http://127.0.0.1", transport=httpx.MockTransport(refuse)).read(frozenset())


def test_search_that_the_daemon_cuts_after_its_time_does_not_name_the_other_scheme():
    def cut(_: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("Server disconnected without sending a response.")

    with pytest.raises(CatalogueError, match=r"without sending a response\.?$"):
        DaemonCatalogue("http://127.0.0.1", transport=httpx.MockTransport(cut)).find(["*:*"])


@pytest.mark.outside
def test_a_reading_has_the_sites_and_the_age_of_the_oldest_fact():
    shown = view(CAM={L1: fact(DatasetState.AVAILABLE, 9)}, RAL={L1: fact(DatasetState.STAGING, 1, 0.5)})
    survey = serving(shown).read({L1})
    reading = survey.readings[L1]
    assert isinstance(reading, Seen)
    assert reading.as_of == NOON - timedelta(minutes=9)
    assert reading.bytes_total == 100
    assert {(r.site, r.state, r.fraction) for r in reading.replicas} == {
        (CAM, DatasetState.AVAILABLE, None),
        (RAL, DatasetState.STAGING, 0.5),
    }
    assert survey.sites == {CAM, RAL}
    assert survey.started_at == NOON + timedelta(minutes=5)


@pytest.mark.outside
@pytest.mark.parametrize("state", [state for state in DatasetState if state is not DatasetState.UNKNOWN])
def test_each_state_comes_back_as_the_daemon_would_conclude_it(state):
    from hydrator.reconcile.snapshot.merge import CatalogueMemory, apply_survey, build_snapshot

    answer = serving(view(CAM={L1: fact(state)})).read({L1})
    now = NOON + timedelta(minutes=5)
    memory = apply_survey(CatalogueMemory(), answer, frozenset({L1}), now=now)
    folded = build_snapshot({"daemon": memory}, frozenset({L1}), now=now, max_age=timedelta(hours=6))
    assert folded.sites[CAM].facts[L1].state is state


@pytest.mark.outside
def test_a_dataset_that_is_not_in_demand_is_unseen_and_not_absent():
    readings = serving(view(wanted=(L1,), CAM={})).read({L1, L2}).readings
    assert readings[L2] == Unseen(NOT_IN_DEMAND)
    assert isinstance(readings[L1], Seen)
    assert readings[L1].replicas == ()


@pytest.mark.outside
def test_an_unseen_dataset_of_the_daemon_is_unseen_with_its_reason():
    readings = serving(view(unseen={L1: "rucio: timeout"}, CAM={})).read({L1}).readings
    assert readings[L1] == Unseen("rucio: timeout")


@pytest.mark.outside
def test_a_site_with_too_old_a_fact_is_unreachable():
    shown = view(CAM={L1: fact(DatasetState.UNKNOWN, 600)}, RAL={L1: fact(DatasetState.AVAILABLE)})
    reading = serving(shown).read({L1}).readings[L1]
    assert isinstance(reading, Seen)
    assert reading.unreachable_sites == {CAM}
    assert [replica.site for replica in reading.replicas] == [RAL]


@pytest.mark.outside
@pytest.mark.parametrize("path", ["data/L1", "/data/L1\n+x = 1"])
def test_path_that_is_not_absolute_or_not_one_line_is_no_answer_of_a_daemon(path):
    area = StorageArea.model_construct(site="UK", prefix=path, rule="table", table={L1: ""})
    shown = replace(view(), storage=[area])
    with pytest.raises(CatalogueGarbled):
        serving(shown).read_paths(frozenset({L1}))


@pytest.mark.outside
def test_many_datasets_are_split_into_queries_of_an_accepted_length():
    many = frozenset(Did(f"lofar:{'x' * 100}{number}") for number in range(244))
    shown, looks = view(wanted=tuple(many), CAM={}), []
    survey = serving(lambda: looks.append(1) or shown).read(many)
    assert set(survey.readings) == many
    assert all(isinstance(reading, Seen) for reading in survey.readings.values())
    assert len(looks) == 6


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (
            httpx.Response(401, json={"detail": "a token is needed"}),
            CatalogueDenied,
            "refused: a token is needed (status 401); set submit.token_file",
        ),
        (httpx.Response(503, json={"detail": "not ready"}), CatalogueError, "not ready (status 503)"),
        (httpx.Response(502, text="<html>"), CatalogueError, "status 502"),
        (httpx.Response(200, text="<html>"), CatalogueGarbled, "its answer is not JSON: '<html>'"),
        (
            httpx.Response(404, json={"detail": "no"}),
            CatalogueGarbled,
            "of a hydrator daemon: no (status 404)",
        ),
        (httpx.Response(200, json={"sites": 1}), CatalogueGarbled, "not that of a hydrator daemon"),
        (httpx.ConnectError("refused"), CatalogueError, "refused"),
    ],
)
def test_a_daemon_without_an_answer_is_an_error_and_not_an_empty_survey(answer, error, told):
    def handle(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    catalogue = DaemonCatalogue(URL, transport=httpx.MockTransport(handle))
    with pytest.raises(error) as failed:
        catalogue.read({L1})
    assert told in str(failed.value)
    catalogue.close()


@pytest.mark.outside
def test_a_busy_daemon_is_asked_again_once_after_the_time_that_it_names():
    answers = [httpx.Response(429, headers={"Retry-After": "1"}, json={"detail": "ask again in 1 s"})]
    asked: list[float] = []

    def handle(_: httpx.Request) -> httpx.Response:
        asked.append(time.monotonic())
        return answers.pop() if answers else httpx.Response(200, json={"names": [L1]})

    catalogue = DaemonCatalogue(URL, transport=httpx.MockTransport(handle))
    assert catalogue.find([L1]) == {L1}
    assert asked[1] - asked[0] >= 1
    catalogue.close()


ROW = {
    "did": L1, "demanded": True, "unseen": None, "bytes": 1, "clashes_with": [], "misspelt": False,
    "private": False, "left_out_at": [],
    "similar_names": [], "paths": [],
    "sites": [{"site": "CAM", "state": "PARTIAL", "fraction": 0.5, "as_of": 7, "provenance": {}}],
}  # fmt: skip


def answered(text: str) -> DaemonCatalogue:
    """Return the catalogue of a daemon that gives this answer to each query."""
    return DaemonCatalogue(URL, transport=httpx.MockTransport(lambda _: httpx.Response(200, text=text)))


@pytest.mark.parametrize(
    ("key", "good", "value"),
    [
        *(("fraction", "0.5", value) for value in ("-1", "1.5", "NaN", "Infinity", "true", '"x"', "[0.5]")),
        *(
            (key, "7", value)
            for key in ("now", "as_of")
            for value in ("1e400", "1" + "0" * 15, "1" + "0" * 40, "NaN", '"soon"', "null")
        ),
    ],
)
def test_an_impossible_fraction_or_time_makes_the_answer_garbled(key, good, value):
    text = json.dumps({"sites": [], "now": 7, "datasets": [ROW]})
    with pytest.raises(CatalogueGarbled):
        answered(text.replace(f'"{key}": {good}', f'"{key}": {value}')).read({L1})


@pytest.mark.parametrize("key", sorted(ROW))
@pytest.mark.parametrize("value", [{}, [7], "absent"])
def test_row_of_another_form_makes_the_answer_garbled(key, value):
    row = {**ROW, key: value} if value != "absent" else {name: ROW[name] for name in ROW if name != key}
    with pytest.raises(CatalogueGarbled):
        answered(json.dumps({"sites": [], "now": 7, "datasets": [row]})).read({L1})


def test_bug_of_the_caller_is_not_called_a_garbled_answer():
    catalogue = answered('{"sites": [], "now": 7, "datasets": []}')
    no_did: Any = None
    with pytest.raises(TypeError):
        catalogue.read({no_did})


def test_the_token_is_sent_and_never_unencrypted(tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    asked = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["Authorization"])
        return httpx.Response(200, json={"sites": [], "datasets": [], "now": 1})

    DaemonCatalogue(URL, token_file=token, transport=httpx.MockTransport(handle)).read({L1})
    assert asked == ["Bearer s3cret"] * 2
    with pytest.raises(ConfigError, match="use https"):
        DaemonCatalogue("http://hydrator.example.org", token_file=token)
    DaemonCatalogue("http://127.0.0.1:8471", token_file=token).close()


@pytest.mark.parametrize("key", ["submit.token_file", "ca_cert"])
def test_an_unreadable_file_is_reported_with_its_configuration_key(tmp_path, key):
    options: Any = {key.removeprefix("submit."): tmp_path / "gone"}
    with pytest.raises(ConfigError, match=f"{key} .*No such file"):
        DaemonCatalogue(URL, **options)


def test_token_file_without_end_is_refused():
    with pytest.raises(ConfigError, match=r"token_file /dev/zero: .*larger"):
        DaemonCatalogue(URL, token_file=Path("/dev/zero"))
