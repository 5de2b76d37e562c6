"""Jobs of mode auto read from elsewhere, one set after another; the file catalogue alone has their data.

FAR has the data and no slots. Its uplink has 1 GB/s, so one job reads 5 TB in 5,000 s: longer than a session.
"""

import pytest

from tests.gate.early import begin_early

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.older, pytest.mark.timeout(900)]

SIZE = 5 * 10**12


@begin_early
def first_set(installed):
    return read_far(installed, "read:one")


def test_link_feeds_one_set_and_the_other_waits_for_its_turn(installed, begun):
    first = begun(first_set)
    installed.pool.wait(lambda: not installed.pool.is_idle(first), "the job to read from FAR")
    assert installed.pool.job(first, "MATCH_EXP_DataLocalityStart", "DataLocality") == {
        "DataLocality": "auto",
        "MATCH_EXP_DataLocalityStart": "read 5000 s from FAR",
    }
    second = read_far(installed, "read:other")
    waits = "its turn to read has not come: the link of FAR feeds jobs of 1 set before it"
    installed.pool.wait(
        lambda: waits in installed.run("why", str(second), check=False).stdout, f"`why` to say: {waits}"
    )
    assert installed.pool.stays_idle(second)
    installed.remove(first, second)


def read_far(installed, name):
    """Submit a job whose data is at FAR alone."""
    installed.catalogue.add(name, SIZE, FAR="available")
    return installed.submit([name], mode="auto", seconds=7200)
