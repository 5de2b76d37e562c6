"""The client of contrib/: pages, batches, busy servers, cut answers and secrets."""

import gzip
import json
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import pytest
from prometheus_client import CollectorRegistry

from contrib.hydrator_locality import MAX_DATASETS, LocalityClient, LocalityError
from hydrator.domain.model import MAX_DID_CHARS, DatasetState, Did, Fact, Site, SiteFacts, Snapshot
from hydrator.server.app import build_app
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from tests.factories import MINUTE, NOON, demand, want

pytestmark = pytest.mark.outside

ROOT = Path(__file__).parents[3]
HEAD = {"version": 1, "sites": []}


def row(did: str) -> dict:
    return {"did": did, "sites": []}


class Scripted:
    """An HTTP server that gives one scripted answer after the other, and keeps the requests."""

    def __init__(self, *answers: tuple[int, dict, bytes]) -> None:
        self.requests: list[tuple[dict, dict]] = []
        script = iter(answers)
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                requests.append((dict(self.headers), body))
                status, headers, text = next(script)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.pauses: list[float] = []

    def client(self, **more) -> LocalityClient:
        url = f"http://127.0.0.1:{self._server.server_port}"
        return LocalityClient(url, sleep=self.pauses.append, **more)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def lines(*rows: dict) -> tuple[int, dict, bytes]:
    return 200, {}, b"".join(json.dumps(each).encode() + b"\n" for each in rows)


def refusal(status: int, **headers: str) -> tuple[int, dict, bytes]:
    return (
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
        b'{"detail": "too busy"}',
    )


def test_client_follows_the_pages_of_an_answer():
    first = lines(HEAD, row("s:a"), {"next": "s:a"})
    with Scripted(first, lines(HEAD, row("s:b"), {"next": None})) as server:
        found = list(server.client(token="secret").find(["s:b", "s:a", "s:a"], sites=["UK"], cpus=4))
    assert [each["did"] for each in found] == ["s:a", "s:b"]
    (headers, body), (_, after) = server.requests
    assert headers["Authorization"] == "Bearer secret"
    assert body == {"datasets": ["s:a", "s:b"], "cpus": 4, "sites": ["UK"]}
    assert after == {**body, "after": "s:a"}


def test_client_reads_gzip_and_waits_while_the_server_is_busy():
    status, _, text = lines(HEAD, row("s:a"), {"next": None})
    packed = status, {"Content-Encoding": "gzip"}, gzip.compress(text)
    with Scripted(refusal(429, Retry_After="3"), refusal(503, Retry_After="900"), packed) as server:
        assert list(server.client().find(["s:a"])) == [row("s:a")]
        assert server.pauses == [3, 30]


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (lines(HEAD, row("s:a")), "cut its answer"),
        ((200, {"Content-Length": "9999"}, b'{"version": 1}\n'), "cut its answer"),
        ((200, {"Content-Encoding": "gzip"}, gzip.compress(b"{}" * 999)[:20]), "no complete answer"),
        ((200, {}, b"<html>"), "no complete answer"),
        ((200, {}, b"[]\n"), "a line is not a JSON object"),
        (refusal(400), "answered 400: too busy"),
        (refusal(403), "answered 403: too busy"),
    ],
)
def test_client_never_takes_a_failure_for_an_answer(answer, part):
    with Scripted(answer) as server, pytest.raises(LocalityError, match=part):
        list(server.client().find(["s:a"]))


def test_client_never_takes_an_empty_answer_for_a_set():
    with Scripted((200, {}, b"")) as server, pytest.raises(LocalityError, match="cut its answer"):
        server.client().find_set(["s:a"])


def test_adapters_run_on_python_3_9():
    vermin = shutil.which("vermin", path=str(Path(sys.executable).parent)) or "vermin"
    files = [str(file) for file in sorted((ROOT / "contrib").rglob("*.py"))]
    assert len(files) >= 5
    done = subprocess.run(
        [vermin, "-t=3.9-", "--no-tips", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_client_gives_up_when_the_server_stays_busy():
    with (
        Scripted(*[refusal(429)] * 5) as server,
        pytest.raises(LocalityError, match="answered 429: too busy"),
    ):
        list(server.client().find(["s:a"]))
    assert server.pauses == [1, 1, 1, 1]


def test_client_sends_no_token_unencrypted_and_says_what_is_missing(tmp_path):
    for url in ("http://hydrator.example.org", "http://10.0.0.1:8471"):
        with pytest.raises(LocalityError, match="unencrypted"):
            LocalityClient(url, "secret")
    LocalityClient("https://hydrator.example.org", "secret")
    with pytest.raises(LocalityError, match="not an address"):
        LocalityClient("file:///etc/passwd")
    with pytest.raises(LocalityError, match="set HYDRATOR_URL"):
        LocalityClient.from_environment({})
    with pytest.raises(LocalityError, match="cannot read HYDRATOR_TOKEN_FILE"):
        LocalityClient.from_environment(
            {"HYDRATOR_URL": "http://127.0.0.1:1", "HYDRATOR_TOKEN_FILE": str(tmp_path / "none")}
        )


def test_client_asks_a_real_server_about_more_datasets_than_one_request_takes():
    """The names are the longest that the daemon accepts, and a request must have room for 10,000."""
    longest = "d" * (MAX_DID_CHARS - len("s:00000"))
    dids = [Did(f"s:{longest}{number:05}") for number in range(MAX_DATASETS + 5)]
    facts = SiteFacts(NOON, {did: Fact(DatasetState.AVAILABLE, NOON) for did in dids})
    state = ServerState({}, Snapshot({Site("UK"): facts}), demand(want(*dids)), None, NOON)
    asgi = build_app(lambda: state, CollectorRegistry(), max_age=MINUTE)
    with HttpServer(asgi) as server:
        client = LocalityClient(server.url)
        assert [each["did"] for each in client.find(dids)] == dids
        assert client.find_set(dids[:9])["sites"][0]["share"] == 1
        with pytest.raises(
            LocalityError, match="answered 400: datasets: List should have at most 10000 items"
        ):
            client.find_set(dids)
