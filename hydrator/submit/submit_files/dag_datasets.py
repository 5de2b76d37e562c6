"""Datasets of DAG files: add ``RequiredDatasets`` to each node; every other byte stays unchanged.

Pure: bytes in, bytes out, as for submit descriptions (datasets.py). A DAG may refer to other DAG files. After
SPLICE and INCLUDE the nodes of the other file are nodes of this DAG; after SUBDAG EXTERNAL a second DAGMan
submits them. To change the other files too, a caller writes changed copies and passes the names of the copies
to :func:`add_datasets_to_dag`.
"""

from collections.abc import Mapping, Sequence

from hydrator.domain.classad import string_literal
from hydrator.domain.model import Did

from .dag import Dag, DagNode
from .datasets import FilterResult, dids_literal
from .description import ATTRIBUTE, SubmitFileError, line_ending


def add_datasets_to_dag(
    text: bytes,
    datasets_by_node: Mapping[str, Sequence[Did]],
    dag: Dag,
    origin: str,
    *,
    extra_lines: Mapping[str, Sequence[str]] | None = None,
    copies: Mapping[int, str] | None = None,
) -> FilterResult:
    """Add a VARS line at the end of *text*, a DAG file, for each node that has no datasets yet.

    The nodes' submit descriptions stay unchanged, so nodes may share them.

    Args:
        text: the content of the DAG file.
        datasets_by_node: the datasets to add, by node.
        dag: the result of :func:`read_dag` for *text*.
        origin: the file's name, for messages.
        extra_lines: for each node, lines that ``VARS … APPEND`` adds at the end of its submit description.
        copies: the name of the changed copy for each reference to another DAG file, by
            ``DagReference.start``. None if the caller changes no other DAG files; notes then name these
            files.
    """
    end = line_ending(text)
    lines: list[str] = []
    notes: list[str] = []
    for node in dag.nodes:
        new_lines, note = _list_line(node, datasets_by_node.get(node.name, ()), origin)
        lines += new_lines
        notes += [note] if note else []
        settings = (line.partition(" = ") for line in (extra_lines or {}).get(node.name, ()))
        lines += [_vars_line(node.name, name, value, "APPEND ") for name, _, value in settings]
    for reference in dag.references if copies is None else ():
        notes.append(
            f"{origin}: {reference.statement}: the nodes of that file stay unchanged: filter that file too"
        )
    first_end = end if lines and text and not text.endswith(b"\n") else b""
    addition = first_end + b"".join(line.encode() + end for line in lines)
    new_text = _replace_file_names(text, dag, copies or {})
    return FilterResult(new_text + addition, tuple(notes), addition, len(text))


def _list_line(node: DagNode, dids: Sequence[Did], origin: str) -> tuple[list[str], str]:
    """Return the VARS line with the datasets for *node* ([] if *node* stays unchanged), and a note."""
    if node.has_datasets:
        return [], f"{origin}: node {node.name} has {ATTRIBUTE} already: the node stays unchanged"
    if not dids:
        return [], f"{origin}: no dataset is known for node {node.name}: the node stays unchanged"
    if not node.uncertainty:
        return [_vars_line(node.name, f"+{ATTRIBUTE}", dids_literal(dids))], ""
    note = (
        f"{origin}: node {node.name} may set {ATTRIBUTE} itself ({node.uncertainty}):"
        " if it does, that list replaces the new list"
    )
    # VARS with PREPEND comes first, so the submit description can override it
    return [_vars_line(node.name, f"+{ATTRIBUTE}", dids_literal(dids), "PREPEND ")], note


def _vars_line(node: str, name: str, value: str, modifier: str = "") -> str:
    return f"VARS {node} {modifier}{name}={string_literal(value)}"


def _replace_file_names(text: bytes, dag: Dag, copies: Mapping[int, str]) -> bytes:
    """Return *text* with the names of *copies* in place of the names of the other DAG files."""
    for reference in sorted(dag.references, key=lambda one: -one.start):
        if reference.start in copies:
            start, end = reference.file_span
            text = text[:start] + _quote_file_name(copies[reference.start]) + text[end:]
    return text


def _quote_file_name(name: str) -> bytes:
    """Return the file name *name* as a DAG file needs it: in double quotes if it has blanks.

    Raises:
        SubmitFileError: *name* has a quote, a backslash or a line break, and DAG files have no escapes.
    """
    if '"' in name or "\\" in name or "\n" in name:
        raise SubmitFileError(
            f"{name}: a DAG file cannot contain this file name: remove its quotes and backslashes"
        )
    blank = any(letter in name for letter in " \t'")
    return (f'"{name}"' if blank else name).encode("utf-8", "surrogateescape")
