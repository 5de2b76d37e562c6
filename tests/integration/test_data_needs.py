"""The data that jobs of a real pool need, and the sites that match the rest of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from adapters.condor import CondorClient, CondorSettings
from adapters.condor.pool_load import CondorPool, ScheddNeeds
from hydrator.domain.ports import DataNeed
from hydrator.wiring import system_clock

if TYPE_CHECKING:
    from testbed.pool import Pool

pytestmark = pytest.mark.pool

JOB = """
executable = /bin/sleep
arguments = 600
request_cpus = 1
request_memory = 16
request_disk = 16
requirements = ({requirements}) && MY.DataLocalityHere
+DataLocalityHere = {here}
+RequiredDatasets = {names}
{more}
queue {count}
"""
NOWHERE = "(TARGET.NoSlotHasThis =?= true)"


@pytest.fixture
def needs(pool: "Pool") -> Iterator[ScheddNeeds]:
    attributes = ["GLIDEIN_Site"]
    with CondorClient(CondorSettings(pool.collector, token_directory=pool.token("hydrator"))) as client:
        condor = CondorPool(client, system_clock, attributes)
        yield ScheddNeeds(condor, client, system_clock, attributes)


@contextmanager
def queue_of(pool: "Pool", *descriptions: str) -> Iterator[list[int]]:
    try:
        yield [pool.submit(description) for description in descriptions]
    finally:
        pool.empty_queue()


def read(needs: ScheddNeeds) -> list[DataNeed]:
    needs.pool.read_snapshot()
    (answer,) = needs.read_needs().values()
    assert not hasattr(answer, "reason"), answer
    return list(answer)


def test_jobs_that_wait_for_nothing_but_data_are_told_from_others(pool: "Pool", needs: ScheddNeeds) -> None:
    mark = uuid4().hex[:8]
    names = f'{{"t:{mark}b","t:{mark}a"}}'
    key = f'+DataLocalityKey = "s{mark}"'
    waiting = JOB.format(requirements="true", here=NOWHERE, names=names, count=3, more=key)
    other_key = f'+DataLocalityKey = "t:{mark}c"'
    stuck = JOB.format(requirements=NOWHERE, here=NOWHERE, names=f'{{"t:{mark}c"}}', count=1, more=other_key)
    held = JOB.format(requirements="true", here=NOWHERE, names=names, count=4, more=f"{key}\nhold = true")
    with queue_of(pool, waiting, stuck, held) as clusters:
        found: dict[str, DataNeed] = {}

        def jobs_on(numbers: list[int]) -> list[DataNeed]:
            return [found[str(number)] for number in numbers]

        def is_evaluated() -> bool:
            """Return whether the collector has said which sites match; a busy one may not at once."""
            found.update({one.example.split(".")[0]: one for one in read(needs)})
            print(found)  # pytest prints it with a failure
            return all(one.matching_sites for one in jobs_on(clusters[:1]))

        pool.wait(is_evaluated, "the sites of the jobs")
        keyed, other, on_hold = jobs_on(clusters)
    assert keyed.datasets == (f"t:{mark}b", f"t:{mark}a")
    assert (keyed.job_count, keyed.is_data_missing, keyed.is_running) == (3, True, False)
    assert keyed.matching_sites
    assert "@" in keyed.user
    assert system_clock() - keyed.queued_since < timedelta(minutes=10)
    assert (on_hold.job_count, on_hold.is_data_missing, on_hold.is_running) == (4, False, False)
    assert (other.is_data_missing, other.matching_sites) == (False, frozenset())


def test_running_jobs_have_their_site_and_the_datasets_of_their_key(pool: "Pool", needs: ScheddNeeds) -> None:
    mark = uuid4().hex[:8]
    key = f'+DataLocalityKey = "t:{mark}a"'
    job = JOB.format(requirements="true", here="true", names=f'{{"t:{mark}a"}}', count=1, more=key)
    with queue_of(pool, job):
        rows = pool.wait(lambda: [one for one in read(needs) if one.is_running], "the job to start")
    assert rows[0].datasets == (f"t:{mark}a",)
    assert rows[0].running_site is not None
