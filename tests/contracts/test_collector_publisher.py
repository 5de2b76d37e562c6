"""The collector of a real pool keeps the publishers' promises."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from adapters.collector import CollectorPublisher
from adapters.condor import CondorClient, CondorSettings
from hydrator.model import Site
from testbed.ports import free_port
from tests.contracts.publisher import PublisherContract, site_ad

if TYPE_CHECKING:
    from testbed.pool import Pool

pytestmark = pytest.mark.pool

LIFETIME = timedelta(minutes=15)


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  (the real collector keeps real time)


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
        return CollectorPublisher(self.client, lifetime=LIFETIME, clock=now)

    def unreachable(self) -> CollectorPublisher:
        return CollectorPublisher(self.nowhere, lifetime=LIFETIME, clock=now)

    def test_heard_is_when_the_collector_took_it_by_our_clock(self) -> None:
        before = now()
        publisher = self.publisher()
        publisher.publish([site_ad("CAM")])
        assert abs(publisher.published()[Site("CAM")].heard - before) < timedelta(seconds=10)

    def test_a_collector_whose_clock_is_an_hour_ahead_does_not_hide_an_old_ad(self) -> None:
        publisher = CollectorPublisher(
            self.client, lifetime=LIFETIME, clock=lambda: now() - timedelta(hours=1)
        )
        publisher.publish([site_ad("CAM")])
        heard = publisher.published()[Site("CAM")].heard
        assert abs(heard - (now() - timedelta(hours=1))) < timedelta(seconds=10)

    def test_it_lives_as_long_as_it_was_given(self, pool: "Pool") -> None:
        self.publisher().publish([site_ad("CAM")])
        assert [ad["ClassAdLifetime"] for ad in self.client.site_ads()] == [900]
