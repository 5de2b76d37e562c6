"""The snapshot of a real pool: idle and running jobs by set, their needs, and the cores of the sites."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.pool_load import CondorPool, ScheddClusters
from hydrator.domain.model import Unseen
from hydrator.domain.ports import (
    ClusterJobs,
    IdleJobs,
    Resources,
    RunningJobs,
    ScheddLoad,
    SlotGroup,
)
from hydrator.wiring import system_clock

if TYPE_CHECKING:
    from testbed.pool import Pool

pytestmark = pytest.mark.pool

JOB = """
executable = /bin/sleep
arguments = 600
request_cpus = {cpus}
request_memory = 16
request_disk = 16
requirements = {requirements}
{more}
queue {count}
"""
NOWHERE = "TARGET.NoSlotHasThis =?= true"


def job(requirements: str, count: int, more: str, cpus: str = "1") -> str:
    return JOB.format(requirements=requirements, count=count, more=more, cpus=cpus)


@pytest.fixture
def reader(client: CondorClient) -> CondorPool:
    return CondorPool(client, system_clock, ["GLIDEIN_Site"])


@pytest.fixture
def clusters(client: CondorClient) -> ScheddClusters:
    return ScheddClusters(client, system_clock, ["GLIDEIN_Site"])


@contextmanager
def submitted(pool: "Pool", *descriptions: str) -> Iterator[list[int]]:
    clusters: list[int] = []
    try:
        clusters.extend(pool.submit(description) for description in descriptions)
        yield clusters
    finally:
        pool.empty_queue()


def load_of(reader: CondorPool) -> ScheddLoad:
    (queue,) = reader.read_snapshot().queues.values()
    return queue.load


def slots_of(reader: CondorPool) -> tuple[SlotGroup, ...]:
    slots = reader.read_snapshot().slots
    assert not isinstance(slots, Unseen)
    return slots


def cores(reader: CondorPool, site: str) -> tuple[float, float]:
    """Return all and the free cores of *site*."""
    groups = [group for group in slots_of(reader) if group.site == site]
    total = sum(group.total.cpus * group.count for group in groups)
    return total, sum(group.free.cpus * group.count for group in groups)


def test_idle_jobs_are_read_by_key_lane_mode_and_request_and_those_without_a_key_are_not(
    pool: "Pool", reader: CondorPool
) -> None:
    mark = uuid4().hex[:8]
    key, names = f"s{mark}", f'{{"t:{mark}b","t:{mark}a"}}'
    keyed = f'+DataLocalityKey = "{key}"\n+RequiredDatasets = {names}'
    auto = f'{keyed}\n+DataLocality = "auto"\n+DataLocalityLane = 3'
    with submitted(
        pool,
        job(NOWHERE, 3, keyed),
        job(NOWHERE, 2, f"{auto}\nrequest_gpus = 1\nrequest_disk = 4 * 16", cpus="2"),
        job(NOWHERE, 4, f"+RequiredDatasets = {names}"),
        job(NOWHERE, 1, ""),
        job(NOWHERE, 1, f"{keyed}\nhold = true"),
    ):
        idle = {(group.key, group.lane): group for group in load_of(reader).idle}
        assert idle == {
            (key, 0): IdleJobs(3, key, request=Resources(1, 16, 16), is_auto=False),
            (key, 3): IdleJobs(2, key, request=Resources(2, 16, 0, 1), lane=3),
        }


def test_running_jobs_have_their_site_and_start_and_take_its_cores(pool: "Pool", reader: CondorPool) -> None:
    mark = uuid4().hex[:8]
    pool.wait(lambda: cores(reader, "AU") == (4, 4), "the cores of AU to be free")
    at_au = 'TARGET.GLIDEIN_Site == "AU"'
    began_at = time.time()
    with submitted(
        pool,
        job(at_au, 1, f'+DataLocalityKey = "t:{mark}"\n+RequiredDatasets = {{"t:{mark}"}}', cpus="2"),
        job(at_au, 1, f'+RequiredDatasets = {{"t:{mark}"}}'),
        job('TARGET.GLIDEIN_Site == "NL"', 1, ""),
    ):
        pool.wait(lambda: len(pool.jobs("JobStatus == 2")) == 3, "three jobs to run")
        pool.wait(lambda: cores(reader, "AU") == (4, 1), "the slot's ad")
        (queue,) = reader.read_snapshot().queues.values()
        needs = {need.datasets: need.running_site for need in queue.needs if need.is_running}
        assert needs == {(f"t:{mark}",): "AU"}
        running = queue.load.running
        shown = {(each.site, each.key, len(each.started_at)) for each in running}
        assert shown == {("AU", f"t:{mark}", 1), ("AU", None, 1), ("NL", None, 1)}
        for each in running:
            assert isinstance(each, RunningJobs)
            (started_at,) = each.started_at
            assert began_at - 2 <= started_at <= time.time() + 2


def test_cluster_is_read_without_the_other_jobs(pool: "Pool", clusters: ScheddClusters) -> None:
    mark = uuid4().hex[:8]
    keyed = f'+DataLocalityKey = "s{mark}"\n+RequiredDatasets = {{"t:{mark}"}}'
    at_nl = 'TARGET.GLIDEIN_Site == "NL" && ProcId == 0'
    with submitted(
        pool,
        job(at_nl, 3, keyed),
        job(NOWHERE, 2, f'+DataLocalityKey = "t:{mark}"'),
        job(NOWHERE, 1, f"{keyed}\nhold = true"),
    ) as (first, second, held):
        pool.wait(lambda: len(pool.jobs("JobStatus == 2")) == 1, "a job to run")
        ((schedd, found),) = clusters.read_cluster(first).items()
        assert isinstance(found, ClusterJobs)
        (running,), (idle,) = found.jobs.running, found.jobs.idle
        assert (running.site, running.key, len(running.started_at)) == ("NL", f"s{mark}", 1)
        assert (idle.job_count, idle.key, found.held_count, found.is_complete) == (2, f"s{mark}", 0, True)
        only = clusters.read_cluster(second, schedd)[schedd]
        assert isinstance(only, ClusterJobs)
        assert [(each.job_count, each.key) for each in only.jobs.idle] == [(2, f"t:{mark}")]
        stuck = clusters.read_cluster(held)[schedd]
        assert isinstance(stuck, ClusterJobs)
        assert (stuck.jobs, stuck.held_count) == (ScheddLoad(), 1)
        assert clusters.read_cluster(held + 1000) == {}
