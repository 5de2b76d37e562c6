"""Child process for HTCondor's bindings: start, end and replace it; one call is an exchange of JSON lines."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Self

from hydrator.domain.errors import ConfigError, PoolDenied, PoolError
from hydrator.domain.redaction import escape_unprintable_tree

from .library import FIRST_COLLECTOR, Ad
from .token_advice import NEEDS, READ_NEED, describe_token_limit, is_level_missing, token_advice, token_limits

CHILD = (sys.executable, "-P", "-m", "adapters.condor.bindings.child")
START_SECONDS = 60.0
"""Seconds that a child may take to import the bindings: 0.2 s when idle, far more on a busy machine."""
MAX_ANSWER_BYTES = 256 * 1024 * 1024
MAX_STDERR_CHARS = 300
FATAL_STATUS = 4  # EXCEPT() in HTCondor's C++ code ends the process with this status
CONFIG_FILES = ("/etc/condor/condor_config", "/usr/local/etc/condor_config")
MAX_PAUSE_SECONDS = 5.0
MAX_CALLS_OF_CHILD = 10_000
"""Answers after which a new child starts instead: the bindings leak some 0.7 kB a call (benchmarks, soak)."""
COLLECTOR_QUERIES = {"site_ads", "schedds", "slots"}
"""Calls in which only a collector can hang: the next child then queries another collector first, if any."""
LOCAL_CALLS = {
    "parse": "the ClassAd parser",
    "read_constraint_names": "the ClassAd parser",
    "token_folders": "HTCondor's configuration",
}
"""Calls that contact no daemon, each with the part that answers it, as messages name it."""
TIMEOUT_FACTORS = {
    "evaluate_match": 6,
    "outcomes": 6,
}
"""The limit of a call, as a number of timeouts; 2,000 slots and 244 datasets need 4 s plus the queries."""


@dataclass(frozen=True, slots=True)
class CondorSettings:
    """The address of a pool and the credentials for it.

    ``collector`` is ``host:port``, or several of these separated by commas; None means
    COLLECTOR_HOST of HTCondor's configuration. ``config_file`` replaces CONDOR_CONFIG.
    ``token_directory`` has the IDTOKENS to use. ``timeout`` is the time limit of each call.
    """

    collector: str | None = None
    config_file: Path | None = None
    token_directory: Path | None = None
    timeout: timedelta = timedelta(seconds=20)


def build_environment(
    settings: CondorSettings, base_environment: Mapping[str, str], config_files: Iterable[str] = CONFIG_FILES
) -> dict[str, str]:
    """Build the child's environment.

    HTCondor reads a variable ``_CONDOR_NAME`` as the configuration value ``NAME``. With a token directory
    and without ``settings.config_file`` the token is the only credential. By default an HTCondor client
    authenticates only if the daemon requires it. So in this case the environment prefers authentication;
    otherwise the daemon would see an unauthenticated client. *config_files* are the places where HTCondor
    looks for its configuration; if no such file exists, HTCondor reads only this environment.
    """
    env = dict(base_environment)
    if settings.config_file is not None:
        env["CONDOR_CONFIG"] = str(settings.config_file)
    elif "CONDOR_CONFIG" not in env and not any(Path(file).is_file() for file in config_files):
        env["CONDOR_CONFIG"] = "ONLY_ENV"
    if settings.collector is not None:
        env["_CONDOR_COLLECTOR_HOST"] = settings.collector
    if settings.token_directory is not None:
        env["_CONDOR_SEC_TOKEN_DIRECTORY"] = str(settings.token_directory)
        if settings.config_file is None:
            env["_CONDOR_SEC_CLIENT_AUTHENTICATION"] = "PREFERRED"
            env["_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS"] = "IDTOKENS"
    return env


def summarize_stderr(stderr: str) -> str:
    """Return the most informative line of *stderr*, without time stamps and tokens."""
    lines = [
        re.sub(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)? ", "", line).strip() for line in stderr.splitlines()
    ]
    texts = [line for line in lines if line]
    errors = [line for line in texts if "ERROR" in line or "Error" in line]
    chosen = (errors or texts or [""])[-1]
    return re.sub(r"eyJ[\w-]{10,}(\.[\w-]+)*", "(token)", chosen)[:MAX_STDERR_CHARS]


class _ChildUnavailable(Exception):
    """The child process cannot be used any more; the text is the reason."""


class _Child:
    """A running child process and the socket on which it answers."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._channel, child_end = socket.socketpair()
        self._buffer = b""
        self._stderr: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115  (the method end closes this file)
        self.answer_count = 0
        with child_end:
            try:
                self._process: subprocess.Popen[bytes] = subprocess.Popen(
                    command,
                    stdin=child_end.fileno(),
                    stdout=self._stderr,
                    stderr=self._stderr,
                    env=env,
                    start_new_session=True,
                )
            except OSError:
                self._channel.close()
                self._stderr.close()
                raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def exchange(self, request: Mapping[str, Any] | None, seconds: float) -> Ad:
        """Send *request*, if any, and return one answer.

        Raises:
            _ChildUnavailable: the child did not answer in time, died, or sent a line that is not the answer.
        """
        deadline = time.monotonic() + seconds
        try:
            if request is not None:
                self._channel.settimeout(seconds)
                self._channel.sendall(json.dumps(request).encode() + b"\n")
            line = self._read_line(deadline)
            answer = json.loads(line)
        except TimeoutError:
            raise _ChildUnavailable(f"no answer within {seconds:g} s") from None
        except OSError:
            raise _ChildUnavailable(self._exit_reason()) from None
        except ValueError:
            raise _ChildUnavailable(
                f"the HTCondor process answered {line[:60]!r}, which is not JSON"
            ) from None
        if not isinstance(answer, dict) or answer.get("id") != (request or {"id": 0})["id"]:
            raise _ChildUnavailable(
                f"the HTCondor process answered {line[:60]!r}, which is not the answer to the request"
            )
        self.answer_count += request is not None
        if b"\\u" in line:  # escapes of non-ASCII letters and of terminal control codes in JSON
            return dict(escape_unprintable_tree(answer, "\n\r\t"))
        return answer

    def _read_line(self, deadline: float) -> bytes:
        chunks = [self._buffer]
        size = len(self._buffer)
        while b"\n" not in chunks[-1]:
            remaining_seconds = deadline - time.monotonic()
            if remaining_seconds <= 0:
                raise TimeoutError
            self._channel.settimeout(remaining_seconds)
            chunk = self._channel.recv(1 << 18)
            size += len(chunk)
            if not chunk:
                raise ConnectionResetError
            if size > MAX_ANSWER_BYTES:
                raise _ChildUnavailable(f"the HTCondor process answered more than {MAX_ANSWER_BYTES} bytes")
            chunks.append(chunk)
        line, _, self._buffer = b"".join(chunks).partition(b"\n")
        return line

    def _exit_reason(self) -> str:
        """Return how the child ended, and its last error. Call this after the child closed the socket."""
        try:
            status = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "the HTCondor process closed its socket"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        elif status == FATAL_STATUS:
            how = f"met a fatal error in HTCondor's C++ code (exit status {FATAL_STATUS})"
        else:
            how = f"ended with status {status}"
        error = summarize_stderr(self._read_stderr_tail())
        return f"the HTCondor process {how}" + (f": {error}" if error else "")

    def _read_stderr_tail(self) -> str:
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), 8192, max(0, size - 8192)).decode("utf-8", "replace")

    def kill(self) -> None:
        """Kill the process group; :meth:`end` waits for it."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the process, wait for it and close its files, so that no zombie or open file remains."""
        self.kill()
        self._channel.close()
        self._process.wait()
        self._stderr.close()


class ProcessClient:
    """A client that makes calls in a child process, which may hang or die without harm to this process.

    The client is thread-safe: it sends one request at a time.
    The time limit of a call is ``settings.timeout``. If the child hangs, dies or sends an invalid answer,
    the client kills it, the call raises PoolError, and the next call starts a new child. The kernel kills
    the child when the thread that started it ends, and therefore also when this process ends.

    Every call raises:
        PoolDenied: a daemon denied the credentials or the authorization.
        PoolError: a daemon did not answer in time.
        ConfigError: an expression that the caller gave cannot be parsed.
    """

    def __init__(
        self,
        settings: CondorSettings,
        command: Sequence[str] = CHILD,
        *,
        max_calls_of_child: int = MAX_CALLS_OF_CHILD,
    ) -> None:
        self._settings = settings
        self._max_calls_of_child = max_calls_of_child
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._close_event = threading.Event()
        # PR_SET_PDEATHSIG watches the *thread* that started the child, so one thread starts all children
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="condor-child")
        self._child: _Child | None = None
        self._start_count = 0
        self._planned_restarts = 0
        self._failed_starts = 0
        self._last_id = 0
        self._first_collector = 0

    @property
    def restart_count(self) -> int:
        """Return the number of failed children that were replaced; planned replacements do not count."""
        return max(0, self._start_count - self._planned_restarts - 1)

    @property
    def pid(self) -> int | None:
        """Return the process id of the child; None if no child runs."""
        child = self._child
        return child.pid if child else None

    def close(self) -> None:
        """Stop the child, also while a call waits for its answer; closing twice is not an error."""
        self._close_event.set()
        if child := self._child:
            child.kill()
        with self._lock:
            self._discard_child()
        self._starter.shutdown(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def token_folders(self) -> list[Path]:
        """Return the folders where HTCondor looks for IDTOKENS, without contacting a daemon."""
        return [Path(folder) for folder in self._call("token_folders")]

    def _call(self, call: str, **args: object) -> Any:  # noqa: ANN401  (JSON)
        """Make one call in the child process; the values in *args* must have a JSON form."""
        seconds = self._settings.timeout.total_seconds() * TIMEOUT_FACTORS.get(call, 1)
        with self._lock:
            try:
                child = self._ensure_child()
                self._last_id += 1
                request = {"id": self._last_id, "call": call, "args": args}
                answer = child.exchange(request, seconds)
            except _ChildUnavailable as exc:
                self._discard_child()
                if call in COLLECTOR_QUERIES and not args.get("collector"):
                    self._first_collector += 1
                raise PoolError(self._describe_target(call, args), str(exc)) from None
        if error := answer.get("error"):
            level, advice = NEEDS.get(call, READ_NEED)
            self._raise_error(error, error["daemon"] or self._describe_target(call, args), level, advice)
        return answer["ok"]

    def _describe_target(self, call: str, args: Mapping[str, object]) -> str:
        """Return the name, for messages, of the daemon that a call contacts."""
        if call in LOCAL_CALLS:
            return LOCAL_CALLS[call]
        if "daemon" in args:
            parts = args["daemon"], args["name"]
        elif "schedd" in args:
            parts = "schedd", args["schedd"]
        else:
            parts = "collector", args.get("collector") or self._settings.collector
        return " ".join(str(part) for part in parts if part)

    def _raise_error(self, error: Mapping[str, Any], daemon: str, level: str, advice: str) -> None:
        reason = str(error["reason"]).rstrip(".")
        if error["kind"] == "usage":
            raise ConfigError([reason])
        if error["kind"] == "denied":
            if "none of the credentials" in reason:
                advice = token_advice(self._settings.token_directory, os.geteuid())
            elif "(by IDTOKENS)" in reason and level:
                advice = self._token_limit_advice(level) or advice
            raise PoolDenied(daemon, f"{reason}; {advice}" if advice else reason)
        if "determine collector host" in reason:
            reason += (
                "; set htcondor.collector to the collector's host, or COLLECTOR_HOST in htcondor.config_file"
            )
        raise PoolError(daemon, reason)

    def _token_limit_advice(self, level: str) -> str:
        """Return advice if the tokens do not allow *level*; "" if they allow *level* or cannot be read."""
        with suppress(PoolError):
            allowed_levels = token_limits(self.token_folders())
            if is_level_missing(allowed_levels, level):
                return describe_token_limit(allowed_levels, level)
        return ""

    def _ensure_child(self) -> _Child:
        if self._close_event.is_set():
            raise _ChildUnavailable("the client of the pool is closed")
        if self._child is not None and self._child.answer_count >= self._max_calls_of_child:
            self._planned_restarts += 1
            self._discard_child()
        if self._child is None:
            if self._failed_starts:
                self._close_event.wait(min(0.1 * 2 ** (self._failed_starts - 1), MAX_PAUSE_SECONDS))
            self._child = self._start_child()
        return self._child

    def _start_child(self) -> _Child:
        self._start_count += 1
        env = {
            **build_environment(self._settings, os.environ),
            FIRST_COLLECTOR: str(self._first_collector),
        }
        try:
            child = self._starter.submit(_Child, self._command, env).result()
        except (OSError, RuntimeError) as exc:
            raise _ChildUnavailable(f"the HTCondor process could not be started: {exc}") from None
        self._child = child
        child.exchange(None, START_SECONDS)
        return child

    def _discard_child(self) -> None:
        if child := self._child:
            self._child = None
            self._failed_starts = 0 if child.answer_count else self._failed_starts + 1
            child.end()
