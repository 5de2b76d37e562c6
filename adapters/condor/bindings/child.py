"""Child process with HTCondor's Python bindings: read one request per line and answer it.

Requests come on the socket that is file descriptor 0, each ``{"id": …, "call": …, "args": {…}}``.
The answer is one line, ``{"id": …, "ok": …}`` or ``{"id": …, "error": {…}}``. The bindings may print to
descriptor 1, so descriptor 1 points to descriptor 2. The parent stores this output, and reads it when this
process fails.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from .collector_calls import CollectorCalls
from .library import CallError, failure_of
from .schedd_calls import NeedCalls, ScheddCalls, TransferCalls

PR_SET_PDEATHSIG = 1


class PoolCalls(CollectorCalls, ScheddCalls, NeedCalls, TransferCalls):
    """All calls that the parent may request, one method each; arguments and results are JSON."""


def answer(calls: PoolCalls, request: Mapping[str, Any]) -> dict[str, Any]:
    """Make the call of one request; return the answer with the result or the failure."""
    with suppress(OSError):
        os.ftruncate(2, 0)
    try:
        return {"ok": getattr(calls, request["call"])(**request["args"])}
    except Exception as exc:  # noqa: BLE001  (the parent decides what to do after a failure)
        return {"error": vars(exc if isinstance(exc, CallError) else failure_of(exc))}


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends, even if C++ code blocks."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def take_channel() -> socket.socket:
    """Move the socket away from descriptor 0, so that no other code reads from it; return the socket."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return channel


def main() -> NoReturn:
    """Answer requests until the parent closes its end of the socket."""
    die_with_parent()
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the parent decides when this process ends
        signal.signal(ignored, signal.SIG_IGN)
    channel = take_channel()
    calls = PoolCalls()
    with channel, channel.makefile("rb") as requests:
        channel.sendall(b'{"id": 0, "ok": "ready"}\n')
        for line in requests:
            request = json.loads(line)
            reply = {"id": request["id"], **answer(calls, request)}
            channel.sendall(json.dumps(reply).encode() + b"\n")
    sys.exit(0)


if __name__ == "__main__":
    main()
