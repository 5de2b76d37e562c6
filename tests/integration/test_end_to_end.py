"""Jobs with only ``+RequiredDatasets`` follow their data: real pool, daemon, hook and transform.

UK has 8 cores, AU 4 and NL 2, so a stock negotiator would send every job to NL.
"""

import time
from collections.abc import Iterator

import pytest

from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

DEPTH_FIRST = {"negotiator": "NEGOTIATOR_DEPTH_FIRST = True\n"}


@pytest.fixture(scope="module")
def installed(own_pool: Pool) -> Iterator[Installation]:
    """Start one installation for all tests in this file; each uses datasets of its own."""
    with Installation(own_pool, ListedCatalogue(own_pool.home), extra=DEPTH_FIRST) as installation:
        yield installation


@pytest.mark.older
def test_a_job_that_waits_first_waits_and_then_runs_elsewhere(installed):
    before = time.time()
    job = installed.submit(["gone:nowhere"], mode="wait", more="+DataLocalityMaxWait = 15")
    assert installed.pool.ran_at(job) != []
    (done,) = installed.pool.history(f"ClusterId == {job}", "JobStartDate", "DataLocalityAnyAfter")
    assert done["DataLocalityAnyAfter"] >= before + 15 - 1
    assert done["JobStartDate"] >= done["DataLocalityAnyAfter"]


def test_jobs_without_a_site_do_not_starve_a_job_that_can_run(installed):
    """A 25.14 schedd offers 20 autoclusters of a user's idle jobs a cycle; each of these jobs is its own."""
    pool = installed.pool
    nowhere = [installed.submit([f"starve:{number}"], mode="require") for number in range(30)]
    installed.catalogue.add("starve:not", AU="available")
    assert installed.pool.ran_at(installed.submit(["starve:not"], mode="require")) == ["AU"]
    pool.run("condor_rm", *map(str, nowhere), user="alice")


@pytest.mark.older
def test_reused_claim_starts_no_job_after_its_dataset_left(installed):
    """The schedd reuses a claim by the ad that it saw at the claim; only START reads the present ad."""
    installed.catalogue.add("leave:soon", NL="available")
    queue = installed.submit(["leave:soon"], mode="require", count=40, seconds=8, more="request_cpus = 2")
    pool = installed.pool
    pool.until_running(queue)
    installed.catalogue.add("leave:soon", UK="staging")
    installed.until_states("leave:soon", NL=None)
    left_at = time.time()
    idle = f"ClusterId == {queue} && JobStatus == 1"
    pool.until_running(queue, jobs=0)
    waiting = len(pool.jobs(idle))
    assert waiting >= 5
    # a claim would be reused at once: while another job comes and goes, none of these may start
    installed.catalogue.add("leave:other", NL="available")
    assert installed.pool.ran_at(installed.submit(["leave:other"], mode="require")) == ["NL"]
    assert len(pool.jobs(idle)) == waiting
    started = pool.history(f"ClusterId == {queue}", "JobStartDate")
    assert all(job["JobStartDate"] <= left_at for job in started)
    pool.run("condor_rm", str(queue), user="alice")
