"""A umask for one ``with`` block: what users have."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Create files with this umask in the ``with`` block."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
