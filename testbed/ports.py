"""Ports of loopback for servers that tests start."""

import errno
import random
import socket

FROM, BELOW = 20000, 32000
"""Outside the range from which the kernel hands out others: what was stopped must get its port back."""


def free_port() -> int:
    """Return a port that is free at this moment.

    Raises:
        OSError: there is none.
    """
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return as many ports that are free at this moment, for TCP or UDP; no two are the same.

    Raises:
        OSError: there are fewer.
    """
    found: list[int] = []
    for port in random.sample(range(FROM, BELOW), 200):
        if len(found) == count:
            break
        if _free(port):
            found.append(port)
    if len(found) < count:
        raise OSError(errno.EADDRINUSE, f"no free port between {FROM} and {BELOW} on 127.0.0.1")
    return found


def _free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
