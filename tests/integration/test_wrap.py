"""``hydrator submit wrap`` and ``filter`` before the real condor_submit and condor_submit_dag."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.pool import Pool

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
TOOL = """\
#!{python}
import pathlib, sys
sys.path.insert(0, {root!r})
from testbed.pool import Pool
words = ["{tool}", *sys.argv[1:]]
done = Pool.attach(pathlib.Path({home!r})).run(*words, user="alice", check=False, cwd=pathlib.Path.cwd())
sys.stdout.write(done.stdout)
sys.stderr.write(done.stderr)
sys.exit(done.returncode)
"""
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
ATTRIBUTES = ("ProcId", "RequiredDatasets", "Args", "RequestCpus", "Iwd")


class Desk:
    """A folder of alice's, from which the pool's own tools run as if they were installed here."""

    def __init__(self, pool: Pool, folder: Path) -> None:
        self.pool = pool
        self.folder = folder
        folder.mkdir()
        folder.chmod(0o777)
        tools = pool.home / "tools"
        tools.mkdir(exist_ok=True)
        for tool in ("condor_submit", "condor_submit_dag"):
            text = TOOL.format(python=sys.executable, root=str(ROOT), home=str(pool.home), tool=tool)
            (tools / tool).write_text(text)
            (tools / tool).chmod(0o755)
        self.path = f"{tools}:{os.environ['PATH']}"

    def hydrator(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hydrator.cli", "submit", *words],
            cwd=self.folder,
            env={**os.environ, "PATH": self.path},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_bytes(text.encode())


@pytest.fixture
def desk(pool: Pool, request: pytest.FixtureRequest) -> Iterator[Desk]:
    yield Desk(pool, pool.user_home("alice") / request.node.name.partition("[")[0])
    pool.empty_queue()


def test_the_jobs_get_their_datasets_and_everything_else_as_it_was(desk):
    desk.write("x.sub", DESCRIPTION)
    words = ("condor_submit", "-terse", "held=true", "x.sub")
    plain = desk.pool.run(*words, user="alice", cwd=desk.folder).stdout
    done = desk.hydrator("wrap", "-d", "lofar:b,lofar:a", "--", *words)
    assert done.returncode == 0, done.stderr
    before, after = (queued(desk, text) for text in (plain, done.stdout))
    assert [job.pop("RequiredDatasets") for job in after] == [["lofar:a", "lofar:b"]] * 2
    assert after == before
    assert (desk.folder / "x.sub").read_bytes() == DESCRIPTION.encode()


def test_the_filtered_file_makes_the_same_jobs(desk):
    desk.write("x.sub", DESCRIPTION)
    command = [sys.executable, "-m", "hydrator.cli", "submit", "filter", "x.sub", "-d", "lofar:a"]
    filtered = subprocess.run(command, cwd=desk.folder, capture_output=True, check=True).stdout.decode()
    assert filtered == DESCRIPTION.replace("queue ms", '+RequiredDatasets = {"lofar:a"}\r\nqueue ms')
    desk.write("y.sub", filtered)
    words = ("condor_submit", "-terse", "held=true", "y.sub")
    said = desk.pool.run(*words, user="alice", cwd=desk.folder).stdout
    assert [job["RequiredDatasets"] for job in queued(desk, said)] == [["lofar:a"]] * 2


def test_the_exit_status_and_the_words_of_condor_submit_pass_through(desk):
    desk.write("x.sub", "arguments = no executable\nqueue\n")
    done = desk.hydrator("wrap", "-d", "lofar:a", "--", "condor_submit", "x.sub")
    plain = desk.pool.run("condor_submit", "x.sub", user="alice", cwd=desk.folder, check=False)
    assert plain.returncode != 0
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)


def test_one_bad_item_of_late_materialization_is_refused_before_submission(desk):
    desk.write(
        "x.sub",
        'executable = /bin/true\n+RequiredDatasets = {"$(did)"}\nmax_materialize = 1\nhold = true\n'
        'queue did from (\nlofar:a\nlofar:b"ad\nlofar:c\n)\n',
    )
    done = desk.hydrator("wrap", "--", "condor_submit", "x.sub")
    assert done.returncode == 2
    assert "(item did = lofar:b" in done.stderr
    assert desk.pool.jobs(f'Iwd == "{desk.folder}"', "ClusterId") == []


def test_each_node_of_a_dag_runs_with_its_own_datasets(desk):
    desk.write("node.sub", "executable = /bin/true\nrequest_cpus = 1\nrequest_memory = 10\nlog = node.log\n")
    desk.write(
        "own.sub", 'executable = /bin/true\nrequest_memory = 10\n+RequiredDatasets = {"own:1"}\nqueue\n'
    )
    (desk.folder / "node.sub").write_text((desk.folder / "node.sub").read_text() + "queue\n")
    dag = "JOB A node.sub\nJOB B node.sub\nJOB C own.sub\nPARENT A CHILD B C\n"
    desk.write("x.dag", dag)
    done = desk.hydrator(
        "wrap",
        "-d",
        "A=lofar:a",
        "-d",
        "B=lofar:b,lofar:c",
        "-d",
        "all:1",
        "--",
        "condor_submit_dag",
        "-f",
        "x.dag",
    )
    assert done.returncode == 0, done.stderr
    assert "node C has RequiredDatasets already" in done.stderr
    nodes = f'DAGNodeName isnt undefined && Iwd == "{desk.folder}"'
    desk.pool.wait(lambda: len(desk.pool.history(nodes, "DAGNodeName")) == 3, 120, "all nodes to end")
    ran = desk.pool.history(nodes, "DAGNodeName", "RequiredDatasets")
    assert {job["DAGNodeName"]: job["RequiredDatasets"] for job in ran} == {
        "A": ["all:1", "lofar:a"],
        "B": ["all:1", "lofar:b", "lofar:c"],
        "C": ["own:1"],
    }
    assert (desk.folder / "x.dag").read_text() == dag


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
    desk.pool.wait(lambda: len(desk.pool.history(nodes, "DAGNodeName")) == 3, 120, "all nodes to end")
    ran = desk.pool.history(nodes, "DAGNodeName", "RequiredDatasets")
    assert {job["DAGNodeName"]: job["RequiredDatasets"] for job in ran} == {
        "A": ["lofar:A"],
        "S+B": ["lofar:B"],
        "C": ["lofar:C"],
    }
    assert (desk.folder / "below" / "s.dag").read_text() == "JOB B node.sub\n"


def queued(desk: Desk, terse: str) -> list[dict[str, object]]:
    """The jobs that ``condor_submit -terse`` announced."""
    cluster = int(terse.partition(".")[0])
    return sorted(desk.pool.jobs(f"ClusterId == {cluster}", *ATTRIBUTES), key=lambda job: job["ProcId"])
