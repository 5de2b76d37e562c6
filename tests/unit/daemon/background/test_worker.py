"""Background work beside the cycles: a turn with a bug fails alone and runs again."""

import pytest
from prometheus_client import CollectorRegistry

from hydrator.daemon.background.worker import BackgroundWorker
from hydrator.daemon.metrics import Metrics
from hydrator.daemon.runtime import Turns


class Slots(BackgroundWorker):
    """Turns of one kind."""

    EXECUTOR_NAMES = ("slots",)


@pytest.mark.parametrize("error", [OverflowError("year 33000"), SystemExit(3), KeyboardInterrupt()])
def test_turn_that_raises_is_reported_and_runs_again(error):
    bugs, runs = [], []
    slots, turns = Slots(Metrics(CollectorRegistry(), "1"), bugs.append), Turns()

    def look():
        runs.append(1)
        raise error

    for _ in range(2):
        slots._run_turn(turns, "slots", look)
    assert (len(runs), bugs) == (2, ["the turn of slots"] * 2)
