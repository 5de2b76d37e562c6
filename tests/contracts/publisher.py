"""Publisher contract: the promises of every publisher as tests; an adapter joins by building one."""

from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hydrator.domain.errors import PublishError
from hydrator.domain.model import Site, SiteAd
from hydrator.domain.ports import Publisher

MORNING = datetime(2026, 11, 20, 8, 0, 0, tzinfo=UTC)

ODD_SITES = (
    "SKA UK (Cambridge)",
    "CERN-PROD/Meyrin",
    "Observatoire de la Côte d'Azur",
    'the "old" site',
    "back\\slash",
    "天文台",
    ".hidden",
    "..",
    "50%",
)


def site_ad(
    site: str,
    generation: int = 1_763_690_400,
    *,
    as_of: datetime = MORNING,
    datasets: int = 2,
) -> SiteAd:
    """Build an ad as ``hydrator.reconcile.site_ads`` does, with *datasets* datasets, all AVAILABLE."""
    dids = [f"ska:observation_{site_number:05d}" for site_number in range(datasets)]
    quoted = site.replace("\\", "\\\\").replace('"', '\\"')
    content = (
        ("DataLocalitySite", f'"{quoted}"'),
        ("AvailableDatasets", "{" + ",".join(f'"{did}"' for did in dids) + "}"),
        ("DatasetStates", "[" + ";".join(f"'{did}'=\"AVAILABLE\"" for did in dids) + "]"),
        ("DatasetFractions", "[]"),
        ("DatasetAsOf", "[]"),
        ("DataLocalityTruncated", "false"),
        ("DataLocalitySets", "[" + ";".join(f"'{did}'=1.0" for did in dids) + "]"),
        ("DataLocalitySetsAsOf", "[]"),
        ("DataLocalityVersion", "1"),
    )
    openings = (
        ("DataLocalityOpen", "[s2bc4defghijklmnopqrs=64]"),
        ("DataLocalityReadFrom", '[s2bc4defghijklmnopqrs="RAL; no 2"]'),
        ("DataLocalityBacklog", "32"),
    )
    return SiteAd(Site(site), as_of, generation, content, openings, as_of + timedelta(minutes=15))


class PublisherContract(ABC):
    @abstractmethod
    def publisher(self) -> Publisher:
        """Build a working publisher without ads."""

    @abstractmethod
    def unreachable(self) -> Publisher:
        """Build a publisher that can be neither written to nor read back."""

    def test_a_new_publisher_has_no_ads(self) -> None:
        assert dict(self.publisher().published()) == {}

    def test_an_ad_is_read_back_with_its_generation_age_and_end_of_openings(self) -> None:
        publisher = self.publisher()
        closed = replace(site_ad("RAL", 1_763_690_499), openings=(), open_until=None)
        publisher.publish([site_ad("CAM", 1_763_690_400), closed])
        shown = publisher.published()
        assert {(ad.site, ad.generation, ad.as_of, ad.open_until) for ad in shown.values()} == {
            ("CAM", 1_763_690_400, MORNING, MORNING + timedelta(minutes=15)),
            ("RAL", 1_763_690_499, MORNING, None),
        }
        assert set(shown) == {"CAM", "RAL"}

    def test_publishing_again_replaces_only_the_ad_of_that_site(self) -> None:
        publisher = self.publisher()
        publisher.publish([site_ad("CAM", 7), site_ad("RAL", 7)])
        publisher.publish([site_ad("CAM", 8)])
        assert {site: ad.generation for site, ad in publisher.published().items()} == {"CAM": 8, "RAL": 7}

    def test_a_refreshed_ad_is_read_back_with_its_new_times(self) -> None:
        publisher = self.publisher()
        before = site_ad("CAM", 7)
        publisher.publish([before])
        first = publisher.published()[Site("CAM")]
        later = {"as_of": MORNING + timedelta(minutes=5), "open_until": MORNING + timedelta(minutes=16)}
        publisher.publish([replace(before, **later)])
        second = publisher.published()[Site("CAM")]
        assert (second.as_of, second.open_until) == tuple(later.values())
        assert second.generation == first.generation
        assert second.received_at >= first.received_at

    def test_a_withdrawn_site_is_removed_and_the_others_stay(self) -> None:
        publisher = self.publisher()
        publisher.publish([site_ad("CAM"), site_ad("RAL")])
        publisher.withdraw({Site("CAM")})
        assert set(publisher.published()) == {"RAL"}

    def test_withdrawing_an_unknown_site_raises_no_error(self) -> None:
        publisher = self.publisher()
        publisher.publish([site_ad("CAM")])
        publisher.withdraw({Site("never published")})
        publisher.withdraw(frozenset())
        assert set(publisher.published()) == {"CAM"}

    def test_publishing_no_ad_changes_no_ad(self) -> None:
        publisher = self.publisher()
        publisher.publish([site_ad("CAM")])
        publisher.publish([])
        assert set(publisher.published()) == {"CAM"}

    @pytest.mark.parametrize("site", ODD_SITES)
    def test_odd_site_names_survive(self, site: str) -> None:
        publisher = self.publisher()
        publisher.publish([site_ad(site, 11), site_ad("CAM", 12)])
        assert {name: ad.generation for name, ad in publisher.published().items()} == {site: 11, "CAM": 12}
        publisher.withdraw({Site(site)})
        assert set(publisher.published()) == {"CAM"}

    def test_an_ad_of_120_kb_survives(self) -> None:
        publisher = self.publisher()
        ad = site_ad("CAM", 13, datasets=2400)
        assert len(ad.text) > 120_000
        publisher.publish([ad])
        assert publisher.published()[Site("CAM")].generation == 13

    def test_every_call_of_an_unreachable_publisher_raises_an_error(self) -> None:
        publisher = self.unreachable()
        for call in (
            publisher.published,
            lambda: publisher.publish([site_ad("CAM")]),
            lambda: publisher.withdraw({Site("CAM")}),
        ):
            with pytest.raises(PublishError):
                call()
