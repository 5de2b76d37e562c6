"""Submit descriptions with ``RequiredDatasets`` added, every other byte as it was.

Bytes in, bytes out: continuation lines, comments, CRLF, ``if``, ``include``
and item lists stay as they stand. Only as much of the languages is read as
is needed to find the place where the attribute belongs, and what jobs read.
DAG files are dagfile.py's.
Files are looked at through a function that the caller gives.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .errors import BadDid, HydratorError
from .model import Did, parse_did

ATTRIBUTE = "RequiredDatasets"
Read = Callable[[str], bytes | None]
"""The content of a file that another one names, by its name; None where there is none to be had."""
Resolve = Callable[[Sequence[str]], Mapping[str, Did]]
"""Names of files, as jobs name them, to DIDs; a name that is no dataset is left out."""

_TAKES_VALUE = re.compile(rb"([+.\w]+)[ \t]*=(?!=)[ \t]*(.*)\Z", re.DOTALL)
_TAGGED = re.compile(rb"[+.\w]+[ \t]*@=[ \t]*(\w+)[ \t]*\r?\n?\Z")
_QUEUE = re.compile(rb"queue\b(?![ \t]*=)(.*)\Z", re.DOTALL | re.IGNORECASE)
_QUEUE_FORM = re.compile(
    r"(?P<count>[^,\s]+)??[ \t]*(?P<names>[A-Za-z_]\w*(?:[ \t,]+[A-Za-z_]\w*)*?)?"
    r"[ \t]*\b(?P<how>in|from)\b[ \t]*(?P<slice>\[[-\d: ]*\])?[ \t]*(?P<rest>.*)\Z",
    re.DOTALL | re.IGNORECASE,
)
_MACRO = re.compile(r"\$\((\w+)(?::([^()]*))?\)")
_STRING = re.compile(r'"([^"\\]*)"')
_OTHER_STATEMENTS = re.compile(rb"(if|elif|else|endif|include|use|error|warning)\b", re.IGNORECASE)
_OURS = re.compile(rb"(\+|MY\.)RequiredDatasets\Z", re.IGNORECASE)
_MOST_ITEMS = 1_000_000


class SubmitFileError(HydratorError):
    """A submit description or DAG that nothing can be added to; its text says where and what to do."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """The text with what was added; ``notes`` say what was left alone, a sentence each.

    ``added`` are the lines that were put in, at byte ``at`` of the original;
    ``first`` a line at its beginning, which whatever the description says later overrides.
    """

    text: bytes
    notes: tuple[str, ...] = ()
    added: bytes = b""
    at: int = 0
    first: bytes = b""


@dataclass(frozen=True, slots=True)
class _Statement:
    """One logical line: where it begins and ends in the text, and its text without continuations."""

    start: int
    end: int
    text: bytes


@dataclass(frozen=True, slots=True)
class _Queue:
    """A queue statement: its place (that of the outermost ``if`` around it), and what follows the word."""

    place: int
    words: str


@dataclass(slots=True)
class _Description:
    """A submit description, as far as it is read.

    ``required`` are its lists of datasets. ``unsure`` says where the
    description may have one that only condor_submit can find: in a
    condition, in an include whose text is not known here. ``open_at`` is the
    byte of an ``if`` that is never closed.
    """

    queues: list[_Queue] = field(default_factory=list)
    macros: dict[str, str] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    included: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    open_at: int | None = None


# --- submit descriptions --------------------------------------------------------------------------------


def with_datasets(
    text: bytes, dids: Sequence[Did], origin: str, read: Read, more: Sequence[str] = ()
) -> Filtered:
    """Add ``+RequiredDatasets`` to *text*, a submit description, before its first queue statement.

    *more* lines come after it, whether or not there are datasets to add.

    Where the queue statement is in an ``if``, the line comes before the
    ``if``; without one (``-queue`` on a command line, a DAG's node) it comes
    last. A description that has the attribute, itself or in a file it
    includes, is left alone, after a look at every item it would be made for.
    Where only condor_submit can know, in a condition or an include, the line
    comes first: the description then overrides it.

    Raises:
        SubmitFileError: it has the attribute, with a DID that is none.
    """
    found = read_description(text)
    notes, line = [], ""
    there, unsure = its_own(found, read)
    if there:
        check_items(text, origin, read)
        notes.append(f"{origin} has {ATTRIBUTE} already: it is left as it is")
    elif not dids:
        notes.append(f"{origin}: no dataset is known for it: it is left as it is")
    else:
        line = f"+{ATTRIBUTE} = {list_literal(dids)}"
    if line and unsure:
        notes.append(f"{origin} may set {ATTRIBUTE} itself ({unsure}): where it does, its own list counts")
    end = newline(text)
    first = line.encode() + end if line and unsure else b""
    added = [*([line] if line and not unsure else []), *more]
    end_of_file = len(text) if found.open_at is None else found.open_at
    at = found.queues[0].place if found.queues else end_of_file
    put = b"".join(one.encode() + end for one in added)
    before = end if put and at and not text[:at].endswith(b"\n") else b""
    whole = first + text[:at] + before + put + text[at:]
    return Filtered(whole, tuple(notes), before + put, at if put else 0, first)


def is_description(text: bytes) -> bool:
    """Return whether the first statement of *text* is one of a submit description; an empty one is one."""
    for statement in statements(text):
        words = statement.text
        if words:
            takes_value = _TAKES_VALUE.match(words) or _TAGGED.match(words)
            return bool(takes_value or _QUEUE.match(words) or _OTHER_STATEMENTS.match(words))
    return True


def its_own(found: "_Description", read: Read) -> tuple[bool, str]:
    """Return whether the description, or a file that it includes, sets RequiredDatasets in any case.

    The second value is the first statement that may set it but cannot be read here, such as
    ``include command : x``. It is empty if there is none.
    """
    each = [found, *_included_texts(found, read)]
    unsure = (where for one in each for where in one.unsure)
    return any(one.required for one in each), next(unsure, "")


def _included_texts(found: "_Description", read: Read, depth: int = 10) -> Iterator["_Description"]:
    """Return the descriptions that *found* includes, and those that they include."""
    for name in found.included if depth else ():
        text = read(name)
        if text is None:
            yield _Description(unsure=[f"include : {name}"])
        else:
            one = read_description(text, found.macros)
            yield one
            yield from _included_texts(one, read, depth - 1)


def check_items(text: bytes, origin: str, read: Read, default_scope: str | None = None) -> None:
    """See that RequiredDatasets of *text* is good for every item of its queue statements.

    A schedd drops, or holds, a late-materialized job whose list is malformed;
    here all such items are named before anything is submitted. Lists that are
    no literal, items of scripts and ``matching``, and names without a scope
    where no default scope is known are the schedd's to judge.

    Raises:
        SubmitFileError: with every item that makes a bad list, up to ten.
    """
    found = read_description(text)
    problems: dict[str, None] = {}
    for literal in found.required:
        for queue in found.queues or [_Queue(0, "")]:
            for row in _rows(queue.words, read, origin):
                for problem in _wrong_with(_expand(literal, {**found.macros, **row}), default_scope):
                    shown = ", ".join(f"{name} = {value}" for name, value in row.items() if name in literal)
                    problems[problem + (f" (item {shown})" if shown else "")] = None
    if problems:
        some = list(problems)[:10] + [f"and {len(problems) - 10} more"] * (len(problems) > 10)
        raise SubmitFileError(f"{origin}: {ATTRIBUTE}: {'; '.join(some)}: nothing was submitted")


def input_names(text: bytes, variables: Mapping[str, str] | None = None, *, origin: str = "") -> list[str]:
    """What jobs of the submit description read: its transfer_input_files, arguments and *variables*.

    *variables* are a DAG node's VARS; macros are put in.

    Raises:
        SubmitFileError: the names differ from job to job of one queue statement.
    """
    found = read_description(text)
    macros = {**found.macros, **(variables or {})}
    per_item = {name.lower() for queue in found.queues for name in _item_names(queue.words)}
    names: list[str] = []
    for key, separators in (("transfer_input_files", r"[,\r\n]+"), ("arguments", r"[\s\"',=]+")):
        value = macros.get(key, "")
        _no_item_names(value, macros, per_item, key, origin)
        names += re.split(separators, _expand(value, macros))
    names += [word for value in (variables or {}).values() for word in re.split(r"[\s\"',=]+", value)]
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


def _no_item_names(value: str, macros: Mapping[str, str], items: set[str], key: str, origin: str) -> None:
    kept = {name: text for name, text in macros.items() if name not in items}
    varied = sorted({m[1] for m in _MACRO.finditer(_expand(value, kept)) if m[1].lower() in items})
    if varied:
        raise SubmitFileError(
            f"{origin}: {key} differs from job to job by $({varied[0]}): write"
            f' +{ATTRIBUTE} = {{"scope:$({varied[0]})"}} into it, or name the datasets of all with --datasets'
        )


def list_literal(dids: Sequence[Did]) -> str:
    """*dids* as a ClassAd list: sorted, without doubles; their characters need no escape anywhere."""
    return "{" + ", ".join(f'"{did}"' for did in sorted(set(dids))) + "}"


def newline(text: bytes) -> bytes:
    """The end of the first line of *text*."""
    first = text.find(b"\n")
    return b"\r\n" if first > 0 and text[first - 1 : first] == b"\r" else b"\n"


def statements(text: bytes) -> Iterator[_Statement]:
    """The logical lines of a submit description or DAG; a comment does not go on behind a backslash."""
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
                    continue  # a line commented out of a longer one
                break
            parts.append(bare[:-1] if bare.endswith(b"\\") else bare)
            if not bare.endswith(b"\\"):
                break
        yield _Statement(start, at, b" ".join(parts).strip())


def read_description(text: bytes, macros: Mapping[str, str] | None = None) -> _Description:
    """Read the submit description *text*; *macros* are values that it begins with, names in lower case."""
    found = _Description(macros=dict(macros or {}))
    conditions = _Conditions()
    outermost, skip_to = 0, 0
    for statement, owns in _untagged(text):
        words = statement.text
        if statement.start < skip_to:
            continue
        if words[:3].strip().lower() == b"if" and not conditions.depth:
            outermost = statement.start
        if conditions.read(as_text(words), found.macros):
            continue
        holds = conditions.holds
        if queue := _QUEUE.match(words):
            rest, skip_to = _with_item_lines(text, statement, queue[1])
            if holds is not False:
                found.queues.append(_Queue(outermost if conditions.depth else statement.start, rest))
        elif holds is not False:
            _read_setting(words, found, sure=holds is True, tagged=owns)
    found.open_at = outermost if conditions.depth else None
    return found


class _Conditions:
    """The ``if`` blocks around a statement, as far as their conditions can be known without condor_submit."""

    def __init__(self) -> None:
        self._open: list[tuple[bool | None, bool | None]] = []  # holds now; an earlier branch held

    @property
    def depth(self) -> int:
        return len(self._open)

    @property
    def holds(self) -> bool | None:
        """True, False, or None where only condor_submit knows."""
        states = [now for now, _ in self._open]
        return False if False in states else None if None in states else True

    def read(self, statement: str, macros: Mapping[str, str]) -> bool:
        """Follow *statement*; return False where it is none of if, elif, else and endif."""
        word, condition = (*statement.split(None, 1), "", "")[:2]
        match word.lower():
            case "if":
                self._open.append((_literal(_expand(condition, macros)), False))
            case "elif" | "else" if self._open:
                now, before = self._open.pop()
                done = True if True in (now, before) else None if None in (now, before) else False
                branch = True if word.lower() == "else" else _literal(_expand(condition, macros))
                self._open.append(
                    (False if done or branch is False else None if done is None else branch, done)
                )
            case "endif" if self._open:
                self._open.pop()
            case "elif" | "else" | "endif":
                pass
            case _:
                return False
        return True


def _literal(condition: str) -> bool | None:
    """Return a condition that is written out: true, false, yes, no or a number; None for any other."""
    word = condition.strip().lower()
    if word in ("true", "yes", "t", "false", "no", "f"):
        return word[0] in "ty"
    return float(word) != 0 if re.fullmatch(r"-?\d+(\.\d*)?", word) else None


def _untagged(text: bytes) -> Iterator[tuple[_Statement, bool]]:
    """Return the statements of *text* without the values of ``name @=tag`` … ``@tag``; was it such a one?"""
    tag = b""
    for statement in statements(text):
        if tag:
            tag = b"" if statement.text.lower() == b"@" + tag else tag
        else:
            tagged = _TAGGED.match(statement.text)
            tag = tagged[1].lower() if tagged else b""
            yield statement, bool(tagged)


def _read_setting(words: bytes, found: _Description, *, sure: bool, tagged: bool) -> None:
    """Put one setting into *found*: *sure* where no condition is in doubt, *tagged* with a value in lines."""
    if words[:7].lower() == b"include":
        name = _included(words, found.macros)
        shown = as_text(words)[:80]
        if name and sure:
            found.included.append(name)
        else:
            found.unsure.append(shown)
        return
    value = _TAKES_VALUE.match(words)
    name_of = words.partition(b"@")[0].strip() if tagged else value[1] if value else b""
    if _OURS.match(name_of):
        if sure:
            found.required.append(as_text(value[2]) if value and not tagged else "")
        else:
            found.unsure.append("a condition")
    elif value and not tagged:
        if sure:
            found.macros[as_text(value[1]).lower()] = as_text(value[2])
        else:
            found.macros.setdefault(as_text(value[1]).lower(), as_text(value[2]))


def _with_item_lines(text: bytes, statement: _Statement, words: bytes) -> tuple[str, int]:
    """What follows ``queue``, with the item lines up to ``)`` where a ``(`` is open; where it all ends."""
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


def _included(words: bytes, macros: Mapping[str, str]) -> str:
    """Return the file that an include statement names; empty for a command, and where a macro is unknown."""
    how, _, name = as_text(words).partition(":")
    name = _expand(name.strip(), macros)
    command = "command" in how.lower() or name.endswith("|")
    return "" if command or "$" in name else name


def as_text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _expand(text: str, macros: Mapping[str, str]) -> str:
    """*text* with ``$(name)`` replaced as far as *macros* (names in lower case) know it."""
    for _ in range(20):
        more = _MACRO.sub(lambda m: macros.get(m[1].lower(), m[2] if m[2] is not None else m[0]), text)
        if more == text:
            break
        text = more
    return text


def _wrong_with(literal: str, default_scope: str | None) -> list[str]:
    """Why the list *literal* is no list of DIDs; nothing where it is one, or no literal at all."""
    bare = literal.strip()
    if not (bare.startswith("{") and bare.endswith("}")) or _MACRO.search(bare):
        return []
    items = _STRING.findall(bare)
    if _STRING.sub("", bare[1:-1]).strip(" \t,"):
        return [f"{bare[:200]} is no list of strings in double quotes"]
    if not items:
        return ["the list is empty"]
    problems = []
    for item in items:
        try:
            # a scope that the schedd may add is none of our business
            parse_did(item, default_scope or "scope")
        except BadDid as bad:
            problems.append(str(bad))
    return problems


# --- what a queue statement queues ----------------------------------------------------------------------


def _item_names(words: str) -> list[str]:
    """The variables that differ from job to job."""
    form = _QUEUE_FORM.match(words)
    if not form:
        return ["item"] if re.search(r"\bmatching\b", words, re.IGNORECASE) else []
    return re.split(r"[ \t,]+", form["names"]) if form["names"] else ["Item"]


def _rows(words: str, read: Read, origin: str) -> Iterator[dict[str, str]]:
    """The variables of each job that ``queue`` *words* stands for, names in lower case."""
    form = _QUEUE_FORM.match(words)
    if not form:
        yield {}
        return
    names = [name.lower() for name in _item_names(words)]
    rest = form["rest"].strip()
    lines = _item_lines(rest, form["how"].lower(), read)
    if lines is None:
        return
    for number, line in enumerate(lines):
        if number >= _MOST_ITEMS:
            raise SubmitFileError(f"{origin}: over {_MOST_ITEMS} items: submit them in parts")
        yield dict(zip(names, _fields(line, len(names)), strict=True))


def _item_lines(rest: str, how: str, read: Read) -> list[str] | None:
    """The items, one a line; None where they are a script's or cannot be read."""
    if rest.startswith("("):
        inside = rest[1:].rpartition(")")[0] if ")" in rest else rest[1:]
        lines = [line.strip() for line in inside.splitlines()]
        if how == "in":
            lines = [word for line in lines for word in re.split(r"[,\s]+", line)]
        return [line for line in lines if line and not line.startswith("#")]
    if how == "in":
        return [word for word in re.split(r"[,\s]+", rest) if word]
    if rest.endswith("|") or _MACRO.search(rest):
        return None
    content = read(rest)
    lines = as_text(content).splitlines() if content is not None else []
    kept = [line.strip() for line in lines]
    return [line for line in kept if line and not line.startswith("#")] if content is not None else None


def _fields(line: str, count: int) -> list[str]:
    """*line* cut into *count* values as condor_submit does: commas or blanks; the last takes the rest."""
    if "\x1f" in line:
        values = [value.strip() for value in line.split("\x1f")]
    else:
        values = re.split(r"[ \t]*,[ \t]*|[ \t]+", line, maxsplit=count - 1) if count > 1 else [line]
    return (values + [""] * count)[:count]
