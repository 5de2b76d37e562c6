"""The jobs of a schedd that need data: their groups, and the groups whose match is evaluated."""

from collections import Counter
from types import SimpleNamespace

import classad2
import pytest

from adapters.condor.bindings.schedd_calls import NeedCalls, ScheddCalls

NOW = 1_800_000_000


class Queue:
    """A schedd with *jobs*, in the order of its queue. GroupBy counts jobs with equal attributes."""

    def __init__(self, *jobs):
        self.jobs = jobs

    def query(self, constraint, projection, opts=None, limit=None):
        test = classad2.ExprTree(constraint)
        found = [job for job in self.jobs if test.eval(job) is True]
        if opts != "GroupBy":
            return found[:limit]
        groups = Counter(
            tuple((name, str(job.lookup(name))) for name in projection if name in job) for job in found
        )
        return [
            classad2.ClassAd({"JobCount": count} | {name: classad2.ExprTree(text) for name, text in group})
            for group, count in groups.items()
        ]


class Calls(NeedCalls):
    """The calls with a queue in memory; no job runs."""

    def __init__(self, *jobs):
        self.classad = classad2
        options = SimpleNamespace(GroupBy="GroupBy", IncludeClusterAd="IncludeClusterAd")
        self.htcondor = SimpleNamespace(QueryOpt=options)
        self.queue = Queue(*jobs)

    def schedd(self, name):
        return self.queue

    def read_running_jobs(self, schedd, site_attributes):
        return []


def job(cluster, names, user="ann@x", age=0, status=1, **more):
    ad = {
        "ClusterId": cluster,
        "ProcId": 0,
        "User": user,
        "AutoClusterId": 7,
        "JobStatus": status,
        "JobUniverse": 5,
        "RequiredDatasets": list(names),
        "DataLocalityKey": ",".join(names),
        "EnteredCurrentStatus": NOW - age,
    }
    return classad2.ClassAd(ad | more)


def read(*jobs, max_groups=100):
    return Calls(*jobs).read_data_needs("ap1", (), max_groups)["idle"]


def evaluated(rows):
    return {row["example"] for row in rows if row["ad"] is not None}


def test_each_user_has_a_group_that_is_evaluated_however_many_groups_another_has():
    greedy = [job(n, [f"t:{n}"], age=100 + n, RequestCpus=1) for n in range(1, 6) for _ in range(3)]
    others = [job(20, ["t:x"], user="bob@x", age=1), job(21, ["t:y"], user="eve@x", age=2)]
    rows = read(*greedy, *others, max_groups=3)
    assert len(rows) == 7
    assert evaluated(rows) == {"5.0", "20.0", "21.0"}  # of many groups of one user the oldest


def test_held_jobs_take_the_place_of_no_idle_jobs():
    held = [job(n, [f"t:{n}"], age=100, status=5) for n in range(1, 4)]
    rows = read(*held, job(9, ["t:9"]), max_groups=1)
    assert evaluated(rows) == {"9.0"}
    assert [row["is_held"] for row in rows].count(True) == 3


def test_a_group_is_as_old_as_its_oldest_job():
    young, old = job(1, ["t:1"], age=5), job(2, ["t:1"], age=5000)
    [row] = read(young, old)
    assert (row["job_count"], row["example"], row["since"]) == (2, "2.0", NOW - 5000)
    [row] = read(job(1, ["t:1"], age=5, DataLocalityKey="k"), job(2, ["t:1"], age=9, DataLocalityKey="k"))
    assert (row["job_count"], row["example"], row["since"]) == (2, "2.0", NOW - 9)


def test_a_group_whose_oldest_job_has_just_gone_has_another_job():
    calls = Calls(job(1, ["t:1"], age=5), job(2, ["t:1"], age=50))
    [group] = calls._queued_groups(calls.queue)
    calls.queue.jobs = calls.queue.jobs[:1]
    row = calls._oldest_job(calls.queue, group, has_ad=True)
    assert (row["example"], row["since"]) == ("1.0", NOW - 5)
    calls.queue.jobs = ()
    assert calls._oldest_job(calls.queue, group, has_ad=True) is None


class CountingCalls(ScheddCalls):
    """The calls that count jobs, with a queue in memory."""

    __init__ = Calls.__init__
    schedd = Calls.schedd


@pytest.mark.parametrize("text", ["undefined", "UNDEFINED"])
def test_undefined_list_of_datasets_is_no_list(text):
    unset, listed = job(1, []), job(2, ["t:1"])
    unset["RequiredDatasets"] = classad2.ExprTree(text)
    counted = CountingCalls(unset, listed).count_queued_datasets("ap1")
    assert [(datasets, jobs) for datasets, jobs, _ in counted if datasets] == [(["t:1"], 1)]
