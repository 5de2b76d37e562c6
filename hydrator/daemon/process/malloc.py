"""Memory of a process that runs for months, with threads that come and go."""

import contextlib
import ctypes

_M_ARENA_MAX = -8
"""The parameter's number in glibc's malloc.h."""


def limit_arenas(max_arenas: int = 2) -> None:
    """Let the C library keep at most *max_arenas* memory arenas, instead of eight for each core.

    Each thread allocates from one arena, and an arena keeps the most memory that it ever used. With threads
    for every catalogue, the audit and the HTTP server, the daemon grew for hours although it held no more
    data. Rendering and reading happen one at a time here, so that waiting for an arena costs nothing. C
    libraries without arenas need no limit; see mallopt(3).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, max_arenas)


def trim_heap() -> None:
    """Return free memory to the system, also free memory between blocks in use.

    By itself the C library returns only what is free at the end of an arena. The temporary memory of a cycle
    is between blocks that stay, a little elsewhere each time. So the daemon grew by 2 MiB an hour although it
    held no more data. It takes about as long as reading all free memory; see malloc_trim(3).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
