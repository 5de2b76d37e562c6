"""Jobs of mode auto read from elsewhere, one set after another; the file catalogue alone has their data.

FAR has the data and no slots. Its uplink has 1 GB/s, so one job reads 5 TB in 5,000 s: longer than a session.
"""

import pytest

from tests.gate.early import begin_early

pytestmark = [pytest.mark.pool, pytest.mark.rucio, pytest.mark.older, pytest.mark.timeout(900)]

SIZE = 5 * 10**12


@begin_early
def two_sets(installed):
    for name in ("read:one", "read:other"):
        installed.catalogue.add(name, SIZE, FAR="available")
    return [installed.submit([name], mode="auto", seconds=7200) for name in ("read:one", "read:other")]


def test_link_feeds_one_set_and_the_other_waits_for_its_turn(installed, begun):
    both = begun(two_sets)
    installed.pool.wait(lambda: not all(map(installed.pool.is_idle, both)), "one of the jobs to start")
    second, first = sorted(both, key=installed.pool.is_idle, reverse=True)
    assert installed.pool.job(first, "MATCH_EXP_DataLocalityStart", "DataLocality") == {
        "DataLocality": "auto",
        "MATCH_EXP_DataLocalityStart": "read 5000 s from FAR",
    }
    assert installed.pool.stays_idle(second)
    installed.remove(*both)
