"""Early cycles: cycles outside the schedule.

Events trigger early polls. A catalogue's answer that comes after the end of its cycle triggers a new cycle.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from hydrator.daemon.event_queue import PollThrottle
from hydrator.daemon.runtime import DaemonContext, Runtime
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.reconciler import Reconciler
from hydrator.wiring import system_clock


@dataclass(eq=False)
class EarlyCycles:
    """Requests for cycles outside the schedule, at most one request of each kind; safe from any thread.

    Attributes:
        context: the values that the daemon's parts share.
        stopping: is set when the daemon stops; afterwards no cycle is requested.
        run_early_poll: runs an early poll with a given runtime.
        run_answer_cycle: runs a cycle for a late answer with a given runtime.
    """

    context: DaemonContext
    stopping: threading.Event
    run_early_poll: Callable[[Runtime], None]
    run_answer_cycle: Callable[[Runtime], None]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _is_poll_requested = False
    _is_answer_cycle_requested = False

    def __post_init__(self) -> None:
        self.throttle = PollThrottle(self.context.settings.events.spacing_seconds)

    def activate(self, runtime: Runtime) -> None:
        """Replace the runtime of the daemon, and drop requests for cycles of the old runtime."""
        self.throttle = PollThrottle(runtime.settings.events.spacing_seconds)
        with self._lock:
            self.context.settings, self.context.runtime = runtime.settings, runtime
            self._is_poll_requested = self._is_answer_cycle_requested = False

    def request_poll(self) -> None:
        """Schedule an early poll for the next time that the throttle allows."""
        with self._lock:
            runtime = self.context.runtime
            if self._is_poll_requested or runtime is None or self.stopping.is_set():
                return
            self._is_poll_requested = True
            delay = timedelta(seconds=self.throttle.delay_seconds(time.monotonic()))
            _schedule_once(runtime, self.run_early_poll, delay)

    def request_answer_cycle(self, fence: Fence) -> None:
        """Schedule a cycle for an answer that came after the end of the cycle that sent the query.

        Ignore the answer if the present runtime has another *fence*: a reload has replaced the parts that
        sent the query.
        """
        with self._lock:
            runtime = self.context.runtime
            if self._is_answer_cycle_requested or runtime is None or self.stopping.is_set():
                return
            if runtime.fence is not fence:
                return
            self._is_answer_cycle_requested = True
            _schedule_once(runtime, self.run_answer_cycle, timedelta())

    def begin_poll(self, reconciler: Reconciler) -> None:
        """Accept new requests for polls, since the requested poll begins now."""
        with reconciler.fence.step(), self._lock:
            self._is_poll_requested = False

    def begin_answer_cycle(self, reconciler: Reconciler) -> None:
        """Accept new requests for answer cycles, since the requested cycle begins now."""
        with reconciler.fence.step(), self._lock:
            self._is_answer_cycle_requested = False


def _schedule_once(runtime: Runtime, run: Callable[[Runtime], None], delay: timedelta) -> None:
    runtime.scheduler.add_job(run, "date", [runtime], run_date=system_clock() + delay)
