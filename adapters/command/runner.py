"""Runner: run a command without a shell, with limits on its time and its output."""

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import IO

_CHUNK_BYTES = 65_536
_ERROR_BYTES = 2000


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of one run.

    *status* is None if the command did not start, was killed at its time limit, or wrote too much; *problem*
    then says which. *error* is the end of its standard error.
    """

    status: int | None
    output: bytes = b""
    error: str = ""
    problem: str = ""
    has_started: bool = True


def run_command(words: Sequence[str], given: bytes, limit: timedelta, max_bytes: int) -> CommandResult:
    """Run *words* with *given* as standard input; after *limit*, kill its process group."""
    with tempfile.TemporaryFile() as standard_input:
        standard_input.write(given)
        standard_input.seek(0)
        try:
            process = subprocess.Popen(
                words,
                stdin=standard_input,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return CommandResult(None, problem=f"{words[0]} cannot be run: {error}", has_started=False)
        with process:
            try:
                return _collect(process, time.monotonic() + limit.total_seconds(), limit, max_bytes)
            finally:
                _kill(process)


def _collect(
    process: subprocess.Popen[bytes], deadline_at: float, limit: timedelta, max_bytes: int
) -> CommandResult:
    """Read both outputs to their ends, and wait for the end of *process*."""
    output, error = bytearray(), bytearray()
    streams = {_require(process.stdout): output, _require(process.stderr): error}
    try:
        _read_to_end(streams, deadline_at, max_bytes)
        status = process.wait(max(0.0, deadline_at - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        problem = f"the command took longer than {limit.total_seconds():g} s"
        return CommandResult(None, error=_last_line(error), problem=problem)
    except OverflowError:
        problem = f"the command wrote more than {max_bytes} bytes"
        return CommandResult(None, error=_last_line(error), problem=problem)
    return CommandResult(status, bytes(output), _last_line(error))


def _read_to_end(streams: Mapping[IO[bytes], bytearray], deadline_at: float, max_bytes: int) -> None:
    """Read all *streams* at the same time, each into its buffer.

    Raises:
        TimeoutError: they did not end before *deadline_at*, a monotonic time.
        OverflowError: one has more than *max_bytes*.
    """
    with selectors.DefaultSelector() as selector:
        for stream, buffer in streams.items():
            selector.register(stream, selectors.EVENT_READ, buffer)
        while selector.get_map():
            seconds_left = deadline_at - time.monotonic()
            if seconds_left <= 0:
                raise TimeoutError
            for key, _ in selector.select(seconds_left):
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk)
                if len(key.data) > max_bytes:
                    raise OverflowError


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of *process* if it still runs."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _require(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the process has no pipe")
    return stream


def _last_line(error: bytearray) -> str:
    """Return the last line of a standard error that is not empty."""
    text = error[-_ERROR_BYTES:].decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
