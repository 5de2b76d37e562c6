"""A stand-in for a worker: it has the real one's safety and protocol, and misbehaves on request.

The first argument is a file to which each start adds its process id. After it, ``stillborn`` ends the process
before it is ready, and ``slow`` lets it never be ready. The ``call`` of a request, or its ``name``, selects
what happens.
"""

import atexit
import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapters.worker import Message, serve

_kept: list[Any] = []


def hang_deaf() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
    ctypes.PyDLL(None).sleep(3600)  # PyDLL keeps the lock of the interpreter


def fail_fatally() -> None:
    os.write(2, b"11/21/26 02:00:00 SECMAN: chatter\n")
    os.write(2, b'11/21/26 02:00:00 ERROR "no interface" eyJhbGciOiJIUzI1NiJ9.x.y\n')
    os._exit(4)


def allocate() -> None:
    try:
        _kept.append([[] for _ in range(100_000_000)])
    except MemoryError as error:
        raise ValueError("it cannot be decoded") from error


def share() -> None:
    shared = mmap.mmap(-1, 300_000_000)
    for _ in range(300):
        shared.write(b"x" * 1_000_000)
    time.sleep(3600)


def note_end() -> None:
    atexit.register(Path(sys.argv[1] + ".end").touch)


ACTS: dict[str, Callable[[], object]] = {
    "hang": lambda: time.sleep(3600),
    "hang, ignoring signals": hang_deaf,
    "start a process": lambda: subprocess.Popen(["sleep", "3600"]).pid,
    "leave an orphan": lambda: int(subprocess.check_output(["sh", "-c", "sleep 0.1 >&- & echo $!"])),
    "note the end": note_end,
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": sys.exit,
    "fatal": fail_fatally,
    "allocate": allocate,
    "reserve": lambda: _kept.append(bytes(1_000_000_000)),  # untouched: its resident size stays small
    "share": share,
    "print much": lambda: print("x" * 3_000_000, flush=True),
    "leak": lambda: _kept.append(os.urandom(30_000_000)),
}


def act(what: str, send_part: Callable[[Any], None]) -> object:
    if what == "parts":
        for number in range(4):
            time.sleep(0.6)
            send_part(number)
    elif what == "flood":
        send_part("x" * 2_000_000)
    return ACTS.get(what, lambda: None)() or what


def build() -> Callable[[Message, Callable[[Any], None]], Message]:
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    print("a greeting that is not part of the protocol")
    if "stillborn" in sys.argv:
        sys.exit(7)
    if "slow" in sys.argv:
        time.sleep(3600)

    def answer(request: Message, send_part: Callable[[Any], None]) -> Message:
        what = request["args"]["name"] if "args" in request else request["call"]
        if what == "denied":
            reason = "it authenticated the client as eve (by IDTOKENS) and denies that identity"
            return {"error": {"kind": "denied", "reason": reason, "daemon": None}}
        return {"ok": {"pid": str(os.getpid()), "seen": act(what, send_part)}}

    return answer


serve(build)
