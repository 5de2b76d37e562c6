"""Progress of a running command: a bar or a spinner with the elapsed time, on a terminal's stderr."""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hydrator.domain.redaction import escape_unprintable

from .stdio import unwrap_stream

if TYPE_CHECKING:  # a command that only reads the state needs none of these
    from rich.progress import Progress, ProgressColumn

READING_STATE = "reading the daemon's state"
"""The task of a command that loads all saved facts: seconds for 50,000 datasets."""
_BAR_WIDTH = 24


class ProgressBar:
    """The bar of one task; any thread may advance the bar. Without a terminal, the bar is not visible."""

    def __init__(self, progress: "Progress | None" = None) -> None:
        self._progress = progress

    def advance(self) -> None:
        """Record that one step has ended."""
        if self._progress:
            self._progress.advance(self._progress.task_ids[0])

    def set_steps(self, count: int) -> None:
        """Set the number of all steps."""
        if self._progress:
            self._progress.update(self._progress.task_ids[0], total=count)


@contextmanager
def show_progress(task: str, *, has_steps: bool = False) -> Iterator[ProgressBar]:
    """Show *task* on stderr while the ``with`` block runs; show nothing without a terminal.

    Args:
        task: the running work, in a few words.
        has_steps: show a bar, which learns the number of its steps later; otherwise a spinner.
    """
    if not sys.stderr.isatty():
        yield ProgressBar()
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(file=unwrap_stream(sys.stderr), highlight=False, markup=False)
    columns = _build_columns(has_bar=has_steps)
    # a dumb terminal cannot erase a frame of the spinner, so it would show all frames
    with Progress(*columns, console=console, transient=True, disable=console.is_dumb_terminal) as progress:
        progress.add_task(escape_unprintable(task), total=None)
        yield ProgressBar(progress)


def _build_columns(*, has_bar: bool) -> "Collection[ProgressColumn]":
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    task = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
    bar = (BarColumn(_BAR_WIDTH), MofNCompleteColumn()) if has_bar else ()
    return (SpinnerColumn(), task, *bar, TimeElapsedColumn())
