"""CPU time and memory of processes, from /proc."""

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_with_children(pid: int, proc: Path = Path("/proc")) -> float:
    """Return CPU seconds of a process and of its ended children.

    The kernel counts the time of a process by samples, in steps of 10 ms, and that of each thread exactly,
    but only while the thread lives. A short process may have none of the samples, so the larger one counts.
    """
    fields = (proc / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()
    own, ended_children = (sum(map(int, fields[first : first + 2])) / _TICKS for first in (11, 13))
    return max(own, sum(map(_thread_seconds, (proc / str(pid) / "task").iterdir()))) + ended_children


def find_daemon(pids: Sequence[int], proc: Path = Path("/proc")) -> int:
    """Return the one of *pids* whose parent is not among them.

    The children that a collector or a schedd forks for its answers have the command line of the daemon.

    Raises:
        AssertionError: no such process is left.
    """
    for pid in pids:
        try:
            parent = (proc / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()[1]
        except (FileNotFoundError, ProcessLookupError):
            continue  # a child that has ended
        if int(parent) not in pids:
            return pid
    raise AssertionError(f"no daemon among the processes {list(pids)}")


def _thread_seconds(thread: Path) -> float:
    """Return CPU seconds of a thread; 0.0 if it has ended."""
    try:
        return int((thread / "schedstat").read_text("ascii").split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def measure_cpu(work: Callable[[], _T]) -> tuple[float, _T]:
    """Return CPU seconds of *work*, and its result."""
    started_at = time.process_time()
    result = work()
    return time.process_time() - started_at, result


def run_in_process(benchmark: str, *arguments: object) -> dict[str, Any]:
    """Run the module of *benchmark* in a process of its own; return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{benchmark}", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    return dict(json.loads(done.stdout))


def peak_mib() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory(pid: int, what: str = "Pss") -> float:
    """Return MiB of memory: ``Pss`` counts a page shared by n processes as 1/n page, ``Rss`` as one."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
    match = re.search(rf"^{what}:\s+(\d+) kB", text, re.MULTILINE)
    if not match:
        raise ValueError(f"/proc/{pid}/smaps_rollup has no {what}")
    return int(match[1]) / 1024


def wait(condition: Callable[[], bool], what: str, seconds: float = 120, step: float = 0.05) -> None:
    """Poll until *condition* is true.

    Raises:
        AssertionError: it was not true within *seconds*.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(step)
