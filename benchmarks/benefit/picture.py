"""The picture of the map: small plots over x, by figure and layout, as SVG without a library.

The colours are variables, so that the picture is readable on a light and on a dark page.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from .workload import COMPUTE_SECONDS

COLUMNS_OF_ARMS = (
    *("off", "rank only", "wait 6", "wait 12", "wait 30", "wait 60", "wait 120"),
    *("require", "auto", "wrong", "best"),
)
"""The order of arms in tables."""
PLOT_WIDTH, PLOT_HEIGHT, LEFT, TOP, GAP_X, GAP_Y = 250, 130, 60, 64, 50, 56
STYLES = {
    "off": ("--ink", "1 4"),
    "rank only": ("--a", ""),
    "wait 6": ("--b", "2 3"),
    "wait 30": ("--b", ""),
    "require": ("--c", ""),
    "auto": ("--d", ""),
    "best": ("--e", "6 4"),
    "wrong": ("--f", "2 3"),
}
"""The colour variable and the dashes of each arm's line; other arms are in the tables only."""
STYLE = """\
<style>
svg { --ink: #24292f; --grid: #d0d7de;
  --a: #8250df; --b: #bc4c00; --c: #0969da; --d: #1a7f37; --e: #57606a; --f: #cf222e }
@media (prefers-color-scheme: dark) {
svg { --ink: #e6edf3; --grid: #444c56;
  --a: #d2a8ff; --b: #ffa657; --c: #79c0ff; --d: #56d364; --e: #9ea7b3; --f: #ff7b72 }
}
text { font: 12px sans-serif; fill: var(--ink) }
.layout { font: bold 14px sans-serif }
.line { fill: none; stroke-width: 2 }
.grid { stroke: var(--grid); stroke-width: 1 }
.even { stroke: var(--ink); stroke-width: 1 }
</style>"""

Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Row:
    """One figure: its title, its value, and whether its axis is logarithmic around 1."""

    title: str
    value: Callable[[Figures], float | None]
    is_ratio: bool


ROWS = (
    _Row("speed-up of the makespan", lambda found: found["speedup"], is_ratio=True),
    _Row("mean turnaround, stock = 1", lambda found: found["turnaround_mean_ratio"], is_ratio=True),
    _Row("95th percentile of turnaround", lambda found: found["turnaround_p95_ratio"], is_ratio=True),
    _Row("bytes read at other sites, share", lambda found: 1 - found["bytes_local"], is_ratio=False),
)


@dataclass(frozen=True, slots=True)
class _Axes:
    """The frame of one plot, and the extent of its axes."""

    left: float
    top: float
    xs: tuple[float, float]
    ys: tuple[float, float]
    is_ratio: bool

    def x(self, value: float) -> float:
        low, high = map(math.log, self.xs)
        return self.left + PLOT_WIDTH * ((math.log(value) - low) / (high - low) if high > low else 0.5)

    def y(self, value: float) -> float:
        low, high = map(math.log2, self.ys) if self.is_ratio else self.ys
        share = ((math.log2(value) if self.is_ratio else value) - low) / (high - low)
        return self.top + PLOT_HEIGHT * (1 - share)


def draw(cells: Sequence[Figures]) -> str:
    """Draw the batch cells with one dataset a job; one column for each layout."""
    columns: dict[str, list[Figures]] = defaultdict(list)
    for each in cells:
        if (each["mix"], each["submitted"], each["seconds"]) == ("one", "batch", COMPUTE_SECONDS):
            columns[each["layout"]].append(each)
    width = LEFT + max(1, len(columns)) * (PLOT_WIDTH + GAP_X)
    height = TOP + len(ROWS) * (PLOT_HEIGHT + GAP_Y)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        "<title>Benefit of data locality over x, by layout of the data</title>",
        STYLE,
        *_legend({each["arm"] for found in columns.values() for each in found}),
    ]
    for number, (layout, found) in enumerate(columns.items()):
        left = LEFT + number * (PLOT_WIDTH + GAP_X)
        out.append(f'<text x="{left}" y="{TOP - 24}" class="layout">{escape(layout)}</text>')
        for place, row in enumerate(ROWS):
            out += _plot(row, found, left, TOP + place * (PLOT_HEIGHT + GAP_Y))
    return "\n".join([*out, "</svg>", ""])


def _legend(arms: set[str]) -> list[str]:
    out, left = [], LEFT
    for arm, (colour, dashes) in STYLES.items():
        if arm in arms:
            out.append(_stroke(f"M{left},12h24", colour, dashes))
            out.append(f'<text x="{left + 30}" y="16">{escape(arm)}</text>')
            left += 50 + 8 * len(arm)
    return out


def _plot(row: _Row, found: Sequence[Figures], left: float, top: float) -> list[str]:
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in found:
        value = row.value(each)
        if each["arm"] in STYLES and value is not None:
            lines[each["arm"]].append((each["x"], value))
    values = [value for line in lines.values() for _, value in line] or [1.0]
    xs = [each["x"] for each in found]
    axes = _Axes(left, top, (min(xs), max(xs)), _extent(values, is_ratio=row.is_ratio), row.is_ratio)
    out = [f'<text x="{left}" y="{top - 6}">{escape(row.title)}</text>', *_grid(axes, sorted(set(xs)))]
    for arm, line in lines.items():
        points = [f"{axes.x(x):.1f},{axes.y(value):.1f}" for x, value in sorted(line)]
        out.append(_stroke("M" + "L".join(points), *STYLES[arm]))
        out += [_dot(point, STYLES[arm][0]) for point in points]
    return out


def _extent(values: Sequence[float], *, is_ratio: bool) -> tuple[float, float]:
    """Return the ends of the y axis: powers of two around 1, or 0 to 1."""
    if not is_ratio:
        return 0.0, 1.0
    low, high = min(0.5, *values), max(2.0, *values)
    return 2.0 ** math.floor(math.log2(low)), 2.0 ** math.ceil(math.log2(high))


def _grid(axes: _Axes, xs: Sequence[float]) -> list[str]:
    low, high = axes.ys
    ticks = (
        [low * 2**step for step in range(round(math.log2(high / low)) + 1)] if axes.is_ratio else [0, 0.5, 1]
    )
    out = []
    for tick in ticks:
        level, form = axes.y(tick), "even" if axes.is_ratio and tick == 1 else "grid"
        out.append(f'<path class="{form}" d="M{axes.left},{level:.1f}h{PLOT_WIDTH}"/>')
        out.append(f'<text x="{axes.left - 6}" y="{level + 4:.1f}" text-anchor="end">{tick:g}</text>')
    bottom = axes.top + PLOT_HEIGHT + 16
    out += [f'<text x="{axes.x(x):.1f}" y="{bottom}" text-anchor="middle">{x:g}</text>' for x in xs]
    out.append(f'<text x="{axes.left + PLOT_WIDTH / 2}" y="{bottom + 14}" text-anchor="middle">x</text>')
    return out


def _stroke(path: str, colour: str, dashes: str) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path class="line" style="stroke: var({colour})"{dashed} d="{path}"/>'


def _dot(point: str, colour: str) -> str:
    x, y = point.split(",")
    return f'<circle cx="{x}" cy="{y}" r="2.5" style="fill: var({colour})"/>'
