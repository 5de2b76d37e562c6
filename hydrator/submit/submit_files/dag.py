"""DAG files: read the nodes, and the references to other DAG files.

The reader follows DAGMan's own parser: ``src/condor_utils/dag_parser.cpp`` of HTCondor 25 and
``src/condor_dagman/parse.cpp`` of HTCondor 23.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .datasets import detect_datasets
from .description import ATTRIBUTE, FileReader, SubmitFileError, as_text, read_description


@dataclass(frozen=True, slots=True)
class DagNode:
    """One node of a DAG: its submit description, its VARS, and whether it already has RequiredDatasets.

    ``content`` is the text of the submit description; ``file`` is its file, None for an inline description.
    ``uncertainty`` is the first place in the description that may set RequiredDatasets, and that only
    condor_submit can evaluate; without such a place it is empty. ``kind`` is JOB, FINAL, PROVISIONER or
    SERVICE. Command-line options for all nodes apply only to nodes of kind JOB. ``settings`` are the settings
    of the description and VARS that the jobs of the node share, by lower-case name; ``own_list`` is the value
    of RequiredDatasets, None without a value that is certain.
    """

    name: str
    file: str | None
    content: bytes | None
    variables: Mapping[str, str]
    has_datasets: bool
    kind: str = "JOB"
    uncertainty: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    own_list: str | None = None


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
    """The nodes of a DAG file in order, and its references to other DAG files."""

    nodes: tuple[DagNode, ...]
    references: tuple[DagReference, ...]


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


def has_required_datasets(text: bytes, read: FileReader) -> bool:
    """Return whether *text*, a submit description or a DAG file, may have RequiredDatasets."""
    if is_dag(text):
        return any(node.has_datasets or node.uncertainty for node in read_dag(text, read).nodes)
    return any(detect_datasets(read_description(text), read))


def read_dag(text: bytes, read: FileReader) -> Dag:
    """Read the nodes of the DAG file *text*; *read* reads the submit description files of the nodes.

    Raises:
        SubmitFileError: an inline description or a quote is not closed, or the file ends in a backslash.
    """
    shared: dict[str, bytes] = {}
    jobs: list[_NodeStatement] = []
    variables: dict[str, dict[str, str]] = {}
    references = []
    lines = _DagLineReader(text)
    for line in lines:
        command = _command(as_text(line.text.split(None, 1)[0]))
        if command in _NODE_KINDS:
            jobs += _parse_node_statement(_NODE_KINDS[command], line, text, lines)
        elif command == "SUBMIT_DESCRIPTION":
            words = line.words()
            if len(words) >= 3 and (ending := _inline_terminator(words[2])) is not None:
                shared[words[1].text], _ = _read_inline(words[1].text, ending, line, text, lines)
        elif command == "VARS":
            node, pairs = _parse_vars(as_text(line.text))
            variables.setdefault(node, {}).update(pairs)
        elif reference := _parse_reference(command, line):
            references.append(reference)
    return Dag(tuple(_build_node(job, variables, shared, read) for job in jobs), tuple(references))


@dataclass(frozen=True, slots=True)
class _NodeStatement:
    """The statement of one node; the reader has not yet read the node's VARS and submit description file."""

    kind: str
    name: str
    file: str
    folder: str
    inline_text: bytes | None


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


def _parse_node_statement(
    kind: str, line: _DagLine, text: bytes, lines: _DagLineReader
) -> list[_NodeStatement]:
    """Return the node of a JOB, FINAL, PROVISIONER or SERVICE statement, as a list; [] if incomplete."""
    words = line.words()
    if len(words) < 3:
        return []
    name = words[1].text
    ending = _inline_terminator(words[2])
    if ending is None:
        return [_NodeStatement(kind, name, words[2].value, _dir_option(words[3:]), None)]
    block, rest = _read_inline(name, ending, line, text, lines)
    return [_NodeStatement(kind, name, "", _dir_option(rest), block)]


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


def _parse_vars(statement: str) -> tuple[str, dict[str, str]]:
    """Return the node's name and the values of a VARS statement; ``ALL_NODES`` may have any letter case."""
    words = statement.split(None, 2)
    if len(words) < 3:
        return "", {}
    rest = words[2]
    first = rest.split(None, 1)
    if len(first) == 2 and first[0].upper() in ("PREPEND", "APPEND") and not first[1].startswith("="):
        rest = first[1]
    pairs: dict[str, str] = {}
    at = 0
    while pair := _PAIR.match(rest, at):
        quoted = pair[2] if pair[2] is not None else pair[3]
        pairs[pair[1]] = pair[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = pair.end()
    return (_ALL_NODES if words[1].upper() == _ALL_NODES else words[1]), pairs


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


def _build_node(
    statement: _NodeStatement,
    variables: Mapping[str, Mapping[str, str]],
    shared_descriptions: Mapping[str, bytes],
    read: FileReader,
) -> DagNode:
    content = (
        statement.inline_text
        if statement.inline_text is not None
        else shared_descriptions.get(statement.file)
    )
    in_folder = statement.folder and not statement.file.startswith("/")
    path = f"{statement.folder.rstrip('/')}/{statement.file}" if in_folder else statement.file
    if content is None:
        content = read(path)
    # a VARS statement for ALL_NODES does not apply to the FINAL node
    for_all = {} if statement.kind == "FINAL" else variables.get(_ALL_NODES, {})
    own = {**for_all, **variables.get(statement.name, {})}
    description = read_description(content or b"")
    vars_lists = [value for key, value in own.items() if _attribute(key) == ATTRIBUTE.lower()]
    has_list, uncertainty = detect_datasets(description, read)
    has_datasets = has_list or bool(vars_lists)
    macros = {key.lower(): value for key, value in own.items() if key[:1] != "+"}
    lists = vars_lists or ([] if uncertainty else description.dataset_lists)
    keys = {"+" + _attribute(key): value for key, value in own.items() if _attribute(key)}
    return DagNode(
        statement.name,
        path if statement.inline_text is None else None,
        content,
        macros,
        has_datasets,
        statement.kind,
        "" if has_datasets else uncertainty,
        {**description.certain_macros, **macros, **keys},
        lists[0] if len(lists) == 1 else None,
    )


def _attribute(name: str) -> str:
    """Return the job attribute that the submit command *name* sets, in lower case; empty for a command."""
    is_attribute = name[:1] == "+" or "." in name
    return name.lower().removeprefix("my.").lstrip("+") if is_attribute else ""
