"""Operation of an installation on a real pool: the report."""

import json
from collections.abc import Iterator

import pytest

from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool

pytestmark = [pytest.mark.pool, pytest.mark.slow, pytest.mark.timeout(900)]

READS = '{"AU:2000000000:9.0:1795000000:UK", "AU:7:9.0:1795000000:NL"}'
HERE = {"site:uk": {"UK": "available"}, "site:au": {"AU": "available", "NL": "staging"}}


@pytest.fixture(scope="module")
def installed(own_pool: Pool) -> Iterator[Installation]:
    catalogue = ListedCatalogue(own_pool.home)
    catalogue.hold(HERE)
    with Installation(own_pool, catalogue) as installation:
        yield installation


def test_report_and_metrics_count_the_jobs_that_found_their_data(installed):
    pool = installed.pool
    before = json.loads(installed.run("report", "--json").stdout)
    assert before["outcomes"]["sets"] == {}
    assert "No job that names datasets" in installed.run("report").stdout

    pool.wait(lambda: installed.metric("hydrator_slots") > 0, "the first sample of the slots")
    local = [
        installed.submit(["site:uk"], mode="require", more=f"+ChirpDataLocalityReads = {READS}"),
        installed.submit(["site:au"], mode="require"),
    ]
    astray = installed.submit(["site:nowhere"], mode="wait", more="+DataLocalityMaxWait = 1")
    plain = pool.submit("executable = /bin/true\nrequest_memory = 10\nrequest_disk = 1\nqueue 2\n")
    never = installed.submit(["site:nowhere"], mode="require")
    odd = installed.submit(["site:nowhere"], mode="require", more=f"+JobStartDate = {2**62}")
    assert [installed.pool.ran_at(job) for job in local] == [["UK"], ["AU"]]
    installed.pool.ran_at(astray)
    installed.pool.ran_at(plain, jobs=2)
    pool.run("condor_rm", str(never), str(odd), user="alice")
    for job in (never, odd):
        pool.wait(lambda job=job: pool.history(f"ClusterId == {job}", "JobStatus"), "removed jobs")

    report = json.loads(installed.run("report", "--since", "1h", "--json").stdout)
    assert report["left_out"] == 1
    outcomes = report["outcomes"]
    total = outcomes["total"]
    assert [total[start] for start in ("local", "read", "unknown")] == [2, 0, 1]
    assert outcomes["never_started"] == 1
    assert [outcomes["sites"][site]["local"] for site in ("UK", "AU")] == [1, 1]
    sets = {names: (one["local"], one["read_bytes"]) for names, one in outcomes["sets"].items()}
    assert sets == {"site:uk": (1, 2 * 10**9), "site:au": (1, 0), "site:nowhere": (0, 0)}
    for times in ("waits", "runs"):
        counts = {start: one["jobs"] for start, one in outcomes[times].items()}
        assert counts == {"local": 2, "read": 0, "unknown": 1, "no_datasets": 2}
    (schedd,) = report["schedds"]
    assert (schedd["jobs"], schedd["is_complete"], schedd["failure"]) == (7, True, None)

    table = installed.run("report").stdout
    assert "3 jobs with datasets started and ended in 7 d; 1 more never started." in table
    assert "2 (66 %)" in table

    def metrics():
        counts = [
            installed.metric(f'hydrator_job_starts_total{{start="{one}"}}')
            for one in ("local", "unknown", "no_datasets")
        ]
        waits = [
            installed.metric(f'hydrator_job_wait_seconds_count{{datasets="{one}"}}')
            for one in ("named", "none")
        ]
        return counts + waits

    pool.wait(lambda: metrics() == [2, 1, 2, 3, 2], "the metrics to count all jobs once")
    again = installed.metric('hydrator_cycles_total{outcome="complete"}') + 5
    pool.wait(lambda: installed.metric('hydrator_cycles_total{outcome="complete"}') >= again, "five cycles")
    assert metrics() == [2, 1, 2, 3, 2], "each job is counted once"
