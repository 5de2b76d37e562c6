"""DAG files with ``RequiredDatasets`` for each node added, every other byte as it was.

Bytes in, bytes out, as for submit descriptions (submitfile.py). A DAG may
bring in others: by SPLICE and INCLUDE their nodes become its own, by SUBDAG
EXTERNAL they are submitted by a DAGMan of their own. Whoever follows them
writes copies, and gives their names to :func:`dag_with_datasets`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .model import Did
from .submitfile import (
    ATTRIBUTE,
    Filtered,
    Read,
    already_there,
    as_text,
    list_literal,
    newline,
    read_description,
    statements,
)


@dataclass(frozen=True, slots=True)
class Node:
    """A JOB of a DAG: its submit description, as text or as a file's name; its VARS; has it datasets yet."""

    name: str
    file: str | None
    inline: bytes | None
    variables: Mapping[str, str]
    has_datasets: bool


@dataclass(frozen=True, slots=True)
class Outside:
    """Another DAG file that one brings in, by the statement from byte ``start`` to ``end``.

    ``name`` is that of the splice or the sub-DAG, None for an INCLUDE;
    ``folder`` its DIR, from which ``file`` and all that it names count.
    """

    said: str
    name: str | None
    file: str
    folder: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Dag:
    """What a DAG file says: its nodes in order, and what it leaves to other files."""

    nodes: tuple[Node, ...]
    elsewhere: tuple[Outside, ...]


_DAG_WORDS = (
    *("job", "parent", "splice", "subdag", "final", "provisioner", "service", "submit-description", "script"),
    *("vars", "retry", "include", "config", "dot", "priority", "category", "maxjobs", "abort-dag-on"),
    *("node_status_file", "jobstate_log", "set_job_attr", "env", "connect", "pin_in", "pin_out", "reject"),
)
_VARS_PAIR = re.compile(r'([+\w.-]+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def is_dag(text: bytes) -> bool:
    """Is *text* a DAG file, not a submit description, by its first statement?"""
    for statement in statements(text):
        words = statement.text.split()
        if words:
            return words[0].lower().decode("latin-1") in _DAG_WORDS and words[1:2] != [b"="]
    return False


def has_attribute(text: bytes, read: Read) -> bool:
    """Does *text*, a submit description or a DAG with one of its nodes, say RequiredDatasets?"""
    if is_dag(text):
        return any(node.has_datasets for node in read_dag(text, read).nodes)
    return already_there(read_description(text), read)


def read_dag(text: bytes, read: Read) -> Dag:
    """Read the nodes of the DAG file *text*; the files they name through *read*."""
    shared: dict[str, bytes] = {}
    jobs: list[tuple[str, str, str, bytes | None]] = []
    variables: dict[str, dict[str, str]] = {}
    elsewhere = []
    open_block: tuple[str, str, int] | None = None
    for statement in statements(text):
        words = as_text(statement.text).split()
        first = words[0].lower() if words else ""
        if open_block:
            if first == "}":
                kind, name, start = open_block
                block = text[start : statement.start]
                if kind == "job":
                    jobs.append((name, "", "", block))
                else:
                    shared[name] = block
                open_block = None
            continue
        if first in ("job", "submit-description") and len(words) >= 3 and words[2] == "{":
            open_block = (first, words[1], statement.end)
        elif first == "job" and len(words) >= 3:
            jobs.append((words[1], words[2], _folder(words[3:]), None))
        elif first == "vars" and len(words) >= 3:
            pairs = dict(_VARS_PAIR.findall(as_text(statement.text).split(None, 2)[2]))
            variables.setdefault(words[1], {}).update(pairs)
        elif outside := _outside(words, statement.start, statement.end):
            elsewhere.append(outside)
    return Dag(tuple(_node(job, variables, shared, read) for job in jobs), tuple(elsewhere))


def _outside(words: Sequence[str], start: int, end: int) -> Outside | None:
    """The statement *words* where it brings in another DAG file."""
    match [word.upper() for word in words[:2]]:
        case ["SPLICE", _] if len(words) >= 3:
            name, file, rest = words[1], words[2], words[3:]
        case ["SUBDAG", "EXTERNAL"] if len(words) >= 4:
            name, file, rest = words[2], words[3], words[4:]
        case ["INCLUDE", _]:
            return Outside(" ".join(words[:2]), None, words[1], "", start, end)
        case _:
            return None
    return Outside(" ".join(words[:4]), name, file, _folder(rest), start, end)


def _folder(words: Sequence[str]) -> str:
    """What follows DIR among *words*; empty where nothing does."""
    upper = [word.upper() for word in words]
    at = upper.index("DIR") + 1 if "DIR" in upper else len(words)
    return words[at] if at < len(words) else ""


def _node(
    job: tuple[str, str, str, bytes | None],
    variables: Mapping[str, Mapping[str, str]],
    shared: Mapping[str, bytes],
    read: Read,
) -> Node:
    name, file, folder, inline = job
    content = inline if inline is not None else shared.get(file)
    path = f"{folder.rstrip('/')}/{file}" if folder and not file.startswith("/") else file
    if content is None:
        content = read(path)
    own = {**variables.get("ALL_NODES", {}), **variables.get(name, {})}
    given = {key.lower().removeprefix("my.").lstrip("+") for key in own if key[:1] == "+" or "." in key}
    there = ATTRIBUTE.lower() in given or (
        content is not None and already_there(read_description(content), read)
    )
    plain = {key.lower(): _unescaped(value) for key, value in own.items() if key[:1] != "+"}
    return Node(name, path if inline is None else None, content, plain, there)


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value)


def dag_with_datasets(
    text: bytes,
    wanted: Mapping[str, Sequence[Did]],
    dag: Dag,
    origin: str,
    *,
    more: Mapping[str, Sequence[str]] | None = None,
    copies: Mapping[int, str] | None = None,
) -> Filtered:
    """*text*, a DAG file, with a VARS line at its end for each node of *wanted* that has no datasets yet.

    The nodes' submit descriptions stay as they are, so nodes may share them.

    Args:
        text: the file.
        wanted: the datasets by node.
        dag: what :func:`read_dag` made of *text*.
        origin: its name, for people.
        more: by node, lines for its submit description: VARS … APPEND puts them behind its own.
        copies: by the place of a statement that brings in another DAG file (``Outside.start``), the
            name of the copy to bring in; None where nobody follows them, which a note says then.
    """
    end = newline(text)
    lines, notes = [], []
    for node in dag.nodes:
        dids = wanted.get(node.name, ())
        if node.has_datasets:
            notes.append(f"{origin}: node {node.name} has {ATTRIBUTE} already: it is left as it is")
        elif dids:
            lines.append(_vars(node.name, f"+{ATTRIBUTE}", list_literal(dids)))
        else:
            notes.append(f"{origin}: no dataset is known for node {node.name}: it is left as it is")
        for line in (more or {}).get(node.name, ()):
            name, _, value = line.partition(" = ")
            lines.append(_vars(node.name, name, value, "APPEND "))
    if copies is None:
        notes += [
            f"{origin}: {one.said}: its nodes are not looked at: filter that file" for one in dag.elsewhere
        ]
    before = end if lines and text and not text.endswith(b"\n") else b""
    added = before + b"".join(line.encode() + end for line in lines)
    return Filtered(_bringing_in(text, dag, copies or {}) + added, tuple(notes), added, len(text))


def _vars(node: str, name: str, value: str, how: str = "") -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'VARS {node} {how}{name}="{escaped}"'


def _bringing_in(text: bytes, dag: Dag, copies: Mapping[int, str]) -> bytes:
    """*text* with the names of other DAG files replaced by those of their copies; no other byte changes."""
    for outside in sorted(dag.elsewhere, key=lambda one: -one.start):
        if outside.start in copies:
            statement = text[outside.start : outside.end]
            old = outside.file.encode("utf-8", "surrogateescape")
            new = copies[outside.start].encode("utf-8", "surrogateescape")
            found = list(re.finditer(rb"(?<!\S)" + re.escape(old) + rb"(?!\S)", statement))
            place = found[1 if outside.name == outside.file else 0]
            changed = statement[: place.start()] + new + statement[place.end() :]
            text = text[: outside.start] + changed + text[outside.end :]
    return text
