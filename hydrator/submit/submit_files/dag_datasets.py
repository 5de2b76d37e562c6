"""Datasets of DAG files: add ``RequiredDatasets`` to each node; the other statements stay unchanged.

Pure: bytes in, bytes out, as for submit descriptions (datasets.py). A DAG may refer to other DAG files. After
SPLICE and INCLUDE the nodes of the other file are nodes of this DAG; after SUBDAG EXTERNAL a second DAGMan
submits them. To change the other files too, a caller writes changed copies and passes the names of the copies
to :func:`add_datasets_to_dag`.
"""

from collections.abc import Mapping, Sequence

from hydrator.domain.ads.classad import string_literal
from hydrator.domain.model import Did

from .dag import Dag, DagNode
from .datasets import (
    LEFT_TO_SCHEDD,
    FilterResult,
    dids_literal,
    key_of_own_list,
    own_list_note,
    own_lists,
    unread_note,
)
from .description import ATTRIBUTE, Description, SubmitFileError, line_ending
from .keys import KeyLines, key_lines


def add_datasets_to_dag(
    text: bytes,
    datasets_by_node: Mapping[str, Sequence[Did]],
    dag: Dag,
    descriptions: Mapping[str, Description],
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
        descriptions: the submit description of each node, by the node's name.
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
        new_lines, new_notes = _list_lines(
            node, descriptions[node.name], datasets_by_node.get(node.name, ()), origin
        )
        lines += new_lines
        notes += new_notes
        lines += [_append(node, line) for line in (extra_lines or {}).get(node.name, ())]
    for reference in dag.references if copies is None else ():
        notes.append(
            f"{origin}: {reference.statement}: the nodes of that file stay unchanged: filter that file too"
        )
    first_end = end if lines and text and not text.endswith(b"\n") else b""
    addition = first_end + b"".join(line.encode() + end for line in lines)
    new_text = _replace_file_names(text, dag, copies or {})
    return FilterResult(
        new_text + addition,
        tuple(notes),
        may_name_datasets=any(one.unread or one.dataset_list is not None for one in descriptions.values()),
    )


def _list_lines(
    node: DagNode, description: Description, dids: Sequence[Did], origin: str
) -> tuple[list[str], list[str]]:
    """Return the VARS lines with the list and the key for *node* ([] if it stays unchanged), and notes."""
    place = f"{origin}: node {node.name}"
    if description.unread and node.has_list_in_vars:
        return [], [own_list_note(place, KeyLines(), "node")]
    if description.unread:
        # VARS with PREPEND comes first, so the submit description can override it
        lines = [_vars_line(node, f"+{ATTRIBUTE}", dids_literal(dids), "PREPEND ")] if dids else []
        return lines, [unread_note(place, description, has_new_list=bool(dids))]
    if description.dataset_list is not None:
        key, why = key_of_own_list(description, own_lists(description), can_change_items=False)
        notes = [own_list_note(place, key, "node")]
        notes += [f"{place}: {LEFT_TO_SCHEDD}: {why}"] if why else []
        return [_append(node, line) for line in key.lines], notes
    if not dids:
        return [], [f"{origin}: no dataset is known for node {node.name}: the node stays unchanged"]
    names = sorted(set(dids))
    lines = [_vars_line(node, f"+{ATTRIBUTE}", dids_literal(names))]
    return lines + [_append(node, line) for line in key_lines([names], names).lines], []


def _append(node: DagNode, line: str) -> str:
    """Return the VARS line for the line NAME = VALUE, which comes after the node's submit description."""
    name, _, value = line.partition(" = ")
    return _vars_line(node, name, value, "APPEND ")


def _vars_line(node: DagNode, name: str, value: str, modifier: str = "") -> str:
    return f"VARS {node.name} {modifier}{name}={string_literal(value)}"


def _replace_file_names(text: bytes, dag: Dag, copies: Mapping[int, str]) -> bytes:
    """Return *text* with the names of *copies* in place of the names of the other DAG files."""
    for reference in sorted(dag.references, key=lambda one: -one.start):
        if reference.start in copies:
            words = list(reference.words)
            words[reference.file_index] = _quote_file_name(copies[reference.start])
            line = " ".join(words).encode("utf-8", "surrogateescape") + line_ending(text)
            text = text[: reference.start] + line + text[reference.end :]
    return text


def _quote_file_name(name: str) -> str:
    """Return the file name *name* as a DAG file needs it: in double quotes if it has blanks.

    Raises:
        SubmitFileError: *name* has a quote, a backslash or a line break, and DAG files have no escapes.
    """
    if '"' in name or "\\" in name or "\n" in name:
        raise SubmitFileError(
            f"{name}: a DAG file cannot contain this file name: remove its quotes and backslashes"
        )
    blank = any(letter in name for letter in " \t'")
    return f'"{name}"' if blank else name
