"""Copies of a DAG and of all it brings in, each node with its datasets: DAGMan reads them while it runs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..dagfile import Dag, dag_with_datasets, read_dag
from ..submitfile import SubmitFileError
from .wrap import Bad, Wanted, content, for_dag, reader, tell, write

if TYPE_CHECKING:
    from ..model import Did

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
    def names(self) -> list[str]:
        """The nodes of this file, by their names in the whole."""
        return [self.scope + node.name for node in self.dag.nodes]

    def all(self) -> Iterator["_Branch"]:
        yield self
        for branch in self.below.values():
            yield from branch.all()


def copied(file: Path, wanted: Wanted, *, beside: bool) -> Path | None:
    """The copy of *file* to submit, written with those of all it brings in; None where nothing is added.

    *beside*: files it names count from its own folder, not from where the command is run.

    Raises:
        Bad: a file cannot be read or written, a node is not there, a list of datasets is malformed.
    """
    where = file.absolute().parent if beside else Path.cwd()
    try:
        root = _branch(file, where, "", ())
        names = [name for branch in root.all() for name in branch.names]
        dids, lines = wanted.for_nodes(names), wanted.gpu_lines(names)
        copy = _copy(root, wanted, dids, lines)
    except SubmitFileError as bad:
        raise Bad(str(bad)) from bad
    if copy is None and not wanted.asked and not any(n.has_datasets for b in root.all() for n in b.dag.nodes):
        raise Bad(f"{file}: which datasets? give --datasets, --datasets-file or --from-inputs")
    return copy


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


def _copy(
    branch: _Branch, wanted: Wanted, dids: "dict[str, list[Did]]", lines: dict[str, Sequence[str]]
) -> Path | None:
    """Write the copy of one file, after those of what it brings in; its name as its parent says it."""
    copies = {start: _copy(below, wanted, dids, lines) for start, below in branch.below.items()}
    inner = {start: str(copy) for start, copy in copies.items() if copy is not None}
    scoped = {node.name: branch.scope + node.name for node in branch.dag.nodes}
    own = for_dag(
        branch.dag,
        wanted,
        reader(branch.where),
        {name: list(dids.get(full, ())) for name, full in scoped.items()},
        {str(branch.file): branch.text},
    )
    more = {name: lines[full] for name, full in scoped.items() if full in lines}
    filtered = dag_with_datasets(branch.text, own, branch.dag, str(branch.file), more=more, copies=inner)
    tell(filtered)
    if filtered.text == branch.text:
        return None
    # one file may be spliced twice, with other datasets
    scope = re.sub(r"[^\w.-]", "-", branch.scope.rstrip("+"))
    name = ".".join(
        part for part in (branch.file.name.removesuffix(".dag"), scope, "hydrator", "dag") if part
    )
    write(branch.path.with_name(name), filtered.text)
    return branch.file.with_name(name)
