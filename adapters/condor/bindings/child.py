"""Child process that holds HTCondor's bindings: answer one request a line.

Requests come on the socket that is file descriptor 0, each ``{"id": …, "call": …, "args": {…}}``.
The answer is one line, ``{"id": …, "ok": …}`` or ``{"id": …, "error": {…}}``. The bindings may print:
descriptor 1 points to descriptor 2, which the parent stores and reads when this process fails.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from .collector_calls import CollectorCalls
from .library import Bindings, CallError, explain_failure, read_log
from .match_calls import MatchCalls
from .schedd_calls import ScheddCalls

PR_SET_PDEATHSIG = 1
Handlers = Mapping[str, Callable[..., Any]]


def build_handlers() -> Handlers:
    """Return the function that answers each call, by the name of the call; arguments and answers are JSON."""
    bindings = Bindings()
    collector = CollectorCalls(bindings)
    schedds = ScheddCalls(bindings)
    matches = MatchCalls(bindings)
    handlers: list[Callable[..., Any]] = [
        *(bindings.ping, bindings.config_of, bindings.token_folders, bindings.parse),
        *(collector.site_ads, collector.advertise, collector.invalidate, collector.heartbeat),
        *(collector.slots, collector.slots_at, collector.collectors, collector.merge),
        *(schedds.schedds, schedds.has_user_record, schedds.count_queued_datasets, schedds.release),
        *(schedds.read_job_groups, schedds.set_desired_sites, schedds.restore_desired_sites),
        *(schedds.query_misses, schedds.outcomes, schedds.last_ended),
        *(matches.jobs, matches.find_ended_job, matches.count_uploads, matches.evaluate_match),
    ]
    return {handler.__name__: handler for handler in handlers}


def answer(handlers: Handlers, request: Mapping[str, Any]) -> dict[str, Any]:
    """Make one call; every failure becomes an answer."""
    with suppress(OSError):
        os.ftruncate(2, 0)
    try:
        return {"ok": handlers[request["call"]](**request["args"])}
    except CallError as exc:
        return {"error": {"kind": exc.kind, "reason": exc.reason, "daemon": exc.daemon}}
    except Exception as exc:  # noqa: BLE001  (the parent decides about any failure of the bindings)
        kind, reason = explain_failure(read_log()) or ("pool", f"{exc}" or type(exc).__name__)
        return {"error": {"kind": kind, "reason": reason, "daemon": None}}


def die_with_parent() -> None:
    """Have the kernel end this process with the thread that started it, also while C++ code blocks."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def take_channel() -> socket.socket:
    """Return the socket on descriptor 0, moved to a descriptor that no code prints to or reads from."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return channel


def main() -> NoReturn:
    """Answer requests until the parent closes its end."""
    die_with_parent()
    for ignored in (signal.SIGINT, signal.SIGTERM):  # the parent decides when this process ends
        signal.signal(ignored, signal.SIG_IGN)
    channel = take_channel()
    handlers = build_handlers()
    with channel, channel.makefile("rb") as requests:
        channel.sendall(b'{"id": 0, "ok": "ready"}\n')
        for line in requests:
            request = json.loads(line)
            reply = {"id": request["id"], **answer(handlers, request)}
            channel.sendall(json.dumps(reply).encode() + b"\n")
    sys.exit(0)


if __name__ == "__main__":
    main()
