"""Submit descriptions: add ``RequiredDatasets``; every other byte stays unchanged.

Bytes in, bytes out: continuation lines, comments, CRLF, ``if``, ``include`` and item lists stay unchanged.
The module reads only as much of the language as it needs to find the place for the attribute and the jobs'
inputs. It reads other files through a function of the caller. For DAG files see dag_file.py.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hydrator.domain.classad import list_literal, string_literal
from hydrator.domain.errors import BadDid, HydratorError
from hydrator.domain.model import Did, parse_did
from hydrator.domain.text import shorten_list

ATTRIBUTE = "RequiredDatasets"
FileReader = Callable[[str], bytes | None]
"""A function that returns the content of a file by its name; None if it cannot be read."""
NameResolver = Callable[[Sequence[str]], Mapping[str, Did]]
"""A function that returns the DIDs of names of files in jobs; a name without a dataset is left out."""

_ASSIGNMENT = re.compile(rb"([+.\w]+)[ \t]*=(?!=)[ \t]*(.*)\Z", re.DOTALL)
_TAGGED_ASSIGNMENT = re.compile(rb"[+.\w]+[ \t]*@=[ \t]*(\w+)[ \t]*\r?\n?\Z")
_QUEUE = re.compile(rb"queue\b(?![ \t]*=)(.*)\Z", re.DOTALL | re.IGNORECASE)
_QUEUE_FORM = re.compile(
    r"(?P<count>[^,\s]+)??[ \t]*(?P<names>[A-Za-z_]\w*(?:[ \t,]+[A-Za-z_]\w*)*?)?"
    r"[ \t]*\b(?P<how>in|from)\b[ \t]*(?P<slice>\[[-\d: ]*\])?[ \t]*(?P<rest>.*)\Z",
    re.DOTALL | re.IGNORECASE,
)
_MACRO = re.compile(r"\$\((\w+)(?::([^()]*))?\)")
_STRING_LITERAL = re.compile(r'"([^"\\]*)"')
_OTHER_STATEMENTS = re.compile(rb"(if|elif|else|endif|include|use|error|warning)\b", re.IGNORECASE)
_OUR_ATTRIBUTE = re.compile(rb"(\+|MY\.)RequiredDatasets\Z", re.IGNORECASE)
_MAX_ITEMS = 1_000_000


class SubmitFileError(HydratorError):
    """A submit description or DAG that cannot be changed; the text has the place and the remedy."""


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The new text; ``notes`` has one sentence for each part that stays unchanged.

    ``insertion`` are the new lines, at byte ``position`` of the original. ``first_line`` is a new line at the
    beginning, which any later setting in the description overrides.
    """

    text: bytes
    notes: tuple[str, ...] = ()
    insertion: bytes = b""
    position: int = 0
    first_line: bytes = b""


@dataclass(frozen=True, slots=True)
class _Statement:
    """One logical line: its first byte and its end in the file, and its text without continuations."""

    start: int
    end: int
    text: bytes


@dataclass(frozen=True, slots=True)
class _QueueStatement:
    """A queue statement: its position (that of the outermost ``if`` around it), and its arguments."""

    position: int
    arguments: str


@dataclass(slots=True)
class _Description:
    """The parts of a submit description that this module reads.

    ``dataset_lists`` are its lists of datasets. ``uncertainties`` are places with a list that only
    condor_submit can find: a condition, or an include that cannot be read here. ``open_if_position`` is the
    byte of an ``if`` without an ``endif``.
    """

    queues: list[_QueueStatement] = field(default_factory=list)
    macros: dict[str, str] = field(default_factory=dict)
    dataset_lists: list[str] = field(default_factory=list)
    includes: list[str] = field(default_factory=list)
    uncertainties: list[str] = field(default_factory=list)
    open_if_position: int | None = None


# --- submit descriptions --------------------------------------------------------------------------------


def add_datasets(
    text: bytes, dids: Sequence[Did], origin: str, read: FileReader, extra_lines: Sequence[str] = ()
) -> FilterResult:
    """Add ``+RequiredDatasets`` to *text*, a submit description, before its first queue statement.

    The *extra_lines* follow it, also if there are no datasets to add.

    If the queue statement is in an ``if``, the line comes before the ``if``. Without a queue statement
    (``-queue`` on a command line, a node of a DAG) it comes last. A description that has the attribute,
    itself or in an included file, keeps its own list, after a check for every item. If only condor_submit can
    find the attribute, in a condition or an include, the line comes first, so that the description overrides
    it.

    Raises:
        SubmitFileError: it has the attribute, with an invalid DID.
    """
    description = read_description(text)
    notes, line = [], ""
    has_list, uncertainty = detect_datasets(description, read)
    if has_list:
        check_items(text, origin, read)
        notes.append(f"{origin} has {ATTRIBUTE} already: it is left as it is")
    elif not dids:
        notes.append(f"{origin}: no dataset is known for it: it is left as it is")
    else:
        line = f"+{ATTRIBUTE} = {dids_literal(dids)}"
    if line and uncertainty:
        notes.append(
            f"{origin} may set {ATTRIBUTE} itself ({uncertainty}): where it does, its own list counts"
        )
    end = line_ending(text)
    first_line = line.encode() + end if line and uncertainty else b""
    new_lines = [*([line] if line and not uncertainty else []), *extra_lines]
    last = len(text) if description.open_if_position is None else description.open_if_position
    at = description.queues[0].position if description.queues else last
    insertion = b"".join(new_line.encode() + end for new_line in new_lines)
    if insertion and at and not text[:at].endswith(b"\n"):
        insertion = end + insertion
    new_text = first_line + text[:at] + insertion + text[at:]
    return FilterResult(new_text, tuple(notes), insertion, at if insertion else 0, first_line)


def is_description(text: bytes) -> bool:
    """Return whether *text* begins like a submit description; true for an empty text."""
    for statement in statements(text):
        words = statement.text
        if words:
            takes_value = _ASSIGNMENT.match(words) or _TAGGED_ASSIGNMENT.match(words)
            return bool(takes_value or _QUEUE.match(words) or _OTHER_STATEMENTS.match(words))
    return True


def detect_datasets(description: "_Description", read: FileReader) -> tuple[bool, str]:
    """Return whether the description or a file that it includes has RequiredDatasets.

    The text is the first place where only condor_submit can find that out; empty if there is none.
    """
    descriptions = [description, *_follow_includes(description, read)]
    uncertainties = (place for one in descriptions for place in one.uncertainties)
    return any(one.dataset_lists for one in descriptions), next(uncertainties, "")


def _follow_includes(
    description: "_Description", read: FileReader, depth: int = 10
) -> Iterator["_Description"]:
    """Yield the descriptions that *description* includes, directly or through others."""
    for name in description.includes if depth else ():
        text = read(name)
        if text is None:
            yield _Description(uncertainties=[f"include : {name}"])
        else:
            one = read_description(text, description.macros)
            yield one
            yield from _follow_includes(one, read, depth - 1)


def check_items(text: bytes, origin: str, read: FileReader, default_scope: str | None = None) -> None:
    """Check RequiredDatasets of *text* for every item of its queue statements.

    A schedd drops or holds a late-materialized job with a malformed list. This check reports all such items
    before the submission. The schedd itself checks lists that are not literals, items of scripts and of
    ``matching``, and names without a scope if no default scope is known.

    Raises:
        SubmitFileError: with the items that give a bad list, up to ten.
    """
    description = read_description(text)
    problems: dict[str, None] = {}
    for literal in description.dataset_lists:
        for queue in description.queues or [_QueueStatement(0, "")]:
            for row in _item_rows(queue.arguments, read, origin):
                for problem in _list_problems(_expand(literal, {**description.macros, **row}), default_scope):
                    shown = ", ".join(f"{name} = {value}" for name, value in row.items() if name in literal)
                    problems[problem + (f" (item {shown})" if shown else "")] = None
    if problems:
        listed = shorten_list(list(problems), "; ", limit=10)
        raise SubmitFileError(f"{origin}: {ATTRIBUTE}: {listed}: nothing was submitted")


def input_names(text: bytes, variables: Mapping[str, str] | None = None, *, origin: str = "") -> list[str]:
    """Return the names in transfer_input_files, arguments and *variables*, with macros expanded.

    *variables* are a DAG node's VARS.

    Raises:
        SubmitFileError: the names differ between jobs of one queue statement.
    """
    description = read_description(text)
    macros = {**description.macros, **(variables or {})}
    per_item = {name.lower() for queue in description.queues for name in _item_names(queue.arguments)}
    names: list[str] = []
    for key, separators in (("transfer_input_files", r"[,\r\n]+"), ("arguments", r"[\s\"',=]+")):
        value = macros.get(key, "")
        _reject_item_names(value, macros, per_item, key, origin)
        names += re.split(separators, _expand(value, macros))
    names += [word for value in (variables or {}).values() for word in re.split(r"[\s\"',=]+", value)]
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


def _reject_item_names(value: str, macros: Mapping[str, str], items: set[str], key: str, origin: str) -> None:
    fixed = {name: text for name, text in macros.items() if name not in items}
    varied = sorted({m[1] for m in _MACRO.finditer(_expand(value, fixed)) if m[1].lower() in items})
    if varied:
        raise SubmitFileError(
            f"{origin}: {key} differs from job to job by $({varied[0]}): write"
            f' +{ATTRIBUTE} = {{"scope:$({varied[0]})"}} into it, or name the datasets of all with --datasets'
        )


def dids_literal(dids: Sequence[Did]) -> str:
    """*dids* as a ClassAd list: sorted, without doubles; their characters need no escape anywhere."""
    return list_literal(map(string_literal, sorted(set(dids))), ", ")


def line_ending(text: bytes) -> bytes:
    """Return the line ending of the first line of *text*."""
    first = text.find(b"\n")
    return b"\r\n" if first > 0 and text[first - 1 : first] == b"\r" else b"\n"


def statements(text: bytes) -> Iterator[_Statement]:
    """Yield the logical lines of a submit description; a backslash does not continue a comment."""
    at = 0
    while at < len(text):
        start = at
        parts: list[bytes] = []
        while at < len(text):
            line = text[at : (text.find(b"\n", at) + 1) or len(text)]
            at += len(line)
            bare = line.strip()
            if bare[:1] == b"#":
                if parts:
                    continue  # a comment inside a continued line
                break
            parts.append(bare[:-1] if bare.endswith(b"\\") else bare)
            if not bare.endswith(b"\\"):
                break
        yield _Statement(start, at, b" ".join(parts).strip())


def read_description(text: bytes, macros: Mapping[str, str] | None = None) -> _Description:
    """Read the submit description *text*; *macros* are its initial values, names in lower case."""
    description = _Description(macros=dict(macros or {}))
    conditions = _IfBlocks()
    outermost, skip_to = 0, 0
    for statement, is_tagged in _skip_tagged_values(text):
        words = statement.text
        if statement.start < skip_to:
            continue
        if words[:3].strip().lower() == b"if" and not conditions.depth:
            outermost = statement.start
        if conditions.follow(as_text(words), description.macros):
            continue
        is_active = conditions.is_active
        if queue := _QUEUE.match(words):
            rest, skip_to = _read_queue_arguments(text, statement, queue[1])
            if is_active is not False:
                position = outermost if conditions.depth else statement.start
                description.queues.append(_QueueStatement(position, rest))
        elif is_active is not False:
            _read_setting(words, description, is_certain=is_active is True, is_tagged=is_tagged)
    description.open_if_position = outermost if conditions.depth else None
    return description


class _IfBlocks:
    """The ``if`` blocks around a statement, with those conditions that need no condor_submit."""

    def __init__(self) -> None:
        self._open_blocks: list[
            tuple[bool | None, bool | None]
        ] = []  # (is active, an earlier branch was active)

    @property
    def depth(self) -> int:
        return len(self._open_blocks)

    @property
    def is_active(self) -> bool | None:
        """True, False, or None if only condor_submit can find out."""
        states = [now for now, _ in self._open_blocks]
        return False if False in states else None if None in states else True

    def follow(self, statement: str, macros: Mapping[str, str]) -> bool:
        """Apply *statement*; return False if it is not if, elif, else or endif."""
        word, condition = (*statement.split(None, 1), "", "")[:2]
        match word.lower():
            case "if":
                self._open_blocks.append((_parse_literal_condition(_expand(condition, macros)), False))
            case "elif" | "else" if self._open_blocks:
                now, before = self._open_blocks.pop()
                done = True if True in (now, before) else None if None in (now, before) else False
                branch = (
                    True if word.lower() == "else" else _parse_literal_condition(_expand(condition, macros))
                )
                self._open_blocks.append(
                    (False if done or branch is False else None if done is None else branch, done)
                )
            case "endif" if self._open_blocks:
                self._open_blocks.pop()
            case "elif" | "else" | "endif":
                pass
            case _:
                return False
        return True


def _parse_literal_condition(condition: str) -> bool | None:
    """Parse a literal condition: true, false, yes, no or a number; None for any other."""
    word = condition.strip().lower()
    if word in ("true", "yes", "t", "false", "no", "f"):
        return word[0] in "ty"
    return float(word) != 0 if re.fullmatch(r"-?\d+(\.\d*)?", word) else None


def _skip_tagged_values(text: bytes) -> Iterator[tuple[_Statement, bool]]:
    """Yield the statements of *text* without the lines between ``name @=tag`` and ``@tag``.

    The flag is true for the statement ``name @=tag`` itself.
    """
    tag = b""
    for statement in statements(text):
        if tag:
            tag = b"" if statement.text.lower() == b"@" + tag else tag
        else:
            tagged = _TAGGED_ASSIGNMENT.match(statement.text)
            tag = tagged[1].lower() if tagged else b""
            yield statement, bool(tagged)


def _read_setting(words: bytes, description: _Description, *, is_certain: bool, is_tagged: bool) -> None:
    """Add one setting to *description*.

    *is_certain*: all conditions around it are known. *is_tagged*: its value has several lines.
    """
    if words[:7].lower() == b"include":
        name = _include_name(words, description.macros)
        shown = as_text(words)[:80]
        if name and is_certain:
            description.includes.append(name)
        else:
            description.uncertainties.append(shown)
        return
    value = _ASSIGNMENT.match(words)
    attribute = words.partition(b"@")[0].strip() if is_tagged else value[1] if value else b""
    if _OUR_ATTRIBUTE.match(attribute):
        if is_certain:
            description.dataset_lists.append(as_text(value[2]) if value and not is_tagged else "")
        else:
            description.uncertainties.append("a condition")
    elif value and not is_tagged:
        if is_certain:
            description.macros[as_text(value[1]).lower()] = as_text(value[2])
        else:
            description.macros.setdefault(as_text(value[1]).lower(), as_text(value[2]))


def _read_queue_arguments(text: bytes, statement: _Statement, words: bytes) -> tuple[str, int]:
    """Return the arguments of ``queue``, with its item lines up to ``)``, and their end in *text*."""
    if not re.search(rb"\([^)]*\Z", words):
        return as_text(words).strip(), statement.end
    at, lines = statement.end, [words]
    while at < len(text):
        line = text[at : (text.find(b"\n", at) + 1) or len(text)]
        at += len(line)
        lines.append(line)
        if line.lstrip().startswith(b")"):
            break
    return "\n".join(as_text(line).strip() for line in lines), at


def _include_name(words: bytes, macros: Mapping[str, str]) -> str:
    """Return the file of an include statement; empty for a command or an unknown macro."""
    options, _, name = as_text(words).partition(":")
    name = _expand(name.strip(), macros)
    command = "command" in options.lower() or name.endswith("|")
    return "" if command or "$" in name else name


def as_text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _expand(text: str, macros: Mapping[str, str]) -> str:
    """Return *text* with each ``$(name)`` expanded that *macros* (names in lower case) has."""
    for _ in range(20):
        more = _MACRO.sub(lambda m: macros.get(m[1].lower(), m[2] if m[2] is not None else m[0]), text)
        if more == text:
            break
        text = more
    return text


def _list_problems(literal: str, default_scope: str | None) -> list[str]:
    """Return one sentence for each error in the list *literal*; none if it is not a literal."""
    bare = literal.strip()
    if not (bare.startswith("{") and bare.endswith("}")) or _MACRO.search(bare):
        return []
    items = _STRING_LITERAL.findall(bare)
    if _STRING_LITERAL.sub("", bare[1:-1]).strip(" \t,"):
        return [f"{bare[:200]} is not a list of strings in double quotes"]
    if not items:
        return ["the list is empty"]
    problems = []
    for item in items:
        try:
            # the schedd may add a scope
            parse_did(item, default_scope or "scope")
        except BadDid as bad:
            problems.append(str(bad))
    return problems


# --- the items of a queue statement ----------------------------------------------------------------------


def _item_names(arguments: str) -> list[str]:
    """Return the variables that differ between jobs."""
    form = _QUEUE_FORM.match(arguments)
    if not form:
        return ["item"] if re.search(r"\bmatching\b", arguments, re.IGNORECASE) else []
    return re.split(r"[ \t,]+", form["names"]) if form["names"] else ["Item"]


def _item_rows(arguments: str, read: FileReader, origin: str) -> Iterator[dict[str, str]]:
    """Yield the variables of each job of a queue statement, names in lower case."""
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
            raise SubmitFileError(f"{origin}: over {_MAX_ITEMS} items: submit them in parts")
        yield dict(zip(names, _split_item(line, len(names)), strict=True))


def _item_lines(item_source: str, keyword: str, read: FileReader) -> list[str] | None:
    """Return the items, one for each line; None if a script makes them or the file cannot be read."""
    if item_source.startswith("("):
        inside = item_source[1:].rpartition(")")[0] if ")" in item_source else item_source[1:]
        lines = [line.strip() for line in inside.splitlines()]
        if keyword == "in":
            lines = [word for line in lines for word in re.split(r"[,\s]+", line)]
        return [line for line in lines if line and not line.startswith("#")]
    if keyword == "in":
        return [word for word in re.split(r"[,\s]+", item_source) if word]
    if item_source.endswith("|") or _MACRO.search(item_source):
        return None
    content = read(item_source)
    lines = as_text(content).splitlines() if content is not None else []
    items = [line.strip() for line in lines]
    return [line for line in items if line and not line.startswith("#")] if content is not None else None


def _split_item(line: str, count: int) -> list[str]:
    """Split *line* at commas or blanks into *count* values as condor_submit does; the last has the rest."""
    if "\x1f" in line:
        values = [value.strip() for value in line.split("\x1f")]
    else:
        values = re.split(r"[ \t]*,[ \t]*|[ \t]+", line, maxsplit=count - 1) if count > 1 else [line]
    return (values + [""] * count)[:count]
