"""STOMP 1.2 frames [1], as far as a subscriber needs them; of whatever size, what is kept is bounded.

[1] https://stomp.github.io/stomp-specification-1.2.html
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_HEAD_BYTES: Final = 16 * 1024
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_ESCAPES: Final = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_UNESCAPES: Final = {escaped: plain for plain, escaped in _ESCAPES.items()}


class NotStomp(Exception):
    """The other side does not speak STOMP."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; ``body`` is None where it was larger than is read."""

    command: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = b""


def encoded(frame: Frame) -> bytes:
    """*frame* for the wire; CONNECT escapes nothing, so that its values must be of one line."""
    plain = frame.command == "CONNECT"
    lines = [frame.command]
    for name, value in frame.headers.items():
        if plain and re.search(r"[\r\n]", value):
            raise ValueError(f"{name} has more than one line")
        lines.append(f"{name}:{value}" if plain else f"{_escaped(name)}:{_escaped(value)}")
    return "\n".join([*lines, "", ""]).encode() + (frame.body or b"") + b"\0"


class Frames:
    """Makes frames of what a socket brings, whatever the pieces.

    Args:
        most: the largest body, in bytes, that is kept; a larger one is passed over as it comes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer = bytearray()
        self._begun: Frame | None = None
        self._left: int | None = None  # bytes of the body still to come, with its NUL; None: up to a NUL

    def fed(self, data: bytes) -> Iterator[Frame]:
        """The frames that *data* completes.

        Raises:
            NotStomp: there is no such frame.
        """
        self._buffer += data
        while True:
            if self._begun is None and not self._begin():
                return
            done = self._body()
            if done is None:
                return
            yield done

    def _begin(self) -> bool:
        """Take the head of a frame out of the buffer, if all of it is there."""
        beats = len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))
        del self._buffer[:beats]
        end = _END_OF_HEAD.search(self._buffer, 0, MAX_HEAD_BYTES)
        if end is None:
            if len(self._buffer) >= MAX_HEAD_BYTES:
                raise NotStomp(f"a frame's head has over {MAX_HEAD_BYTES} bytes")
            return False
        self._begun = _head(bytes(self._buffer[: end.start()]))
        del self._buffer[: end.end()]
        length = self._begun.headers.get("content-length", "")
        if length and not re.fullmatch(r"[0-9]{1,12}", length):
            raise NotStomp("a frame's content-length is no number")
        self._left = int(length) + 1 if length else None
        if self._left is not None and self._left - 1 > self._most:
            self._begun = Frame(self._begun.command, self._begun.headers, None)
        return True

    def _body(self) -> Frame | None:
        """The frame that began, when its end is there."""
        begun = self._begun
        if begun is None:
            return None
        size = self._left if self._left is not None else self._buffer.find(b"\0") + 1
        if begun.body is None or (self._left is None and not size):
            return self._passed_over(begun, size)
        if len(self._buffer) < size:
            return None
        if self._buffer[size - 1] != 0:
            raise NotStomp("a frame does not end where it says")
        return self._ended(Frame(begun.command, begun.headers, bytes(self._buffer[: size - 1])), size)

    def _passed_over(self, begun: Frame, size: int) -> Frame | None:
        """Drop what is not kept of a body that is too large; while that is not known, keep all of it."""
        if begun.body is not None and len(self._buffer) <= self._most:
            return None
        self._begun = Frame(begun.command, begun.headers, None)
        if size and len(self._buffer) >= size:
            return self._ended(self._begun, size)
        if self._left is not None:
            self._left -= len(self._buffer)
        self._buffer.clear()
        return None

    def _ended(self, frame: Frame, size: int) -> Frame:
        del self._buffer[:size]
        self._begun = self._left = None
        too_large = frame.body is not None and len(frame.body) > self._most
        return Frame(frame.command, frame.headers, None) if too_large else frame


def _head(text: bytes) -> Frame:
    try:
        command, *lines = text.decode().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise NotStomp("a frame's head is no UTF-8") from error
    if not re.fullmatch(r"[A-Z]{1,20}", command):
        raise NotStomp("what it sends is no frame")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise NotStomp("a frame has a header without a colon")
        plain = command == "CONNECTED"
        pair = (name, value) if plain else (_unescaped(name), _unescaped(value))
        headers.setdefault(*pair)  # of repeated headers the first counts
    return Frame(command, headers)


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(each, each) for each in text)


def _unescaped(text: str) -> str:
    if re.search(r"\\(?![\\rnc])|\\$", text.replace("\\\\", "")):
        raise NotStomp("a frame has an escape that there is not")
    return re.sub(r"\\[\\rnc]", lambda found: _UNESCAPES[found[0]], text)
