"""Growth of the time of a step with its input, for tests of hostile texts."""

import gc
import time
from collections.abc import Callable

_WORTH_MEASURING = 0.004
"""Seconds; below that the clock and the machine are most of what is measured."""


def grows_evenly(work: Callable[[int], object], size: int, *, rounds: int = 5) -> None:
    """Fail where four times the *size* takes *work* over ten times as long: a square takes sixteen."""
    gc.collect()
    gc.disable()
    try:
        pairs = [(_seconds(work, size), _seconds(work, 4 * size)) for _ in range(rounds)]
    finally:
        gc.enable()
    small, large = (min(column) for column in zip(*pairs, strict=True))
    assert large < max(10 * small, _WORTH_MEASURING), (
        f"{size}: {small * 1e3:.2f} ms, {4 * size}: {large * 1e3:.2f} ms"
    )


def _seconds(work: Callable[[int], object], size: int) -> float:
    """The processor time of *work*: that of others on this machine is not measured."""
    begun = time.thread_time()
    work(size)
    return time.thread_time() - begun
