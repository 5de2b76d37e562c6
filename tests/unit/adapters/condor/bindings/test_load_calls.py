"""Idle and running jobs in groups, as the pacing needs them. Anybody can write any value into a job's ad."""

import classad2
import pytest

from adapters.condor.bindings.schedd_calls import LoadCalls
from tests.unit.adapters.condor.bindings.test_need_calls import Calls as QueueCalls
from tests.unit.adapters.condor.bindings.test_need_calls import job

PLAIN = {"RequestCpus": 2, "RequestMemory": 2000, "RequestDisk": 10**6, "RequestGPUs": 1}
START = {"status": 2, "JobCurrentStartDate": 100, "RemoteHost": "slot1_2@uk", "MachineAttrSite0": "UK"}


class Calls(QueueCalls):
    read_running_jobs = LoadCalls.read_running_jobs


def idle(*jobs):
    return Calls(*jobs).read_idle_jobs("ap1")


def running(**more):
    (row,) = Calls(job(1, ["t:a"], **START | more)).read_running_jobs("ap1", ["Site"])
    return row


def test_idle_jobs_are_grouped_by_key_run_lane_mode_and_request():
    one = {"DataLocality": "auto", "DataLocalityLane": 3, "WorkflowRun": "r1", **PLAIN}
    others = [{}, {"DataLocality": "require"}, {"DataLocalityLane": 0}, {"RequestMemory": 10}]
    jobs = [job(n, ["t:a"], user=f"u{n}", **one) for n in range(3)]
    jobs += [job(10, ["t:a"], **one | more) for more in others]
    jobs += [
        job(20, ["t:a"], status=5, **one),
        job(21, ["t:a"], JobUniverse=12),
        classad2.ClassAd({"JobStatus": 1}),
    ]
    rows = idle(*jobs)
    first = {"key": "t:a", "run": "r1", "lane": 3, "is_auto": True, "request": (2.0, 2000.0, 1e6, 1.0)}
    assert rows[0] == {**first, "job_count": 4}
    assert [row["job_count"] for row in rows] == [4, 1, 1, 1]
    assert [row["is_auto"] for row in rows] == [True, False, True, True]


@pytest.mark.parametrize(
    ("value", "counts_as"),
    [("4", 4.0), ("0.5", 0.5), ("-1", 0.0), ("DiskUsage", 0.0), ("1 + 1", 0.0), ('"4"', 0.0), ("true", 0.0)],
)
@pytest.mark.parametrize(("name", "place"), [(name, place) for place, name in enumerate(PLAIN)])
def test_request_counts_if_it_is_a_plain_number(name, place, value, counts_as):
    (row,) = idle(job(1, ["t:a"], **PLAIN | {name: classad2.ExprTree(value)}))
    expected = [float(each) for each in PLAIN.values()]
    expected[place] = counts_as
    assert list(row["request"]) == expected


@pytest.mark.parametrize("value", ["-3", '"7"', "ProcId", "true"])
def test_lane_that_is_no_number_is_lane_0(value):
    (row,) = idle(job(1, ["t:a"], DataLocalityLane=classad2.ExprTree(value)))
    assert row["lane"] == 0


@pytest.mark.parametrize(
    ("value", "offer"),
    [
        ('"read 240 s from UK"', "read 240 s from UK"),
        ('"local"', "local"),
        ('""', ""),
        ('strcat("lo", "cal")', None),
        ("undefined", None),
        (f'"{"x" * 101}"', None),
    ],
)
def test_running_job_has_the_offer_of_its_start(value, offer):
    expected = {"key": "t:a", "offer": offer, "site": "UK", "slot": None, "started_at": [100]}
    assert running(MATCH_EXP_DataLocalityStart=classad2.ExprTree(value)).items() > expected.items()


def test_running_job_without_a_recorded_site_has_its_partitionable_slot():
    row = running(MachineAttrSite0=classad2.ExprTree("undefined"))
    assert (row["site"], row["slot"]) == (None, "slot1@uk")
