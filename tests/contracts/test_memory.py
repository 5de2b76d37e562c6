"""Contracts for the in-memory adapters, which other tests rely on."""

from hydrator.domain.model import Seen, Unseen
from tests.contracts.publisher import PublisherContract
from tests.factories import CAM, L1, L2, L3, NOON, OSO, RAL, replica
from tests.memory import MemoryCatalogue, MemoryPublisher


def catalogue(*replicas, **more) -> MemoryCatalogue:
    return MemoryCatalogue("memory", replicas, clock=lambda: NOON, **more)


def test_the_memory_catalogue_answers_every_queried_did():
    survey = catalogue(replica(L1), sites=[OSO], unseen_reasons={L3: "timeout"}, bytes_total={L1: 9}).read(
        {L1, L2, L3}
    )
    assert (survey.catalogue, survey.started_at, survey.sites) == ("memory", NOON, {CAM, OSO})
    assert survey.readings == {L1: Seen(NOON, (replica(L1),), 9), L2: Seen(NOON), L3: Unseen("timeout")}


def test_the_memory_catalogue_follows_new_replicas():
    made = catalogue(replica(L1))
    made.replicas = (replica(L1, RAL),)
    assert made.read({L1}).readings[L1].replicas == (replica(L1, RAL),)


class TestMemoryPublisher(PublisherContract):
    def publisher(self) -> MemoryPublisher:
        return MemoryPublisher()

    def unreachable(self) -> MemoryPublisher:
        return MemoryPublisher(is_broken=True)
