"""Child process of HTCondor's bindings: start it, exchange one JSON line a call, and end it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from hydrator.domain.redaction import escape_unprintable_tree

CHILD = (sys.executable, "-P", "-m", "adapters.condor.bindings.child")


START_SECONDS = 60.0
"""How long a child may take to import the bindings: 0.2 s when idle, far more on a busy machine."""


MAX_ANSWER_BYTES = 256 * 1024 * 1024


MAX_STDERR_CHARS = 300


FATAL_STATUS = 4  # EXCEPT() in HTCondor's C++ code ends the process with it


CONFIG_FILES = ("/etc/condor/condor_config", "/usr/local/etc/condor_config")


Ad = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CondorSettings:
    """Where the pool is and who we are to it.

    ``collector`` is ``host:port``, several separated by commas; None takes
    COLLECTOR_HOST from HTCondor's configuration. ``config_file`` stands in for
    CONDOR_CONFIG. ``token_directory`` has our IDTOKENS. ``params`` are HTCondor
    configuration values that outrank all others. ``timeout`` bounds each call.
    """

    collector: str | None = None
    config_file: Path | None = None
    token_directory: Path | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    timeout: timedelta = timedelta(seconds=20)


def build_environment(
    settings: CondorSettings, base_environment: Mapping[str, str], config_files: Iterable[str] = CONFIG_FILES
) -> dict[str, str]:
    """The child's environment.

    HTCondor reads ``_CONDOR_NAME`` as configuration. With a token directory
    and no configuration file of ours the token is the only credential: the
    client's default asks for no authentication where the daemon does not
    insist, and would then be a stranger. *files* are where HTCondor looks
    for a configuration; without any, only this environment counts.
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
    env.update({f"_CONDOR_{name}": value for name, value in settings.params.items()})
    return env


def summarize_stderr(stderr: str) -> str:
    """The one line of *stderr* that says most, without time stamps and tokens."""
    lines = [
        re.sub(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)? ", "", line).strip() for line in stderr.splitlines()
    ]
    telling = [line for line in lines if line]
    errors = [line for line in telling if "ERROR" in line or "Error" in line]
    chosen = (errors or telling or [""])[-1]
    return re.sub(r"eyJ[\w-]{10,}(\.[\w-]+)*", "(token)", chosen)[:MAX_STDERR_CHARS]


class _ChildUnavailable(Exception):
    """The child cannot be used any more; the text says why."""


class _Child:
    """One running child process and the socket it answers on."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self._channel = ours
        self._buffer = b""
        self._stderr: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115  (closed by end)
        self.answer_count = 0
        with theirs:
            try:
                self._process: subprocess.Popen[bytes] = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=self._stderr,
                    stderr=self._stderr,
                    env=env,
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                self._stderr.close()
                raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def exchange(self, request: Mapping[str, Any] | None, seconds: float) -> Ad:
        """Send *request*, where there is one, and take one answer.

        Raises:
            _Gone: no answer in time, the child died, or what it said is no answer to this.
        """
        deadline = time.monotonic() + seconds
        try:
            if request is not None:
                self._channel.settimeout(seconds)
                self._channel.sendall(json.dumps(request).encode() + b"\n")
            line = self._read_line(deadline)
        except TimeoutError:
            raise _ChildUnavailable(f"no answer within {seconds:g} s") from None
        except OSError:
            raise _ChildUnavailable(self._exit_reason()) from None
        if line is None:
            raise _ChildUnavailable(self._exit_reason())
        try:
            answer = json.loads(line)
        except ValueError:
            raise _ChildUnavailable(
                f"the HTCondor process answered {line[:60]!r}, which is no JSON"
            ) from None
        if not isinstance(answer, dict) or answer.get("id") != (request or {"id": 0})["id"]:
            raise _ChildUnavailable(f"the HTCondor process answered {line[:60]!r}, which we did not ask")
        self.answer_count += request is not None
        if b"\\u" in line:  # so JSON writes what is not ASCII, and what steers a terminal
            return dict(escape_unprintable_tree(answer, "\n\r\t"))
        return answer

    def _read_line(self, deadline: float) -> bytes | None:
        chunks = [self._buffer]
        size = len(self._buffer)
        while b"\n" not in chunks[-1]:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._channel.settimeout(left)
            chunk = self._channel.recv(1 << 18)
            size += len(chunk)
            if not chunk:
                return None
            if size > MAX_ANSWER_BYTES:
                raise _ChildUnavailable(f"the HTCondor process answered more than {MAX_ANSWER_BYTES} bytes")
            chunks.append(chunk)
        line, _, self._buffer = b"".join(chunks).partition(b"\n")
        return line

    def _exit_reason(self) -> str:
        """How the child ended and its last words; it has let go of the channel, so it is as good as dead."""
        try:
            status = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "the HTCondor process closed its channel"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        elif status == FATAL_STATUS:
            how = f"met a fatal error in HTCondor's C++ code (exit status {FATAL_STATUS})"
        else:
            how = f"ended with status {status}"
        words = summarize_stderr(self._read_stderr_tail())
        return f"the HTCondor process {how}" + (f": {words}" if words else "")

    def _read_stderr_tail(self) -> str:
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), 8192, max(0, size - 8192)).decode("utf-8", "replace")

    def kill(self) -> None:
        """End the process, and whatever it started; it remains to be waited for."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill, wait, let go: leaves no zombie and no descriptor."""
        self.kill()
        self._channel.close()
        self._process.wait()
        self._stderr.close()
