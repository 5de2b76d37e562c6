"""Copies of DAG files, and of their splices and sub-DAGs, with datasets added.

DAGMan reads the copies while the DAG is in the queue.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from hydrator.cli.commands.submit.dataset_options import (
    DagNodes,
    DatasetOptions,
    find_input_datasets,
    read_input_file,
)
from hydrator.cli.output.new_files import write_new_files
from hydrator.cli.output.printing import print_problems
from hydrator.domain.errors import HydratorError
from hydrator.domain.model import Did
from hydrator.submit.outlook import JobsOfSet
from hydrator.submit.submit_files.dag import Dag, DagNode, is_dag, read_dag, read_node
from hydrator.submit.submit_files.datasets import FilterResult, add_datasets_to_dag, check_lists
from hydrator.submit.submit_files.description import Description, SubmitFileError

_MAX_DEPTH = 50


@dataclass(frozen=True, slots=True)
class DagTree:
    """One DAG file; ``children`` has its splices and sub-DAGs, by the byte in ``text`` that refers to them.

    ``scope`` is the prefix of the node names: ``S+`` for a splice S, as in DAGMan, and for a sub-DAG S.
    ``file`` is the name of the DAG file, ``path`` its path. File names in the DAG are relative to
    ``base_folder``.
    """

    file: Path
    path: Path
    base_folder: Path
    text: bytes
    dag: Dag
    scope: str
    children: dict[int, "DagTree"] = field(default_factory=dict)
    descriptions: dict[str, Description] = field(default_factory=dict)
    """The submit descriptions, by node name without ``scope``."""
    datasets: dict[str, list[Did]] = field(default_factory=dict)
    """By node name without ``scope``, the datasets to add."""

    def add_datasets(
        self, lines: Mapping[str, Sequence[str]], copies: Mapping[int, str] | None = None
    ) -> FilterResult:
        """Add the datasets to the DAG, and *lines*, which are by full node name; for *copies* see there."""
        own_lines = {node.name: lines.get(self.scope + node.name, ()) for node in self.dag.nodes}
        return add_datasets_to_dag(
            self.text,
            self.datasets,
            self.dag,
            self.descriptions,
            str(self.file),
            extra_lines=own_lines,
            copies=copies,
        )

    def walk(self) -> Iterator["DagTree"]:
        yield self
        for branch in self.children.values():
            yield from branch.walk()


def read_datasets(roots: Sequence[DagTree], options: DatasetOptions) -> Mapping[str, Sequence[str]]:
    """Set the submit descriptions and the datasets of all nodes; return further lines by full node name."""
    branches = [branch for root in roots for branch in root.walk()]
    kinds = {branch.scope + node.name: node.kind for branch in branches for node in branch.dag.nodes}
    nodes = DagNodes(kinds, has_file_numbers=len(roots) > 1)
    dids, lines = options.parse_node_datasets(nodes), options.gpu_lines(nodes)
    for root in roots:
        _read_nodes(list(root.walk()), options, dids)
    descriptions = [one for branch in branches for one in branch.descriptions.values()]
    options.require_datasets(", ".join(str(root.file) for root in roots), descriptions)
    return lines


def jobs_of_nodes(roots: Sequence[DagTree]) -> list[JobsOfSet]:
    """Return the jobs of the nodes that get datasets."""
    return [
        JobsOfSet(tuple(sorted(set(dids))), 1, "node", branch.scope + name)
        for root in roots
        for branch in root.walk()
        for name, dids in branch.datasets.items()
        if dids
    ]


def write_copies(
    roots: Sequence[DagTree], lines: Mapping[str, Sequence[str]]
) -> tuple[list[Path], list[Path]]:
    """Copy *roots*, and the files that they refer to, with datasets added; do not copy an unchanged file.

    An existing copy never changes, because a DAG in the queue may still read it. If a copy has the
    right content already, DAGMan gets this copy and finds its rescue file. Otherwise all copies get the first
    free number.

    Args:
        roots: the DAG files, with the datasets of their nodes.
        lines: further lines by full node name, from :func:`read_datasets`.

    Returns:
        The DAG files to submit, each a copy or the original, and the copies just made.

    Raises:
        HydratorError: a copy cannot be written.
    """
    for number in count(1):
        texts: dict[Path, bytes] = {}
        results = [_add_copies(root, lines, number, texts) for root in roots]
        files = [copy or root.file for (copy, _), root in zip(results, roots, strict=True)]
        new_files = _write_texts(texts)
        if new_files is not None:
            if number > 1:
                listed = ", ".join(str(copy) for copy, _ in results if copy)
                why = "the copies of the DAG with a lower number have other content and stay unchanged"
                print_problems(f"submitting {listed}: {why}")
            print_problems(*(note for _, parts in results for part in parts for note in part.notes))
            return files, new_files
    raise AssertionError("itertools.count never ends")


def _write_texts(texts: dict[Path, bytes]) -> list[Path] | None:
    """Write *texts* to files; return None if one of these files exists with other content."""
    try:
        return write_new_files(texts)
    except OSError as error:
        place = error.filename or next(iter(texts))
        where = "a copy of a DAG must be in the folder of the original"
        raise HydratorError(f"cannot write {place}: {error.strerror}: {where}") from error


def read_dag_trees(files: Sequence[Path], should_use_dag_folder: bool) -> list[DagTree]:
    """Read the DAG *files*, and the files that they refer to.

    With several files, node names begin with the number of the file, as in DAGMan: ``0.A``, ``1.A``.

    Args:
        files: the DAG files, as the user names them.
        should_use_dag_folder: names in a DAG file are relative to the file's folder (-usedagdir).

    Raises:
        ConfigError: a file cannot be read, or is not a DAG file.
    """
    return [
        _read_dag_tree(
            file,
            file.absolute().parent if should_use_dag_folder else Path.cwd(),
            f"{number}." if len(files) > 1 else "",
            (),
        )
        for number, file in enumerate(files)
    ]


def _read_dag_tree(file: Path, base_folder: Path, scope: str, ancestors: Sequence[Path]) -> DagTree:
    path = (base_folder if ancestors else Path.cwd()) / file
    if path.resolve() in ancestors or len(ancestors) > _MAX_DEPTH:
        raise SubmitFileError(f"{file}: the DAG refers to itself through {ancestors[-1].name}")
    text = read_input_file(path)
    branch = DagTree(file, path, base_folder, text, read_dag(text), scope)
    if not (branch.dag.nodes or branch.dag.references or is_dag(text)):
        raise SubmitFileError(f"{file} is not a DAG file; a submit file is for condor_submit")
    for reference in branch.dag.references:
        inner = scope if reference.name is None else f"{scope}{reference.name}+"
        folder = base_folder / reference.folder
        is_sub_dag = reference.words[0].upper() == "SUBDAG"
        if is_sub_dag and not (folder / reference.file).exists():  # DAGMan reads it when its node starts
            later = f"{reference.statement} does not exist yet: its nodes get no datasets"
            print_problems(f"{file}: {later}")
            continue
        branch.children[reference.start] = _read_dag_tree(
            Path(reference.file), folder, inner, [*ancestors, path.resolve()]
        )
    return branch


def _read_nodes(
    branches: Sequence[DagTree], options: DatasetOptions, dids: Mapping[str, Sequence[Did]]
) -> None:
    """Set the submit descriptions and the datasets of the nodes of *branches*, which are submitted together.

    The datasets come from the input files and from *dids*, which has datasets by full node name.
    """
    for branch in branches:
        others = [other for other in branches if other is not branch]
        for node in branch.dag.nodes:
            unread = _explain_other_file(branch, node, others)
            description = branch.descriptions[node.name] = read_node(node, branch.base_folder, unread)
            own = branch.datasets[node.name] = list(dids.get(branch.scope + node.name, ()))
            origin = f"node {node.name}" + (f" ({node.file})" if node.file else "")
            check_lists(description, origin)
            if description.dataset_list is None and not description.unread:
                own += find_input_datasets(description, options, origin, list(node.variables.values()))
            options.dids.update(own)


def _explain_other_file(branch: DagTree, node: DagNode, others: Sequence[DagTree]) -> str:
    """Return the reason why another DAG file decides what *node* of *branch* submits; empty without one.

    Of two descriptions of one name, DAGMan 25 takes the one of the higher file, DAGMan 23 that of the splice.
    """
    full_name = branch.scope + node.name
    for other in others:
        name = node.description or ""
        if name in other.dag.descriptions and other.dag.descriptions[name] != node.text:
            return f"{other.file} declares another description {name}"
        owners = {"ALL_NODES", full_name.removeprefix(other.scope)}
        if full_name.startswith(other.scope) and not owners.isdisjoint(other.dag.variable_owners):
            return f"{other.file} may have VARS for it"
    return ""


def _add_copies(
    branch: DagTree, lines: Mapping[str, Sequence[str]], number: int, texts: dict[Path, bytes]
) -> tuple[Path | None, list[FilterResult]]:
    """Add the copies of *branch* and its children to *texts*.

    Return the name of the copy of *branch* (None if *branch* needs no copy), and notes for the user.
    """
    inner, notes = {}, []
    for start, below in branch.children.items():
        copy, new_notes = _add_copies(below, lines, number, texts)
        notes += new_notes
        if copy is not None:
            inner[start] = str(copy)
    filtered = branch.add_datasets(lines, inner)
    notes.append(filtered)
    if filtered.text == branch.text:
        return None, notes
    # a DAG may splice one file twice with different datasets, so the copies have the scope in their names
    scope = re.sub(r"[^\w.-]", "-", branch.scope.rstrip("+."))
    parts = (branch.file.name.removesuffix(".dag"), scope, str(number) if number > 1 else "")
    name = ".".join(part for part in (*parts, "hydrator", "dag") if part)
    texts[branch.path.with_name(name)] = filtered.text
    return branch.file.with_name(name), notes
