"""Contract of PoolReader: any adapter of this port passes these tests."""

from abc import abstractmethod
from dataclasses import replace

import pytest

from hydrator.domain.errors import PoolError
from hydrator.domain.model import QueuedJobs, ScheddDemand, Site, Unseen
from hydrator.domain.ports import (
    MAX_LOAD_AGE,
    DataNeed,
    IdleJobs,
    PoolLoad,
    PoolReader,
    PoolSnapshot,
    Resources,
    RunningJobs,
    ScheddLoad,
    ScheddQueue,
    SlotAdVersion,
    SlotGroup,
)
from tests.factories import NOON

QUEUE = ScheddQueue(
    ScheddDemand(NOON, (QueuedJobs(("t:a",), 6, "t:a"), QueuedJobs(("t:a", "t:b"), 1))),
    ScheddLoad(
        (IdleJobs(3, "t:a", "r1", Resources(2.0, 2048, 10**6, 1.0), 4), IdleJobs(1, "t:c", is_auto=False)),
        (RunningJobs((100, 200), Site("UK"), "t:a", "r1", "read 60 s from DE"), RunningJobs((50,))),
        clock_ahead=7,
    ),
    (DataNeed(("t:a",), 3, "ann@x", "7.0", NOON),),
    ({"GlobalJobId": "ap1#8.0", "User": "ann@x", "misses": ["1 t:a UK"], "reads": []},),
)
SNAPSHOT = PoolSnapshot(
    NOON,
    {"ap1": QUEUE},
    {"ap2": "no answer in time"},
    (
        SlotGroup(Site("DE"), Resources(1.0, 1000), Resources(0.0), 2, is_static=True),
        SlotGroup(Site("UK"), Resources(8.0, 8000, 4 * 10**6, 1.0), Resources(3.0, 2000, 10**6, 1.0)),
    ),
    (
        *(SlotAdVersion(Site("UK"), 7), SlotAdVersion(Site("DE"), None)),
        *(SlotAdVersion(Site("DE"), None), SlotAdVersion(None, None)),
    ),
)


class PoolReaderContract:
    """Tests of an adapter whose pool has SNAPSHOT but for the needs of running jobs."""

    @abstractmethod
    def pool(self) -> PoolReader:
        """Return an adapter of a pool with SNAPSHOT."""

    @abstractmethod
    def silence(self, pool: PoolReader) -> None:
        """Let the schedd ap1 of *pool* give no answer from now on, and the collector list no slots."""

    @abstractmethod
    def unreachable(self) -> PoolReader:
        """Return an adapter whose collector does not answer."""

    def test_the_snapshot_has_the_queue_of_each_schedd_and_the_slots(self) -> None:
        shown = self.pool().read_snapshot()
        waiting = tuple(need for need in shown.queues["ap1"].needs if not need.is_running)
        queues = {"ap1": replace(shown.queues["ap1"], needs=waiting)}
        assert replace(shown, queues=queues) == SNAPSHOT

    def test_a_silent_schedd_keeps_its_last_queue_with_its_time(self) -> None:
        pool = self.pool()
        first = pool.read_snapshot()
        self.silence(pool)
        shown = pool.read_snapshot()
        assert shown.queues == first.queues
        assert shown.silent.keys() == {"ap1", "ap2"}
        assert all(isinstance(answer, Unseen) for answer in shown.answers.values())
        assert isinstance(shown.load, Unseen)

    def test_a_schedd_that_is_silent_since_a_restart_has_its_queue_from_before(self) -> None:
        pool, before = self.pool(), replace(QUEUE, demand=ScheddDemand(NOON - MAX_LOAD_AGE, ()))
        pool.restore({"ap1": before, "ap2": before, "gone": before})
        queues = pool.read_snapshot().queues
        assert queues.keys() == {"ap1", "ap2"}
        assert (queues["ap1"].demand, queues["ap2"]) == (QUEUE.demand, before)

    def test_a_collector_that_does_not_answer_is_an_error(self) -> None:
        with pytest.raises(PoolError):
            self.unreachable().read_snapshot()

    def test_closing_twice_is_no_error(self) -> None:
        pool = self.pool()
        pool.close()
        pool.close()


def test_load_has_the_last_queue_of_a_silent_schedd_until_it_is_old() -> None:
    silent = {"ap1": "timeout", "ap2": "denied"}
    late = [replace(SNAPSHOT, as_of=NOON + age, silent=silent) for age in (MAX_LOAD_AGE, 2 * MAX_LOAD_AGE)]
    loads = [one.load for one in late]
    assert all(isinstance(one, PoolLoad) for one in loads)
    assert [one.schedds["ap1"] for one in loads] == [QUEUE.load, Unseen("timeout")]  # type: ignore[union-attr]
    assert loads[0].unseen_reason == "schedd ap2: denied"  # type: ignore[union-attr]
    waits = [sorted(jobs.key or "" for jobs in one.idle) for one in loads]  # type: ignore[union-attr]
    assert waits == [["t:a", "t:c"]] * 2, "a job does not end because its schedd is silent"
