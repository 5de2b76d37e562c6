"""Log lines: one JSON object a line, with a level and the id of the request or the number of the cycle."""

import io
import json
import logging
import re
from datetime import datetime, timedelta

import httpx
import pytest
import structlog

from hydrator.domain.errors import CatalogueUnreachable
from hydrator.reconcile.reconciler import read_all
from hydrator.server.middleware import RequestPolicy
from hydrator.server.view import ServerState
from testbed.patience import wait_for
from tests.factories import CAM, L1, NOON, demand, server_state
from tests.memory import MemoryCatalogue
from tests.served import server_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_under_a_supervisor_every_line_is_one_object_with_its_time_in_utc(logged):
    log = logged(stream := io.StringIO())
    log.info("cycle", changed={"CAM in file": "new\nline"})
    logging.getLogger("a.library").warning("of %s", "others")
    ours, theirs = lines(stream)
    assert (ours["event"], ours["level"], ours["logger"]) == ("cycle", "info", "hydrator")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("of others", "warning", "a.library")
    assert datetime.fromisoformat(ours["timestamp"]).utcoffset() == timedelta()


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_on_a_terminal_lines_are_for_people_and_coloured_unless_they_want_none(
    logged, monkeypatch, no_color, coloured
):
    monkeypatch.setenv("NO_COLOR", no_color)
    logged(stream := Terminal()).info("cycle", sites=3)
    assert "sites" in stream.getvalue()
    assert not stream.getvalue().startswith("{")
    assert ("\x1b[" in stream.getvalue()) is coloured


def test_log_event_below_the_level_is_not_rendered(logged):
    log = logged(stream := io.StringIO(), "info")

    class Costly:
        def __repr__(self) -> str:
            raise AssertionError("it was made")

    log.debug("request", what=Costly())
    assert stream.getvalue() == ""


# whose it was


class Daemon:
    """A daemon whose state cannot be built while it is broken."""

    def __init__(self) -> None:
        self.broken = False

    def view(self) -> ServerState:
        structlog.get_logger("hydrator").info("looked")
        if self.broken:
            raise RuntimeError("a bug")
        return server_state({}, None, demand(), None, NOON)


@pytest.fixture(params=[False, True], ids=["alone", "behind a proxy"])
def proxied(request):
    return request.param


@pytest.fixture
def served(logged, proxied):
    daemon = Daemon()
    with (
        server_of(daemon.view, policy=RequestPolicy(behind_proxy=proxied)) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=120) as client,
    ):
        stream = io.StringIO()
        logged(stream)
        yield daemon, client, stream


@pytest.mark.outside
def test_log_lines_of_a_request_have_the_id_of_its_answer(served):
    _, client, stream = served
    ids = [client.get(path).headers["X-Request-Id"] for path in ("/", "/healthz", "/nowhere?token=secret")]
    assert len(set(ids)) == 3
    wait_for(lambda: stream.getvalue().count('"event": "request"') == 3, "the last line")
    ours = [line for line in lines(stream) if line["logger"] == "hydrator"]
    assert {(line["request"], line["event"]) for line in ours} == {
        (ids[0], "looked"),
        (ids[0], "request"),
        (ids[1], "looked"),
        (ids[1], "request"),
        (ids[2], "request"),
    }
    told = {(line["route"], line["method"], line["status"]) for line in ours if line["event"] == "request"}
    assert told == {("/", "GET", 200), ("/healthz", "GET", 200), ("other", "GET", 404)}
    assert "secret" not in stream.getvalue()


@pytest.mark.outside
def test_a_bug_is_logged_with_the_id_that_the_client_was_given(served):
    daemon, client, stream = served
    daemon.broken = True
    answer = client.get("/")
    wait_for(lambda: '"exception"' in stream.getvalue(), "the traceback")  # after the answer
    [told] = [line for line in lines(stream) if "exception" in line]
    assert (answer.status_code, told["request"]) == (500, answer.headers["X-Request-Id"])
    assert "Content-Security-Policy" in answer.headers


@pytest.mark.outside
@pytest.mark.parametrize("given", ["from-the-proxy.1", "x" * 65, "two words", ""])
def test_an_id_is_taken_over_from_a_proxy_only_and_only_if_it_is_one(served, proxied, given):
    _, client, _ = served
    taken = client.get("/healthz", headers={"X-Request-Id": given}).headers["X-Request-Id"]
    assert (taken == given) is (proxied and given == "from-the-proxy.1")
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", taken)


@pytest.mark.outside
def test_log_lines_of_a_catalogue_have_the_number_of_the_cycle(logged):
    class Loud(MemoryCatalogue):
        def read(self, dids):
            structlog.get_logger("adapters").warning("slow")
            raise CatalogueUnreachable(self.name, "too slow")

    logged(stream := io.StringIO())
    catalogues = [Loud(name, (), (CAM,), clock=lambda: NOON) for name in ("one", "two")]
    with structlog.contextvars.bound_contextvars(cycle=7):
        read_all(catalogues, {L1})
    assert [line["cycle"] for line in lines(stream)] == [7, 7]
