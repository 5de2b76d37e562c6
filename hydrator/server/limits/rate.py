"""Rate limiter: a token bucket for each client, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address, ip_address
from typing import Final

MAX_CLIENTS: Final = 10_000
"""Remembered clients; above this number, the client of the oldest request gets a full bucket again."""


class RateLimiter:
    """A bucket of *burst* requests for each client, refilled at *per_second*.

    One number is stored for a client: the time at which its bucket will be full
    again. A full bucket needs no entry, so the limiter forgets a client that pauses.

    Args:
        per_second: sustained requests a second of one client, above 0.
        burst: requests that may come at once, 1 or more.
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
        """Take *count* requests out of the bucket of *client*.

        Returns:
            0 if the bucket had *count* requests. Else the seconds to wait; the bucket is unchanged.
        """
        now = self._clock()
        full_at = max(self._full_at.pop(client, now), now)
        wait_seconds = full_at - now + (count - 1) * self._refill_seconds - self._burst_seconds
        self._full_at[client] = full_at if wait_seconds > 0 else full_at + count * self._refill_seconds
        while self._full_at and (
            len(self._full_at) > MAX_CLIENTS or next(iter(self._full_at.values())) <= now
        ):
            self._full_at.popitem(last=False)
        return max(wait_seconds, 0.0)


def client_key(address: str) -> str:
    """Return the key of *address* for limits: for IPv6 the /64 network, since one host may own all of it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:40]
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> 64 << 64)) + "/64"
    return str(parsed)
