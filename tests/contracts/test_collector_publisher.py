"""Publisher contract for the collector of a real pool."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.process import CondorSettings
from adapters.condor.collector import CollectorPublisher
from hydrator import startd_cron
from hydrator.domain.model import Site
from hydrator.wiring import system_clock
from testbed.ports import free_port
from tests.contracts.publisher import PublisherContract, site_ad

if TYPE_CHECKING:
    from testbed.pool import Pool

pytestmark = pytest.mark.pool

LIFETIME = timedelta(minutes=15)


class TestCollectorPublisher(PublisherContract):
    @pytest.fixture(autouse=True)
    def _clients(self, pool: "Pool") -> Iterator[None]:
        token = pool.token("hydrator")
        with (
            CondorClient(CondorSettings(pool.collector, token_directory=token)) as self.client,
            CondorClient(CondorSettings(f"127.0.0.1:{free_port()}", token_directory=token)) as self.nowhere,
        ):
            self.client.invalidate([ad["Name"] for ad in self.client.site_ads()])
            yield
            self.client.invalidate([ad["Name"] for ad in self.client.site_ads()])

    def publisher(self) -> CollectorPublisher:
        return CollectorPublisher(self.client, lifetime=LIFETIME, clock=system_clock)

    def unreachable(self) -> CollectorPublisher:
        return CollectorPublisher(self.nowhere, lifetime=LIFETIME, clock=system_clock)

    @pytest.mark.older
    def test_the_hook_takes_a_sites_ad_from_the_collector(self, pool: "Pool") -> None:
        self.publisher().publish([site_ad("CAM", 7), site_ad("RAL", 8)])
        assert {ad["Name"] for ad in self.client.site_ads()} == {"CAM", "RAL"}
        hook = shutil.copy(startd_cron.__file__, pool.shared / "hook")
        done = pool.run("/bin/sh", hook, "--site", "CAM", "--collector", pool.collector, "--jitter", "0")
        assert (done.returncode, done.stderr) == (0, "")
        assert "\nDataLocalityGeneration = 7\n" in done.stdout
        assert "DataLocalityError = undefined" in done.stdout

    def test_the_received_time_is_by_the_clock_of_the_daemon(self) -> None:
        before = system_clock()
        publisher = self.publisher()
        publisher.publish([site_ad("CAM")])
        assert abs(publisher.published()[Site("CAM")].received_at - before) < timedelta(seconds=10)

    def test_a_collector_whose_clock_is_an_hour_ahead_does_not_hide_an_old_ad(self) -> None:
        publisher = CollectorPublisher(
            self.client, lifetime=LIFETIME, clock=lambda: system_clock() - timedelta(hours=1)
        )
        publisher.publish([site_ad("CAM")])
        heard = publisher.published()[Site("CAM")].received_at
        assert abs(heard - (system_clock() - timedelta(hours=1))) < timedelta(seconds=10)

    @pytest.mark.older
    def test_an_ad_in_the_collector_has_the_configured_lifetime(self, pool: "Pool") -> None:
        self.publisher().publish([site_ad("CAM")])
        assert pool.ads('MyType == "DataLocality"', "ClassAdLifetime") == [{"ClassAdLifetime": 900}]

    @pytest.mark.older
    def test_an_ad_of_another_identity_is_not_adopted_and_is_replaced(self, pool: "Pool") -> None:
        publisher = self.publisher()
        publisher.publish([site_ad("CAM"), site_ad("RAL")])
        with self.other(pool) as other:
            other.advertise([("CAM", site_ad("CAM", 999_999_999_999_999).text)], LIFETIME)
        assert set(publisher.published()) == {"RAL"}
        assert publisher.rejected == {"CAM": "condor@pool.test sent it, not this daemon"}
        publisher.publish([site_ad("CAM")])
        assert set(publisher.published()) == {"CAM", "RAL"}
        assert publisher.rejected == {}

    def other(self, pool: "Pool") -> CondorClient:
        """Return a client of another identity that may advertise to the collector too."""
        return CondorClient(CondorSettings(pool.collector, token_directory=pool.token("condor")))
