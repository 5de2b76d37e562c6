"""The steps of docs/how-to/operate/install/upgrade.md on a real pool: hooks first, then the configuration.

Both configurations are the printed ones: that of the last version of contract 1, and that of this version.
"""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.files.ad_files import AdFilePublisher
from adapters.memory import system_clock
from hydrator.domain.ads.contract import CONTRACT_VERSION
from hydrator.submit.pool_config import PoolPolicy, negotiator_config, schedd_config, startd_config
from testbed.pool import Pool, SiteSpec
from tests.contracts.publisher import site_ad
from tests.contracts.test_hook_upgrade import NEW_HOOK, OLD_HOOK
from tests.located import description

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

OLD_TEXTS = Path(__file__).parents[1] / "contracts" / "pool_config_of_contract_1.txt"
OLD_ROLE = re.compile(r"^# === (\w+)\n(.*?)(?=^# ===|\Z)", re.MULTILINE | re.DOTALL)
DATASET = "ska:observation_00000"
"""A dataset that the ads of both sites have, on disk; it is also its own key."""
SITES = ("UK", "AU")
ROLES = {
    "old": dict(OLD_ROLE.findall(OLD_TEXTS.read_text())),
    "new": {
        "schedd": schedd_config(PoolPolicy(), {}),
        "startd": startd_config({}),
        "negotiator": negotiator_config({}),
    },
}


class UpgradedPool:
    """A pool with a hook on each site and a printed configuration, which the test replaces."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        publisher = AdFilePublisher(pool.shared / "ads", system_clock)
        publisher.publish([site_ad(site, int(time.time()), as_of=system_clock()) for site in SITES])

    def install(self, texts: str, **hooks: Path) -> None:
        """Install the configuration *texts*, and the hook of each site; wait until all are in force."""
        lines = ["STARTD_CRON_JOBLIST = LOCALITY\n"]
        for site, hook in hooks.items():
            path = self.pool.shared / f"hook-{site}"
            shutil.copy(hook, path)
            path.chmod(0o755)
            name = f"{site}.STARTD_CRON_LOCALITY"
            lines += [
                f"{name}_EXECUTABLE = {path}\n{name}_MODE = Periodic\n{name}_PERIOD = 2s\n",
                f"{name}_ARGS = --site {site} --file {self.pool.shared / 'ads'}\n",
            ]
        roles = ROLES[texts]
        self.pool.reconfig(
            read_by=["SchedLog"],
            schedd=roles["schedd"],
            startd=roles["startd"] + "".join(lines),
            negotiator=roles["negotiator"],
        )
        wanted = {site: 1 if hook == OLD_HOOK else CONTRACT_VERSION for site, hook in hooks.items()}
        self.pool.wait(lambda: self.versions() == wanted, 90, f"slots of contract {wanted}")

    def versions(self) -> dict[object, object]:
        slots = self.pool.slots("DataLocalitySite", "DataLocalityVersion")
        return {slot.get("DataLocalitySite"): slot.get("DataLocalityVersion") for slot in slots}

    def submit(self, site: str, *lines: str) -> int:
        """Submit a job that requires the dataset, and a slot of *site*."""
        where = f'requirements = TARGET.GLIDEIN_Site == "{site}"'
        require = '+DataLocality = "require"'
        return self.pool.submit(description(f'{{"{DATASET}"}}', require, where, *lines))

    def runs(self, *clusters: int) -> bool:
        self.pool.wait(lambda: all(map(self.pool.done, clusters)), 120, f"jobs {clusters} to end")
        return True


@pytest.fixture(scope="module")
def upgraded(htcondor_release: str) -> Iterator[UpgradedPool]:
    sites = [SiteSpec(site, cpus=1) for site in SITES]
    with Pool.start(htcondor_release, sites, {"all": "UPDATE_INTERVAL = 4"}) as pool:
        yield UpgradedPool(pool)


def test_jobs_find_their_data_after_each_step_if_hooks_come_before_the_configuration(upgraded):
    upgraded.install("old", UK=NEW_HOOK, AU=OLD_HOOK)
    jobs = [upgraded.submit(site) for site in SITES]
    waiting = [upgraded.submit(site, "hold = true") for site in SITES]
    assert upgraded.runs(*jobs)

    upgraded.install("old", UK=NEW_HOOK, AU=NEW_HOOK)
    assert upgraded.runs(*[upgraded.submit(site) for site in SITES])

    upgraded.install("new", UK=NEW_HOOK, AU=NEW_HOOK)
    for cluster in waiting:
        upgraded.pool.run("condor_release", str(cluster))
    assert upgraded.runs(*waiting, *[upgraded.submit(site) for site in SITES])


def test_new_configuration_before_the_hooks_leaves_require_jobs_idle(upgraded):
    """The reason for the order: the job's key finds nothing at a slot with an old hook."""
    upgraded.install("new", UK=NEW_HOOK, AU=OLD_HOOK)
    stuck, runs = (upgraded.submit(site) for site in ("AU", "UK"))
    assert upgraded.runs(runs)
    upgraded.pool.wait(
        lambda: upgraded.pool.job(stuck, "LastRejMatchTime"), 60, "the negotiator to have looked at the job"
    )
    assert upgraded.pool.job(stuck, "JobStatus") == {"JobStatus": 1}
    upgraded.install("new", UK=NEW_HOOK, AU=NEW_HOOK)
    assert upgraded.runs(stuck)
