"""``hydrator submit wrap`` and ``filter`` before the real condor_submit and condor_submit_dag."""

import re
from collections.abc import Iterator

import pytest

from hydrator.domain.ads.dataset_sets import hash_key
from testbed.pool import Pool
from tests.desk import Desk

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

DESCRIPTION = """\
# a job\r
executable = /bin/true\r
arguments = one \\\r
   two\r
hold = $(held)\r
if version >= 9.0.0\r
  request_cpus = 1\r
endif\r
log = node.log\r
queue ms from (\r
L1\r
L2\r
)\r
"""
A, B = (f"lofar:{'x' * 60}_{letter}" for letter in "ab")
ATTRIBUTES = ("ProcId", "RequiredDatasets", "DataLocalityKey", "Args", "RequestCpus", "Iwd")


@pytest.fixture
def desk(pool: Pool, request: pytest.FixtureRequest) -> Iterator[Desk]:
    name = re.sub(r"\W+", "-", request.node.name)
    yield Desk(pool, pool.user_home("alice") / name)
    pool.empty_queue()


def test_wrapped_jobs_get_their_datasets_and_are_otherwise_unchanged(desk):
    desk.write("x.sub", DESCRIPTION)
    words = ("condor_submit", "-terse", "held=true", "x.sub")
    plain = desk.pool.run(*words, user="alice", cwd=desk.folder).stdout
    done = desk.hydrator("wrap", "-d", f"{B},{A}", "--", *words)
    assert done.returncode == 0, done.stderr
    before, after = (queued(desk, text) for text in (plain, done.stdout))
    assert [job.pop("RequiredDatasets") for job in after] == [[A, B]] * 2
    assert [job.pop("DataLocalityKey") for job in after] == [hash_key([A, B])] * 2
    assert after == before
    assert (desk.folder / "x.sub").read_bytes() == DESCRIPTION.encode()


def test_the_nodes_of_a_splice_and_of_a_sub_dag_run_with_their_own_datasets(desk):
    node = "executable = /bin/true\nrequest_cpus = 1\nrequest_memory = 10\nlog = node.log\nqueue\n"
    for folder in (".", "below", "apart"):
        (desk.folder / folder).mkdir(exist_ok=True)
        (desk.folder / folder).chmod(0o777)
        desk.write(f"{folder}/node.sub", node)
    desk.write("x.dag", "JOB A node.sub\nSPLICE S s.dag DIR below\nSUBDAG EXTERNAL D d.dag DIR apart\n")
    desk.write("below/s.dag", "JOB B node.sub\n")
    desk.write("apart/d.dag", "JOB C node.sub\n")
    words = [word for node in ("A", "S+B", "D+C") for word in ("-d", f"{node}=lofar:{node[-1]}")]
    done = desk.hydrator("wrap", *words, "--", "condor_submit_dag", "-f", "x.dag")
    assert done.returncode == 0, done.stderr
    nodes = f'JobUniverse == 5 && regexp("^{desk.folder}", Iwd)'
    desk.pool.wait(lambda: len(desk.pool.history(nodes, "DAGNodeName")) == 3, "all nodes to end")
    ran = desk.pool.history(nodes, "DAGNodeName", "RequiredDatasets")
    assert {job["DAGNodeName"]: job["RequiredDatasets"] for job in ran} == {
        "A": ["lofar:A"],
        "S+B": ["lofar:B"],
        "C": ["lofar:C"],
    }
    assert (desk.folder / "below" / "s.dag").read_text() == "JOB B node.sub\n"


OWN = '+RequiredDatasets={"x:L6","x:L5"}'


@pytest.mark.parametrize(
    "words",
    [
        ("-append", OWN, "x.sub"),
        ("x.sub", "-a", OWN),
        (OWN.replace("+", "MY."), "x.sub"),
        ("x.sub", "-a", "L=L6", "-append", '+RequiredDatasets={"x:$(L)","x:L5"}', "-queue", "2"),
    ],
)
def test_list_on_the_command_line_of_condor_submit_has_no_key_of_another(desk, words):
    desk.write("x.sub", f"{NODE}hold = true\n" + ("" if "-queue" in words else "queue\n"))
    done = desk.hydrator("wrap", "-d", "x:L1,x:L2", "--", "condor_submit", "-terse", *words)
    assert done.returncode == 0, done.stderr
    assert len(queued(desk, done.stdout)) == (2 if "-queue" in words else 1)
    for job in queued(desk, done.stdout):
        assert job["RequiredDatasets"] == ["x:L6", "x:L5"]
        assert job.get("DataLocalityKey") is None, "the schedd's transform makes the key of a short list"


def test_no_node_of_a_splice_has_the_key_of_another_list(desk):
    """DAGMan 25 takes the description of the higher file. DAGMan 23 takes that of the splice, and lets VARS
    override it; it refuses a description that only the higher file has.
    """
    new = desk.pool.version >= "25"
    work, own = (
        f"SUBMIT-DESCRIPTION {{}} {{{{\n{NODE}{more}\n}}}}\n"
        for more in ("", OWN.replace("{", "{{").replace("}", "}}"))
    )
    desk.write(
        "x.dag", own.format("b") + work.format("c") + (own.format("a") if new else "") + "SPLICE S s.dag\n"
    )
    desk.write(
        "s.dag",
        work.format("b")
        + own.format("c")
        + "JOB B b\nJOB C c\nJOB P p.sub\nSCRIPT PRE P make.sh\n"
        + ("JOB A a\n" if new else ""),
    )
    desk.write("p.sub", f"{NODE}queue\n")
    desk.write(
        "make.sh",
        f"#!/bin/sh\n(grep -v queue p.sub; printf '{OWN}\\nqueue\\n') > p.all\nmv p.all p.sub\n",
    )
    (desk.folder / "make.sh").chmod(0o755)
    (desk.folder / "p.sub").chmod(0o666)
    nodes = "ABCP" if new else "BCP"
    words = [word for node in nodes for word in ("-d", f"S+{node}=x:L1,x:L2")]
    done = desk.hydrator("wrap", *words, "--", "condor_submit_dag", "-f", "x.dag")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is not read, because") == len(nodes)
    ran = ran_with(desk, len(nodes), "DataLocalityKey")
    asked, own_list = ["x:L1", "x:L2"], ["x:L6", "x:L5"]
    lists = {"S+B": own_list if new else asked, "S+C": asked, "S+P": own_list}
    assert ran_with(desk, len(nodes)) == lists | ({"S+A": own_list} if new else {})
    assert set(ran.values()) <= {None}


def queued(desk: Desk, terse: str) -> list[dict[str, object]]:
    """Return the jobs that ``condor_submit -terse`` printed."""
    cluster = int(terse.partition(".")[0])
    return sorted(desk.pool.jobs(f"ClusterId == {cluster}", *ATTRIBUTES), key=lambda job: job["ProcId"])


NODE = "executable = /bin/true\nrequest_cpus = 1\nrequest_memory = 10\nlog = node.log\n"


def ran_with(desk: Desk, nodes: int, attribute: str = "RequiredDatasets") -> dict[str, object]:
    """Return *attribute* of each node's job, by the node's name, once so many have ended."""
    mine = f'DAGNodeName isnt undefined && Iwd == "{desk.folder}"'
    desk.pool.wait(
        lambda: len(desk.pool.history(mine, "DAGNodeName")) == nodes,
        f"{nodes} nodes to end; see dagman.out in {desk.folder}",
    )
    ran = desk.pool.history(mine, "DAGNodeName", attribute)
    return {job["DAGNodeName"]: job.get(attribute) for job in ran}


def test_dagman_reads_what_was_written_for_every_form_of_a_node(desk):
    """Inline and shared descriptions, quoted names, nodes of other kinds, VARS of all."""
    new = desk.pool.version >= "25"  # comments with //, @=end and values in single quotes are of HTCondor 24
    desk.write("my node.sub", NODE + "queue\n")
    comment, opens, closes, value = ("// all", "@=end", "@end", "'1'") if new else ("# all", "{", "}", '"1"')
    # DAGMan 23.9 ends on an assertion where a node is DONE, and finds no shared description here
    done = "DONE Z\nJOB Z shared\n" if new else ""
    shared = f"SUBMIT-DESCRIPTION shared {{\n{NODE}}}\nJOB S shared\n" if new else ""
    nodes = "ABFS" if new else "ABF"
    desk.write(
        "x.dag",
        f'{comment}\n{done}{shared}JOB A {opens}\n{NODE}{closes}\nJOB B "my node.sub"\n'
        f"FINAL F {{\n{NODE}}}\nVARS all_nodes x={value}\nPRE_SKIP A 3\nPARENT A CHILD B\n",
    )
    words = [word for node in nodes for word in ("-d", f"{node}=lofar:{node}")]
    done = desk.hydrator("wrap", *words, "--", "condor_submit_dag", "-f", "x.dag")
    assert done.returncode == 0, done.stderr
    assert ran_with(desk, len(nodes)) == {node: [f"lofar:{node}"] for node in nodes}


@pytest.mark.parametrize("first", ["PRE_SKIP A 3", "DONE A", "WEAK PARENT A CHILD B", "// a", "NODE C a.sub"])
@pytest.mark.parametrize("how", ["wrap", "filter"])
def test_condor_submit_dag_judges_a_dag_the_same_before_and_after(desk, first, how):
    """A command that this release does not know stays an error; nothing else is rejected."""
    desk.write("x.dag", f"{first}\nJOB A {{\n{NODE}}}\nJOB B {{\n{NODE}}}\n")
    words = ("condor_submit_dag", "-no_submit", "-f", "x.dag")
    plain = desk.pool.run(*words, user="alice", cwd=desk.folder, check=False)
    if how == "wrap":
        done = desk.hydrator("wrap", "-d", "lofar:a", "--", *words)
        assert (desk.folder / "x.hydrator.dag").exists() is (plain.returncode == 0)
    else:
        filtered = desk.hydrator("filter", "x.dag", "-d", "lofar:a")
        assert filtered.returncode == 0, filtered.stderr
        desk.write("y.dag", filtered.stdout)
        done = desk.pool.run(*words[:-1], "y.dag", user="alice", cwd=desk.folder, check=False)
    assert done.returncode == plain.returncode, done.stderr


@pytest.mark.parametrize(
    ("doubtful", "expected"),
    [
        ('include command : /bin/echo +RequiredDatasets={{"own:1"}}', ["own:1"]),
        ("include command : /bin/echo a = b", ["lofar:a"]),
        ('x = 1\nif $(x)\n+RequiredDatasets = {"own:1"}\nendif', ["own:1"]),
        ('if defined nothing\n+RequiredDatasets = {"own:1"}\nendif', ["lofar:a"]),
        ('if false\n+RequiredDatasets = {"own:1"}\nendif', ["lofar:a"]),
    ],
    ids=["command with", "command without", "holds", "does not hold", "never holds"],
)
@pytest.mark.parametrize("how", ["wrap", "filter"])
def test_condor_submit_decides_whose_list_counts(desk, doubtful, expected, how):
    text = doubtful.replace("{{", "{").replace("}}", "}")
    desk.write("x.sub", f"{NODE}hold = true\n{text}\nqueue\n")
    if how == "filter":
        filtered = desk.hydrator("filter", "x.sub", "-d", "lofar:a")
        desk.write("y.sub", filtered.stdout)
        output = desk.pool.run("condor_submit", "-terse", "y.sub", user="alice", cwd=desk.folder).stdout
    else:
        done = desk.hydrator("wrap", "-d", "lofar:a", "--", "condor_submit", "-terse", "x.sub")
        assert done.returncode == 0, done.stderr
        output = done.stdout
    assert [job["RequiredDatasets"] for job in queued(desk, output)] == [expected]


def test_submit_description_of_a_dag_node_overrides_vars_before_it(desk):
    """VARS before a node's description are its defaults."""
    for name, text in {"own": '+RequiredDatasets={"own:1"}', "none": "a = b"}.items():
        desk.write(f"{name}.sub", f"{NODE}include command : /bin/echo {text}\nqueue\n")
    desk.write("x.dag", "JOB A own.sub\nJOB B none.sub\n")
    done = desk.hydrator("wrap", "-d", "lofar:a", "--", "condor_submit_dag", "-f", "x.dag")
    assert done.returncode == 0, done.stderr
    assert ran_with(desk, 2) == {"A": ["own:1"], "B": ["lofar:a"]}
