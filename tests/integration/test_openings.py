"""Pacing on a real pool: jobs of mode auto start elsewhere by openings, whatever is full, broken or refusing.

UK is full. PL's free slots refuse long jobs and have 1,000 MiB. On 25.14 NL's only slot is broken. CLOUD is
in no catalogue, and DE has a GPU. Both have no data. FAR stores data and has no slots.
"""

import re
from collections.abc import Iterator
from datetime import datetime

import httpx
import pytest

from testbed.installation import Installation, ListedCatalogue
from testbed.patience import LIMIT_SECONDS
from testbed.pool import Pool, SiteSpec

pytestmark = [pytest.mark.pool, pytest.mark.older, pytest.mark.timeout(1200)]

DATA = {
    "p:uk": ("UK", 10),
    "p:pl": ("PL", 10),
    "p:other": ("PL", 1),
    "p:nl": ("NL", 10),
    "p:gpu": ("NL", 1),
    "p:far": ("FAR", 4),
}
"""Each dataset with its site, and its size in gigabytes: 8 s a gigabyte at 1 Gb/s, a tenth of that
from UK and FAR to CLOUD."""
LINKS = "".join(
    f'[[network.links]]\nsource = "{source}"\ndestination = "CLOUD"\ngbit_per_second = 10\n'
    for source in ("UK", "FAR")
)
RECORD = "MATCH_EXP_DataLocalityStart"
REFUSES_LONG_JOBS = "(TARGET.DataLocalityHere =!= false) && TARGET.DataLocalityExpectedSeconds < 900"
BROKEN = "SLOT_CONFIG_FAILURE_MODE = CONTINUE\nKIND_OF_SLOT = 100%\nSLOT_TYPE_1 = $(KIND_OF_SLOT)\n"


@pytest.fixture(scope="module")
def installed(htcondor_release: str) -> Iterator[Installation]:
    is_new = htcondor_release != "23.9"
    sites = [
        SiteSpec("UK", 2),
        SiteSpec("PL", 4, 1000, extra={"START": REFUSES_LONG_JOBS}),
        *([SiteSpec("NL", 2, extra={"KIND_OF_SLOT": "cpus=2, gpus=1"})] if is_new else []),
        SiteSpec("DE", 4, gpus=1),
        SiteSpec("CLOUD", 64, 16000),
    ]
    with Pool.start(htcondor_release, sites, {"startd": BROKEN} if is_new else {}) as pool:
        catalogue = ListedCatalogue(pool.home, ("UK", "PL", "NL", "DE", "FAR"))
        for did, (site, gigabytes) in DATA.items():
            catalogue.add(did, gigabytes * 10**9, **{site: "available"})
        with Installation(pool, catalogue, road="url", poll_seconds=5, settings=LINKS) as installation:
            yield installation


def records(installed: Installation, cluster: int) -> set[str]:
    return {ad[RECORD] for ad in installed.pool.history(f"ClusterId == {cluster}", RECORD)}


def test_jobs_of_a_full_site_use_the_cores_of_a_site_that_no_catalogue_lists(installed):
    """P3: CLOUD reads 10 GB in 8 s, DE in 80 s."""
    installed.pool.fill("UK", cpus=2)
    jobs = installed.submit(["p:uk"], count=20)
    assert installed.pool.ran_at(jobs, jobs=20) == ["CLOUD"] * 20
    assert records(installed, jobs) == {"read 8 s from UK"}
    ad = httpx.get(f"{installed.url}/v1/sites/CLOUD/ad", trust_env=False, timeout=LIMIT_SECONDS)
    assert ad.status_code == 200


@pytest.mark.parametrize(
    ("did", "more"),
    [("p:pl", "+DataLocalityExpectedSeconds = 14400\n"), ("p:other", "request_memory = 2000\n")],
)
def test_free_slots_beside_the_data_that_refuse_a_job_do_not_trap_it(installed, did, more):
    """P1: by START, or because their memory is too small."""
    job = installed.submit([did], more=more)
    assert installed.pool.ran_at(job) in (["DE"], ["CLOUD"])
    (record,) = records(installed, job)
    assert re.fullmatch(r"read [0-9]+ s from PL", record)


def test_broken_slot_beside_the_data_does_not_trap_a_job(installed):
    """P2 (b)."""
    assert installed.pool.ran_at(installed.submit(["p:nl"])) in (["DE"], ["CLOUD"])


def test_job_that_asks_for_a_gpu_reads_where_one_is(installed):
    assert installed.pool.ran_at(installed.submit(["p:gpu"], more="request_gpus = 1\n")) == ["DE"]


def test_short_reads_of_a_large_set_start_together(installed):
    """P7: each job reads 4 GB in 4 s, less than a round, in one partitionable slot."""
    jobs = installed.submit(["p:far"], count=64)
    installed.pool.ran_at(jobs, jobs=64)
    ads = installed.pool.history(f"ClusterId == {jobs}", "LastMatchTime", RECORD)
    matched_at = [ad["LastMatchTime"] for ad in ads]
    log = installed.pool.logs("negotiator")
    cycles = re.findall(r"^(\S+ \S+) -+ Started Negotiation Cycle", log, re.MULTILINE)
    began_at = [datetime.strptime(at, "%m/%d/%y %H:%M:%S").astimezone().timestamp() for at in cycles]
    assert sum(min(matched_at) < at <= max(matched_at) for at in began_at) <= 1, "two cycles, not 64"
    assert any(at <= min(matched_at) for at in began_at)


def test_why_says_twice_the_same_of_a_job_that_no_free_slot_takes(installed):
    """The free slots of PL refuse it, and it refuses those where its set is open."""
    only_pl = '+DataLocalityExpectedSeconds = 14400\nrequirements = TARGET.GLIDEIN_Site == "PL"\n'
    job = installed.submit(["p:pl"], more=only_pl)

    def told() -> str:
        return installed.run("why", str(job), check=False).stdout

    installed.pool.wait(lambda: "the job may start now at" in told(), "an opening")
    assert installed.pool.stays_idle(job)  # slots of the nearest site refuse it: then it opens at more
    first = told()
    assert installed.pool.stays_idle(job)
    assert told() == first
    assert "and the free slots there do not take it because the job's own requirement" in first
    installed.pool.run("condor_rm", str(job), user="alice")
