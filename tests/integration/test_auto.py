"""Mode auto, ranks and limits on a real pool, with estimates that a test sets: a table computed by hand.

Site UK has the data. For a set, a job elsewhere reads it in READ s, or a slot at UK comes free in QUEUE s.
"""

import statistics
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from testbed.pool import Pool, SiteSpec
from tests.located import HELD, Located, record

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

SMALL, LARGE = [Did("ska:Small"), Did("ska:small_2")], [Did("ska:large_1"), Did("ska:large_2")]
MEGABYTE, HALF_TERABYTE = set_key(SMALL), set_key(LARGE)
AUTO = '+DataLocality = "auto"'
NEVER = 10**9


@pytest.fixture(scope="module")
def shared_located(htcondor_release: str) -> Iterator[Located]:
    with Pool.start(htcondor_release, [SiteSpec("UK", 4), SiteSpec("AU", 4), SiteSpec("NL", 2)]) as pool:
        yield Located(pool)


@pytest.fixture
def located(shared_located: Located) -> Iterator[Located]:
    yield shared_located
    shared_located.clear()


def listed(dids: list[Did]) -> str:
    return "{" + ", ".join(f'"{did}"' for did in dids) + "}"


def advertise(located: Located, read: dict[str, int], queue: dict[str, int], own: int = 0) -> None:
    """Let UK have both sets, and the other sites the estimates *read* and *queue* (s, by key)."""
    keys = (MEGABYTE, HALF_TERABYTE)
    valid = f"DataLocalityEstimatesUntil = {int(time.time()) + 3600}\n"
    away = valid + f"DataLocalitySets = {record(dict.fromkeys(keys, 0.0))}\n"
    away += f"DataLocalityReadSeconds = {record(read)}\nDataLocalityQueueSeconds = {record(queue)}\n"
    away += f"DataLocalityReadFrom = {record(dict.fromkeys(read, chr(34) + 'UK' + chr(34)))}\n"
    home = valid + f"DataLocalitySets = {record(dict.fromkeys(keys, 1.0))}\n"
    home += f"DataLocalityOwnQueueSeconds = {own}\n"
    located.advertise({"UK": home, "AU": away, "NL": away})


def own_queue(seconds: int) -> str:
    """Return the lines of a site with a queue of its own, whose estimates are valid for an hour."""
    return (
        f"DataLocalityOwnQueueSeconds = {seconds}\nDataLocalityEstimatesUntil = {int(time.time()) + 3600}\n"
    )


def fill_uk(located: Located) -> int:
    """Take all cores of UK, and return the cluster of the job that has them."""
    lines = ("request_cpus = 4", 'requirements = TARGET.GLIDEIN_Site == "UK"')
    cluster = located.submit(None, *lines, run="/bin/sleep 600")
    located.pool.wait(lambda: status(located, cluster) == 2, 60, "the job that fills UK")
    return cluster


def status(located: Located, cluster: int) -> int:
    return located.pool.job(cluster, "JobStatus")["JobStatus"]


def wait_for_rejection(located: Located, cluster: int) -> None:
    located.pool.wait(
        lambda: located.pool.job(cluster, "LastRejMatchTime"), 60, "the negotiator to have looked at the job"
    )
    assert status(located, cluster) == 1


@pytest.mark.older
def test_jobs_follow_the_estimates_and_then_the_faster_link(located):
    filler = fill_uk(located)
    advertise(located, {MEGABYTE: 1, HALF_TERABYTE: 4096}, {MEGABYTE: 64, HALF_TERABYTE: 64})
    waits = located.submit(listed(LARGE), AUTO)
    goes = located.submit(listed(SMALL), AUTO)
    assert located.ran_at(goes)[0] in {"AU", "NL"}
    wait_for_rejection(located, waits)
    advertise(located, {MEGABYTE: 1, HALF_TERABYTE: 32}, {MEGABYTE: 64, HALF_TERABYTE: 64})
    assert located.ran_at(waits)[0] in {"AU", "NL"}
    # the link is slow again, and UK drains: the next job goes there as soon as a slot is free
    advertise(located, {MEGABYTE: 1, HALF_TERABYTE: 4096}, {MEGABYTE: 0, HALF_TERABYTE: 64})
    both = [
        located.submit(listed(LARGE), AUTO),
        located.submit(listed(SMALL), AUTO),
    ]
    for cluster in both:
        wait_for_rejection(located, cluster)
    located.pool.run("condor_rm", str(filler))
    assert [located.ran_at(cluster) for cluster in both] == [["UK"], ["UK"]]


def test_slots_wanted_by_local_jobs_are_left_to_them(located):
    """NL and AU have a queue of their own, so reading there ends later than waiting at UK."""
    fill_uk(located)
    advertise(located, {MEGABYTE: 8}, {MEGABYTE: 64})
    lines = {site: f"DataLocalityEstimatesUntil = {int(time.time()) + 3600}\n" for site in ("AU", "NL")}
    for site, own in (("AU", 64), ("NL", 32)):
        lines[site] += f"DataLocalitySets = {record({MEGABYTE: 0.0})}\nDataLocalityOwnQueueSeconds = {own}\n"
        lines[site] += f"DataLocalityReadSeconds = {record({MEGABYTE: 8})}\n"
        lines[site] += f"DataLocalityQueueSeconds = {record({MEGABYTE: 64})}\n"
    located.advertise(lines)
    assert located.ran_at(located.submit(listed(SMALL), AUTO)) == ["NL"]


# --- jobs without datasets


def test_job_without_datasets_leaves_slots_to_the_jobs_with_data_there(located):
    """By default the smallest slot is used; here NL and AU have a queue for their data, and UK has none."""
    located.advertise({})
    assert located.ran_at(located.submit(None)) == ["NL"]
    located.advertise(dict.fromkeys(("AU", "NL"), own_queue(64)))
    assert located.ran_at(located.submit(None)) == ["UK"]


def test_no_slot_stays_empty_for_jobs_with_data(located):
    located.advertise(dict.fromkeys(("UK", "AU", "NL"), own_queue(NEVER)))
    cluster = located.submit(None, queue="queue 10", run="/bin/sleep 600")
    running = f"ClusterId == {cluster} && JobStatus == 2"
    located.pool.wait(lambda: len(located.pool.jobs(running, "ProcId")) == 10, 60, "all ten cores to be busy")


def test_jobs_without_data_are_not_overtaken_by_the_users_other_jobs(located):
    """A claim goes only to jobs that rank its slot as high as the last job did, so Rank must not change.

    30 jobs share 4 cores; the 6 jobs without data are in the middle of the queue.
    """
    advertise(located, {}, {})
    strict, here = '+DataLocality = "require"', 'requirements = TARGET.GLIDEIN_Site == "UK"'
    with_data = (HELD, strict, here)
    first = located.submit(listed(SMALL), *with_data, queue="queue 12", run="/bin/sleep 3")
    plain = located.submit(None, HELD, here, queue="queue 6", run="/bin/sleep 3")
    last = located.submit(listed(SMALL), *with_data, queue="queue 12", run="/bin/sleep 3")
    located.pool.run("condor_release", *map(str, (first, plain, last)))
    for cluster, jobs in ((first, 12), (plain, 6), (last, 12)):
        located.ran_at(cluster, jobs, 180)
    constraint = f"ClusterId >= {first} && ClusterId <= {last}"
    ended = located.pool.history(constraint, "ClusterId", "JobStartDate")
    starts = sorted(job["JobStartDate"] for job in ended)

    def place(start: int) -> float:
        """Return the place of a start among all starts, from 0 to 1."""
        return (bisect_left(starts, start) + bisect_right(starts, start) - 1) / 2 / (len(starts) - 1)

    middle = statistics.mean(place(job["JobStartDate"]) for job in ended if job["ClusterId"] == plain)
    delay = middle - 0.5  # in the order of the queue they start half way
    assert abs(delay) <= 0.1
