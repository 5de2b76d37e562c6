"""Nearest names: find existing datasets whose names are similar to the name of a missing dataset. Pure."""

import difflib
import heapq
import re
from collections.abc import Collection, Iterable
from os.path import commonprefix

from hydrator.domain.model import Did
from hydrator.submit.dataset_names.lookup import strip_tar

MAX_SIMILAR = 3
MAX_SEARCHED = 5
"""Maximum of absent names for which the program searches similar names; it skips further absent names."""
_MAX_COMPARED = 5000
"""Maximum of names to compare with an absent name; the program skips the rest of a longer list."""
_MAX_LIKELY = 200
"""Maximum of those names to compare letter by letter, which takes 0.1 ms for each name."""
_MAX_NAME_CHARS = 200
"""Maximum length of a name to compare: the time of a comparison grows with the square of the length."""
_CUTOFF = 0.75
_DIGITS = str.maketrans("ilo", "110")


def similar_names(did: Did, candidates: Iterable[Did]) -> tuple[Did, ...]:
    """Return up to MAX_SIMILAR of *candidates* that are similar to *did*, the most similar first.

    The comparison ignores letter case, and the scope, which would make all short names of a scope similar.
    A DID of another scope is similar only if it has the same name, or if the scope of *did* is ``*``.
    A name with another number is another sub-band or observation, not a misspelt name, so ``SB207`` is not
    similar to ``SB007``.
    """
    if len(did) > _MAX_NAME_CHARS:
        return ()
    scope, name = _split_lower(did)
    by_name: dict[str, list[Did]] = {}
    for other in sorted(candidates)[:_MAX_COMPARED]:
        other_scope, other_name = _split_lower(other)
        is_short_enough = abs(len(other_name) - len(name)) <= len(name) // 2
        is_of_scope = scope in (other_scope, "*") or other_name == name
        if other != did and is_short_enough and is_of_scope and _has_same_numbers(name, other_name):
            by_name.setdefault(other_name, []).append(other)
    likely = heapq.nlargest(_MAX_LIKELY, by_name, key=lambda other: _count_common_ends(name, other))
    close = difflib.get_close_matches(name, likely, n=MAX_SIMILAR, cutoff=_CUTOFF)
    return tuple(other for near in close for other in by_name[near])[:MAX_SIMILAR]


def _has_same_numbers(first: str, second: str) -> bool:
    """Return whether the numbers in both names are equal, as far as both have numbers.

    In a number of four digits or more, a swap of digits or one digit too many is a typing error.
    """
    numbers = [re.findall(r"[0-9]+", name) for name in (first, second)]
    return all(
        int(one) == int(other)
        or (
            max(len(one), len(other)) > 3
            and (sorted(one) == sorted(other) or abs(len(one) - len(other)) == 1)
        )
        for one, other in zip(*numbers, strict=False)
    )


def _count_common_ends(first: str, second: str) -> int:
    """Return the length of the common start and of the common end of two texts together."""
    start = len(commonprefix((first, second)))  # noqa: RUF071 - of texts
    return start + len(commonprefix((first[start:][::-1], second[start:][::-1])))  # noqa: RUF071


def _split_lower(did: Did) -> tuple[str, str]:
    """Return scope and name of *did* in lower case; an archive has the name of its measurement set.

    An ``i``, ``l`` or ``o`` after a digit counts as a digit: ``SB00I`` is ``sb001``.
    """
    scope, _, name = did.lower().partition(":")
    return scope, re.sub("(?<=[0-9])[ilo]+", lambda found: found[0].translate(_DIGITS), strip_tar(name))


def similar_name_patterns(dids: Collection[Did]) -> list[str]:
    """Return globs for similar names: each has the scope and a half or both ends of the name of a DID.

    After a typing error of one or two characters, a half of the name or both its ends are still correct.

    >>> similar_name_patterns([Did("lofar:L1234_SB001")])
    ['lofar:L1234*', 'lofar:*_SB001', 'lofar:L1*01']
    """
    patterns = []
    for did in sorted(dids):
        scope, _, name = did.partition(":")
        half, quarter = max(1, len(name) // 2), max(1, len(name) // 4)
        parts = (f"{name[:half]}*", f"*{name[half:]}", f"{name[:quarter]}*{name[-quarter:]}")
        patterns += [f"{scope}:{part}" for part in parts]
    return list(dict.fromkeys(patterns))
