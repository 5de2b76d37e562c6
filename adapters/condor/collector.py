"""Collector: publish ads of MyType "DataLocality" for each site; read which site ads the slots have.

The daemon does not trust ads of other identities than its own.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final

from adapters.readback import parse_published_ad, read_back
from hydrator.domain.ads import contract
from hydrator.domain.errors import ConfigError, PoolError, PublishError
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.domain.ports import Clock
from hydrator.domain.untrusted import valid_time

from .bindings.client import CondorClient

IDENTITY: Final = "AuthenticatedIdentity"
"""Attribute that a collector adds to each ad that it accepts: the identity of the sender."""
UNAUTHENTICATED: Final = "unauthenticated@unmapped"


class CollectorPublisher:
    """A ``Publisher`` that sends ads to the collector by UPDATE_AD_GENERIC and reads them back by queries.

    The ad's ``Name`` is the site's name.

    An ad expires *lifetime* after the daemon sent it. The collector removes expired ads only every
    CLASSAD_LIFETIME (900 s). ``received_at`` is a time of the local clock. To convert the collector's
    times, each update measures the difference between both clocks.

    Any client that the collector authorizes for DAEMON may write such ads. So this daemon ignores an ad if
    the sender is not this daemon, or if the ad's numbers are impossible. ``rejected`` has the ignored ads,
    with the reasons. The collectors return this daemon's identity (as for ``condor_ping``). It is queried at
    the first ad, and again when an ad has another identity: a renewed token may have changed it.
    """

    def __init__(
        self,
        client: CondorClient,
        *,
        name: str = "collector",
        lifetime: timedelta,
        clock: Clock,
    ) -> None:
        self._client = client
        self.name = name
        self._lifetime = lifetime
        self._clock = clock
        self._skew = timedelta(0)
        self._own_identities: frozenset[str] = frozenset()
        self.rejected: Mapping[str, str] = {}

    def published(self) -> Mapping[Site, PublishedAd]:
        with self._translate_errors():
            ads = self._client.site_ads()
            foreign = self._foreign_sender_reasons(ads)
        readers = [
            (ad["Name"], partial(self._parse_ad, ad, reason)) for ad, reason in zip(ads, foreign, strict=True)
        ]
        adopted, self.rejected = read_back(readers)
        return adopted

    def publish(self, ads: Sequence[SiteAd]) -> None:
        texts = [(ad.site, ad.text) for ad in ads]
        with self._translate_errors():
            last_heard_from = self._client.advertise(texts, self._lifetime)
        received_at = valid_time(last_heard_from)
        if received_at is not None:
            self._skew = _significant_skew(received_at - self._clock())

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        with self._translate_errors():
            self._client.invalidate(sorted(sites))

    def _foreign_sender_reasons(self, ads: Collection[Mapping[str, Any]]) -> list[str | None]:
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

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (PoolError, ConfigError) as exc:
            raise PublishError(self.name, str(exc)) from exc

    def _parse_ad(self, ad: Mapping[str, Any], foreign_sender_reason: str | None) -> PublishedAd:
        """Parse an ad from the collector; raise ValueError if this daemon cannot have sent such an ad."""
        if foreign_sender_reason:
            raise ValueError(foreign_sender_reason)
        received_at = valid_time(ad["LastHeardFrom"])
        return parse_published_ad(
            ad["Name"],
            ad[contract.GENERATION],
            ad[contract.AS_OF],
            received_at - self._skew if received_at else None,
            self._clock(),
            ad[contract.OPEN_UNTIL],
        )


def _significant_skew(skew: timedelta) -> timedelta:
    """Return *skew*; zero if *skew* is 5 s or less, because a round trip and rounding can cause 5 s."""
    return skew if abs(skew) > timedelta(seconds=5) else timedelta(0)
