"""The identities under which a collector knows this daemon: ads of other identities are not its own."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from hydrator.domain.errors import PoolError

from . import CondorClient

IDENTITY: Final = "AuthenticatedIdentity"
"""Attribute that a collector puts into each ad it takes: the identity of the sender."""
UNAUTHENTICATED: Final = "unauthenticated@unmapped"


class OwnIdentities:
    """Decides whether an ad was sent by this daemon, or by another one that the operator named.

    The collectors say who this daemon is (``condor_ping``). They are asked at the first ad, and again when
    an ad of another identity is seen: a renewed token may have another identity.

    Args:
        client: asks the collectors.
        also: identities that count as this daemon's, such as that of its stand-by.
    """

    def __init__(self, client: CondorClient, peer_identities: Collection[str] = ()) -> None:
        self._client = client
        self._peer_identities = frozenset(peer_identities)
        self._own_identities: frozenset[str] = frozenset()

    def foreign_sender_reasons(self, ads: Collection[Mapping[str, Any]]) -> list[str | None]:
        """Return for each of *ads* the reason why it is not this daemon's, or None where it is.

        Raises:
            PoolError: no collector says who this daemon is.
        """
        senders = [str(ad[IDENTITY] or UNAUTHENTICATED) for ad in ads]
        if any(sender not in self._own_identities | self._peer_identities for sender in senders):
            self._own_identities = self._query_identities()
        own = self._own_identities | self._peer_identities
        return [None if sender in own else f"{sender[:200]} sent it, not this daemon" for sender in senders]

    def _query_identities(self) -> frozenset[str]:
        found, failure = set(), None
        for collector in self._client.collectors():
            try:
                answer = self._client.ping("collector", "DAEMON", collector)
            except PoolError as error:
                failure = error
            else:
                found.add(answer.identity or UNAUTHENTICATED)
        if not found and failure:
            raise failure
        return frozenset(found)
