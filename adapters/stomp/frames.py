"""STOMP 1.2 frames [1] for a subscriber. The use of memory is limited, whatever the size of a frame.

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
    """The broker sent data that is not STOMP."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; ``body`` is None if the body was larger than the limit."""

    command: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = b""


def encode_frame(frame: Frame) -> bytes:
    """Encode *frame*. A CONNECT frame has no escapes, so each of its header values must be one line."""
    plain = frame.command == "CONNECT"
    lines = [frame.command]
    for name, value in frame.headers.items():
        if plain and re.search(r"[\r\n]", value):
            raise ValueError(f"the CONNECT header {name} has more than one line")
        lines.append(f"{name}:{value}" if plain else f"{_escape(name)}:{_escape(value)}")
    return "\n".join([*lines, "", ""]).encode() + (frame.body or b"") + b"\0"


class FrameParser:
    """A parser of STOMP frames; a frame may arrive in several pieces.

    Args:
        max_body_bytes: the limit of a frame's body. The parser discards a larger body while the body
            arrives.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()
        self._current_frame: Frame | None = None
        self._remaining_bytes: int | None = None
        """Bytes of the body still to come, with its NUL; None: up to a NUL."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that *data* completes.

        Raises:
            NotStomp: the data is not a STOMP frame.
        """
        self._buffer += data
        while True:
            if self._current_frame is None and not self._start_frame():
                return
            frame = self._take_frame()
            if frame is None:
                return
            yield frame

    def _start_frame(self) -> bool:
        """Parse a frame's head and remove it from the buffer; return False if the head is incomplete."""
        heartbeat_bytes = len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))
        del self._buffer[:heartbeat_bytes]
        end = _END_OF_HEAD.search(self._buffer, 0, MAX_HEAD_BYTES)
        if end is None:
            if len(self._buffer) >= MAX_HEAD_BYTES:
                raise NotStomp(f"a frame's head has more than {MAX_HEAD_BYTES} bytes")
            return False
        self._current_frame = _parse_head(bytes(self._buffer[: end.start()]))
        del self._buffer[: end.end()]
        length = self._current_frame.headers.get("content-length", "")
        if length and not re.fullmatch(r"[0-9]{1,12}", length):
            raise NotStomp("a frame's content-length is not a number")
        self._remaining_bytes = int(length) + 1 if length else None
        if self._remaining_bytes is not None and self._remaining_bytes - 1 > self._max_body_bytes:
            self._current_frame = Frame(self._current_frame.command, self._current_frame.headers, None)
        return True

    def _take_frame(self) -> Frame | None:
        """Return the current frame; None if the end of the frame has not arrived."""
        current = self._current_frame
        if current is None:
            return None
        size = self._remaining_bytes if self._remaining_bytes is not None else self._buffer.find(b"\0") + 1
        if current.body is None or (self._remaining_bytes is None and not size):
            return self._skip_body(current, size)
        if len(self._buffer) < size:
            return None
        if self._buffer[size - 1] != 0:
            raise NotStomp("a frame does not end at its content-length")
        frame = Frame(current.command, current.headers, bytes(self._buffer[: size - 1]))
        return self._finish_frame(frame, size)

    def _skip_body(self, frame: Frame, size: int) -> Frame | None:
        """Discard a body that is too large, while the body arrives.

        If the size is unknown and the arrived part is not yet too large, wait for more data.
        """
        if frame.body is not None and len(self._buffer) <= self._max_body_bytes:
            return None
        self._current_frame = Frame(frame.command, frame.headers, None)
        if size and len(self._buffer) >= size:
            return self._finish_frame(self._current_frame, size)
        if self._remaining_bytes is not None:
            self._remaining_bytes -= len(self._buffer)
        self._buffer.clear()
        return None

    def _finish_frame(self, frame: Frame, size: int) -> Frame:
        del self._buffer[:size]
        self._current_frame = self._remaining_bytes = None
        is_too_large = frame.body is not None and len(frame.body) > self._max_body_bytes
        return Frame(frame.command, frame.headers, None) if is_too_large else frame


def _parse_head(text: bytes) -> Frame:
    try:
        command, *lines = text.decode().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise NotStomp("a frame's head is not UTF-8") from error
    if not re.fullmatch(r"[A-Z]{1,20}", command):
        raise NotStomp("the data is not a STOMP frame")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise NotStomp("a frame has a header without a colon")
        plain = command == "CONNECTED"
        pair = (name, value) if plain else (_unescape(name), _unescape(value))
        headers.setdefault(*pair)  # a frame may repeat a header: the first value is valid
    return Frame(command, headers)


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(each, each) for each in text)


def _unescape(text: str) -> str:
    if re.search(r"\\(?![\\rnc])|\\$", text.replace("\\\\", "")):
        raise NotStomp("a frame's header has an unknown escape sequence")
    return re.sub(r"\\[\\rnc]", lambda found: _UNESCAPES[found[0]], text)
