"""Contracts for the in-memory adapters, which other tests rely on."""

from hydrator.domain.model import DatasetState
from hydrator.testing import catalogue_contract
from hydrator.testing.catalogue_contract import SiteBySiteCatalogueContract
from hydrator.testing.scenarios import RECORDS_STATES_ONLY
from tests.contracts.publisher import PublisherContract
from tests.factories import NOON
from tests.memory import MemoryCatalogue, MemoryPublisher


class TestMemoryCatalogue(SiteBySiteCatalogueContract):
    cannot_happen = RECORDS_STATES_ONLY

    def make_catalogue(self, *replicas):
        return MemoryCatalogue("memory", replicas, clock=lambda: NOON)

    def make_failing_catalogue(self):
        return MemoryCatalogue("memory", clock=lambda: NOON, is_broken=True)

    def make_catalogue_with_unreachable_site(self, site, *replicas):
        return MemoryCatalogue("memory", replicas, clock=lambda: NOON, unreachable_sites=[site])


class TestCatalogueOfWholeCopies(TestMemoryCatalogue):
    """The contract asks it for no state that it cannot report."""

    states = (DatasetState.AVAILABLE,)

    def make_catalogue(self, *replicas):
        assert {replica.state for replica in replicas} <= set(self.states)
        return super().make_catalogue(*replicas)


def test_failure_of_the_contract_shows_the_values():
    assert "AssertionRewritingHook" in str(catalogue_contract.__spec__.loader)


class TestMemoryPublisher(PublisherContract):
    def publisher(self) -> MemoryPublisher:
        return MemoryPublisher()

    def unreachable(self) -> MemoryPublisher:
        return MemoryPublisher(is_broken=True)
