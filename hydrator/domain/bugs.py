"""Bug reports: an untranslated exception fails its part alone, is counted, and is logged once."""

import threading
import traceback
from collections.abc import Callable
from pathlib import PurePath

import structlog

from hydrator.domain.text import link_to_bug_report

_log = structlog.get_logger("hydrator")


def describe_bug(part: str, error: BaseException) -> str:
    """Return a sentence with *part*, the type of *error* and its line.

    The text of *error* is left out: it may contain secrets or names.
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {'/'.join(PurePath(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}" if frames else ""
    sentence = f"bug in {part}: {type(error).__name__}{where}; the log has its traceback"
    return f"{sentence}, please report it: {link_to_bug_report()}"


class BugReporter:
    """A counter and log of bugs, by part; a bug is logged with its traceback when it starts or changes.

    Args:
        count: called with the part at every bug, also if the bug is not logged again.
    """

    def __init__(self, count: Callable[[str], None] = lambda _: None) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._logged: dict[str, str] = {}

    def report(self, part: str, error: BaseException) -> str:
        """Count *error* of *part*; log it unless it was the last one logged; return a sentence for people."""
        sentence = describe_bug(part, error)
        self._count(part)
        with self._lock:
            new = self._logged.get(part) != sentence
            self._logged[part] = sentence
        if new:
            _log.error(
                f"{part} failed: this is a bug, please report it",
                report_url=link_to_bug_report(),
                exc_info=error,
            )
        return sentence

    def mark_resolved(self, part: str) -> None:
        """Record that *part* works: its next bug is logged even if it is the same."""
        with self._lock:
            self._logged.pop(part, None)
