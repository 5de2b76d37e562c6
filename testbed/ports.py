"""Ports of loopback for servers that tests start, each leased to one process until that process ends."""

import errno
import random
import socket

FROM, BELOW = 20000, 32000
"""Outside the range from which the kernel hands out others: what was stopped must get its port back."""


def free_port() -> int:
    """Lease a port that is free for TCP and UDP; no other caller gets it while this process lives.

    Raises:
        OSError: there is none.
    """
    for port in random.sample(range(FROM, BELOW), BELOW - FROM):
        # first the lease: a port that another process has leased is free until its server binds it
        if (lease := _lease(port)) is None:
            continue
        if _free(port):
            lease.detach()  # open until this process ends
            return port
        lease.close()
    raise OSError(errno.EADDRINUSE, f"no free port from {FROM} up to {BELOW} on 127.0.0.1")


def _lease(port: int) -> socket.socket | None:
    """Take the name of *port* in the network namespace, or return None where another process has it.

    The kernel gives the name of an abstract socket back when the process ends; it leaves no file behind, and
    the programs that this process starts do not inherit it.
    """
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lease.bind(f"\0classad-hydrator-testbed-port-{port}")
    except OSError:
        lease.close()
        return None
    return lease


def _free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
