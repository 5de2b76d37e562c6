"""Slots of the pool: site and generation of each slot, whatever a slot ad has."""

import pytest

from adapters.condor.collector import PoolSlots
from hydrator.domain.ports import SlotAdVersion


class Collector:
    """A collector's client that returns prepared slot ads."""

    def __init__(self, *ads: dict) -> None:
        self.ads = ads
        self.attributes: list[str] = []

    def slots(self, attributes, constraint):
        self.attributes = list(attributes)
        return [{name: ad.get(name) for name in attributes} for ad in self.ads]

    def close(self) -> None:
        """Close nothing."""


@pytest.mark.parametrize(("listed", "generation"), [(7, 7), ("seven", None), (None, None)])
def test_slot_has_its_site_and_the_generation_if_it_is_a_number(listed, generation):
    slots = PoolSlots(Collector({"GLIDEIN_Site": "RAL", "DataLocalityGeneration": listed}), ["GLIDEIN_Site"])
    assert slots.read_ad_versions() == [SlotAdVersion("RAL", generation)]
