"""Contracts for the in-memory adapters, which other tests rely on."""

import pytest

from hydrator.domain.errors import CatalogueError, PoolError, PublishError
from hydrator.domain.model import Did, PublishedAd, QueuedJobs, ScheddDemand, Seen, Site, Unseen
from tests.contracts.publisher import PublisherContract
from tests.factories import CAM, L1, L2, L3, NOON, OSO, RAL, ad, replica
from tests.memory import MemoryCatalogue, MemoryPublisher, MemoryQueues


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


def test_the_memory_catalogue_has_case_variants():
    lower = Did("lofar:l1")
    readings = catalogue(replica(L1), bytes_total={lower: 1}).read({L1, lower}).readings
    assert (readings[L1].case_variants, readings[lower].case_variants) == ({lower}, {L1})


def test_a_broken_catalogue_raises_an_error_for_every_query():
    made = catalogue(replica(L1), is_broken=True)
    with pytest.raises(CatalogueError):
        made.read(set())
    with pytest.raises(CatalogueError):
        made.find([])
    made.is_broken = False
    assert made.find(["lofar:*"]) == {L1}


class TestMemoryPublisher(PublisherContract):
    def publisher(self) -> MemoryPublisher:
        return MemoryPublisher()

    def unreachable(self) -> MemoryPublisher:
        return MemoryPublisher(is_broken=True)


def test_the_memory_publisher_returns_its_ads():
    made = MemoryPublisher(clock=lambda: NOON)
    made.publish([ad(L1, generation=3), ad(site=RAL)])
    made.withdraw({RAL, Site("nobody")})
    assert made.published() == {CAM: PublishedAd(CAM, 3, NOON, NOON)}
    assert made.ads == {CAM: ad(L1, generation=3)}


def test_a_broken_publisher_refuses_all_and_keeps_its_ads():
    made = MemoryPublisher(clock=lambda: NOON)
    made.publish([ad(L1)])
    made.is_broken = True
    for question in (made.published, lambda: made.publish([ad(L2)]), lambda: made.withdraw({CAM})):
        with pytest.raises(PublishError):
            question()
    made.is_broken = False
    assert made.ads == {CAM: ad(L1)}


def test_the_memory_queues_return_their_demand():
    wanted = {"b": ScheddDemand(NOON, (QueuedJobs((L1,), 2),)), "a": Unseen("timeout")}
    assert list(MemoryQueues(wanted).read_demand().items()) == sorted(wanted.items())
    with pytest.raises(PoolError):
        MemoryQueues(wanted, is_broken=True).read_demand()
