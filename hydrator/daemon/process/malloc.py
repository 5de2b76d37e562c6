"""Memory limits for a process that runs for months and starts and ends many threads."""

import contextlib
import ctypes

_M_ARENA_MAX = -8
"""The number of the parameter M_ARENA_MAX in glibc's malloc.h."""


def limit_arenas(max_arenas: int = 2) -> None:
    """Let the C library keep at most *max_arenas* memory arenas, instead of eight for each core.

    Each thread allocates from one arena, and an arena keeps the memory of its largest use. The daemon has
    threads for every catalogue, for schedds and the HTTP server. So its memory grew for hours although its
    data did not grow. Only one thread at a time renders or parses, so no thread waits for an arena. A C
    library without arenas needs no limit; see mallopt(3).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, max_arenas)


def trim_heap() -> None:
    """Return free memory to the system, also free memory between blocks in use.

    Without this call the C library returns only the free memory at the end of an arena. The temporary memory
    of a cycle is free between blocks that stay in use, each time in other places. So the daemon grew by 2 MiB
    an hour although its data did not grow. A call takes about as long as reading all free memory; see
    malloc_trim(3).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
