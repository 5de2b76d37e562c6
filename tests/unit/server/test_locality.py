"""Answers of /v1/locality: rows, pages, limits and errors."""

import gzip
import json
import socket
import threading
import tracemalloc
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import TypeAdapter

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import DatasetState, Did, Fact, Provenance, Site, SiteFacts, Snapshot, to_unix
from hydrator.domain.pool_ports import SiteSlots
from hydrator.server.api.locality import models
from hydrator.server.api.locality.request import MAX_LOCALITY_BYTES, LocalityRequest, parse_locality_body
from hydrator.server.api.locality.route import MAX_REQUESTS
from hydrator.server.api.locality.rows import LocalityRows
from hydrator.server.api.locality.stream import gather_chunks, stream_lines
from hydrator.server.app import build_app
from hydrator.server.http_server import HttpServer
from hydrator.server.limits.connections import ConnectionLimiter
from hydrator.server.middleware import RequestPolicy
from hydrator.server.responses import HttpError
from hydrator.server.view import ServerState
from testbed.installation import wait_for
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, OSO, RAL, demand, want
from tests.unit.reconcile.estimates.worlds import DE, GB, PL, UK, World

L4, L5 = Did("lofar:L4"), Did("lofar:L5")
STAGING = Fact(DatasetState.STAGING, NOON - MINUTE, 0.25, Provenance(ready_at=NOON + 10 * MINUTE))
FACTS = {
    CAM: SiteFacts(
        NOON, {L1: Fact(DatasetState.AVAILABLE, NOON), L2: Fact(DatasetState.AVAILABLE, NOON - HOUR)}
    ),
    RAL: SiteFacts(NOON - MINUTE, {L1: STAGING, L2: Fact(DatasetState.AVAILABLE, NOON)}),
    OSO: SiteFacts(NOON, {}),
}
SNAPSHOT = Snapshot(
    FACTS, {L3: "rucio: timeout"}, bytes_total={L1: 3000, L2: 1000}, unread_dids=frozenset({L4})
)
STATE = ServerState({}, SNAPSHOT, demand(want(L1, L2, jobs=3), want(L3), want(L4)), None, NOON)


def rows(request: LocalityRequest, state: ServerState = STATE) -> LocalityRows:
    assert state.snapshot is not None
    return LocalityRows(state, state.snapshot, request)


def row(did: Did, *sites: Site) -> dict:
    made = rows(LocalityRequest((did,), frozenset(sites))).build_row(did)
    TypeAdapter(models.LocalityRow).validate_python(made)
    return dict(made)


def test_row_has_state_share_bytes_age_and_eta_at_each_site():
    made = row(L1)
    assert (made["polled"], made["unseen"], made["bytes"]) == (True, None, 3000)
    cam, ral = made["sites"]
    assert (cam["site"], cam["state"], cam["fraction"], cam["bytes"], cam["age_seconds"]) == (
        *(CAM, "AVAILABLE", 1.0, 3000, 0),
    )
    assert (ral["state"], ral["fraction"], ral["bytes"], ral["age_seconds"]) == ("STAGING", 0.25, 750, 60)
    assert (ral["ready_at"], ral["eta_seconds"]) == (to_unix(NOON + 10 * MINUTE), 600)


def test_site_without_the_dataset_has_a_row_only_if_the_request_names_the_site():
    (cam, oso) = row(L1, CAM, OSO)["sites"]
    assert (oso["state"], oso["fraction"], oso["bytes"]) == ("ABSENT", 0.0, 0)
    assert cam["state"] == "AVAILABLE"


@pytest.mark.parametrize(
    ("did", "polled", "unseen"),
    [
        (L3, True, "rucio: timeout"),
        (L4, True, "no catalogue has answered for this dataset yet"),
        (L5, False, None),
    ],
)
def test_unknown_is_never_absent(did, polled, unseen):
    made = row(did, CAM, OSO)
    assert (made["polled"], made["unseen"], made["sites"]) == (polled, unseen, [])


def test_head_lists_the_sites_with_the_age_of_their_facts():
    request = LocalityRequest((L1, L2), frozenset({RAL, Site("nowhere")}))
    head = rows(request, replace(STATE, no_estimates_reason="no rates")).build_head()
    TypeAdapter(models.LocalityHead).validate_python(head)
    assert [(site["site"], site["age_seconds"]) for site in head["sites"]] == [(RAL, 60)]
    assert (head["datasets"], head["unknown_sites"], head["estimates_none"]) == (2, ["nowhere"], "no rates")


def about_set(*dids: Did, state: ServerState = STATE, cpus: int = 1) -> tuple[dict, dict]:
    made = rows(LocalityRequest(tuple(sorted(dids)), cpus=cpus), state).build_set()
    TypeAdapter(models.SetLocality).validate_python(made)
    return dict(made), {each["site"]: each for each in made["sites"]}


def test_set_answer_has_the_share_and_the_time_of_the_oldest_fact():
    made, sites = about_set(L1, L2)
    assert (made["key"], made["datasets"], made["bytes"]) == (set_key([L1, L2]), 2, 4000)
    assert (sites[CAM]["share"], sites[CAM]["usable_seconds"], sites[CAM]["age_seconds"]) == (1.0, 0, 3600)
    assert (sites[RAL]["share"], sites[RAL]["usable_seconds"]) == (0.43, 600)  # (750 + 1000) / 4000
    assert (sites[OSO]["share"], sites[OSO]["usable_seconds"], sites[OSO]["can_run"]) == (0.0, None, None)


def test_set_with_a_dataset_that_is_not_polled_has_no_shares():
    made, sites = about_set(L1, L5)
    assert (made["not_polled"], made["not_polled_example"]) == (1, L5)
    assert {each["share"] for each in sites.values()} == {None}
    assert {each["usable_seconds"] for each in sites.values()} == {None}
    assert about_set(L1, L4)[0]["unseen"] == 1
    assert about_set(L1, L4)[1][CAM]["share"] is None


def estimated_state() -> ServerState:
    """A pool whose jobs name ``t:a`` only; ``t:a`` and ``t:b`` are at UK, and DE has free slots."""
    slots = (SiteSlots(UK, 4, 0), SiteSlots(DE, 4, 4))
    world = World({UK: ["t:a", "t:b"], DE: [], PL: []}, slots, sizes={"t:a": 40 * GB, "t:b": 10 * GB})
    made = world.estimate()
    return ServerState(
        {},
        world.snapshot(),
        demand("t:a", "t:b"),
        None,
        NOON,
        estimates=made.estimates,
        set_estimator=made.set_estimator,
    )


def test_set_that_no_job_named_has_estimates_of_reads_queues_and_starts():
    made, sites = about_set(Did("t:a"), Did("t:b"), state=estimated_state())
    assert made["queue_seconds"] is not None
    assert made["queue_seconds"] > 0
    assert (sites[UK]["usable_seconds"], sites[UK]["start_seconds"]) == (0, made["queue_seconds"])
    assert (sites[DE]["start_seconds"], sites[DE]["can_run"], sites[DE]["read_from"]) == (0, True, UK)
    assert sites[DE]["usable_seconds"] == sites[DE]["read_seconds"] == 1024  # 50 GB at half of 100 MB/s
    assert (sites[PL]["can_run"], sites[PL]["start_seconds"]) == (False, None)


def test_estimates_of_a_demanded_set_are_those_of_the_cycle():
    state = estimated_state()
    assert state.estimates is not None
    _, sites = about_set(Did("t:a"), state=state)
    for site, of_site in state.estimates.sites.items():
        cycle = of_site.by_key[set_key([Did("t:a")])]
        assert (sites[site]["read_seconds"], sites[site]["read_from"]) == (cycle.read_seconds, cycle.source)
        assert about_set(Did("t:a"), state=state)[0]["queue_seconds"] == cycle.queue_seconds


def test_site_cannot_run_a_job_with_more_cores_than_its_slots():
    _, sites = about_set(Did("t:a"), state=estimated_state(), cpus=8)
    assert {each["can_run"] for each in sites.values()} == {False}


def test_row_has_read_seconds_also_at_a_named_site_without_the_dataset():
    state = estimated_state()
    made = rows(LocalityRequest((Did("t:b"),), frozenset({UK, DE})), state).build_row(Did("t:b"))
    assert [(each["site"], each["state"], each["read_seconds"]) for each in made["sites"]] == [
        (DE, "ABSENT", 256),
        (UK, "AVAILABLE", 0),
    ]
    assert made["queue_seconds"]
    head = rows(LocalityRequest((Did("t:b"),)), state).build_head()
    assert [site["start_seconds"] for site in head["sites"]] == [0, None, made["queue_seconds"]]


# pages


def lines_of(request: LocalityRequest, is_time_over=lambda: False) -> list[dict]:
    return [json.loads(line) for line in stream_lines(rows(request), request, is_time_over=is_time_over)]


def test_pages_together_have_each_dataset_once():
    dids = tuple(Did(f"s:d{number:04}") for number in range(25))
    found, after = [], None
    for _ in range(3):
        head, *page, end = lines_of(LocalityRequest(dids, limit=10, after=after))
        assert head["datasets"] == 25
        found += [each["did"] for each in page]
        after = end["next"]
    assert (tuple(found), after) == (dids, None)


def test_page_ends_early_with_one_dataset_at_least_when_its_time_is_over():
    head, only, end = lines_of(LocalityRequest((L1, L2, L3)), lambda: True)
    assert (head["version"], only["did"], end) == (1, L1, {"next": L1})
    assert lines_of(LocalityRequest((L1,)), lambda: True)[-1] == {"next": None}
    assert lines_of(LocalityRequest((L1,), after=L2))[1:] == [{"next": None}]


@pytest.mark.outside
def test_stream_of_10000_datasets_needs_little_memory():
    dids = tuple(Did(f"s:d{number:05}") for number in range(10_000))
    held = {did: Fact(DatasetState.AVAILABLE, NOON) for did in dids}
    snapshot = Snapshot({Site(f"S{number:02}"): SiteFacts(NOON, held) for number in range(3)})
    state = replace(STATE, snapshot=snapshot, demand=demand(want(*dids)))
    request = LocalityRequest(dids)
    lines = stream_lines(rows(request, state), request, is_time_over=lambda: False)
    tracemalloc.start()
    size = sum(map(len, gather_chunks(lines, use_gzip=False)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size > 4_000_000
    assert peak < 2_000_000


# bodies


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"", "send one JSON object"),
        (b"{", "send one JSON object"),
        (b"[]", "body: Input should be"),
        (b"{}", 'the body has no "datasets"'),
        (b'{"datasets": []}', "datasets: List should have at least 1 item"),
        (b'{"datasets": "lofar:L1"}', "datasets: Input should be a valid array"),
        (b'{"datasets": [1]}', "datasets.0: Input should be a valid string"),
        (b'{"datasets": ["L1"]}', "datasets.0: 'L1' is not a DID: it has no scope"),
        (b'{"datasets": ["a:b c"]}', "use letters, digits"),
        (b'{"datasets": ["a:b"], "after": "x"}', "after: 'x' is not a DID"),
        (b'{"datasets": ["a:b"], "limit": 0}', "limit: Input should be greater than or equal to 1"),
        (b'{"datasets": ["a:b"], "limit": true}', "limit: Input should be a valid integer"),
        (b'{"datasets": ["a:b"], "cpus": 1.5}', "cpus: Input should be a valid integer"),
        (b'{"datasets": ["a:b"], "sites": [""]}', "sites.0: String should have at least 1 character"),
        (b'{"datasets": ["a:b"], "site": ["x"]}', "unknown key 'site'; the keys are datasets, sites, cpus"),
        (b'{"datasets": ["a:\\ud800"]}', "send one JSON object"),
        (b"\xff", "send one JSON object"),
    ],
)
def test_bad_body_is_refused_with_one_sentence(body, part):
    with pytest.raises(HttpError) as caught:
        parse_locality_body(body, is_set=False)
    assert caught.value.status_code == 400
    assert part in caught.value.detail
    assert "\n" not in caught.value.detail


def test_body_may_name_10000_datasets_and_each_counts_once():
    names = [f"s:d{number}" for number in range(10_000)]
    assert len(parse_locality_body(json.dumps({"datasets": names}).encode(), is_set=False).dids) == 10_000
    twice = parse_locality_body(b'{"datasets": ["s:b", "s:a", "s:b"], "cpus": 4}', is_set=True)
    assert (twice.dids, twice.cpus) == (("s:a", "s:b"), 4)
    with pytest.raises(HttpError) as caught:
        parse_locality_body(json.dumps({"datasets": [*names, "s:one"]}).encode(), is_set=False)
    assert "at most 10000 items" in caught.value.detail


def facts_of(text: str) -> bytes:
    return f'{{"datasets": ["lofar:L5"], "facts": {text}}}'.encode()


def test_set_takes_facts_about_datasets_that_the_daemon_does_not_poll():
    """The daemon polls L1 and has its facts; nobody has named L5."""
    given = '{"lofar:L5": {"bytes": 1000, "sites": {"CAM": 1, "RAL": 0.5, "NOWHERE": 1}}, "lofar:L1":'
    given += ' {"bytes": 1, "sites": {"OSO": 1}}}'
    request = parse_locality_body(facts_of(given), is_set=True)
    answer = rows(replace(request, dids=(L1, L5))).build_set()
    TypeAdapter(models.SetLocality).validate_python(answer)
    assert (answer["not_polled"], answer["bytes"]) == (0, 4000)
    assert {each["site"]: each["share"] for each in answer["sites"]} == {CAM: 1.0, OSO: 0.0, RAL: 0.31}
    assert rows(replace(request, dids=(L1, L5), facts={})).build_set()["not_polled"] == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"lofar:L5": 7}',
        '{"L5": {"bytes": 1, "sites": {}}}',
        '{"lofar:L5": {"bytes": -1, "sites": {}}}',
        '{"lofar:L5": {"bytes": 1, "sites": {"UK": 1.5}}}',
        '{"lofar:L5": {"bytes": true, "sites": {}}}',
    ],
)
def test_malformed_facts_are_refused_with_a_sentence(text):
    with pytest.raises(HttpError) as caught:
        parse_locality_body(facts_of(text), is_set=True)
    assert caught.value.status_code == 400
    assert "facts" in caught.value.detail


def test_set_has_no_pages():
    with pytest.raises(HttpError) as caught:
        parse_locality_body(b'{"datasets": ["s:a"], "limit": 5}', is_set=True)
    assert "unknown key 'limit'" in caught.value.detail


# over HTTP


class Server:
    """A real server whose requests may take *seconds*."""

    def __init__(self, state: ServerState, seconds: float = 30) -> None:
        self.state = state
        self.gate = threading.Event()
        self.gate.set()
        app = build_app(
            self.look,
            CollectorRegistry(),
            max_age=MINUTE,
            policy=RequestPolicy(request_time_limit=timedelta(seconds=seconds)),
        )
        self.http = HttpServer(app, limiter=ConnectionLimiter(request_seconds=seconds))

    def look(self) -> ServerState:
        assert self.gate.wait(60)
        return self.state

    def post(self, path: str = "/v1/locality", headers=None, **body) -> httpx.Response:
        return httpx.post(self.http.url + path, json=body, headers=headers, trust_env=False, timeout=120)


def large_state(count: int, sites: int) -> tuple[ServerState, list[Did]]:
    dids = [Did(f"lofar:L{number:06}_SB001_uv.dppp.MS") for number in range(count)]
    held = {did: Fact(DatasetState.AVAILABLE, NOON) for did in dids}
    snapshot = Snapshot({Site(f"SITE-{number:02}"): SiteFacts(NOON, held) for number in range(sites)})
    return replace(STATE, snapshot=snapshot, demand=demand(want(*dids))), dids


@pytest.mark.outside
def test_server_streams_lines_of_json_also_gzipped():
    with (server := Server(STATE)).http:
        plain = server.post(datasets=[L2, L1], headers={"Accept-Encoding": "identity"})
        packed = server.post(datasets=[L2, L1], headers={"Accept-Encoding": "gzip"})
        one = server.post("/v1/locality/set", datasets=[L2, L1])
    assert plain.headers["Content-Type"] == "application/x-ndjson"
    assert (plain.headers["Cache-Control"], plain.headers["Vary"]) == ("no-store", "Accept-Encoding")
    head, *found, end = map(json.loads, plain.text.splitlines())
    assert (head["version"], [each["did"] for each in found], end) == (1, [L1, L2], {"next": None})
    assert (packed.headers["Content-Encoding"], packed.text) == ("gzip", plain.text)
    assert one.json()["sites"][0]["share"] == 1.0


@pytest.mark.outside
@pytest.mark.parametrize("path", ["/v1/locality", "/v1/locality/set"])
def test_server_refuses_what_it_cannot_answer_with_one_sentence(path):
    with (server := Server(replace(STATE, snapshot=None, not_ready_reason="no poll yet"))).http:
        assert server.post(path, datasets=["a:b"]).status_code == 503
        assert server.post(path, datasets=["b"]).status_code == 400
        assert server.post(path, datasets=["a:" + "b" * MAX_LOCALITY_BYTES]).status_code == 413
        got = httpx.get(server.http.url + path, trust_env=False, timeout=120)
    assert (got.status_code, got.headers["Allow"]) == (405, "POST")
    assert got.json()["detail"].startswith("this path accepts only POST")


@pytest.mark.outside
def test_answer_that_a_client_reads_slowly_has_several_whole_pages_and_is_never_cut():
    """A page must end before the server's time limit, with the tail that waits in the sockets' buffers."""
    state, dids = large_state(6000, 30)
    with (server := Server(state, seconds=4)).http:
        found, after, pages = [], None, 0
        while pages == 0 or after:
            lines = read_slowly(server.http.url, {"datasets": dids, **({"after": after} if after else {})})
            found += [line["did"] for line in lines[1:-1]]
            after = lines[-1]["next"]
            pages += 1
    assert pages > 1
    assert found == dids


def read_slowly(url: str, body: dict, bytes_per_second: int = 3_000_000) -> list[dict]:
    """POST *body* with a small receive buffer, read the answer in small pieces with pauses, and parse it."""
    host, port = url.removeprefix("http://").split(":")
    text = json.dumps(body).encode()
    piece, pause = 65_536, threading.Event()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, piece)
        client.settimeout(60)
        client.connect((host, int(port)))
        head = (
            "POST /v1/locality HTTP/1.1",
            f"Host: {host}",
            "Connection: close",
            f"Content-Length: {len(text)}",
        )
        client.sendall("\r\n".join((*head, "", "")).encode() + text)
        answer = bytearray()
        while got := client.recv(piece):
            answer += got
            pause.wait(len(got) / bytes_per_second)
    return [json.loads(line) for line in unchunk(bytes(answer)).splitlines()]


def unchunk(answer: bytes) -> bytes:
    """Return the body of a chunked answer; fail if its end is missing."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    assert rest.endswith(b"\r\n0\r\n\r\n"), "the server cut the answer"
    body = bytearray()
    while rest:
        digits, _, rest = rest.partition(b"\r\n")
        size = int(digits, 16)
        body += rest[:size]
        rest = rest[size + 2 :]
    return bytes(body)


@pytest.mark.outside
def test_server_answers_few_requests_at_a_time_and_recovers():
    server = Server(STATE)
    with server.http:
        server.gate.clear()
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(server.post(datasets=[L1]).status_code))
            for _ in range(MAX_REQUESTS + 1)
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: answers == [429], 30, "the refusal of one request too many")
        server.gate.set()
        for thread in threads:
            thread.join(60)
        assert answers == [429, *[200] * MAX_REQUESTS]
        refused = [server.post(datasets=["bad"]).status_code for _ in range(MAX_REQUESTS + 1)]
        assert set(refused) == {400}
        assert server.post(datasets=[L1]).status_code == 200


@pytest.mark.outside
def test_client_that_leaves_in_the_middle_frees_its_place():
    state, dids = large_state(3000, 30)
    with (server := Server(state)).http:
        for _ in range(MAX_REQUESTS + 1):
            with httpx.stream(
                "POST",
                server.http.url + "/v1/locality",
                json={"datasets": dids},
                trust_env=False,
                timeout=120,
            ) as answer:
                assert answer.status_code in {200, 429}
                next(answer.iter_raw())
        wait_for(lambda: server.post(datasets=dids[:1]).status_code == 200, 30, "a free place")
        wait_for(
            lambda: [server.post(datasets=dids[:1]).status_code for _ in range(3)] == [200] * 3,
            30,
            "free places",
        )


def test_gzip_of_chunks_is_one_whole_stream():
    lines = [b'{"did": "s:d%d"}\n' % number for number in range(20_000)]
    assert gzip.decompress(b"".join(gather_chunks(iter(lines), use_gzip=True))) == b"".join(lines)
