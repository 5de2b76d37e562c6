"""Mode auto and ranks on a real pool, with openings that a test sets. Site UK has the data, and is full."""

import time
from collections.abc import Iterator, Mapping

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import Opening, write_openings
from hydrator.domain.model import Did, Site
from testbed.pool import Pool, SiteSpec
from tests.located import Located, listed, record

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

SMALL, LARGE = [Did("ska:Small"), Did("ska:small_2")], [Did("ska:large_1"), Did("ska:large_2")]
ONE, OTHER = set_key(SMALL), set_key(LARGE)
AUTO = '+DataLocality = "auto"'


@pytest.fixture(scope="module")
def own_pool(htcondor_release: str) -> Iterator[Pool]:
    with Pool.start(htcondor_release, [SiteSpec("UK", 4), SiteSpec("AU", 4), SiteSpec("NL", 2)]) as pool:
        yield pool


def advertise(
    located: Located,
    opened: Mapping[str, Mapping[str, int]],
    backlog: Mapping[str, int] | None = None,
    seconds: int = 3600,
) -> None:
    """Let UK have both sets, and the sites be *opened* (name -> s of the read) for *seconds* from now."""
    lines = {}
    for site in ("UK", "AU", "NL"):
        openings = {name: Opening(read, Site("UK"), 10**9) for name, read in opened.get(site, {}).items()}
        values = [
            ("DataLocalitySets", record(dict.fromkeys((ONE, OTHER), float(site == "UK")))),
            *write_openings(openings, (backlog or {}).get(site, 0)),
            ("DataLocalityOpenUntil", str(int(time.time()) + seconds)),
        ]
        lines[site] = "".join(f"{name} = {literal}\n" for name, literal in values)
    located.advertise(lines)


@pytest.mark.older
def test_jobs_start_where_their_set_is_open_and_its_read_is_shorter(located):
    filler = located.pool.fill("UK", cpus=4)
    advertise(located, {"NL": {ONE: 64}, "AU": {ONE: 8}})
    closed = located.submit(listed(LARGE), AUTO)
    assert located.pool.ran_at(located.submit(listed(SMALL), AUTO)) == ["AU"]
    assert located.pool.stays_idle(closed)
    advertise(located, {"NL": {OTHER: 64}})
    assert located.pool.ran_at(closed) == ["NL"]
    # UK drains: jobs of closed sets go there as soon as a slot is free
    advertise(located, {})
    both = [located.submit(listed(dids), AUTO) for dids in (LARGE, SMALL)]
    assert all(map(located.pool.stays_idle, both))
    located.pool.run("condor_rm", str(filler))
    assert [located.pool.ran_at(cluster) for cluster in both] == [["UK"], ["UK"]]


def test_jobs_of_an_open_lane_start_and_the_others_wait(located):
    """The schedd makes the last job when one of the lane has left; the six others wait."""
    located.pool.fill("UK", cpus=4)
    advertise(located, {"AU": {f"{ONE}~1": 8}})
    cluster = located.submit(listed(SMALL), AUTO, "max_materialize = 7", queue="queue 8")
    located.pool.wait(lambda: located.pool.done(cluster, 2), "the jobs of the lane to end")
    numbers = {proc: int(cluster) + proc + 1 for proc in range(8)}
    lanes = {proc: (number & -number).bit_length() - 1 for proc, number in numbers.items()}

    def waits() -> bool:
        waiting = located.pool.jobs(f"ClusterId == {cluster} && JobStatus == 1", "ProcId", "DataLocalityLane")
        left = {proc: lane for proc, lane in lanes.items() if lane != 1}
        return {job["ProcId"]: job["DataLocalityLane"] for job in waiting} == left

    located.pool.wait(waits, "the jobs of the other lanes to wait")


def test_jobs_run_anywhere_after_their_wait_if_the_openings_have_ended(located):
    """As with a daemon that died."""
    located.pool.fill("UK", cpus=4)
    advertise(located, {}, seconds=15)
    cluster = located.submit(listed(SMALL), AUTO, "+DataLocalityMaxWait = 6")
    assert located.pool.ran_at(cluster)[0] in {"AU", "NL"}
    job = located.pool.job(cluster, "JobStartDate", "QDate")
    assert job["JobStartDate"] - job["QDate"] >= 6


# --- jobs without datasets


def test_job_without_datasets_leaves_slots_to_the_jobs_with_data_there(located):
    """By default the smallest slot is used; here jobs wait for NL and AU, and none for UK."""
    located.advertise({})
    assert located.pool.ran_at(located.submit(None)) == ["NL"]
    advertise(located, {}, dict.fromkeys(("AU", "NL"), 64))
    assert located.pool.ran_at(located.submit(None)) == ["UK"]
