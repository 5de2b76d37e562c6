"""Answers of Rucio: a write was executed, refused, or its outcome is unknown; failed queries wait."""

from datetime import timedelta
from io import BytesIO
from types import SimpleNamespace

import pytest
import requests
from rucio.common.exception import ServerConnectionException
from urllib3.exceptions import MaxRetryError, NewConnectionError, ProtocolError

from adapters.rucio.session.client import _LAST_ERROR, RucioConnection, _describe_error
from adapters.rucio.session.queries import FailedQueries
from adapters.rucio.session.settings import RucioSettings
from adapters.rucio.session.transport import (
    NotFound,
    WriteRefused,
    WriteUnconfirmed,
    unanswered_write_error,
    write_error,
)
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from tests.factories import HOUR, L1, L2, MINUTE, NOON

WEB_PAGE = {"Content-Type": "text/html", "Content-Length": "20"}
CONFIRMED = {"Content-Type": "text/html; charset=utf-8", "Content-Length": "0"}


def answer(status: int, **headers: str):
    made = requests.Response()
    made.status_code, made.request = (
        status,
        requests.Request("POST", "https://rucio.example/rules/").prepare(),
    )
    made.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return write_error("rucio", made)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (201, WEB_PAGE),
        (200, CONFIRMED),
        (200, {"Content-Length": "2"}),
        (401, {"ExceptionClass": "CannotAuthenticate"}),  # the client logs in again
    ],
    ids=str,
)
def test_write_that_was_executed_or_will_be_repeated_is_no_error(status, headers):
    assert answer(status, **headers) is None


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        *((status, {}) for status in (500, 502, 504)),
        (500, {"ExceptionClass": "DatabaseException"}),
        (503, {"Retry-After": "1"}),
        (302, {"Location": "/elsewhere"}),
        (200, WEB_PAGE),
        (200, {}),
    ],
    ids=str,
)
def test_write_without_a_usable_answer_is_in_doubt(status, headers):
    assert type(answer(status, **headers)) is WriteUnconfirmed


@pytest.mark.parametrize(
    ("status", "kind"), [(500, "RSEWriteBlocked"), (409, "DuplicateRule"), (401, "AccessDenied")]
)
def test_exception_that_rucio_names_refuses_the_write_whatever_the_status(status, kind):
    error = answer(status, ExceptionClass=kind, ExceptionMessage="not\nnow")
    assert isinstance(error, WriteRefused)
    assert (error.kind, error.reason) == (kind, "not now")


@pytest.mark.parametrize(("status", "kind"), [(404, CatalogueGarbled), (429, CatalogueUnreachable)])
def test_server_before_rucio_that_takes_no_write_has_not_executed_it(status, kind):
    assert type(answer(status)) is kind


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (requests.ConnectTimeout(), CatalogueUnreachable),
        (requests.exceptions.SSLError(), CatalogueUnreachable),
        (
            requests.ConnectionError(MaxRetryError(None, "/", NewConnectionError(None, "refused"))),
            CatalogueUnreachable,
        ),
        (requests.ConnectionError(ProtocolError("reset")), WriteUnconfirmed),
        (requests.ReadTimeout(), WriteUnconfirmed),
    ],
    ids=repr,
)
def test_write_is_in_doubt_unless_there_was_no_connection(exc, kind):
    assert type(unanswered_write_error("rucio", exc, "why")) is kind


@pytest.mark.parametrize(("host", "shown"), [("a", "a"), ("2001:db8::1", "[2001:db8::1]")])
def test_a_connection_that_failed_has_the_reason_of_the_operating_system(monkeypatch, host, shown):
    refused = "NewConnectionError('<HTTPConnection object at 0x7f>: [Errno 111] Connection refused')"
    pool = f"HTTPConnectionPool(host='{host}', port=9)"
    logged = f"ConnectionError: {pool}: Max retries exceeded (Caused by {refused})"
    monkeypatch.setattr(_LAST_ERROR, "text", logged)
    text = _describe_error(ServerConnectionException(), 0)
    assert text.endswith(f" {shown}:9: Connection refused")
    assert "HTTPConnectionPool" not in text


@pytest.mark.parametrize("error", [CatalogueGarbled("rucio", "half a line"), ServerConnectionException()])
def test_connection_of_an_answer_that_breaks_off_is_closed(error, tmp_path):
    """Else it stays open until the garbage collector finds it."""
    settings = RucioSettings("rucio", "https://rucio.example", "hydrator", tmp_path, calls_per_second=1000)
    connection = RucioConnection(settings)
    connection._client = SimpleNamespace()
    response = requests.Response()
    response.request = requests.Request("POST", "https://rucio.example/replicas").prepare()
    response.status_code, response.raw = 200, BytesIO(b'{"name": "L1"}\n{"na')
    response.headers.update({"Content-Type": "application/x-json-stream", "Transfer-Encoding": "chunked"})

    def call(_):
        connection._receive(response)
        raise error

    with pytest.raises(CatalogueError):
        connection.ask(call)
    assert response.raw.closed


def test_failed_queries_wait_longer_each_time_until_one_is_answered():
    failed, away = FailedQueries(), CatalogueUnreachable("rucio", "away")
    keys = [("count", L1), ("name", L1), ("count", L2)]
    for _ in range(9):
        failed.add(keys[0], away, NOON)
    failed.add(keys[1], away, NOON)
    failed.add(keys[2], NotFound("rucio", "no such dataset"), NOON)
    waits = (timedelta(), timedelta(seconds=31), HOUR - MINUTE, HOUR)
    assert [failed.error_of(keys[0], NOON + wait) for wait in waits] == [away, away, away, None]
    assert [failed.error_of(keys[1], NOON + wait) for wait in waits] == [away, None, None, None]
    assert failed.error_of(keys[2], NOON) is None
    failed.remove(keys[1])
    assert failed.error_of(keys[0], NOON) is None
    failed.forget_all_but({L2})
    failed.add(keys[0], away, NOON)
    assert failed.error_of(keys[0], NOON + MINUTE) is None
