"""An upgrade on a real pool: one site has an old hook, another a new one, and old and new jobs run there."""

import os
import shutil
import time
from collections.abc import Iterator

import pytest

from adapters.condor import CondorClient, CondorSettings
from adapters.files.ad_files import AdFilePublisher
from adapters.memory import system_clock
from hydrator.domain.ads.contract import contract_1
from hydrator.submit.expressions import KEYED_HERE
from testbed.pool import Pool, SiteSpec
from tests.contracts.publisher import site_ad
from tests.contracts.test_hook_upgrade import NEW_HOOK, OLD_HOOK
from tests.parts import NO_POOL, needs

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

DATASET = "ska:observation_00000"
"""A dataset that the ads of both sites have, on disk; it is also its own key."""
OLD_CLAUSE = (
    f'(TARGET.DatasetStates["{DATASET}"] =?= "AVAILABLE"'
    f' && (time() - (TARGET.DatasetAsOf["{DATASET}"] ?: TARGET.DataLocalityAsOf)) < MY.DataLocalityMaxAge)'
)
"""The clause of a job that was queued before the upgrade."""
HOOKS = {"UK": OLD_HOOK, "AU": NEW_HOOK}


@pytest.fixture(scope="module", params=os.environ.get("HYDRATOR_TEST_HTCONDOR", "25.14,23.9").split(","))
def pool(request) -> Iterator[Pool]:
    with needs(NO_POOL):
        sites = [SiteSpec(site, cpus=1) for site in HOOKS]
        started = Pool.start(request.param, sites, {"all": "UPDATE_INTERVAL = 4"})
    with started:
        ads = started.shared / "ads"
        publisher = AdFilePublisher(ads, system_clock)
        publisher.publish([site_ad(site, int(time.time()), as_of=system_clock()) for site in HOOKS])
        started.reconfig(startd="STARTD_CRON_JOBLIST = LOCALITY\n" + "".join(map(_cron(started), HOOKS)))
        started.wait(lambda: versions(started) == {"UK": 1, "AU": 2}, 60, "the attributes of both hooks")
        yield started


def _cron(pool: Pool):
    def lines(site: str) -> str:
        hook = pool.shared / f"hook-{site}"
        shutil.copy(HOOKS[site], hook)
        hook.chmod(0o755)
        name = f"{site}.STARTD_CRON_LOCALITY"
        values = {
            "EXECUTABLE": hook,
            "ARGS": f"--site {site} --file {pool.shared / 'ads'}",
            "MODE": "Periodic",
            "PERIOD": "2s",
            "KILL": "True",
        }
        return "".join(f"{name}_{key} = {value}\n" for key, value in values.items())

    return lines


def versions(pool: Pool) -> dict[object, object]:
    slots = pool.slots("DataLocalitySite", "DataLocalityVersion")
    return {slot.get("DataLocalitySite"): slot.get("DataLocalityVersion") for slot in slots}


def sites_of(pool: Pool, requirements: str, *lines: str, seconds: int) -> list[str]:
    """Return the sites where two jobs with *requirements* ran; each takes *seconds*."""
    text = "\n".join(
        [
            "executable = /bin/sleep",
            f"arguments = {seconds}",
            f"requirements = {requirements}",
            "+DataLocalityMaxAge = 20000",
            *lines,
            "queue 2",
        ]
    )
    pool.wait_free()
    cluster = pool.submit(text + "\n")
    pool.wait(lambda: pool.done(cluster, 2), 120, "both jobs to end")
    return sorted(pool.ran_at(cluster))


def test_old_jobs_run_beside_both_hooks_and_keyed_jobs_beside_the_new_one(pool):
    assert sites_of(pool, OLD_CLAUSE, seconds=20) == ["AU", "UK"]
    keyed = (f'+DataLocalityKey = "{DATASET}"', f"+DataLocalityAnyAfter = {int(time.time()) + 3600}")
    for mode in ("require", "auto"):
        assert sites_of(pool, KEYED_HERE[mode], *keyed, seconds=1) == ["AU", "AU"]


def test_keyed_jobs_use_a_slot_with_an_old_hook_when_their_time_has_come(pool):
    keyed = (f'+DataLocalityKey = "{DATASET}"', f"+DataLocalityAnyAfter = {int(time.time()) - 1}")
    assert sites_of(pool, KEYED_HERE["auto"], *keyed, seconds=20) == ["AU", "UK"]


def test_why_gives_each_slot_the_answers_of_its_own_contract(pool):
    """Slots with both hooks have one generation; `why` fetches long attributes once for alike slots."""
    new = site_ad("OSO", int(time.time()), as_of=system_clock())
    forms = {"slot1@old": contract_1(new), "slot1@new": new}
    ads = [
        f'MyType = "Machine"\nName = "{name}"\nMachine = "m"\nState = "Unclaimed"\n'
        f'MyAddress = "<127.0.0.1:{port}>"\nRequirements = true\n{form.text}'
        for port, (name, form) in enumerate(forms.items(), 9100)
    ]
    pool.run("condor_advertise", "-tcp", "-multiple", "UPDATE_STARTD_AD", "-", input="\n".join(ads))
    at_oso = 'DataLocalitySite == "OSO"'
    pool.wait(lambda: len(pool.slots("Name", constraint=at_oso)) == 2, 30, "both slots of OSO")
    job = {
        "Requirements": KEYED_HERE["require"],
        "DataLocalityKey": f'"{DATASET}"',
        "DataLocalityMaxAge": "20000",
    }
    settings = CondorSettings(pool.collector, token_directory=pool.token("hydrator"))
    with CondorClient(settings) as client:
        groups = client.evaluate_match(job, [], ["DataLocalitySite"])["groups"]
    found = {group["example"]: group["matches"] for group in groups if group["site"] == "OSO"}
    bye = f'MyType = "Query"\nTargetType = "Machine"\nRequirements = {at_oso}\n'
    pool.run("condor_advertise", "-tcp", "INVALIDATE_STARTD_ADS", "-", input=bye)
    assert found == {"slot1@old": False, "slot1@new": True}
