"""Two pools and a JobRouter, all real daemons under one master.

The second pool has a collector, a negotiator and a startd of its own; the schedd flocks to it. It is like
the pool of another administration: its slots have no site attributes until a test adds them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import classad2
import htcondor2  # noqa: F401 - classad2 knows all functions only after this
import pytest

from hydrator import startd_cron
from hydrator.config import Settings
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import Did
from hydrator.submit.pool_config import schedd_config
from testbed.files import write_program
from testbed.installation import Installation, ListedCatalogue
from testbed.pool import DOMAIN, Pool, SiteSpec
from testbed.ports import free_port
from tests.contracts.publisher import site_ad
from tests.located import brisk_schedd_config

pytestmark = [pytest.mark.pool, pytest.mark.timeout(900)]

CE = Path(__file__).parents[2] / "deploy" / "htcondor-ce"
SUMMARY = "60-datalocality-summary.conf"
JOB = """executable = /bin/sleep
arguments = 1
request_cpus = 1
request_memory = 10
request_disk = 1
+RequiredDatasets = {"lofar:L1"}
"""
DAEMONS = """
UPDATE_INTERVAL = 3
FLOCK_TO = {far}

COLLECTOR_FAR = $(COLLECTOR)
COLLECTOR_FAR_ARGS = -f -p {far_port} -local-name COLLECTOR_FAR
COLLECTOR_FAR.COLLECTOR_HOST = {far}
COLLECTOR_FAR.COLLECTOR_LOG = $(LOG)/CollectorLog.FAR
COLLECTOR_FAR.COLLECTOR_ADDRESS_FILE = $(LOG)/.collector_address.FAR

NEGOTIATOR_FAR = $(NEGOTIATOR)
NEGOTIATOR_FAR_ARGS = -f -local-name NEGOTIATOR_FAR
NEGOTIATOR_FAR.COLLECTOR_HOST = {far}
NEGOTIATOR_FAR.NEGOTIATOR_LOG = $(LOG)/NegotiatorLog.FAR
NEGOTIATOR_FAR.NEGOTIATOR_MATCH_LOG = $(LOG)/MatchLog.FAR
NEGOTIATOR_FAR.NEGOTIATOR_ADDRESS_FILE = $(LOG)/.negotiator_address.FAR
NEGOTIATOR_FAR.ACCOUNTANT_DATABASE_FILE = $(SPOOL)/Accountant.FAR

JOB_ROUTER = $(LIBEXEC)/condor_job_router
JOB_ROUTER_LOG = $(LOG)/JobRouterLog
JOB_ROUTER_POLLING_PERIOD = 2
JOB_ROUTER_SOURCE_JOB_CONSTRAINT = WantCopy isnt undefined
JOB_ROUTER_ROUTE_NAMES = Copy OfItsOwn
JOB_ROUTER_ROUTE_Copy @=end
   REQUIREMENTS WantCopy == "as it is"
   UNIVERSE VANILLA
   DELETE WantCopy
@end
JOB_ROUTER_ROUTE_OfItsOwn @=end
   REQUIREMENTS WantCopy == "with its own requirements"
   UNIVERSE VANILLA
   SET Requirements TARGET.Cpus > 0
   DELETE WantCopy
@end

DAEMON_LIST = $(DAEMON_LIST) COLLECTOR_FAR NEGOTIATOR_FAR JOB_ROUTER
DC_DAEMON_LIST = + COLLECTOR_FAR NEGOTIATOR_FAR
"""


@dataclass(frozen=True)
class World:
    """The home pool, and the address of the other collector."""

    home: Pool
    far: str

    def copy_of(self, cluster: int) -> classad2.ClassAd:
        """Return the JobRouter's copy of a job."""
        which = f'RoutedFromJobId == "{cluster}.0"'

        def asked() -> str:
            return self.home.run("condor_q", "-allusers", "-constraint", which, "-long").stdout.strip()

        return classad2.parseOne(self.home.wait(asked, f"the copy of job {cluster}"))


@pytest.fixture(scope="module")
def world(htcondor_release: str) -> Iterator[World]:
    port = free_port()
    far = f"127.0.0.1:{port}"
    sites = (
        SiteSpec("UK", cpus=1),
        SiteSpec("FAR", cpus=1, extra={"COLLECTOR_HOST": far}),
    )
    config = {
        "all": DAEMONS.format(far=far, far_port=port),
        "collector": f"COLLECTOR.ALLOW_NEGOTIATOR = condor@{DOMAIN} hydrator@{DOMAIN}",
        "schedd": brisk_schedd_config(),
    }
    with Pool.start(htcondor_release, sites, config) as pool:
        made = World(pool, far)
        pool.wait(lambda: pool.slots("Name", collector=far), "the second pool's slot")
        yield made
        pool.empty_queue()


@pytest.fixture
def clear(world: World) -> Iterator[None]:
    yield
    world.home.empty_queue()


# --- flocking


@pytest.mark.usefixtures("clear")
def test_why_looks_at_the_pool_to_which_the_schedd_flocks_and_at_every_configured_collector(world):
    pool = world.home
    installation = Installation(pool, ListedCatalogue(pool.home, ("UK", "FAR")))
    installation.install()
    job = pool.submit(JOB.partition("+")[0] + 'requirements = GLIDEIN_Site == "FAR"\nhold = true\nqueue')

    def asked() -> dict:
        done = installation.run("why", str(job), "--json", check=False)
        (answer,) = json.loads(done.stdout)["answers"]
        return dict(answer)

    answer = asked()
    assert answer["matching_sites"] == [f"FAR (pool {world.far}, by flocking)"]
    assert {(at["site"], at["pool"]) for at in answer["sites"]} >= {("UK", ""), ("FAR", world.far)}
    text = installation.config.read_text()
    both = f'[htcondor]\ncollector = "{pool.collector}, {world.far}"\n'
    installation.config.write_text(text.replace("[htcondor]\n", both))
    assert asked()["matching_sites"] == ["FAR"]
    silent = f'[htcondor]\ncollector = "127.0.0.1:9, {pool.collector}"\n'
    installation.config.write_text(text.replace("[htcondor]\n", silent))
    assert asked()["matching_sites"] == [f"FAR (pool {world.far}, by flocking)"]


@pytest.mark.usefixtures("clear")
def test_one_daemon_publishes_to_both_pools_and_a_job_flocks_to_its_data(world):
    pool = world.home
    catalogue = ListedCatalogue(pool.home, ("UK", "FAR"))
    catalogue.hold({"lofar:L1": {"FAR": "available"}})
    settings = "[publish]\nslot_merge = true\n"
    installation = Installation(pool, catalogue, settings=settings)
    installation.install()
    text = installation.config.read_text().replace(
        "[htcondor]\n", f'[htcondor]\ncollector = "{pool.collector}, {world.far}"\n'
    )
    installation.config.write_text(text)
    try:
        installation.start_daemon()
        job = pool.submit(JOB + '+DataLocality = "require"\nqueue')
        assert pool.ran_at(job) == ["FAR"]

        def site_ads(collector: str) -> list[str]:
            return sorted(
                ad["Name"] for ad in pool.ads('MyType == "DataLocality"', "Name", collector=collector)
            )

        expected = ["FAR", "UK"]
        for collector in (pool.collector, world.far):
            pool.wait(lambda c=collector: site_ads(c) == expected, f"the site ads at {collector}")
    finally:
        installation.stop_daemon()


# --- copies


@pytest.mark.usefixtures("clear")
def test_routed_copy_keeps_the_locality_attributes_and_is_not_transformed_twice(world):
    cluster = world.home.submit(JOB + '+DataLocality = "require"\n+WantCopy = "as it is"\nqueue')
    copy = world.copy_of(cluster)
    original = classad2.parseOne(world.home.run("condor_q", f"{cluster}.0", "-long").stdout)
    names = [name for name in original if name.startswith(("DataLocality", "Required"))]
    assert {"RequiredDatasets", "DataLocalityKey", "DataLocalityHere"} <= set(names)
    for name in [*names, "Requirements", "Rank"]:
        assert str(copy.lookup(name)) == str(original.lookup(name)), name
    assert str(copy.lookup("Requirements")).count("DataLocalityHere") == 1


@pytest.mark.usefixtures("clear")
def test_a_routed_copy_with_requirements_of_the_routes_is_tied_to_its_data_anew(world):
    own = '+WantCopy = "with its own requirements"\n'
    copy = world.copy_of(world.home.submit(JOB + f'+DataLocality = "require"\n{own}queue'))
    assert str(copy.lookup("Requirements")) == "(TARGET.Cpus > 0) && (MY.DataLocalityHere isnt false)"
    assert copy["DataLocalityKey"] == set_key([Did("lofar:L1")])
    assert "DataLocalityLocal" in str(copy.lookup("DataLocalityHere"))
    assert copy["DataLocalityTransformed"] is True


def summary_config(pool: Pool, folder: Path) -> str:
    """Return the shipped file as a stand-in for a CE has it: with this schedd's paths and period."""
    hook = write_program(pool.shared / "classad-hydrator-hook", Path(startd_cron.__file__).read_text("utf-8"))
    text = (CE / SUMMARY).read_text("utf-8")
    for shipped, ours in (
        ("/usr/libexec/classad-hydrator/classad-hydrator-hook", str(hook)),
        ("/var/lib/classad-hydrator/ads", str(folder)),
        ("--site SITE", "--site UK"),
        ("300s", "2s"),
    ):
        assert text.count(shipped) == 1
        text = text.replace(shipped, ours)
    return schedd_config(Settings()) + "SCHEDD_INTERVAL = 3\nSCHEDD_CRON_MAX_JOB_LOAD = 1\n" + text


def test_the_schedd_of_a_stand_in_for_a_ce_says_what_its_site_holds(world):
    folder = world.home.shared / "ce-ads"
    folder.mkdir()
    folder.chmod(0o755)
    ad = folder / "UK.ad"
    ad.write_text(site_ad("UK", 5).text, "utf-8")
    ad.chmod(0o644)
    world.home.reconfig(schedd=summary_config(world.home, folder))
    world.home.restart_daemon("schedd")  # one without a cron job at its start takes none at a reconfiguration
    told = 'MyType == "Scheduler" && DataLocalityGeneration == 5'
    (schedd,) = world.home.wait(lambda: world.home.ads(told), "the schedd's ad to say so")
    assert schedd["DataLocalitySite"] == "UK"
    assert schedd["AvailableDatasets"] == ["ska:observation_00000", "ska:observation_00001"]
    assert dict(schedd["DatasetStates"]) == dict.fromkeys(schedd["AvailableDatasets"], "AVAILABLE")


def test_no_configuration_includes_an_ad_file_with_include_command():
    """An included ad file would be root's configuration: `include command` in it runs as root."""
    root = CE.parents[1]
    texts = [*root.glob("deploy/**/*"), *root.glob("docs/**/*.md")]
    for path in texts:
        if path.is_file():
            lines = path.read_text("utf-8", "replace").splitlines()
            found = [line for line in lines if re.match(r"\s*include\b.*:", line, re.IGNORECASE)]
            assert found == [], path
