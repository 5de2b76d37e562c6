"""Slots of the pool: site, generation and cores of each slot, whatever a slot ad has."""

import pytest

from adapters.condor.collector import PoolSlots
from hydrator.domain.pool_ports import SlotAdVersion


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


@pytest.mark.parametrize(
    ("ad", "cores"),
    [
        ({"TotalSlotCpus": 8, "Cpus": 3}, 8),  # a partitionable slot with dynamic slots of 5 cores
        ({"Cpus": 3}, 3),
        ({"TotalSlotCpus": "many", "Cpus": 2}, 2),
        ({"TotalSlotCpus": -1}, 0),
        ({}, 0),
    ],
)
def test_cores_of_a_slot_are_those_of_the_whole_slot(ad, cores):
    slots = PoolSlots(Collector({"GLIDEIN_Site": "RAL", "DataLocalityGeneration": 7} | ad), ["GLIDEIN_Site"])
    assert slots.read_ad_versions() == [SlotAdVersion("RAL", 7, cores)]
