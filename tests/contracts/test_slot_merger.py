"""Publisher contract for the slot merge, into slots of a real collector.

The tests advertise the slots themselves: no startd renews them meanwhile.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.process import CondorSettings
from adapters.condor.slot_merge import SlotMerger
from hydrator.domain.ads.contract import OPENING_ATTRIBUTES, SETS, SETS_AS_OF, VERSION
from hydrator.domain.model import Site
from hydrator.wiring import system_clock
from testbed.pool import DOMAIN, Pool
from testbed.ports import free_port
from tests.contracts.publisher import ODD_SITES, PublisherContract, site_ad

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


class TestSlotMerger(PublisherContract):
    @pytest.fixture(autouse=True)
    def _clients(self, lone: Pool) -> Iterator[None]:
        token = lone.token("hydrator")
        advertise(lone)
        with (
            CondorClient(CondorSettings(lone.collector, token_directory=token)) as self.client,
            CondorClient(CondorSettings(f"127.0.0.1:{free_port()}", token_directory=token)) as self.nowhere,
        ):
            yield

    def publisher(self) -> SlotMerger:
        return self._merger(self.client)

    def unreachable(self) -> SlotMerger:
        return self._merger(self.nowhere)

    def _merger(self, client: CondorClient) -> SlotMerger:
        return SlotMerger(client, ["GLIDEIN_Site"], interval=timedelta(minutes=1), clock=system_clock)

    def test_a_merge_removes_the_attributes_that_the_new_ad_does_not_have(self, lone: Pool) -> None:
        facts = {VERSION, SETS, SETS_AS_OF}
        names = facts.union(OPENING_ATTRIBUTES)

        def defined() -> set[str]:
            at_site = 'GLIDEIN_Site == "CAM" && {} isnt undefined'
            return {name for name in names if len(lone.slots("Name", constraint=at_site.format(name))) == 2}

        publisher = self.publisher()
        publisher.publish([site_ad("CAM", 7)])
        lone.wait(lambda: defined() == names, "all attributes")
        publisher.publish([replace(site_ad("CAM", 8), openings=(), open_until=None)])
        lone.wait(lambda: defined() == facts, "those without openings only")
        publisher.publish([site_ad("CAM", 9)])
        lone.wait(lambda: defined() == names, "all attributes again")
        publisher.withdraw({Site("CAM")})
        lone.wait(lambda: defined() == set(), "no attribute after the withdrawal")
