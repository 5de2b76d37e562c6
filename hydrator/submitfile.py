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
_OURS = re.compile(rb"(\+|MY\.)RequiredDatasets\Z", re.IGNORECASE)
_MOST_ITEMS = 1_000_000


class SubmitFileError(HydratorError):
    """A submit description or DAG that nothing can be added to; its text says where and what to do."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """The text with what was added; ``notes`` say what was left alone, a sentence each.

    ``added`` are the lines that were put in, at byte ``at`` of the original.
    """

    text: bytes
    notes: tuple[str, ...] = ()
    added: bytes = b""
    at: int = 0


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
    """What a submit description says, as far as it is read."""

    queues: list[_Queue] = field(default_factory=list)
    macros: dict[str, str] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    included: list[str] = field(default_factory=list)


# --- submit descriptions --------------------------------------------------------------------------------


def with_datasets(
    text: bytes, dids: Sequence[Did], origin: str, read: Read, more: Sequence[str] = ()
) -> Filtered:
    """*text*, a submit description, with ``+RequiredDatasets`` before its first queue statement.

    *more* lines come after it, whether or not there are datasets to add.

    Where that one stands in an ``if`` the line comes before the ``if``; where
    there is none (``-queue`` on a command line, a DAG's node) it comes last.
    A description that has the attribute, itself or in a file it includes, is
    left alone, after a look at every item it would be made for.

    Raises:
        SubmitFileError: it has the attribute, with a DID that is none.
    """
    found = read_description(text)
    if already_there(found, read):
        check_items(text, origin, read)
        note = f"{origin} has {ATTRIBUTE} already: it is left as it is"
    else:
        note = "" if dids else f"{origin}: no dataset is known for it: it is left as it is"
    added = [*([] if note else [f"+{ATTRIBUTE} = {list_literal(dids)}"]), *more]
    if not added:
        return Filtered(text, (note,))
    end = newline(text)
    at = found.queues[0].place if found.queues else len(text)
    put = b"".join(line.encode() + end for line in added)
    before = end if at and not text[:at].endswith(b"\n") else b""
    return Filtered(text[:at] + before + put + text[at:], (note,) if note else (), before + put, at)


def already_there(found: "_Description", read: Read) -> bool:
    """Does the description, or a file that it includes under a plain name, say RequiredDatasets?"""
    if found.required:
        return True
    texts = (read(name) for name in found.included)
    return any(read_description(text).required for text in texts if text)


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


def read_description(text: bytes) -> _Description:
    found = _Description()
    depth, outermost, skip_to = 0, 0, 0
    for statement in _untagged(text, found):
        words = statement.text
        first = words.split(None, 1)[0].lower() if words else b""
        if statement.start < skip_to:
            continue
        if first == b"if":
            outermost = outermost if depth else statement.start
            depth += 1
        elif first == b"endif":
            depth = max(0, depth - 1)
        elif queue := _QUEUE.match(words):
            rest, skip_to = _with_item_lines(text, statement, queue[1])
            found.queues.append(_Queue(outermost if depth else statement.start, rest))
        else:
            _read_setting(words, found)
    return found


def _untagged(text: bytes, found: _Description) -> Iterator[_Statement]:
    """The statements of *text* without the values of ``name @=tag`` … ``@tag``."""
    tag = b""
    for statement in statements(text):
        if tag:
            tag = b"" if statement.text.lower() == b"@" + tag else tag
        elif tagged := _TAGGED.match(statement.text):
            tag = tagged[1].lower()
            if _OURS.match(statement.text.partition(b"@")[0].strip()):
                found.required.append("")
        else:
            yield statement


def _read_setting(words: bytes, found: _Description) -> None:
    if words[:7].lower() == b"include":
        found.included += _included(words)
    elif value := _TAKES_VALUE.match(words):
        if _OURS.match(value[1]):
            found.required.append(as_text(value[2]))
        else:
            found.macros[as_text(value[1]).lower()] = as_text(value[2])


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


def _included(words: bytes) -> list[str]:
    """The file that an include statement names plainly: no command, no macro."""
    name = as_text(words.partition(b":")[2]).strip()
    command = b"command" in words.partition(b":")[0].lower()
    return [] if command or not name or "$(" in name or name.endswith("|") else [name]


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
