"""Worker: one supervised process for foreign code, such as the client of a catalogue or HTCondor's bindings.

Foreign code may leak memory, hang, crash or call ``exit``. In a process of its own the kernel can stop all of
this, and a new process starts. The daemon and its worker exchange lines of JSON on a socket. A worker may
answer in parts, and each part gives it more time.

What ends a worker:

* RLIMIT_DATA: an allocation fails. A MemoryError ends the worker at once (:func:`serve`), because code that
  catches it would report a wrong reason;
* the resident size, which this process watches: RLIMIT_DATA does not count shared memory;
* the time since its last line;
* the end of this process, even by SIGKILL: the worker's end of a pipe then has no writer, and the kernel
  sends SIGKILL to the worker's process group (F_SETOWN, F_SETSIG). No thread of the worker has to run for
  that, and it does not depend on the thread that started the worker, as PR_SET_PDEATHSIG does.

A process that reads from a dead file server does not end even by SIGKILL. It is left alone and named, and no
second one is started beside it.
"""

import fcntl
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from hydrator.domain.redaction import escape_unprintable_tree

Message = dict[str, Any]
"""One line of JSON: a request, a part of an answer, or an answer."""
START_SECONDS = 60.0
"""Seconds that a worker may take to import its libraries: under 1 s when idle, far more on a busy machine."""
MEMORY_STATUS = 99
"""The exit status of a worker that met a MemoryError."""
MAX_PAUSE_SECONDS = 5.0
"""The longest pause before a worker is started again; the first is 0.1 s, and each failure doubles it."""
END_SECONDS = 5.0
"""Seconds after SIGKILL; a process that has not ended then waits for a file server or a broken device."""
_FAREWELL_SECONDS = 1.0
_WATCH_SECONDS = 0.5
_MAX_STDERR_BYTES = 8192
_MAX_PRINTED_BYTES = 1_000_000
_F_SETSIG = 10
"""Linux; the module fcntl does not name it."""


class WorkerFailed(Exception):
    """A worker that ended or was ended before it answered; the text is the reason.

    ``has_ended_itself`` is False if it was slow, or was left because it cannot be ended.
    """

    def __init__(self, reason: str, *, has_ended_itself: bool = True) -> None:
        super().__init__(reason)
        self.has_ended_itself = has_ended_itself


class WorkerRefused(Exception):
    """A worker that cannot do its work at all; ``error`` is what it answered to its setup."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("reason", "")))
        self.error = error


class _Process:
    """A running worker, the socket on which it answers, and the pipe that ends it with this process."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str] | None, limit_bytes: int, max_line_bytes: int
    ) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (the method end closes this file)
        fcntl.fcntl(self._stderr, fcntl.F_SETFL, os.O_APPEND)  # the process goes on writing after a cut
        self._channel, child_end = socket.socketpair()
        self._limit_bytes = limit_bytes
        self._max_line_bytes = max_line_bytes
        self._buffer = bytearray()
        self.answer_count = 0
        lifeline, self._lifeline_writer = os.pipe()
        with child_end:
            try:
                self._process: subprocess.Popen[bytes] = subprocess.Popen(
                    [*command, str(lifeline), str(limit_bytes)],
                    stdin=child_end.fileno(),
                    stdout=self._stderr,
                    stderr=self._stderr,
                    env=env,
                    pass_fds=[lifeline],
                    start_new_session=True,
                )
            except OSError:
                os.close(self._lifeline_writer)
                self._channel.close()
                self._stderr.close()
                raise
            finally:
                os.close(lifeline)

    @property
    def pid(self) -> int:
        return self._process.pid

    def exchange(
        self, request: Message | None, seconds: float, on_part: Callable[[Any], None] | None = None
    ) -> Message:
        """Send *request*, if any, pass each part of the answer to *on_part*, and return the last line.

        Raises:
            WorkerFailed: the worker sent nothing for *seconds*, ended, is too large, or sent another line.
        """
        request_id = request["id"] if request else 0
        try:
            if request is not None:
                self._channel.settimeout(seconds)
                self._channel.sendall(json.dumps(request).encode() + b"\n")
            while True:
                line = self._read_line(time.monotonic() + seconds)
                message = json.loads(line)
                if not isinstance(message, dict) or message.get("id") != request_id:
                    raise WorkerFailed(f"its process answered {line[:60]!r}, which is not the answer")
                if b"\\u" in line:  # escapes of non-ASCII letters and of terminal control codes in JSON
                    message = dict(escape_unprintable_tree(message, "\n\r\t"))
                if "part" not in message:
                    break
                if on_part:
                    on_part(message["part"])
        except TimeoutError:
            raise WorkerFailed(f"no answer within {seconds:g} s", has_ended_itself=False) from None
        except OSError:
            raise WorkerFailed(self._describe_end()) from None
        except (ValueError, RecursionError):
            raise WorkerFailed(f"its process answered {line[:60]!r}, which is not JSON") from None
        self.answer_count += request is not None
        return message

    def _read_line(self, deadline: float) -> bytes:
        searched = 0
        self._cut_stderr()
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            remaining_seconds = deadline - time.monotonic()
            if remaining_seconds <= 0:
                raise TimeoutError
            if searched > self._max_line_bytes:
                raise WorkerFailed(f"its process answered a line of more than {self._max_line_bytes} bytes")
            if not select.select([self._channel], [], [], min(remaining_seconds, _WATCH_SECONDS))[0]:
                if self.resident_bytes() > self._limit_bytes:
                    raise WorkerFailed(_describe_memory(self._limit_bytes))
                self._cut_stderr()
                continue
            chunk = self._channel.recv(1 << 18)
            if not chunk:
                raise ConnectionResetError
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def resident_bytes(self) -> int:
        """Return the resident size; 0 if the process has ended."""
        with suppress(OSError, IndexError):
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def _cut_stderr(self) -> None:
        """Empty the file of what the process has printed, if this is much: it must not fill the disk."""
        if os.fstat(self._stderr.fileno()).st_size > _MAX_PRINTED_BYTES:
            os.ftruncate(self._stderr.fileno(), 0)

    def _describe_end(self) -> str:
        """Return how the worker ended, and its last error. Call this after the worker closed the socket."""
        status = self._wait(2.0)
        if status is None:
            return "its process closed its socket"
        if status == MEMORY_STATUS:
            return _describe_memory(self._limit_bytes)
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        error = summarize_stderr(self._read_stderr_tail())
        return f"its process {how}" + (f": {error}" if error else "")

    def _wait(self, seconds: float) -> int | None:
        """Return the exit status, but leave the zombie, so that its number stays that of its group."""
        until = time.monotonic() + seconds
        while True:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
            if time.monotonic() > until:
                return None
            time.sleep(0.01)

    def has_ended(self) -> bool:
        """Return whether the process has ended by itself, between two answers."""
        return self._wait(0) is not None

    def reap_orphans(self) -> None:
        """As the first process of a container, wait for what commands of the worker left behind."""
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with suppress(ChildProcessError):
            while (found := os.waitid(os.P_PGID, self.pid, look)) and found.si_pid != self.pid:
                os.waitpid(found.si_pid, 0)

    def _read_stderr_tail(self) -> str:
        size = os.fstat(self._stderr.fileno()).st_size
        tail = os.pread(self._stderr.fileno(), _MAX_STDERR_BYTES, max(0, size - _MAX_STDERR_BYTES))
        return tail.decode("utf-8", "replace")

    def ask_to_end(self) -> None:
        """Let the process end by itself: it gets no further request. Wait a moment."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
            self._wait(_FAREWELL_SECONDS)

    def kill(self) -> None:
        """Kill the process group; :meth:`end` waits for it."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> bool:
        """Kill the process and what it started, wait for it and close its files; False if it does not end."""
        if self._process.returncode is None:
            self.kill()
            if self._wait(END_SECONDS) is None:
                return False
            self._process.wait()
            self._reap_group()
            self._channel.close()
            os.close(self._lifeline_writer)
            self._stderr.close()
        return True

    def _reap_group(self) -> None:
        """As the first process of a container, wait for what the worker had started: this one inherits it."""
        until = time.monotonic() + END_SECONDS
        with suppress(ChildProcessError):
            while os.waitpid(-self.pid, os.WNOHANG)[0] or time.monotonic() < until:
                time.sleep(0.01)


def _describe_memory(limit_bytes: int) -> str:
    return f"its process needs more than {limit_bytes // 1_000_000} MB of memory, its limit"


def summarize_stderr(stderr: str) -> str:
    """Return the most informative line of *stderr*, without HTCondor's time stamps and tokens."""
    lines = [
        re.sub(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)? ", "", line).strip() for line in stderr.splitlines()
    ]
    texts = [line for line in lines if line]
    errors = [line for line in texts if "ERROR" in line or "Error" in line]
    chosen = (errors or texts or [""])[-1]
    return re.sub(r"eyJ[\w-]{10,}(\.[\w-]+)*", "(token)", chosen)[:300]


class Worker:
    """A supervised process, started when it is needed and replaced when it fails; any thread may use it.

    Args:
        command: starts the process; two arguments for :func:`serve` are added.
        limit_bytes: the largest size of the process.
        env: returns the environment of the next process; None for that of this process.
        setup: the first request to each process; None if it needs none.
        max_answers: a process is replaced after so many answers; None for no limit.
        max_line_bytes: the largest line that is read.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        limit_bytes: int,
        env: Callable[[], Mapping[str, str] | None] = lambda: None,
        setup: Message | None = None,
        max_answers: int | None = None,
        max_line_bytes: int = 1 << 20,
    ) -> None:
        self._command = tuple(command)
        self.limit_bytes = limit_bytes
        self._env = env
        self._setup = setup
        self._max_answers = max_answers
        self._max_line_bytes = max_line_bytes
        self._lock = threading.Lock()
        self._close_event = threading.Event()
        self._process: _Process | None = None
        self._left: _Process | None = None
        self._start_count = 0
        self._failed_starts = 0
        self._last_id = 0

    @property
    def restart_count(self) -> int:
        """Return the number of failed processes that were replaced; planned replacements do not count."""
        return max(0, self._start_count - 1)

    @property
    def pid(self) -> int | None:
        """Return the process id; None if no process runs."""
        process = self._process
        return process.pid if process else None

    def start(self) -> None:
        """Start the process now, so that it is ready when it is needed.

        Raises:
            WorkerFailed: the process ended.
            WorkerRefused: it cannot do its work.
        """
        with self._lock:
            self._ensure_process()

    def exchange(
        self, request: Mapping[str, Any], seconds: float, on_part: Callable[[Any], None] | None = None
    ) -> Message:
        """Send *request* and return the answer, which has the key ``ok`` or ``error``.

        Args:
            request: the values must have a JSON form.
            seconds: the longest time without a line of the worker.
            on_part: gets each part of the answer; an exception that it raises ends the process.

        Raises:
            WorkerFailed: the process ended before its answer, and the next exchange starts another.
            WorkerRefused: a new process cannot do its work.
        """
        with self._lock:
            process = self._ensure_process()
            self._last_id += 1
            try:
                return process.exchange({**request, "id": self._last_id}, seconds, on_part)
            except BaseException:
                self._discard()
                raise

    def beside(self) -> "Worker":
        """Return a second worker of this kind, with a limit of its own."""
        return Worker(
            self._command,
            limit_bytes=self.limit_bytes,
            env=self._env,
            setup=self._setup,
            max_line_bytes=self._max_line_bytes,
        )

    def close(self) -> None:
        """End the process, also while an exchange waits for its answer; closing twice is not an error.

        A process without a request may first remove its files.
        """
        self._close_event.set()
        is_idle = self._lock.acquire(blocking=False)
        if is_idle:
            self._lock.release()
        elif process := self._process:
            process.kill()
        with self._lock:
            if self._process:
                self._process.ask_to_end()
            self._discard()

    def _ensure_process(self) -> _Process:
        if self._close_event.is_set():
            raise WorkerFailed("it is closed", has_ended_itself=False)
        if self._left and not self._left.end():
            raise WorkerFailed(
                f"process {self._left.pid} does not end: it waits for a file server or a broken device",
                has_ended_itself=False,
            )
        self._left = None
        if self._process and self._max_answers and self._process.answer_count >= self._max_answers:
            self._start_count -= 1  # planned: the next process is in place of this one
            self._discard()
        if self._process:
            self._process.reap_orphans()
            if self._process.has_ended():
                self._discard()
        if self._process is None:
            if self._failed_starts:
                self._close_event.wait(min(0.1 * 2 ** (self._failed_starts - 1), MAX_PAUSE_SECONDS))
            self._process = self._start()
        return self._process

    def _start(self) -> _Process:
        self._start_count += 1
        try:
            process = _Process(self._command, self._env(), self.limit_bytes, self._max_line_bytes)
        except OSError as exc:
            raise WorkerFailed(f"its process could not be started: {exc}") from None
        self._process = process
        if self._close_event.is_set():  # by a close that saw no process
            process.kill()
        try:
            process.exchange(None, START_SECONDS)
            if self._setup:
                self._last_id += 1
                answer = process.exchange({**self._setup, "id": self._last_id}, START_SECONDS)
                process.answer_count = 0
                if "error" in answer:
                    raise WorkerRefused(answer["error"])  # noqa: TRY301  (the process is of no use)
        except BaseException:
            self._discard()
            raise
        return process

    def _discard(self) -> None:
        if process := self._process:
            self._process = None
            self._failed_starts = 0 if process.answer_count else self._failed_starts + 1
            if not process.end():
                self._left = process


# -- in the worker


class _CurrentAnswer:
    """The answer that this process is working on; without one, ``send_part`` is None."""

    send_part: Callable[[Any], None] | None = None


_current_answer = _CurrentAnswer()


def send_part(part: Message) -> None:
    """Send a part of the current answer, if there is one."""
    if _current_answer.send_part:
        _current_answer.send_part(part)


def announce(dids: Collection[str] = ()) -> None:
    """Report the next question to the server, and its datasets, so that this process has time for it.

    If the process ends at this question, the supervisor knows the datasets.
    """
    send_part({"asks": list(dids)})


_asked: set[str] = set()
_asked_lock = threading.Lock()


@contextmanager
def asking(did: str) -> Iterator[None]:
    """Announce the questions of the ``with`` block about *did*, beside those of other threads."""
    with _asked_lock:
        _asked.add(did)
        announce(sorted(_asked))
    try:
        yield
    finally:
        with _asked_lock:
            _asked.discard(did)


Answer = Callable[[Message, Callable[[Any], None]], Message]
"""Answers a request; the second argument sends a part of the answer."""


def serve(build: Callable[[], Answer]) -> NoReturn:
    """Answer requests until the other end closes the socket.

    Args:
        build: imports the foreign code, and returns the function that answers.
    """
    end_with_supervisor(int(sys.argv[-2]))
    limit_bytes = int(sys.argv[-1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the supervisor decides when this process ends
        signal.signal(ignored, lambda *_: None)  # not SIG_IGN, which a command would inherit
        signal.siginterrupt(ignored, False)
    channel = _take_channel()
    sending = threading.Lock()

    def send(message: Message) -> None:
        with sending:
            channel.sendall(json.dumps(message).encode() + b"\n")

    try:
        answer = build()
        send({"id": 0, "ok": "ready"})
        for line in channel.makefile("rb"):
            request = json.loads(line)

            def send_one(part: Any, request_id: int = request["id"]) -> None:  # noqa: ANN401  (JSON)
                send({"id": request_id, "part": part})

            _current_answer.send_part = send_one
            message = answer(request, send_one)
            _current_answer.send_part = None
            send({"id": request["id"], **message})
    except BaseException as error:
        end_if_out_of_memory(error)
        raise
    sys.exit(0)


def end_if_out_of_memory(error: BaseException | None) -> None:
    """End this process if *error* is a MemoryError, or was raised because of one."""
    while error is not None:
        if isinstance(error, MemoryError):
            os._exit(MEMORY_STATUS)
        error = error.__cause__ or error.__context__


def kill_commands() -> None:
    """Kill the commands that this worker runs, and what they have started: the rest of its session."""
    for folder in Path("/proc").iterdir():
        with suppress(ValueError, OSError):  # not of a process, or of one that has just ended
            pid = int(folder.name)
            if pid != os.getpid() and os.getsid(pid) == os.getpid():  # a worker leads its session
                os.kill(pid, signal.SIGKILL)


def end_with_supervisor(lifeline: int) -> None:
    """Let the kernel kill this process group when the pipe *lifeline* has no writer any more."""
    os.set_inheritable(lifeline, False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # the supervisor has already ended
        os._exit(0)


def _take_channel() -> socket.socket:
    """Move the socket away from descriptor 0, so that no other code reads from it; return the socket.

    Foreign code may print to descriptor 1, so this points to descriptor 2.
    """
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return channel
