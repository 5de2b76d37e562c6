"""Ports of loopback for servers that tests start, each leased to one process until that process ends."""

import errno
import random
import socket

FROM, BELOW = 20000, 32000
"""Outside the range from which the kernel hands out others: what was stopped must get its port back."""

_leases: list[socket.socket] = []


def free_port() -> int:
    """Lease a port.

    Raises:
        OSError: there is none.
    """
    return free_ports(1)[0]


def free_ports(count: int, among: range = range(FROM, BELOW)) -> list[int]:
    """Lease as many ports, each free for TCP and UDP; no other caller gets them while this process lives.

    Raises:
        OSError: there are fewer.
    """
    leases: dict[int, socket.socket] = {}
    for port in random.sample(among, len(among)):
        if len(leases) == count:
            break
        # first the lease: a port that another process has leased is free until its server binds it
        if (lease := _lease(port)) is None:
            continue
        if _free(port):
            leases[port] = lease
        else:
            lease.close()
    if len(leases) < count:
        for lease in leases.values():
            lease.close()
        raise OSError(errno.EADDRINUSE, f"no free port between {among[0]} and {among[-1]} on 127.0.0.1")
    _leases.extend(leases.values())
    return list(leases)


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
