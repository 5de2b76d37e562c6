"""Submit descriptions, read by HTCondor's bindings: what condor_submit would make of a text.

``htcondor2.Submit`` is the parser of condor_submit, so macros, conditions, includes and item lists have the
same values here. Two things it would do are not done: a command of the description does not run a second
time, and macros that refer to each other are not expanded, because the bindings would never end.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hydrator.domain.ads.contract import MODE, REQUIRED_DATASETS
from hydrator.domain.errors import ConfigError
from hydrator.domain.files import MAX_INPUT_BYTES, read_limited

if TYPE_CHECKING:
    import htcondor2

Row = Mapping[str, str]
"""The variables of one item of a queue statement."""
_MAX_VALUE_CHARS = 10_000_000
"""The bindings expand macros in memory, and each of forty macros may double the one before it."""
_MAX_INCLUDE_DEPTH = 10
REFUSED = "HTCondor cannot read it"
_TAGGED_ASSIGNMENT = re.compile(rb"[+.\w]+[ \t]*@=[ \t]*(\w+)\Z")
_QUEUE = re.compile(rb"queue\b(?![ \t]*=)(.*)\Z", re.DOTALL | re.IGNORECASE)
_INCLUDE = re.compile(rb"^[ \t]*(include\b([^:\n]*):([^\n]*))", re.MULTILINE | re.IGNORECASE)
_ITEM_NAMES = re.compile(
    r"(?P<count>[^,\s]+)??[ \t]*(?P<names>[A-Za-z_]\w*(?:[ \t,]+[A-Za-z_]\w*)*?)?"
    r"[ \t]*\b(?:in|from|matching(?:[ \t]+(?:files|dirs|any))?)\b[ \t]*(?P<slice>\[[-\d: ]*\])?",
    re.IGNORECASE,
)
_ARGUMENT = r"[^()]*(?:\([^()]*\)[^()]*)*"
_REFERENCE = re.compile(rf"(?<!\$)(?:\$\$)*\$(\w*)\((?=({_ARGUMENT}))")
"""A function or nothing, and its argument, in which the next reference may be."""
_MACRO = re.compile(rf"\$\w*\({_ARGUMENT}\)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_PER_JOB = frozenset(
    (
        *("process", "procid", "step", "row", "itemindex", "node", "cluster", "clusterid"),
        *("submit_file", "submit_time", "year", "month", "day"),
        # macros of DAGMan
        *("job", "retry", "failed_count", "dag_status", "dag_parent_names", "dagmanjobid", "dag_id"),
    )
)
"""Macros whose value is not known before the submission, or differs from job to job; in lower case."""


class SubmitFileError(ConfigError):
    """A submit description or DAG that the program cannot change; the text says where, and what to do."""

    def __init__(self, problem: str) -> None:
        super().__init__([problem])


class QueueStatement(NamedTuple):
    """A queue statement in a text: its first byte, and the byte after it and its items."""

    start: int
    end: int


@dataclass(eq=False)
class Description:
    """A submit description as condor_submit would read it in *folder*.

    ``queues`` has the queue statements in its text; the first one makes the first jobs. ``unread`` is the
    reason why it was not read; such a description has no values. It is ``REFUSED`` if the bindings
    cannot parse it, so condor_submit cannot either. ``has_environment``: it will be submitted with this
    environment. ``names`` are those of its commands and attributes (``my.…``), in lower case.
    """

    _submit: "htcondor2.Submit | None"
    _folder: Path
    queues: Sequence[QueueStatement] = ()
    unread: str = ""
    has_environment: bool = field(default=True, kw_only=True)
    _found: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        # now, because expand_for_jobs sets macros
        self.names = {name.lower() for name in self._submit or ()}

    def value(self, name: str) -> str | None:
        """Return the text that the description has for the command *name*, with its macros; None without."""
        return None if self._submit is None else self._submit.get(name)

    def without_macros(self, name: str) -> str:
        """Return the text of the command *name* with ``$`` in place of each macro; empty if there is none."""
        return _MACRO.sub("$", self.value(name) or "")

    @property
    def dataset_list(self) -> str | None:
        """RequiredDatasets with its macros; None if the description surely does not set it."""
        name = f"MY.{REQUIRED_DATASETS}"
        differs = self.differs_per_job(name) or self.differs_per_item(name)
        is_set = differs or self.expand(name, {}).strip().lower() not in {"", "undefined"}
        return self.value(name) if is_set else None

    @property
    def mode(self) -> str | None:
        """Its DataLocality in lower case; None for the pool's default."""
        return self.expand(f"MY.{MODE}", {}).strip().strip('"').lower() or None

    @property
    def queue_arguments(self) -> str:
        return ((self._submit and self._submit.getQArgs()) or "").strip()

    @cached_property
    def queue_form(self) -> tuple[str, tuple[str, ...], str]:
        """The count, the names of the variables of an item, and the slice; each empty without one."""
        form = _ITEM_NAMES.match(self.queue_arguments)
        if form is None:
            return "", (), ""
        names = re.split(r"[ \t,]+", form["names"]) if form["names"] else ["Item"]
        return form["count"] or "", tuple(names), form["slice"] or ""

    @property
    def item_names(self) -> tuple[str, ...]:
        return self.queue_form[1]

    @cached_property
    def rows(self) -> tuple[Row, ...] | None:
        """The items of the queue statement, one without variables if it has none; None if unknown.

        The items are unknown if a command makes them, if their file cannot be read, if an item is blank or
        has a macro in it.
        """
        if self._submit is None:
            return None
        if not self.item_names:
            return ({},)
        if self.expand_text(self.queue_arguments, {}).endswith("|"):
            return None
        try:
            with chdir(self._folder):
                rows = tuple(self._submit.itemdata() or ())
        except (ValueError, LookupError, OSError):
            return None
        if any(not isinstance(row, dict) or "$" in "".join(row.values()) for row in rows):
            return None
        return rows

    def expand(self, name: str, row: Row) -> str:
        """Return the value of the command *name* for the item *row*; empty if there is none.

        If a macro has a macro in its name, it has ``$`` for each macro: they might refer to each other.
        """
        if self._submit is None or self._submit.get(name) is None:
            return ""
        if any("$" in macro for _, macro in self._references(name)):
            return self.without_macros(name)
        for variable, item in row.items():
            self._submit[variable] = item
        try:
            text: str = self._submit.expand(name)
        except KeyError:  # its value is empty
            return ""
        return text

    def expand_text(self, text: str, row: Row) -> str:
        """Return *text* for the item *row*; a circle of macros in it is found only the first time."""
        if self._submit is not None:
            self._submit["hydrator_text"] = text
        return self.expand("hydrator_text", row)

    def differs_per_job(self, name: str) -> bool:
        """Return whether the value of *name* differs between jobs of one item, or is unknown before."""
        return self.is_unforeseeable(name) or bool(self._job_macros(name))

    def expand_for_jobs(self, name: str, row: Row) -> list[str]:
        """Return the values of *name* for two jobs of the item *row*."""
        if self._submit is None:
            return []
        texts = []
        for number in ("0", "1"):
            for macro in self._job_macros(name):
                self._submit[macro] = number
            texts.append(self.expand(name, row))
        return texts

    def is_unforeseeable(self, name: str) -> bool:
        """Return whether *name* has a random value, or one that cannot be found here."""
        references = self._references(name)
        functions = {function for function, _ in references}
        is_unknown = any(function.startswith("RANDOM") or "$" in macro for function, macro in references)
        return is_unknown or ("ENV" in functions and not self.has_environment)

    def _job_macros(self, name: str) -> set[str]:
        own = self.names | {each.lower() for each in self.item_names}
        return {macro for _, macro in self._references(name) if macro in _PER_JOB and macro not in own}

    def differs_per_item(self, name: str) -> bool:
        """Return whether the value of *name* refers to a variable of the queue statement."""
        items = {each.lower() for each in self.item_names}
        return any(macro in items for _, macro in self._references(name))

    def _references(self, name: str) -> frozenset[tuple[str, str]]:
        """Return what the value of *name* refers to, also through other macros: functions and macros.

        Raises:
            SubmitFileError: macros refer to each other in a circle, or the value is too long: condor_submit
                would never end.
        """
        if name in self._found:
            return self._found[name]
        found: set[tuple[str, str]] = set()
        sizes: dict[str, int] = {}

        def follow(macro: str, path: tuple[str, ...]) -> int:
            """Return the number of characters of *macro*, with the macros that it refers to."""
            if macro in path:
                circle = " and ".join([*path[path.index(macro) :]])
                raise SubmitFileError(
                    f"the macros {circle} refer to each other, and condor_submit would never end"
                )
            if macro in sizes:
                return sizes[macro]
            text = self.value(macro) or ""
            references = list(_find_references(text))
            found.update(references)
            sizes[macro] = len(text) + sum(follow(inner, (*path, macro)) for _, inner in references)
            if sizes[macro] > _MAX_VALUE_CHARS:
                raise SubmitFileError(f"the macro {macro} is longer than 10 MB: shorten it")
            return sizes[macro]

        follow(name.lower(), ())
        self._found[name] = frozenset(found)
        return self._found[name]


def _find_references(text: str) -> Iterator[tuple[str, str]]:
    """Yield the functions and the names of macros in *text*: ``("", "x")`` for ``$(x)``."""
    for reference in _REFERENCE.finditer(text):
        function, argument = reference[1].upper(), reference[2]
        if not function:
            yield "", argument.partition(":")[0].strip().lower()
            continue
        yield function, ""
        if function != "ENV":
            yield from (("", name.lower()) for name in _NAME.findall(argument))


def read_description(
    text: bytes,
    folder: Path,
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    queue: str | None = None,
    has_environment: bool = True,
) -> Description:
    """Read the submit description *text* as condor_submit would read it in *folder*.

    Args:
        text: the description.
        folder: file names in the description are relative to it.
        before: lines that condor_submit reads before *text*: the arguments NAME=VALUE, VARS of a DAG node.
        after: lines that it reads before the queue statement, as by ``-append``.
        queue: the arguments of a queue statement on the command line.
        has_environment: it will be submitted with this environment, so $ENV(NAME) has its value.
    """
    statements = list(_queue_statements(text))
    if command := _find_command(text, folder, _MAX_INCLUDE_DEPTH):
        return Description(None, folder, statements, f"it has {command}")
    config = os.environ.get("CONDOR_CONFIG")
    import htcondor2

    if config is None:  # without a configuration the bindings set it, and condor_submit would inherit it
        os.environ.pop("CONDOR_CONFIG", None)
    first, last = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    if queue is not None:
        last += f"queue {queue}\n"

    def submit(at: int, lines: str) -> "htcondor2.Submit":
        head, tail = (part.decode("utf-8", "replace") for part in (text[:at], text[at:]))
        return htcondor2.Submit(f"{first}{head}{'' if head.endswith(chr(10)) else chr(10)}{lines}{tail}")

    try:
        with chdir(folder):
            if len(statements) > 1:  # the first one may be in a condition that does not hold
                mark = "hydrator_mark = 1\n"
                reached = [one for one in statements if submit(one.start, mark).get("hydrator_mark")]
                statements = [*reached, *(one for one in statements if one not in reached)]
            at = statements[0].start if statements else len(text)
            return Description(submit(at, last), folder, statements, has_environment=has_environment)
    except (ValueError, OSError):
        return Description(None, folder, statements, REFUSED)


def _find_command(text: bytes, folder: Path, depth: int) -> str:
    """Return the first include of *text* that runs a command or that cannot be read here; else empty."""
    for include in _INCLUDE.finditer(text):
        name = as_text(include[3]).strip()
        is_command = re.search(rb"command|output", include[2], re.IGNORECASE) or name.endswith("|")
        is_unknown = is_command or not depth or "$" in name
        if not is_unknown and b"ifexist" in include[2].lower() and not (folder / name).exists():
            continue
        content = None if is_unknown else read_file(folder / name)
        if content is None:
            return as_text(include[1]).strip()[:80]
        if inner := _find_command(content, folder, depth - 1):
            return inner
    return ""


def _queue_statements(text: bytes) -> Iterator[QueueStatement]:
    """Yield the queue statements of *text*, none from continued lines and values of ``name @=tag``."""
    tag, skip_to = b"", 0
    for start, end, words in _logical_lines(text):
        if start < skip_to:
            continue
        if tag:
            tag = b"" if words.lower() == b"@" + tag else tag
        elif tagged := _TAGGED_ASSIGNMENT.match(words):
            tag = tagged[1].lower()
        elif queue := _QUEUE.match(words):
            skip_to = _end_of_items(text, end) if re.search(rb"\([^)]*\Z", queue[1]) else end
            yield QueueStatement(start, skip_to)


def _end_of_items(text: bytes, at: int) -> int:
    """Return the end of the line with ``)`` that ends the items which begin at byte *at*."""
    closing = re.compile(rb"^[ \t]*\)[^\n]*\n?", re.MULTILINE).search(text, at)
    return closing.end() if closing else len(text)


def _logical_lines(text: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield begin, end and words of each line, with the lines joined that a backslash continues."""
    at = 0
    while at < len(text):
        start, parts = at, []
        while at < len(text):
            line = text[at : (text.find(b"\n", at) + 1) or len(text)]
            at += len(line)
            bare = line.strip()
            is_continued = bare.endswith(b"\\") and not bare.startswith(b"#")
            parts.append(bare[:-1] if is_continued else bare)
            if not is_continued:
                break
        yield start, at, b" ".join(parts).strip()


def read_file(path: Path) -> bytes | None:
    try:
        return read_limited(path, MAX_INPUT_BYTES)
    except (OSError, ValueError):
        return None


def as_text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def line_ending(text: bytes) -> bytes:
    """Return the line ending of the first line of *text*, LF or CRLF; LF if *text* has no line ending."""
    first = text.find(b"\n")
    return b"\r\n" if first > 0 and text[first - 1 : first] == b"\r" else b"\n"
