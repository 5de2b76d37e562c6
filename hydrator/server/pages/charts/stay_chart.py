"""Stay chart: when a dataset was complete, a row for each site, all rows over one time scale."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.model import Site
from hydrator.domain.text import format_count

_WIDTH: Final = 100.0
_MIN_WIDTH: Final = 1.0


@dataclass(frozen=True, slots=True)
class Stay:
    """A time in which the ad of a site listed the dataset as complete; it lasts if ``until`` is None."""

    site: Site
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class StayBar:
    """One stay, in units of which the whole scale has 100."""

    left: float
    width: float


@dataclass(frozen=True, slots=True)
class StayRow:
    """The stays at one site, oldest first."""

    site: Site
    bars: tuple[StayBar, ...]


@dataclass(frozen=True, slots=True)
class StayChart:
    """Rows over the time from ``begin`` to ``end``; ``text`` says what the chart shows."""

    rows: tuple[StayRow, ...]
    begin: datetime
    end: datetime
    text: str


def build_stay_chart(stays: Sequence[Stay], *, now: datetime) -> StayChart | None:
    """Build the chart from the begin of the oldest of *stays* to *now*; None without stays."""
    if not stays:
        return None
    begin = min(stay.since for stay in stays)
    end = max(now, *(stay.until or stay.since for stay in stays))
    span = end - begin
    by_site: dict[Site, list[StayBar]] = {}
    for stay in sorted(stays, key=lambda stay: (stay.site, stay.since)):
        by_site.setdefault(stay.site, []).append(_bar(stay, begin, end, span))
    rows = tuple(StayRow(site, tuple(bars)) for site, bars in by_site.items())
    times = f"from {begin:%Y-%m-%d %H:%M} UTC to {end:%Y-%m-%d %H:%M} UTC"
    return StayChart(rows, begin, end, f"{format_count(len(rows), 'site')}, {times}; the list says the same")


def _bar(stay: Stay, begin: datetime, end: datetime, span: timedelta) -> StayBar:
    """Return the bar of *stay*, which is never too thin to see and never leaves the scale."""
    if not span:
        return StayBar(0.0, _WIDTH)
    width = max(_MIN_WIDTH, _WIDTH * (((stay.until or end) - stay.since) / span))
    left = min(_WIDTH * ((stay.since - begin) / span), _WIDTH - width)
    return StayBar(round(left, 1), round(width, 1))
