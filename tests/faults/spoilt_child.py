"""The real HTCondor child process on the real pool.

A file names the calls to break: ``{"advertise": "hang"}``.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from adapters.condor.bindings import child


def spoil(how: str, channel, request: dict) -> None:
    """Break the answer as *name* says; some faults end the process and do not return."""
    if how == "hangs":
        time.sleep(3600)
    elif how == "kills its process":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "meets a fatal error":
        os.write(2, b'ERROR "something in C++"\n')
        os._exit(4)
    elif how == "gives half an answer":
        channel.sendall(json.dumps({"id": request["id"], "ok": [["lofar:L1"]]}).encode()[:-9])
        os._exit(0)
    elif how == "talks nonsense":
        channel.sendall(b"%!PS-Adobe\n")
    elif how == "is denied":
        error = {
            "kind": "denied",
            "reason": "it authenticated the client as eve (by IDTOKENS)",
            "daemon": None,
        }
        channel.sendall(json.dumps({"id": request["id"], "error": error}).encode() + b"\n")
    elif how == "fails":
        error = {"kind": "pool", "reason": "Failed communication with collector.", "daemon": None}
        channel.sendall(json.dumps({"id": request["id"], "error": error}).encode() + b"\n")


def main() -> None:
    control = Path(sys.argv[1])
    child.die_with_parent()
    channel = child.take_channel()
    calls = child.PoolCalls()
    with channel, channel.makefile("rb") as requests:
        channel.sendall(b'{"id": 0, "ok": "ready"}\n')
        for line in requests:
            request = json.loads(line)
            if how := json.loads(control.read_text()).get(request["call"]):
                spoil(how, channel, request)
                continue
            reply = {"id": request["id"], **child.answer(calls, request)}
            channel.sendall(json.dumps(reply).encode() + b"\n")


main()
