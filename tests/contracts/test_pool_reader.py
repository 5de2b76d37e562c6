"""Contract of PoolReader for the in-memory pool and for HTCondor's; the real pool is in integration."""

import time
from collections.abc import Sequence
from typing import Any, cast

import classad2
import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.schedd_calls import _slot_of, find_clock_error
from adapters.condor.job_history import ReportBuffer
from adapters.condor.pool_load import RESOURCES, SLOT_ATTRIBUTES, CondorPool, ScheddClusters
from hydrator.domain.ads.dataset_sets import hash_key
from hydrator.domain.ads.openings import MAX_LANE
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, Unseen, from_unix
from hydrator.domain.ports import (
    ClusterJobs,
    DataNeed,
    IdleJobs,
    PoolReader,
    Resources,
    RunningJobs,
    ScheddLoad,
    ScheddQueue,
    SlotGroup,
)
from tests.contracts.pool_reader import QUEUE, SNAPSHOT, PoolReaderContract
from tests.factories import NOON
from tests.memory import MemoryPool

IDLE = [
    {"job_count": 3, "key": "t:a", "run": "r1", "lane": 4, "is_auto": True, "request": (2.0, 2048, 10**6, 1)},
    {"job_count": 1, "key": "t:c", "run": None, "lane": 0, "is_auto": False, "request": (0, 0, 0, 0)},
]
RUNNING = {"key": "t:a", "run": "r1", "offer": "read 60 s from DE", "user": "bob@x"}
NAMELESS = {"key": None, "run": None, "offer": None, "user": "bob@x"}
NEED = {"queued": 0, "user": "ann@x", "job_count": 3, "example": "7.0", "is_held": False}


def slot(name: str, state: str, *left: float, total: Sequence[float] = (), **more: object) -> dict[str, Any]:
    """Return a slot ad of site UK with cores, memory, disk and GPUs; with *total* it is partitionable."""
    ad: dict[str, Any] = dict.fromkeys((*SLOT_ATTRIBUTES, "DataLocalitySite", "GLIDEIN_Site"))
    ad |= zip(RESOURCES, left, strict=False)
    ad |= zip((f"TotalSlot{each}" for each in RESOURCES), total, strict=False)
    kind = {"PartitionableSlot": True if total else None}
    return {**ad, "GLIDEIN_Site": "UK", "Name": name, "State": state, **kind, **more}


SLOTS = [
    slot("slot1@uk", "Unclaimed", 3, 2000, 10**6, 1, total=(8, 8000, 4 * 10**6, 1), DataLocalityGeneration=7),
    slot("a@de", "Claimed", 1, 1000, GLIDEIN_Site="DE"),
    slot(
        "b@de", "Claimed", 1, 1000, GLIDEIN_Site="XX", DataLocalitySite="DE", DataLocalityGeneration="seven"
    ),
    slot("c@no", "Unclaimed", 4, GLIDEIN_Site=None),
]


class Client:
    """A stand-in for a CondorClient with two schedds, of which ap2 does not answer."""

    def __init__(self, running: Sequence[dict[str, Any]] = (), *, is_broken: bool = False) -> None:
        self.running = running or [
            {**RUNNING, "site": "UK", "slot": None, "started_at": [200]},
            {**RUNNING, "site": None, "slot": "slot1@uk", "started_at": [100]},
            {**NAMELESS, "site": None, "slot": "gone@uk", "started_at": [50]},
        ]
        self.is_broken = is_broken
        self.silent = {"ap2"}
        self.constraint = self.site_constraint = ""
        self.idle, self.needs, self.slot_ads = IDLE, [NEED], SLOTS
        self.queued = [(["t:a"], 6, "t:a", False), (["t:a", "t:b"], 1, None, False)]
        self.site_ads = SLOTS
        self.asked: list[tuple[str, str]] = []

    def schedds(self) -> list[dict[str, str]]:
        if self.is_broken:
            raise PoolError("collector", "no answer")
        return [{"Name": "ap1"}, {"Name": "ap2"}]

    def slots(self, attributes: Sequence[str], constraint: str) -> list[dict[str, Any]]:
        if "ap1" in self.silent:
            raise PoolError("collector", "no answer")
        if "State" in attributes:
            self.constraint = constraint
            return self.slot_ads
        self.site_constraint = constraint
        return self.site_ads

    def read_queue(self, schedd: str, site_attributes: Sequence[str]) -> dict[str, Any]:
        self._ask("read_queue", schedd)
        return {
            "queued": self.queued,
            "idle": self.idle,
            "needs": self.needs,
            "running": self.running,
            "reports": list(QUEUE.reports),
            "clock_ahead": 7,
        }

    def _ask(self, call: str, schedd: str) -> None:
        self.asked.append((call, schedd))
        if schedd in self.silent:
            raise PoolError(schedd, "no answer in time")

    def read_cluster_jobs(
        self, schedd: str, cluster: int, site_attributes: Sequence[str], max_jobs: int
    ) -> dict[str, Any]:
        self._ask("read_cluster_jobs", schedd)
        is_here = cluster == 7
        return {
            "idle": self.idle[:1] if is_here else [],
            "running": self.running if is_here else [],
            "held_count": 2 if is_here else 0,
            "is_complete": True,
        }

    def close(self) -> None:
        pass


def condor_pool(client: Client, *buffers: ReportBuffer) -> CondorPool:
    return CondorPool(cast("CondorClient", client), lambda: NOON, ["GLIDEIN_Site"], buffers=buffers)


def read_queue(client: Client) -> ScheddQueue:
    return condor_pool(client).read_snapshot().queues["ap1"]


def schedd_clusters(client: Client) -> ScheddClusters:
    return ScheddClusters(cast("CondorClient", client), lambda: NOON, ["GLIDEIN_Site"])


class TestMemoryPool(PoolReaderContract):
    def pool(self) -> MemoryPool:
        queues = {"ap1": QUEUE, "ap2": Unseen("no answer in time")}
        return MemoryPool(queues, SNAPSHOT.slots, SNAPSHOT.slot_ads, clock=lambda: NOON)

    def silence(self, pool: PoolReader) -> None:
        assert isinstance(pool, MemoryPool)
        pool.queues, pool.slots = {**pool.queues, "ap1": Unseen("timeout")}, Unseen("timeout")

    def unreachable(self) -> MemoryPool:
        return MemoryPool(is_broken=True)


class TestCondorPool(PoolReaderContract):
    def pool(self) -> CondorPool:
        self.client = Client()
        return condor_pool(self.client)

    def silence(self, pool: PoolReader) -> None:
        self.client.silent.add("ap1")

    def unreachable(self) -> CondorPool:
        return condor_pool(Client(is_broken=True))


@pytest.mark.parametrize(("age", "is_seen"), [(0, True), (740, True), (760, False), (None, True)])
def test_slots_without_an_update_for_long_do_not_count(age: int | None, is_seen: bool) -> None:
    """A killed startd leaves its ads behind; an ad without the time of its update counts."""
    client = Client()
    condor_pool(client).read_snapshot()
    ad = classad2.ClassAd({"PartitionableSlot": True, "State": "Unclaimed", "SlotType": "Partitionable"})
    if age is not None:
        ad["LastHeardFrom"] = int(time.time()) - age
    assert bool(classad2.ExprTree(client.constraint).eval(ad)) is is_seen


@pytest.mark.parametrize(
    ("more", "is_usable"),
    [
        ({}, True),
        ({"Draining": True}, False),
        ({"Draining": False}, True),
        ({"DynamicSlot": True}, False),
        ({"Start": False}, False),
        ({"Start": classad2.ExprTree('TARGET.Owner == "bob"')}, True),
        ({"Start": "a text", "SlotBrokenReason": "Not enough GPUs"}, False),
        ({"Offline": True}, False),
        ({"State": "Owner"}, False),
        ({"State": "Drained"}, False),
        ({"State": "Claimed"}, True),
        ({"BackfillSlot": True}, False),
    ],
)
def test_slot_counts_if_it_takes_jobs(more: dict[str, Any], is_usable: bool) -> None:
    """P2: the START of a broken slot of 25.14 is a text, which is not false."""
    client = Client()
    condor_pool(client).read_snapshot()
    ad = classad2.ClassAd({"State": "Unclaimed", **more})
    assert bool(classad2.ExprTree(client.constraint).eval(ad)) is is_usable


@pytest.mark.parametrize(
    ("slot_ad", "expected"),
    [
        (slot("s", "Unclaimed", 4, 8000, 9, 2), (Resources(4, 8000, 9, 2), Resources(4, 8000, 9, 2))),
        (slot("s", "Claimed", 4, 8000, 9, 2), (Resources(4, 8000, 9, 2), Resources(0.0))),
        (slot("p", "Unclaimed", 1, total=(4, 8000)), (Resources(4, 8000), Resources(1.0))),
        (slot("p", "Unclaimed", 9, total=(4,)), (Resources(4), Resources(4))),
        (slot("p", "Claimed", 1, 10, total=(4, 80)), (Resources(4, 80), Resources(1, 10))),
        (slot("odd", "Unclaimed", True, "8000", 10**30, -2), None),
        (slot("odd", "Unclaimed", 1, "8000", 10**30, -2), (Resources(1, 0, 1e15), Resources(1, 0, 1e15))),
        (slot("broken", "Unclaimed", 0, total=(0,)), None),
    ],
)
def test_group_of_slots_has_all_and_the_free_resources(
    slot_ad: dict[str, Any], expected: tuple[Resources, Resources] | None
) -> None:
    client = Client()
    client.slot_ads = [slot_ad]
    is_static = slot_ad["PartitionableSlot"] is not True
    assert condor_pool(client).read_snapshot().slots == (
        () if expected is None else (SlotGroup(Site("UK"), *expected, is_static=is_static),)
    )


@pytest.mark.parametrize(
    ("schedd_time", "error"),
    [(1000, 0), (1030, 0), (1034, 0), (996, 0), (1630, 600), (1633, 600), (397, -600), (None, 0), ("x", 0)],
)
def test_clock_of_a_schedd_is_wrong_if_it_is_outside_the_time_of_the_query(
    schedd_time: object, error: int
) -> None:
    assert find_clock_error(schedd_time, 1000.0, 1030.0) == error


def test_forged_values_of_jobs_do_not_count() -> None:
    """Anybody can write these attributes into a job ad."""
    client = Client([{**NAMELESS, "site": "UK", "slot": None, "started_at": [-5, 10**18, 7]}])
    client.idle = [{**IDLE[0], "lane": 99, "request": (float("inf"), 10**30, -1, True)}]
    client.needs = [{**NEED, "job_count": count} for count in (-5, 10**18)]
    ap1 = read_queue(client)
    assert ap1.load.running == (RunningJobs((7,), Site("UK")),)
    assert ap1.load.idle == (IdleJobs(3, "t:a", "r1", Resources(1.0, 1e15), MAX_LANE),)
    assert [need.job_count for need in ap1.needs if not need.is_running] == [1, 10**7]


@pytest.mark.parametrize(
    ("row", "site"),
    [
        ({"site": "CAM", "slot": None}, "CAM"),
        ({"site": None, "slot": "slot1@uk"}, "UK"),
        ({"site": None, "slot": "gone@uk"}, None),
    ],
)
def test_running_jobs_need_the_datasets_of_their_key(row: dict[str, Any], site: str | None) -> None:
    client = Client([{**RUNNING, **row, "started_at": [200, 205]}])
    *_, need = read_queue(client).needs
    where = None if site is None else Site(site)
    assert need == DataNeed(("t:a",), 2, "bob@x", "", from_unix(205), is_running=True, running_site=where)


@pytest.mark.parametrize("key", ["t:a", hash_key(["t:a"])])
def test_running_jobs_need_the_list_that_their_key_is_of_whoever_has_the_key_too(key: str) -> None:
    """A user can write any key into a job."""
    client = Client([{**RUNNING, "key": key, "site": "UK", "slot": None, "started_at": [200]}])
    client.queued = [(["t:a"], 6, key, False), (["t:b"], 1, key, False)]
    *_, need = read_queue(client).needs
    assert need.datasets == ("t:a",)


def test_running_jobs_without_a_key_need_nothing_that_is_known() -> None:
    """The list of another job without a key is not theirs."""
    client = Client([{**NAMELESS, "site": "UK", "slot": None, "started_at": [200]}])
    assert [need for need in read_queue(client).needs if need.is_running] == []


def test_jobs_that_run_at_a_slot_that_takes_no_more_jobs_have_its_site() -> None:
    """A glidein near its end has START false, or drains; its jobs still need their data there."""
    client = Client([{**RUNNING, "site": None, "slot": "gone@uk", "started_at": [200]}])
    client.site_ads = [slot("gone@uk", "Claimed", 1)]
    queue = read_queue(client)
    assert [queue.load.running[0].site, queue.needs[-1].running_site] == [Site("UK")] * 2
    states = [classad2.ClassAd({"Start": value, "Name": "gone@uk"}) for value in (False, True)]
    asked = classad2.ExprTree(client.site_constraint)
    assert [bool(asked.eval(ad)) for ad in states] == [True, False]


def test_held_jobs_need_their_data_but_do_not_wait_for_it() -> None:
    client = Client()
    client.needs = [{**NEED, "is_held": True}]
    first, *_ = read_queue(client).needs
    assert first == DataNeed(("t:a",), 3, "ann@x", "7.0", NOON, is_data_missing=False)


def test_one_query_of_each_schedd_has_all_and_the_reports_of_jobs_are_kept() -> None:
    client, reports = Client(), ReportBuffer()
    pool = condor_pool(client, reports)
    pool.read_snapshot()
    assert sorted(client.asked) == [("read_queue", "ap1"), ("read_queue", "ap2")]
    pool.read_snapshot()
    assert reports.take() == list(QUEUE.reports)
    assert reports.take() == []


@pytest.mark.parametrize(
    ("remote_host", "expected"),
    [
        ("slot1_3@host", "slot1@host"),
        ("slot1@host", "slot1@host"),
        ("slot1_1@glidein_2_3@host", "slot1@glidein_2_3@host"),
        ("my_slot@host", "my_slot@host"),
        (7, None),
    ],
)
def test_a_dynamic_slot_belongs_to_its_partitionable_slot(remote_host: object, expected: str | None) -> None:
    assert _slot_of(remote_host) == expected


def test_cluster_has_its_jobs_and_the_sites_of_slots_that_the_schedd_did_not_record() -> None:
    client = Client()
    jobs = ScheddLoad(QUEUE.load.idle[:1], QUEUE.load.running)
    expected = {"ap1": ClusterJobs(NOON, jobs, 2), "ap2": Unseen("no answer in time")}
    assert schedd_clusters(client).read_cluster(7) == expected
    ads = [classad2.ClassAd({"Name": name}) for name in ("slot1@uk", "gone@uk", "slot1@de")]
    assert [bool(classad2.ExprTree(client.site_constraint).eval(ad)) for ad in ads] == [True, True, False]


def test_cluster_of_one_schedd_is_asked_there_only() -> None:
    client = Client()
    assert list(schedd_clusters(client).read_cluster(7, "ap1")) == ["ap1"]
    assert client.asked == [("read_cluster_jobs", "ap1")]
    assert schedd_clusters(client).read_cluster(8, "ap1") == {}
    assert schedd_clusters(client).read_cluster(7, "ap3") == {}
