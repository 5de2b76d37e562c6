"""The collector as a Publisher: one ad of MyType "DataLocality" for each site, named after it."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from functools import partial
from typing import Any

from adapters.readback import ReadBackAds, parse_published_ad
from hydrator.domain.errors import ConfigError, PoolError, PublishError
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.domain.ports import Clock
from hydrator.domain.untrusted import valid_time

from . import CondorClient
from .own_identities import OwnIdentities


class CollectorPublisher:
    """Keeps ``Publisher``: UPDATE_AD_GENERIC there, and queries back.

    An ad lives *lifetime* after it was sent; the collector looks for dead ones
    only every CLASSAD_LIFETIME (900 s). ``heard`` is by our clock: what the
    collector's differs by is learned whenever an ad is sent.

    Whoever has DAEMON at the collector may write such ads. So an ad of an identity that is neither ours nor
    one of *identities*, and one whose numbers cannot be, is not adopted: ``rejected`` says why.
    """

    def __init__(
        self,
        client: CondorClient,
        *,
        name: str = "collector",
        lifetime: timedelta,
        clock: Clock,
        identities: Collection[str] = (),
    ) -> None:
        self._client = client
        self._name = name
        self._lifetime = lifetime
        self._clock = clock
        self._skew = timedelta(0)
        self._identities = OwnIdentities(client, identities)
        self.rejected: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        return self._name

    def published(self) -> Mapping[Site, PublishedAd]:
        try:
            ads = self._client.site_ads()
            foreign = self._identities.foreign_sender_reasons(ads)
        except PoolError as exc:
            raise PublishError(self._name, str(exc)) from exc
        found = ReadBackAds()
        for ad, why in zip(ads, foreign, strict=True):
            if why:
                found.reject(ad["Name"], why)
            else:
                found.add(ad["Name"], partial(self._parse_ad, ad))
        self.rejected = found.rejected
        return found.adopted_ads

    def publish(self, ads: Sequence[SiteAd]) -> None:
        try:
            heard = self._client.advertise([(ad.site, ad.text) for ad in ads], self._lifetime)
        except (PoolError, ConfigError) as exc:
            raise PublishError(self._name, str(exc)) from exc
        at = valid_time(heard)
        if at is not None:
            self._skew = _significant_skew(at - self._clock())

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        try:
            self._client.invalidate(sorted(sites))
        except PoolError as exc:
            raise PublishError(self._name, str(exc)) from exc

    def _parse_ad(self, ad: Mapping[str, Any]) -> PublishedAd:
        """Build the ad that is shown; raises ValueError where it cannot be one of this daemon's."""
        heard = valid_time(ad["LastHeardFrom"])
        return parse_published_ad(
            ad["Name"],
            ad["DataLocalityGeneration"],
            ad["DataLocalityAsOf"],
            heard - self._skew if heard else None,
            self._clock(),
        )


def _significant_skew(skew: timedelta) -> timedelta:
    """A difference of clocks; what a round trip and whole seconds explain is none."""
    return skew if abs(skew) > timedelta(seconds=5) else timedelta(0)
