"""Rate limiter: a token bucket for each asker, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, ip_address
from typing import Final

MAX_CLIENTS: Final = 10_000
"""How many askers are remembered; beyond, whoever asked longest ago begins anew."""


class RateLimiter:
    """A bucket of *burst* requests for each asker, filled at *per_second*.

    What is kept of an asker is one number: when its bucket will be full again.
    A full bucket is the same as none, so an asker who rests is forgotten.

    Args:
        per_second: requests a second, above 0, that everybody may go on with.
        burst: requests, 1 or more, that may come at once.
        clock: seconds that never go back, such as ``time.monotonic``.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._refill_seconds = 1 / per_second
        self._burst_seconds = (burst - 1) / per_second
        self._clock = clock
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, client: Hashable, count: int = 1) -> float:
        """Take one request, or *taking* of them, out of the bucket of *asker*.

        Returns:
            0, or how many seconds there will be too few; then none is taken.
        """
        now = self._clock()
        full = max(self._full_at.pop(client, now), now)
        early = full - now + (count - 1) * self._refill_seconds - self._burst_seconds
        self._full_at[client] = full if early > 0 else full + count * self._refill_seconds
        while self._full_at and (
            len(self._full_at) > MAX_CLIENTS or next(iter(self._full_at.values())) <= now
        ):
            self._full_at.popitem(last=False)
        return max(early, 0.0)


def client_key(address: str) -> str:
    """Return the name under which limits count *address*: one IPv6 host has a whole /64 network to itself."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:40]
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> 64 << 64)) + "/64"
    return str(parsed)
