"""Spinner with elapsed time while a command runs on a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hydrator.domain.redaction import escape_unprintable

from .stdio import unwrap_stream


@contextmanager
def show_progress(task: str) -> Iterator[None]:
    """Show *task* on stderr while the ``with`` block runs; show nothing without a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(file=unwrap_stream(sys.stderr), highlight=False, markup=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # a dumb terminal cannot erase a frame of the spinner, so it would show all frames
    with Progress(*columns, console=console, transient=True, disable=console.is_dumb_terminal) as progress:
        progress.add_task(escape_unprintable(task), total=None)
        yield
