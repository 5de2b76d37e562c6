"""Rate limiter: a token bucket for each asker, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, ip_address
from typing import Final

MAX_KNOWN: Final = 10_000
"""How many askers are remembered; beyond, whoever asked longest ago begins anew."""


class Buckets:
    """A bucket of *burst* requests for each asker, filled at *per_second*.

    What is kept of an asker is one number: when its bucket will be full again.
    A full bucket is the same as none, so an asker who rests is forgotten.

    Args:
        per_second: requests a second, above 0, that everybody may go on with.
        burst: requests, 1 or more, that may come at once.
        clock: seconds that never go back, such as ``time.monotonic``.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._pause = 1 / per_second
        self._slack = (burst - 1) / per_second
        self._clock = clock
        self._full: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full)

    def wait(self, asker: Hashable, taking: int = 1) -> float:
        """Take one request, or *taking* of them, out of the bucket of *asker*.

        Returns:
            0, or how many seconds there will be too few; then none is taken.
        """
        now = self._clock()
        full = max(self._full.pop(asker, now), now)
        early = full - now + (taking - 1) * self._pause - self._slack
        self._full[asker] = full if early > 0 else full + taking * self._pause
        while self._full and (len(self._full) > MAX_KNOWN or next(iter(self._full.values())) <= now):
            self._full.popitem(last=False)
        return max(early, 0.0)


def asker(address: str) -> str:
    """Return the name under which limits count *address*: one IPv6 host has a whole /64 network to itself."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:40]
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> 64 << 64)) + "/64"
    return str(parsed)
