"""The in-memory catalogue keeps the promises of the others, or it would lie to us."""

from adapters.memory import MemoryCatalogue
from tests.contracts.catalogue import CatalogueContract
from tests.factories import NOON


class TestMemoryCatalogue(CatalogueContract):
    def holding(self, *replicas):
        return MemoryCatalogue("memory", replicas, clock=lambda: NOON)

    def broken(self):
        return MemoryCatalogue("memory", clock=lambda: NOON, broken=True)

    def blinded(self, site, *replicas):
        return MemoryCatalogue("memory", replicas, clock=lambda: NOON, blind=[site])
