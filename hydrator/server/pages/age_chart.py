"""How old what is known of a site is, as a picture: how many facts are how old, up to the age that counts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from html import escape
from typing import Final

from hydrator.domain.model import Did, Fact, Site
from hydrator.domain.text import format_count, format_duration

COLUMN_COUNT: Final = 12
"""Parts of the age bound, each a column; one more is for what is older."""
_WIDTH: Final = 10
_HEIGHT: Final = 24


def count_by_age(facts: Iterable[Fact], *, now: datetime, max_age: timedelta) -> list[int]:
    """How many facts are of each age: the parts of *bound* in order, and last what is older."""
    columns = [0] * (COLUMN_COUNT + 1)
    for as_of, facts_then in Counter(fact.as_of for fact in facts).items():
        share = max(now - as_of, timedelta()) / max_age
        columns[min(int(share * COLUMN_COUNT), COLUMN_COUNT)] += facts_then
    return columns


def render_chart(site: Site, facts: Mapping[Did, Fact], *, now: datetime, max_age: timedelta) -> str:
    """An SVG with what it shows in words, for those who do not see it."""
    columns = count_by_age(facts.values(), now=now, max_age=max_age)
    told = _describe_ages(columns, min((fact.as_of for fact in facts.values()), default=None), now, max_age)
    most = max(columns) or 1
    bars = "".join(
        f'<rect class="{"late" if column == COLUMN_COUNT else "bar"}" x="{column * _WIDTH + 1}" '
        f'y="{_HEIGHT - height}" width="{_WIDTH - 2}" height="{height}"/>'
        for column, many in enumerate(columns)
        if (height := _bar_height(many, most))
    )
    width = (COLUMN_COUNT + 1) * _WIDTH
    edge = COLUMN_COUNT * _WIDTH
    return (
        f'<svg role="img" aria-label="{escape(site)}: {told}" width="{width}" height="{_HEIGHT + 1}" '
        f'viewBox="0 0 {width} {_HEIGHT + 1}">{bars}'
        f'<path class="frame" d="M0 {_HEIGHT + 0.5}H{width}M{edge} 0V{_HEIGHT}"/></svg><small>{told}</small>'
    )


def _bar_height(fact_count: int, max_count: int) -> int:
    """In pixels; what is there at all is seen."""
    return max(2, round(fact_count / max_count * _HEIGHT)) if fact_count else 0


def _describe_ages(columns: list[int], oldest_at: datetime | None, now: datetime, max_age: timedelta) -> str:
    if oldest_at is None:
        return "nothing is known"
    late = columns[COLUMN_COUNT]
    old = f"; {format_count(late, 'fact')} too old to count" if late else ""
    age, most = format_duration((now - oldest_at).total_seconds()), format_duration(max_age.total_seconds())
    return f"oldest fact {age}, of {most} that count{old}"
