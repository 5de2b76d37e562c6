"""Untrusted text: check the texts of a catalogue, and quote them in messages."""

import json
import re
from collections.abc import Mapping
from typing import Any

from hydrator.domain import redaction as redact

Record = Mapping[str, Any]
"""One JSON object."""
_UNWRITABLE_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


def decode_row(line: bytes) -> Any:  # noqa: ANN401 - JSON
    """Decode the JSON of one row; the caller limits the length of a row.

    Raises:
        ValueError: the row is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def is_text(value: object) -> bool:
    """Return whether *value* is a printable text: not empty, no lone surrogates, no control characters."""
    return isinstance(value, str) and bool(value) and not _UNWRITABLE_CHARACTER.search(value)


def quote_excerpt(value: object, max_chars: int = 80) -> str:
    """Return the beginning of *value* for a message: quoted, printable and without secrets."""
    return f"'{redact.sanitize(value if isinstance(value, str) else str(value), max_chars)}'"
