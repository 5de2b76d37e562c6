"""Threads: work beside the caller, and waits for it. The simulation has its own, in virtual time."""

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from contextvars import copy_context
from datetime import timedelta
from typing import Any, TypeVar

_T = TypeVar("_T")


class Threads:
    """The threads of this process: every wait of a cycle or of a turn is one of these."""

    def start(self, name: str, work: Callable[[], _T]) -> "Future[_T]":
        """Run *work* in its own daemon thread. Its log lines have the current cycle's number."""
        future: Future[_T] = Future()
        context = copy_context()

        def run() -> None:
            try:
                future.set_result(context.run(work))
            except BaseException as error:  # noqa: BLE001 - a plugin may even raise SystemExit
                future.set_exception(error)

        threading.Thread(target=run, name=name, daemon=True).start()
        return future

    def wait(self, futures: "Collection[Future[Any]]", timeout: timedelta | None = None) -> None:
        """Wait until all *futures* are done, but not longer than *timeout*; None means without a limit."""
        wait(futures, None if timeout is None else timeout.total_seconds())

    def condition(self) -> threading.Condition:
        """Return a new condition on which threads wait for each other."""
        return threading.Condition()


THREADS = Threads()
"""The threads of this process; they hold no state."""
