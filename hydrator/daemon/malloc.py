"""Memory of a process that lives for months, with threads that come and go."""

import contextlib
import ctypes

_M_ARENA_MAX = -8
"""The parameter's number in glibc's malloc.h."""


def limit_arenas(max_arenas: int = 2) -> None:
    """Let the C library keep at most so many pools of memory, instead of eight for each core.

    A thread takes from a pool of its own, which keeps what its largest moment took: with a thread for
    every catalogue, the audit and the HTTP server, a daemon grew for hours although it held no more.
    Rendering and reading happen one at a time here, so that waiting for a pool costs nothing. Other C
    libraries do without; see mallopt(3).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, max_arenas)


def trim_heap() -> None:
    """Return to the system what is free, also between what is in use.

    The C library returns only what is free at the end of a pool of memory. What a cycle needs for a
    moment lies between what is kept, a little elsewhere each time, so the daemon grew by 2 MiB an hour
    although it held no more. It takes about as long as reading all that is free: see malloc_trim(3).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
