"""Steps of the wall clock under a running daemon: it goes on polling, and no fact looks newer than it is."""

import json

import pytest

from testbed.patience import wait_for
from testbed.stepped import SteppedClock
from tests.daemon import Running
from tests.parts import needs

HOUR = 3600


@pytest.fixture
def clock(tmp_path):
    with needs("libfaketime"):
        return SteppedClock(tmp_path)


@pytest.fixture
def daemon(daemon, clock):
    daemon.environ = clock.environ
    return daemon


def hold(daemon: Running, *datasets: str) -> None:
    daemon.catalogue({did: {"CAM": "available"} for did in datasets})


def as_of(daemon: Running) -> int:
    return int(daemon.get("/v1/sites/CAM/ad").headers["X-DataLocality-AsOf"])


def steps(daemon: Running) -> list[int]:
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines()]
    return [round(line["seconds"]) for line in lines if line["event"].startswith("wall clock was set")]


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_step_ends_the_daemon_with_1_and_a_new_start_follows_the_catalogue(daemon, clock, step):
    daemon.start()
    wait_for(lambda: "lofar:L1" in daemon.ad(), "the first dataset")
    generation = daemon.generation()
    clock.step(step)
    assert daemon.process.wait(60) == 1
    assert steps(daemon) == [step]
    hold(daemon, "lofar:L1", "lofar:L2")
    daemon.start()
    wait_for(lambda: "lofar:L2" in daemon.ad(), "a poll after the step")
    assert daemon.generation() > generation
    assert abs(as_of(daemon) - clock.now()) < 60
    assert daemon.end() == 0
