"""Values of HTCondor's bindings, where ``undefined`` and ``error`` are members of an integer enumeration."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeGuard

from hydrator.domain.ads.contract import SET_ATTRIBUTES

Ad = dict[str, Any]
"""Attributes of an ad, or fields of a row, as JSON."""
FIRST_COLLECTOR = "HYDRATOR_FIRST_COLLECTOR"
"""Environment variable of the child: the index, from 0, of the collector that it queries first."""
SITE_WIDE_ATTRIBUTES = (
    "AvailableDatasets",
    "DatasetStates",
    "DatasetFractions",
    "DatasetAsOf",
    *(name for name in SET_ATTRIBUTES if name != "DataLocalityOwnQueueSeconds"),
)
"""Long attributes, equal on all slots of a site that have the same generation."""
MAX_MISSES_OF_JOB = 50
"""Misses of one job that are read, since its owner may write any number of them."""
MAX_MISS_CHARS = 2000
"""Characters of one miss that are read."""


def is_plain(value: object) -> TypeGuard[str | int | float | bool]:
    """Return True for a text, a number or a truth value, but not for ``undefined`` and ``error``."""
    return isinstance(value, (str, float, bool)) or type(value) is int


def is_number(value: object) -> TypeGuard[int | float]:
    """Return True for a number that is not a truth value, NaN or infinity."""
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


def expression_text(ad: Any, attribute: str) -> str:  # noqa: ANN401  (the bindings have no types)
    """Return the text of an expression on one line; ClassAd text has no line break inside a string."""
    lines = map(str.strip, str(ad.lookup(attribute)).split("\n"))
    return " ".join(line for line in lines if line)


def read_strings(ad: Any, attribute: str) -> list[str]:  # noqa: ANN401  (the bindings have no types)
    """Return the strings in a list attribute. The value is untrusted: any job's owner can set it."""
    with suppress(Exception):
        value = ad.eval(attribute)
        return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return []


def choose_misses_fairly(reports: Iterable[tuple[str, Sequence[str]]], max_misses: int) -> list[list[str]]:
    """Choose *max_misses* misses, so that one user with many misses does not displace other users.

    The users take turns. The newest miss of each dataset and site comes first; older misses of the same
    dataset and site come last, if there is room.

    Args:
        reports: the user and the misses of each job; a miss is a text ``WHEN DID,DID,+N SITE``.
        max_misses: 1 or more.
    """
    newest_by_user: dict[str, dict[str, str]] = {}
    repeats: list[str] = []
    for user, texts in reports:
        newest = newest_by_user.setdefault(user, {})
        for text in (text[:MAX_MISS_CHARS] for text in texts[:MAX_MISSES_OF_JOB]):
            subject = text.partition(" ")[2]
            if subject in newest:
                older, newer = sorted((newest[subject], text), key=_miss_time)
                repeats.append(older)
            else:
                newer = text
            newest[subject] = newer
        del repeats[max_misses:]
    turns = [iter(newest.values()) for newest in newest_by_user.values()]
    chosen: list[str] = []
    while turns and len(chosen) < max_misses:
        texts_or_none = [next(turn, None) for turn in turns]
        turns = [turn for turn, text in zip(turns, texts_or_none, strict=True) if text is not None]
        chosen += [text for text in texts_or_none if text is not None]
    return [[text] for text in (chosen + repeats)[:max_misses]]


def _miss_time(text: str) -> int:
    digits = text.partition(" ")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 11 else 0
