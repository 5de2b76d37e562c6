"""Background work beside the cycles: a turn with a bug fails alone and runs again."""

import threading
from datetime import UTC

import pytest
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry

from hydrator.config import AuditSettings
from hydrator.daemon.background import AuditTasks
from hydrator.daemon.background.worker import BackgroundWorker
from hydrator.daemon.metrics import Metrics
from hydrator.domain.errors import SupersededByReload
from hydrator.reconcile.publish.fence import Fence
from testbed.patience import wait_for


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


@pytest.mark.outside
def test_an_auditor_that_would_end_us_is_asked_again():
    bugs, asked = [], []

    class Audit:
        has_probe = False

        def verify_next(self):
            asked.append(1)
            raise SystemExit

    ending = threading.Event()
    scheduler = BackgroundScheduler(executors={"files": ThreadPoolExecutor(1)}, timezone=UTC)
    questions = AuditTasks(Metrics(CollectorRegistry(), "1"), bugs.append, ending)
    questions.schedule(scheduler, Fence(), AuditSettings(calls_per_second=50), Audit(), None)
    scheduler.start()
    try:
        wait_for(lambda: len(asked) >= 3, 20, "a third question")
    finally:
        ending.set()
        scheduler.shutdown()
    assert bugs
