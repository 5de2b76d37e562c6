"""Rivals: detect another active daemon that writes to the same publisher.

If two daemons publish to one pool by accident, each replaces the ads of the other again and again. An ad
that is read back has one of three origins: this daemon sent it; or it was published before this daemon's
first ad was read back; or a rival sent it. The detector reports a rival only after the rival's second ad
within ``RIVAL_WINDOW``, because a single ad may be the last ad of a daemon that just stopped. So the detector
reports no restart. This module is pure: the time is an argument.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.model import PublishedAd, Site, SiteAd, to_unix
from hydrator.domain.text import format_count, format_duration

RIVAL_WINDOW: Final = timedelta(minutes=30)
_MAX_SENT: Final = 100
"""Number of sent ads to remember for each site, because a publisher may still return an older ad."""
_AdVersion = tuple[int, int]
"""Generation and ``DataLocalityAsOf`` (Unix seconds) of an ad."""


@dataclass(slots=True)
class _SiteWrites:
    """The ads of one site that this daemon sent to one publisher, and the ads that were read back."""

    sent_versions: deque[_AdVersion] = field(default_factory=lambda: deque(maxlen=_MAX_SENT))
    is_confirmed: bool = False
    last_version: _AdVersion | None = None
    foreign_writes_at: deque[datetime] = field(default_factory=lambda: deque(maxlen=2))


class RivalDetector:
    """A detector that compares the ads that this daemon sent with the ads that it reads back."""

    def __init__(self) -> None:
        self._writes: dict[tuple[str, Site], _SiteWrites] = {}

    def note_sent(self, publisher: str, ads: Iterable[SiteAd]) -> None:
        """Remember *ads*, which this daemon is about to send to *publisher*."""
        for ad in ads:
            writes = self._writes.setdefault((publisher, ad.site), _SiteWrites())
            writes.sent_versions.append(_ad_version(ad))

    def note_read_back(self, publisher: str, published_ads: Mapping[Site, PublishedAd]) -> None:
        """Record the ads that this daemon read back after it had sent its ads.

        After this daemon's ad of a site was read back once, every other ad of the site is from a rival.
        """
        for site, ad in published_ads.items():
            writes = self._writes.get((publisher, site))
            if writes and _ad_version(ad) in writes.sent_versions:
                writes.is_confirmed, writes.last_version = True, _ad_version(ad)

    def detect(
        self,
        publisher: str,
        published_ads: Mapping[Site, PublishedAd],
        sites: Collection[Site],
        now: datetime,
    ) -> str | None:
        """Return the evidence of another daemon that writes to *publisher*, as a sentence, or None.

        Args:
            publisher: the name of the publisher.
            published_ads: the ads that were read back from the publisher, by site.
            sites: the sites that this daemon has an ad for; another daemon may publish other sites.
            now: the time of this cycle.
        """
        rivals = [
            ad
            for site, ad in sorted(published_ads.items())
            if site in sites and self._is_rival((publisher, site), ad, now)
        ]
        if not rivals:
            return None
        first = rivals[0]
        return (
            f"another daemon also writes to this publisher and replaced the ads of"
            f" {format_count(len(rivals), 'site')},"
            f" for example the ad of {first.site} by generation {first.generation}"
            f" with facts of {first.as_of:%Y-%m-%d %H:%M:%S} UTC"
        )

    def _is_rival(self, key: tuple[str, Site], ad: PublishedAd, now: datetime) -> bool:
        writes = self._writes.setdefault(key, _SiteWrites())
        version = _ad_version(ad)
        if version in writes.sent_versions:
            writes.is_confirmed = True
        elif writes.is_confirmed and version != writes.last_version:
            writes.foreign_writes_at.append(now)
        writes.last_version = version
        return len(writes.foreign_writes_at) == 2 and abs(now - writes.foreign_writes_at[0]) <= RIVAL_WINDOW


def find_recent_writers(
    published_ads: Mapping[Site, PublishedAd], own_ads: Mapping[Site, SiteAd], now: datetime
) -> str | None:
    """Return the evidence of another daemon in the ads that were published before the only cycle, or None.

    A single cycle cannot wait for a second ad of the rival. An ad newer than *own_ads*, those of the state
    on disk, that the publisher received within ``RIVAL_WINDOW`` is from a daemon with another state.
    """
    foreign = [
        ad
        for site, ad in sorted(published_ads.items())
        if now - ad.received_at <= RIVAL_WINDOW
        and (site not in own_ads or to_unix(ad.as_of) > to_unix(own_ads[site].as_of))
    ]
    if not foreign:
        return None
    newest = max(foreign, key=lambda ad: ad.received_at)
    return (
        f"another daemon published {format_count(len(foreign), 'site')} here, {newest.site}"
        f" {format_duration((now - newest.received_at).total_seconds())} ago, and this configuration"
        " replaces its ads: if it still runs, stop one of the two"
    )


def _ad_version(ad: PublishedAd | SiteAd) -> _AdVersion:
    return ad.generation, to_unix(ad.as_of)
