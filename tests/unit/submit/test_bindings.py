"""What programs that submit with HTCondor's Python bindings get, and what they are told."""

import sys
from pathlib import Path

import htcondor2
import pytest

from hydrator.domain.ads.dataset_sets import hash_key
from hydrator.domain.model import Did
from hydrator.submit.bindings import item_rows, job_attributes
from testbed.processes import run_program
from tests.pages import blocks

ROOT = Path(__file__).parents[3]
L1, L2 = Did("lofar:L1"), Did("lofar:L2")
ONE = job_attributes([L1])
TWO = job_attributes([L1, L2], mode="require")
NONE = dict.fromkeys(TWO, "undefined")
LONG = [Did(f"lofar:L667000_SAP000_SB{band:03}_uv") for band in range(9)]


def test_bindings_keep_the_attributes_of_a_job_unchanged():
    attributes = job_attributes([L2, L1, L2], "auto", 3600, 600)
    submit = htcondor2.Submit({"executable": "/bin/true", **attributes})
    assert {name: submit[name] for name in attributes} == attributes
    assert attributes == {
        "MY.RequiredDatasets": '{"lofar:L1","lofar:L2"}',
        "MY.DataLocality": '"auto"',
        "MY.DataLocalityExpectedSeconds": "3600",
        "MY.DataLocalityMaxWait": "600",
    }
    long = job_attributes(LONG)
    assert long["MY.DataLocalityKey"] == f'"{hash_key(LONG)}"'
    assert long["MY.DataLocalityKeyFor"] == f'"{",".join(LONG)}"'


def test_rows_keep_their_datasets_and_modes_and_a_row_without_stays_without():
    """Case S14 of cases/submit.md."""
    rows = [{"arguments": "none"}, {"arguments": "one", **ONE}, {"arguments": "two", **TWO}]
    expected = [NONE, NONE | ONE, NONE | TWO]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        found = list(item_rows(iter([rows[number] for number in order])))
        assert [list(row) for row in found] == [list(found[0])] * 3
        assert found == [rows[number] | expected[number] for number in order]


def test_rows_begin_with_their_attributes_because_the_bindings_drop_a_comment():
    assert [
        list(row)
        for row in item_rows([{"arguments": "#1"}, {"arguments": "#2", "MY.DataLocality": '"wait"'}])
    ] == [["MY.DataLocality", "arguments"]] * 2


def test_rows_begin_with_a_value_that_the_bindings_do_not_drop():
    assert list(next(item_rows([{"a": "#1", "b": "x"}, {"a": "y", "b": "z"}]))) == ["b", "a"]
    assert list(next(item_rows([{"MY.A": "", "b": "x"}]))) == ["b", "MY.A"]


def test_rows_have_one_spelling_of_a_name():
    rows = [{"N": "1", "My.DataLocality": '"wait"'}, {"n": "2", "MY.datalocality": '"require"'}]
    first, second = item_rows(rows)
    assert first == rows[0]
    assert second == {"N": "2", "My.DataLocality": '"require"'}


WRONG = {
    "datasets": ["lofar:L1", b"lofar:L1", None, 7, [], {}, {"lofar:L1": 1}],
    "mode": ["sometimes", "REQUIRE", "", 1, ["auto"]],
    "expected_seconds": ["1h", "3600", 0, -1, 1.0, 1.5, float("nan"), 10**30, True, [1]],
    "max_wait_seconds": ["1h", -1, 0.0, 100_000_000, False, float("inf")],
}


@pytest.mark.parametrize(("argument", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_wrong_argument_is_named_with_its_value(argument, value):
    """Case S15 of cases/submit.md."""
    with pytest.raises(ValueError, match=f"^{argument} must be .*not ") as raised:
        job_attributes(**{"datasets": [L1], argument: value})
    assert str(raised.value).endswith(repr(value))


def test_limit_of_the_wait_is_refused_where_the_mode_has_none():
    with pytest.raises(ValueError, match=r"^max_wait_seconds must be None with the mode require"):
        job_attributes([L1], "require", max_wait_seconds=60)


@pytest.mark.parametrize("name", ["L1", "lofar:*", "lofar:L1,lofar:L2", "a\nb:c", None, 7, b"lofar:L1", [L1]])
def test_wrong_dataset_is_named(name):
    with pytest.raises(ValueError, match=r"^datasets.* not ") as raised:
        job_attributes([L1, name])
    assert repr(name) in str(raised.value)
    assert "default_scope" not in str(raised.value), "bindings have none"


@pytest.mark.parametrize(
    ("rows", "place", "shown"),
    [
        (None, "rows", "None"),
        ({"n": "1"}, "rows", "{'n': '1'}"),
        ([], "rows", "[]"),
        (["a"], "rows[0]", "'a'"),
        ([{"n": "1"}, None], "rows[1]", "None"),
        ([{"n": "1"}, {1: "n"}], "rows[1]", "{1: 'n'}"),
        ([{"n": "1"}, {"n": 1}], "rows[1]['n']", "1"),
        ([{"n": "1"}, {"n": None}], "rows[1]['n']", "None"),
        ([{"n": "a\nb"}], "rows[0]['n']", r"'a\nb'"),
        ([{"n": "a\x1fb"}], "rows[0]['n']", r"'a\x1fb'"),
        ([{"n": "a\rb"}], "rows[0]['n']", r"'a\rb'"),
        ([{"n": "1", "N": "2"}], "rows[0]", "'N': '2'"),
        ([{"RequiredDatasets": '{"x:a"}'}], "rows[0]", "MY.RequiredDatasets"),
        ([{"n": "1"}, {"+dataLocality": '"auto"', "n": "1"}], "rows[1]", "MY.dataLocality"),
        ([{"n": "1", "m": "2"}, {"m": "3", **ONE}], "rows[1]", "'n'"),
        ([ONE, {"n": "1", **ONE}], "rows[0]", "'n'"),
        ([{"n m": "1", "o": "2"}], "rows[0]", "'n m'"),
        ([{"": "1"}], "rows[0]", "''"),
        ([{}], "rows", "{}"),
        ([{"n": "1"}, {"n": " #2"}], "rows", "' #2'"),
        ([{"n": " ", "m": "#"}], "rows", "'#'"),
    ],
)
def test_wrong_row_is_named_with_its_value(rows, place, shown):
    with pytest.raises(ValueError, match="must be") as raised:
        item_rows(rows)
    assert str(raised.value).startswith(f"{place} must be ")
    assert shown in str(raised.value)


def test_long_value_is_shortened_in_the_message():
    with pytest.raises(ValueError, match="datasets must be") as raised:
        job_attributes("lofar:L1," * 5000)
    assert len(str(raised.value)) < 300


@pytest.mark.outside
def test_bindings_need_only_the_standard_library():
    """Case S31 of cases/submit.md."""
    script = f"""\
import sys
sys.path[:] = [{str(ROOT)!r}, *(path for path in sys.path if "site-packages" not in path)]
from hydrator.submit.bindings import item_rows, job_attributes
print(len(list(item_rows([{{}}, job_attributes(["lofar:L1"])]))))
print({{name.partition(".")[0] for name in sys.modules}} - sys.stdlib_module_names - {{"__main__"}})
"""
    done = run_program([sys.executable, "-I", "-S", "-c", script])
    assert done.stderr == ""
    assert done.stdout == "2\n{'hydrator'}\n"


def test_python_examples_of_the_page_make_a_submit_object_and_rows():
    """Case S35 of cases/submit.md."""
    names: dict = {}
    for block in blocks("python bindings"):
        exec(block.text, names)
    assert [row["MY.DataLocality"] for row in names["itemdata"]] == ["undefined", '"require"']
