"""Datasets of submit descriptions: add ``RequiredDatasets``; every other byte stays unchanged.

Bytes in, bytes out: continuation lines, comments, CRLF, ``if``, ``include`` and item lists stay unchanged.
The caller passes the function that reads included files. For DAG files see dag_datasets.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hydrator.domain.ads.classad import list_literal, string_literal
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, parse_did
from hydrator.domain.text import shorten_list

from .description import (
    ATTRIBUTE,
    MACRO,
    FileReader,
    QueueStatement,
    SubmitDescription,
    SubmitFileError,
    as_text,
    expand,
    line_ending,
    read_description,
)
from .keys import CLAUSE_LINES, KEY_VARIABLE, KeyLines, lines_for_dids, lines_for_lists

_QUEUE_FORM = re.compile(
    r"(?P<count>[^,\s]+)??[ \t]*(?P<names>[A-Za-z_]\w*(?:[ \t,]+[A-Za-z_]\w*)*?)?"
    r"[ \t]*\b(?P<how>in|from)\b[ \t]*(?P<slice>\[[-\d: ]*\])?[ \t]*(?P<rest>.*)\Z",
    re.DOTALL | re.IGNORECASE,
)
_STRING_LITERAL = re.compile(r'"([^"\\]*)"')
_MAX_ITEMS = 1_000_000
_UNIT_SEPARATOR = "\x1f"
"""If an item has this character, condor_submit splits the item at it instead of at commas and blanks."""


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The changed file; ``notes`` has sentences for the user, for example on a node without datasets.

    ``insertion`` has the new lines, which come before byte ``position`` of the original file. ``first_line``
    is a new line at the beginning of the file, so that a later setting in the description overrides it.
    If ``has_new_items``, the queue statement of ``text`` has more variables than that of the original file.
    ``item_lists`` has the datasets that the description itself names, for each item of its queue statement.
    ``mode`` is the DataLocality of the description, in lower case; None for the pool's default.
    """

    text: bytes
    notes: tuple[str, ...] = ()
    insertion: bytes = b""
    position: int = 0
    first_line: bytes = b""
    has_new_items: bool = False
    item_lists: tuple[tuple[str, ...], ...] = ()
    mode: str | None = None


def add_datasets(
    text: bytes,
    dids: Sequence[Did],
    origin: str,
    read: FileReader,
    extra_lines: Sequence[str] = (),
    *,
    is_complete: bool = True,
) -> FilterResult:
    """Add ``+RequiredDatasets`` to *text* before its first queue statement; for several, also their key.

    The *extra_lines* come after the new lines; the function adds these lines even without datasets.

    If the queue statement is in an ``if``, the new lines come before the ``if``. Without a queue statement
    (``-queue`` on a command line, a node of a DAG) the new lines come last. If the description or an included
    file already has RequiredDatasets, the description keeps its own list, and gets only the keys of lists of
    several datasets. If only condor_submit can find out whether a condition or an include sets
    RequiredDatasets, the new list comes first, so that the description can override it, and has no key.

    If not *is_complete*, condor_submit reads more settings than *text*, which may change a list in it.

    Raises:
        SubmitFileError: the description already has RequiredDatasets, with an invalid DID.
    """
    description = read_description(text)
    has_list, uncertainty = detect_datasets(description, read)
    if has_list:
        check_items(text, origin, read)
        key = _key_of_own_list(text, description, origin, read) if is_complete else KeyLines()
        rest = "only the key of this list is added" if key.lines else "the file stays unchanged"
        line, note = "", f"{origin} has {ATTRIBUTE} already: {rest}"
    else:
        line, key, note = _new_list(dids, description, uncertainty, origin)
    first_line = line if uncertainty else ""
    clause = CLAUSE_LINES if key.lines else ()
    new_lines = [*([line] if line and not uncertainty else []), *key.lines, *extra_lines, *clause]
    notes = [*([note] if note else []), *key.notes]
    result = _insert_lines(text, description, first_line, new_lines, notes)
    result = replace(result, item_lists=key.item_lists, mode=_mode(description))
    return _add_item_keys(result, description.queues[0], key, text, read) if key.item_keys else result


def _new_list(
    dids: Sequence[Did], description: SubmitDescription, uncertainty: str, origin: str
) -> tuple[str, KeyLines, str]:
    """Return the line with RequiredDatasets (empty without *dids*), the lines with its key, and a note."""
    if not dids:
        return "", KeyLines(), f"{origin}: no dataset is known for this file: the file stays unchanged"
    line = f"+{ATTRIBUTE} = {dids_literal(dids)}"
    if not uncertainty:
        return line, lines_for_dids(dids, description.macros, origin), ""
    note = f"{origin} may set {ATTRIBUTE} itself ({uncertainty}): if it does, that list replaces the new list"
    return line, KeyLines(), note


def _mode(description: SubmitDescription) -> str | None:
    texts = (description.macros.get(f"{prefix}datalocality") for prefix in ("+", "my."))
    literal = next(filter(None, texts), "")
    return literal.strip().strip('"').lower() or None


def _insert_lines(
    text: bytes,
    description: SubmitDescription,
    first_line: str,
    new_lines: Sequence[str],
    notes: Sequence[str],
) -> FilterResult:
    """Return *text* with *first_line* at its beginning, and *new_lines* before its first queue statement."""
    end = line_ending(text)
    first = first_line.encode() + end if first_line else b""
    last = len(text) if description.open_if_position is None else description.open_if_position
    at = description.queues[0].position if description.queues else last
    insertion = b"".join(new_line.encode() + end for new_line in new_lines)
    if insertion and at and not text[:at].endswith(b"\n"):
        insertion = end + insertion
    new_text = first + text[:at] + insertion + text[at:]
    return FilterResult(new_text, tuple(notes), insertion, at if insertion else 0, first)


def _key_of_own_list(text: bytes, description: SubmitDescription, origin: str, read: FileReader) -> KeyLines:
    """Return the key lines for the list in *description*; none if the list's final value is not certain."""
    descriptions = [description, *_follow_includes(description, read)]
    literals = [literal for one in descriptions for literal in one.dataset_lists]
    is_certain = not any(one.uncertainties for one in descriptions)
    if len(literals) != 1 or not is_certain or len(description.queues) > 1:
        return KeyLines()
    if not description.queues:
        return lines_for_lists(literals[0], [{}], description.certain_macros, origin)
    queue = description.queues[0]
    before = read_description(text[: queue.position])  # settings after the statement have no effect
    is_included = not description.dataset_lists  # the macros of an included file are not known here
    macros = {} if is_included else before.certain_macros
    rows = list(_item_rows(queue.arguments, read, origin))
    key = lines_for_lists(literals[0], rows, macros, origin)
    has_known_items = queue.end and not _has_blank_line(queue.arguments, read)
    return key if has_known_items or not key.item_keys else KeyLines()


def _has_blank_line(arguments: str, read: FileReader) -> bool:
    """Return whether the items of a queue statement have a blank line: condor_submit makes a job of it."""
    form = _QUEUE_FORM.match(arguments)
    source = form["rest"].strip() if form else ""
    lines = (source[1:] if source.startswith("(") else as_text(read(source) or b"")).splitlines()
    is_inline = source.startswith("(")
    return any(not line.strip() for line in (lines[1:] if is_inline else lines))


def _add_item_keys(
    result: FilterResult, queue: QueueStatement, key: KeyLines, text: bytes, read: FileReader
) -> FilterResult:
    """Return *result* with the key of each item as the first variable of the queue statement."""
    form = _QUEUE_FORM.match(queue.arguments)
    items = _item_lines(form["rest"].strip(), form["how"].lower(), read) if form else None
    if form is None or items is None:
        raise AssertionError("the keys were made from the items of this statement")
    names = ", ".join([KEY_VARIABLE, *_item_names(queue.arguments)])
    head = " ".join(filter(None, ("queue", form["count"], names, "from", form["slice"], "(")))
    lines = [
        one + (_UNIT_SEPARATOR if _UNIT_SEPARATOR in item else ",") + item
        for one, item in zip(key.item_keys, items, strict=True)
    ]
    end = line_ending(text)
    statement = b"".join(line.encode("utf-8", "surrogateescape") + end for line in (head, *lines, ")"))
    return replace(
        result,
        text=text[: queue.position] + result.insertion + statement + text[queue.end :],
        has_new_items=True,
    )


def detect_datasets(description: SubmitDescription, read: FileReader) -> tuple[bool, str]:
    """Return whether *description* or a file that it includes has RequiredDatasets, and an uncertain place.

    The uncertain place is the first statement that may set RequiredDatasets, but that only condor_submit can
    evaluate; it is "" without such a statement.
    """
    descriptions = [description, *_follow_includes(description, read)]
    uncertainties = (place for one in descriptions for place in one.uncertainties)
    return any(one.dataset_lists for one in descriptions), next(uncertainties, "")


def _follow_includes(
    description: SubmitDescription, read: FileReader, depth: int = 10
) -> Iterator[SubmitDescription]:
    """Yield the descriptions that *description* includes, directly or through included files."""
    for name in description.includes if depth else ():
        text = read(name)
        if text is None:
            yield SubmitDescription(uncertainties=[f"include : {name}"])
        else:
            one = read_description(text, description.macros)
            yield one
            yield from _follow_includes(one, read, depth - 1)


def check_items(text: bytes, origin: str, read: FileReader, default_scope: str | None = None) -> None:
    """Check RequiredDatasets in the submit description *text*, for every item of its queue statements.

    This check finds malformed lists before the submission; otherwise a schedd would drop or hold a
    late-materialized job with such a list. It cannot check a list that is not a literal, or items that a
    script or ``matching`` makes. Without *default_scope* it cannot check the scope of a name.

    Raises:
        SubmitFileError: a list is malformed; the text has up to ten problems with their items.
    """
    description = read_description(text)
    problems: dict[str, None] = {}
    for literal in description.dataset_lists:
        for queue in description.queues or [QueueStatement(0, "")]:
            for row in _item_rows(queue.arguments, read, origin):
                for problem in _list_problems(expand(literal, {**description.macros, **row}), default_scope):
                    shown = ", ".join(f"{name} = {value}" for name, value in row.items() if name in literal)
                    problems[problem + (f" (item {shown})" if shown else "")] = None
    if problems:
        listed = shorten_list(list(problems), "; ", limit=10)
        raise SubmitFileError(f"{origin}: {ATTRIBUTE}: {listed}: nothing was submitted")


def input_names(text: bytes, variables: Mapping[str, str] | None = None, *, origin: str = "") -> list[str]:
    """Return the words in transfer_input_files, arguments and *variables*, with macros expanded.

    A word may be the name of an input. *variables* are the VARS of a DAG node.

    Raises:
        SubmitFileError: the words differ between the jobs of one queue statement.
    """
    description = read_description(text)
    macros = {**description.macros, **(variables or {})}
    per_item = {name.lower() for queue in description.queues for name in _item_names(queue.arguments)}
    names: list[str] = []
    for key, separators in (("transfer_input_files", r"[,\r\n]+"), ("arguments", r"[\s\"',=]+")):
        value = macros.get(key, "")
        _reject_item_names(value, macros, per_item, key, origin)
        names += re.split(separators, expand(value, macros))
    names += [word for value in (variables or {}).values() for word in re.split(r"[\s\"',=]+", value)]
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


def _reject_item_names(value: str, macros: Mapping[str, str], items: set[str], key: str, origin: str) -> None:
    common_macros = {name: text for name, text in macros.items() if name not in items}
    item_variables = sorted(
        {m[1] for m in MACRO.finditer(expand(value, common_macros)) if m[1].lower() in items}
    )
    for name in item_variables[:1]:
        raise SubmitFileError(
            f"{origin}: {key} differs from job to job by $({name}): write"
            f' +{ATTRIBUTE} = {{"scope:$({name})"}} into the file, or name all datasets with --datasets'
        )


def dids_literal(dids: Sequence[Did]) -> str:
    """Return *dids* as a sorted ClassAd list without duplicates; no character of a DID needs an escape."""
    return list_literal(map(string_literal, sorted(set(dids))), ", ")


def _list_problems(literal: str, default_scope: str | None) -> list[str]:
    """Return one sentence for each error in the list *literal*; no sentence if *literal* is not a list."""
    bare = literal.strip()
    if not (bare.startswith("{") and bare.endswith("}")) or MACRO.search(bare):
        return []
    items = _STRING_LITERAL.findall(bare)
    if _STRING_LITERAL.sub("", bare[1:-1]).strip(" \t,"):
        return [f"{bare[:200]} is not a list of strings in double quotes"]
    if not items:
        return ["the list is empty"]
    problems = []
    for item in items:
        try:
            # if no default scope is given, the schedd may still add its default scope
            parse_did(item, default_scope or "scope")
        except BadDid as bad:
            problems.append(str(bad))
    return problems


def _item_names(arguments: str) -> list[str]:
    """Return the names of the variables that a queue statement sets for each job."""
    form = _QUEUE_FORM.match(arguments)
    if not form:
        return ["item"] if re.search(r"\bmatching\b", arguments, re.IGNORECASE) else []
    return re.split(r"[ \t,]+", form["names"]) if form["names"] else ["Item"]


def _item_rows(arguments: str, read: FileReader, origin: str) -> Iterator[dict[str, str]]:
    """Yield the variables of each item of a queue statement; the variables' names are in lower case."""
    form = _QUEUE_FORM.match(arguments)
    if not form:
        yield {}
        return
    names = [name.lower() for name in _item_names(arguments)]
    rest = form["rest"].strip()
    lines = _item_lines(rest, form["how"].lower(), read)
    if lines is None:
        return
    for number, line in enumerate(lines):
        if number >= _MAX_ITEMS:
            raise SubmitFileError(f"{origin}: queue has over {_MAX_ITEMS} items: submit them in parts")
        yield dict(zip(names, _split_item(line, len(names)), strict=True))


def _item_lines(item_source: str, keyword: str, read: FileReader) -> list[str] | None:
    """Return the items of a queue statement; None if a script makes the items or a file cannot be read."""
    if item_source.startswith("("):
        inside = item_source[1:].rpartition(")")[0] if ")" in item_source else item_source[1:]
        lines = [line.strip() for line in inside.splitlines()]
        if keyword == "in":
            lines = [word for line in lines for word in re.split(r"[,\s]+", line)]
        return [line for line in lines if line and not line.startswith("#")]
    if keyword == "in":
        return [word for word in re.split(r"[,\s]+", item_source) if word]
    if item_source.endswith("|") or MACRO.search(item_source):
        return None
    content = read(item_source)
    lines = as_text(content).splitlines() if content is not None else []
    items = [line.strip() for line in lines]
    return [line for line in items if line and not line.startswith("#")] if content is not None else None


def _split_item(line: str, count: int) -> list[str]:
    """Split *line* at commas or blanks into *count* values like condor_submit; the last has the rest."""
    if _UNIT_SEPARATOR in line:
        values = [value.strip() for value in line.split(_UNIT_SEPARATOR)]
    else:
        values = re.split(r"[ \t]*,[ \t]*|[ \t]+", line, maxsplit=count - 1) if count > 1 else [line]
    return (values + [""] * count)[:count]
