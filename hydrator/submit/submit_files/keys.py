"""Keys of dataset sets in submit descriptions: the lines with ``DataLocalityKey``. Pure.

A job looks up all its datasets by one key (:mod:`hydrator.domain.ads.dataset_sets`). The schedd's job
transform makes the key of a short list. It cannot hash, so ``hydrator submit`` writes the hash of a long list
with the text that it is of: the transform takes the hash if that text is the list that the job then has.
If the datasets differ from item to item of a queue statement, the key is one more variable of the items.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hydrator.domain.ads.classad import string_literal
from hydrator.domain.ads.dataset_sets import NAMES_CHARS, SetKey, hash_key
from hydrator.domain.model import parse_did

KEY_ATTRIBUTE = "DataLocalityKey"
KEY_FOR_ATTRIBUTE = "DataLocalityKeyFor"
KEY_VARIABLE = "hydrator_key"
"""The variable of a queue statement that has the key of each item's datasets."""
_STRING_LITERAL = re.compile(r'"([^"\\]*)"')
_TEXT = re.compile(r'(?:split\()?"([^"\\]*)"\)?')


@dataclass(frozen=True, slots=True)
class KeyLines:
    """The lines with the key; if the key differs between the items, ``item_keys`` has the key of each."""

    lines: tuple[str, ...] = ()
    item_keys: tuple[SetKey, ...] = ()


def key_lines(lists: Sequence[Sequence[str]], template: Sequence[str]) -> KeyLines:
    """Return the lines with the key of jobs with the dataset *lists*.

    No other function writes attributes of the key into a description. Short lists need no line, because the
    schedd's transform makes their keys.

    Args:
        lists: the names of each job, in the order that RequiredDatasets has them; at least one list.
        template: the strings of RequiredDatasets as the description has them, with the macros that differ
            between the lists; empty if the description has them in another form.

    Raises:
        BadDid: a name is not a DID, or has no scope.
    """
    keys = [hash_key(parse_did(name) for name in names) for names in lists]
    texts = {",".join(names) for names in lists}
    is_one = len(texts) == 1
    if all(len(text) <= NAMES_CHARS for text in texts) or not (is_one or template):
        return KeyLines()
    key = keys[0] if is_one else f"$({KEY_VARIABLE})"
    lines = (
        f"+{KEY_ATTRIBUTE} = {string_literal(key)}",
        f"+{KEY_FOR_ATTRIBUTE} = {string_literal(texts.pop() if is_one else ','.join(template))}",
    )
    return KeyLines(lines, () if is_one else tuple(keys))


def read_names(literal: str) -> tuple[str, ...]:
    """Return the names in *literal*, RequiredDatasets, as the schedd joins them: in order, with duplicates.

    It is a list of strings or one string; both may have names with commas between them. Other expressions
    have no names here.
    """
    bare = literal.strip()
    if text := _TEXT.fullmatch(bare):
        return tuple(re.findall(r"[^,\s]+", text[1]))
    if not (bare.startswith("{") and bare.endswith("}")):
        return ()
    if _STRING_LITERAL.sub("", bare[1:-1]).strip(" \t\n,"):
        return ()
    return tuple(name for text in _STRING_LITERAL.findall(bare) for name in text.split(","))
