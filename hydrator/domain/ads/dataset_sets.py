"""Keys of dataset sets: one short ClassAd name for all datasets that a job needs.

A site's ad has an entry for each demanded set, so a job's expressions look up one key, however many
datasets the job needs. The names in a ClassAd ignore letter case, and a key must not: two different sets
never have keys that differ in letter case only.

This module is pure, and needs only the standard library: Toil's leader imports it.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from typing import NewType

SetKey = NewType("SetKey", str)
"""The key of a set of datasets, as :func:`set_key` builds it."""

HASHED_KEY_CHARS = 21
MAX_KEY_CHARS = 1000
"""Largest length of a key: a DID has up to 500 characters, and each may have a mark."""
KEY_PATTERN = "^(s[a-z2-7]{20}|([A-Za-z0-9._/=+~-]|@!?)+:([A-Za-z0-9._:/=+~-]|@!?)+)$"
"""Regular expression of the texts that can be a key: a hash, or a DID with marks."""
_KEY = re.compile(KEY_PATTERN.removesuffix("$") + r"\Z")
_CASED = re.compile("[A-Z@]")
_MARKED = re.compile("@([A-Z!])")


def set_key(dids: Iterable[str]) -> SetKey:
    """Return the key of the set *dids*; the order and duplicates do not matter.

    The key of one dataset is its DID with an ``@`` before each capital letter and ``@!`` for each ``@``, so
    ``lofar:L1`` has the key ``lofar:@L1``. The pool's job transform builds the same key. The key of several
    datasets is ``s`` and the first 20 letters of the base 32 SHA-256 (RFC 4648, in lower case) of the
    sorted DIDs, with a line feed between two DIDs.

    Raises:
        ValueError: *dids* is empty.
    """
    names = sorted(set(dids))
    if not names:
        raise ValueError("a set of datasets needs at least one dataset")
    if len(names) == 1:
        return SetKey(_CASED.sub(_mark_case, names[0]))
    digest = hashlib.sha256("\n".join(names).encode()).digest()
    return SetKey("s" + base64.b32encode(digest).decode().lower()[: HASHED_KEY_CHARS - 1])


def can_be_key(text: str) -> bool:
    """Return True if *text* has the form of a key."""
    return len(text) <= MAX_KEY_CHARS and bool(_KEY.match(text))


def unmark_case(text: str) -> str:
    """Return *text* with the DID in place of each key of one dataset; other words may change too."""
    return _MARKED.sub(lambda mark: mark[1].replace("!", "@"), text)


def _mark_case(letter: re.Match[str]) -> str:
    return "@!" if letter[0] == "@" else f"@{letter[0]}"
