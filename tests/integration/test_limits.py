"""The installation at a limit or a fault of the real pool: size budget, dead collector, rejected token."""

import pytest

from testbed.installation import Installation, ListedCatalogue

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

SUB_BANDS = 244


def run_of(name: str) -> list[str]:
    """Return the measurement sets of one observation, named as at the LOFAR archive."""
    return [f"lofar:{name}_SB{band:03d}_uv_pre-cal.ms" for band in range(SUB_BANDS)]


def test_runs_of_244_sub_bands_have_room_in_the_ad_also_where_their_states_have_not(own_pool):
    """The ad answers for each run by one key, of plain jobs too."""
    entry = len(run_of("L667520")[0]) + len("''=\"AVAILABLE\";")
    fitting = 60_000 // entry // SUB_BANDS
    runs = {f"L66752{number}": run_of(f"L66752{number}") for number in range(fitting + 1)}
    catalogue = ListedCatalogue(own_pool.home)
    catalogue.hold({did: {"UK": "available"} for dids in runs.values() for did in dids})
    with Installation(own_pool, catalogue, period_seconds=1) as installed:
        held = [installed.submit(dids, mode="require", more="hold = True") for dids in runs.values()]
        assert held
        for cluster in [installed.submit(dids, mode="require") for dids in runs.values()]:
            assert installed.ran_at(cluster, 120) == ["UK"]
        at_uk = 'GLIDEIN_Site == "UK" && PartitionableSlot && DataLocalityTruncated'
        own_pool.wait(lambda: len(own_pool.slots("Name", constraint=at_uk)) == 1, 60, "a truncated ad")
        states = installed.states_at("UK")
        assert not all(states.keys() >= set(dids) for dids in runs.values())
        assert installed.status()["demand"]["left_out"] == {}
        own_pool.run("condor_rm", "-all", user="alice")
