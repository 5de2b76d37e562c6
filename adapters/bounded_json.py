"""Bounded JSON: decode untrusted JSON within bounds on bytes, values and depth.

A text of 50 MB of ``{},{},…`` becomes 10 GB of objects, so this module counts the values before it decodes
the text. The count is quick: it is the number of bytes ``,``, ``[`` and ``{``. Some of these bytes are
inside strings, so the count is an upper bound. A text with wide characters needs up to four times its
bytes in memory, so the limit for such a text is a half or a quarter of the usual byte limit.

Some JSON values cannot be used, for example a number of 400 digits. Such a value becomes an
:class:`UnreadableValue`, which has no JSON type. The code that reads a row of a catalogue checks types, so
it rejects only the row with this value.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hydrator.domain import redaction as redact

_WIDE_CHARACTER = re.compile(rb"[\xf0-\xff]|\\u")
_MAX_DIGITS = 19
"""The digits of the largest 64-bit integer; a sign may add one character."""


Record = Mapping[str, Any]
"""One JSON object."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one JSON text: bytes, values and depth.

    The bounds on bytes and values are settings of a catalogue. Error messages name these settings.
    """

    max_bytes: int = 16_000_000
    max_values: int = 500_000
    max_depth: int = 64
    bytes_setting: str = "max_answer_mb"
    values_setting: str = "max_answer_values"

    def too_many_bytes_error(self, subject: str = "it") -> "TooLarge":
        """Return the error for the text *subject*, which has too many bytes."""
        return TooLarge(f"{subject} is larger than {self.max_bytes} bytes; the limit is {self.bytes_setting}")

    def too_many_values_error(self, subject: str = "it") -> "TooLarge":
        """Return the error for the text *subject*, which has too many values."""
        return TooLarge(
            f"{subject} has more than {self.max_values} values; the limit is {self.values_setting}"
        )

    def quarter(self) -> "Bounds":
        """Return new bounds with a quarter of the bytes and values of these bounds."""
        return replace(self, max_bytes=self.max_bytes // 4, max_values=self.max_values // 4)


class TooLarge(ValueError):
    """A JSON or TOML text exceeds its bounds; the message has the limit and the setting of this limit."""


@dataclass(frozen=True, slots=True)
class UnreadableValue:
    """A placeholder for an unreadable JSON value; ``reason`` is for messages and does not quote the value."""

    reason: str


def decode(data: bytes | bytearray, bounds: Bounds) -> Any:  # noqa: ANN401 - JSON
    """Decode *data*, a complete JSON text. If *data* is a ``bytearray``, empty it early to free its memory.

    Bytes that are not UTF-8 become lone surrogates; :func:`is_text` rejects a text with lone surrogates.

    Raises:
        TooLarge: *data* exceeds *bounds*.
        ValueError: *data* is not JSON.
    """
    check_size(data, bounds)
    may_be_deep = data.count(b"{") + data.count(b"[") > bounds.max_depth
    text = data.decode("utf-8", "surrogateescape")
    if isinstance(data, bytearray):
        data.clear()
    try:
        body = _DECODER.decode(text)
    except RecursionError:
        raise _depth_error(bounds) from None
    if may_be_deep:
        _check_depth(body, bounds)
    return body


def decode_row(line: bytes) -> Any:  # noqa: ANN401 - JSON
    """Decode the JSON of one row; the caller limits the length of a row. See :func:`decode`.

    Raises:
        ValueError: the row is not JSON, or is nested too deeply.
    """
    try:
        return _DECODER.decode(line.decode("utf-8", "surrogateescape"))
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def is_text(value: object) -> bool:
    """Return whether *value* is a printable text: not empty, no lone surrogates, no control characters."""
    return isinstance(value, str) and bool(value) and not _UNWRITABLE_CHARACTER.search(value)


def quote_excerpt(value: object, max_chars: int = 80) -> str:
    """Return the beginning of *value* for a message: quoted, printable and without secrets."""
    return f"'{redact.sanitize(value if isinstance(value, str) else str(value), max_chars)}'"


def check_size(data: bytes | bytearray, bounds: Bounds) -> None:
    """Raise TooLarge if *data*, a text of JSON or TOML, has more bytes or values than *bounds* allow."""
    size = len(data)
    if size > bounds.max_bytes:
        raise bounds.too_many_bytes_error()
    if size > bounds.max_bytes // 4 and not _is_narrow(data, bounds):
        raise bounds.too_many_bytes_error("the decoded text, which has wide characters,")
    if size > bounds.max_values:
        count = 1 + data.count(b",") + data.count(b"[") + data.count(b"{")
        if count > bounds.max_values:
            raise bounds.too_many_values_error()


def _is_narrow(data: bytes | bytearray, bounds: Bounds) -> bool:
    """Return whether the Python text decoded from *data* needs at most ``max_bytes`` of memory."""
    if _WIDE_CHARACTER.search(data):
        return False
    return data.isascii() or len(data) <= bounds.max_bytes // 2


def _check_depth(body: object, bounds: Bounds) -> None:
    level = [body]
    for _ in range(bounds.max_depth):
        level = [
            child
            for each in level
            for child in (each.values() if type(each) is dict else each if type(each) is list else ())
            if type(child) in (dict, list)
        ]
        if not level:
            return
    raise _depth_error(bounds)


def _depth_error(bounds: Bounds) -> TooLarge:
    return TooLarge(f"its JSON is nested more than {bounds.max_depth} levels deep")


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any] | UnreadableValue:
    table = dict(pairs)
    if len(table) == len(pairs):
        return table
    keys: set[str] = set()
    duplicate = next(key for key, _ in pairs if key in keys or keys.add(key))  # type: ignore[func-returns-value]
    return UnreadableValue(f"the key {quote_excerpt(duplicate)} is given twice in one object")


def _parse_int(digits: str) -> int | UnreadableValue:
    return (
        int(digits)
        if len(digits) <= _MAX_DIGITS + 1
        else UnreadableValue(f"a number of {len(digits)} digits")
    )


def _parse_float(digits: str) -> float | UnreadableValue:
    number = float(digits)
    return number if math.isfinite(number) else UnreadableValue("a number out of range")


def _parse_constant(name: str) -> UnreadableValue:
    return UnreadableValue(f"{name} is not a number")


_UNWRITABLE_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_hooks: dict[str, Callable[..., object]] = {
    "object_pairs_hook": _reject_duplicate_keys,
    "parse_int": _parse_int,
    "parse_float": _parse_float,
    "parse_constant": _parse_constant,
}
_DECODER = json.JSONDecoder(**_hooks)  # type: ignore[arg-type]
