"""Contracts for the in-memory adapters, which other tests rely on."""

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


class TestMemoryPublisher(PublisherContract):
    def publisher(self) -> MemoryPublisher:
        return MemoryPublisher()

    def unreachable(self) -> MemoryPublisher:
        return MemoryPublisher(is_broken=True)
