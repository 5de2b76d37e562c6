"""Contracts for the in-memory adapters, which other tests rely on."""

from datetime import timedelta

from hydrator.domain.model import DatasetState, Did
from hydrator.domain.staging_ports import RefusalKind, RequestState
from hydrator.testing import catalogue_contract
from hydrator.testing.catalogue_contract import SiteBySiteCatalogueContract
from hydrator.testing.scenarios import RECORDS_STATES_ONLY
from tests.contracts.publisher import PublisherContract
from tests.contracts.stager import FILE_BYTES, FILES, StagerContract
from tests.factories import NOON
from tests.memory import MemoryCatalogue, MemoryPublisher
from tests.memory_stager import MemoryStager


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


class TestMemoryStager(StagerContract):
    def make_stager(self):
        if not hasattr(self, "stager"):
            self.time = NOON
            self.stager = MemoryStager(self.now)
        return self.stager

    def now(self):
        return self.time

    def make_failing_stager(self):
        stager = MemoryStager(self.now)
        stager.is_broken = True
        return stager

    def add_dataset(self, name):
        did = Did(f"lofar:{name}")
        self.make_stager().sizes[did] = FILES * FILE_BYTES
        self.stager.refusals[Did(f"{did}-that-nobody-has")] = (RefusalKind.UNKNOWN_DATASET, "nobody has it")
        return did

    def let_data_arrive(self, did):
        for rule in self.stager.rules.values():
            self.stager.set(rule.id, state=RequestState.DONE, files=FILES, files_done=FILES)

    def let_time_pass(self, did, seconds):
        self.time += timedelta(seconds=seconds)
        self.stager.clean()

    def add_rule_of_others(self, did, site):
        self.stager.add_rule(did, site, state=RequestState.MOVING)
