"""Words for people: durations, counts and lists, short enough for a line."""

from collections.abc import Iterable, Sequence

from .numbers import nearest_span

SHOWN = 3
"""How many items of a list are told; the rest is counted."""


def span(seconds: float) -> str:
    """A duration for people: two units at most; what is longer than a hundred years says so many days."""
    left = nearest_span(max(0, seconds))
    hours, rest = divmod(left.seconds, 3600)
    parts = [(left.days, "d"), (hours, "h"), (rest // 60, "min"), (rest % 60, "s")]
    return " ".join([f"{value} {unit}" for value, unit in parts if value][:2]) or "0 s"


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
