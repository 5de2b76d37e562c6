"""The collector as a Publisher: one ad of MyType "DataLocality" for each site, named after it."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Any

from hydrator.errors import ConfigError, PoolError, PublishError
from hydrator.model import PublishedAd, Site, SiteAd, from_unix
from hydrator.ports import Clock

from .condor import CondorClient


class CollectorPublisher:
    """Keeps ``Publisher``: UPDATE_AD_GENERIC there, and queries back.

    An ad lives *lifetime* after it was sent; the collector looks for dead ones
    only every CLASSAD_LIFETIME (900 s). ``heard`` is by our clock: what the
    collector's differs by is learned whenever an ad is sent.
    """

    def __init__(
        self, client: CondorClient, *, name: str = "collector", lifetime: timedelta, clock: Clock
    ) -> None:
        self._client = client
        self._name = name
        self._lifetime = lifetime
        self._clock = clock
        self._skew = timedelta(0)

    @property
    def name(self) -> str:
        return self._name

    def published(self) -> Mapping[Site, PublishedAd]:
        try:
            ads = self._client.site_ads()
        except PoolError as exc:
            raise PublishError(self._name, str(exc)) from exc
        return {Site(ad["Name"]): self._published(ad) for ad in ads if ad["Name"]}

    def publish(self, ads: Sequence[SiteAd]) -> None:
        try:
            heard = self._client.advertise([(ad.site, ad.text) for ad in ads], self._lifetime)
        except (PoolError, ConfigError) as exc:
            raise PublishError(self._name, str(exc)) from exc
        if heard is not None:
            self._skew = _whole_seconds(from_unix(heard) - self._clock())

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        try:
            self._client.invalidate(sorted(sites))
        except PoolError as exc:
            raise PublishError(self._name, str(exc)) from exc

    def _published(self, ad: Mapping[str, Any]) -> PublishedAd:
        """An ad without a number where one belongs is not ours: it reads as the oldest, so it is replaced."""
        return PublishedAd(
            site=Site(ad["Name"]),
            generation=_number(ad["DataLocalityGeneration"]),
            as_of=from_unix(_number(ad["DataLocalityAsOf"])),
            heard=from_unix(_number(ad["LastHeardFrom"])) - self._skew,
        )


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _whole_seconds(skew: timedelta) -> timedelta:
    """A difference of clocks; what a round trip and whole seconds explain is none."""
    return skew if abs(skew) > timedelta(seconds=5) else timedelta(0)
