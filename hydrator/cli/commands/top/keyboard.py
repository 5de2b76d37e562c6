"""Keyboard of a terminal: single keys without Enter, and a redraw when the terminal changes its size."""

import os
import select
import termios
import time
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TextIO

_SLICE_SECONDS = 0.5
"""The terminal's size is compared this often."""
QUIT_KEYS = frozenset("qQ\x1b\x03\x04")
"""q, Esc, Ctrl-C, Ctrl-D."""
REFRESH_KEYS = frozenset("rR ")


class Keyboard:
    """The keys of *stream* while the ``with`` block runs; without a terminal, only Ctrl-C works."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fd: int | None = None
        self._saved_mode: list[Any] = []

    def __enter__(self) -> Self:
        if self._stream.isatty():
            self._fd = self._stream.fileno()
            self._saved_mode = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd, termios.TCSANOW)  # keeps keys that were typed before
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved_mode)

    def wait(self, seconds: float, draw: Callable[[], None]) -> bool:
        """Draw, and wait for *seconds* or the key r; return True if the user quits.

        Draw again whenever the terminal changes its size.
        """
        ends_at = time.monotonic() + seconds
        size = _read_size(self._fd)
        try:
            draw()
            while (left := ends_at - time.monotonic()) > 0:
                if size != (size := _read_size(self._fd)):
                    draw()
                key = self._read_key(min(left, _SLICE_SECONDS if self._fd is not None else left))
                if key in QUIT_KEYS:
                    return True
                if key in REFRESH_KEYS:
                    return False
        except KeyboardInterrupt:
            return True
        return False

    def _read_key(self, seconds: float) -> str:
        """Return the next key; an empty text if no key came in time."""
        if self._fd is None:
            time.sleep(seconds)
            return ""
        if not select.select([self._fd], [], [], seconds)[0]:
            return ""
        keys = os.read(self._fd, 32).decode(errors="replace")
        if not keys:
            return "q"  # the terminal is gone
        return keys if len(keys) == 1 else ""  # an arrow key begins with Esc


def _read_size(fd: int | None) -> os.terminal_size | None:
    return None if fd is None else os.get_terminal_size(fd)
