"""Keys of dataset sets in submit descriptions: the lines with ``DataLocalityKey``.

A job's expressions look up all its datasets by one key (:mod:`hydrator.domain.ads.dataset_sets`). The
schedd's job transform makes the key of one dataset, but it cannot hash, so ``hydrator submit`` writes
the key of several.
If the datasets differ from item to item of a queue statement, the key is one more variable of the items.

This module is pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hydrator.domain.ads.classad import string_literal
from hydrator.domain.ads.dataset_sets import SetKey, set_key
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, parse_did

from ..expressions import SUBMITTED_HERE
from .description import MACRO, expand

KEY_ATTRIBUTE = "DataLocalityKey"
CLAUSE_LINES = (
    f"+DataLocalityHere = {SUBMITTED_HERE}",
    "requirements = MY.DataLocalityHere && ($(requirements:true))",
)
"""Lines after all others of a description with a key: the schedd stores one clause for all its jobs.

The schedd's transform checks both lines. Where it finds others, it makes the clause and Requirements itself.
"""
KEY_VARIABLE = "hydrator_key"
"""The variable of a queue statement that has the key of each item's datasets."""
_KEY_NAMES = ("+datalocalitykey", "my.datalocalitykey")
_STRING_LITERAL = re.compile(r'"([^"\\]*)"')


@dataclass(frozen=True, slots=True)
class KeyLines:
    """The lines with the key (none if the description has the right key already), and notes for the user.

    If the key differs between the items of the queue statement, ``item_keys`` has the key of each item.
    ``item_lists`` has the datasets of each item as far as they can be read.
    """

    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    item_keys: tuple[SetKey, ...] = ()
    item_lists: tuple[tuple[str, ...], ...] = ()


def lines_for_dids(dids: Sequence[Did], macros: Mapping[str, str], origin: str) -> KeyLines:
    """Return the line with the key of *dids*, the same for all jobs; no line for one dataset.

    Args:
        dids: the datasets; at least one.
        macros: the settings of the description, by lower-case name; a ``DataLocalityKey`` in it may be wrong.
        origin: the file's name, for messages.
    """
    if len(set(dids)) == 1:
        return KeyLines()
    return _correct([set_key(dids)], [{}], macros, origin)


def lines_for_lists(
    literal: str, rows: Sequence[Mapping[str, str]], macros: Mapping[str, str], origin: str
) -> KeyLines:
    """Return the lines with the keys of the jobs' own lists; no lines if the lists cannot be read.

    The lists of one dataset need no line, because the transform makes their keys.

    Args:
        literal: the value of RequiredDatasets in the description, with its macros.
        rows: the variables of each item of the queue statement; one row without variables if there are none.
        macros: the settings of the description, by lower-case name.
        origin: the file's name, for messages.
    """
    lists = [read_names(expand(literal, {**macros, **row})) for row in rows]
    if not lists or not all(lists):
        return KeyLines()
    if all(len(names) == 1 for names in lists):
        return KeyLines(item_lists=tuple(lists))
    keys = []
    for names in lists:
        try:
            keys.append(set_key(parse_did(name) for name in names))
        except BadDid as bad:
            return KeyLines(notes=(f"{origin}: {KEY_ATTRIBUTE} is left out: {bad}",))
    return replace(_correct(keys, rows, macros, origin), item_lists=tuple(lists))


def read_names(literal: str) -> tuple[str, ...]:
    """Return the distinct strings of the ClassAd list *literal*; none if it is not a list of strings."""
    bare = literal.strip()
    if not (bare.startswith("{") and bare.endswith("}")) or MACRO.search(bare):
        return ()
    if _STRING_LITERAL.sub("", bare[1:-1]).strip(" \t,"):
        return ()
    return tuple(dict.fromkeys(_STRING_LITERAL.findall(bare)))


def _correct(
    keys: Sequence[SetKey], rows: Sequence[Mapping[str, str]], macros: Mapping[str, str], origin: str
) -> KeyLines:
    """Return the lines with *keys*; no lines if the description has these keys, a note if it has others."""
    own = next((macros[name] for name in _KEY_NAMES if name in macros), None)
    if own is not None and _fits(own, keys, rows, macros):
        return KeyLines()
    notes = () if own is None else (_note(own, keys, origin),)
    if len(set(keys)) == 1:
        return KeyLines((f"+{KEY_ATTRIBUTE} = {string_literal(keys[0])}",), notes)
    return KeyLines((f'+{KEY_ATTRIBUTE} = "$({KEY_VARIABLE})"',), notes, tuple(keys))


def _fits(
    own: str, keys: Sequence[SetKey], rows: Sequence[Mapping[str, str]], macros: Mapping[str, str]
) -> bool:
    values = (expand(own, {**macros, **row}).strip() for row in rows)
    return all(value == string_literal(key) for value, key in zip(values, keys, strict=True))


def _note(own: str, keys: Sequence[SetKey], origin: str) -> str:
    new = string_literal(keys[0]) if len(set(keys)) == 1 else "the key of each job's datasets"
    return f"{origin}: {KEY_ATTRIBUTE} = {own[:100]} is not the key of RequiredDatasets: {new} replaces it"
