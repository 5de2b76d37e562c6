"""Contract of PoolLoads: any adapter of this port passes these tests."""

from abc import abstractmethod

import pytest

from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, Unseen
from hydrator.domain.ports import IdleJobs, PoolLoad, PoolLoads, Resources, RunningJobs, ScheddLoad, SlotGroup
from tests.factories import NOON

LOAD = PoolLoad(
    NOON,
    {
        "ap1": ScheddLoad(
            (
                IdleJobs(3, "t:a", "r1", Resources(2.0, 2000, 10**6, 1.0), 4),
                IdleJobs(1, "t:a,t:b", is_auto=False),
            ),
            (RunningJobs((100, 200), Site("UK"), "t:a", "r1", "read 60 s from DE"), RunningJobs((50,))),
        ),
        "ap2": Unseen("no answer in time"),
    },
    (
        SlotGroup(Site("DE"), Resources(1.0, 1000), Resources(0.0), 2),
        SlotGroup(Site("UK"), Resources(8.0, 8000, 4 * 10**6, 1.0), Resources(3.0, 2000, 10**6, 1.0)),
    ),
)


class PoolLoadsContract:
    """Tests of an adapter whose pool has LOAD, and of one whose collector does not answer."""

    @abstractmethod
    def loads(self) -> PoolLoads:
        """Return an adapter of a pool with LOAD."""

    @abstractmethod
    def unreachable(self) -> PoolLoads:
        """Return an adapter whose collector does not answer."""

    def test_the_load_has_the_jobs_of_each_schedd_and_the_slots(self) -> None:
        assert self.loads().read_load() == LOAD

    def test_the_load_says_which_schedds_did_not_answer(self) -> None:
        assert self.loads().read_load().unseen_reason == "schedd ap2: no answer in time"

    def test_a_collector_that_does_not_answer_is_an_error(self) -> None:
        with pytest.raises(PoolError):
            self.unreachable().read_load()

    def test_closing_twice_is_no_error(self) -> None:
        loads = self.loads()
        loads.close()
        loads.close()
