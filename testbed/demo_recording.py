"""Recording of the demo: run it in a terminal, and write its output as an animated SVG of 30 seconds.

    python -m testbed.demo_recording [docs/pictures/demo.svg]

The text and the times in brackets are those of the run; only the pauses are shortened. Without
animations (``prefers-reduced-motion``) the picture shows the end of the output.
"""

import argparse
import codecs
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
COLUMNS, ROWS = 102, 30
SECONDS = 30.0
"""Length of the animation."""
HOLD_SECONDS = 5.0
"""The part of the animation at its end in which nothing changes."""
BURST_SECONDS = 0.5
"""Lines that came within this time of one another appear at once."""
MAX_PAUSE_SECONDS = 15.0
"""A longer pause, as on a busy machine, counts like this one."""
CELL, LINE, LEFT, TOP = 7.8, 17, 16, 52
_SVG = "{http://www.w3.org/2000/svg}"
_CONTROL = re.compile(r"\x1b\[(?P<values>[0-9;?]*)(?P<code>[A-Za-z])|(?P<move>[\r\n])|(?P<text>[^\x1b\r\n]+)")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters of a line in one style."""

    text: str
    is_bold: bool


@dataclass(slots=True)
class Line:
    """A line of the terminal; it got its text *seconds* after the start."""

    seconds: float = 0.0
    spans: list[Span] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans).rstrip()


@dataclass(frozen=True, slots=True)
class Burst:
    """Lines that appear together, *at* seconds of the animation; *first* is the place of the first one."""

    at: float
    first: int
    lines: Sequence[Line]

    @property
    def end(self) -> int:
        return self.first + len(self.lines)


def record(command: Sequence[str]) -> list[tuple[float, str]]:
    """Run *command* in a terminal of its own; return its output, each piece with its time (s).

    Raises:
        RuntimeError: the command failed; the text ends with its output.
    """
    started = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.execvp(command[0], list(command))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    pieces = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := _read(terminal):
        pieces.append((time.monotonic() - started, decoder.decode(data)))
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with {status}: {''.join(text for _, text in pieces)}")
    return pieces


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def parse_lines(pieces: Iterable[tuple[float, str]]) -> list[Line]:
    """Return the lines on the terminal after all *pieces*, without those that were erased.

    Knows what Rich prints for text and for a spinner: line ends, styles, *cursor up* and *erase line*.
    """
    lines, row, is_bold = [Line()], 0, False
    for seconds, piece in pieces:
        for part in _CONTROL.finditer(piece):
            if part["text"]:
                lines[row].seconds = seconds
                lines[row].spans.append(Span(part["text"], is_bold))
            elif part["move"] == "\n":
                row += 1
                lines += [Line(seconds) for _ in range(row - len(lines) + 1)]
            elif part["code"] == "A":
                row = max(0, row - int(part["values"] or 1))
            elif part["code"] == "K":
                lines[row] = Line(seconds)
            elif part["code"] == "m":
                is_bold = "1" in part["values"].split(";") or (is_bold and part["values"] not in {"", "0"})
    while lines and not lines[-1].text:
        lines.pop()
    return lines


def build_bursts(lines: Sequence[Line]) -> list[Burst]:
    """Group *lines* by time, and shorten the pauses: a pause counts by its square root, up to a maximum."""
    starts = [0]
    for place, (before, line) in enumerate(pairwise(lines), 1):
        if line.seconds - before.seconds > BURST_SECONDS:
            starts.append(place)
    groups = [lines[start:end] for start, end in pairwise([*starts, len(lines)])]
    weights = [0.0]
    for earlier, later in pairwise(groups):
        pause = min(max(0.0, later[0].seconds - earlier[-1].seconds), MAX_PAUSE_SECONDS)
        weights.append(max(pause**0.5, len(earlier) ** 0.5 / 2))  # a long table has time to be read
    scale = (SECONDS - HOLD_SECONDS) / (sum(weights) or 1.0)
    at, bursts = 0.5, []
    for start, group, weight in zip(starts, groups, weights, strict=True):
        at += weight * scale
        bursts.append(Burst(min(at, SECONDS - HOLD_SECONDS), start, group))
    return bursts


def build_svg(lines: Sequence[Line]) -> str:
    """Return the animated picture of *lines*."""
    bursts = build_bursts(lines)
    width, height = round(2 * LEFT + COLUMNS * CELL), TOP + ROWS * LINE + 14
    seconds = lines[-1].seconds
    caption = f"make demo: a run of {seconds:.0f} s, shown in {SECONDS:.0f} s"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{caption}</title>",
        _build_style(bursts, len(lines)),
        f'<rect class="page" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10"/>',
        *(f'<circle class="dot" cx="{22 + 18 * place}" cy="20" r="5"/>' for place in range(3)),
        f'<text class="caption" x="{width / 2:g}" y="25">{caption}</text>',
        f'<path class="rule" d="M0,38H{width}"/><rect class="bar" y="36" width="{width}" height="2"/>',
        f'<svg y="{TOP - 10}" width="{width}" height="{ROWS * LINE + 14}"><g class="roll">',
    ]
    for number, burst in enumerate(bursts):
        parts.append(f'<g class="b{number}">')
        parts += [_build_line(line, burst.first + place) for place, line in enumerate(burst.lines)]
        parts.append("</g>")
    parts.append(f'<rect class="cursor" x="{LEFT}" y="2" width="8" height="14"/></g></svg></svg>')
    return "\n".join([*parts, ""])


def _build_line(line: Line, row: int) -> str:
    """Return a line of text; its length holds in any font, so that tables stay aligned."""
    text, left, spans = line.text, 0, []
    if not text:
        return ""
    for span in line.spans:
        shown = escape(span.text[: len(text) - left], quote=False)
        left += len(span.text)
        spans.append(f'<tspan class="bold">{shown}</tspan>' if span.is_bold else shown)
    length = f'textLength="{len(text) * CELL:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text class="line" x="{LEFT}" y="{(row + 1) * LINE - 4}" {length}>{"".join(spans)}</text>'


def _build_style(bursts: Sequence[Burst], count: int) -> str:
    def percent(burst: Burst) -> str:
        return f"{100 * burst.at / SECONDS:.2f}%"

    def rolled(end: int) -> str:
        return f"transform:translateY({-LINE * max(0, end + 1 - ROWS)}px)"

    steps = [(percent(burst), burst.end) for burst in bursts]
    roll = "".join(f"{at}{{{rolled(end)}}}" for at, end in steps)
    cursor = "".join(f"{at}{{transform:translateY({LINE * end}px)}}" for at, end in steps)
    shown = [
        f"@keyframes b{number}{{0%{{opacity:0}}{percent(burst)},100%{{opacity:1}}}}"
        f".b{number}{{animation:b{number} {SECONDS:g}s step-end infinite}}"
        for number, burst in enumerate(bursts)
    ]
    return "\n".join([
        "<style>",
        "svg { --page: #ffffff; --frame: #d0d7de; --ink: #1f2328; --quiet: #57606a; --strong: #0969da }",
        "@media (prefers-color-scheme: dark) { svg { --page: #0d1117; --frame: #3d444d; --ink: #e6edf3;",
        "  --quiet: #9ea7b3; --strong: #79c0ff } }",
        "text { font: 13px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: var(--ink);",
        "  white-space: pre }",
        ".page { fill: var(--page); stroke: var(--frame) } .rule { stroke: var(--frame) }",
        ".dot { fill: var(--frame) } .caption { fill: var(--quiet); text-anchor: middle }",
        ".bold { font-weight: 700; fill: var(--strong) } .cursor { fill: var(--quiet) }",
        ".bar { fill: var(--strong); transform-origin: 0 0 }",
        f".roll {{ {rolled(count)} }} .cursor {{ transform: translateY({LINE * count}px) }}",
        f"@keyframes roll{{0%{{transform:none}}{roll}100%{{{rolled(count)}}}}}",
        f"@keyframes cursor{{0%{{transform:none}}{cursor}100%{{transform:translateY({LINE * count}px)}}}}",
        "@keyframes bar{from{transform:scaleX(0)}to{transform:none}}",
        f".roll{{animation:roll {SECONDS:g}s step-end infinite}}",
        f".cursor{{animation:cursor {SECONDS:g}s step-end infinite}}",
        f".bar{{animation:bar {SECONDS:g}s linear infinite}}",
        *shown,
        "@media (prefers-reduced-motion: reduce) { * { animation: none !important } }",
        "</style>",
    ])  # fmt: skip


def read_recording(picture: Path = PICTURE) -> list[str]:
    """Return the lines of text of *picture*, as the demo printed them."""
    root = ET.fromstring(picture.read_text("utf-8"))
    return ["".join(text.itertext()) for text in root.iter(f"{_SVG}text") if text.get("class") == "line"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Record a run of the demo and write the picture."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.demo_recording", description="Record the demo as an animated SVG."
    )
    parser.add_argument("picture", nargs="?", type=Path, default=PICTURE, help="(%(default)s)")
    options = parser.parse_args(arguments)
    prompt = Line(0.0, [Span("$ make demo", is_bold=True)])
    lines = [prompt, *parse_lines(record([sys.executable, "-m", "testbed.demo"]))]
    options.picture.write_text(build_svg(lines), "utf-8")
    size = options.picture.stat().st_size
    print(f"wrote {options.picture}: {lines[-1].seconds:.0f} s of output, {size} bytes")


if __name__ == "__main__":
    main()
