"""Peers: the daemons of a pool, each with a heartbeat ad of MyType "DataLocalityDaemon" in the collector."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import structlog

from adapters.readback import ReadBackAds, short_repr
from hydrator.domain.model import to_unix
from hydrator.domain.pool_ports import Peer
from hydrator.domain.ports import Clock
from hydrator.domain.untrusted import MAX_NAME_CHARS, MAX_UNIX_SECONDS, is_ahead, valid_integer

from .bindings.client import CollectorClient
from .own_identities import OwnIdentities

_log = structlog.get_logger("hydrator")


class CollectorPeers:
    """A ``Peers`` port: heartbeat ads in the collector. An ad expires *lifetime* after the last heartbeat.

    Any client that the collector authorizes for DAEMON may write such ads. With a forged ad of a leader a
    client could keep every daemon on standby. So this daemon ignores an ad, and logs it once, if the
    sender is neither this daemon nor one of *identities*, or if the numbers in the ad are impossible.
    """

    def __init__(
        self, client: CollectorClient, lifetime: timedelta, clock: Clock, identities: Collection[str] = ()
    ) -> None:
        self._client = client
        self._lifetime = lifetime
        self._clock = clock
        self._identities = OwnIdentities(client, identities)
        self._rejected: Mapping[str, str] = {}

    def heartbeat(self, name: str, leads_since: int) -> Sequence[Peer]:
        """See :class:`hydrator.domain.pool_ports.Peers`."""
        ads = self._client.heartbeat(name, leads_since, self._lifetime)
        read_back, peers = ReadBackAds(), []
        own_last_heard_from = max(
            (valid_integer(ad["LastHeardFrom"], MAX_UNIX_SECONDS) or 0 for ad in ads if ad["Name"] == name),
            default=0,
        )
        for ad, foreign in zip(ads, self._identities.foreign_sender_reasons(ads), strict=True):
            if reason := foreign or self._invalid_reason(ad):
                read_back.reject(ad["Name"], reason)
            else:
                peers.append(_build_peer(ad, own_last_heard_from))
        self._log_rejected(read_back.rejected)
        return peers

    def _invalid_reason(self, ad: Mapping[str, Any]) -> str | None:
        """Return why the name or a number in the heartbeat *ad* is not valid; None if all are valid."""
        since = valid_integer(ad["DataLocalityLeadsSince"], MAX_UNIX_SECONDS)
        if not isinstance(ad["Name"], str) or not 0 < len(ad["Name"]) <= MAX_NAME_CHARS:
            return f"its name is not a text of 1 to {MAX_NAME_CHARS} characters"
        if since is None or is_ahead(since, self._clock()):
            leads = short_repr(ad["DataLocalityLeadsSince"])
            return (
                f"its DataLocalityLeadsSince, {leads}, is not a Unix time, "
                f"or is a day or more ahead of this host's clock, {to_unix(self._clock())}"
            )
        return (
            None
            if valid_integer(ad["LastHeardFrom"], MAX_UNIX_SECONDS) is not None
            else "it has no LastHeardFrom"
        )

    def _log_rejected(self, rejected: Mapping[str, str]) -> None:
        if new := {name: reason for name, reason in rejected.items() if name not in self._rejected}:
            _log.warning(
                "ignored heartbeat ads in the collector that are not from this daemon or its peers", ads=new
            )
        self._rejected = rejected


def _build_peer(ad: Mapping[str, Any], own_last_heard_from: int) -> Peer:
    return Peer(
        ad["Name"],
        ad["DataLocalityLeadsSince"],
        own_last_heard_from - ad["LastHeardFrom"],
        is_name_shared=ad["Shared"] is True,
    )
