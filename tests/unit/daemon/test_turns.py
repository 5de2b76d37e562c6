"""Turns of the daemon: each kind once at a time, and none begins after the end has begun."""

import threading
from datetime import UTC, datetime

import pytest
from apscheduler.schedulers.background import BackgroundScheduler

from hydrator.daemon.background import BackgroundWorker
from hydrator.daemon.runtime import DaemonScheduler, Turns
from testbed.patience import wait_for
from tests.unit.daemon.contexts import context_with, runtime_with


def test_draining_turns_wait_for_the_running_one_and_let_no_other_begin():
    turns = Turns()
    with turns.turn("cycle") as may_run:
        assert may_run
        assert not turns.drain(0)
        with turns.turn("merge") as may_merge:
            assert not may_merge
    assert turns.drain(0)
    assert turns.is_ending


def test_draining_one_kind_waits_for_no_other():
    turns = Turns()
    with turns.turn("merge"):
        assert turns.drain(0, "cycle")
        assert not turns.drain(0)


@pytest.mark.outside
def test_a_turn_that_waits_for_another_of_its_kind_does_not_run_when_the_daemon_ends():
    turns, waiting = Turns(), []

    def wait() -> None:
        with turns.turn("merge") as may_run:
            waiting.append(may_run)

    with turns.turn("merge"):
        other = threading.Thread(target=wait)
        other.start()
        turns.drain(0)
        other.join(60)
    assert waiting == [False]


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
        wait_for(lambda: not schedule.running, "the shutdown to begin")
        shut.set()
        ending.join(60)
    finally:
        threading.excepthook = before
    assert broken == []


@pytest.mark.outside
def test_queued_background_work_does_not_begin_when_the_daemon_ends():
    class Merges(BackgroundWorker):
        def schedule(self, runtime) -> None:
            self._schedule_every(runtime, "merge", 0.05, self._merge)

        def _merge(self) -> None:
            done.append("began")
            under_way.set()
            go_on.wait(60)

    done, under_way, go_on, turns = [], threading.Event(), threading.Event(), Turns()
    scheduler = BackgroundScheduler(timezone="UTC", job_defaults={"max_instances": 5})
    Merges(context_with()).schedule(runtime_with(scheduler, turns=turns))
    scheduler.start()
    assert under_way.wait(60)
    (job,) = scheduler.get_jobs()
    wait_for(lambda: scheduler._executors["merge"]._instances[job.id] > 1, "a turn in the queue")
    scheduler.shutdown(wait=False)
    turns.drain(0)
    go_on.set()
    scheduler._executors["merge"].shutdown(wait=True)
    assert done == ["began"]
