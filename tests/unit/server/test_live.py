"""Live updates of the pages: an event at each change, soon, and only to clients that may read."""

import threading
from datetime import timedelta
from typing import Self

import httpx
import pytest

from hydrator.domain.model import Snapshot
from hydrator.server.api.live import LiveUpdates
from hydrator.server.auth import Role, TokenAuthenticator, create_token
from tests.factories import CAM, NOON, server_state
from tests.served import server_of

pytestmark = pytest.mark.outside

STREAM = {"Accept": "text/event-stream"}
STATE = server_state({}, Snapshot({}), None, None, NOON)
SOON = timedelta(milliseconds=20)


class Served:
    """A server whose version the test changes."""

    def __init__(self, authenticator=None, **limits) -> None:
        self.version = 1
        self.live = LiveUpdates(lambda: self.version, interval=SOON, **limits)
        self.server = server_of(
            lambda: STATE, on_stop=self.live.close, authenticator=authenticator, live=self.live
        )

    def __enter__(self) -> Self:
        self.server.start()
        self.client = httpx.Client(base_url=self.server.url, trust_env=False, timeout=60)
        return self

    def __exit__(self, *_) -> None:
        self.client.close()
        self.server.stop()

    def open(self, have: str = "", **headers: str):
        return self.client.stream("GET", f"/live?have={have}", headers={**STREAM, **headers})


def ids(lines, count: int) -> list[str]:
    """Read the ids of the next *count* events."""
    found = []
    for line in lines:
        if line.startswith("data: "):
            found.append(line.removeprefix("data: "))
        if len(found) == count:
            break
    return found


def test_a_stream_has_an_event_at_each_change_and_none_for_what_the_page_has():
    with Served() as served, served.open(served.live.current_id()) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["X-Accel-Buffering"] == "no"
        lines = answer.iter_lines()
        assert next(lines) == "retry: 100"
        served.version = 2
        first = ids(lines, 1)
        served.version = 3
        assert first + ids(lines, 1) == [served.live.current_id()[:-1] + number for number in "23"]


def test_a_page_that_is_old_hears_it_at_once_also_after_a_reconnect():
    with Served() as served:
        current = served.live.current_id()
        with served.open("of-an-earlier-process") as answer:
            assert ids(answer.iter_lines(), 1) == [current]
        with served.open(current, **{"Last-Event-ID": "old"}) as answer:
            assert ids(answer.iter_lines(), 1) == [current]


def test_a_stream_ends_before_the_time_limit_of_a_request():
    with Served(max_duration=timedelta(milliseconds=200), max_streams=1) as served:
        for _ in range(2):
            with served.open() as answer:
                assert ids(answer.iter_lines(), 99) == [served.live.current_id()]


def test_streams_are_bounded_and_the_next_reader_gets_a_sentence():
    with Served(max_streams=1) as served, served.open() as first:
        assert first.status_code == 200
        refused = served.client.get("/live", headers=STREAM)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "30")
        assert refused.json()["detail"] == "1 pages are open already: load the page again by hand"


def test_a_client_that_reads_no_streams_gets_one_event():
    with Served() as served:
        answer = served.client.get("/live")
        assert answer.text.startswith(f"id: {served.live.current_id()}\nevent: change\n")
        assert served.client.head("/live", headers=STREAM).status_code == 200


def test_open_streams_do_not_hold_up_the_end_of_the_server():
    with Served() as served, served.open() as answer:
        lines = answer.iter_lines()
        assert len(ids(lines, 1)) == 1
        stopping = threading.Thread(target=served.server.stop, args=(timedelta(seconds=60),))
        stopping.start()
        assert ids(lines, 99) == []  # the stream ends in good order
        stopping.join(60)
        assert not stopping.is_alive()


def test_a_stream_needs_a_token_for_reading_and_the_script_needs_none(tmp_path):
    file = tmp_path / "tokens"
    token, grant = create_token(Role.READ, None, "2026-11-21")
    site_token, site_grant = create_token(Role.SITE, CAM, "2026-11-21")
    file.write_text(grant.line + site_grant.line)
    file.chmod(0o600)
    with Served(TokenAuthenticator.open(file), max_duration=SOON) as served:
        statuses = [
            served.client.get(
                "/live", headers={**STREAM, **({"Authorization": f"Bearer {each}"} if each else {})}
            )
            for each in ("", site_token, token)
        ]
        assert [each.status_code for each in statuses] == [401, 403, 200]
        script = served.client.get("/page.js")
        assert script.status_code == 200
        assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert "immutable" in script.headers["Cache-Control"]


@pytest.mark.parametrize(("query", "is_renewed"), [("", True), ("?find=L1", True), ("?still=1", False)])
def test_a_page_without_scripts_renews_itself_until_the_reader_stops_that(query, is_renewed):
    with Served() as served:
        text = served.client.get(f"/{query}").text
        assert ('http-equiv="refresh"' in text) == is_renewed
        assert ("still=1" in text) == is_renewed
        assert f'data-version="{served.live.current_id()}"' in text
