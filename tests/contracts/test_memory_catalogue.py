"""The in-memory catalogue keeps the promises of the others, or it would lie to us."""

from adapters.memory import MemoryCatalogue
from hydrator.testing.catalogue_contract import CatalogueContract
from hydrator.testing.scenarios import RECORDS_STATES_ONLY
from tests.factories import NOON


class TestMemoryCatalogue(CatalogueContract):
    cannot_happen = RECORDS_STATES_ONLY

    def holding(self, *replicas):
        return MemoryCatalogue("memory", replicas, clock=lambda: NOON)

    def broken(self):
        return MemoryCatalogue("memory", clock=lambda: NOON, broken=True)

    def blinded(self, site, *replicas):
        return MemoryCatalogue("memory", replicas, clock=lambda: NOON, blind=[site])
