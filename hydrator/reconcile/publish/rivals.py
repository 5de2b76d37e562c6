"""Rivals: notice another daemon that writes where this one publishes, though none of the two stands by.

Two daemons on one pool, by accident, replace each other's ads again and again. What a publisher shows was
sent by this daemon, or was there before this daemon's own ad was read back there, or is a rival's. The second
ad of a rival within ``WINDOW`` counts: a single one may be of a daemon that was just ending. So neither a
restart nor a take-over between stand-bys is reported. It reads no clock.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.model import PublishedAd, Site, SiteAd, unix
from hydrator.domain.text import count

WINDOW: Final = timedelta(minutes=30)
_SENT: Final = 100
"""Ads of a site that this daemon sent and still knows: a publisher may show an old one."""
_Mark = tuple[int, int]
"""Generation and AsOf of an ad."""


@dataclass(slots=True)
class _Writing:
    """What is known of one site's ad at one publisher."""

    sent: deque[_Mark] = field(default_factory=lambda: deque(maxlen=_SENT))
    is_confirmed: bool = False
    last: _Mark | None = None
    foreign: deque[datetime] = field(default_factory=lambda: deque(maxlen=2))


class Rivals:
    """What each publisher showed and was sent since this daemon began to publish."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Site], _Writing] = {}

    def sends(self, publisher: str, ads: Iterable[SiteAd]) -> None:
        """Remember *ads*, which are about to be sent to *publisher*."""
        for ad in ads:
            writing = self._known.setdefault((publisher, ad.site), _Writing())
            writing.sent.append(_mark(ad))

    def confirm(self, publisher: str, shown: Mapping[Site, PublishedAd]) -> None:
        """Take in what *publisher* showed after it was sent to: from now on other ads are a rival's."""
        for site, ad in shown.items():
            writing = self._known.get((publisher, site))
            if writing and _mark(ad) in writing.sent:
                writing.is_confirmed, writing.last = True, _mark(ad)

    def see(
        self, publisher: str, shown: Mapping[Site, PublishedAd], sites: Collection[Site], now: datetime
    ) -> str | None:
        """Return why another daemon writes to *publisher*; None where none does.

        Args:
            publisher: its name.
            shown: what it shows, by site.
            sites: those that this daemon has an ad for; others may be somebody else's.
            now: the time of this cycle.
        """
        rivals = [
            ad
            for site, ad in sorted(shown.items())
            if site in sites and self._is_rival((publisher, site), ad, now)
        ]
        if not rivals:
            return None
        first = rivals[0]
        return (
            f"another daemon publishes there too: it replaced the ads of {count(len(rivals), 'site')},"
            f" that of {first.site} by generation {first.generation},"
            f" read {first.as_of:%Y-%m-%d %H:%M:%S} UTC"
        )

    def _is_rival(self, key: tuple[str, Site], ad: PublishedAd, now: datetime) -> bool:
        writing = self._known.setdefault(key, _Writing())
        mark = _mark(ad)
        if mark in writing.sent:
            writing.is_confirmed = True
        elif writing.is_confirmed and mark != writing.last:
            writing.foreign.append(now)
        writing.last = mark
        return len(writing.foreign) == 2 and abs(now - writing.foreign[0]) <= WINDOW


def _mark(ad: PublishedAd | SiteAd) -> _Mark:
    return ad.generation, unix(ad.as_of)
