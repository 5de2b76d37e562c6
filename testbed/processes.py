"""Processes of this machine, any of which may end while this module reads it."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def each(name: str) -> dict[int, str]:
    """Return by process its file *name* below ``/proc``, such as ``stat``, without processes that ended.

    (A glob of ``*/stat`` would stat each file itself, and fail at one whose process just ended.)
    """
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found[int(process.name)] = (process / name).read_text("utf-8", "replace")
        except OSError:
            continue
    return found


def parents() -> dict[int, int]:
    """Return by process its parent."""
    return {pid: int(stat.rpartition(")")[2].split()[1]) for pid, stat in each("stat").items()}


def is_running(pid: int | str) -> bool:
    """Return whether a process runs: it has not ended and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def below(top: int) -> dict[int, str]:
    """Return every process below *top*, with its command line, words ended by NUL."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    commands = each("cmdline")
    todo, found = [top], {}
    while todo:
        for pid in children.get(todo.pop(), []):
            todo.append(pid)
            if pid in commands:
                found[pid] = commands[pid]
    return found


MORTAL = ("setpriv", "--pdeathsig", "TERM")
"""The prefix of a command that the kernel ends with the thread that starts it, also by SIGKILL."""


def end(process: subprocess.Popen[bytes], seconds: float, how: signal.Signals = signal.SIGTERM) -> int:
    """End *process* by *how*, and by SIGKILL if it still runs after *seconds*; return its exit status."""
    process.send_signal(how)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def run_program(
    words: Sequence[str | Path],
    **options: Any,  # noqa: ANN401 - those of subprocess.run
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return its output as text. Only with ``check=True`` its status must be 0."""
    check = options.pop("check", False)
    return subprocess.run(words, capture_output=True, text=True, check=check, **options)
