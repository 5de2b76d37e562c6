"""A job of mode auto reads from elsewhere if that is sooner than a slot beside its data.

FAR has the data and no slots, so a slot beside it is 4,194,304 s away, and its uplink has 1 GB/s.
"""

import pytest

from tests.gate.early import begin_early

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.older, pytest.mark.timeout(900)]

NEVER_SECONDS = 4_194_304
GIGABYTE = 10**9


@begin_early
def small_and_large(installed):
    """500 GB are read in 500 s alone, and in 1,000 s with one other reader; 5,000 TB in more than 48 days."""
    installed.catalogue.add("read:small", 500 * GIGABYTE, FAR="available")
    installed.catalogue.add("read:large", 5_000_000 * GIGABYTE, FAR="available")
    return installed.submit(["read:small"]), installed.submit(["read:large"])


def test_auto_job_reads_by_the_uplink_unless_that_takes_too_long(installed, begun):
    small, large = begun(small_and_large)
    assert len(installed.ran_at(small)) == 1
    (ad,) = installed.pool.history(f"ClusterId == {small}", "MATCH_EXP_DataLocalityStart", "DataLocality")
    assert ad == {
        "DataLocality": "auto",
        "MATCH_EXP_DataLocalityStart": f"read 1024 s from FAR, queue {NEVER_SECONDS} s",
    }
    installed.pool.wait(lambda: queue_seconds(installed, "read:large") == {NEVER_SECONDS}, 0, "estimates")
    installed.until_rejected(large)
    assert installed.is_idle(large)
    installed.remove(large)


def queue_seconds(installed, key):
    """Return the queue seconds of a dataset's key that the slots advertise."""
    slots = installed.pool.slots("DataLocalityQueueSeconds", constraint="PartitionableSlot")
    return {(slot.get("DataLocalityQueueSeconds") or {}).get(key) for slot in slots}
