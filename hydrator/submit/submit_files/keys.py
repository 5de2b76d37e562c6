"""Keys of dataset sets in submit descriptions: the lines with ``DataLocalityKey``. Pure.

A job's expressions look up all its datasets by one key (:mod:`hydrator.domain.ads.dataset_sets`). The
schedd's job transform cannot hash, so ``hydrator submit`` writes the key of several datasets.
If the datasets differ from item to item of a queue statement, the key is one more variable of the items.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hydrator.domain.ads.classad import string_literal
from hydrator.domain.ads.dataset_sets import SetKey, set_key
from hydrator.domain.model import parse_did

from ..expressions import SUBMITTED_HERE

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
_STRING_LITERAL = re.compile(r'"([^"\\]*)"')


@dataclass(frozen=True, slots=True)
class KeyLines:
    """The lines with the key; if the key differs between the items, ``item_keys`` has the key of each."""

    lines: tuple[str, ...] = ()
    item_keys: tuple[SetKey, ...] = ()


def key_lines(lists: Sequence[Sequence[str]], template: Sequence[str]) -> KeyLines:
    """Return the lines with the key of jobs with the dataset *lists*.

    No other function writes attributes of the key into a description. Lists of one dataset need no line,
    because the schedd's transform makes their keys.

    Args:
        lists: the names of each job, in the order that RequiredDatasets has them; at least one list.
        template: the strings of RequiredDatasets as the description has them, with the macros that differ
            between the lists; empty if the description has them in another form.

    Raises:
        BadDid: a name is not a DID, or has no scope.
    """
    if all(len(set(names)) == 1 for names in lists):
        return KeyLines()
    keys = [set_key(parse_did(name) for name in names) for names in lists]
    if len(set(keys)) == 1:
        return KeyLines((f"+{KEY_ATTRIBUTE} = {string_literal(keys[0])}",))
    if not template:
        return KeyLines()
    return KeyLines((f'+{KEY_ATTRIBUTE} = "$({KEY_VARIABLE})"',), tuple(keys))


def read_names(literal: str) -> tuple[str, ...]:
    """Return the distinct strings of the ClassAd list *literal*; none if it is not a list of strings."""
    bare = literal.strip()
    if not (bare.startswith("{") and bare.endswith("}")):
        return ()
    if _STRING_LITERAL.sub("", bare[1:-1]).strip(" \t\n,"):
        return ()
    return tuple(dict.fromkeys(_STRING_LITERAL.findall(bare)))
