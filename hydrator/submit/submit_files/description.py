"""Submit descriptions: read the settings, the queue statements and the place for a new attribute.

The reader understands only the parts of condor_submit's language that are needed to find the place for
RequiredDatasets and the names of the jobs' inputs. Pure: bytes in, values out.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from hydrator.domain.errors import HydratorError

ATTRIBUTE = "RequiredDatasets"
FileReader = Callable[[str], bytes | None]
"""A function that returns the content of a file by its name; None if it cannot read the file."""
_ASSIGNMENT = re.compile(rb"([+.\w]+)[ \t]*=(?!=)[ \t]*(.*)\Z", re.DOTALL)
_TAGGED_ASSIGNMENT = re.compile(rb"[+.\w]+[ \t]*@=[ \t]*(\w+)[ \t]*\r?\n?\Z")
_QUEUE = re.compile(rb"queue\b(?![ \t]*=)(.*)\Z", re.DOTALL | re.IGNORECASE)
MACRO = re.compile(r"\$\((\w+)(?::([^()]*))?\)")
_OTHER_STATEMENTS = re.compile(rb"(if|elif|else|endif|include|use|error|warning)\b", re.IGNORECASE)
_OUR_ATTRIBUTE = re.compile(rb"(\+|MY\.)RequiredDatasets\Z", re.IGNORECASE)


class SubmitFileError(HydratorError):
    """A submit description or DAG that the program cannot change; the text says where, and what to do."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """One logical line: its begin and end in the file, and its text with the continuation lines joined."""

    start: int
    end: int
    text: bytes


@dataclass(frozen=True, slots=True)
class QueueStatement:
    """A queue statement and its arguments; it begins at byte ``position`` and ends at byte ``end``.

    If the statement is in an ``if`` block, ``position`` is the first byte of the outermost ``if``, and
    ``end`` is 0.
    """

    position: int
    arguments: str
    end: int = 0


@dataclass(slots=True)
class SubmitDescription:
    """The parts of a submit description that this module reads.

    ``dataset_lists`` has the values of RequiredDatasets. ``uncertainties`` has places that may set
    RequiredDatasets, and that only condor_submit can evaluate: a condition, or an include that this module
    cannot read. ``open_if_position`` is the first byte of an ``if`` without ``endif``.
    ``uncertain_macros`` are names of ``macros`` that such a condition may set.
    """

    queues: list[QueueStatement] = field(default_factory=list)
    macros: dict[str, str] = field(default_factory=dict)
    dataset_lists: list[str] = field(default_factory=list)
    includes: list[str] = field(default_factory=list)
    uncertainties: list[str] = field(default_factory=list)
    open_if_position: int | None = None
    uncertain_macros: set[str] = field(default_factory=set)

    @property
    def certain_macros(self) -> dict[str, str]:
        """The macros whose value does not depend on a condition that only condor_submit can evaluate."""
        return {name: text for name, text in self.macros.items() if name not in self.uncertain_macros}


def is_description(text: bytes) -> bool:
    """Return whether the first statement of *text* fits a submit description; True for an empty text."""
    for statement in statements(text):
        words = statement.text
        if words:
            takes_value = _ASSIGNMENT.match(words) or _TAGGED_ASSIGNMENT.match(words)
            return bool(takes_value or _QUEUE.match(words) or _OTHER_STATEMENTS.match(words))
    return True


def read_description(text: bytes, macros: Mapping[str, str] | None = None) -> SubmitDescription:
    """Read the submit description *text*; *macros* are set before it, by lower-case name."""
    description = SubmitDescription(macros=dict(macros or {}))
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
                is_inside = conditions.depth > 0
                place = (outermost, 0) if is_inside else (statement.start, skip_to)
                description.queues.append(QueueStatement(place[0], rest, place[1]))
        elif is_active is not False:
            _read_setting(words, description, is_certain=is_active is True, is_tagged=is_tagged)
    description.open_if_position = outermost if conditions.depth else None
    return description


class _IfBlocks:
    """The ``if`` blocks around a statement; the class can evaluate only conditions that are literals."""

    def __init__(self) -> None:
        # for each block: is its present branch active, and was an earlier branch of the block active
        self._open_blocks: list[tuple[bool | None, bool | None]] = []

    @property
    def depth(self) -> int:
        return len(self._open_blocks)

    @property
    def is_active(self) -> bool | None:
        """True if condor_submit reads the statement, else False; None if this module cannot find out."""
        states = [now for now, _ in self._open_blocks]
        return False if False in states else None if None in states else True

    def follow(self, statement: str, macros: Mapping[str, str]) -> bool:
        """Apply the statement if, elif, else or endif; return False for any other *statement*."""
        word, condition = (*statement.split(None, 1), "", "")[:2]
        match word.lower():
            case "if":
                self._open_blocks.append((_parse_literal_condition(expand(condition, macros)), False))
            case "elif" | "else" if self._open_blocks:
                states = self._open_blocks.pop()
                earlier = True if True in states else None if None in states else False
                branch = (
                    True if word.lower() == "else" else _parse_literal_condition(expand(condition, macros))
                )
                is_active = False if earlier or branch is False else None if earlier is None else branch
                self._open_blocks.append((is_active, earlier))
            case "endif" if self._open_blocks:
                self._open_blocks.pop()
            case "elif" | "else" | "endif":
                pass
            case _:
                return False
        return True


def _parse_literal_condition(condition: str) -> bool | None:
    """Return the value of a literal *condition* (true, false, yes, no or a number); None for any other."""
    word = condition.strip().lower()
    if word in ("true", "yes", "t", "false", "no", "f"):
        return word[0] in "ty"
    return float(word) != 0 if re.fullmatch(r"-?\d+(\.\d*)?", word) else None


def statements(text: bytes) -> Iterator[_Statement]:
    """Yield the logical lines of a submit description; a backslash at the end of a comment has no effect."""
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
                    continue  # a comment between continuation lines
                break
            parts.append(bare[:-1] if bare.endswith(b"\\") else bare)
            if not bare.endswith(b"\\"):
                break
        yield _Statement(start, at, b" ".join(parts).strip())


def _skip_tagged_values(text: bytes) -> Iterator[tuple[_Statement, bool]]:
    """Yield the statements of *text* without the lines of values between ``name @=tag`` and ``@tag``.

    The second value is True for the statement ``name @=tag`` itself.
    """
    tag = b""
    for statement in statements(text):
        if tag:
            tag = b"" if statement.text.lower() == b"@" + tag else tag
        else:
            tagged = _TAGGED_ASSIGNMENT.match(statement.text)
            tag = tagged[1].lower() if tagged else b""
            yield statement, bool(tagged)


def _read_setting(words: bytes, description: SubmitDescription, *, is_certain: bool, is_tagged: bool) -> None:
    """Add one setting to *description*.

    *is_certain*: condor_submit surely reads the setting. *is_tagged*: the setting is ``name @=tag``.
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
        name = as_text(value[1]).lower()
        if is_certain:
            description.macros[name] = as_text(value[2])
        else:
            description.macros.setdefault(name, as_text(value[2]))
            description.uncertain_macros.add(name)


def _read_queue_arguments(text: bytes, statement: _Statement, words: bytes) -> tuple[str, int]:
    """Return the arguments of a queue statement, with the item lines up to ``)``, and the arguments' end."""
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
    """Return the file of an include statement; empty if it runs a command or uses an unknown macro."""
    options, _, name = as_text(words).partition(":")
    name = expand(name.strip(), macros)
    command = "command" in options.lower() or name.endswith("|")
    return "" if command or "$" in name else name


def expand(text: str, macros: Mapping[str, str]) -> str:
    """Return *text* with the values of *macros* (names in lower case) in place of ``$(name)``."""
    for _ in range(20):
        more = MACRO.sub(lambda m: macros.get(m[1].lower(), m[2] if m[2] is not None else m[0]), text)
        if more == text:
            break
        text = more
    return text


def as_text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def line_ending(text: bytes) -> bytes:
    """Return the line ending of the first line of *text*, LF or CRLF; LF if *text* has no line ending."""
    first = text.find(b"\n")
    return b"\r\n" if first > 0 and text[first - 1 : first] == b"\r" else b"\n"
