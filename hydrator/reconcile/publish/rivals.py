"""Rivals: detect another daemon that writes where this one publishes, though neither stands by.

Two daemons on one pool, by accident, replace each other's ads again and again. An ad that a publisher
shows was sent by this daemon, or was there before this daemon's own ad was read back, or is a rival's. The
second ad of a rival within ``RIVAL_WINDOW`` counts: a single one may be of a daemon that was just ending.
So neither a restart nor a take-over between stand-bys is reported. Pure: the time is an argument.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.model import PublishedAd, Site, SiteAd, to_unix
from hydrator.domain.text import format_count

RIVAL_WINDOW: Final = timedelta(minutes=30)
_MAX_SENT: Final = 100
"""Sent ads to remember for each site: a publisher may show an old one."""
_AdVersion = tuple[int, int]
"""Generation and AsOf of an ad."""


@dataclass(slots=True)
class _SiteWrites:
    """The writes to one site's ad at one publisher."""

    sent_versions: deque[_AdVersion] = field(default_factory=lambda: deque(maxlen=_MAX_SENT))
    is_confirmed: bool = False
    last_version: _AdVersion | None = None
    foreign_writes_at: deque[datetime] = field(default_factory=lambda: deque(maxlen=2))


class RivalDetector:
    """The ads that each publisher showed and was sent since this daemon began to publish."""

    def __init__(self) -> None:
        self._writes: dict[tuple[str, Site], _SiteWrites] = {}

    def note_sent(self, publisher: str, ads: Iterable[SiteAd]) -> None:
        """Remember *ads*, which are about to be sent to *publisher*."""
        for ad in ads:
            writing = self._writes.setdefault((publisher, ad.site), _SiteWrites())
            writing.sent_versions.append(_ad_version(ad))

    def note_read_back(self, publisher: str, published_ads: Mapping[Site, PublishedAd]) -> None:
        """Note the ads that *publisher* showed after a sending: from now on other ads are a rival's."""
        for site, ad in published_ads.items():
            writing = self._writes.get((publisher, site))
            if writing and _ad_version(ad) in writing.sent_versions:
                writing.is_confirmed, writing.last_version = True, _ad_version(ad)

    def detect(
        self,
        publisher: str,
        published_ads: Mapping[Site, PublishedAd],
        sites: Collection[Site],
        now: datetime,
    ) -> str | None:
        """Return the sentence that says that another daemon writes to *publisher*; None if none does.

        Args:
            publisher: its name.
            published_ads: the ads it shows, by site.
            sites: the sites that this daemon has an ad for; others may belong to another daemon.
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
            f"another daemon publishes there too: it replaced the ads of {format_count(len(rivals), 'site')},"
            f" that of {first.site} by generation {first.generation},"
            f" read {first.as_of:%Y-%m-%d %H:%M:%S} UTC"
        )

    def _is_rival(self, key: tuple[str, Site], ad: PublishedAd, now: datetime) -> bool:
        writing = self._writes.setdefault(key, _SiteWrites())
        mark = _ad_version(ad)
        if mark in writing.sent_versions:
            writing.is_confirmed = True
        elif writing.is_confirmed and mark != writing.last_version:
            writing.foreign_writes_at.append(now)
        writing.last_version = mark
        return len(writing.foreign_writes_at) == 2 and abs(now - writing.foreign_writes_at[0]) <= RIVAL_WINDOW


def _ad_version(ad: PublishedAd | SiteAd) -> _AdVersion:
    return ad.generation, to_unix(ad.as_of)
