"""Publisher contract for the offline ads of drones, in the collector of a real pool."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from adapters.condor import CondorClient, CondorSettings
from adapters.condor.drones import DronePublisher, DroneType
from hydrator.domain.errors import PublishError
from hydrator.domain.model import Site
from testbed.pool import DOMAIN
from testbed.ports import free_port
from tests.contracts.publisher import ODD_SITES, PublisherContract, site_ad

if TYPE_CHECKING:
    from testbed.pool import Pool

pytestmark = pytest.mark.pool

SITES = ("CAM", "RAL", "never published", *ODD_SITES)
TYPES = tuple(DroneType(f"type{number}", Site(site), 8, 16384, 100) for number, site in enumerate(SITES))
ALLOW = f"COLLECTOR.ALLOW_ADVERTISE_STARTD = $(ALLOW_ADVERTISE_STARTD) hydrator@{DOMAIN}\n"


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  (the real collector keeps real time)


@pytest.fixture(scope="module")
def drone_pool(own_pool: "Pool") -> "Pool":
    own_pool.reconfig(collector=ALLOW)
    return own_pool


class TestDronePublisher(PublisherContract):
    @pytest.fixture(autouse=True)
    def _clients(self, drone_pool: "Pool") -> Iterator[None]:
        self.pool = drone_pool
        token = drone_pool.token("hydrator")
        with (
            CondorClient(CondorSettings(drone_pool.collector, token_directory=token)) as self.client,
            CondorClient(CondorSettings(f"127.0.0.1:{free_port()}", token_directory=token)) as self.nowhere,
        ):
            self.empty()
            yield
            self.empty()

    def empty(self) -> None:
        self.client.invalidate_drones([ad["Name"] for ad in self.client.drone_ads()])

    def build(
        self, client: CondorClient, types: tuple[DroneType, ...] = TYPES, **more: Any
    ) -> DronePublisher:
        given = {"expressions": {}, "start_clause": "true", "lifetime": timedelta(minutes=15), "clock": now}
        return DronePublisher(client, types=types, **{**given, **more})

    def publisher(self) -> DronePublisher:
        return self.build(self.client)

    def unreachable(self) -> DronePublisher:
        return self.build(self.nowhere)

    def test_a_refresh_keeps_the_matches_of_the_negotiator(self) -> None:
        publisher = self.publisher()
        publisher.publish([site_ad("CAM")])
        match = "MachineLastMatchTime = 1763690400\nMachineMatchCount = 3\n"
        address = 'MyAddress = "<0.0.0.0:0>"\nStartdIpAddr = "<0.0.0.0:0>"\n'
        merge = f'MyType = "Machine"\nName = "{TYPES[0].ad_name}"\n{address}{match}'
        self.pool.run("condor_advertise", "MERGE_STARTD_AD", "-", input=merge)
        self.pool.wait(self.matches, 20, "the merge")
        publisher.publish([site_ad("CAM", 1_763_690_500)])
        assert self.matches() == [(1_763_690_400, 3)]

    def matches(self) -> list[tuple[int, int]]:
        ads = [(ad["MachineLastMatchTime"], ad["MachineMatchCount"]) for ad in self.client.drone_ads()]
        return [pair for pair in ads if None not in pair]

    def test_a_site_needs_an_ad_of_each_of_its_types(self) -> None:
        one, other = (DroneType(name, Site("CAM"), 8, 16384, 100) for name in ("one", "other"))
        self.build(self.client, (one,)).publish([site_ad("CAM")])
        both = self.build(self.client, (one, other))
        assert dict(both.published()) == {}
        both.publish([site_ad("CAM", 8)])
        assert both.published()[Site("CAM")].generation == 8

    def test_an_ad_of_a_removed_type_is_removed(self) -> None:
        self.publisher().publish([site_ad("CAM"), site_ad("RAL")])
        self.build(self.client, TYPES[:1]).publish([site_ad("CAM")])
        assert [ad["DataLocalityDrone"] for ad in self.client.drone_ads()] == ["type0"]

    def test_offline_ads_are_left_out_of_queries_for_slots(self) -> None:
        before = self.client.slots(["Name"])
        self.publisher().publish([site_ad("CAM")])
        assert self.client.slots(["Name"]) == before
        assert self.pool.slots("Name", constraint="Offline =?= true") == [{"Name": TYPES[0].ad_name}]

    def test_a_start_that_is_no_expression_is_a_publish_error(self) -> None:
        wrong = DroneType("wrong", Site("CAM"), 1, 1, 1, start="TARGET.Owner ==")
        with pytest.raises(PublishError, match=r"Start of drone .* is not a ClassAd expression"):
            self.build(self.client, (wrong,)).publish([site_ad("CAM")])

    def test_an_ad_of_another_identity_is_not_adopted(self) -> None:
        token = self.pool.token("condor")
        with CondorClient(CondorSettings(self.pool.collector, token_directory=token)) as other:
            self.build(other).publish([site_ad("CAM")])
        publisher = self.publisher()
        assert dict(publisher.published()) == {}
        assert publisher.rejected == {TYPES[0].ad_name: f"condor@{DOMAIN} sent it, not this daemon"}
