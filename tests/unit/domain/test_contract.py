"""Contract 1 of an ad: older hooks reject each attribute and each version that they do not know."""

from datetime import timedelta

from hydrator.domain.ads.contract import OBSERVE_ATTRIBUTE, SET_ATTRIBUTES, contract_1
from hydrator.domain.model import SiteAd
from tests.factories import CAM, NOON

OLD = (
    ("DataLocalitySite", '"CAM"'),
    ("DatasetStates", "['lofar:L1'=\"AVAILABLE\"]"),
    ("DataLocalityVersion", "1"),
)


def newer() -> SiteAd:
    sets = tuple((name, "[]") for name in (*SET_ATTRIBUTES, OBSERVE_ATTRIBUTE))
    content = (*OLD[:2], *sets, ("DataLocalityVersion", "2"))
    return SiteAd(CAM, NOON, 7, content, NOON + timedelta(minutes=10))


def test_contract_1_has_no_entries_by_set_and_no_estimates():
    assert contract_1(newer()) == SiteAd(CAM, NOON, 7, OLD)
    assert [name for name, _ in contract_1(newer()).attributes] == [
        "DataLocalitySite",
        "DatasetStates",
        "DataLocalityAsOf",
        "DataLocalityGeneration",
        "DataLocalityVersion",
    ]


def test_an_ad_of_contract_1_is_unchanged():
    old = SiteAd(CAM, NOON, 7, OLD)
    assert contract_1(old) == old
