"""ClassAd texts: literals, and the letter case of dataset names in one short string.

The keys of a nested ad ignore letter case, so ``DatasetStates["lofar:l1"]``
finds the entry of ``Lofar:L1``. With the slot attribute ``DatasetLetters`` a job
checks that its dataset names have the same letter case as those of the slot. The
attribute has only the letters of the names. The dataset names at a site follow few
schemes: ``lofar:L1_SB001`` and all other sub-bands of all observations have the
letters ``lofarLSB``. So the string is short even for many datasets, and a job's expression needs one term
for all its datasets.

This module is pure: no socket, no clock. The hook (hydrator/startd_cron.py) is one
file and has a copy of this code; tests/unit/domain/test_classad.py compares the two copies.
"""

import re
from collections.abc import Iterable

from hydrator.domain.model import Did, SiteAd

LETTERS_ATTRIBUTE = "DatasetLetters"
_NO_LETTER = re.compile(r"[^A-Za-z]+")
_KEY = re.compile(r"'([^']+)'=")
_MAX_BYTES = 60_000
"""Maximum bytes of a text with both the letters and the names."""


def letters(dids: Iterable[Did]) -> list[str]:
    """Return the letters of each name in *dids*, in the order of *dids*.

    If several names have the same letters, only the last of these names has an item in the list.
    The job transform builds the job's list of letters in the same order.
    """
    each = [_NO_LETTER.sub("", did) for did in dids]
    return [text for text in dict.fromkeys(reversed(each)) if text][::-1]


def spellings(dids: Iterable[Did]) -> str:
    """Return the value of ``DatasetLetters`` for a slot that has *dids*.

    The value lists the letters of the names, sorted, separated by commas. The letters of ``ska:A1`` and
    ``ska:a2`` differ only in case, so they do not say which name has which case. If *dids* has such names,
    the value omits their letters and also lists all complete names.
    """
    names = sorted(dids)
    schemes: dict[str, set[str]] = {}
    for text in letters(names):
        schemes.setdefault(text.lower(), set()).add(text)
    clear = sorted(text for alike in schemes.values() if len(alike) == 1 for text in alike)
    if len(clear) == len(schemes):
        return ",".join(clear)
    both = ",".join([*clear, *names])
    return both if len(both) <= _MAX_BYTES else ",".join(names)


def slot_ad_text(ad: SiteAd) -> str:
    """Return the text of *ad* as it is in slot ads: with the line ``DatasetLetters`` that the hook adds."""
    names = [Did(name) for name in _KEY.findall(dict(ad.content).get("DatasetStates", ""))]
    return f'{ad.text}{LETTERS_ATTRIBUTE} = "{spellings(names)}"\n'


def string_literal(text: str) -> str:
    r"""Return *text* as a ClassAd string: ``a"b`` becomes ``"a\"b"``."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def classad_string(text: str) -> str:
    """Return *text* as a ClassAd string on one line: a blank replaces each unprintable character."""
    return string_literal("".join(letter if letter.isprintable() else " " for letter in text))


def list_literal(literals: Iterable[str], separator: str = ",") -> str:
    """Return the ClassAd list of *literals*, such as ``{"lofar:L1","lofar:L2"}``."""
    return "{" + separator.join(literals) + "}"


def nested_ad_literal(entries: Iterable[tuple[str, str]]) -> str:
    """Return the nested ad of *entries* (name, literal), such as ``['lofar:L1'="STAGING"]``.

    The names are in single quotes, in which no character of a DID needs an escape.
    """
    return "[" + ";".join(f"'{name}'={literal}" for name, literal in entries) + "]"


def escape_macros(text: str) -> str:
    """Return *text* with each ``$`` escaped, so that a submit file expands no macro in it."""
    return text.replace("$", "$(DOLLAR)")
