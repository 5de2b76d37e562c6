"""Ongoing failures and bugs: log a failure when it begins, when its reason changes and when it ends."""

import threading
import traceback
from collections.abc import Callable, Hashable, Mapping
from operator import attrgetter
from pathlib import PurePath
from typing import Any, TypeVar

from hydrator.domain.errors import HydratorError
from hydrator.domain.model import Unseen
from hydrator.domain.text import link_to_bug_report

_T = TypeVar("_T")


class WorkerBug(HydratorError):
    """A bug in a worker: *where* is its type and line, *frames* are the calls that led to it.

    *maker* names the plugin that the worker runs, and who made it; None without a plugin.
    """

    def __init__(self, where: str, frames: str, maker: str | None = None) -> None:
        self.where = where
        self.maker = maker
        super().__init__(f"bug: {where}; please report it, with its traceback, to {find_receiver(self)}")
        self.add_note(frames)  # a traceback of this error shows its notes


def locate_bug(error: BaseException) -> str:
    """Return the type of *error* and the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {'/'.join(PurePath(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def is_from(error: BaseException, *packages: str) -> bool:
    """Return whether the code that raised *error* belongs to one of *packages*."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    return last is not None and str(last.tb_frame.f_globals.get("__name__")).split(".")[0] in packages


def format_frames(error: BaseException) -> str:
    """Return the calls that led to *error*, without its text, which may contain secrets or names."""
    return "".join(traceback.format_tb(error.__traceback__))


def describe_bug(part: str, error: BaseException) -> str:
    """Return a sentence with *part*, the type of *error* and the line of code that raised it.

    The sentence omits the text of *error*, which may contain secrets or names.
    """
    where = error.where if isinstance(error, WorkerBug) else locate_bug(error)
    return f"bug in {part}: {where}; the log has its traceback, please report it to {find_receiver(error)}"


def find_receiver(error: BaseException) -> str:
    """Return who should get a report of *error*."""
    maker = error.maker if isinstance(error, WorkerBug) else None
    return f"the maker of {maker}" if maker else f"the maintainers: {link_to_bug_report()}"


class OngoingFailures:
    """A thread-safe record of the failures that go on now, so that each failure is logged only once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[Hashable, str] = {}

    def begin(self, key: Hashable, reason: str = "") -> bool:
        """Record a failure of *key*; return True if the failure is new or has a new reason."""
        with self._lock:
            is_new = self._reasons.get(key) != reason
            self._reasons[key] = reason
            return is_new

    def end(self, key: Hashable) -> bool:
        """Record the end of the failure of *key*; return True if *key* was failing."""
        with self._lock:
            return self._reasons.pop(key, None) is not None

    def replace(self, reasons: Mapping[str, str]) -> tuple[set[str], list[str]]:
        """Replace all recorded failures by *reasons*, one reason for each failing key.

        Return the keys that are new or have a new reason, and the keys that no longer fail.
        """
        with self._lock:
            changed = {key for key, reason in reasons.items() if self._reasons.get(key) != reason}
            ended = sorted(map(str, self._reasons.keys() - reasons.keys()))
            self._reasons = dict(reasons.items())
            return changed, ended


class BugReporter:
    """A reporter of bugs. A bug is an exception that no adapter translated into an error of this project.

    A bug stops only one part of the daemon for this cycle, for example one catalogue or one publisher.

    Args:
        count: a function that gets the name of the part at every bug, even if the bug is not logged again.
    """

    def __init__(self, count: Callable[[str], None] = lambda _: None) -> None:
        self._count = count
        self._ongoing = OngoingFailures()

    def report(self, part: str, error: BaseException) -> str:
        """Count *error*, a bug in *part*; return a sentence for people that describes it.

        Log *error*, unless the last logged error of *part* is the same.
        """
        sentence = describe_bug(part, error)
        self._count(part)
        if self._ongoing.begin(part, sentence):
            import structlog  # it imports Rich and asyncio, which commands that meet no bug do not need

            structlog.get_logger("hydrator").error(
                f"{part} failed: this is a bug, please report it",
                report_to=find_receiver(error),
                exc_info=error,
            )
        return sentence

    def attempt(
        self,
        part: str,
        work: Callable[[], _T],
        *expected: type[HydratorError],
        describe: Callable[[Any], str] = attrgetter("reason"),
    ) -> _T | Unseen:
        """Return the result of *work*; Unseen after an *expected* error, or after a bug of *part*.

        *describe* returns the reason of an expected error. A bug of one part never stops the others. Ctrl-C,
        which Python gives to the main thread, does.
        """
        try:
            result = work()
        except expected as error:
            return Unseen(describe(error))
        except BaseException as error:  # a plugin may even raise SystemExit
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise
            return Unseen(self.report(part, error))
        self.mark_resolved(part)
        return result

    def mark_resolved(self, part: str) -> None:
        """Record that *part* works again. Its next bug is then logged, even if it is the same bug again."""
        self._ongoing.end(part)
