"""Rucio's own events, sent by its hermes to Debian's RabbitMQ, bring the daemon's poll: all real."""

import itertools
import json
import secrets
import subprocess

import pytest

from testbed.demo import RucioHoldings
from testbed.installation import wait_for
from testbed.rabbitmq import USER, RabbitMq
from tests.integration.test_events import HOURLY, Told
from tests.parts import NO_RABBITMQ, needs

pytestmark = [pytest.mark.rucio, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "/topic/rucio.events"
SCOPES = (f"told-{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def rabbitmq():
    with needs(NO_RABBITMQ):
        started = RabbitMq.start()
    with started:
        yield started


class Site(Told):
    """A daemon on a real Rucio and a real broker, which polls once an hour without an event."""

    def __init__(self, folder, server, broker: RabbitMq) -> None:
        self.broker, self.server = broker, server
        self.holdings = RucioHoldings(server, folder, ["CAM", "RAL"], scope=next(SCOPES))
        self.did = f"{self.holdings.scope}:L1"
        super().__init__(folder)

    def configure(self, extra: str = "", poll: float = HOURLY) -> None:
        (self.folder / "broker").write_text(self.broker.password)
        (self.folder / "config.toml").write_text(
            f"""
            [daemon]
            state_dir = "state"
            poll_seconds = {poll}
            {self.holdings.section()}
            [demand]
            ask_schedds = false
            pins = ["{self.did}"]
            [publish.collector]
            enabled = false
            [publish.file]
            directory = "ads"
            [publish.http]
            port = {self.port}
            [events]
            spacing_seconds = 0.1
            [[events.stomp]]
            name = "rucio"
            host = "127.0.0.1"
            port = {self.broker.port}
            tls = false
            virtual_host = "/"
            destination = "{TOPIC}"
            username = "{USER}"
            password_file = "broker"
            """
        )

    def hermes(self) -> None:
        where = {"port": self.broker.port, "username": USER, "password": self.broker.password}
        self.server.seed(("tell", {**where, "destination": TOPIC}))

    def checked(self) -> dict[str, str]:
        """Return the finding of `hydrator check` about the broker."""
        findings = json.loads(self.command("check", "--json").stdout)
        return next(finding for finding in findings if finding["subject"] == "events rucio")

    def connected(self) -> bool:
        return self.metric('hydrator_event_connected{source="rucio"}') == 1


@pytest.fixture
def site(tmp_path, rucio_server, rabbitmq):
    running = Site(tmp_path, rucio_server, rabbitmq)
    yield running
    if running.process and running.process.poll() is None:
        running.process.kill()
        running.process.wait()


def test_events_of_a_transfer_update_the_ad_long_before_the_next_poll(site):
    site.holdings.put(site.did, {"CAM": "available"})
    site.start()
    wait_for(lambda: site.did in site.ad("CAM") and site.connected(), 60, "the first poll and the broker")
    site.holdings.promise(site.did, "RAL")
    site.hermes()
    wait_for(lambda: "STAGING" in site.ad("RAL"), 60, "the transfer that began")
    site.holdings.convey("RAL", files=4)
    assert "STAGING" in site.ad("RAL")
    site.hermes()
    wait_for(lambda: f'AvailableDatasets = {{"{site.did}"}}' in site.ad("RAL"), 60, "the transfer that ended")
    heeded = site.metric('hydrator_events_total{outcome="accepted",source="rucio"}')
    assert heeded >= 4
    assert site.early() >= 2
    assert site.checked()["message"] == f"accepts the login and the subscription to {TOPIC}"
    assert site.end() == 0


def test_a_real_broker_that_crashes_is_a_gap_that_a_poll_closes(site):
    site.holdings.put(site.did, {"CAM": "available"})
    site.start()
    wait_for(lambda: site.did in site.ad("CAM") and site.connected(), 60, "the first poll and the broker")
    site.broker.pause()
    try:
        wait_for(lambda: not site.connected(), 60, "the loss")
        site.holdings.promise(site.did, "RAL")
        assert "STAGING" not in site.ad("RAL")
    finally:
        site.broker.resume()
    wait_for(lambda: "STAGING" in site.ad("RAL"), 120, "the change without an event")
    assert site.metric('hydrator_event_gaps_total{reason="connection"}') == 1
    assert site.broker.password not in site.log.read_text()


def test_broker_that_rejects_the_password_is_reported_with_the_reason(site):
    site.holdings.put(site.did, {"CAM": "available"})
    (site.folder / "broker").write_text(wrong := secrets.token_hex(8))
    site.start()
    wait_for(lambda: '"event broker not connected"' in site.log.read_text(), 60, "the refusal")
    log = site.log.read_text()
    assert "Bad CONNECT" in log
    assert wrong not in log
    checked = site.checked()
    assert (checked["level"], "Bad CONNECT" in checked["message"], wrong in str(checked)) == (
        "warn",
        True,
        False,
    )


def test_broker_leaves_no_process_and_no_file(rabbitmq):
    with RabbitMq.start() as another:
        folder = another.folder
        assert another.port != rabbitmq.port
    assert not folder.exists()
    assert (
        str(folder) not in subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout
    )
