"""The slot merge, into slots of a real collector.

The tests advertise the slots themselves: no startd renews them meanwhile.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.process import CondorSettings
from adapters.condor.slot_merge import SlotMerger
from hydrator.domain.ads.contract import OPENING_ATTRIBUTES, SETS, SETS_AS_OF, VERSION
from hydrator.domain.model import SiteAd
from hydrator.domain.ports import MergeResult
from testbed.pool import DOMAIN, Pool
from testbed.ports import free_port
from tests.contracts.publisher import ODD_SITES, site_ad

pytestmark = pytest.mark.pool

SITES = ("CAM", "RAL", *ODD_SITES)


@pytest.fixture(scope="module")
def lone(htcondor_release: str) -> Iterator[Pool]:
    """Return a collector that allows the merge."""
    allow = f"COLLECTOR.ALLOW_NEGOTIATOR = condor@{DOMAIN} hydrator@{DOMAIN}"
    with Pool.start(htcondor_release, (), {"collector": allow}) as running:
        yield running


def advertise(pool: Pool) -> None:
    """Advertise two slots at each site, as their startds would do again."""
    ads = []
    for number, site in enumerate(SITES):
        quoted = site.replace('"', '\\"')  # in a file of ads a backslash is one
        ads += [
            f'MyType = "Machine"\nName = "slot{slot}@{number}"\nMachine = "m{number}"\nState = "Unclaimed"\n'
            f'MyAddress = "<127.0.0.1:{9000 + number}>"\nGLIDEIN_Site = "{quoted}"\n'
            for slot in (1, 2)
        ]
    file = Path(pool.shared / "slots.ads")
    file.write_text("\n".join(ads), "utf-8")
    pool.run("condor_advertise", "-tcp", "-multiple", "UPDATE_STARTD_AD", str(file))
    names = lambda: [s for s in pool.slots("Name", "DataLocalitySource") if "DataLocalitySource" not in s]  # noqa: E731
    pool.wait(lambda: len(names()) == 2 * len(SITES), "all slots to be as their startds say")


@pytest.fixture
def client(lone: Pool) -> Iterator[CondorClient]:
    advertise(lone)
    with CondorClient(CondorSettings(lone.collector, token_directory=lone.token("hydrator"))) as made:
        yield made


def merge(client: CondorClient, ads: Iterable[SiteAd], *retired: str) -> MergeResult:
    merger = SlotMerger(client, ["GLIDEIN_Site"], interval=timedelta(minutes=1))
    (result,) = merger.run_once({ad.site: ad for ad in ads}, lambda site: site in retired).values()
    return result


def test_the_ad_of_any_site_arrives_in_its_slots(lone: Pool, client: CondorClient) -> None:
    assert merge(client, map(site_ad, SITES)).merged_count == 2 * len(SITES)

    def arrived() -> bool:
        slots = lone.slots("GLIDEIN_Site", "DataLocalitySite", "DataLocalityGeneration")
        generation = site_ad("CAM").generation
        return all(
            (slot.get("DataLocalitySite"), slot.get("DataLocalityGeneration"))
            == (slot["GLIDEIN_Site"], generation)
            for slot in slots
        )

    lone.wait(arrived, "all slots to have the ad of their site")


def test_a_merge_removes_the_attributes_that_the_new_ad_does_not_have(
    lone: Pool, client: CondorClient
) -> None:
    facts = {VERSION, SETS, SETS_AS_OF}
    names = facts.union(OPENING_ATTRIBUTES)

    def defined() -> set[str]:
        at_site = 'GLIDEIN_Site == "CAM" && {} isnt undefined'
        return {name for name in names if len(lone.slots("Name", constraint=at_site.format(name))) == 2}

    merge(client, [site_ad("CAM", 7)])
    lone.wait(lambda: defined() == names, "all attributes")
    merge(client, [replace(site_ad("CAM", 8), openings=(), open_until=None)])
    lone.wait(lambda: defined() == facts, "those without openings only")
    merge(client, [site_ad("CAM", 9)])
    lone.wait(lambda: defined() == names, "all attributes again")
    merge(client, [], "CAM")
    lone.wait(lambda: defined() == set(), "no attribute after the withdrawal")


def test_a_collector_that_does_not_answer_is_an_error_of_its_own() -> None:
    with CondorClient(CondorSettings(f"127.0.0.1:{free_port()}")) as nowhere:
        assert merge(nowhere, [site_ad("CAM")]).error
