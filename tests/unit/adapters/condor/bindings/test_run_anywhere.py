"""The edit that lets queued jobs run anywhere: which jobs a constraint selects, and which it never does."""

import classad2
import pytest

from adapters.condor.bindings.library import CallError
from adapters.condor.bindings.schedd_calls import ScheddCalls

from .queue_in_memory import connect, job


def make_calls() -> ScheddCalls:
    """Return the calls, with a queue of one waiting job each of alice (178.0) and bob (179.0)."""
    common = {"DataLocalityTransformed": True, "DataLocalityHere": False}
    jobs = job(178, ["t:1"], Owner="alice", **common), job(179, ["t:1"], Owner="bob", **common)
    return connect(ScheddCalls.__new__(ScheddCalls), *jobs)


def free_owners(calls) -> list[str]:
    return [job["Owner"] for job in calls.queue.jobs if job.eval("DataLocalityHere") is True]


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
        "ClusterId == 1 || -1",
        '(178) || Owner == "alice"',
        'ClusterId == 178 && (Owner == "bob" || 178)',
        "[a = 1].a",
        'Owner == "bob" || true',
        "TRUE || ClusterId == 1",
        'ClusterId == 1 && (Owner == "bob" || 1 == 1)',
        'ClusterId == 1 || !isUndefined("Owner")',
    ],
)
def test_constraint_that_asks_nothing_of_a_job_is_refused(constraint):
    """Case S25 of cases/submit.md."""
    calls = make_calls()
    with pytest.raises(CallError, match="the constraint") as refused:
        calls.run_anywhere("ap1", constraint)
    assert refused.value.kind == "usage"
    assert free_owners(calls) == []


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
        'isUndefined(Owner) || Owner == "alice" || false && ClusterId == 1',
        "(ClusterId == 178) is true || ProcId == 5",
    ],
)
def test_constraint_selects_its_jobs_alone(constraint):
    calls = make_calls()
    assert (calls.run_anywhere("ap1", constraint), free_owners(calls)) == (1, ["alice"])


def test_all_jobs_are_selected_without_a_constraint_only():
    calls = make_calls()
    assert (calls.run_anywhere("ap1", None), free_owners(calls)) == (2, ["alice", "bob"])


def test_edit_looks_at_the_text_of_what_a_user_wrote():
    """A schedd before 25.13.2 that evaluates ``+X = false ? {} : X`` hangs."""
    calls = make_calls()
    for one, name in zip(calls.queue.jobs, ("DataLocalityTransformed", "DataLocalityHere"), strict=True):
        one[name] = classad2.ExprTree("1 == 1")
    assert calls.run_anywhere("ap1", None) == 1
    assert [str(one.lookup("DataLocalityHere")) for one in calls.queue.jobs] == ["false", "true"]


def test_constraint_without_a_match_in_the_queue_is_not_one_whose_jobs_are_free():
    """A freed job may not match its constraint again, as ``DataLocalityHere =!= true``."""
    calls = make_calls()
    assert [calls.run_anywhere("ap1", 'Owner == "bob"') for _ in range(2)] == [1, 0]
    for text in ("Owner == alice", "ClusterId", "ClusterId == 178 ? 1 : 2", "int(ClusterId == 178) + 1"):
        assert calls.run_anywhere("ap1", text) is None  # a number is no condition
    calls.queue.jobs[1]["JobStatus"] = 3
    assert calls.run_anywhere("ap1", 'Owner == "bob"') is None
