"""How old what is known of a site is, as a picture: how many facts are how old, up to the age that counts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from html import escape
from typing import Final

from hydrator.domain.model import Did, Fact, Site
from hydrator.domain.text import count, span

COLUMNS: Final = 12
"""Parts of the age bound, each a column; one more is for what is older."""
_WIDTH: Final = 10
_HEIGHT: Final = 24


def ages(facts: Iterable[Fact], *, now: datetime, bound: timedelta) -> list[int]:
    """How many facts are of each age: the parts of *bound* in order, and last what is older."""
    columns = [0] * (COLUMNS + 1)
    for as_of, facts_then in Counter(fact.as_of for fact in facts).items():
        share = max(now - as_of, timedelta()) / bound
        columns[min(int(share * COLUMNS), COLUMNS)] += facts_then
    return columns


def picture(site: Site, facts: Mapping[Did, Fact], *, now: datetime, bound: timedelta) -> str:
    """An SVG with what it shows in words, for those who do not see it."""
    columns = ages(facts.values(), now=now, bound=bound)
    told = _told(columns, min((fact.as_of for fact in facts.values()), default=None), now, bound)
    most = max(columns) or 1
    bars = "".join(
        f'<rect class="{"late" if column == COLUMNS else "bar"}" x="{column * _WIDTH + 1}" '
        f'y="{_HEIGHT - height}" width="{_WIDTH - 2}" height="{height}"/>'
        for column, many in enumerate(columns)
        if (height := _height(many, most))
    )
    width = (COLUMNS + 1) * _WIDTH
    edge = COLUMNS * _WIDTH
    return (
        f'<svg role="img" aria-label="{escape(site)}: {told}" width="{width}" height="{_HEIGHT + 1}" '
        f'viewBox="0 0 {width} {_HEIGHT + 1}">{bars}'
        f'<path class="frame" d="M0 {_HEIGHT + 0.5}H{width}M{edge} 0V{_HEIGHT}"/></svg><small>{told}</small>'
    )


def _height(many: int, most: int) -> int:
    """In pixels; what is there at all is seen."""
    return max(2, round(many / most * _HEIGHT)) if many else 0


def _told(columns: list[int], oldest: datetime | None, now: datetime, bound: timedelta) -> str:
    if oldest is None:
        return "nothing is known"
    late = columns[COLUMNS]
    old = f"; {count(late, 'fact')} too old to count" if late else ""
    age, most = span((now - oldest).total_seconds()), span(bound.total_seconds())
    return f"oldest fact {age}, of {most} that count{old}"
