"""Bugs of parts: an exception that nobody translated fails its part alone, is counted, and is logged once."""

import threading
import traceback
from collections.abc import Callable
from pathlib import PurePath

import structlog

from hydrator.domain.text import link_to_bug_report

_log = structlog.get_logger("hydrator")


def describe_bug(part: str, error: BaseException) -> str:
    """Name the *part*, the kind of *error* and its line, not its text, which may have secrets or names."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {'/'.join(PurePath(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}" if frames else ""
    said = f"bug in {part}: {type(error).__name__}{where}; the log has its traceback"
    return f"{said}, please report it: {link_to_bug_report()}"


class BugReporter:
    """Counts the bugs of each part, and logs each with its traceback once until it changes or is over.

    Args:
        count: called with the part at every bug, also at those that are not logged again.
    """

    def __init__(self, count: Callable[[str], None] = lambda _: None) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._logged: dict[str, str] = {}

    def report(self, part: str, error: BaseException) -> str:
        """Count *error* of *part*, and log it unless it was logged last; return one sentence for people."""
        said = describe_bug(part, error)
        self._count(part)
        with self._lock:
            new = self._logged.get(part) != said
            self._logged[part] = said
        if new:
            _log.error(
                f"{part} failed: this is a bug, please report it", report_url=link_to_bug_report(), exc_info=error
            )
        return said

    def mark_resolved(self, part: str) -> None:
        """Note that *part* works: its next bug is logged, even if it is the same."""
        with self._lock:
            self._logged.pop(part, None)
