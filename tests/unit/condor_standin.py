"""A stand-in for the HTCondor child process: it has the protocol, no pool, and misbehaves on request.

The first argument selects its behaviour, and the ``name`` in the arguments of a call selects what the
call does. Each start appends a line to the file that the second argument names.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path


def act(what: str) -> object:
    if what == "hang":
        time.sleep(3600)
    elif what == "hang, ignoring signals":
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
        time.sleep(3600)
    elif what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "fatal":
        os.write(2, b"11/21/26 02:00:00 SECMAN: chatter\n")
        os.write(2, b'11/21/26 02:00:00 ERROR "no interface" eyJhbGciOiJIUzI1NiJ9.x.y\n')
        os._exit(4)
    elif what == "denied":
        return {
            "error": {
                "kind": "denied",
                "reason": "it authenticated the client as eve (by IDTOKENS) and denies that identity",
                "daemon": None,
            }
        }
    return {"ok": {"pid": str(os.getpid()), "seen": what}}


def main() -> None:
    mode, starts = sys.argv[1:3]
    with Path(starts).open("a") as file:
        file.write(f"{os.getpid()}\n")
    channel = socket.socket(fileno=os.dup(0))
    print("a greeting that is not part of the protocol")
    if mode == "stillborn":
        sys.exit(7)
    if mode == "with the real one's safety":
        from adapters.condor.bindings.child import die_with_parent

        die_with_parent()
    channel.sendall(b'{"id": 0, "ok": "ready"}\n')
    for line in channel.makefile("rb"):
        request = json.loads(line)
        what = request["args"]["name"]
        if what == "garbage":
            channel.sendall(b"Segmentation fault, maybe\n")
        elif what == "another answer":
            channel.sendall(b'{"id": 12345, "ok": {}}\n')
        elif what == "half an answer":
            channel.sendall(b'{"id": ')
            os._exit(0)
        else:
            channel.sendall(json.dumps({"id": request["id"], **act(what)}).encode() + b"\n")


main()
