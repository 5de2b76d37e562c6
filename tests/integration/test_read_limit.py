"""The limit of jobs that begin to read from one source, on a real pool with 38 free cores elsewhere.

UK has the data and two cores. DE has 30 slots of one core, NL has one slot of 8 cores.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from adapters.condor import CondorClient, CondorSettings
from hydrator.diagnostics.check.findings import Level
from hydrator.diagnostics.check.turns import check_turns
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from hydrator.submit.pool_config import PoolPolicy
from testbed.pool import Pool, SiteSpec
from tests.located import Located, record

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

DATASETS, KEY = '{"ska:read"}', set_key([Did("ska:read")])
AUTO = '+DataLocality = "auto"'
SITES = (SiteSpec("UK", 2), SiteSpec("DE", 30), SiteSpec("NL", 8))
SLOTS = "UK_SLOTS = 1\nDE_SLOTS = 30\nNL_SLOTS = 1\n"
SLOTS += "NUM_SLOTS_TYPE_1 = $($(LOCALNAME)_SLOTS)\nSLOT_TYPE_1 = auto\n"
ELSEWHERE = 'requirements = TARGET.GLIDEIN_Site != "UK"'
CLAIMED = 'State == "Claimed"'
BESIDE = 'requirements = TARGET.GLIDEIN_Site == "UK"'
READERS, TURN = 4, 8
READ_SECONDS = 16
"""The published class: 8 s without other readers, times the new reader and half a portion of 2."""
LONE_SECONDS = READ_SECONDS / 2
POLICY = PoolPolicy(readers=READERS, rounding_floor=timedelta(seconds=5))


@pytest.fixture(scope="module")
def shared_located(htcondor_release: str) -> Iterator[Located]:
    with Pool.start(htcondor_release, SITES, extra={"startd": SLOTS}) as pool:
        located = Located(pool)
        quick = f"DATALOCALITY_TURN = {TURN // 2}\n"
        located.configure(POLICY, more={"startd": SLOTS + quick})
        yield located


@pytest.fixture
def located(shared_located: Located) -> Iterator[Located]:
    yield shared_located
    pool = shared_located.pool
    pool.run("condor_rm", "-all", check=False)
    # 23.9 keeps the claims of running jobs that clear() removes by force
    pool.wait_free()
    shared_located.clear()


def advertise(located: Located, read_seconds: int) -> None:
    valid = f"DataLocalityEstimatesUntil = {int(time.time()) + 3600}\n"
    away = f"{valid}DataLocalitySets = {record({KEY: 0.0})}\n"
    away += f"DataLocalityReadSeconds = {record({KEY: read_seconds})}\n"
    away += f"DataLocalityQueueSeconds = {record({KEY: 16384})}\n"
    away += f"DataLocalityReadFrom = {record({KEY: chr(34) + 'UK' + chr(34)})}\n"
    home = f"{valid}DataLocalitySets = {record({KEY: 1.0})}\n"
    located.advertise({"UK": home, "DE": away, "NL": away})


def running(located: Located, cluster: int) -> list[dict[str, int]]:
    return located.pool.jobs(f"ClusterId == {cluster} && JobStatus == 2", "ProcId", "JobStartDate")


def count_readers(starts: Sequence[float]) -> int:
    """Return the most jobs that read at one moment: each lacks LONE_SECONDS, and all share the link."""
    most, now, left = 0, 0.0, []
    for start in sorted(starts):
        while left and now + left[0] * len(left) <= start:
            done = left[0]
            now += done * len(left)
            left = [rest - done for rest in left[1:]]
        left = [*(rest - (start - now) / len(left) for rest in left), LONE_SECONDS]
        now = start
        most = max(most, len(left))
    return most


def test_jobs_begin_to_read_in_turns(located):
    """One job begins in each turn: later it computes, and no longer reads. Cores are free for all 38."""
    advertise(located, READ_SECONDS)
    cluster = located.submit(DATASETS, AUTO, ELSEWHERE, queue="queue 38", run="/bin/sleep 600")
    located.pool.wait(lambda: len(running(located, cluster)) > READERS, 200, "the readers of five turns")
    starts = [job["JobStartDate"] for job in running(located, cluster)]
    assert count_readers(starts) <= READERS
    assert max(starts) - min(starts) >= (len(starts) - 2) * TURN
    waiting = f"ClusterId == {cluster} && JobStatus == 1"
    reasons = located.pool.wait(
        lambda: located.pool.jobs(
            f'{waiting} && regexp("concurrency", LastRejMatchReason)', "LastRejMatchReason"
        ),
        60,
        "the negotiator to name the limit",
    )
    assert "datalocality.from_uk_8_" in reasons[0]["LastRejMatchReason"]


def test_short_reads_begin_at_once(located):
    advertise(located, 4)
    jobs = 3 * READERS
    cluster = located.submit(DATASETS, AUTO, ELSEWHERE, queue=f"queue {jobs}", run="/bin/sleep 600")
    located.pool.wait(lambda: len(running(located, cluster)) == jobs, 90, "all jobs to run")


def test_jobs_beside_their_data_have_no_limit_and_reuse_claims(located):
    advertise(located, READ_SECONDS)
    before = located.pool.logs("negotiator").count("Successfully matched")
    cluster = located.submit(DATASETS, AUTO, BESIDE, queue="queue 20", run="/bin/sleep 1")
    assert located.ran_at(cluster, 20, 180) == ["UK"] * 20
    matched = located.pool.logs("negotiator").count("Successfully matched") - before
    assert 1 <= matched <= 4


def test_check_compares_the_turns_of_a_real_pool_with_the_daemon(located):
    settings = CondorSettings(located.pool.collector, token_directory=located.pool.token("hydrator"))
    with CondorClient(settings) as client:
        (same,) = check_turns(client, READERS, negotiator_answers=True)
        negotiator, slots = check_turns(client, 10, negotiator_answers=True)
    assert (same.level, same.message) == (
        Level.OK,
        "daemon, negotiator and slots have the same limit: 4 readers of a source",
    )
    assert {negotiator.level, slots.level} == {Level.WARN}
    assert f"is for {READERS} readers of a source, and the daemon has 10" in negotiator.message
    assert f"32 slots with turns for {READERS} readers of a source" in slots.message


@pytest.mark.older
def test_limits_of_the_user_are_kept(located):
    advertise(located, READ_SECONDS)
    pool, limits = located.pool, "concurrency_limits = license:2"
    for where in (BESIDE, ELSEWHERE):
        located.submit(DATASETS, AUTO, where, limits, run="/bin/sleep 600")
    claimed = pool.wait(
        lambda: (
            slots
            if len(slots := pool.slots("ConcurrencyLimits", "GLIDEIN_Site", constraint=CLAIMED)) == 2
            else None
        ),
        120,
        "both jobs to run",
    )
    names = {str(slot["GLIDEIN_Site"]): str(slot.get("ConcurrencyLimits")).lower() for slot in claimed}
    assert names.pop("UK") == "license:2"
    (away,) = names.values()
    adds = not pool.version.startswith("23.")
    assert away.partition(",")[0] == "license:2"
    assert ("datalocality.from_uk_8_" in away) is adds
