"""Rivals: detect another active daemon that writes to the same publisher.

Two daemons that publish to one pool by accident replace each other's ads again and again. An ad that a
publisher shows has one of three origins. This daemon sent it; or it was there before this daemon's own ad
was read back; or a rival sent it. A rival is reported at its second ad within ``RIVAL_WINDOW``, because a
single ad may be the last one of a daemon that was just ending. So neither a restart nor a change of the
leader is reported. Pure: the time is an argument.
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
            writes = self._writes.setdefault((publisher, ad.site), _SiteWrites())
            writes.sent_versions.append(_ad_version(ad))

    def note_read_back(self, publisher: str, published_ads: Mapping[Site, PublishedAd]) -> None:
        """Record the ads that *publisher* showed after a sending: from now on other ads are a rival's."""
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
        writes = self._writes.setdefault(key, _SiteWrites())
        version = _ad_version(ad)
        if version in writes.sent_versions:
            writes.is_confirmed = True
        elif writes.is_confirmed and version != writes.last_version:
            writes.foreign_writes_at.append(now)
        writes.last_version = version
        return len(writes.foreign_writes_at) == 2 and abs(now - writes.foreign_writes_at[0]) <= RIVAL_WINDOW


def _ad_version(ad: PublishedAd | SiteAd) -> _AdVersion:
    return ad.generation, to_unix(ad.as_of)
