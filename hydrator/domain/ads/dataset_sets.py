"""Keys of dataset sets: one short ClassAd name for all datasets that a job needs.

A site's ad has an entry for each demanded set, so a job's clause looks up one key, however many datasets
the job needs. The schedd's job transform gives each job its key, in one of three forms:

====================================  =====================================================================
``s`` and 20 letters of base 32       a hash, with the list that it is of (``DataLocalityKeyFor``), from
                                      ``hydrator submit``
``lofar:@L1,lofar:@L2``               the names in the job's order, up to NAMES_CHARS characters before
                                      ``@`` stands before each capital letter, ``@`` and ``~``
``c123.4567@schedd.example``          the cluster, the number of characters of the joined names, the schedd
====================================  =====================================================================

The names in a ClassAd ignore letter case, and a key must not: two different sets never have keys that differ
in letter case only. ``~`` is marked because ``KEY~LANE`` names a part of a set. The daemon compares each key
with the job's list (:func:`fits`), and answers for one list alone (hydrator/reconcile/demand.py).

This module is pure, and needs only the standard library: Toil's leader imports it.
"""

import base64
import hashlib
import re
import string
from collections.abc import Iterable, Sequence
from typing import Final, NewType

from hydrator.domain.ads import contract

SetKey = NewType("SetKey", str)
"""The key of a set of datasets."""

HASHED_KEY_CHARS: Final = 21
NAMES_CHARS: Final = 120
"""Largest number of characters of joined names that are a key themselves, before marks."""
MAX_KEY_CHARS: Final = 500
"""Largest length of a key: 120 characters with a mark each, or a cluster with the name of its schedd."""
HASH_PATTERN: Final = "s[a-z2-7]{20}"
_NAMES_PATTERN = "(?:[a-z0-9._:/=+,-]|@[A-Z@~])+"
_CLUSTER_PATTERN = "c[0-9]{1,10}[.][0-9]{1,10}@[a-z0-9._@-]+"
KEY_PATTERN: Final = f"^(?:{HASH_PATTERN}|(?=[^:]+:){_NAMES_PATTERN}|{_CLUSTER_PATTERN})$"
"""Regular expression of the texts that can be a key."""
_KEY = re.compile(KEY_PATTERN.removesuffix("$") + r"\Z")
_HASH = re.compile(rf"{HASH_PATTERN}\Z")
_CLUSTER = re.compile(rf"{_CLUSTER_PATTERN}\Z")
_MARKS = str.maketrans({letter: f"@{letter}" for letter in f"{string.ascii_uppercase}@~"})
_MARK = re.compile("@(.)")


def set_key(dids: Iterable[str]) -> SetKey:
    """Return the key of a job of ``hydrator submit`` with the set *dids*; order and duplicates do not matter.

    It is the sorted names if they are short, as the transform makes it of them, else their hash.

    Raises:
        ValueError: *dids* is empty.
    """
    names = sorted(set(dids))
    return names_key(names) if len(",".join(names)) <= NAMES_CHARS else hash_key(names)


def names_key(names: Sequence[str]) -> SetKey:
    """Return the key of *names*, in this order, that the transform gives a job whose names are short.

    Raises:
        ValueError: *names* is empty.
    """
    if not names:
        raise ValueError("a set of datasets needs at least one dataset")
    return SetKey(",".join(names).translate(_MARKS))


def hash_key(dids: Iterable[str]) -> SetKey:
    """Return the hash of the set *dids*: ``s`` and the first 20 letters of the base 32 SHA-256 (RFC 4648).

    It is of the sorted DIDs, with a line feed between two DIDs, in lower case.
    """
    digest = hashlib.sha256("\n".join(sorted(set(dids))).encode()).digest()
    return SetKey("s" + base64.b32encode(digest).decode().lower()[: HASHED_KEY_CHARS - 1])


def key_attributes(dids: Sequence[str]) -> dict[str, str]:
    """Return what a job with the list *dids* needs beside the list: the hash and its text, if it is long.

    For a short list nothing: the schedd's transform makes the key of the names.
    """
    joined = ",".join(dids)
    if len(joined) <= NAMES_CHARS:
        return {}
    return {contract.KEY: hash_key(dids), contract.KEY_FOR: joined}


def fits(key: str, dids: Iterable[str]) -> bool:
    """Return whether *key* can be the key of a job with the set *dids*.

    A cluster's key fits any list: only another list with the same key shows that it is not unique.
    """
    if ":" in key:  # only names have one
        return set(names_of(key)) == set(dids)
    return key == hash_key(dids) if _HASH.match(key) else is_cluster_key(key)


def is_cluster_key(key: str) -> bool:
    """Return whether *key* is of one cluster: no later job has it."""
    return bool(_CLUSTER.match(key))


def is_of_cluster(key: str | None, schedd: str, job_id: str) -> bool:
    """Return whether *key* is that of the cluster of the job *job_id* at *schedd*."""
    cluster = job_id.partition(".")[0]
    return key is not None and key.startswith(f"c{cluster}.") and key.partition("@")[2] == schedd.lower()


def names_of(key: str) -> tuple[str, ...]:
    """Return the names of the datasets that *key* consists of; none if it is a hash or of a cluster."""
    if ":" not in key or not _KEY.match(key):
        return ()
    return tuple("".join(_MARK.split(key)).split(","))  # six times as fast as sub, for each key of a cycle


def quote_key(key: str) -> str:
    """Return *key* as a name of a nested ad; a hash needs no quotes."""
    return key if _HASH.match(key) else f"'{key}'"


def can_be_key(text: str) -> bool:
    """Return True if *text* has the form of a key."""
    return len(text) <= MAX_KEY_CHARS and bool(_KEY.match(text))
