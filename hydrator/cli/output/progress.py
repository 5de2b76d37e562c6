"""That a command is still at it, and for how long, for who waits at a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hydrator.domain.redaction import escape_unprintable

from .stdio import unwrap_stream


@contextmanager
def show_progress(task: str) -> Iterator[None]:
    """Show *what* is being done on stderr until it is done, then take it away; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(file=unwrap_stream(sys.stderr), highlight=False, markup=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # a terminal that cannot go back a line would be left with every state of it
    with Progress(*columns, console=console, transient=True, disable=console.is_dumb_terminal) as shown:
        shown.add_task(escape_unprintable(task), total=None)
        yield
