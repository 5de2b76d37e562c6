"""The command ``hydrator``, loaded once by a process that forks for each call.

Python's start and the imports of a command need 1.5 s of CPU, which is most of the CPU that the tests on a
pool need. A call here is a process of its own, with its own environment, working directory and output, and
with the same exit status; only the imports are made before.
"""

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_lock = threading.Lock()
_connections: dict[int, socket.socket] = {}
"""The connection to the loaded process, by the process that uses it: a fork does not use its parent's."""


def run_hydrator(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    timeout: float = 720,
) -> subprocess.CompletedProcess[str]:
    """Run ``hydrator`` with *words*, without standard input.

    Args:
        environment: the environment of the call instead of that of this process.
        folder: the working directory instead of that of this process.
        timeout: limit in seconds.

    Raises:
        subprocess.TimeoutExpired: the call did not end in time; it is killed by then.
    """
    request = os.memfd_create("request")
    with os.fdopen(request, "w", encoding="utf-8") as file:
        folder = folder or Path.cwd()
        call = {"words": words, "environment": dict(environment or os.environ), "folder": f"{folder}"}
        json.dump(call, file)
        file.flush()
        pipes = [os.pipe() for _ in range(3)]
        try:
            socket.send_fds(_connection(), [b"!"], [request, *(write for _, write in pipes)])
        finally:
            for _, write in pipes:
                os.close(write)
    output, errors, status = _read_all([read for read, _ in pipes], words, timeout)
    return subprocess.CompletedProcess(
        ["hydrator", *words], int(status.split()[1]), output.decode(), errors.decode()
    )


def _connection() -> socket.socket:
    """Return the connection to the loaded process, which ends with this process."""
    with _lock:
        if os.getpid() not in _connections:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                loaded = subprocess.Popen(
                    [sys.executable, "-m", "testbed.loaded_cli", f"{theirs.fileno()}"],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    cwd=Path(__file__).parents[1],
                )
            _connections[os.getpid()] = ours
            atexit.register(_end, loaded, ours)
        return _connections[os.getpid()]


def _end(loaded: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    loaded.wait()


def _read_all(pipes: Sequence[int], words: Sequence[str], timeout: float) -> list[bytes]:
    """Read *pipes* to their ends: output, errors, and status, which begins with the number of the process."""
    parts: dict[int, bytearray] = {pipe: bytearray() for pipe in pipes}
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if not ready:
                for key in list(selector.get_map().values()):
                    os.close(key.fd)
                os.kill(int(parts[pipes[2]].split()[0]), signal.SIGKILL)
                raise subprocess.TimeoutExpired(["hydrator", *words], timeout)
            for key, _ in ready:
                if data := os.read(key.fd, 1 << 16):
                    parts[key.fd] += data
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [bytes(part) for part in parts.values()]


def _serve(connection: socket.socket) -> None:
    """Run each requested call, until the process that started this one ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: only calls end
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
        if not message:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            _watch(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _watch(descriptors: Sequence[int]) -> NoReturn:
    """Fork the call, and report the number of its process and its exit status."""
    request, output, errors, status = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _call(request, output, errors)
    os.close(output)
    os.close(errors)
    os.write(status, f"{pid}\n".encode())
    _, ended = os.waitpid(pid, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def _call(request: int, output: int, errors: int) -> NoReturn:
    """Be ``hydrator`` with the words of *request*."""
    from hydrator.cli.app import main

    for descriptor, stream in ((output, 1), (errors, 2)):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.lseek(request, 0, os.SEEK_SET)
    with os.fdopen(request, encoding="utf-8") as file:
        call = json.load(file)
    os.environ.clear()
    os.environ.update(call["environment"])
    os.chdir(call["folder"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["hydrator", *call["words"]]
    main()
    sys.exit(0)


def main() -> None:
    """Load the command, and serve the connection whose number is the first word."""
    import hydrator.cli.app
    import hydrator.wiring  # noqa: F401

    with socket.socket(fileno=int(sys.argv[1])) as connection:
        _serve(connection)


if __name__ == "__main__":
    main()
