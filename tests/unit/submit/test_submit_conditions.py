"""Submit descriptions whose datasets depend on conditions, macros and includes."""

import pytest

from hydrator.domain.model import parse_did
from hydrator.submit.submit_files.dag import has_required_datasets, read_dag
from hydrator.submit.submit_files.dag_datasets import add_datasets_to_dag
from hydrator.submit.submit_files.datasets import add_datasets, check_items, input_names

A = parse_did("lofar:a")
LINE = b'+RequiredDatasets = {"lofar:a"}\n'
DEEP = {"deep.sub": "include command : x\n", "deeper.sub": "include : gone.sub\n"}
OWN = '+RequiredDatasets = {"own:1"}\n'


def added(text: str, **files: str) -> tuple[bytes, bytes, tuple[str, ...]]:
    done = add_datasets(text.encode(), [A], "x", lambda name: files[name].encode() if name in files else None)
    return done.first_line, done.insertion, done.notes


@pytest.mark.parametrize(
    "dead",
    [
        *(f"if false\n{OWN}endif\n", f"if 0\n{OWN}endif\n", f"if true\nelse\n{OWN}endif\n"),
        *(f"if no\nif defined x\n{OWN}endif\nendif\n", f"x = no\nif $(x)\n{OWN}endif\n"),
        *(f"if true\nelif true\n{OWN}endif\n", f"if FALSE\nb = 1\nelif 0\n{OWN}endif\n"),
    ],
)
def test_datasets_in_a_false_if_block_are_ignored(dead):
    assert added(f"{dead}queue\n") == (b"", LINE, ())


@pytest.mark.parametrize(
    "live", [f"if true\n{OWN}endif\n", f"if false\nelse\n{OWN}endif\n", f"if 0\nelif yes\n{OWN}endif\n"]
)
def test_datasets_in_a_true_if_block_belong_to_the_description(live):
    first, line, notes = added(f"{live}queue\n")
    assert (first, line) == (b"", b"")
    assert notes == ("x has RequiredDatasets already: the list stays unchanged",)


@pytest.mark.parametrize(
    ("doubtful", "where"),
    [
        (f"if defined x\n{OWN}endif\n", "a condition"),
        (f"if version > 9\nelse\n{OWN}endif\n", "a condition"),
        ("if $(unknown)\n+RequiredDatasets @=t\n{}\n@t\nendif\n", "a condition"),
        ("include command : /bin/datasets\n", "include command : /bin/datasets"),
        ("include : /bin/datasets |\n", "include : /bin/datasets |"),
        ("include : $(nowhere)/common.sub\n", "include : $(nowhere)/common.sub"),
        ("include : gone.sub\n", "include : gone.sub"),
        ("include : deep.sub\n", "include command : x"),
        ("include : deeper.sub\n", "include : gone.sub"),
    ],
)
def test_datasets_under_an_unknown_condition_override_the_new_line(doubtful, where):
    first, line, notes = added(f"{doubtful}queue\n", **DEEP)
    assert (first, line) == (LINE, b"")
    assert notes == (f"x may set RequiredDatasets itself ({where}): if so, the job has the file's own list",)
    assert has_required_datasets(
        f"{doubtful}queue\n".encode(), {name: text.encode() for name, text in DEEP.items()}.get
    )


def test_include_with_a_macro_in_its_name_is_followed():
    first, line, notes = added("dir = sub\ninclude : $(dir)/common.sub\nqueue\n", **{"sub/common.sub": OWN})
    assert (first, line) == (b"", b"")
    assert "already" in notes[0]


def test_nested_include_is_followed_and_a_recursive_one_ends():
    files = {"a.sub": "include : b.sub\n", "b.sub": OWN}
    assert "already" in added("include : a.sub\nqueue\n", **files)[2][0]
    assert added("include : c.sub\nqueue\n", **{"c.sub": "include : c.sub\n"})[1] == LINE


def test_gpu_lines_come_before_the_queue_statement():
    text = b"include command : x\nqueue\n"
    done = add_datasets(text, [A], "x", lambda name: None, ["request_gpus = 1"])
    assert done.text == LINE + b"include command : x\nrequest_gpus = 1\nqueue\n"


def test_queue_statements_in_a_false_if_block_are_skipped():
    text = (
        'if false\nqueue did from (\nno did\n)\nendif\n+RequiredDatasets = {"o:$(did)"}\nqueue did in (a)\n'
    )
    check_items(text.encode(), "x", lambda name: None)
    assert added("if false\nqueue\nendif\nexecutable = x\nqueue\n")[1] == LINE


def test_inputs_in_a_false_if_block_are_ignored():
    text = b"if false\narguments = L9.ms\nelse\narguments = L1.ms\nendif\nqueue\n"
    assert input_names(text) == ["L1.ms"]


def test_node_with_an_unknown_condition_gets_prepended_vars():
    text = b"JOB A a.sub\n"
    dag = read_dag(text, {"a.sub": b"include command : x\nqueue\n"}.get)
    done = add_datasets_to_dag(text, {"A": [A]}, dag, "x.dag")
    assert done.insertion == b'VARS A PREPEND +RequiredDatasets="{\\"lofar:a\\"}"\n'
    assert "node A may set RequiredDatasets itself (include command : x)" in done.notes[0]
