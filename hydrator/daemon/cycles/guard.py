"""Guard: count and log failures of the daemon's work, so that a failure never ends the daemon."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from hydrator.daemon.metrics import Metrics
from hydrator.daemon.process.watchdog import Watchdog
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import HydratorError

_log = structlog.get_logger("hydrator")


@dataclass(eq=False)
class TaskGuard:
    """A guard that runs scheduled work, counts and logs its failures, and notifies the watchdog.

    Attributes:
        metrics: counts failed cycles.
        bugs: counts and logs unexpected exceptions.
        watchdog: records when a task begins and ends.
    """

    metrics: Metrics
    bugs: BugReporter
    watchdog: Watchdog

    def run(self, task: str, work: Callable[[], bool]) -> bool:
        """Run *work* and return its result; after a failure, count and log the failure and return False."""
        self.watchdog.record_step(f"a {task} began")
        try:
            return work()
        except HydratorError as error:
            _log.error(f"{task} failed", why=str(error))
            self.metrics.count_failed_cycle()
        except Exception:  # noqa: BLE001 - a bug must not end the daemon
            self.report_bug(task)
        finally:
            self.watchdog.record_step(f"a {task} ended")
        return False

    def run_isolated(self, part: str, work: Callable[[], None]) -> None:
        """Run *work* for one *part* after a cycle; report an exception as a bug of the part, and continue."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the other work after a cycle continues
            self.bugs.report(part, error)
        else:
            self.bugs.mark_resolved(part)

    def report_bug(self, task: str) -> None:
        """Log and count the unexpected exception of the present ``except`` block."""
        if error := sys.exception():
            self.bugs.report(task, error)
        self.metrics.count_failed_cycle()
