"""The daemons of one pool, as they know each other: for each an ad of MyType "DataLocalityDaemon"."""

from collections.abc import Sequence
from datetime import timedelta

from hydrator.ports import Peer

from .condor import CondorClient


class CollectorPeers:
    """Keeps ``Peers``; an ad lives as long as *lifetime* after its daemon was last heard."""

    def __init__(self, client: CondorClient, lifetime: timedelta) -> None:
        self._client = client
        self._lifetime = lifetime

    def beat(self, name: str, leads_since: int) -> Sequence[Peer]:
        """See :class:`hydrator.ports.Peers`."""
        ads = self._client.beat(name, leads_since, self._lifetime)
        heard = max((_number(ad["LastHeardFrom"]) for ad in ads if ad["Name"] == name), default=0)
        return [
            Peer(
                str(ad["Name"]),
                _number(ad["DataLocalityLeadsSince"]),
                heard - _number(ad["LastHeardFrom"]),
                shared=ad["Shared"] is True,
            )
            for ad in ads
            if ad["Name"]
        ]


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
