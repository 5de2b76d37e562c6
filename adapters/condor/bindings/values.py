"""What the bindings' values are: their `undefined` and `error` are members of an enumeration of integers."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

MAX_MISSES_OF_JOB = 50
"""Of one job so many misses are read, and of each so many characters: its owner writes what he likes."""
MAX_MISS_CHARS = 2000


def is_plain(value: object) -> TypeGuard[str | int | float | bool]:
    """Is this a text, a number or a truth value, and none of the two that Python takes for integers?"""
    return isinstance(value, (str, float, bool)) or type(value) is int


def expression_text(ad: Any, attribute: str) -> str:  # noqa: ANN401  (the bindings have no types)
    """The text of an expression on one line; in ClassAd text a line break never stands inside a string."""
    lines = map(str.strip, str(ad.lookup(attribute)).split("\n"))
    return " ".join(line for line in lines if line)


def is_number(value: object) -> TypeGuard[int | float]:
    """Is this a number, and neither a truth value, NaN nor infinity?"""
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


def choose_misses_fairly(reports: Iterable[tuple[str, Sequence[str]]], max_misses: int) -> list[list[str]]:
    """Choose *at_most* misses of many, so that nobody's hide another's.

    Each user's turn comes again and again. Of one user first those that differ in dataset or site, the
    newest of each; misses that only repeat these come last, where there is room.

    Args:
        reports: user and MISSES of each job, ``WHEN DID,DID,+N SITE``.
        at_most: 1 or more.
    """
    first: dict[str, dict[str, str]] = {}
    rest: list[str] = []
    for user, texts in reports:
        known = first.setdefault(user, {})
        for text in texts[:MAX_MISSES_OF_JOB]:
            what = text[:MAX_MISS_CHARS].partition(" ")[2]
            before, newest = known.get(what), text[:MAX_MISS_CHARS]
            if before is not None:
                before, newest = sorted((before, newest), key=_miss_time)
                rest.append(before)
            known[what] = newest
        del rest[max_misses:]
    turns = [iter(known.values()) for known in first.values()]
    chosen: list[str] = []
    while turns and len(chosen) < max_misses:
        found = [next(turn, None) for turn in turns]
        turns = [turn for turn, text in zip(turns, found, strict=True) if text is not None]
        chosen += [text for text in found if text is not None]
    return [[text] for text in (chosen + rest)[:max_misses]]


def _miss_time(text: str) -> int:
    digits = text.partition(" ")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 11 else 0
