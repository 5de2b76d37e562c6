"""Standard output and error of the commands: whatever a text holds, it is shown and steers no terminal."""

import os
import re
import sys
from typing import Any, TextIO

from hydrator.domain.redaction import escape_unprintable

_STYLE = re.compile(r"(\x1b\[[0-9;]{0,20}m)")
"""What makes a text bold or coloured and nothing else: our tables use it on a terminal."""


class PlainStream:
    """A text stream to which only characters that show are written, besides ends of lines and tabs.

    Args:
        behind: where it is written to.
        styled: let what styles a text pass, as on a terminal.
    """

    def __init__(self, stream: TextIO, *, passes_styles: bool) -> None:
        self.stream = stream
        self._passes_styles = passes_styles

    def write(self, text: str) -> int:
        """Write *text*; every character that does not show as an escape."""
        self.stream.write(self._escape(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def _escape(self, text: str) -> str:
        if "\x1b" not in text or not self._passes_styles:
            return escape_unprintable(text, "\n\t")
        parts = _STYLE.split(text)
        return "".join(
            part if place % 2 else escape_unprintable(part, "\n\t") for place, part in enumerate(parts)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def make_plain() -> None:
    """Let standard output and error show every text: in any encoding, and without steering a terminal."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, PlainStream):
            continue
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        styled = stream.isatty() or bool(os.environ.get("FORCE_COLOR"))
        setattr(sys, name, PlainStream(stream, passes_styles=styled))


def unwrap_stream(stream: TextIO) -> TextIO:
    """The stream itself, for what draws on a terminal and writes texts that are plain already."""
    return stream.stream if isinstance(stream, PlainStream) else stream
