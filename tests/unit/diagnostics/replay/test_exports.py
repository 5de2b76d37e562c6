"""SWF and WfFormat, by the rules of their definitions (exports.py has the addresses)."""

import re

import pytest

from hydrator.diagnostics.replay.exports import escape_id, swf_lines, wfformat
from hydrator.diagnostics.replay.model import InputData, JobClass, PoolSite

from .worlds import DE, NL, OFF, REQUIRE, play, workload

ID = re.compile(r"[0-9a-zA-Z\-_./:#]+")
"""Characters of a file's id in wfcommons-schema.json 1.5."""
ODD = InputData(100, frozenset({NL}), "lofar:L1@home+x")
SITES = (PoolSite(NL, 1, 2, 10.0), PoolSite(DE, 1, 1, 10.0))
JOBS = workload(
    SITES,
    (0, 50, JobClass("alice", 1, (ODD,))),
    (3, 7, JobClass("bob", 2)),
    (9, 5, JobClass("alice", 1, (ODD,))),
)


def test_swf_has_18_columns_and_a_header():
    run = play(JOBS, OFF)
    lines = list(swf_lines(run, "1.2"))
    header = [line for line in lines if line.startswith(";")]
    rows = [[int(word) for word in line.split()] for line in lines[len(header) :]]
    assert all(re.match(r"; [A-Z][A-Za-z]+: .+", line) for line in header)
    assert "; Version: 2.2" in header
    assert {f"; MaxJobs: {len(rows)}", "; MaxProcs: 3", "; UnixStartTime: 0"} <= set(header)
    assert [len(row) for row in rows] == [18] * 3
    assert [row[0] for row in rows] == [1, 2, 3]
    assert [row[1] for row in rows] == [0, 3, 9]
    for job, row in enumerate(rows):
        wait, wall, used, wanted, user = row[2], row[3], row[4], row[7], row[11]
        assert wait == round(run.started[job] - JOBS.submitted[job])
        assert wall == round(run.ended[job] - run.started[job])
        assert used == wanted == (2 if job == 1 else 1)
        assert user == (2 if job == 1 else 1)
        assert row[15] == run.site_of[job] + 1


def test_swf_shows_a_job_that_never_started_as_cancelled():
    jobs = workload((PoolSite(NL, 0, 1), PoolSite(DE, 1, 1)), (0, 5, JobClass("alice", 1, (ODD,))))
    last = list(swf_lines(play(jobs, REQUIRE), "1"))[-1].split()
    assert (last[2], last[3], last[4], last[10], last[15]) == ("-1", "-1", "-1", "5", "-1")


def test_wfformat_has_the_required_keys_and_closed_references():
    run = play(JOBS, OFF)
    document = wfformat(run, "1.2")
    assert {"name", "schemaVersion", "workflow"} <= document.keys()
    assert document["schemaVersion"] == "1.5"
    assert {"name", "version"} <= document["runtimeSystem"].keys()
    specification, execution = document["workflow"]["specification"], document["workflow"]["execution"]
    assert {"makespanInSeconds", "executedAt", "tasks"} <= execution.keys()
    tasks = {task["id"]: task for task in specification["tasks"]}
    files = {file["id"]: file["sizeInBytes"] for file in specification["files"]}
    assert files == {escape_id(ODD.name): 100}
    assert [task["id"] for task in execution["tasks"]] == list(tasks)
    for task in tasks.values():
        assert {"name", "id", "parents", "children"} <= task.keys()
        assert set(task["inputFiles"]) <= files.keys()
        assert all(ID.fullmatch(name) for name in [*task["inputFiles"], task["id"]])
    machines = {machine["nodeName"] for machine in execution["machines"]}
    for job, task in enumerate(execution["tasks"]):
        assert task["runtimeInSeconds"] == round(run.ended[job] - run.started[job], 3)
        assert set(task["machines"]) <= machines
        assert task["coreCount"] >= 1


def test_wfformat_leaves_out_jobs_that_never_started():
    jobs = workload((PoolSite(NL, 0, 1), PoolSite(DE, 1, 1)), (0, 5, JobClass("alice", 1, (ODD,))))
    with pytest.raises(ValueError, match="no job started"):
        wfformat(play(jobs, REQUIRE), "1")


def test_escaped_ids_differ_where_the_names_differ():
    names = ["a@b", "a+b", "a~b", "a=b", "a_b", "a40b"]
    assert len({escape_id(name) for name in names}) == len(names)
    assert all(ID.fullmatch(escape_id(name)) for name in names)
