"""What processes used: CPU time and memory, from /proc."""

import os
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_with_children(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICKS


def timed(work: Callable[[], _T]) -> tuple[float, _T]:
    """CPU seconds of *work*, and what it gave."""
    begun = time.process_time()
    done = work()
    return time.process_time() - begun, done


def peak_mib() -> float:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory(pid: int, what: str = "Pss") -> float:
    """MiB of memory: ``Pss`` counts a page shared by n processes as 1/n page, ``Rss`` as a whole one."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
    found = re.search(rf"^{what}:\s+(\d+) kB", text, re.MULTILINE)
    if not found:
        raise ValueError(f"/proc/{pid}/smaps_rollup has no {what}")
    return int(found[1]) / 1024


def wait(condition: Callable[[], bool], what: str, seconds: float = 120, step: float = 0.05) -> None:
    """Ask until *condition* holds.

    Raises:
        AssertionError: it did not within *seconds*.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(step)
