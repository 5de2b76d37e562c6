"""Stager contract for the stager in memory."""

from datetime import timedelta

from hydrator.domain.model import Did
from hydrator.domain.staging_ports import RefusalKind, RequestState
from tests.contracts.stager import FILE_BYTES, FILES, StagerContract
from tests.factories import NOON
from tests.memory_stager import MemoryStager


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
