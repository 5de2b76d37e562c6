"""Share chart: a bar for each of the last days, as high as the share of that day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

_BAR_WIDTH: Final = 8
_HEIGHT: Final = 40


@dataclass(frozen=True, slots=True)
class ShareBar:
    """One bar of the chart, in pixels, and the text that a browser shows above the bar."""

    left: int
    height: int
    text: str


@dataclass(frozen=True, slots=True)
class ShareChart:
    """A bar chart in pixels; ``text`` describes the shares in words. A day without a share has no bar."""

    bars: tuple[ShareBar, ...]
    text: str
    width: int
    bar_width: int = _BAR_WIDTH
    height: int = _HEIGHT


def build_share_chart(shares: Sequence[tuple[date, float | None]]) -> ShareChart | None:
    """Build the chart of *shares* (0 to 1) by day, oldest first; None if no day has a share."""
    bars = tuple(
        ShareBar(place * _BAR_WIDTH, max(1, round(share * _HEIGHT)), f"{day}: {_percent(share)}")
        for place, (day, share) in enumerate(shares)
        if share is not None
    )
    known = [share for _, share in shares if share is not None]
    if not known:
        return None
    bounds = f"from {_percent(min(known))} to {_percent(max(known))}"
    text = f"{bounds} in {len(shares)} days, lately {_percent(known[-1])}"
    return ShareChart(bars, text, len(shares) * _BAR_WIDTH)


def _percent(share: float) -> str:
    return f"{int(share * 100 + 1e-9)} %"
