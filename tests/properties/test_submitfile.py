"""For all submit descriptions and DAGs: what was there stays, and adding twice is adding once."""

from hypothesis import given, reject
from hypothesis import strategies as st

from hydrator.domain.model import Did, parse_did
from hydrator.submit.submit_files.dag import read_dag
from hydrator.submit.submit_files.dag_datasets import add_datasets_to_dag
from hydrator.submit.submit_files.datasets import FilterResult, add_datasets
from hydrator.submit.submit_files.description import SubmitFileError

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


def none(name: str) -> bytes | None:
    return None


def with_datasets(text: bytes, dids: list[Did]) -> FilterResult:
    try:
        return add_datasets(text, dids, "x", none)
    except SubmitFileError:  # the text has a malformed list of its own
        reject()


@given(TEXTS, DIDS)
def test_every_other_byte_of_a_submit_description_stays(text: bytes, dids: list[Did]):
    done = with_datasets(text, dids)
    assert done.text.startswith(done.first_line)
    behind = done.text[len(done.first_line) :]
    assert behind[: done.position] + behind[done.position + len(done.insertion) :] == text
    assert behind[done.position : done.position + len(done.insertion)] == done.insertion


@given(TEXTS, DIDS)
def test_filtering_a_submit_description_twice_is_filtering_it_once(text: bytes, dids: list[Did]):
    once = with_datasets(text, dids)
    if once.insertion and not swallowed(text, once.position):
        assert add_datasets(once.text, dids, "x", none).text == once.text


def swallowed(text: bytes, at: int) -> bool:
    """Does *text* end, before *at*, inside something that any further line belongs to?"""
    before = text[:at].rstrip(b" \t\r\n")
    return at == len(text) and (before.endswith(b"\\") or b"@=" in text or b"(" in text)


@given(TEXTS, DIDS)
def test_every_byte_of_a_dag_stays_and_filtering_it_twice_is_filtering_it_once(text: bytes, dids: list[Did]):
    try:
        dag = read_dag(text, none)
    except SubmitFileError:
        return  # DAGMan refuses it, too
    wanted = {node.name: dids for node in dag.nodes}
    once = add_datasets_to_dag(text, wanted, dag, "x")
    assert once.text.startswith(text)
    assert once.text[len(text) :] == once.insertion
