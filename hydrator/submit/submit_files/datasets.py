"""Datasets of submit descriptions and DAG files: add ``RequiredDatasets``, and the key of long lists.

A job looks up all its datasets by one key (:mod:`hydrator.domain.ads.dataset_sets`). The schedd's job
transform makes the key of a short list. It cannot hash, so ``hydrator submit`` writes the hash of a long list
with the text that it is of: the transform takes the hash if that text is the list that the job then has.
If the datasets differ from item to item of a queue statement, the key is one more variable of the items, and
so are the joined names if the description has them in another form.

In a submit description the new lines come before the queue statement. A DAG file gets VARS statements, and
its nodes' descriptions stay unchanged, so nodes may share them. After SPLICE and INCLUDE the nodes of the
other file are nodes of this DAG; after SUBDAG EXTERNAL a second DAGMan submits them. To change the other
files too, a caller writes changed copies and passes the names of the copies to :func:`add_datasets_to_dag`.
Pure: bytes in, bytes out.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from hydrator.domain.ads.classad import list_literal, string_literal
from hydrator.domain.ads.contract import (
    EXPECTED_SECONDS,
    KEY,
    KEY_FOR,
    MAX_AGE,
    MAX_WAIT,
    MODE,
    REQUIRED_DATASETS,
)
from hydrator.domain.ads.dataset_sets import NAMES_CHARS, hash_key
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, parse_did
from hydrator.domain.text import shorten_list
from hydrator.submit.dataset_names.lookup import split_paths

from .dag import Dag, DagNode
from .description import Description, Row, SubmitFileError, line_ending

# --- keys


KEY_VARIABLE = "hydrator_key"
"""The variable of a queue statement that has the key of each item's datasets."""
_NAMES_VARIABLE = "hydrator_names"
"""The variable that has the joined names of each item."""
_STRING_LITERAL = re.compile(r'"([^"\\]*)"')
_LIST_LITERAL = re.compile(r'\{\s*"[^"\\]*"\s*(?:,\s*"[^"\\]*"\s*)*\}')
"""HTCondor joins two strings without a comma between them to one name."""
_TEXT = re.compile(r'(?:split\()?"([^"\\]*)"\)?')


class KeyLines(NamedTuple):
    """The lines with the key; if it differs between the items, ``item_values`` has new variables of each."""

    lines: tuple[str, ...] = ()
    item_values: tuple[Row, ...] = ()


def key_lines(lists: Sequence[Sequence[str]], template: str = "") -> KeyLines:
    """Return the lines with the key of jobs with the dataset *lists*.

    No other function writes attributes of the key into a description. Short lists need no line, because the
    schedd's transform makes their keys.

    Args:
        lists: the names of each job, in the order that RequiredDatasets has them; at least one list.
        template: a text with macros that expands to the joined names of each list; empty without one.

    Raises:
        BadDid: a name is not a DID, or has no scope.
    """
    keys = [hash_key(parse_did(name) for name in names) for names in lists]
    texts = [",".join(names) for names in lists]
    is_one = len(set(texts)) == 1
    if all(len(text) <= NAMES_CHARS for text in texts):
        return KeyLines()
    key, key_for = (
        (keys[0], texts[0]) if is_one else (f"$({KEY_VARIABLE})", template or f"$({_NAMES_VARIABLE})")
    )
    lines = (f"+{KEY} = {string_literal(key)}", f"+{KEY_FOR} = {string_literal(key_for)}")
    if is_one:
        return KeyLines(lines)
    names = [{} if template else {_NAMES_VARIABLE: text} for text in texts]
    return KeyLines(lines, tuple({KEY_VARIABLE: key, **more} for key, more in zip(keys, names, strict=True)))


def read_names(literal: str) -> tuple[str, ...]:
    """Return the names in *literal*, RequiredDatasets, as the schedd joins them: in order, with duplicates.

    It is a list of strings or one string; both may have names with commas between them. Other expressions
    have no names here.
    """
    bare = literal.strip()
    if text := _TEXT.fullmatch(bare):
        return tuple(re.findall(r"[^,\s]+", text[1]))
    if not _LIST_LITERAL.fullmatch(bare):
        return ()
    return tuple(name for text in _STRING_LITERAL.findall(bare) for name in text.split(","))


# --- submit descriptions

_LIST = f"MY.{REQUIRED_DATASETS}"
_OPTIONS = {name.lower(): name for name in (REQUIRED_DATASETS, MODE, MAX_WAIT, MAX_AGE, EXPECTED_SECONDS)}
"""The attributes of a job that users write, by their names in lower case."""
_MISSPELT_SIMILARITY = 0.93
"""Least similarity of a misspelt name (difflib); our other attributes have at most 0.92."""
_UNIT_SEPARATOR = "\x1f"
"""If an item has this character, condor_submit splits the item at it instead of at commas and blanks."""
LEFT_TO_SCHEDD = f"{KEY} is left to the schedd"
_INPUT_COMMANDS: Mapping[str, Callable[[str], list[str]]] = {
    **dict.fromkeys(("transfer_input_files", "TransferInputFiles"), re.compile(r"[,\r\n]+").split),
    **dict.fromkeys(("arguments", "arguments2", "args"), split_paths),
}
"""Commands that may name inputs, by all their names, each with what splits its value."""


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The changed text; ``notes`` has sentences for the user, for example on a node without datasets.

    ``lines`` are the new lines before the queue statement. ``first_line`` is a new line at the beginning, so
    that a later setting in the description overrides it. If ``has_new_items``, the queue statement of
    ``text`` has new variables.
    """

    text: bytes
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    first_line: str = ""
    has_new_items: bool = False


def add_datasets(
    text: bytes,
    description: Description,
    dids: Sequence[Did],
    origin: str,
    extra_lines: Sequence[str] = (),
) -> FilterResult:
    """Add ``+RequiredDatasets`` to *text* before its queue statement; for several datasets, also their key.

    If the description already has RequiredDatasets, it keeps its own list, and gets only the key of a list of
    several datasets. If it was not read, the new list comes first, so that the description can override it,
    and has no key. The *extra_lines* come after the new lines, also without datasets.

    Raises:
        SubmitFileError: the description already has RequiredDatasets, with an invalid DID, or has macros that
            refer to each other.
    """
    check_lists(description, origin)
    new = _choose_datasets(description, dids, origin, "file")
    line = f"+{REQUIRED_DATASETS} = {new.literal}" if new.literal else ""
    first_line = line if description.unread else ""
    queue = next(iter(description.queues), None)
    lines = (*([line] if line and not first_line else []), *new.key.lines, *extra_lines)
    end = line_ending(text)
    at = queue.start if queue else len(text)
    first_end = end if lines and text[:at] and not text[:at].endswith(b"\n") else b""
    rest = text[at:]
    if new.key.item_values and queue:
        rest = _queue_with_keys(description, new.key, end) + text[queue.end :]
    first = _encode([first_line] if first_line else [], end)
    new_text = first + text[:at] + first_end + _encode(lines, end) + rest
    return FilterResult(new_text, tuple(new.notes), lines, first_line, bool(new.key.item_values))


class _NewDatasets(NamedTuple):
    """The additions to one description: a list (``literal``, empty for none), a key, and notes on them."""

    literal: str = ""
    key: KeyLines = KeyLines()
    notes: Sequence[str] = ()


def _choose_datasets(description: Description, dids: Sequence[Did], place: str, word: str) -> _NewDatasets:
    """Return the additions to *description* for the datasets *dids*; *word* is ``file`` or ``node``.

    A description that was not read may override the new list, so the list gets no key.
    """
    names = sorted(set(dids))
    # no character of a DID needs an escape
    literal = list_literal(map(string_literal, names), ", ") if names else ""
    if description.unread:
        rest = "no dataset is added"
        if literal:
            rest = f"if it has {REQUIRED_DATASETS}, that list replaces the new one, and {LEFT_TO_SCHEDD}"
        return _NewDatasets(literal, notes=[f"{place} is not read, because {description.unread}: {rest}"])
    if description.dataset_list is not None:
        return _NewDatasets("", *_key_of_own_list(description, place, word))
    if literal:
        return _NewDatasets(literal, key_lines([names]))
    return _NewDatasets(notes=[f"{place}: no dataset is known for this {word}: the {word} stays unchanged"])


def _own_list_note(place: str, key: KeyLines, word: str) -> str:
    rest = "only the key of this list is added" if key.lines else f"the {word} stays unchanged"
    return f"{place} has {REQUIRED_DATASETS} already: {rest}"


def own_lists(description: Description) -> tuple[tuple[str, ...], ...]:
    """Return the names in RequiredDatasets of *description*, for each item; none if a list is not known."""
    if description.differs_per_job(_LIST):
        return ()
    if not description.differs_per_item(_LIST):
        names = read_names(description.expand(_LIST, {}))
        return (names,) * len(description.rows or ({},)) if names else ()
    lists = tuple(read_names(description.expand(_LIST, row)) for row in description.rows or ())
    return lists if all(lists) else ()


def _key_of_own_list(description: Description, place: str, word: str) -> tuple[KeyLines, list[str]]:
    """Return the lines with the key of *description*'s own lists, and notes on the lists and the key.

    *word* is ``file`` or ``node``: VARS of a node cannot change the items of its queue statement. Of several
    queue statements the items of all would have to change, and one on the command line is not in the file.
    """
    lists, key, why = own_lists(description), KeyLines(), ""
    differs = f"{REQUIRED_DATASETS} differs from job to job"
    if not lists:
        is_other = not (description.differs_per_job(_LIST) or description.differs_per_item(_LIST))
        why = f"{REQUIRED_DATASETS} is not a list of strings" if is_other else differs
    else:
        try:
            template = ",".join(read_names(description.dataset_list or ""))
            rows = description.rows or () if len(set(lists)) > 1 else ()
            texts = [description.expand_text(template, row) for row in rows]
            key = key_lines(lists, template if texts == [",".join(names) for names in lists] else "")
        except BadDid as bad:
            why = str(bad)
    if key.item_values and (word == "node" or len(description.queues) != 1):
        key, why = KeyLines(), differs
    elif key.item_values and KEY_VARIABLE in description.item_names:  # this program wrote the keys
        keys = [values[KEY_VARIABLE] for values in key.item_values]
        if [row[KEY_VARIABLE] for row in description.rows or ()] != keys:
            wrong = f"the items of the queue statement have a {KEY_VARIABLE} of other datasets"
            raise SubmitFileError(f"{wrong}: remove this variable and its values")
        key = KeyLines()
    elif key.lines == tuple(f"+{name} = {description.value(f'MY.{name}')}" for name in (KEY, KEY_FOR)):
        key = KeyLines()
    left = [f"{place}: {LEFT_TO_SCHEDD}: {why}"] if why else []
    return key, [_own_list_note(place, key, word), *left]


def _queue_with_keys(description: Description, key: KeyLines, end: bytes) -> bytes:
    """Return the queue statement of *description* with the new variables of each item before its own."""
    count, names, part = description.queue_form
    variables = ", ".join((*key.item_values[0], *names))
    head = " ".join(filter(None, ("queue", count, variables, "from", part, "(")))
    lines = []
    for new, row in zip(key.item_values, description.rows or (), strict=True):
        values = [*new.values(), *(row[name] for name in names)]
        is_plain = not any(letter in value for value in values[:-1] for letter in ", \t")
        lines.append(("," if is_plain else _UNIT_SEPARATOR).join(values))
    return _encode((head, *lines, ")"), end)


def _encode(lines: Sequence[str], end: bytes) -> bytes:
    return b"".join(line.encode("utf-8", "surrogateescape") + end for line in lines)


@cache
def _similar_option(name: str) -> str:
    """Return the option that *name* is or, for an attribute (``my.…``), nearly is; else empty.

    *name* is in lower case. A macro that is nearly an option may be the user's own.
    """
    attribute = name.removeprefix("my.")
    near = difflib.get_close_matches(attribute, _OPTIONS, 1, 1 if attribute == name else _MISSPELT_SIMILARITY)
    return _OPTIONS[near[0]] if near else ""


def check_lists(description: Description, origin: str) -> None:
    """Check RequiredDatasets of *description* for every item of its queue statement, and the user's options.

    This check finds malformed lists before the submission; otherwise a schedd would drop or hold a
    late-materialized job with such a list. It cannot check a list that is not a literal, or that is random.
    Of the lists of the jobs of one item it checks the first.

    Raises:
        SubmitFileError: a list is malformed, and the text has up to ten problems with their items; or an
            option is misspelt or has no ``+``, so that condor_submit makes no such attribute.
    """
    for name in sorted(description.names):
        option = _similar_option(name)
        if option and f"my.{option}".lower() not in description.names:
            raise SubmitFileError(
                f"{origin}: nothing reads {name}: did you mean +{option}? Nothing was submitted"
            )
    if description.dataset_list is None or description.is_unforeseeable(_LIST) or description.rows is None:
        return
    problems: dict[str, None] = {}
    rows: Sequence[Row] = description.rows if description.differs_per_item(_LIST) else ({},)
    for row in rows:
        for problem in _list_problems(description.expand_for_jobs(_LIST, row)[0]):
            shown = ", ".join(
                f"{name} = {value}" for name, value in row.items() if name in description.dataset_list
            )
            problems[problem + (f" (item {shown})" if shown else "")] = None
    if problems:
        listed = shorten_list(list(problems), "; ", limit=10)
        raise SubmitFileError(f"{origin}: {REQUIRED_DATASETS}: {listed}: nothing was submitted")


def _list_problems(literal: str) -> Iterator[str]:
    """Yield one sentence for each error in *literal*; none if it is neither a list nor a string."""
    bare = literal.strip()
    names = read_names(bare)
    if not names and bare.startswith("{") and bare.endswith("}"):
        wrong = f"{bare[:200]} is not a list of strings with commas between them"
        yield wrong if bare[1:-1].strip() else "the list is empty"
    for name in names:
        try:
            parse_did(name, "scope")  # the schedd may add its default scope
        except BadDid as bad:
            yield str(bad)


def input_names(description: Description, variables: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return words that may name an input of all jobs, and the words that only some of the jobs have.

    The words are those in transfer_input_files and arguments, and those in *variables*, the VARS of a node.
    """
    common: dict[str, None] = {}
    others: dict[str, None] = {}
    for command, split in _INPUT_COMMANDS.items():
        rows: Sequence[Row] = (description.rows or ({},)) if description.differs_per_item(command) else ({},)
        texts = [text for row in rows for text in description.expand_for_jobs(command, row)]
        words = [_words(split, text) for text in texts]
        everywhere = set(words[0]).intersection(*words) if words else set()
        has_unknown_items = description.rows is None and description.differs_per_item(command)
        if has_unknown_items or description.is_unforeseeable(command):
            everywhere = {
                word for word in _words(split, description.without_macros(command)) if "$" not in word
            }
        for word in dict.fromkeys(word for each in words for word in each):
            (common if word in everywhere else others)[word] = None
    common |= dict.fromkeys(word for text in variables for word in _words(split_paths, text))
    return list(common), [word for word in others if word not in common]


def _words(split: Callable[[str], list[str]], text: str) -> list[str]:
    words = [*split(text), *re.findall(r"'([^']*)'", text)]  # a name in quotes may have blanks
    return list(dict.fromkeys(word.strip() for word in words if word.strip()))


# --- DAG files


def add_datasets_to_dag(
    text: bytes,
    datasets_by_node: Mapping[str, Sequence[Did]],
    dag: Dag,
    descriptions: Mapping[str, Description],
    origin: str,
    *,
    extra_lines: Mapping[str, Sequence[str]] | None = None,
    copies: Mapping[int, str] | None = None,
) -> FilterResult:
    """Add a VARS line at the end of *text*, a DAG file, for each node that has no datasets yet.

    Args:
        text: the content of the DAG file.
        datasets_by_node: the datasets to add, by node.
        dag: the result of :func:`read_dag` for *text*.
        descriptions: the submit description of each node, by the node's name.
        origin: the file's name, for messages.
        extra_lines: for each node, lines that ``VARS … APPEND`` adds at the end of its submit description.
        copies: the name of the changed copy for each reference to another DAG file, by
            ``DagReference.start``. None if the caller changes no other DAG files; notes then name these
            files.
    """
    end = line_ending(text)
    lines: list[str] = []
    notes: list[str] = []
    for node in dag.nodes:
        new_lines, new_notes = _list_lines(
            node, descriptions[node.name], datasets_by_node.get(node.name, ()), origin
        )
        lines += new_lines
        notes += new_notes
        lines += [_vars_line(node, line, "APPEND ") for line in (extra_lines or {}).get(node.name, ())]
    for reference in dag.references if copies is None else ():
        notes.append(
            f"{origin}: {reference.statement}: the nodes of that file stay unchanged: filter that file too"
        )
    first_end = end if lines and text and not text.endswith(b"\n") else b""
    new_text = _replace_file_names(text, dag, copies or {}) + first_end + _encode(lines, end)
    return FilterResult(new_text, tuple(notes))


def _list_lines(
    node: DagNode, description: Description, dids: Sequence[Did], origin: str
) -> tuple[list[str], Sequence[str]]:
    """Return the VARS lines with the list and the key for *node* ([] if it stays unchanged), and notes."""
    place = f"{origin}: node {node.name}"
    if description.unread and node.has_list_in_vars:
        return [], [_own_list_note(place, KeyLines(), "node")]
    new = _choose_datasets(description, dids, place, "node")
    # VARS with PREPEND comes first, so a submit description that was not read can override it
    modifier = "PREPEND " if description.unread else ""
    lines = [_vars_line(node, f"+{REQUIRED_DATASETS} = {new.literal}", modifier)] if new.literal else []
    return lines + [_vars_line(node, line, "APPEND ") for line in new.key.lines], new.notes


def _vars_line(node: DagNode, line: str, modifier: str) -> str:
    """Return the VARS line for the line NAME = VALUE; with APPEND it comes after the submit description."""
    name, _, value = line.partition(" = ")
    return f"VARS {node.name} {modifier}{name}={string_literal(value)}"


def _replace_file_names(text: bytes, dag: Dag, copies: Mapping[int, str]) -> bytes:
    """Return *text* with the names of *copies* in place of the names of the other DAG files."""
    for reference in sorted(dag.references, key=lambda one: -one.start):
        if reference.start in copies:
            words = (*reference.words, _quote_file_name(copies[reference.start]), *reference.options)
            line = _encode([" ".join(words)], line_ending(text))
            text = text[: reference.start] + line + text[reference.end :]
    return text


def _quote_file_name(name: str) -> str:
    """Return the file name *name* as a DAG file needs it: in double quotes if it has blanks.

    Raises:
        SubmitFileError: *name* has a quote, a backslash or a line break, and DAG files have no escapes.
    """
    if '"' in name or "\\" in name or "\n" in name:
        raise SubmitFileError(
            f"{name}: a DAG file cannot contain this file name: remove its quotes and backslashes"
        )
    blank = any(letter in name for letter in " \t'")
    return f'"{name}"' if blank else name
