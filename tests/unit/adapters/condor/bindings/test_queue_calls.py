"""A schedd's queue by two queries: its jobs in groups, and those that run or have reports.

Anybody can write any value into a job's ad.
"""

import classad2
import pytest

from adapters.condor.bindings.library import MAX_MISSES_OF_JOB
from adapters.condor.bindings.match_calls import MatchCalls
from adapters.condor.bindings.schedd_calls import (
    FACTORIES,
    MAX_REPORTS_OF_USER,
    SINGLE_JOBS,
    LoadCalls,
)

from .queue_in_memory import NOW, connect, job

PLAIN = {"RequestCpus": 2, "RequestMemory": 2048, "RequestDisk": 2**20, "RequestGPUs": 1}
START = {"status": 2, "JobCurrentStartDate": 100, "RemoteHost": "slot1_2@uk", "MachineAttrSite0": "UK"}
ENDLESS = classad2.ExprTree("false ? {} : RequiredDatasets")
"""A schedd before 25.13.2 that evaluates this hangs."""


def factory(cluster, names, **more):
    """Return the cluster's ad of a factory, of whose five items two are jobs."""
    ad = job(cluster, names, **{"JobMaterializeDigestFile": "digest", "TotalSubmitProcs": 5, **more})
    ad.setdefault("JobMaterializeNextProcId", 2)
    del ad["ProcId"]
    return ad


def calls_of(*jobs):
    return connect(LoadCalls.__new__(LoadCalls), *jobs)


def read(*jobs):
    return calls_of(*jobs).read_queue("ap1", ["Site"])


def idle(*jobs):
    return read(*jobs)["idle"]


def running(**more):
    (row,) = read(job(1, ["t:a"], **START | more))["running"]
    return row


def needs(*jobs):
    """Return the number of jobs and the oldest of each row of needs."""
    return [(row["job_count"], row["example"]) for row in read(*jobs)["needs"]]


def test_two_queries_have_all_whatever_is_in_the_queue():
    jobs = [job(n, [f"t:{n}"], user=f"u{n}") for n in range(30)]
    jobs += [job(30 + n, [f"t:{n}"], **START) for n in range(30)]
    jobs += [job(60, ["t:1"], ChirpDataLocalityMisses=["1 t:1 UK"]), factory(61, ["t:2"])]
    calls = calls_of(*jobs)
    calls.read_queue("ap1", ["Site"])
    assert calls.queue.queries == 2


def test_all_jobs_with_datasets_are_counted_by_list_and_key():
    held = job(1, ["t:a"], status=5)
    local = job(2, ["t:a"], JobUniverse=12)
    gone = [job(3, ["t:a"], status=status) for status in (3, 4)]
    other_key = job(4, ["t:a"], DataLocalityKey="k")
    keyless = job(5, ["t:a"], DataLocalityKey=classad2.ExprTree("1 + 1"))
    bare = classad2.ClassAd({"JobStatus": 1, "ClusterId": 6, "ProcId": 0})
    odd = job(7, [], DataLocalityKey="o", RequiredDatasets=classad2.ExprTree("undefined"))
    long = job(10, ["t:a"], DataLocalityKey="x" * 2000)
    rows = read(held, local, *gone, other_key, keyless, bare, odd, long, job(9, ["t:a"], **START))["queued"]
    assert rows == [
        (("t:a",), 3, "t:a", False),
        (("t:a",), 1, "k", False),
        (("t:a",), 1, None, False),
        ((), 1, "o", False),
        (("t:a",), 1, "x" * 501, False),
    ]


@pytest.mark.parametrize(
    "value",
    ["false ? { } : RequiredDatasets", '"t:a"', '{ "t:a", 5 }', "NoSuch", '"a" + 1', '{ strcat("t:","a") }'],
)
def test_value_that_is_not_a_list_of_strings_is_returned_as_its_text(value):
    [(datasets, jobs, *_)] = read(job(1, [], RequiredDatasets=classad2.ExprTree(value)))["queued"]
    assert (datasets, jobs) == ((f"RequiredDatasets = {value}",), 1)


def test_key_of_the_jobs_cluster_is_told_from_that_of_another():
    """The transform takes what a job has that says that it is transformed."""
    key = "c7.3@ap1"
    own = [job(7, ["t:a"], DataLocalityKey=key), job(8, ["t:a"], DataLocalityKey=key, user="bob@x")]
    others = [job(70, ["t:b"], DataLocalityKey=key), job(7, ["t:c"], DataLocalityKey="c7.3@ap2")]
    assert read(*own, *others)["queued"] == [
        (("t:a",), 1, key, True),
        (("t:a",), 1, key, False),
        (("t:b",), 1, key, False),
        (("t:c",), 1, "c7.3@ap2", False),
    ]


@pytest.mark.parametrize(
    ("factories", "counted", "queries"),
    [
        ([factory(2, ["t:a"])], {("t:a",): 2}, 2),
        ([factory(2, ["t:a"]), factory(3, ["t:a"])], {("t:a",): 3}, 2),
        ([factory(2, ["t:b"])], {("t:a",): 1, ("t:b",): 1}, 3),
        ([factory(2, ["t:a"], DataLocalityKey=5)], {("t:a",): 2}, 3),
        ([factory(2, ["t:a"], JobMaterializeNextProcId=5)], {("t:a",): 1}, 2),
    ],
)
def test_factory_with_items_that_are_not_jobs_yet_is_one_job_more(factories, counted, queries):
    calls = calls_of(job(1, ["t:a"]), *factories)
    counts = {}
    for names, count, *_ in calls.read_queue("ap1", [])["queued"]:
        counts[names] = counts.get(names, 0) + count
    assert (counts, calls.queue.queries) == (counted, queries)


def test_factory_has_not_the_list_of_a_job_with_a_key_that_is_not_of_its_list():
    calls = calls_of(job(1, ["t:b"], DataLocalityKey="t:a"), factory(2, ["t:a"]))
    assert calls.read_queue("ap1", [])["queued"] == [
        (("t:a",), 1, "t:a", False),
        (("t:b",), 1, "t:a", False),
    ]


@pytest.mark.parametrize("name", ["RequiredDatasets", "ChirpDataLocalityMisses", "ChirpDataLocalityReads"])
@pytest.mark.parametrize("constraint", [FACTORIES, SINGLE_JOBS])
def test_no_query_evaluates_what_a_user_wrote(constraint, name):
    assert constraint.count(name) == constraint.count(f"unparse({name})")


def test_jobs_with_reports_are_read_within_limits():
    misses, reads = [f"{n} t:1 UK" for n in range(99)], ["UK:1:1:1:NL", "x" * 999]
    reporters = [
        job(n, ["t:1"], ChirpDataLocalityMisses=misses, ChirpDataLocalityReads=reads)
        for n in range(MAX_REPORTS_OF_USER + 5)
    ]
    bob = job(999, ["t:1"], user="bob@x", ChirpDataLocalityReads=reads, **START)
    odd = job(1000, ["t:1"], user="bob@x", ChirpDataLocalityReads=ENDLESS)
    rows = read(*reporters, bob, odd)["reports"]
    assert len(rows) == MAX_REPORTS_OF_USER + 2
    assert rows[1]["misses"] == misses[:MAX_MISSES_OF_JOB]
    assert rows[0] == {
        "GlobalJobId": "ap1#999.0",
        "User": "bob@x",
        "misses": [],
        "reads": [reads[0], "x" * 300],
    }
    assert rows[-1]["reads"] == []


def test_reports_of_a_users_last_started_jobs_come_first():
    """Jobs that run for long keep their reports, and must not hide new ones."""
    reporters = [
        job(n, ["t:1"], ChirpDataLocalityMisses=[f"{n} t:1 UK"], JobCurrentStartDate=NOW + n)
        for n in range(MAX_REPORTS_OF_USER + 5)
    ]
    rows = read(*reporters, job(999, ["t:1"], ChirpDataLocalityReads=["UK:1:1:1:NL"]))["reports"]
    kept = {row["GlobalJobId"] for row in rows}
    assert kept == {f"ap1#{n}.0" for n in range(5, MAX_REPORTS_OF_USER + 5)}


def test_a_group_of_needs_is_of_one_user_autocluster_and_list():
    young, old = job(20, ["t:1"], RequestCpus=1), job(3, ["t:1"], RequestCpus=2)
    others = [job(4, ["t:1"], user="bob@x"), job(5, ["t:1"], AutoClusterId=8), job(6, ["t:1"], status=5)]
    assert needs(young, old, *others) == [(2, "3.0"), (1, "4.0"), (1, "5.0"), (1, "6.0")]
    [row] = read(job(1, ["t:0"], JobUniverse=7), job(6, ["t:1"], status=5))["needs"]
    assert (row["queued"], row["user"], row["is_held"]) == (1, "ann@x", True)


def test_texts_of_jobs_to_match_come_by_one_query():
    calls = connect(
        MatchCalls.__new__(MatchCalls), job(1, ["t:1"]), job(11, ["t:2"]), job(2, ["t:3"], status=2)
    )
    texts = calls.read_job_texts("ap1", ["11.0", "2.0"])
    assert list(texts) == ["11.0"]
    assert texts["11.0"]["RequiredDatasets"] == '{ "t:2" }'
    assert calls.queue.queries == 1


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
    first = {"key": "t:a", "run": "r1", "lane": 3, "is_auto": True, "request": (2.0, 2048.0, 2.0**20, 1.0)}
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


@pytest.mark.parametrize("site", ["undefined", 'strcat("U", "K")'])
def test_running_job_without_a_recorded_site_has_its_partitionable_slot(site):
    """An expression is of the job's owner: nothing evaluates it."""
    row = running(MachineAttrSite0=classad2.ExprTree(site))
    assert (row["site"], row["slot"]) == (None, "slot1@uk")
