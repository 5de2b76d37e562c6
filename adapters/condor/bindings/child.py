"""Worker with HTCondor's Python bindings: it answers ``{"call": …, "args": {…}}``."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from adapters.worker import Answer, end_if_out_of_memory, serve

from .collector_calls import CollectorCalls
from .library import CallError, failure_of
from .match_calls import MatchCalls
from .schedd_calls import ScheddCalls, TransferCalls


class PoolCalls(CollectorCalls, ScheddCalls, MatchCalls, TransferCalls):
    """All calls that the parent may request, one method each; arguments and results are JSON."""


def answer(calls: PoolCalls, request: Mapping[str, Any]) -> dict[str, Any]:
    """Make the call of one request; return the answer with the result or the failure."""
    with suppress(OSError):
        os.ftruncate(2, 0)
    try:
        return {"ok": getattr(calls, request["call"])(**request["args"])}
    except Exception as exc:  # noqa: BLE001  (the parent decides what to do after a failure)
        end_if_out_of_memory(exc)
        return {"error": vars(exc if isinstance(exc, CallError) else failure_of(exc))}


def build() -> Answer:
    """Load the bindings; return the function that answers a request."""
    calls = PoolCalls()
    return lambda request, _send: answer(calls, request)


if __name__ == "__main__":
    serve(build)
