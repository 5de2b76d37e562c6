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
def installed(htcondor_release: str) -> Iterator[Installation]:
    """Start one installation for all tests in this file; each uses datasets of its own."""
    with (
        Pool.start(htcondor_release) as pool,
        Installation(pool, Held(pool.home), extra=DEPTH_FIRST) as installation,
    ):
        yield installation


class Held(ListedCatalogue):
    """The datasets of a site, which tests change without disturbing the datasets of other tests."""

    def __init__(self, folder) -> None:
        self._held: dict[str, dict[str, str]] = {}
        super().__init__(folder)

    def add(self, did: str, **sites: str) -> None:
        self._held[did] = sites
        self.hold(self._held)

    def forget(self, did: str) -> None:
        del self._held[did]
        self.hold(self._held)


def known(installed: Installation, did: str, site: str, state: str | None) -> None:
    """Wait until the slots of *site* advertise *state* for *did* (None: nothing)."""
    installed.pool.wait(
        lambda: installed.states_at(site).get(did) == state, 60, f"{site} to say {state} of {did}"
    )


def demand(installed: Installation, did: str) -> None:
    """Submit a job that cannot run and names *did*, so that it is published."""
    installed.submit([did], more="hold = True")


def test_waiting_jobs_run_beside_their_data_also_in_a_burst_of_six(installed):
    installed.catalogue.add("wait:one", UK="available")
    installed.catalogue.add("wait:six", UK="available")
    assert installed.ran_at(installed.submit(["wait:one"], mode="wait")) == ["UK"]
    burst = installed.submit(["wait:six"], mode="wait", count=6, seconds=5)
    assert installed.ran_at(burst, 120, jobs=6) == ["UK"] * 6


@pytest.mark.older
def test_a_job_that_waits_first_waits_and_then_runs_elsewhere(installed):
    before = time.time()
    job = installed.submit(["gone:nowhere"], mode="wait", more="+DataLocalityMaxWait = 15")
    assert installed.ran_at(job) != []
    (done,) = installed.pool.history(f"ClusterId == {job}", "JobStartDate", "DataLocalityAnyAfter")
    assert done["DataLocalityAnyAfter"] >= before + 15 - 1
    assert done["JobStartDate"] >= done["DataLocalityAnyAfter"]


def test_jobs_without_a_site_do_not_starve_a_job_that_can_run(installed):
    """A 25.14 schedd offers 20 autoclusters of a user's idle jobs a cycle; each of these jobs is its own."""
    pool = installed.pool
    nowhere = [installed.submit([f"starve:{number}"], mode="require") for number in range(30)]
    installed.catalogue.add("starve:not", AU="available")
    assert installed.ran_at(installed.submit(["starve:not"], mode="require"), 60) == ["AU"]
    pool.run("condor_rm", *map(str, nowhere), user="alice")


@pytest.mark.older
def test_reused_claim_starts_no_job_after_its_dataset_left(installed):
    """The schedd reuses a claim by the ad that it saw at the claim; only START reads the present ad."""
    installed.catalogue.add("leave:soon", NL="available")
    queue = installed.submit(["leave:soon"], mode="require", count=40, seconds=8, more="request_cpus = 2")
    pool = installed.pool
    pool.wait(lambda: pool.jobs(f"ClusterId == {queue} && JobStatus == 2"), 60, "the first job to run at NL")
    installed.catalogue.add("leave:soon", UK="staging")
    known(installed, "leave:soon", "NL", None)
    left_at = time.time()
    idle = f"ClusterId == {queue} && JobStatus == 1"
    pool.wait(lambda: not pool.jobs(f"ClusterId == {queue} && JobStatus == 2"), 60, "the running job to end")
    waiting = len(pool.jobs(idle))
    assert waiting >= 5
    # a claim would be reused at once: while another job comes and goes, none of these may start
    installed.catalogue.add("leave:other", NL="available")
    assert installed.ran_at(installed.submit(["leave:other"], mode="require")) == ["NL"]
    assert len(pool.jobs(idle)) == waiting
    started = pool.history(f"ClusterId == {queue}", "JobStartDate")
    assert all(job["JobStartDate"] <= left_at for job in started)
    pool.run("condor_rm", str(queue), user="alice")


def test_two_datasets_that_differ_in_letter_case_only_are_omitted_and_reported(installed):
    installed.catalogue.add("case:Sens", UK="available")
    installed.catalogue.add("case:sens", NL="available")
    for did in ("case:Sens", "case:sens"):
        demand(installed, did)
    installed.pool.wait(
        lambda: installed.status()["demand"]["clashes"] == [["case:Sens", "case:sens"]],
        30,
        "the clash to be reported",
    )
    known(installed, "case:sens", "UK", None)
    for site in ("UK", "NL"):
        # a cycle that began before the second name was there may have published the first
        installed.pool.wait(
            lambda site=site: not {did for did in installed.states_at(site) if did.lower() == "case:sens"},
            60,
            f"{site} to omit both",
        )
