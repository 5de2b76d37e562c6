"""The jobs in a schedd's history, where owners may have edited every time and id of their jobs."""

import classad2
import pytest

from adapters.condor.bindings.schedd_calls import ScheddCalls
from hydrator.diagnostics.outcomes import Start, parse_ended_job
from hydrator.diagnostics.start_record import ASKED, has_own_record
from hydrator.domain.ads import contract

from .queue_in_memory import NOW, connect, job

DAY = 86_400


class History(ScheddCalls):
    """The calls with a history in memory, the job that left the queue last first."""

    def __init__(self, *jobs):
        connect(self)
        self.jobs = jobs
        self.schedd = lambda name: self

    def history(self, constraint, projection, match, since):
        test, stop = classad2.ExprTree(constraint), classad2.ExprTree(since)
        found = []
        for ad in self.jobs:
            if stop.eval(ad) is True:
                break
            if test.eval(ad) is True:
                found.append(ad)
        return found[:match]


def ended(number, age, **more):
    reports = {"ChirpDataLocalityMisses": [f"{NOW} t:1 UK"], "ChirpDataLocalityReads": [f"read {number}"]}
    ids = {"GlobalJobId": f"ap1#{number}", "QDate": NOW - age - DAY}
    return job(number, ["t:1"], age=age, status=4, **{**ids, **reports, **more})


def ids(calls, **limits):
    rows = calls.outcomes("ap1", NOW - 7 * DAY, (), max_jobs=100, **limits)
    return [row["GlobalJobId"] for row in rows]


@pytest.mark.parametrize("end", [0, -5, 7, NOW - 100 * DAY, "never", 2**62])
def test_end_that_an_owner_edited_hides_no_other_job(end):
    odd = ended(2, DAY, EnteredCurrentStatus=end)
    calls = History(ended(1, DAY), odd, ended(3, 2 * DAY), ended(4, 100 * DAY), ended(5, DAY))
    found = ids(calls)
    assert [one for one in found if one != "ap1#2"] == ["ap1#1", "ap1#3"], "the fourth ends the query"


@pytest.mark.parametrize("end", [0, -5, "never", 2**62])
def test_job_with_an_impossible_end_is_returned_once(end):
    calls = History(ended(1, DAY), ended(2, DAY, EnteredCurrentStatus=end), ended(3, 5 * DAY))
    assert ids(calls) == ["ap1#1", "ap1#2", "ap1#3"]
    assert ids(calls, ended_before=NOW - 2 * DAY) == ["ap1#3"]


def test_job_without_an_id_has_none():
    assert ids(History(ended(1, DAY, GlobalJobId=classad2.ExprTree("undefined")))) == [None]


def test_query_ends_at_the_job_that_was_the_last_one_before():
    assert ids(History(ended(1, DAY), ended(2, DAY), ended(3, DAY)), after_job_id="ap1#2") == ["ap1#1"]


@pytest.mark.parametrize(
    ("more", "start", "is_own"),
    [
        ({}, Start.LOCAL, True),
        ({contract.KEY: "c12.3@ap1"}, Start.LOCAL, True),
        ({contract.KEY: "c13.3@ap1"}, Start.LOCAL, False),
        ({contract.KEY: "c12.3@ap2"}, Start.LOCAL, False),
        ({contract.START: classad2.ExprTree("undefined")}, Start.UNKNOWN, False),
        ({contract.START_RECORD: classad2.ExprTree("local")}, Start.UNKNOWN, True),
    ],
    ids=["names", "own cluster", "other cluster", "other schedd", "no transform", "no string"],
)
def test_start_of_an_ended_job_counts_if_the_schedd_wrote_it(more, start, is_own):
    written = {contract.START: ASKED, contract.START_RECORD: "local"}
    (row,) = History(ended(12, DAY, **(written | more))).outcomes("ap1", NOW - 7 * DAY, (), max_jobs=100)
    assert (parse_ended_job(row).start, has_own_record(row)) == (start, is_own)
