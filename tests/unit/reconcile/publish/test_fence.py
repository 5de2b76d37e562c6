"""The fence: turns and steps of replaced parts end, at once or at their next step."""

import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client import CollectorRegistry

from hydrator.daemon.background.worker import BackgroundWorker, DaemonScheduler
from hydrator.daemon.metrics import Metrics
from hydrator.domain.errors import SupersededByReload
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.publish.plan import Policy
from hydrator.reconcile.publish.targets import PublishTarget
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.state import ReconcileState
from hydrator.state.store import Store
from testbed.installation import wait_for
from tests.factories import CAM, L1, MINUTE, NOON, replica
from tests.memory import MemoryCatalogue, MemoryPublisher


def test_a_closed_fence_lets_no_turn_and_no_step_begin():
    fence = Fence()
    with fence.turn("cycle"), fence.step():
        pass
    assert fence.close(0)
    for passage in (lambda: fence.turn("cycle"), fence.step):
        with pytest.raises(SupersededByReload), passage():
            pytest.fail("it began")


def test_a_turn_under_way_meets_the_closed_fence_at_its_next_step():
    fence = Fence()
    with fence.turn("cycle"):
        assert fence.close(0)
        with pytest.raises(SupersededByReload), fence.step():
            pytest.fail("it began")


def test_a_draining_fence_lets_the_turn_under_way_make_its_steps():
    fence = Fence()
    with fence.turn("cycle"):
        assert not fence.drain(0)
        with fence.step():
            pass
        with pytest.raises(SupersededByReload), fence.turn("merge"):
            pytest.fail("it began")
    assert fence.drain(0)
    assert not fence.is_closed


def test_draining_one_kind_waits_for_no_other():
    fence = Fence()
    with fence.turn("merge"):
        assert fence.drain(0, "cycle")
        assert not fence.drain(0)


@pytest.mark.outside
def test_a_close_waits_for_the_step_under_way():
    fence, inside, go_on = Fence(), threading.Event(), threading.Event()

    def step() -> None:
        with fence.step():
            inside.set()
            go_on.wait(60)

    working = threading.Thread(target=step)
    working.start()
    assert inside.wait(60)
    assert not fence.close(0)
    go_on.set()
    assert fence.close(60)
    working.join()


@pytest.mark.outside
def test_a_turn_that_waits_for_another_of_its_kind_ends_with_the_fence():
    fence, waiting = Fence(), []

    def turn() -> None:
        try:
            with fence.turn("merge"):
                waiting.append("began")
        except SupersededByReload:
            waiting.append("fenced")

    with fence.turn("merge"):
        second = threading.Thread(target=turn)
        second.start()
        fence.close(0)
        second.join(60)
    assert waiting == ["fenced"]


class Blocked(MemoryPublisher):
    """A publisher that waits in the middle of what it sends."""

    def __init__(self, **more) -> None:
        super().__init__("collector", **more)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def published(self):
        if not self.go_on.is_set():
            self.reached.set()
            self.go_on.wait(60)
        return super().published()


def cycle_over(publisher, store, fence) -> Reconciler:
    return Reconciler(
        catalogues=[MemoryCatalogue("file", [replica(L1)], [CAM], clock=lambda: NOON)],
        queues=None,
        targets=[PublishTarget(publisher, Policy(5 * MINUTE, has_expiring_ads=True))],
        policy=ReconcilePolicy(pins=frozenset({L1})),
        clock=lambda: NOON,
        state=ReconcileState(),
        store=store,
        fence=fence,
    )


@pytest.mark.outside
def test_cycle_of_replaced_parts_saves_and_sends_nothing(tmp_path):
    fence, publisher = Fence(), Blocked(clock=lambda: NOON)
    ended = []

    def run() -> None:
        try:
            ended.append(cycle.run())
        except SupersededByReload as error:
            ended.append(error)

    with Store.open_to_write(tmp_path) as store:
        cycle = cycle_over(publisher, store, fence)
        working = threading.Thread(target=run)
        working.start()
        assert publisher.reached.wait(60)
        fence.close(0)
        publisher.go_on.set()
        working.join(60)
        assert isinstance(ended[0], SupersededByReload)
        assert store.load() == ReconcileState()
        assert store.load_report("cycle") == {}
    assert publisher.ads == {}
    assert cycle.saved_state == ReconcileState()


@pytest.mark.outside
def test_parts_after_a_reload_continue_from_saved_state_and_newer_demand(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        cycle = cycle_over(MemoryPublisher("collector", clock=lambda: NOON), store, Fence())
        cycle.run()
        assert cycle.saved_state == cycle.state
        cycle.refresh_demand()
        cycle.state = replace(cycle.state, held_losses={CAM: None})
        assert cycle.saved_state.demand == cycle.state.demand
        assert cycle.saved_state.held_losses == {}


@pytest.mark.outside
def test_schedule_shut_down_with_a_due_job_ends_without_an_error():
    class Slow(DaemonScheduler):
        def _lookup_executor(self, alias):
            due.set()
            shut.wait(60)
            return super()._lookup_executor(alias)

    due, shut = threading.Event(), threading.Event()
    schedule = Slow(timezone="UTC")
    broken = []
    before, threading.excepthook = threading.excepthook, broken.append
    try:
        schedule.add_job(print, "date", run_date=datetime.now(UTC))  # noqa: TID251 - apscheduler's own
        schedule.start()
        assert due.wait(60)
        ending = threading.Thread(target=schedule.shutdown, args=[False])
        ending.start()
        wait_for(lambda: not schedule.running, 10, "the shutdown to begin")
        shut.set()
        ending.join(60)
    finally:
        threading.excepthook = before
    assert broken == []


@pytest.mark.outside
def test_queued_background_work_does_not_begin_after_a_reload():
    class Merges(BackgroundWorker):
        EXECUTOR_NAMES = ("merge",)

        def schedule(self, scheduler, fence) -> None:
            self._schedule_every(scheduler, fence, "merge", 0.05, self._merge)

        def _merge(self, fence) -> None:
            done.append("began")
            under_way.set()
            go_on.wait(60)
            with fence.step():
                done.append("had an effect")

    done, under_way, go_on, fence = [], threading.Event(), threading.Event(), Fence()
    executors = {name: ThreadPoolExecutor(1) for name in ("default", "merge")}
    scheduler = BackgroundScheduler(executors=executors, timezone="UTC", job_defaults={"max_instances": 5})
    Merges(Metrics(CollectorRegistry(), "1"), pytest.fail).schedule(scheduler, fence)
    scheduler.start()
    assert under_way.wait(60)
    (job,) = scheduler.get_jobs()
    wait_for(lambda: scheduler._executors["merge"]._instances[job.id] > 1, 10, "a turn in the queue")
    scheduler.shutdown(wait=False)
    fence.close(0)
    go_on.set()
    scheduler._executors["merge"].shutdown(wait=True)
    assert done == ["began"]
