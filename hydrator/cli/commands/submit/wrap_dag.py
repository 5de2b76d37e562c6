"""Copies of a DAG and of all it brings in, each node with its datasets: DAGMan reads them while it runs."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from hydrator.cli.output.new_files import write_all_new
from hydrator.submit.dag_file import Dag, dag_with_datasets, read_dag
from hydrator.submit.submit_file import Filtered, SubmitFileError

from .wrap import Bad, DagNodes, Wanted, content, for_dag, reader, tell

if TYPE_CHECKING:
    from hydrator.domain.model import Did

_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class _Branch:
    """One DAG file, and by the place of its statement each that it brings in.

    ``scope`` is what stands before its nodes' names in the whole: ``S+`` for
    those of a splice S, as DAGMan calls them, and of a sub-DAG S. ``file`` is
    how the file is named, ``path`` where it is, ``where`` what its own names count from.
    """

    file: Path
    path: Path
    where: Path
    text: bytes
    dag: Dag
    scope: str
    below: dict[int, "_Branch"] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, str]:
        """The nodes of this file, by their names in the whole: JOB, FINAL and so on."""
        return {self.scope + node.name: node.kind for node in self.dag.nodes}

    def all(self) -> Iterator["_Branch"]:
        yield self
        for branch in self.below.values():
            yield from branch.all()


@dataclass(frozen=True, slots=True)
class Copies:
    """The DAG files to submit, copies or the originals, as their user names them, and what was written."""

    files: list[Path]
    written: list[Path]


def copied(
    files: Sequence[Path],
    wanted: Wanted,
    *,
    beside: bool,
    look: "Callable[[Mapping[str, Sequence[Did]]], None]",
) -> Copies:
    """Write copies of *files* and of all they bring in, with datasets; those where nothing is added stay.

    A copy that exists is never changed, since a DAG in the queue may read it still: one with the same content
    is used again, so that DAGMan finds its rescue file; else all copies get the first number that is free.
    Nodes of several files have names with the file's number, as in DAGMan: ``0.A``, ``1.A``.
    *beside*: files it names count from its own folder, not from where the command is run.
    *look* gets the datasets by node, before anything is written; it may refuse them.

    Raises:
        Bad: a file cannot be read or written, a node is not there, a list of datasets is malformed.
    """
    several = len(files) > 1
    try:
        roots = [
            _branch(
                file,
                file.absolute().parent if beside else Path.cwd(),
                f"{number}." if several else "",
                (),
            )
            for number, file in enumerate(files)
        ]
        branches = [branch for root in roots for branch in root.all()]
        kinds = {name: kind for branch in branches for name, kind in branch.kinds.items()}
        nodes = DagNodes(kinds, numbered=several)
        dids, lines = wanted.for_nodes(nodes), wanted.gpu_lines(nodes)
        filled = [_filled(root, wanted, dids, lines) for root in roots]
        look({node: called for one in filled for node, called in one.by_node() if called})
        copies, notes = _first_free(filled)
    except SubmitFileError as bad:
        raise Bad(str(bad)) from bad
    for filtered in notes:
        tell(filtered)
    has_some = any(node.has_datasets or node.unsure for branch in branches for node in branch.dag.nodes)
    if copies.files == list(files) and not wanted.asked and not has_some:
        named = ", ".join(map(str, files))
        raise Bad(f"{named}: which datasets? give --datasets, --datasets-file or --from-inputs")
    return copies


def _first_free(filled: "Sequence[_Filled]") -> tuple[Copies, "list[Filtered]"]:
    """Write the copies under the first number under which none is there with another content."""
    for number in count(1):
        texts: dict[Path, bytes] = {}
        made = [_copy(one, number, texts) for one in filled]
        files = [copy or one.branch.file for (copy, _), one in zip(made, filled, strict=True)]
        written = _written(texts)
        if written is not None:
            if number > 1:
                named = ", ".join(str(copy) for copy, _ in made if copy)
                print(
                    f"hydrator: submitting {named}: earlier copies have other content and stay",
                    file=sys.stderr,
                )
            return Copies(files, written), [note for _, notes in made for note in notes]
    raise AssertionError("count has no end")


def _written(texts: dict[Path, bytes]) -> list[Path] | None:
    """Write *texts*; None where one of the names is taken."""
    try:
        return write_all_new(texts)
    except OSError as error:
        place = error.filename or next(iter(texts))
        raise Bad(f"cannot write {place}: {error.strerror}: it must stand beside the original", 1) from error


def _branch(file: Path, where: Path, scope: str, above: Sequence[Path]) -> _Branch:
    path = (where if above else Path.cwd()) / file
    if path.resolve() in above or len(above) > _DEEPEST:
        raise Bad(f"{file}: the DAG brings itself in again, by way of {above[-1].name}")
    text = content(path)
    branch = _Branch(file, path, where, text, read_dag(text, reader(where)), scope)
    for outside in branch.dag.elsewhere:
        inner = scope if outside.name is None else f"{scope}{outside.name}+"
        there = where / outside.folder
        branch.below[outside.start] = _branch(Path(outside.file), there, inner, [*above, path.resolve()])
    return branch


@dataclass(frozen=True, slots=True)
class _Filled:
    """A DAG file with what its nodes get, by their own names: datasets and more lines."""

    branch: _Branch
    dids: "dict[str, list[Did]]"
    lines: dict[str, Sequence[str]]
    below: "dict[int, _Filled]"

    def by_node(self) -> "Iterator[tuple[str, list[Did]]]":
        """The datasets by node, by its name in the whole."""
        for name, dids in self.dids.items():
            yield self.branch.scope + name, dids
        for one in self.below.values():
            yield from one.by_node()


def _filled(
    branch: _Branch, wanted: Wanted, dids: "dict[str, list[Did]]", lines: dict[str, Sequence[str]]
) -> _Filled:
    below = {start: _filled(one, wanted, dids, lines) for start, one in branch.below.items()}
    scoped = {node.name: branch.scope + node.name for node in branch.dag.nodes}
    own = for_dag(
        branch.dag,
        wanted,
        reader(branch.where),
        {name: list(dids.get(full, ())) for name, full in scoped.items()},
        {str(branch.file): branch.text},
    )
    more = {name: lines[full] for name, full in scoped.items() if full in lines}
    return _Filled(branch, own, more, below)


def _copy(filled: _Filled, number: int, texts: dict[Path, bytes]) -> tuple[Path | None, list[Filtered]]:
    """Put the copies of a file and of those below into *texts*; return its name for its parent, and notes."""
    inner, found = {}, []
    for start, below in filled.below.items():
        copy, those = _copy(below, number, texts)
        found += those
        if copy is not None:
            inner[start] = str(copy)
    branch = filled.branch
    filtered = dag_with_datasets(
        branch.text, filled.dids, branch.dag, str(branch.file), more=filled.lines, copies=inner
    )
    found.append(filtered)
    if filtered.text == branch.text:
        return None, found
    # one file may be spliced twice, with other datasets
    scope = re.sub(r"[^\w.-]", "-", branch.scope.rstrip("+."))
    parts = (branch.file.name.removesuffix(".dag"), scope, str(number) if number > 1 else "")
    name = ".".join(part for part in (*parts, "hydrator", "dag") if part)
    texts[branch.path.with_name(name)] = filtered.text
    return branch.file.with_name(name), found
