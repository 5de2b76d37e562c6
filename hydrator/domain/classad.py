"""ClassAd texts: literals, and the letter case of dataset names in one short string.

The keys of a nested ad ignore letter case, so ``DatasetStates["lofar:l1"]``
finds the entry of ``Lofar:L1``. ``DatasetLetters`` lets a job check whether the
slot spells its names as the job does. Only letters have a case, and the names
of a site follow few schemes: ``lofar:L1_SB001`` and all other sub-bands of all
observations have the letters ``lofarLSB``. So the string is short, however many
datasets there are, and a job needs one term, not one for each dataset.

Pure. The hook has a copy of the code for letter case (hydrator/startd_cron.py),
because it is one file; tests/unit/domain/test_classad.py compares both.
"""

import re
from collections.abc import Iterable

from .model import Did, SiteAd

LETTERS_ATTRIBUTE = "DatasetLetters"
_NO_LETTER = re.compile(r"[^A-Za-z]+")
_KEY = re.compile(r"'([^']+)'=")
_MAX_BYTES = 60_000
"""Maximum bytes of a text with both the letters and the names."""


def letters(dids: Iterable[Did]) -> list[str]:
    """Return the letters of each of *dids* without duplicates; the last of equal texts is kept.

    The job transform keeps the same order.
    """
    each = [_NO_LETTER.sub("", did) for did in dids]
    return [text for text in dict.fromkeys(reversed(each)) if text][::-1]


def spellings(dids: Iterable[Did]) -> str:
    """Return the value of ``DatasetLetters`` for a slot that has *dids*.

    It lists the letters of the names, sorted, separated by commas. If two names have letters that differ
    in case only, such as ``ska:A1`` and ``ska:a2``, the letters do not identify the name. Then those letters
    are left out and all names are added.
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
    """Return the text of *ad* as slots have it: with the line ``DatasetLetters`` that the hook adds."""
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

    The names stand in single quotes, which leave every character of a DID as it is.
    """
    return "[" + ";".join(f"'{name}'={literal}" for name, literal in entries) + "]"


def record_literal(fields: Iterable[tuple[str, str]]) -> str:
    """Return the nested ad of *fields* (attribute, literal) as the schedd prints it: ``[ A = 1; B = 2 ]``."""
    return "[ " + "; ".join(f"{name} = {literal}" for name, literal in fields) + " ]"


def escape_macros(text: str) -> str:
    """Return *text* with each ``$`` escaped, so that a submit file expands no macro in it."""
    return text.replace("$", "$(DOLLAR)")
