"""Contract of PoolLoads for the in-memory adapter and for the schedds; the real pool is in integration."""

import time
from collections.abc import Sequence
from typing import Any, cast

import classad2
import pytest

from adapters.condor import CondorClient
from adapters.condor.bindings.schedd_calls import _slot_of, find_clock_error
from adapters.condor.pool_load import ScheddClusters, ScheddLoads
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, Unseen
from hydrator.domain.ports import ClusterJobs, RunningJobs, ScheddLoad
from tests.contracts.pool_loads import LOAD, PoolLoadsContract
from tests.factories import NOON
from tests.memory import MemoryPoolLoads

ALIKE = {"key": "t:a", "user": "ann", "cpus": 2.0, "expected_seconds": 600, "run": "r1"}
OTHERS = {"key": "t:a,t:b", "user": "bob", "cpus": 1.0, "expected_seconds": None, "run": None}
NAMELESS = {"key": None, "user": "", "cpus": 1.0, "expected_seconds": None, "run": None}


def slot(name: str, state: str, cpus: float, total: float | None = None, **more: object) -> dict[str, Any]:
    """Return a slot ad of site UK; with *total* it is partitionable."""
    site = {"DataLocalitySite": None, "GLIDEIN_Site": "UK"}
    kind = {"PartitionableSlot": True if total else None, "TotalSlotCpus": total}
    return {**site, "Name": name, "State": state, "Cpus": cpus, **kind, **more}


SLOTS = [
    slot("slot1@uk", "Unclaimed", 3, 8),
    slot("a@de", "Claimed", 1, GLIDEIN_Site="DE"),
    slot("b@de", "Claimed", 1, GLIDEIN_Site="XX", DataLocalitySite="DE"),
    slot("c@no", "Unclaimed", 4, GLIDEIN_Site=None),
]


class Client:
    """A stand-in for a CondorClient with two schedds, of which ap2 does not answer."""

    def __init__(self, running: Sequence[dict[str, Any]] = (), *, is_broken: bool = False) -> None:
        self.running = running or [
            {**ALIKE, "site": "UK", "slot": None, "started_at": [200]},
            {**ALIKE, "site": None, "slot": "slot1@uk", "started_at": [100]},
            {**NAMELESS, "site": None, "slot": "gone@uk", "started_at": [50]},
        ]
        self.is_broken = is_broken
        self.constraint = self.leaving_constraint = ""
        self.clock_ahead = 0
        self.asked: list[str] = []

    def schedds(self) -> list[dict[str, str]]:
        return [{"Name": "ap1"}, {"Name": "ap2"}]

    def slots(self, attributes: Sequence[str], constraint: str) -> list[dict[str, Any]]:
        if self.is_broken:
            raise PoolError("collector", "no answer")
        if list(attributes) == ["Name"]:
            self.leaving_constraint = constraint
            return [{"Name": "drains@uk"}]
        self.constraint = constraint
        return SLOTS

    def read_idle_jobs(self, schedd: str) -> list[dict[str, Any]]:
        if schedd == "ap2":
            raise PoolError(schedd, "no answer in time")
        return [{**ALIKE, "job_count": 3}, {**OTHERS, "job_count": 1}]

    def read_running_jobs(
        self, schedd: str, site_attributes: Sequence[str], leaving_slots: Sequence[str] = ()
    ) -> Sequence[dict[str, Any]]:
        assert list(leaving_slots) == ["drains@uk"]
        more = {"clock_ahead": self.clock_ahead}
        return [{**row, **more, "is_leaving": row["slot"] in leaving_slots} for row in self.running]

    def read_cluster_jobs(
        self, schedd: str, cluster: int, site_attributes: Sequence[str], max_jobs: int
    ) -> dict[str, Any]:
        self.asked.append(schedd)
        if schedd == "ap2":
            raise PoolError(schedd, "no answer in time")
        is_here = cluster == 7
        return {
            "idle": [{**ALIKE, "job_count": 3}] if is_here else [],
            "running": [{**row, "is_leaving": False} for row in self.running] if is_here else [],
            "held_count": 2 if is_here else 0,
            "is_complete": True,
        }

    def close(self) -> None:
        pass


def schedd_loads(client: Client) -> ScheddLoads:
    return ScheddLoads(cast("CondorClient", client), lambda: NOON, ["GLIDEIN_Site"])


def schedd_clusters(client: Client) -> ScheddClusters:
    return ScheddClusters(cast("CondorClient", client), lambda: NOON, ["GLIDEIN_Site"])


class TestMemoryPoolLoads(PoolLoadsContract):
    def loads(self) -> MemoryPoolLoads:
        return MemoryPoolLoads(LOAD)

    def unreachable(self) -> MemoryPoolLoads:
        return MemoryPoolLoads(LOAD, is_broken=True)


@pytest.mark.outside
class TestScheddLoads(PoolLoadsContract):
    def loads(self) -> ScheddLoads:
        return schedd_loads(Client())

    def unreachable(self) -> ScheddLoads:
        return schedd_loads(Client(is_broken=True))


@pytest.mark.outside
@pytest.mark.parametrize(("age", "is_seen"), [(0, True), (740, True), (760, False), (None, True)])
def test_slots_without_an_update_for_long_do_not_count(age: int | None, is_seen: bool) -> None:
    """A killed startd leaves its ads behind; an ad without the time of its update counts."""
    client = Client()
    schedd_loads(client).read_load()
    ad = classad2.ClassAd({"PartitionableSlot": True, "State": "Unclaimed", "SlotType": "Partitionable"})
    if age is not None:
        ad["LastHeardFrom"] = int(time.time()) - age
    assert bool(classad2.ExprTree(client.constraint).eval(ad)) is is_seen


@pytest.mark.outside
def test_jobs_on_slots_that_take_no_further_jobs_are_leaving() -> None:
    slots = ("drains@uk", "slot1@uk")
    client = Client([{**ALIKE, "site": "UK", "slot": name, "started_at": [7]} for name in slots])
    ap1 = schedd_loads(client).read_load().schedds["ap1"]
    assert isinstance(ap1, ScheddLoad)
    assert [each.is_leaving for each in ap1.running] == [True, False]
    draining = {"Name": "x", "PartitionableSlot": True, "Draining": True, "State": "Unclaimed"}
    dynamic = {"Name": "y", "DynamicSlot": True, "Draining": True}
    for ad, usable, leaving in ((draining, False, True), (dynamic, False, False), (SLOTS[0], True, False)):
        asked = client.constraint, client.leaving_constraint
        got = tuple(bool(classad2.ExprTree(text).eval(classad2.ClassAd(ad))) for text in asked)
        assert got == (usable, leaving)


@pytest.mark.parametrize(
    ("schedd_time", "error"),
    [(1000, 0), (1030, 0), (1034, 0), (996, 0), (1630, 600), (400, -600), (None, 0), ("x", 0)],
)
def test_clock_of_a_schedd_is_wrong_if_it_is_outside_the_time_of_the_query(
    schedd_time: object, error: int
) -> None:
    assert find_clock_error(schedd_time, 1000.0, 1030.0) == error


@pytest.mark.outside
def test_load_has_the_error_of_the_schedds_clock() -> None:
    client = Client()
    client.clock_ahead = 7
    ap1 = schedd_loads(client).read_load().schedds["ap1"]
    assert isinstance(ap1, ScheddLoad)
    assert ap1.clock_ahead == 7


@pytest.mark.outside
def test_forged_values_of_jobs_do_not_count() -> None:
    """Anybody can write these attributes into a job ad."""
    odd = {**ALIKE, "cpus": float("inf"), "expected_seconds": 10**30, "site": "UK", "slot": None}
    load = schedd_loads(Client([{**odd, "started_at": [-5, 10**18, 7]}])).read_load()
    ap1 = load.schedds["ap1"]
    assert isinstance(ap1, ScheddLoad)
    assert ap1.running == (RunningJobs((7,), Site("UK"), "t:a", "ann", 1.0, None, "r1"),)


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


@pytest.mark.outside
def test_cluster_has_its_jobs_and_the_sites_of_slots_that_the_schedd_did_not_record() -> None:
    client = Client()
    jobs = ScheddLoad(LOAD.schedds["ap1"].idle[:1], LOAD.schedds["ap1"].running)  # type: ignore[union-attr]
    expected = {"ap1": ClusterJobs(NOON, jobs, 2), "ap2": Unseen("no answer in time")}
    assert schedd_clusters(client).read_cluster(7) == expected
    ads = [classad2.ClassAd({"Name": name}) for name in ("slot1@uk", "gone@uk", "slot1@de")]
    assert [bool(classad2.ExprTree(client.constraint).eval(ad)) for ad in ads] == [True, True, False]


@pytest.mark.outside
def test_cluster_of_one_schedd_is_asked_there_only() -> None:
    client = Client()
    assert list(schedd_clusters(client).read_cluster(7, "ap1")) == ["ap1"]
    assert client.asked == ["ap1"]
    assert schedd_clusters(client).read_cluster(8, "ap1") == {}
    assert schedd_clusters(client).read_cluster(7, "ap3") == {}
