"""That a command is still at it, and for how long, for who waits at a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hydrator.domain.redaction import printable

from .stdio import behind


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show *what* is being done on stderr until it is done, then take it away; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(file=behind(sys.stderr), highlight=False, markup=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # a terminal that cannot go back a line would be left with every state of it
    with Progress(*columns, console=console, transient=True, disable=console.is_dumb_terminal) as shown:
        shown.add_task(printable(what), total=None)
        yield
