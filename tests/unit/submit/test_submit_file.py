"""RequiredDatasets in submit descriptions and DAG files: the new lines, and the unchanged bytes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hydrator.domain.model import Did
from hydrator.submit.submit_files.dag import read_dag, read_node
from hydrator.submit.submit_files.datasets import (
    FilterResult,
    add_datasets,
    add_datasets_to_dag,
    check_lists,
    input_names,
)
from hydrator.submit.submit_files.description import SubmitFileError, read_description
from testbed.files import write_program
from testbed.processes import run_program
from tests.command_line import run_hydrator

A, B = Did("lofar:a"), Did("lofar:b")
LINE = b'+RequiredDatasets = {"lofar:a"}\n'
OURS, OWN = ["-append", LINE.decode().strip()], '+RequiredDatasets = {"o:1"}'


def added(text: bytes, *dids: Did) -> FilterResult:
    return add_datasets(text, read_description(text, Path.cwd()), dids, "x.sub")


def filtered(text: bytes, *dids: Did) -> bytes:
    return added(text, *(dids or (A,))).text


# --- submit descriptions


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"executable = x\nqueue\n", b"executable = x\n" + LINE + b"queue\n"),
        (b"queue 3\narguments = b\nqueue 2\n", LINE + b"queue 3\narguments = b\nqueue 2\n"),
        (b"a = 1 \\\nqueue\n# queue\nqueue 1", b"a = 1 \\\nqueue\n# queue\n" + LINE + b"queue 1"),
        (b"a @=end\nqueue\n@end\nQueue\n", b"a @=end\nqueue\n@end\n" + LINE + b"Queue\n"),
        (b"if 0\nqueue\nendif\nqueue 1\n", b"if 0\nqueue\nendif\n" + LINE + b"queue 1\n"),
        (
            b"if 1\na = 1\nendif\nqueue x from (\nqueue\n)\n",
            b"if 1\na = 1\nendif\n" + LINE + b"queue x from (\nqueue\n)\n",
        ),
        (b"executable = x", b"executable = x\n" + LINE),
        (b"+RequiredDatasets = undefined\nqueue\n", b"+RequiredDatasets = undefined\n" + LINE + b"queue\n"),
    ],
)
def test_datasets_line_comes_before_the_queue_statement(before, after):
    assert filtered(before) == after


def test_datasets_line_is_sorted_without_duplicates():
    assert b'{"lofar:a", "lofar:b"}' in filtered(b"queue\n", B, A, B)


@pytest.mark.parametrize(
    "there",
    [
        b'+RequiredDatasets = {"o:1"}',
        b'my.requireddatasets={"o:1"}',
        b'x @=e\n{"o:1"}\n@e\n+RequiredDatasets = $(x)',
        b'if false\nelse\n+RequiredDatasets = {"o:1"}\nendif',
    ],
)
def test_description_with_datasets_is_unchanged_with_a_note(there):
    text = there + b"\nqueue\n"
    done = added(text, A)
    assert (done.text, done.lines) == (text, ())
    assert done.notes == ("x.sub has RequiredDatasets already: the file stays unchanged",)


@pytest.mark.parametrize(
    "text",
    [
        b"# " + LINE,
        b"RequiredDatasetsNote = 1\n",
        b"+RequiredDatasetsCSV = 1\n",
        b"if 0\n" + LINE + b"endif\n",
    ],
)
def test_other_lines_do_not_count_as_datasets(text):
    assert read_description(text + b"queue\n", Path.cwd()).dataset_list is None


@pytest.mark.outside
def test_sub_dag_that_an_earlier_node_will_write_is_told_and_left_alone(nested):
    (nested / "deep" / "d.dag").unlink()
    done = wrapped(nested, "-d", "R=o:R")
    assert b"SUBDAG EXTERNAL D d.dag does not exist yet: its nodes get no datasets" in done.stderr
    assert b"SUBDAG EXTERNAL D d.dag DIR deep" in (nested / "root.hydrator.dag").read_bytes()
    (nested / "i.inc").unlink()
    assert b"cannot read" in wrapped(nested, "-d", "R=o:R", status=2).stderr


# --- items


BAD = '+RequiredDatasets = {"lofar:$(item)"}\nmax_materialize = 1\n'


@pytest.mark.parametrize(
    "queue",
    [
        'queue item from (\nok\nb"d\nalso\n)\n',
        "queue item from (\nok\nb ad\n)\n",
        'queue item in (ok, b"d)\n',
        'queue 2 item in ok b"d also\n',
        'queue other, item from (\n1 ok\n2, b"d\n)\n',
        "queue item from items.txt\n",
    ],
)
def test_invalid_item_is_rejected_with_its_value(queue, tmp_path):
    (tmp_path / "items.txt").write_text('ok\nb"d\n')
    with pytest.raises(SubmitFileError, match="nothing was submitted") as refused:
        check_lists(read_description(f"{BAD}{queue}".encode(), tmp_path), "x.sub")
    assert "item = b" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"lofar:L1" "lofar:L2"}', "commas between"),
        ('{"o:1", "o:2",}', "commas between"),
        ('{"o:1" \\\n  "o:2"}', "commas between"),
        ('{"o:a" "o:$(Process)"}', "nothing was submitted"),
        ('{"o:a b$INT(Process,%03d)"}', "nothing was submitted"),
    ],
)
def test_malformed_list_is_refused_because_htcondor_joins_names_without_a_comma(text, why):
    description = read_description(f"+RequiredDatasets = {text}\nqueue 3\n".encode(), Path.cwd())
    with pytest.raises(SubmitFileError, match=why):
        check_lists(description, "x.sub")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('RequiredDatasets = {"o:1"}', "RequiredDatasets"),
        (f'{OWN}\ndatalocality = "require"', "DataLocality"),
        (f"{OWN}\nDataLocalityMaxWait = 60", "DataLocalityMaxWait"),
        ("+RequiredDataset = x", "RequiredDatasets"),
        ("MY.requiredDataSest = x", "RequiredDatasets"),
        ("+Required_Datasets = x", "RequiredDatasets"),
        ("+DataLocalty = x", "DataLocality"),
        ("+DataLocalityMaxWaits = x", "DataLocalityMaxWait"),
    ],
)
def test_misspelt_option_or_one_without_its_plus_is_refused_because_no_job_would_have_it(text, meant):
    """Case S12 of cases/submit.md; without a plus condor_submit warns, DAGMan does not."""
    with pytest.raises(SubmitFileError, match=rf"x.sub: nothing reads .*: did you mean \+{meant}\?"):
        filtered(f"{text}\nqueue\n".encode())


@pytest.mark.parametrize(
    "text",
    [
        "+DataLocalityKey = x\nqueue\n",
        "+DataLocalityKeyFor = x\nqueue\n",
        "+RequiredDatasetsCSV = x\nqueue\n",
        "+DataSet = x\nqueue\n",
        "required_dataset = x\nqueue\n",
        'DataLocality = wait\n+DataLocality = "$(DataLocality)"\nqueue\n',
        f"{BAD}queue item in (a, b)\n",
        f"{BAD}queue item from missing.txt\n",
        f"{BAD}queue item from ./list |\n",
        '+RequiredDatasets = split("$(all)", ",")\nqueue all from (\n a b\n)\n',
        '+RequiredDatasets = {"no_scope"}\nqueue\n',
        'name = a\n+RequiredDatasets = {"$(scope:lofar):$(name)"}\nqueue 5\n',
    ],
)
def test_other_names_valid_items_and_items_that_only_the_schedd_can_check_pass(text):
    check_lists(read_description(text.encode(), Path.cwd()), "x.sub")


@pytest.mark.parametrize(
    ("text", "common", "others"),
    [
        (
            "ms = L1.ms\ntransfer_input_files = /data/$(ms)/, b.txt\narguments = \"--in=$(ms) 'x y'\"\nqueue",
            ["/data/L1.ms/", "b.txt", "--in", "L1.ms", "x", "y", "x y"],
            [],
        ),
        ("if false\narguments = L9.ms\nelse\narguments = L1.ms\nendif\nqueue", ["L1.ms"], []),
        ("arguments = $(seed) c\nqueue seed in (a b)", ["c"], ["a", "b"]),
        ("arguments = L$(Process).ms $INT(Process,%02d) c\nqueue 2", ["c"], ["L0.ms", "00", "L1.ms", "01"]),
        ("arguments = $RANDOM_CHOICE(b,b) c\nqueue 2", ["c"], ["b"]),
        ("arguments = $(x)b c\nqueue x from missing", ["c"], ["b"]),
        ("args = a\nTransferInputFiles = b, c d\nqueue", ["b", "c d", "a"], []),
        ('arguments2 = "a"\nqueue', ["a"], []),
        ("arguments = a\narguments = $(arguments) $(arguments) $(arguments)b\nqueue", ["a", "ab"], []),
        ("arguments = in=[/d/L1.ms,L2,L3;L4|L5]\nqueue", ["in", "/d/L1.ms", "L2", "L3", "L4", "L5"], []),
        (
            "arguments = [L1,'/d/L2']({L3} x:L4:L5\nqueue",
            ["L1", "/d/L2", "L3", "x:L4:L5", "x", "L4", "L5"],
            [],
        ),
        ("arguments = $($(w)) a\nw = x\nx = $($(w))\nqueue", ["a"], ["$"]),
        ("arguments = $RANDOM_CHOICE(b,b,$(d)) a b\nd = b\nqueue", ["b", "a"], []),
    ],
)
def test_inputs_of_all_jobs_and_of_some_are_told_apart(text, common, others):
    """Case S6 of cases/submit.md."""
    description = read_description(text.encode(), Path.cwd())
    assert input_names(description) == (common, others)
    assert input_names(description, ["[x8;x9]"])[0] == [*common, "x8", "x9"], "with the VARS of a node"


# --- DAG files


DAG = b"""\
# two nodes
JOB A a.sub
job B shared DIR sub
SUBMIT-DESCRIPTION shared {
  executable = x
}
JOB C {
  +RequiredDatasets = {"o:1"}
}
VARS A ms="L1.ms" note="a \\"b\\""
PARENT A CHILD B C
SPLICE S other.dag"""


def dag_filtered(text: bytes, dids: dict[str, list[Did]], folder: Path) -> FilterResult:
    dag = read_dag(text)
    descriptions = {node.name: read_node(node, folder) for node in dag.nodes}
    return add_datasets_to_dag(text, dids, dag, descriptions, "x.dag")


def test_each_node_gets_a_vars_line_at_the_end_of_the_dag(tmp_path):
    (tmp_path / "a.sub").write_text("executable = a\n")
    (tmp_path / "sub").mkdir()
    dids = {"A": [B, A], "C": [A]}
    done = dag_filtered(DAG, dids, tmp_path)
    assert done.text == DAG + b'\nVARS A +RequiredDatasets="{\\"lofar:a\\", \\"lofar:b\\"}"\n'
    assert done.notes == (
        "x.dag: node B: no dataset is known for this node: the node stays unchanged",
        "x.dag: node C has RequiredDatasets already: the node stays unchanged",
        "x.dag: SPLICE S other.dag: the nodes of that file stay unchanged: filter that file too",
    )
    assert dag_filtered(done.text, {"A": [A]}, tmp_path).text == done.text


def test_name_of_a_node_that_is_not_utf_8_stays_as_it_is(tmp_path):
    (tmp_path / "a.sub").write_text("executable = a\n")
    dag = b"JOB n\xe9 a.sub\n"
    done = dag_filtered(dag, {"n\udce9": [A]}, tmp_path)
    assert done.text == dag + b'VARS n\xe9 +RequiredDatasets="{\\"lofar:a\\"}"\n'


# --- the commands


def hydrator(*words: str, cwd: Path, status: int = 0, **more: bytes) -> subprocess.CompletedProcess[bytes]:
    done = run_hydrator("submit", *words, cwd=cwd, **more)
    assert done.returncode == status, done.stderr
    return done


def stand_in(tool: Path, script: str = 'printf "%s\\n" "$@"') -> Path:
    """Write an executable; a stand-in for a tool of HTCondor."""
    return write_program(tool, f"#!/bin/sh\n{script}\n")


def told(folder: Path, *words: str, script: str = 'printf "%s\\n" "$@"') -> tuple[list[str], str]:
    """Return what wrap tells a stand-in for condor_submit that exits with 7, and stderr."""
    tool = str(stand_in(folder / "condor_submit", f"{script}; exit 7"))
    at = words.index("--") + 1
    done = hydrator("wrap", *words[:at], tool, *words[at:], cwd=folder, status=7)
    return done.stdout.decode().splitlines(), done.stderr.decode()


@pytest.fixture
def configured(tmp_path) -> Path:
    """A folder with a configuration that has names."""
    (tmp_path / "config.toml").write_text(
        '[[catalogue]]\ntype = "file"\npath = "c.json"\n[daemon]\ndefault_scope = "lofar"\n'
        '[submit]\nnames = {"L1.ms" = "lofar:L1"}\n'
        'patterns = [{match = "(S[0-9]+)[.]ms", did = "ska:\\\\1"}]\n'
    )
    return tmp_path


def test_filter_prints_the_file_with_the_datasets_line(tmp_path):
    (tmp_path / "x.sub").write_bytes(b"executable = \xff\r\nqueue\r\n")
    done = hydrator("filter", "x.sub", "--datasets", "o:2,o:1", cwd=tmp_path)
    assert done.stdout == b'executable = \xff\r\n+RequiredDatasets = {"o:1", "o:2"}\r\nqueue\r\n'


def test_filter_reads_standard_input_and_a_file_of_dids(tmp_path):
    """Case S10 of cases/submit.md."""
    (tmp_path / "dids").write_text("\ufeff# mine\nSCOPE:NAME\no:1\n\n  o:2  \n")
    done = hydrator("filter", "-", "--datasets-file", "dids", cwd=tmp_path, stdin=b"queue\n")
    assert done.stdout.decode().splitlines() == ['+RequiredDatasets = {"o:1", "o:2"}', "queue"]


@pytest.mark.outside
def test_filter_takes_datasets_from_inputs_by_names_and_patterns(configured):
    (configured / "x.sub").write_text("transfer_input_files = /d/L1.ms, S7.ms.tar, x.txt\nqueue\n")
    done = hydrator("filter", "x.sub", "--from-inputs", "--config", "config.toml", cwd=configured)
    assert b'+RequiredDatasets = {"lofar:L1"' in done.stdout


@pytest.mark.outside
def test_filter_gives_each_node_of_a_dag_its_datasets(configured):
    (configured / "n.sub").write_text("arguments = $(ms)\nqueue\n")
    (configured / "x.dag").write_text('JOB A n.sub\nJOB B n.sub\nVARS A ms="L1.ms"\nVARS B ms="S7.ms"\n')
    done = hydrator("filter", "x.dag", "--from-inputs", "-d", "B=more", "-c", "config.toml", cwd=configured)
    assert done.stdout.decode().splitlines()[4:] == [
        'VARS A +RequiredDatasets="{\\"lofar:L1\\"}"',
        'VARS B +RequiredDatasets="{\\"lofar:more\\", \\"ska:S7\\"}"',
    ]


WRAP, WRAP_A = ("wrap", "-d", "o:1", "--"), ("wrap", "-d", "A=o:1", "--", "condor_submit_dag")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("filter", "x.sub"), "no datasets: give"),
        (("filter", "x.sub", "--from-inputs"), "needs [submit] names"),
        (("filter", "x.dag", "-d", "Z=o1"), "the DAG has no node Z"),
        (("filter", "bad.sub", "-d", "o:1"), "nothing was submitted"),
        (("filter", "x.sub", "-d", "A=o:1"), "a submit file, which has no node A: use --datasets o:1"),
        (("filter", "x.dag", "-d", "A="), "--datasets A=: no dataset is named"),
        (("filter", "x.dag", "-d", "o:1", "-d", "A=,"), "--datasets A=,: no dataset is named"),
        (("filter", "x.sub", "-d", ","), "--datasets ,: no dataset is named"),
        (("filter", "x.sub", "-d", "o:2,A=o:1"), "use a --datasets of its own for A=o:1"),
        (("filter", "x.dag", "-d", "A=o:2,A=o:1"), "use a --datasets of its own for A=o:1"),
        (("filter", "endless.sub", "-d", "o:1"), "the macros l and m refer to each other"),
        (("wrap", "-d", "o:1", "--", "condor_submit"), "name a submit file"),
        (("wrap", "-d", "o:1", "--", "condor_submit", "-"), "standard input"),
        (("wrap", "-d", "o:1", "--", "rm", "x.sub"), "wrap runs only condor_submit"),
        ((*WRAP, "condor_submit", "x.dag"), "x.dag is a DAG file: give condor_submit_dag"),
        (
            (*WRAP, "condor_submit_dag", "x.sub"),
            "x.sub is not a DAG file; a submit file is for condor_submit",
        ),
        (("filter", "x.sub", "--datasets-file", "none"), "--datasets-file none: no dataset is named"),
        (("filter", "x.sub", "--datasets-file", "two"), "two:3: 'o:2 x' is not a DID"),
        (("filter", "plain.sub"), "did you mean +RequiredDatasets?"),
        ((*WRAP_A, "x.dag", "x.dag"), "several of the DAG files have a node A: use 0.A or 1.A"),
        (("filter", "jobs", "-d", "o:1"), "neither a DAG file nor a submit file"),
        (("filter", "words", "-d", "o:1"), "neither a DAG file nor a submit file"),
        (("filter", "bytes", "-d", "o:1"), "neither a DAG file nor a submit file"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(tmp_path, words, sentence):
    """Case S11 of cases/submit.md."""
    (tmp_path / "x.sub").write_text("queue\n")
    (tmp_path / "x.dag").write_text("JOB A x.sub\n")
    (tmp_path / "two").write_text("# mine\no:1\no:2 x\n")
    (tmp_path / "plain.sub").write_text('RequiredDatasets = {"o:1"}\nqueue\n')
    (tmp_path / "endless.sub").write_text("L = $(M)\nM = $(L)\n+RequiredDatasets = {$(L)}\nqueue\n")
    (tmp_path / "bad.sub").write_text('+RequiredDatasets = {"$(item)"}\nqueue item in (o:1 o)d)\n')
    for name, text in {
        "none": "# later\n\n",
        "jobs": "JOBS A a.sub\n",
        "words": "hello world\n",
        "bytes": "\x00\n",
    }.items():
        (tmp_path / name).write_text(text)
    done = hydrator(*words, cwd=tmp_path, status=2)
    assert sentence in done.stderr.decode()
    assert (done.stdout, done.stderr.count(b"\n")) == (b"", 1)


@pytest.mark.outside
@pytest.mark.parametrize(
    ("words", "passed"),
    [
        (["x.sub"], ["x.sub", *OURS]),
        (["-name", "s", "a=b", "x.sub", "-queue", "2"], ["-name", "s", "a=b", "x.sub", *OURS, "-queue", "2"]),
        (["-batch", "x.sub", "x.sub"], ["-batch", "x.sub", "x.sub", *OURS]),
        (["-append", "a = 1", "-verbose", "x.sub"], ["-append", "a = 1", "-verbose", "x.sub", *OURS]),
        (["x.sub", "-a", OWN], ["x.sub", "-a", OWN]),
        (["x.sub", "own.sub"], ["x.sub", "own.sub"]),
        (["own.sub", "x.sub"], ["own.sub", "x.sub", *OURS]),
        (['MY.RequiredDatasets={"o:1"}', "x.sub"], ['MY.RequiredDatasets={"o:1"}', "x.sub"]),
        *(
            ([*words, "x.sub"], [*words, "x.sub", *OURS])
            for words in (
                *(["-maxjobs", "5"], ["-batch-id", "7"], ["-address", "<127.0.0.1:9>"], ["-digest", "d"]),
                *(["-dry-run:hash", "out"], ["-factory"], ["-fi"], ["-terse", "x=x.sub"]),
            )
        ),
        (["-queue", "2", "-name", "s", "x.sub"], [*OURS, "-queue", "2", "-name", "s", "x.sub"]),
        (["-a", "queue 2", "x.sub"], ["-a", "queue 2", "x.sub", *OURS]),
        (["-queue", "d", "in", "o:2", "-a", OWN, "x.sub"], ["-queue", "d", "in", "o:2", "-a", OWN, "x.sub"]),
    ],
)
def test_wrap_runs_condor_submit_with_append_and_exits_with_its_status(tmp_path, words, passed):
    """Case S2 of cases/submit.md."""
    for name in ("x.sub", "x=x.sub"):
        (tmp_path / name).write_text("executable = x\n")
    (tmp_path / "own.sub").write_text(f"{OWN}\n")
    assert told(tmp_path, "-d", str(A), "--", *words)[0] == passed


@pytest.mark.outside
def test_wrap_passes_names_that_are_not_utf_8_as_they_are(tmp_path):
    for name, text in ((b"\xe9.sub", "executable = x\n"), (b"\xe9.dag", "JOB A x.sub\n")):
        (tmp_path / os.fsdecode(name)).write_text(text)
    for tool, name, passed in (
        ("condor_submit", b"\xe9.sub", b"\xe9.sub\n"),
        ("condor_submit_dag", b"\xe9.dag", b"\xe9.hydrator.dag\n"),
    ):
        words = ("-d", "o:1", "--", str(stand_in(tmp_path / tool)), os.fsdecode(name))
        assert hydrator("wrap", *words, cwd=tmp_path).stdout.startswith(passed)


@pytest.mark.outside
def test_wrap_does_not_follow_a_link_with_the_copys_name(tmp_path):
    (tmp_path / "x.dag").write_text("JOB A a.sub\n")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "x.hydrator.dag").symlink_to(victim)
    done = hydrator(
        "wrap", "-d", "o:1", "--", str(stand_in(tmp_path / "condor_submit_dag")), "x.dag", cwd=tmp_path
    )
    assert done.stdout == b"x.2.hydrator.dag\n"
    assert victim.read_text() == "mine"
    assert (tmp_path / "x.hydrator.dag").is_symlink()
    assert "RequiredDatasets" in (tmp_path / "x.2.hydrator.dag").read_text()


@pytest.mark.outside
def test_wrap_reuses_an_equal_copy_so_that_dagman_finds_its_rescue_file(nested):
    assert wrapped(nested, "-d", "o:1").stdout == b"root.hydrator.dag\n"
    before = {path: path.stat().st_mtime_ns for path in nested.rglob("*.hydrator.dag")}
    assert wrapped(nested, "-d", "o:1").stdout == b"root.hydrator.dag\n"
    assert {path: path.stat().st_mtime_ns for path in nested.rglob("*.hydrator.dag")} == before


@pytest.mark.outside
def test_another_submission_of_a_dag_changes_no_file_of_the_first(nested):
    wrapped(nested, "-d", "o:1")
    before = {path: path.read_bytes() for path in nested.rglob("*.dag")}
    done = wrapped(nested, "-d", "D+C=o:2")
    assert done.stdout == b"root.2.hydrator.dag\n"
    notice = b"root.2.hydrator.dag: the copies of the DAG with a lower number have other content"
    assert notice + b" and stay unchanged" in done.stderr
    assert {path: path.read_bytes() for path in before} == before
    assert "d.D.2.hydrator.dag DIR deep" in (nested / "root.2.hydrator.dag").read_text()
    assert "o:2" in (nested / "deep" / "d.D.2.hydrator.dag").read_text()


@pytest.mark.outside
def test_rejected_dag_leaves_no_copy_and_keeps_those_of_a_running_one(nested):
    wrapped(nested, "-d", "o:1")
    before = {path: path.read_bytes() for path in nested.rglob("*") if path.is_file()}
    stand_in(nested / "condor_submit_dag", "echo refused >&2; exit 3")
    before[nested / "condor_submit_dag"] = (nested / "condor_submit_dag").read_bytes()
    for datasets in ("o:1", "D+C=o:2"):
        wrapped(nested, "-d", datasets, status=3)
        assert {path: path.read_bytes() for path in nested.rglob("*") if path.is_file()} == before


@pytest.mark.outside
def test_interrupted_submission_keeps_its_dag_copies(nested):
    stand_in(nested / "condor_submit_dag", "kill -INT $$")
    wrapped(nested, "-d", "o:1", status=130)
    assert (nested / "root.hydrator.dag").exists()


@pytest.mark.outside
def test_tool_that_cannot_start_is_one_sentence_and_leaves_no_copies(nested):
    done = hydrator("wrap", "-d", "o:1", "--", "/no/condor_submit_dag", "root.dag", cwd=nested, status=127)
    assert done.stderr == b"hydrator: cannot run /no/condor_submit_dag: No such file or directory\n"
    assert list(nested.rglob("*.hydrator.dag")) == []


@pytest.mark.outside
def test_unwritable_copy_is_one_sentence_and_leaves_no_copies(nested):
    big = "# " + "x" * 9000 + "\n"
    (nested / "root.dag").write_text(big + (nested / "root.dag").read_text())
    program = [sys.executable, "-m", "hydrator.cli", "submit", "wrap", "-d", "o:1", "--"]
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *program]
    words = [*limited, str(nested / "condor_submit_dag"), "root.dag"]
    done = run_program(words, cwd=nested)
    assert (done.returncode, done.stdout) == (1, "")
    assert "root.hydrator.dag: File too large" in done.stderr
    assert list(nested.rglob("*.hydrator.dag")) == []


ITEMS = f'+RequiredDatasets = {{"o:{"x" * 60}$(x)", "o:{"x" * 60}"}}\nqueue x in (a b)\n'


@pytest.mark.outside
@pytest.mark.parametrize(
    ("text", "options", "last"), [("queue\n", ["--datasets-file", "list"], "queue"), (ITEMS, [], ")")]
)
def test_list_too_long_for_an_argument_and_keys_of_items_go_by_a_temporary_copy(
    tmp_path, text, options, last
):
    (tmp_path / "x.sub").write_text(text)
    victim = tmp_path / ".x.sub.hydrator"
    victim.write_text("mine")
    (tmp_path / "list").write_text("".join(f"o:{'x' * 50}{number}\n" for number in range(2500)))
    submitted, _ = told(tmp_path, *options, "--", "-verbose", "x.sub", script='cat "$2"')
    assert submitted[0].startswith("+RequiredDatasets = {")
    assert submitted[-1] == last
    assert {path.name for path in tmp_path.iterdir()} == {"x.sub", "list", victim.name, "condor_submit"}
    assert victim.read_text() == "mine"


@pytest.mark.outside
def test_copy_of_a_splice_is_in_the_folder_of_its_file(nested):
    (nested / "root.dag").write_text("SPLICE ../x/S s.dag DIR sub\n")
    wrapped(nested, "-d", "o:1")
    assert (nested / "sub" / "s...-x-S.hydrator.dag").exists()


@pytest.mark.outside
def test_usedagdir_reads_node_files_from_the_dags_folder(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.dag").write_text("JOB A a.sub\n")
    (tmp_path / "d" / "a.sub").write_bytes(LINE + b"queue\n")
    tool = stand_in(tmp_path / "condor_submit_dag")
    beside = hydrator("wrap", "-d", "o:1", "--", str(tool), "-UseDagDir", "d/x.dag", cwd=tmp_path)
    assert beside.stdout.decode().splitlines() == ["-UseDagDir", "d/x.dag"]
    assert b"node A has RequiredDatasets already" in beside.stderr
    away = hydrator("wrap", "-d", "o:1", "--", str(tool), "d/x.dag", cwd=tmp_path)
    assert away.stdout.decode().splitlines() == ["d/x.hydrator.dag"]
    assert b"node A is not read, because a.sub cannot be read here" in away.stderr


# --- DAGs that bring in others


@pytest.fixture
def nested(tmp_path) -> Path:
    """A DAG that brings in others in each way there is; nodes R, S+A, S+T+B, D+C and I."""
    for folder in ("sub", "deep"):
        (tmp_path / folder).mkdir()
    (tmp_path / "root.dag").write_bytes(
        b"# all\r\nJOB R n.sub\r\nSPLICE  S   s.dag DIR sub # x\r\nSUBDAG EXTERNAL D d.dag DIR deep\r\n"
        b"INCLUDE i.inc\r\nPARENT R CHILD S D\r\n"
    )
    (tmp_path / "sub" / "s.dag").write_text("JOB A n.sub\nSPLICE T t.dag\n")
    (tmp_path / "sub" / "t.dag").write_text("JOB B n.sub\n")
    (tmp_path / "deep" / "d.dag").write_text("JOB C n.sub\n")
    (tmp_path / "i.inc").write_text("JOB I n.sub\n")
    for folder in (".", "sub", "deep"):
        (tmp_path / folder / "n.sub").write_text("executable = x\nqueue\n")
    stand_in(tmp_path / "condor_submit_dag")
    return tmp_path


def wrapped(
    folder: Path, *options: str, dag: str = "root.dag", status: int = 0
) -> subprocess.CompletedProcess[bytes]:
    tool = str(folder / "condor_submit_dag")
    return hydrator("wrap", *options, "--", tool, dag, cwd=folder, status=status)


@pytest.mark.outside
def test_wrap_follows_splices_sub_dags_and_includes(nested):
    before = {path: path.read_bytes() for path in nested.rglob("*") if path.is_file()}
    done = wrapped(nested, *[w for n in ("R", "S+A", "S+T+B", "D+C", "I") for w in ("-d", f"{n}=o:{n[-1]}")])
    assert done.stderr == b""
    assert done.stdout == b"root.hydrator.dag\n"
    root = (nested / "root.hydrator.dag").read_bytes()
    expected = before[nested / "root.dag"].replace(b" S   s.dag", b"S s.S.hydrator.dag")
    expected = expected.replace(b"d.dag", b"d.D.hydrator.dag").replace(b"i.inc", b"i.inc.hydrator.dag")
    assert root == expected + b'VARS R +RequiredDatasets="{\\"o:R\\"}"\r\n'
    splice = "SPLICE T t.S-T.hydrator.dag"
    copies = {
        "sub/s.S.hydrator.dag": f'JOB A n.sub\n{splice}\nVARS A +RequiredDatasets="{{\\"o:A\\"}}"\n',
        "sub/t.S-T.hydrator.dag": 'JOB B n.sub\nVARS B +RequiredDatasets="{\\"o:B\\"}"\n',
        "deep/d.D.hydrator.dag": 'JOB C n.sub\nVARS C +RequiredDatasets="{\\"o:C\\"}"\n',
        "i.inc.hydrator.dag": 'JOB I n.sub\nVARS I +RequiredDatasets="{\\"o:I\\"}"\n',
    }
    assert {name: (nested / name).read_text() for name in copies} == copies
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.outside
def test_dag_file_without_new_datasets_is_not_copied(nested):
    done = wrapped(nested, "-d", "S+T+B=o:1")
    assert not (nested / "deep" / "d.D.hydrator.dag").exists()
    assert b"d.dag DIR deep" in (nested / "root.hydrator.dag").read_bytes()
    assert b"node C: no dataset is known" in done.stderr


WORK = "SUBMIT-DESCRIPTION work {\nexecutable = x\n%s}\n"
OWN_LIST = '+RequiredDatasets = {"o:8", "o:9"}\n'


@pytest.mark.outside
@pytest.mark.parametrize(
    ("top", "below"),
    [
        (WORK % OWN_LIST, "JOB A work\n"),
        (WORK % OWN_LIST, WORK % "" + "JOB A work\n"),
        (WORK % "", WORK % OWN_LIST + "JOB A work\n"),
        ('VARS S+A +RequiredDatasets="{}"\n', "JOB A n.sub\n"),
        ('VARS ALL_NODES x="1"\n', "JOB A n.sub\n"),
        ("", "JOB A n.sub\nSCRIPT PRE A make n.sub\n"),
    ],
)
def test_node_of_a_splice_that_another_file_decides_has_no_key(nested, top, below):
    """Cases S1, S4 of cases/submit.md."""
    (nested / "two.dag").write_text(f"{top}SPLICE S b.dag\n")
    (nested / "b.dag").write_text(below)
    done = wrapped(nested, "-d", "S+A=o:1,o:2", dag="two.dag")
    assert (nested / "b.S.hydrator.dag").read_text() == (
        f'{below}VARS A PREPEND +RequiredDatasets="{{\\"o:1\\", \\"o:2\\"}}"\n'
    )
    assert done.stderr.count(b"\n") == 1
    assert b"b.dag: node A is not read, because " in done.stderr


@pytest.mark.outside
def test_equal_descriptions_of_two_splices_are_read(nested):
    (nested / "two.dag").write_text("SPLICE S b.dag\nSPLICE T b.dag\n")
    (nested / "b.dag").write_text(WORK % "" + "JOB A work\n")
    long = ",".join(f"o:{'x' * 60}{number}" for number in range(2))
    done = wrapped(nested, "-d", f"S+A={long}", "-d", "T+A=o:3", dag="two.dag")
    assert done.stderr == b""
    assert f'DataLocalityKeyFor="\\"{long}\\""' in (nested / "b.S.hydrator.dag").read_text()


@pytest.mark.outside
def test_dag_spliced_twice_has_a_copy_for_each_splice(tmp_path, nested):
    (nested / "two.dag").write_text("SPLICE x.dag x.dag\nSPLICE Y x.dag\n")
    (nested / "x.dag").write_text("JOB A n.sub\n")
    wrapped(nested, "-d", "x.dag+A=o:1", "-d", "Y+A=o:2", dag="two.dag")
    assert (nested / "two.hydrator.dag").read_text() == (
        "SPLICE x.dag x.x.dag.hydrator.dag\nSPLICE Y x.Y.hydrator.dag\n"
    )
    assert "o:1" in (nested / "x.x.dag.hydrator.dag").read_text()
    assert "o:2" in (nested / "x.Y.hydrator.dag").read_text()


@pytest.mark.parametrize(
    ("change", "options", "told"),
    [
        (("sub/t.dag", None), ("-d", "o:1"), "cannot read"),
        (("sub/t.dag", "SPLICE U t.dag\n"), ("-d", "o:1"), "refers to itself through"),
        (None, ("-d", "S+Z=o:1"), "the DAG has no node S+Z"),
        (None, ("--gpu", "maybe"), "use no, prefer or require"),
        (("sub/n.sub", '+RequiredDatasets = {"a b"}\nqueue\n'), ("-d", "o:1"), "node A (n.sub)"),
        (None, (), "root.dag names no datasets: give"),
    ],
)
def test_unreadable_nested_dag_is_one_sentence_and_submits_nothing(nested, change, options, told):
    if change:
        name, text = change
        (nested / name).unlink() if text is None else (nested / name).write_text(text)
    done = wrapped(nested, *options, status=2)
    assert done.stdout == b""
    assert told in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.outside
def test_gpu_lines_of_a_node_are_appended_to_its_description(nested):
    wrapped(nested, "--gpu", "S+A=prefer")
    added = (nested / "sub" / "s.S.hydrator.dag").read_text().splitlines()[2:]
    assert 'VARS A APPEND requirements="($(requirements:true)) && TARGET.Cpus >= MY.RequestCpus"' in added
    assert all(line.startswith("VARS A APPEND ") for line in added)


@pytest.mark.outside
def test_gpu_lines_of_a_submit_file_are_passed_by_append(tmp_path):
    (tmp_path / "x.sub").write_text("executable = a\nqueue\n")
    words, _ = told(tmp_path, "--gpu", "prefer", "--", "x.sub")
    assert words[1::2] == ["-append"] * (len(words) // 2)
    assert "request_cpus = ((TARGET.GPUs >= 1) =?= true) ? 4 : 16" in words
    assert words[0] == "x.sub"


# --- several DAG files, nodes of other kinds, files that are neither


@pytest.mark.parametrize("kind", ["FINAL", "PROVISIONER", "SERVICE"])
def test_datasets_for_all_nodes_apply_to_job_nodes_only(tmp_path, kind):
    (tmp_path / "x.dag").write_text(f"JOB A @=end\nexecutable = x\n@end\n{kind} F {{\nexecutable = x\n}}\n")
    done = hydrator("filter", "x.dag", "-d", "o:1", cwd=tmp_path)
    assert b"VARS A +R" in done.stdout
    assert b"VARS F" not in done.stdout
    named = hydrator("filter", "x.dag", "-d", "F=o:1", cwd=tmp_path)
    assert b"VARS F +R" in named.stdout


@pytest.mark.parametrize(("name", "typed"), [('"A B"', "A B"), ("a:b", "a:b")])
def test_node_may_have_a_colon_in_its_name_or_quotes_that_are_left_out(tmp_path, name, typed):
    (tmp_path / "x.dag").write_text(f"JOB {name} {{\nexecutable = x\n}}\n")
    done = hydrator("filter", "x.dag", "-d", f"{typed}=o:1", cwd=tmp_path)
    assert f'VARS {name} +RequiredDatasets="{{\\"o:1\\"}}"' in done.stdout.decode()


@pytest.mark.outside
def test_wrap_passes_datasets_as_a_default_if_the_file_may_set_them(tmp_path):
    (tmp_path / "x.sub").write_text("include command : /bin/true\nexecutable = a\nqueue\n")
    words, notice = told(tmp_path, "-d", "o:1,o:2", "--", "x.sub")
    assert words == ['MY.RequiredDatasets={"o:1", "o:2"}', "x.sub"]
    assert "that list replaces the new one, and DataLocalityKey is left to the schedd" in notice
