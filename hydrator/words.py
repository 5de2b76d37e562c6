"""Words for people: durations, counts and lists, short enough for a line."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from .numbers import nearest_moment, nearest_span

SHOWN = 3
"""How many items of a list are told; the rest is counted."""


def span(seconds: float) -> str:
    """A duration for people: two units at most; what is longer than a hundred years says so many days."""
    left = nearest_span(max(0, seconds))
    hours, rest = divmod(left.seconds, 3600)
    parts = [(left.days, "d"), (hours, "h"), (rest // 60, "min"), (rest % 60, "s")]
    return " ".join([f"{value} {unit}" for value, unit in parts if value][:2]) or "0 s"


def clock(at: float, now: datetime) -> str:
    """Return the time of *at*, Unix s, in UTC; with its date where that is not the date of *now*."""
    moment = nearest_moment(at)
    return f"{moment:%H:%M} UTC" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M} UTC"


def data_size(number: float) -> str:
    """Return a number of bytes with three digits or more, and a unit."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.4g} PB"


def count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def share(fraction: float | None) -> str:
    return "" if fraction is None else f" {int(fraction * 100 + 1e-9)} %"


def listed(items: Iterable[str]) -> str:
    return ", ".join(items)


def some(items: Sequence[str], separator: str = ", ") -> str:
    """The first few, and how many more."""
    more = len(items) - SHOWN
    return separator.join(items[:SHOWN]) + (f"{separator}and {more} more" if more > 0 else "")


def unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def shortened(text: str, most: int = 120) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
