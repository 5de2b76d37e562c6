"""Early cycles: cycles outside the schedule.

A catalogue's answer that comes after the end of its cycle triggers a new cycle.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from hydrator.daemon.runtime import DaemonContext, Runtime
from hydrator.wiring import system_clock


@dataclass(eq=False)
class EarlyCycles:
    """Requests for cycles outside the schedule, at most one at a time; safe from any thread.

    Attributes:
        context: the values that the daemon's parts share.
        stopping: is set when the daemon stops; afterwards no cycle is requested.
        run_answer_cycle: runs a cycle for a late answer with a given runtime.
    """

    context: DaemonContext
    stopping: threading.Event
    run_answer_cycle: Callable[[Runtime], None]
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _is_answer_cycle_requested = False

    def activate(self, runtime: Runtime) -> None:
        """Set the runtime of the daemon."""
        with self._lock:
            self.context.settings, self.context.runtime = runtime.settings, runtime
            self._is_answer_cycle_requested = False

    def request_answer_cycle(self) -> None:
        """Schedule a cycle for an answer that came after the end of the cycle that sent the query."""
        with self._lock:
            runtime = self.context.runtime
            if self._is_answer_cycle_requested or runtime is None or self.stopping.is_set():
                return
            self._is_answer_cycle_requested = True
            runtime.scheduler.add_job(self.run_answer_cycle, "date", [runtime], run_date=system_clock())

    def begin_answer_cycle(self) -> None:
        """Accept new requests for answer cycles, since the requested cycle begins now."""
        with self._lock:
            self._is_answer_cycle_requested = False
