"""Plots of text: sparklines of shares over time, and bars. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of plots: steps from low to high, no value, full, half and empty cells of bars."""

    steps: str
    nothing: str
    full: str
    half: str
    empty: str


BLOCKS = Glyphs("▁▂▃▄▅▆▇█", "·", "█", "▒", "░")
ASCII = Glyphs("_.-=+*#@", " ", "#", "+", ".")


def choose_glyphs(encoding: str) -> Glyphs:
    """Return the glyphs that *encoding* has."""
    return BLOCKS if encoding.lower().replace("-", "").startswith("utf") else ASCII


def draw_sparkline(values: Iterable[float | None], glyphs: Glyphs) -> str:
    """Draw a character for each share (0 to 1)."""
    top = len(glyphs.steps) - 1
    return "".join(
        glyphs.nothing if value is None else glyphs.steps[min(top, max(0, int(value * len(glyphs.steps))))]
        for value in values
    )


def draw_bar(parts: Sequence[tuple[int | float, str]], total: float, width: int, empty: str) -> str:
    """Draw a bar of *width* characters: each part is an amount of *total* and its character.

    A part above zero gets at least one character, if the bar has room.
    """
    bar = ""
    for amount, glyph in parts:
        cells = round(amount / total * width) if total > 0 else 0
        bar += glyph * min(width - len(bar), max(cells, 1 if amount > 0 else 0))
    return bar.ljust(width, empty)


def bucket_shares(
    hours: Iterable[Mapping[str, Any]], key: str, now: int, *, span_hours: int, buckets: int
) -> list[float | None]:
    """Return the share *key* of each of *buckets* equal parts of the last *span_hours*, oldest first.

    Hours of one part are averaged with their numbers of jobs as weights; None for a part without a share.
    """
    seconds = span_hours * HOUR_SECONDS / buckets
    begin = now - span_hours * HOUR_SECONDS
    sums, weights = [0.0] * buckets, [0] * buckets
    for hour in hours:
        # an hour counts by its middle, so that the present hour is in the last part
        middle = min(hour["at"] + HOUR_SECONDS / 2, now - 1)
        place = int((middle - begin) // seconds)
        if 0 <= place < buckets and hour[key] is not None:
            weight = max(1, hour["jobs"])
            sums[place] += hour[key] * weight
            weights[place] += weight
    return [total / weight if weight else None for total, weight in zip(sums, weights, strict=True)]
