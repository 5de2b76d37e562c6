"""For all submit descriptions and DAGs: what was there stays, and adding twice is adding once."""

from pathlib import Path

from hypothesis import example, given, reject
from hypothesis import strategies as st

from hydrator.domain.model import Did, parse_did
from hydrator.submit.submit_files.dag import read_dag, read_node
from hydrator.submit.submit_files.datasets import FilterResult, add_datasets, add_datasets_to_dag
from hydrator.submit.submit_files.description import SubmitFileError, read_description

PIECES = [
    *(
        "executable = x",
        "arguments = $(a) \\",
        "queue",
        "Queue 3",
        "queue a from (",
        "queue b in (1, 2)",
        ")",
    ),
    *(
        "if defined x",
        "if false",
        "elif true",
        "include command : x",
        '+RequiredDatasets = {"lofar:z"}',
        "endif",
        "else",
        "# queue",
        "# c \\",
        "include : f",
        "a @=t",
        "@t",
        "",
        "  ",
        "\\",
        "=",
    ),
    *("JOB A a.sub", 'VARS A x="1"', "SUBMIT-DESCRIPTION s {", "}", "SPLICE S t.dag", "\x00", "ü", "a=\x1f"),
]
ENDS = st.sampled_from(["\n", "\r\n", ""])
LINES = st.lists(st.tuples(st.sampled_from(PIECES) | st.text(max_size=8), ENDS), max_size=12)
TEXTS = LINES.map(lambda pairs: "".join(a + b for a, b in pairs).encode("utf-8", "replace")) | st.binary(
    max_size=80
)
NAMES = st.text("abcXYZ019._:/@=+~-", min_size=1, max_size=12)
DIDS = st.lists(NAMES.map(lambda name: parse_did(f"lofar:{name}")), min_size=1, max_size=4)


def with_datasets(text: bytes, dids: list[Did]) -> FilterResult:
    try:
        return add_datasets(text, read_description(text, Path("/")), dids, "x")
    except SubmitFileError:  # the text has a malformed list of its own
        reject()


@given(TEXTS, DIDS)
def test_every_other_byte_of_a_submit_description_stays(text: bytes, dids: list[Did]):
    done = with_datasets(text, dids)
    new = [
        f"{line}{end}".encode() for line in (done.first_line, *done.lines) for end in ("\n", "\r\n") if line
    ]
    rest = done.text
    for line in new:
        rest = rest.replace(line, b"", 1)
    assert done.has_new_items or rest in (text, text + b"\n", text + b"\r\n")


@given(TEXTS, DIDS)
def test_filtering_a_submit_description_twice_is_filtering_it_once(text: bytes, dids: list[Did]):
    once = with_datasets(text, dids)
    if once.lines and not swallowed(text):
        assert with_datasets(once.text, dids).text == once.text


def swallowed(text: bytes) -> bool:
    """Does *text* end inside something that any further line belongs to?"""
    return text.rstrip(b" \t\r\n").endswith(b"\\") or b"@=" in text or b"(" in text


@given(TEXTS, DIDS)
@example(b"\x1c", [Did("lofar:0")])
def test_every_byte_of_a_dag_stays_and_filtering_it_twice_is_filtering_it_once(text: bytes, dids: list[Did]):
    def filtered(text: bytes) -> bytes:
        dag = read_dag(text)
        names = [node.name for node in dag.nodes]
        descriptions = {node.name: read_node(node, Path("/")) for node in dag.nodes}
        return add_datasets_to_dag(text, dict.fromkeys(names, dids), dag, descriptions, "x").text

    try:
        once = filtered(text)
    except SubmitFileError:
        return  # DAGMan refuses it, too
    assert once.startswith(text)
    assert filtered(once) == once
