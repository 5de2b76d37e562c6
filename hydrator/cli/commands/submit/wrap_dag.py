"""Copies of a DAG and of all it brings in, each node with its datasets: DAGMan reads them while it runs."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from hydrator.cli.commands.submit.dataset_options import (
    DagNodes,
    DatasetOptions,
    ExitWithMessage,
    build_reader,
    collect_dag_datasets,
    print_notes,
    read_input_file,
)
from hydrator.cli.output.new_files import write_new_files
from hydrator.submit.dag_file import Dag, add_datasets_to_dag, read_dag
from hydrator.submit.submit_file import FilterResult, SubmitFileError

if TYPE_CHECKING:
    from hydrator.domain.model import Did

_MAX_DEPTH = 50


@dataclass(frozen=True, slots=True)
class _DagTree:
    """One DAG file, and by the place of its statement each that it brings in.

    ``scope`` is what stands before its nodes' names in the whole: ``S+`` for
    those of a splice S, as DAGMan calls them, and of a sub-DAG S. ``file`` is
    how the file is named, ``path`` where it is, ``where`` what its own names count from.
    """

    file: Path
    path: Path
    base_folder: Path
    text: bytes
    dag: Dag
    scope: str
    children: dict[int, "_DagTree"] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, str]:
        """The nodes of this file, by their names in the whole: JOB, FINAL and so on."""
        return {self.scope + node.name: node.kind for node in self.dag.nodes}

    def walk(self) -> Iterator["_DagTree"]:
        yield self
        for branch in self.children.values():
            yield from branch.walk()


@dataclass(frozen=True, slots=True)
class DagCopies:
    """The DAG files to submit, copies or the originals, as their user names them, and what was written."""

    files: list[Path]
    new_files: list[Path]


def write_copies(
    files: Sequence[Path],
    options: DatasetOptions,
    *,
    should_use_dag_folder: bool,
    check_nodes: "Callable[[Mapping[str, Sequence[Did]]], None]",
) -> DagCopies:
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
            _read_dag_tree(
                file,
                file.absolute().parent if should_use_dag_folder else Path.cwd(),
                f"{number}." if several else "",
                (),
            )
            for number, file in enumerate(files)
        ]
        branches = [branch for root in roots for branch in root.walk()]
        kinds = {name: kind for branch in branches for name, kind in branch.kinds.items()}
        nodes = DagNodes(kinds, has_file_numbers=several)
        dids, lines = options.parse_node_datasets(nodes), options.gpu_lines(nodes)
        filled = [_collect_additions(root, options, dids, lines) for root in roots]
        check_nodes({node: called for one in filled for node, called in one.datasets_by_node() if called})
        copies, notes = _write_numbered_copies(filled)
    except SubmitFileError as bad:
        raise ExitWithMessage(str(bad)) from bad
    for filtered in notes:
        print_notes(filtered)
    has_some = any(node.has_datasets or node.uncertainty for branch in branches for node in branch.dag.nodes)
    if copies.files == list(files) and not options.has_options and not has_some:
        named = ", ".join(map(str, files))
        raise ExitWithMessage(f"{named}: which datasets? give --datasets, --datasets-file or --from-inputs")
    return copies


def _write_numbered_copies(dags: "Sequence[_DagAdditions]") -> tuple[DagCopies, "list[FilterResult]"]:
    """Write the copies under the first number under which none is there with another content."""
    for number in count(1):
        texts: dict[Path, bytes] = {}
        made = [_add_copies(one, number, texts) for one in dags]
        files = [copy or one.tree.file for (copy, _), one in zip(made, dags, strict=True)]
        written = _write_texts(texts)
        if written is not None:
            if number > 1:
                named = ", ".join(str(copy) for copy, _ in made if copy)
                print(
                    f"hydrator: submitting {named}: earlier copies have other content and stay",
                    file=sys.stderr,
                )
            return DagCopies(files, written), [note for _, notes in made for note in notes]
    raise AssertionError("count has no end")


def _write_texts(texts: dict[Path, bytes]) -> list[Path] | None:
    """Write *texts*; None where one of the names is taken."""
    try:
        return write_new_files(texts)
    except OSError as error:
        place = error.filename or next(iter(texts))
        raise ExitWithMessage(
            f"cannot write {place}: {error.strerror}: it must stand beside the original", 1
        ) from error


def _read_dag_tree(file: Path, base_folder: Path, scope: str, ancestors: Sequence[Path]) -> _DagTree:
    path = (base_folder if ancestors else Path.cwd()) / file
    if path.resolve() in ancestors or len(ancestors) > _MAX_DEPTH:
        raise ExitWithMessage(f"{file}: the DAG brings itself in again, by way of {ancestors[-1].name}")
    text = read_input_file(path)
    branch = _DagTree(file, path, base_folder, text, read_dag(text, build_reader(base_folder)), scope)
    for outside in branch.dag.references:
        inner = scope if outside.name is None else f"{scope}{outside.name}+"
        there = base_folder / outside.folder
        branch.children[outside.start] = _read_dag_tree(
            Path(outside.file), there, inner, [*ancestors, path.resolve()]
        )
    return branch


@dataclass(frozen=True, slots=True)
class _DagAdditions:
    """A DAG file with what its nodes get, by their own names: datasets and more lines."""

    tree: _DagTree
    dids: "dict[str, list[Did]]"
    lines: dict[str, Sequence[str]]
    children: "dict[int, _DagAdditions]"

    def datasets_by_node(self) -> "Iterator[tuple[str, list[Did]]]":
        """The datasets by node, by its name in the whole."""
        for name, dids in self.dids.items():
            yield self.tree.scope + name, dids
        for one in self.children.values():
            yield from one.datasets_by_node()


def _collect_additions(
    tree: _DagTree, options: DatasetOptions, dids: "dict[str, list[Did]]", lines: dict[str, Sequence[str]]
) -> _DagAdditions:
    below = {start: _collect_additions(one, options, dids, lines) for start, one in tree.children.items()}
    scoped = {node.name: tree.scope + node.name for node in tree.dag.nodes}
    own = collect_dag_datasets(
        tree.dag,
        options,
        build_reader(tree.base_folder),
        {name: list(dids.get(full, ())) for name, full in scoped.items()},
        {str(tree.file): tree.text},
    )
    more = {name: lines[full] for name, full in scoped.items() if full in lines}
    return _DagAdditions(tree, own, more, below)


def _add_copies(
    additions: _DagAdditions, number: int, texts: dict[Path, bytes]
) -> tuple[Path | None, list[FilterResult]]:
    """Put the copies of a file and of those below into *texts*; return its name for its parent, and notes."""
    inner, found = {}, []
    for start, below in additions.children.items():
        copy, those = _add_copies(below, number, texts)
        found += those
        if copy is not None:
            inner[start] = str(copy)
    branch = additions.tree
    filtered = add_datasets_to_dag(
        branch.text, additions.dids, branch.dag, str(branch.file), extra_lines=additions.lines, copies=inner
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
