"""Operation of an installation on a real pool: the report."""

import json
from collections.abc import Iterator

import pytest

from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool

pytestmark = [pytest.mark.pool, pytest.mark.slow, pytest.mark.timeout(900)]

HERE = {"site:uk": {"UK": "available"}, "site:au": {"AU": "available", "NL": "staging"}}


@pytest.fixture(scope="module")
def installed(htcondor_release: str) -> Iterator[Installation]:
    with Pool.start(htcondor_release) as pool:
        catalogue = ListedCatalogue(pool.home)
        catalogue.hold(HERE)
        with Installation(pool, catalogue) as installation:
            yield installation


def test_report_and_metrics_count_the_jobs_that_found_their_data(installed):
    pool = installed.pool
    before = json.loads(installed.run("report", "--json").stdout)
    assert before["outcomes"]["total"]["job_counts"] == {"all": 0, "some": 0, "none": 0, "unknown": 0}
    assert "No job that named datasets" in installed.run("report").stdout

    pool.wait(lambda: installed.metric("hydrator_slots") > 0, 60, "the first sample of the slots")
    local = [
        installed.submit(["site:uk"], mode="require"),
        installed.submit(["site:au"], mode="require"),
    ]
    astray = installed.submit(["site:nowhere"], mode="wait", more="+DataLocalityMaxWait = 1")
    plain = pool.submit("executable = /bin/true\nrequest_memory = 10\nrequest_disk = 1\nqueue 2\n")
    never = installed.submit(["site:nowhere"], mode="require")
    assert [installed.ran_at(job) for job in local] == [["UK"], ["AU"]]
    installed.ran_at(astray)
    installed.ran_at(plain, jobs=2)
    pool.run("condor_rm", str(never), user="alice")
    pool.wait(lambda: pool.history(f"ClusterId == {never}", "JobStatus"), 60, "the removed job's history")

    report = json.loads(installed.run("report", "--since", "1h", "--json").stdout)
    outcomes = report["outcomes"]
    total = outcomes["total"]
    assert total["job_counts"] == {"all": 2, "some": 0, "none": 1, "unknown": 0}
    assert outcomes["never_started"] == 1
    assert (total["bytes_at_site"], total["bytes_elsewhere"]) == (3000, 0)
    assert outcomes["datasets_without_size"] == 2
    assert (outcomes["waits"]["jobs"], outcomes["other_waits"]["jobs"]) == (3, 2)
    by_site = {site: one["job_counts"]["all"] for site, one in outcomes["sites"].items()}
    assert (by_site["UK"], by_site["AU"]) == (1, 1)
    (schedd,) = report["schedds"]
    assert (schedd["jobs"], schedd["is_complete"], schedd["failure"]) == (6, True, None)

    table = installed.run("report").stdout
    assert (
        "3 jobs that named datasets ran and ended in 7 d; 1 more jobs with datasets never started." in table
    )
    assert "2 (66 %)" in table

    def metrics():
        counts = [
            installed.metric(f'hydrator_jobs_local_total{{locality="{one}"}}') for one in ("all", "none")
        ]
        waits = [
            installed.metric(f'hydrator_job_wait_seconds_count{{datasets="{one}"}}')
            for one in ("named", "none")
        ]
        return counts + waits

    pool.wait(lambda: metrics() == [2, 1, 3, 2], 60, "the metrics to count all jobs once")
    assert installed.metric('hydrator_jobs_data_bytes_total{place="site"}') == 3000
    again = installed.metric('hydrator_cycles_total{outcome="complete"}') + 5
    pool.wait(
        lambda: installed.metric('hydrator_cycles_total{outcome="complete"}') >= again, 60, "five cycles"
    )
    assert metrics() == [2, 1, 3, 2], "each job is counted once"
