"""Steps of the wall clock under a running daemon: it goes on polling, and no fact looks newer than it is."""

import json
import signal

import pytest

from testbed.installation import wait_for
from testbed.stepped import SteppedClock
from tests.integration.test_daemon import Running
from tests.parts import NO_FAKE_CLOCK, needs

HOUR = 3600


@pytest.fixture
def clock(tmp_path):
    with needs(NO_FAKE_CLOCK):
        return SteppedClock(tmp_path)


@pytest.fixture
def daemon(tmp_path, clock):
    running = Running(tmp_path)
    running.environ = clock.environ
    yield running
    if running.process and running.process.poll() is None:
        running.process.kill()
        running.process.wait()


def hold(daemon: Running, *datasets: str) -> None:
    daemon.catalogue({did: {"CAM": "available"} for did in datasets})


def as_of(daemon: Running) -> int:
    return int(daemon.get("/v1/sites/CAM/ad").headers["X-DataLocality-AsOf"])


def steps(daemon: Running) -> list[int]:
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines()]
    return [round(line["seconds"]) for line in lines if line["event"] == "wall clock was set"]


def failing(daemon: Running) -> bool:
    with (daemon.folder / "catalogue.json").open("w") as file:
        file.write('{"torn')
    return any('"cycle"' in line and "catalogue.json" in line for line in daemon.log.read_text().splitlines())


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_polls_go_on_at_once_after_a_step_and_the_log_tells_its_size_once(daemon, clock, step):
    daemon.start()
    wait_for(lambda: "lofar:L1" in daemon.ad(), 10, "the first dataset")
    generation = daemon.generation()
    clock.step(step)
    hold(daemon, "lofar:L1", "lofar:L2")
    wait_for(lambda: "lofar:L2" in daemon.ad(), 10, "a poll after the step")
    assert daemon.generation() > generation
    wait_for(lambda: abs(as_of(daemon) - clock.now()) < 60, 10, "an age by the clock of now")
    assert as_of(daemon) <= clock.now()
    hold(daemon, "lofar:L3")
    wait_for(lambda: "lofar:L3" in daemon.ad(), 10, "polls to go on")
    assert steps(daemon) == [step]
    assert daemon.end() == 0


def test_what_cannot_be_read_again_looks_no_newer_after_steps_back_and_forward(daemon, clock):
    daemon.start()
    wait_for(lambda: "lofar:L1" in daemon.ad(), 10, "the first dataset")
    wait_for(lambda: failing(daemon), 10, "the catalogue to fail")
    age = clock.now() - as_of(daemon)
    for count, step in enumerate((-HOUR, 2 * HOUR, -2 * HOUR), 1):
        clock.step(step)
        wait_for(lambda count=count: len(steps(daemon)) == count, 10, "the step to be noticed")
        wait_for(lambda: as_of(daemon) <= clock.now() - age, 10, "the age to be right again")
        assert "lofar:L1" in daemon.ad()
    assert steps(daemon) == [-HOUR, 2 * HOUR, -2 * HOUR]
    hold(daemon, "lofar:L1")
    wait_for(lambda: abs(as_of(daemon) - clock.now()) < 60, 10, "it to be read again")
    assert daemon.end() == 0


def test_clock_set_back_while_the_daemon_was_down_makes_no_fact_fresh(daemon, clock):
    daemon.start()
    wait_for(lambda: "lofar:L1" in daemon.ad(), 10, "the first dataset")
    generation = daemon.generation()
    daemon.end(signal.SIGKILL)
    clock.step(-HOUR)
    (daemon.folder / "catalogue.json").unlink()
    daemon.start()
    wait_for(lambda: "'lofar:L1'=\"UNKNOWN\"" in daemon.ad(), 10, "what is of unknown age to be unknown")
    assert as_of(daemon) < clock.now() - 5 * HOUR
    hold(daemon, "lofar:L1")
    wait_for(lambda: "'lofar:L1'=\"AVAILABLE\"" in daemon.ad(), 10, "it to be read again")
    assert abs(as_of(daemon) - clock.now()) < 60
    assert daemon.generation() > generation
    assert daemon.end() == 0
