"""DAG files: read the nodes, and the references to other DAG files.

The reader follows DAGMan's own parser: ``src/condor_utils/dag_parser.cpp`` of HTCondor 25 and
``src/condor_dagman/parse.cpp`` of HTCondor 23.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hydrator.domain.ads.contract import REQUIRED_DATASETS

from .description import Description, SubmitFileError, as_text, read_description, read_file


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
        return f"my.{REQUIRED_DATASETS}".lower() in names


@dataclass(frozen=True, slots=True)
class DagReference:
    """A statement that refers to another DAG file; it begins at byte ``start`` and ends at byte ``end``.

    ``words`` are its words before the file's name, with their quotes, and ``options`` those after it.
    ``name`` is the name of the splice or the sub-DAG, None for an INCLUDE. ``file``, and all file names in
    the other DAG file, are relative to ``folder``, the folder after DIR.
    """

    words: tuple[str, ...]
    options: tuple[str, ...]
    name: str | None
    file: str
    folder: str
    start: int
    end: int

    @property
    def statement(self) -> str:
        """The statement up to the file's name, for messages."""
        return " ".join((*self.words, self.file))


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
_QUOTED = re.compile(r"""\"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")
_WORD = re.compile(rf"""(?:[^ \t\r"']|{_QUOTED.pattern})+""")
_SUBMIT_INCLUDE = re.compile(r"include[ \t]*(ifexist\b|command\b|output\b)?[^:]*:", re.IGNORECASE)


class _DagLine(NamedTuple):
    """One logical line: its begin and end in the file, and its text with the continuation lines joined."""

    start: int
    end: int
    text: str

    @property
    def command(self) -> str:
        return _command(re.split(r"[ \t\r]", self.text.lstrip(" \t\r"), maxsplit=1)[0])

    def words(self) -> tuple[str, ...]:
        """Return the words with their quotes: blanks between single or double quotes belong to a word.

        Raises:
            SubmitFileError: a quote is not closed.
        """
        if quote := re.search(r"[\"']", _WORD.sub("", self.text)):
            raise SubmitFileError(f"{self.text[:200]}: the quote {quote[0]} is not closed")
        return tuple(_WORD.findall(self.text))


def _unquote(word: str) -> str:
    """Return *word* without its quotes; a backslash between quotes escapes the next character."""
    return _QUOTED.sub(lambda quoted: re.sub(r"\\(.)", r"\1", quoted[0][1:-1]), word)


def is_dag(text: bytes) -> bool:
    """Return whether *text* is a DAG file, not a submit description; its first statement decides."""
    for line in _DagLineReader(text):
        _, *rest = line.text.split(None, 1) or [""]
        if "".join(rest).startswith(("=", "@")) or _SUBMIT_INCLUDE.match(line.text):
            return False
        return line.command in _COMMANDS
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
        command = line.command
        if command in _NODE_KINDS:
            nodes += _parse_node(_NODE_KINDS[command], line, text, lines)
        elif command == "SUBMIT_DESCRIPTION":
            words = line.words()
            if len(words) >= 3 and (ending := _inline_terminator(words[2])) is not None:
                shared[words[1]], _ = _read_inline(words[1], ending, line, text, lines)
        elif command == "VARS":
            node, is_appended, pairs = _parse_vars(line.text)
            (additions if is_appended else defaults).setdefault(node, {}).update(pairs)
        elif command == "SCRIPT":
            scripts |= _pre_script_owner(line.text.split())
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
        parts: list[str] = []
        first_byte = -1
        while physical := self.read_physical():
            start, end, bare = physical
            if not bare or bare.startswith((b"#", b"//")):
                continue
            first_byte = start if first_byte < 0 else first_byte
            is_continued = bare.endswith(b"\\")
            parts.append(as_text(bare[:-1] if is_continued else bare))
            if not is_continued:
                return _DagLine(first_byte, end, " ".join(parts))
        if parts:
            joined = " ".join(parts)[:200]
            raise SubmitFileError(f"{joined}: the DAG file ends in a backslash: remove the backslash")
        raise StopIteration


def _parse_node(kind: str, line: _DagLine, text: bytes, lines: _DagLineReader) -> list[DagNode]:
    """Return the node of a JOB, FINAL, PROVISIONER or SERVICE statement, as a list; [] if incomplete."""
    words = line.words()
    if len(words) < 3:
        return []
    name = words[1]
    ending = _inline_terminator(words[2])
    if ending is None:
        return [DagNode(name, kind, _unquote(words[2]), _dir_option(words[3:]), None)]
    block, rest = _read_inline(name, ending, line, text, lines)
    return [DagNode(name, kind, None, _dir_option(rest), block)]


def _inline_terminator(word: str) -> bytes | None:
    """Return the word that ends the inline description that *word* begins; None if *word* is a file name."""
    if word.startswith("{"):
        return b"}"
    return b"@" + word[2:].encode("utf-8", "surrogateescape") if word.startswith("@=") else None


def _read_inline(
    name: str, ending: bytes, line: _DagLine, text: bytes, lines: _DagLineReader
) -> tuple[bytes, Sequence[str]]:
    """Return the inline description after *line*, and the words after the word that ends it."""
    if ending == b"@":
        raise SubmitFileError(
            f"node {name}: write a word after @=; the line @WORD then ends the inline description"
        )
    while physical := lines.read_physical():
        start, end, bare = physical
        if bare == ending or bare.startswith((ending + b" ", ending + b"\t")):
            return text[line.end : start], _DagLine(start, end, as_text(bare[len(ending) :])).words()
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
    at = {"SPLICE": 2, "SUBDAG": 3, "INCLUDE": 1}[command]
    if len(words) <= at or (command == "SUBDAG" and words[1].upper() != "EXTERNAL"):
        return None
    name = None if command == "INCLUDE" else words[at - 1]
    before, file, options = words[:at], _unquote(words[at]), words[at + 1 :]
    return DagReference(before, options, name, file, _dir_option(options), line.start, line.end)


def _dir_option(words: Sequence[str]) -> str:
    """Return the folder after the word DIR in *words*; empty without DIR."""
    for word, following in pairwise(words):
        if word.upper() == "DIR":
            return _unquote(following)
    return ""
