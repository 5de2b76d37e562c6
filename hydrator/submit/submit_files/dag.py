"""DAG files: read the nodes, and the references to other DAG files.

The reader follows DAGMan's own parser: ``src/condor_utils/dag_parser.cpp`` of HTCondor 25 and
``src/condor_dagman/parse.cpp`` of HTCondor 23.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from .description import ATTRIBUTE, Description, SubmitFileError, as_text, read_description, read_file


@dataclass(frozen=True, slots=True)
class DagNode:
    """One node of a DAG file, and what the file says of its submit description.

    ``kind`` is JOB, FINAL, PROVISIONER or SERVICE. Command-line options for all nodes apply only to nodes of
    kind JOB. ``description`` is the name of a SUBMIT-DESCRIPTION or of a file in ``folder`` (after DIR), None
    for an inline description. ``text`` is the inline description, or the one of that name in this DAG file.
    ``defaults`` are the settings of VARS that the description can override, ``additions`` those of VARS
    APPEND, which override the description.
    """

    name: str
    kind: str
    description: str | None
    folder: str
    text: bytes | None
    defaults: Mapping[str, str] = field(default_factory=dict)
    additions: Mapping[str, str] = field(default_factory=dict)
    has_pre_script: bool = False

    @property
    def file(self) -> str | None:
        """The submit description's file, relative to the DAG's folder; None if the DAG file has the text."""
        if self.text is not None or self.description is None:
            return None
        return f"{Path(self.folder) / self.description}"

    @property
    def variables(self) -> dict[str, str]:
        return {**self.defaults, **self.additions}

    @property
    def has_list_in_vars(self) -> bool:
        names = {name.lower().replace("+", "my.") for name in self.variables}
        return f"my.{ATTRIBUTE}".lower() in names


@dataclass(frozen=True, slots=True)
class DagReference:
    """A statement that refers to another DAG file; it begins at byte ``start`` and ends at byte ``end``.

    ``name`` is the name of the splice or the sub-DAG, None for an INCLUDE. ``folder`` is the folder after
    DIR: ``file``, and all file names in the other DAG file, are relative to this folder. ``file_span`` is
    the begin and the end of the file's name, in bytes.
    """

    statement: str
    name: str | None
    file: str
    folder: str
    start: int
    end: int
    file_span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Dag:
    """The nodes of a DAG file in order, its references to other DAG files, and names that it declares.

    ``descriptions`` has the texts of SUBMIT-DESCRIPTION statements, by name. ``variable_owners`` has the
    names in VARS statements: nodes, perhaps of other files, and ``ALL_NODES``.
    """

    nodes: tuple[DagNode, ...]
    references: tuple[DagReference, ...]
    descriptions: Mapping[str, bytes] = field(default_factory=dict)
    variable_owners: frozenset[str] = frozenset()


_NODE_KINDS = {"NODE": "JOB", "DATA": "JOB"} | {
    kind: kind for kind in ("JOB", "FINAL", "PROVISIONER", "SERVICE")
}
_COMMANDS = frozenset(
    (
        *_NODE_KINDS,
        *("SUBDAG", "SPLICE", "INCLUDE", "SUBMIT_DESCRIPTION", "CATEGORY", "PARENT", "WEAK", "SCRIPT"),
        *("RETRY", "ABORT_DAG_ON", "VARS", "PRIORITY", "PRE_SKIP", "TOLERANCE", "DONE", "MAXJOBS", "CONFIG"),
        *("DOT", "NODE_STATUS_FILE", "JOBSTATE_LOG", "SAVE_POINT_FILE", "SET_JOB_ATTR", "ENV", "REJECT"),
        *("CONNECT", "PIN_IN", "PIN_OUT"),
    )
)
_ALL_NODES = "ALL_NODES"
_PAIR = re.compile(
    r"""[ \t\r]*([^\s"'=]+)[ \t\r]*=[ \t\r]*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"']\S*))""",
    re.DOTALL,
)
_SUBMIT_INCLUDE = re.compile(rb"include[ \t]*(ifexist\b|command\b|output\b)?[^:]*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Word:
    """One word of a statement: ``text`` has its quotes, ``value`` has not; its begin and end in the file."""

    text: str
    value: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _DagLine:
    """One logical line: its begin and end in the file, and its text with the continuation lines joined.

    Each of ``parts`` has two positions of a physical line's first byte: in ``text`` and in the file.
    """

    start: int
    end: int
    text: bytes
    parts: tuple[tuple[int, int], ...]

    def original_offset(self, offset: int) -> int:
        """Return the position in the file of byte *offset* of ``text``."""
        joined, original = max(part for part in self.parts if part[0] <= offset)
        return original + offset - joined

    def words(self) -> list[_Word]:
        """Return the words as DAGMan reads them: blanks between single or double quotes belong to a word.

        Raises:
            SubmitFileError: a quote is not closed.
        """
        words = []
        at, text = 0, self.text
        while at < len(text):
            if text[at : at + 1] in b" \t\r":
                at += 1
                continue
            start, quote, bare = at, b"", bytearray()
            while at < len(text) and (quote or text[at : at + 1] not in b" \t\r"):
                letter = text[at : at + 1]
                if quote and letter == b"\\" and at + 1 < len(text):
                    at += 1
                    bare += text[at : at + 1]
                elif letter == quote:
                    quote = b""
                elif not quote and letter in b"\"'":
                    quote = letter
                else:
                    bare += letter
                at += 1
            if quote:
                raise SubmitFileError(f"{as_text(text)[:200]}: the quote {as_text(quote)} is not closed")
            word = as_text(text[start:at])
            words.append(
                _Word(
                    word, as_text(bytes(bare)), self.original_offset(start), self.original_offset(at - 1) + 1
                )
            )
        return words


def is_dag(text: bytes) -> bool:
    """Return whether *text* is a DAG file, not a submit description; its first statement decides."""
    for line in _DagLineReader(text):
        first, *rest = line.text.split(None, 1)
        if b"".join(rest)[:1] in (b"=", b"@") or _SUBMIT_INCLUDE.match(line.text):
            return False
        return _command(as_text(first)) in _COMMANDS
    return False


def read_dag(text: bytes) -> Dag:
    """Read the statements of the DAG file *text*; :func:`read_node` reads the submit descriptions.

    Raises:
        SubmitFileError: an inline description or a quote is not closed, or the file ends in a backslash.
    """
    shared: dict[str, bytes] = {}
    nodes: list[DagNode] = []
    defaults: dict[str, dict[str, str]] = {}
    additions: dict[str, dict[str, str]] = {}
    scripts: set[str] = set()
    references = []
    lines = _DagLineReader(text)
    for line in lines:
        command = _command(as_text(line.text.split(None, 1)[0]))
        if command in _NODE_KINDS:
            nodes += _parse_node(_NODE_KINDS[command], line, text, lines)
        elif command == "SUBMIT_DESCRIPTION":
            words = line.words()
            if len(words) >= 3 and (ending := _inline_terminator(words[2])) is not None:
                shared[words[1].text], _ = _read_inline(words[1].text, ending, line, text, lines)
        elif command == "VARS":
            node, is_appended, pairs = _parse_vars(as_text(line.text))
            (additions if is_appended else defaults).setdefault(node, {}).update(pairs)
        elif command == "SCRIPT":
            scripts |= _pre_script_owner(as_text(line.text).split())
        elif reference := _parse_reference(command, line):
            references.append(reference)
    complete = [
        replace(
            node,
            text=shared.get(node.description) if node.description is not None else node.text,
            defaults=_values_of(node, defaults),
            additions=_values_of(node, additions),
            has_pre_script=not scripts.isdisjoint((node.name, _ALL_NODES)),
        )
        for node in nodes
    ]
    return Dag(tuple(complete), tuple(references), shared, frozenset({**defaults, **additions}))


def _values_of(node: DagNode, values: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    # a VARS statement for ALL_NODES does not apply to the FINAL node
    for_all = {} if node.kind == "FINAL" else values.get(_ALL_NODES, {})
    return {**for_all, **values.get(node.name, {})}


def _pre_script_owner(words: Sequence[str]) -> set[str]:
    """Return the node of a SCRIPT statement that runs before the node's submission; else nothing."""
    upper = [word.upper() for word in words]
    at = upper.index("PRE") + 1 if "PRE" in upper else len(words)
    return {_ALL_NODES if upper[at] == _ALL_NODES else words[at]} if at < len(words) else set()


def read_node(node: DagNode, folder: Path, unread: str = "") -> Description:
    """Read the submit description of *node* as DAGMan would submit it.

    Args:
        node: the node.
        folder: the folder that the DAG's file names are relative to.
        unread: the reason why the description cannot be read here; empty without one.
    """
    text = node.text
    if text is None and not unread:
        text = read_file(folder / node.folder / (node.description or ""))
        if text is None:
            unread = f"{node.file} cannot be read here"
        elif node.has_pre_script:
            unread = f"its PRE script may change {node.file}"
    if unread or text is None:
        return Description(None, folder, unread=unread)
    before, after = (
        [f"{name} = {value}" for name, value in values.items()] for values in (node.defaults, node.additions)
    )
    # DAGMan submits the node, with an environment of its own
    return read_description(text, folder / node.folder, before=before, after=after, has_environment=False)


def _command(word: str) -> str:
    return word.upper().replace("-", "_")


class _DagLineReader(Iterator[_DagLine]):
    """An iterator of the logical lines of a DAG file; ``offset`` is the next byte to read.

    The reader skips empty lines and comments, also between the lines that a backslash joins.
    Comments begin with ``#``, and since HTCondor 24 with ``//``.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text
        self.offset = 0

    def read_physical(self) -> tuple[int, int, bytes] | None:
        """Return the next physical line: its begin, its end, and its text without blanks at both ends."""
        if self.offset >= len(self._text):
            return None
        start = self.offset
        self.offset = (self._text.find(b"\n", start) + 1) or len(self._text)
        return start, self.offset, self._text[start : self.offset].strip()

    def __next__(self) -> _DagLine:
        parts: list[tuple[int, int]] = []
        joined, first_byte = b"", -1
        while physical := self.read_physical():
            start, end, bare = physical
            if not bare or bare.startswith((b"#", b"//")):
                continue
            first_byte = start if first_byte < 0 else first_byte
            joined += b" " if joined else b""
            parts.append((len(joined), start + self._text[start:end].index(bare)))
            is_continued = bare.endswith(b"\\")
            joined += bare[:-1] if is_continued else bare
            if not is_continued:
                return _DagLine(first_byte, end, joined, tuple(parts))
        if parts:
            raise SubmitFileError(
                f"{as_text(joined)[:200]}: the DAG file ends in a backslash: remove the backslash"
            )
        raise StopIteration


def _parse_node(kind: str, line: _DagLine, text: bytes, lines: _DagLineReader) -> list[DagNode]:
    """Return the node of a JOB, FINAL, PROVISIONER or SERVICE statement, as a list; [] if incomplete."""
    words = line.words()
    if len(words) < 3:
        return []
    name = words[1].text
    ending = _inline_terminator(words[2])
    if ending is None:
        return [DagNode(name, kind, words[2].value, _dir_option(words[3:]), None)]
    block, rest = _read_inline(name, ending, line, text, lines)
    return [DagNode(name, kind, None, _dir_option(rest), block)]


def _inline_terminator(word: _Word) -> bytes | None:
    """Return the word that ends the inline description that *word* begins; None if *word* is a file name."""
    if word.text.startswith("{"):
        return b"}"
    return b"@" + word.text[2:].encode("utf-8", "surrogateescape") if word.text.startswith("@=") else None


def _read_inline(
    name: str, ending: bytes, line: _DagLine, text: bytes, lines: _DagLineReader
) -> tuple[bytes, list[_Word]]:
    """Return the inline description after *line*, and the words after the word that ends it."""
    if ending == b"@":
        raise SubmitFileError(
            f"node {name}: write a word after @=; the line @WORD then ends the inline description"
        )
    while physical := lines.read_physical():
        start, end, bare = physical
        if bare == ending or bare.startswith((ending + b" ", ending + b"\t")):
            rest = _DagLine(start, end, bare[len(ending) :], ((0, start),))
            return text[line.end : start], rest.words()
    raise SubmitFileError(f"node {name}: its inline description has no end: add the line {as_text(ending)}")


def _parse_vars(statement: str) -> tuple[str, bool, dict[str, str]]:
    """Return the node's name, whether the statement has APPEND, and its values.

    ``ALL_NODES`` may have any letter case.
    """
    words = statement.split(None, 2)
    if len(words) < 3:
        return "", False, {}
    rest, is_appended = words[2], False
    first = rest.split(None, 1)
    if len(first) == 2 and first[0].upper() in ("PREPEND", "APPEND") and not first[1].startswith("="):
        rest, is_appended = first[1], first[0].upper() == "APPEND"
    pairs: dict[str, str] = {}
    at = 0
    while pair := _PAIR.match(rest, at):
        quoted = pair[2] if pair[2] is not None else pair[3]
        pairs[pair[1]] = pair[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = pair.end()
    return (_ALL_NODES if words[1].upper() == _ALL_NODES else words[1]), is_appended, pairs


def _parse_reference(command: str, line: _DagLine) -> DagReference | None:
    """Return the reference of a SPLICE, SUBDAG EXTERNAL or INCLUDE statement; None for other statements."""
    if command not in ("SPLICE", "SUBDAG", "INCLUDE"):
        return None
    words = line.words()
    name: str | None
    match command:
        case "SPLICE" if len(words) >= 3:
            name, file, rest, shown = words[1].text, words[2], words[3:], 3
        case "SUBDAG" if len(words) >= 4 and words[1].text.upper() == "EXTERNAL":
            name, file, rest, shown = words[2].text, words[3], words[4:], 4
        case "INCLUDE" if len(words) >= 2:
            name, file, rest, shown = None, words[1], [], 2
        case _:
            return None
    statement = " ".join(word.text for word in words[:shown])
    return DagReference(
        statement, name, file.value, _dir_option(rest), line.start, line.end, (file.start, file.end)
    )


def _dir_option(words: Sequence[_Word]) -> str:
    """Return the folder after the word DIR in *words*; empty without DIR."""
    for word, following in pairwise(words):
        if word.text.upper() == "DIR":
            return following.value
    return ""
