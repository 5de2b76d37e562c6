"""Jobs that wait for their data, and the other jobs of their owner, in a schedd with a low MAX_JOBS_RUNNING.

P5: UK is full, DE and NL are empty. HTCONDOR-3855 is open in all releases up to 25.14: if one is cured, the
first assertion of the test fails, and the sentences about it can go.
"""

import re

import pytest

from testbed.installation import Installation, ListedCatalogue
from testbed.pool import Pool, SiteSpec

pytestmark = [pytest.mark.pool, pytest.mark.older, pytest.mark.timeout(900)]

BUDGET = "MAX_JOBS_RUNNING = 60\nSCHEDD_INTERVAL = 5\n"


def test_waiting_jobs_starve_others_of_their_owner_and_check_why_and_the_cure_are_true(htcondor_release):
    sites = [SiteSpec("UK", 2), SiteSpec("DE", 24), SiteSpec("NL", 24)]
    with Pool.start(htcondor_release, sites, {"schedd": BUDGET}) as pool:
        catalogue = ListedCatalogue(pool.home, ("UK", "DE", "NL"))
        catalogue.hold({"p:uk": {"UK": "available"}, "p:de": {"DE": "available"}})
        with Installation(pool, catalogue, extra={"schedd": BUDGET}) as installed:
            pool.fill("UK", cpus=1, jobs=2)
            waiting = installed.submit(["p:uk"], mode="require", count=200)
            pool.wait(lambda: "get no slot" in checked(installed), "check to warn before it happens")
            plain = installed.submit([], count=16, seconds=3600)
            local = installed.submit(["p:de"], count=16, seconds=3600)
            others = f"(ClusterId == {plain} || ClusterId == {local})"
            for _ in range(2):  # cycles of the negotiator
                assert pool.stays_idle(waiting)
            assert not pool.jobs(f"{others} && JobStatus == 2", "ProcId")
            told = installed.run("why", str(plain), check=False).stdout
            assert re.search(r"for 58 jobs only .*HTCONDOR-3855.*lower JobPrio", told)
            pool.run("condor_prio", "-p", "-1", str(waiting), user="alice")
            pool.until_running(plain, 16)
            pool.until_running(local, 16)


def checked(installed: Installation) -> str:
    return installed.run("check", check=False).stdout
