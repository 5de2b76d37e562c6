"""Background work beside the cycles: a turn with a bug fails alone and runs again."""

import pytest
from prometheus_client import CollectorRegistry

from hydrator.daemon.background.worker import BackgroundWorker
from hydrator.daemon.metrics import Metrics
from hydrator.domain.errors import SupersededByReload
from hydrator.reconcile.publish.fence import Fence


class Slots(BackgroundWorker):
    """Turns of one kind."""

    EXECUTOR_NAMES = ("slots",)


@pytest.mark.parametrize("error", [OverflowError("year 33000"), SystemExit(3), KeyboardInterrupt()])
def test_turn_that_raises_is_reported_and_runs_again(error):
    bugs, turns = [], []
    slots, fence = Slots(Metrics(CollectorRegistry(), "1"), bugs.append), Fence()

    def look(_fence):
        turns.append(1)
        raise error

    for _ in range(2):
        slots._run_turn(fence, "slots", look)
    assert (len(turns), bugs) == (2, ["the turn of slots"] * 2)


def test_turn_ended_by_its_fence_is_not_a_bug():
    slots = Slots(Metrics(CollectorRegistry(), "1"), pytest.fail)

    def look(_fence):
        raise SupersededByReload

    slots._run_turn(Fence(), "slots", look)
