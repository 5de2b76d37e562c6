"""Untrusted text: check the texts of a catalogue, and quote them in messages."""

import re
from collections.abc import Mapping
from typing import Any

from hydrator.domain import redaction as redact

Record = Mapping[str, Any]
"""One JSON object."""
_UNWRITABLE_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


def is_text(value: object) -> bool:
    """Return whether *value* is a printable text: not empty, no lone surrogates, no control characters."""
    return isinstance(value, str) and bool(value) and not _UNWRITABLE_CHARACTER.search(value)


def quote_excerpt(value: object, max_chars: int = 80) -> str:
    """Return the beginning of *value* for a message: quoted, printable and without secrets."""
    return f"'{redact.sanitize(value if isinstance(value, str) else str(value), max_chars)}'"
