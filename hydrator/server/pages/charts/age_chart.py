"""Age chart of a site: the number of facts of each age; the last bar has facts that are too old."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.model import Fact
from hydrator.domain.text import format_count, format_duration

COLUMN_COUNT: Final = 12
"""Number of columns for ages up to the largest valid age; one more column has all older facts."""
_BAR_WIDTH: Final = 10
_HEIGHT: Final = 24


@dataclass(frozen=True, slots=True)
class AgeBar:
    """One bar of the chart, in pixels; ``is_late`` means that the facts of this bar are too old."""

    left: int
    height: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class AgeChart:
    """A bar chart in pixels; ``text`` describes the ages in words."""

    bars: tuple[AgeBar, ...]
    text: str
    bar_width: int = _BAR_WIDTH
    height: int = _HEIGHT

    @property
    def width(self) -> int:
        return (COLUMN_COUNT + 1) * self.bar_width


def count_by_age(facts: Iterable[Fact], *, now: datetime, max_age: timedelta) -> list[int]:
    """Count facts by age: for each of ``COLUMN_COUNT`` equal parts of *max_age*, then all older facts."""
    columns = [0] * (COLUMN_COUNT + 1)
    for as_of, fact_count in Counter(fact.as_of for fact in facts).items():
        share = max(now - as_of, timedelta()) / max_age
        columns[min(int(share * COLUMN_COUNT), COLUMN_COUNT)] += fact_count
    return columns


def build_age_chart(facts: Collection[Fact], *, now: datetime, max_age: timedelta) -> AgeChart:
    """Build the chart of one site's facts; a column that is not empty is at least 2 pixels high."""
    columns = count_by_age(facts, now=now, max_age=max_age)
    highest = max(columns) or 1
    bars = tuple(
        AgeBar(
            left=column * _BAR_WIDTH,
            height=max(2, round(count / highest * _HEIGHT)),
            is_late=column == COLUMN_COUNT,
        )
        for column, count in enumerate(columns)
        if count
    )
    oldest_at = min((fact.as_of for fact in facts), default=None)
    return AgeChart(bars, _describe_ages(oldest_at, columns[COLUMN_COUNT], now, max_age))


def _describe_ages(oldest_at: datetime | None, late_count: int, now: datetime, max_age: timedelta) -> str:
    if oldest_at is None:
        return "nothing is known"
    late = f"; too old: {format_count(late_count, 'fact')}" if late_count else ""
    age, limit = format_duration((now - oldest_at).total_seconds()), format_duration(max_age.total_seconds())
    return f"the oldest fact is {age} old; facts are valid for {limit}{late}"
