"""Identities of this daemon at the collectors: the daemon does not trust ads of other identities."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from hydrator.domain.errors import PoolError

from .bindings.client import CollectorClient

IDENTITY: Final = "AuthenticatedIdentity"
"""Attribute that a collector adds to each ad that it accepts: the identity of the sender."""
UNAUTHENTICATED: Final = "unauthenticated@unmapped"


class OwnIdentities:
    """The identities of this daemon.

    The collectors return this daemon's identity (as for ``condor_ping``). This object queries the identity
    at the first ad, and again when an ad has another identity: a renewed token may have changed this
    daemon's identity.

    Args:
        client: the client that queries the collectors.
    """

    def __init__(self, client: CollectorClient) -> None:
        self._client = client
        self._own_identities: frozenset[str] = frozenset()

    def foreign_sender_reasons(self, ads: Collection[Mapping[str, Any]]) -> list[str | None]:
        """Return, for each of *ads*, the reason why this daemon did not send it; None if this daemon sent it.

        Raises:
            PoolError: no collector returned this daemon's identity.
        """
        senders = [str(ad[IDENTITY] or UNAUTHENTICATED) for ad in ads]
        if any(sender not in self._own_identities for sender in senders):
            self._own_identities = self._query_identities()
        own = self._own_identities
        return [None if sender in own else f"{sender[:200]} sent it, not this daemon" for sender in senders]

    def _query_identities(self) -> frozenset[str]:
        identities, failure = set(), None
        for collector in self._client.collectors():
            try:
                answer = self._client.ping("collector", "DAEMON", collector)
            except PoolError as error:
                failure = error
            else:
                identities.add(answer.identity or UNAUTHENTICATED)
        if not identities and failure:
            raise failure
        return frozenset(identities)
