"""Share charts: a bar for each of the last days or hours, as high as the share of that time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from hydrator.state.locality_hours import begin_of_hour

SHOWN_HOURS: Final = 48
"""Hours of the chart by hour, the present one included."""
_HOUR: Final = timedelta(hours=1)
_DAY_WIDTH: Final = 8
_HOUR_WIDTH: Final = 5
_HEIGHT: Final = 40


@dataclass(frozen=True, slots=True)
class ShareBar:
    """One bar of the chart, in pixels, and the text that a browser shows above the bar."""

    left: int
    height: int
    text: str


@dataclass(frozen=True, slots=True)
class ShareChart:
    """A bar chart in pixels; ``text`` describes the shares in words. A time without a share has no bar.

    ``begin`` and ``end`` are the ends of the time axis: days, or times.
    """

    bars: tuple[ShareBar, ...]
    text: str
    width: int
    bar_width: int
    begin: date
    end: date
    height: int = _HEIGHT

    @property
    def has_hours(self) -> bool:
        """Return whether the bars are hours; otherwise they are days (UTC)."""
        return isinstance(self.begin, datetime)


def build_day_chart(shares: Sequence[tuple[date, float | None]]) -> ShareChart | None:
    """Build the chart of *shares* (0 to 1) by day, oldest first; None if no day has a share."""
    if not shares:
        return None
    points = [(f"{day}", share) for day, share in shares]
    return _build(points, "days", _DAY_WIDTH, shares[0][0], shares[-1][0])


def build_hour_chart(shares: Sequence[tuple[datetime, float | None]], *, now: datetime) -> ShareChart | None:
    """Build the chart of the last SHOWN_HOURS hours; None if none of them has a share.

    *shares* (0 to 1) are by the begin of an hour; an hour without jobs may be missing.
    """
    known = dict(shares)
    hours = [begin_of_hour(now) - age * _HOUR for age in reversed(range(SHOWN_HOURS))]
    points = [(f"{hour:%Y-%m-%d %H:%M} UTC", known.get(hour)) for hour in hours]
    return _build(points, "hours", _HOUR_WIDTH, hours[0], now)


def _build(
    points: Sequence[tuple[str, float | None]], unit: str, bar_width: int, begin: date, end: date
) -> ShareChart | None:
    bars = tuple(
        ShareBar(place * bar_width, max(1, round(share * _HEIGHT)), f"{label}: {_percent(share)}")
        for place, (label, share) in enumerate(points)
        if share is not None
    )
    known = [share for _, share in points if share is not None]
    if not known:
        return None
    bounds = f"from {_percent(min(known))} to {_percent(max(known))}"
    text = f"{bounds} in {len(points)} {unit}, lately {_percent(known[-1])}"
    return ShareChart(bars, text, len(points) * bar_width, bar_width, begin, end)


def _percent(share: float) -> str:
    return f"{int(share * 100 + 1e-9)} %"
