"""Tables and lines for people. Rich takes 3 ms for each row of a table, so 5,000 rows took 15 s of CPU."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from operator import le

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from hydrator.domain.redaction import escape_unprintable

_GAP = "  "


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print *rows* below the names of their *columns*."""
    console = new_console()
    head, body = format_table(console, columns, rows)
    console.print("\n".join(head), style="bold", soft_wrap=True)
    sys.stdout.write("".join(f"{line}\n" for line in body))


def print_lines(lines: Iterable[str], style: str | None = None) -> None:
    """Print *lines*, on a terminal in *style*."""
    if text := escape_unprintable("\n".join(lines), "\n"):
        new_console().print(text, style=style)


def new_console() -> Console:
    """Build a console as wide as the terminal, or 200 characters without one."""
    width = None if sys.stdout.isatty() else 200
    return Console(width=width, soft_wrap=False, highlight=False, markup=False)


def format_table(
    console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> tuple[list[str], list[str]]:
    """Return the lines of a table's head and of its body; the head has the names of the *columns*.

    If the table is wider than *console*, texts in its widest columns continue on the next line. Line ends in
    a cell are kept, other unprintable characters are escaped.
    """
    cells = [_escape_row(row) for row in (columns, *rows)]
    widths = [max(map(_line_width, column)) for column in zip(*cells, strict=True)]
    _shrink(widths, console.width - len(_GAP) * (len(widths) - 1))
    head, *body = ([*_format_row(console, row, widths)] for row in cells)
    return head, [line for lines in body for line in lines]


def _escape_row(row: Sequence[str]) -> Sequence[str]:
    return row if "".join(row).isprintable() else [escape_unprintable(cell, "\n") for cell in row]


def _line_width(cell: str) -> int:
    if "\n" in cell:
        return max(map(cell_len, cell.split("\n")))
    return len(cell) if cell.isascii() else cell_len(cell)


def _shrink(widths: list[int], limit: int) -> None:
    """Make the widest of *widths* smaller until their sum is *limit*, but none smaller than 1."""
    for _ in range(sum(widths) - limit):
        widest = max(widths)
        if widest == 1:
            return
        widths[max(place for place, width in enumerate(widths) if width == widest)] -= 1


def _format_row(console: Console, row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    text = "".join(row)
    if (
        text.isascii() and "\n" not in text and all(map(le, map(len, row), widths))
    ):  # most rows of a long table
        yield _GAP.join(map(str.ljust, row, widths))
        return
    columns = [_fold(console, cell, width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, columns))):
        line = (column[number] if number < len(column) else "" for column in columns)
        yield _GAP.join(
            part + " " * (width - _line_width(part)) for part, width in zip(line, widths, strict=True)
        )


def _fold(console: Console, cell: str, width: int) -> Sequence[str]:
    """Divide *cell* into lines of at most *width*, between words if possible."""
    if "\n" not in cell and _line_width(cell) <= width:
        return (cell,)
    return [line.plain for line in Text(cell).wrap(console, width, overflow="fold")]
