"""Standard output and error of the commands, with unprintable characters escaped."""

import os
import re
import sys
from typing import Any, TextIO

from hydrator.domain.redaction import escape_unprintable

_STYLE = re.compile(r"(\x1b\[[0-9;]{0,20}m)")
"""Escape sequences for bold and coloured text, which the tables use on a terminal."""

_FORCING = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")
"""Variables with which Typer writes styles without a terminal too."""


class PlainStream:
    """A text stream that escapes unprintable characters other than line ends and tabs.

    Args:
        stream: the underlying stream.
        passes_styles: do not escape bold and coloured text, because the stream is a terminal.
    """

    def __init__(self, stream: TextIO, *, passes_styles: bool) -> None:
        self.stream = stream
        self._passes_styles = passes_styles

    def write(self, text: str) -> int:
        """Write *text* with unprintable characters as escapes."""
        self.stream.write(self._escape(text))
        return len(text)

    def writelines(self, lines: Any) -> None:  # noqa: ANN401 - as the stream's own
        for line in lines:
            self.write(line)

    def _escape(self, text: str) -> str:
        if "\x1b" not in text or not self._passes_styles:
            return escape_unprintable(text, "\n\t")
        parts = _STYLE.split(text)
        return "".join(
            part if place % 2 else escape_unprintable(part, "\n\t") for place, part in enumerate(parts)
        )

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.stream, name)


def make_plain() -> None:
    """Make standard output and error escape unprintable text, in any encoding."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.reconfigure(errors="backslashreplace")
        passes_styles = stream.isatty() or any(map(os.environ.get, _FORCING))
        setattr(sys, name, PlainStream(stream, passes_styles=passes_styles))


def unwrap_stream(stream: TextIO) -> TextIO:
    """Return the stream inside a PlainStream, for libraries that draw on a terminal and escape texts."""
    return stream.stream if isinstance(stream, PlainStream) else stream
