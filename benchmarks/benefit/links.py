"""Links of source sites, throttled for real and shared by all readers of a site.

Where this machine allows it, each site's storage server runs in a network namespace of its own, and the
kernel shapes what leaves it (``tc tbf``). Elsewhere the server has a token bucket.
"""

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed.processes import end

from . import serve

NAMESPACES = "network namespace and tc tbf"
BUCKET = "token bucket"
OVERHEAD = 1.043
"""Bits on the wire for one bit of data: headers of full TCP segments (1,514 / 1,448 bytes)."""
_BURST_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """The address of one site's storage server, seen from the jobs."""

    site: str
    host: str
    port: int


def kind() -> str:
    """Return which links this machine can have: NAMESPACES or BUCKET."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "tc", "nsenter", "unshare"))):
        return BUCKET
    probe = "ip link set lo up && tc qdisc add dev lo root tbf rate 8mbit burst 16kb latency 200ms"
    done = subprocess.run(["unshare", "--net", "sh", "-c", probe], capture_output=True, check=False)
    return BUCKET if done.returncode else NAMESPACES


class Links:
    """One throttled link for each of *sites*; ``sources`` has their addresses while it is entered.

    Args:
        sites: the source sites.
        rate: bytes of data per second that leave each site, for all its readers together.
        folder: an empty folder for the servers' port files.
        form: NAMESPACES or BUCKET.
    """

    def __init__(self, sites: Sequence[str], rate: float, folder: Path, form: str) -> None:
        self.form = form
        self.sources: dict[str, Source] = {}
        self._sites = tuple(sites)
        self._rate = rate
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for site in self._sites:
                self.sources[site] = self._open(site, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _open(self, site: str, stack: ExitStack) -> Source:
        shaped = self.form == NAMESPACES
        port_file = self._folder / f"port-{site}"
        command = [sys.executable, "-I", serve.__file__, str(port_file)]
        command = ["unshare", "--net", *command] if shaped else [*command, str(self._rate)]
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "TERM", *command]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        stack.callback(end, server, 10)
        deadline = time.monotonic() + 60
        while not port_file.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"the storage server of {site} did not start")
            time.sleep(0.05)
        host = _shape(server.pid, self._rate) if shaped else "127.0.0.1"
        return Source(site, host, int(port_file.read_text("ascii")))


def lone_read_seconds(source: Source, count: int) -> float:
    """Read *count* bytes from *source* as its only reader; return the seconds."""
    begun = time.monotonic()
    with socket.create_connection((source.host, source.port), 30) as link:
        link.sendall(f"{count}\n".encode())
        left = count
        while left > 0:
            piece = link.recv(1 << 16)
            if not piece:
                raise OSError(f"{source.site} ended a read {left} bytes too early")
            left -= len(piece)
    return time.monotonic() - begun


def _shape(process: int, rate: float) -> str:
    """Connect the namespace of *process* to this one and throttle what leaves it; return its address.

    The addresses are of 198.18.0.0/15, which RFC 2544 reserves for benchmarks. The kernel removes
    the pair of interfaces with the namespace, that is with the process.
    """
    inside = ["nsenter", "--net", f"--target={process}"]
    for _ in range(50):
        number = random.randrange(1 << 15)
        near, far = (
            f"198.{18 + (number >> 14)}.{number >> 6 & 255}.{4 * (number & 63) + last}" for last in (1, 2)
        )
        name = f"hyb{number}"
        pair = ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(process)]
        if subprocess.run(pair, capture_output=True, check=False).returncode == 0:
            break
    else:
        raise OSError("no free pair of network interfaces")
    bits = int(8 * rate * OVERHEAD)
    shape = f"tc qdisc add dev eth0 root tbf rate {bits}bit burst {_BURST_BYTES} latency 200ms"
    for command in (
        ["ip", "addr", "add", f"{near}/30", "dev", name],
        ["ip", "link", "set", name, "up"],
        [*inside, "ip", "addr", "add", f"{far}/30", "dev", "eth0"],
        [*inside, "ip", "link", "set", "eth0", "up"],
        [*inside, *shape.split()],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return far
