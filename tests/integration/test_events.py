"""`hydrator run` with events: they bring a poll forward, and their content changes no state."""

import json
import re
import secrets
import time

import httpx
import pytest

from testbed.installation import wait_for
from testbed.metrics import total
from testbed.stomp import FakeBroker
from tests.integration.test_daemon import Running

HOURLY = 3600
"""Seconds between polls that no event asked for: none of them comes while a test lasts."""
HOOK = 'tokens_file = "tokens"\n[events]\nwebhook = true\nspacing_seconds = 0.1\n'


class Told(Running):
    """A daemon with a webhook."""

    reader = ""

    def begin(self, extra: str = HOOK) -> None:
        (self.folder / "tokens").touch(0o600)
        self.configure(extra, poll=HOURLY)
        self.sender = self.token("event")
        self.reader = self.token("read")
        self.start()
        wait_for(lambda: "lofar:L1" in self.ad(), 20, "the first dataset")

    def token(self, role: str) -> str:
        return self.command("token", "new", "--role", role).stdout.strip()

    def get(self, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.reader}"} if self.reader else {}
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.get(url, headers=headers, trust_env=False, timeout=120)

    def tell(self, name: str = "L1", kind: str = "rule_ok", token: str | None = None, **payload: str) -> int:
        event = {"event_type": kind, "payload": {"scope": "lofar", "name": name, **payload}}
        headers = {"Authorization": f"Bearer {token or self.sender}"}
        url = f"http://127.0.0.1:{self.port}/v1/events"
        return httpx.post(url, json=event, headers=headers, trust_env=False, timeout=120).status_code

    def answers(self, status: int, name: str = "L2") -> bool:
        """Return True if an event about *name* gets this answer; not while a reload opens the server."""
        try:
            return self.tell(name) == status
        except httpx.TransportError:
            return False

    def metric(self, series: str) -> float:
        return total(self.get("/metrics").text, series)

    def polls(self) -> float:
        return self.metric('hydrator_cycles_total{outcome="complete"}')

    def early(self) -> float:
        return self.metric("hydrator_early_polls_total")


@pytest.fixture
def daemon(tmp_path):
    running = Told(tmp_path)
    yield running
    if running.process and running.process.poll() is None:
        running.process.kill()
        running.process.wait()


def test_event_brings_a_poll_forward_and_one_of_another_dataset_does_not(daemon):
    daemon.begin()
    daemon.catalogue({"lofar:L1": {"CAM": "available", "RAL": "available"}})
    assert daemon.tell("L2") == 202
    dropped = 'hydrator_events_total{outcome="unwanted",source="webhook"}'
    assert (daemon.metric(dropped), daemon.early(), "lofar:L1" in daemon.ad("RAL")) == (1, 0, False)
    assert daemon.tell("L1") == 202
    wait_for(lambda: "lofar:L1" in daemon.ad("RAL"), 60, "the announced change")
    assert daemon.early() == 1
    assert daemon.end() == 0


def test_no_event_changes_what_is_published_whoever_sends_it_and_whatever_it_says(daemon):
    daemon.begin()

    def shown() -> tuple:
        """Return all fields except the time of the query."""
        lines = (daemon.ad() + daemon.ad("RAL")).splitlines()
        return [line for line in lines if not line.startswith("DataLocalityAsOf")], daemon.generation()

    before = shown()
    for token, status in ((daemon.reader, 403), ("hydrator_guessed", 401)):
        assert daemon.tell("L1", token=token) == status
    assert daemon.early() == 0
    polls = daemon.polls()
    for kind in ("erase", "lost", "deletion-done", "transfer-done"):
        assert (
            daemon.tell("L1", kind, rse="RAL", state="AVAILABLE", dataset="L1", datasetScope="lofar") == 202
        )
    wait_for(lambda: daemon.polls() > polls, 60, "a poll that the events asked for")
    assert shown() == before


NAME = "canary-observation.ms"
"""Of a private dataset: it must show nowhere."""


def test_a_private_dataset_is_told_of_by_its_name_which_shows_nowhere(daemon):
    key = daemon.folder / "key"
    key.touch(0o600)
    key.write_text("canary-key-" + secrets.token_hex(32))
    private = f'[private]\npatterns = ["embargo:*"]\nkey_file = "{key}"\n[log]\nlevel = "debug"\n'
    hidden = f"embargo:{NAME}"
    daemon.catalogue({"lofar:L1": {"CAM": "available"}, hidden: {"CAM": "available"}})
    daemon.begin(f"{HOOK}late_seconds = 0.1\n{private}")
    (opaque,) = re.findall(r"private:\w+", daemon.ad().partition("DatasetStates")[0])
    assert opaque not in daemon.ad("RAL")

    both = {"CAM": "available", "RAL": "available"}
    daemon.catalogue({"lofar:L1": {"CAM": "available"}, hidden: both})
    assert daemon.tell(NAME, scope="embargo", token=daemon.reader) == 403
    assert daemon.tell(f"other-{NAME}", scope="embargo") == 202
    dropped = 'hydrator_events_total{outcome="unwanted",source="webhook"}'
    assert (daemon.metric(dropped), daemon.early()) == (1, 0)
    assert daemon.tell(NAME, scope="embargo") == 202
    wait_for(lambda: opaque in daemon.ad("RAL"), 60, "the announced change")

    # the event before counts for a change that a poll sees within late_seconds of the poll before it
    polled, since = daemon.polls(), time.monotonic()
    wait_for(
        lambda: daemon.tell("L1") and daemon.polls() >= polled + 2 and time.monotonic() > since + 1,
        60,
        "polls",
    )
    daemon.catalogue({"lofar:L1": both, hidden: {"CAM": "available", "RAL": "staging"}})

    def missed() -> bool:
        assert daemon.tell("L1") in {202, 429}  # brings polls, which see the change without an event
        return "events may be missing" in daemon.log.read_text()

    wait_for(missed, 60, "the gap")
    paths = ["/", "/metrics", "/v1/sites", "/v1/datasets", f"/v1/datasets?did={opaque}"]
    answers = [daemon.ad("CAM"), daemon.ad("RAL"), *(daemon.get(path).text for path in paths)]
    assert opaque in answers[0]
    assert opaque in daemon.log.read_text(), "the gap names it so"
    ads = [file.read_text() for file in (daemon.folder / "ads").iterdir()]
    for shown in (*answers, *ads, daemon.log.read_text()):
        assert "canary" not in shown.lower()
    assert daemon.end() == 0
    assert "canary" not in daemon.log.read_text().lower()


def test_a_storm_of_events_brings_no_poll_sooner_than_the_spacing_allows(daemon):
    daemon.begin(HOOK.replace("= 0.1", "= 3600"))
    daemon.catalogue({"lofar:L1": {"CAM": "available", "RAL": "available"}})
    for _ in range(50):
        assert daemon.tell() == 202
    assert daemon.metric('hydrator_events_total{outcome="accepted",source="webhook"}') == 50
    assert (daemon.early(), daemon.polls()) == (0, 1)  # the first poll was less than an hour ago


def test_events_without_end_bring_a_poll_a_second_and_not_one_each(daemon):
    daemon.begin('tokens_file = "tokens"\n[events]\nwebhook = true\n')
    daemon.catalogue({"lofar:L1": {"CAM": "available", "RAL": "available"}})
    begun, accepted = time.monotonic(), 0
    while time.monotonic() < begun + 4:
        accepted += daemon.tell() == 202
    wait_for(lambda: "lofar:L1" in daemon.ad("RAL"), 60, "the announced change")
    early = daemon.early()
    seconds = time.monotonic() - begun  # spacing_seconds is 1
    assert 1 <= early <= 1 + seconds
    assert daemon.metric('hydrator_events_total{outcome="accepted",source="webhook"}') == accepted


def test_reload_opens_and_closes_the_webhook_and_events_work_after_it(daemon):
    daemon.begin('tokens_file = "tokens"\n')
    assert daemon.tell() == 413  # no body is read where no events are taken
    daemon.configure(HOOK, poll=HOURLY)
    daemon.process.send_signal(1)
    wait_for(lambda: daemon.answers(202), 60, "the webhook")
    daemon.catalogue({"lofar:L1": {"CAM": "available", "RAL": "available"}})

    def told() -> bool:
        daemon.tell()
        return "lofar:L1" in daemon.ad("RAL")

    wait_for(told, 60, "the announced change")
    daemon.configure('tokens_file = "tokens"\n', poll=HOURLY)
    daemon.process.send_signal(1)
    wait_for(lambda: daemon.answers(413), 60, "no webhook")


def test_webhook_without_tokens_is_rejected_in_one_sentence(daemon):
    daemon.configure("[events]\nwebhook = true\n")
    refused = daemon.command("run")
    assert refused.returncode == 2
    assert "events.webhook: set publish.http.tokens_file too" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_change_of_which_no_event_told_is_noticed_by_polls(daemon):
    daemon.begin(f"{HOOK}late_seconds = 0.1\n")
    daemon.configure(f"{HOOK}late_seconds = 0.1\n", poll=0.2)
    daemon.process.send_signal(1)
    wait_for(lambda: daemon.polls() > 3, 60, "polls")
    daemon.catalogue({"lofar:L1": {"CAM": "available", "RAL": "available"}})
    gap = 'hydrator_event_gaps_total{reason="unannounced"}'
    wait_for(lambda: daemon.metric(gap) == 1, 60, "the gap")
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line.startswith("{")]
    assert [line["why"] for line in lines if line["event"] == "events may be missing"] == [
        "1 dataset changed without an event, for example lofar:L1"
    ]


def test_a_broker_that_goes_and_comes_back_is_a_gap_that_a_poll_closes(daemon):
    with FakeBroker() as broker:
        daemon.begin(
            f'tokens_file = "tokens"\n[events]\nspacing_seconds = 0.1\n[[events.stomp]]\nname = "rucio"\n'
            f'host = "127.0.0.1"\nport = {broker.port}\ntls = false\ndestination = "/topic/rucio"\n'
        )
        up = 'hydrator_event_connected{source="rucio"}'
        wait_for(lambda: daemon.metric(up) == 1, 60, "the connection")
        daemon.catalogue({"lofar:L1": {"CAM": "available", "RAL": "staging"}})
        broker.send(b'{"event_type": "rule_ok", "payload": {"scope": "lofar", "name": "L1"}}')
        wait_for(lambda: "STAGING" in daemon.ad("RAL"), 60, "the announced change")
        daemon.catalogue({"lofar:L1": {"CAM": "available", "RAL": "available"}})
        broker.drop()
        wait_for(lambda: "AVAILABLE" in daemon.ad("RAL"), 60, "the change without an event")
        assert daemon.metric('hydrator_event_gaps_total{reason="connection"}') == 1
        assert daemon.end() == 0
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line.startswith("{")]
    (lost,) = [line for line in lines if line["event"] == "event broker not connected"]
    assert (lost["source"], lost["why"]) == ("rucio", "the broker closed the connection")
