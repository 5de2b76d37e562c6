"""Virtual time: threads of the daemon as greenlets. One runs at a time, in an order that a seed gives.

Time passes only when every task waits. A task waits for a condition or for a time, never for another thread,
so a run depends on nothing but its seed. A task has an owner, the process that it belongs to; when this
process is killed, all its tasks end where they wait.
"""

import heapq
import random
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from greenlet import greenlet

from hydrator.reconcile.threads import Threads


class Killed(BaseException):
    """The process of the running task was killed; nothing that it does from now on has an effect."""


@dataclass(eq=False)
class Process:
    """A process of the simulation; ``is_dead`` after it was killed or has ended."""

    name: str
    is_dead: bool = False


@dataclass(eq=False)
class Task:
    """One thread. It waits until ``is_ready`` returns True, or until its ``deadline`` in virtual time."""

    name: str
    owner: Process
    run: "greenlet"
    is_ready: Callable[[], bool] | None = None
    deadline: float | None = None


class Loop:
    """The tasks of all processes, and the virtual time in seconds since the start of the simulation."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self._random = random.Random(seed)
        self._watching: list[Task] = []
        """The tasks that wait for a condition, perhaps with a deadline."""
        self._alarms: list[tuple[float, int, Task]] = []
        """A heap of deadlines; an alarm of a task that has gone on meanwhile counts for nothing."""
        self._alarm_count = 0
        self._current: Task | None = None
        self._hub = greenlet.getcurrent()
        self._tasks: dict[Task, None] = {}
        self.switches = 0
        self.failures: list[BaseException] = []
        """Exceptions that left a task: the daemon's own threads would have ended with a traceback."""

    def spawn(self, name: str, owner: Process, work: Callable[[], object]) -> None:
        """Start *work* as a task of *owner*; it runs when the present task waits."""
        context = copy_context()

        def run() -> None:
            try:
                context.run(work)
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - the simulation reports it
                self.failures.append(error)

        task = Task(name, owner, greenlet(run, parent=self._hub))
        self._tasks[task] = None
        self._suspend(task, None, 0.0)

    def _suspend(self, task: Task, is_ready: Callable[[], bool] | None, seconds: float | None) -> None:
        task.is_ready, task.deadline = is_ready, None if seconds is None else self.now + max(0.0, seconds)
        if is_ready:
            self._watching.append(task)
        if task.deadline is not None:
            self._alarm_count += 1
            heapq.heappush(self._alarms, (task.deadline, self._alarm_count, task))

    def wait(self, is_ready: Callable[[], bool] | None, seconds: float | None = None) -> bool:
        """Let others run until *is_ready*, but not longer than *seconds*; return whether it is ready."""
        task = self._current
        assert task is not None, "only a task may wait"
        if task.owner.is_dead:
            raise Killed
        self._suspend(task, is_ready, seconds)
        self._hub.switch()
        if task.owner.is_dead:
            raise Killed
        return is_ready is not None and is_ready()

    def sleep(self, seconds: float) -> None:
        """Let *seconds* of virtual time pass for the present task."""
        self.wait(None, seconds)

    def kill(self, process: Process) -> None:
        """End *process*: its tasks end where they wait, and the caller's too, if it is one of them."""
        process.is_dead = True
        ended = [task for task in self._tasks if task.owner is process and task is not self._current]
        for task in ended:
            del self._tasks[task]
        self._watching = [task for task in self._watching if task.owner is not process]
        for task in ended:
            self._resume(task)

    def run(self, until: float) -> None:
        """Run all tasks until the virtual time *until*."""
        while True:
            ready = [task for task in self._watching if task.is_ready and task.is_ready()]
            while self._alarms and self._alarms[0][0] <= self.now:
                at, _, task = heapq.heappop(self._alarms)
                if task.deadline == at and task in self._tasks and task not in ready:
                    ready.append(task)
            for task in self._random.sample(ready, len(ready)) if len(ready) > 1 else ready:
                if task in self._tasks and (task.deadline is not None or task.is_ready):
                    self._continue(task)
            if ready:
                continue
            at = self._alarms[0][0] if self._alarms else until
            if at >= until:
                self.now = until
                return
            self.now = at

    def _continue(self, task: Task) -> None:
        """Let *task* run until it waits again or ends."""
        if task.is_ready:
            self._watching.remove(task)
        task.is_ready = task.deadline = None
        self._resume(task)
        if task.run.dead:
            self._tasks.pop(task, None)

    def _resume(self, task: Task) -> None:
        """Run *task* until it waits or ends; a killed task ends, whatever it catches."""
        caller, hub = self._current, self._hub
        self._current, self._hub = task, greenlet.getcurrent()
        task.run.parent = self._hub
        self.switches += 1
        if not task.owner.is_dead:
            task.run.switch()
        elif task.run:  # it has begun: it ends where it waits, and each further wait raises Killed
            task.run.throw(Killed)
        self._current, self._hub = caller, hub


class Condition:
    """A condition of virtual threads; no lock, because a task runs until it waits."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until *predicate* is true; return its value."""
        return predicate() or self._loop.wait(predicate, timeout)

    def notify_all(self) -> None:
        """Do nothing: the loop looks at each predicate itself."""


class VirtualThreads(Threads):
    """The threads of one process, in virtual time."""

    def __init__(self, loop: Loop, owner: Process) -> None:
        self._loop = loop
        self._owner = owner
        self._running: set[Future[Any]] = set()
        """The futures whose work has not ended: to ask a future itself takes a lock."""

    def start(self, name: str, work: Callable[[], Any]) -> "Future[Any]":
        """See :meth:`hydrator.reconcile.threads.Threads.start`."""
        future: Future[Any] = Future()
        self._running.add(future)

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - as the real threads do
                future.set_exception(error)
            self._running.discard(future)

        self._loop.spawn(name, self._owner, run)
        return future

    def wait(self, futures: "Collection[Future[Any]]", timeout: timedelta | None = None) -> None:
        """See :meth:`hydrator.reconcile.threads.Threads.wait`."""
        waited = list(futures)

        def is_done() -> bool:
            while waited and waited[-1] not in self._running and waited[-1].done():
                waited.pop()
            return not waited

        if not is_done():
            self._loop.wait(is_done, None if timeout is None else timeout.total_seconds())

    def condition(self) -> Any:
        """See :meth:`hydrator.reconcile.threads.Threads.condition`."""
        return Condition(self._loop)


@dataclass(eq=False)
class _Call:
    """A scheduled call: *work* with *args*, every ``seconds`` from ``at``; once if ``seconds`` is None."""

    work: Callable[..., object]
    args: Sequence[object]
    at: float
    seconds: float | None
    executor: str
    is_running: bool = False


class VirtualScheduler:
    """What the daemon uses of apscheduler's BackgroundScheduler: one thread for each executor.

    A call that still runs, or waits for its executor, when it is due again, is left out that time.
    """

    def __init__(self, loop: Loop, owner: Process, clock: Callable[[], datetime]) -> None:
        self._loop = loop
        self._owner = owner
        self._clock = clock
        self._queues: dict[str, list[_Call]] = {"default": [], "demand": []}
        """The calls of each executor: the one that runs, and those that wait for it."""
        self._waiting: list[_Call] = []
        self._is_started = self._is_ended = False

    def add_executor(self, _executor: object, alias: str) -> None:
        """Add an executor with one thread; see apscheduler."""
        self._queues[alias] = []

    def add_job(
        self,
        func: Callable[..., object],
        trigger: str,
        args: Sequence[object] = (),
        *,
        seconds: float | None = None,
        id: str = "",  # noqa: A002 - apscheduler's name
        executor: str = "default",
        next_run_time: datetime | None = None,
        run_date: datetime | None = None,
    ) -> None:
        """Schedule a call; see apscheduler. *trigger* is ``interval`` or ``date``."""
        assert (trigger == "date") == (seconds is None)
        assert executor in self._queues, executor
        first = next_run_time or run_date
        delay = (first - self._clock()).total_seconds() if first else seconds or 0.0
        call = _Call(func, args, self._loop.now + max(0.0, delay), seconds, executor)
        if self._is_started:
            self._begin(call)
        else:
            self._waiting.append(call)

    def start(self) -> None:
        """Begin to make the calls that are due."""
        self._is_started = True
        for call in self._waiting:
            self._begin(call)

    def shutdown(self, wait: bool = True) -> None:
        """Begin no further call."""
        self._is_ended = True

    def _begin(self, call: _Call) -> None:
        self._loop.spawn(f"timer of {call.executor}", self._owner, lambda: self._tick(call))

    def _tick(self, call: _Call) -> None:
        while not self._is_ended:
            self._loop.sleep(call.at - self._loop.now)
            if self._is_ended:
                return
            if not call.is_running:
                call.is_running = True
                self._queues[call.executor].append(call)
                if len(self._queues[call.executor]) == 1:
                    self._loop.spawn(f"executor {call.executor}", self._owner, lambda: self._execute(call))
            if call.seconds is None:
                return
            call.at += call.seconds

    def _execute(self, first: _Call) -> None:
        """Make the calls of the executor of the *first* call, until none waits."""
        queue = self._queues[first.executor]
        while queue:
            try:
                if not self._is_ended:
                    queue[0].work(*queue[0].args)
            finally:
                queue.pop(0).is_running = False
