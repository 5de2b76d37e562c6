"""Plots of lines over time as SVG, without a library."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, PANEL, GAP, LEFT, RIGHT, TOP = 900, 110, 46, 70, 20, 40
COLOURS = ("#1f6f9f", "#c0562b", "#4c8c2b")


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: ``lines`` by name, each a value for every point in time, None where there is none."""

    title: str
    lines: dict[str, Sequence[float | None]]


def plot(heading: str, hours: Sequence[float], panels: Sequence[Panel], marks: dict[str, list[float]]) -> str:
    """Plot *panels* one below the other over *hours*; *marks* are times, by event."""
    height = TOP + len(panels) * (PANEL + GAP) + 30
    last = max(hours) or 1.0
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}">',
        "<style>text { font: 12px sans-serif }</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20">{escape(heading)}</text>',
    ]
    top = float(TOP)
    for panel in panels:
        out += _panel(panel, hours, last, top, [moment for moments in marks.values() for moment in moments])
        top += PANEL + GAP
    out.append(f'<text x="{LEFT}" y="{top:.0f}">hours; grey: {escape(", ".join(sorted(marks)))}</text>')
    return "\n".join([*out, "</svg>", ""])


def _panel(
    panel: Panel, hours: Sequence[float], last: float, top: float, marks: Sequence[float]
) -> list[str]:
    values = [value for line in panel.lines.values() for value in line if value is not None] or [0.0]
    most = 1.1 * max(values) or 1.0

    def x(hour: float) -> float:
        return LEFT + hour / last * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return top + 18 + PANEL - value / most * PANEL

    low, high = f"{y(0):.1f}", f"{y(most):.1f}"
    out = [f'<text x="{LEFT}" y="{top + 10:.0f}">{escape(panel.title)}</text>']
    out += [_line(f"{x(hour):.1f}", f"{x(hour):.1f}", low, high, "#ddd") for hour in marks]
    for value in (0.0, max(values)):
        level = f"{y(value):.1f}"
        out.append(_line(str(LEFT), str(WIDTH - RIGHT), level, level, "#bbb"))
        out.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    ticks = [last * tick / 4 for tick in range(5)]
    out += [f'<text x="{x(t):.1f}" y="{y(0) + 14:.1f}" text-anchor="middle">{t:.2f}</text>' for t in ticks]
    for number, (name, line) in enumerate(panel.lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        for piece in _pieces(hours, line):
            points = " ".join(f"{x(hour):.1f},{y(value):.1f}" for hour, value in piece)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out.append(
            f'<text x="{WIDTH - RIGHT - 130 * number}" y="{top + 10:.0f}" text-anchor="end" fill="{colour}">'
            f"{escape(name)}</text>"
        )
    return out


def _pieces(hours: Sequence[float], line: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    pieces: list[list[tuple[float, float]]] = [[]]
    for hour, value in zip(hours, line, strict=True):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((hour, value))
    return [piece for piece in pieces if piece]


def _line(x1: str, x2: str, y1: str, y2: str, colour: str) -> str:
    return f'<line x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}" stroke="{colour}"/>'
