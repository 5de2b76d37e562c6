"""The installation at a limit or a fault of the real pool: size budget, dead collector, rejected token."""

import pytest

from testbed.installation import Installation, ListedCatalogue

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

SUB_BANDS = 244


def run_of(name: str) -> list[str]:
    """Return the measurement sets of one observation, named as at the LOFAR archive."""
    return [f"lofar:{name}_SB{band:03d}_uv_pre-cal.ms" for band in range(SUB_BANDS)]


def test_runs_of_244_sub_bands_fill_the_ad_and_one_more_is_omitted_and_reported(own_pool):
    entry = len(run_of("L667520")[0]) + len("''=\"AVAILABLE\";")
    fitting = 60_000 // entry // SUB_BANDS
    runs = {f"L66752{number}": run_of(f"L66752{number}") for number in range(fitting + 1)}
    catalogue = ListedCatalogue(own_pool.home)
    catalogue.hold({did: {"UK": "available"} for dids in runs.values() for did in dids})
    least = max(runs)
    with Installation(own_pool, catalogue, period_seconds=1) as installed:
        for name, dids in runs.items():
            if name != least:  # held jobs want their datasets too, and go on wanting them
                installed.submit(dids, mode="require", count=2, more="hold = True")
        wanted = {name: installed.submit(dids, mode="require") for name, dids in runs.items()}
        for name, cluster in wanted.items():
            if name != least:
                assert installed.ran_at(cluster, 120) == ["UK"]
        at_uk = 'GLIDEIN_Site == "UK" && PartitionableSlot && DataLocalityTruncated'
        # the others may run before the daemon has seen the last job
        own_pool.wait(lambda: len(own_pool.slots("Name", constraint=at_uk)) == 1, 60, "a truncated ad")
        states = installed.states_at("UK")
        assert all(states.keys() >= set(dids) for name, dids in runs.items() if name != least)
        assert not states.keys() >= set(runs[least])  # the list of states is filled as far as it goes
        (left_out,) = installed.status()["demand"]["left_out"]["UK"]
        assert left_out == {"datasets": SUB_BANDS, "first": runs[least][0], "jobs": 1}
        warning = f"no space in the ad of UK for the datasets of 1 job, for example {runs[least][0]}"
        assert warning in installed.run("status").stdout
        assert own_pool.job(wanted[least], "JobStatus") == {"JobStatus": 1}
        own_pool.run("condor_rm", "-all", user="alice")
