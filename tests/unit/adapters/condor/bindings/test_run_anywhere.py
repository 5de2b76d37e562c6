"""The edit that lets queued jobs run anywhere: which jobs a constraint selects, and which it never does."""

from types import SimpleNamespace

import classad2
import pytest

from adapters.condor.bindings.library import CallError
from adapters.condor.bindings.schedd_calls import ScheddCalls


class Queue:
    """A schedd with one waiting job each of alice (178.0) and bob (179.0)."""

    def __init__(self) -> None:
        common = {"JobStatus": 1, "DataLocalityTransformed": True, "DataLocalityHere": False}
        self.jobs = [
            classad2.ClassAd({"ClusterId": 178, "ProcId": 0, "Owner": "alice", **common}),
            classad2.ClassAd({"ClusterId": 179, "ProcId": 0, "Owner": "bob", **common}),
        ]

    def query(self, constraint, projection, opts=None, limit=None):
        test = classad2.ExprTree(constraint)
        return [job for job in self.jobs if test.eval(job) is True][:limit]

    def edit(self, ids, attribute, literal):
        for job in self.jobs:
            if f"{job['ClusterId']}.{job['ProcId']}" in ids:
                job[attribute] = classad2.ExprTree(literal)


class Calls(ScheddCalls):
    """The calls with a queue in memory."""

    def __init__(self) -> None:
        self.classad = classad2
        self.htcondor = SimpleNamespace(
            QueryOpt=SimpleNamespace(GroupBy="GroupBy"), HTCondorException=RuntimeError
        )
        self.queue = Queue()

    def schedd(self, name):
        return self.queue

    def free_owners(self) -> list[str]:
        return [job["Owner"] for job in self.queue.jobs if job.eval("DataLocalityHere") is True]


@pytest.mark.parametrize(
    "constraint",
    [
        "178",
        "178.0",
        "-1",
        "(178)",
        "true",
        "1 == 1",
        '"x"',
        "undefined",
        "error",
        "time() > 5",
        "random(2)",
        "TARGET.Owner is undefined",
        "ClusterId ==",
        "",
        "178,179",
        "ClusterId == 178 // one",
        "ClusterId == 1 || 179",
        '(178) || Owner == "alice"',
        'ClusterId == 178 && (Owner == "bob" || 178)',
        "[a = 1].a",
    ],
)
def test_constraint_that_asks_nothing_of_a_job_is_refused(constraint):
    calls = Calls()
    for edit in (
        lambda: calls.run_anywhere("ap1", constraint),
        lambda: calls.read_constraint_names(constraint),
    ):
        with pytest.raises(CallError, match="the constraint") as refused:
            edit()
        assert refused.value.kind == "usage"
    assert calls.free_owners() == []


@pytest.mark.parametrize(
    "constraint",
    [
        "ClusterId == 178",
        'Owner == "alice"',
        "ClusterId < 179",
        "ProcId == 0 && !(ClusterId == 179)",
        "ClusterId == 178 || Missing",
        'Owner == "alice" || Owner == "178 || 179"',
        'Owner == "alice" && JobStatus == 1',
        "Missing is undefined && (ClusterId == 178)",
    ],
)
def test_constraint_selects_its_jobs_alone(constraint):
    calls = Calls()
    assert (calls.run_anywhere("ap1", constraint), calls.free_owners()) == (1, ["alice"])


def test_all_jobs_are_selected_without_a_constraint_only():
    calls = Calls()
    assert (calls.run_anywhere("ap1", None), calls.free_owners()) == (2, ["alice", "bob"])


def test_names_of_a_constraint_are_those_of_the_job():
    names = Calls().read_constraint_names("MY.Owner == alice && Owner is undefined || TARGET.Cpus > Disk.x")
    assert names == ["Disk", "Owner", "alice"]


def test_a_match_in_the_queue_is_known_without_an_edit():
    calls = Calls()
    assert calls.has_queued_job("ap1", 'Owner == "bob"')
    assert not calls.has_queued_job("ap1", "Owner == alice")
    calls.queue.jobs[1]["JobStatus"] = 3
    assert not calls.has_queued_job("ap1", 'Owner == "bob"')
    assert calls.free_owners() == []
