"""Stager contract for the in-memory stager, which the tests of the core rely on."""

from datetime import timedelta
from types import MappingProxyType

import pytest

from hydrator.domain.model import Did
from hydrator.domain.staging_ports import RefusalKind, RequestState, StagingSize
from tests.contracts.stager import FILE_BYTES, FILES, StagerContract
from tests.factories import NOON
from tests.memory_stager import MemoryStager


class TestMemoryStager(StagerContract):
    cannot = MappingProxyType({"containers": "the stager in memory has no containers"})

    @pytest.fixture(autouse=True)
    def _start(self):
        self._passed = timedelta()
        self._stager = MemoryStager(self.now)

    def now(self):
        return NOON + self._passed

    def make_stager(self):
        return self._stager

    def make_failing_stager(self):
        stager = MemoryStager(self.now)
        stager.is_broken = True
        return stager

    def add_dataset(self, name):
        did = Did(f"lofar:{name}")
        self._stager.sizes[did] = StagingSize(FILES * FILE_BYTES, FILES)
        return did

    def name_unknown_dataset(self, did):
        unknown = super().name_unknown_dataset(did)
        self._stager.refusals[unknown] = (RefusalKind.UNKNOWN_DATASET, "nobody has it")
        return unknown

    def let_data_arrive(self, did):
        for handle, row in list(self._stager.rules.items()):
            if row.rule.did == did:
                self._stager.set_state(handle, RequestState.DONE, FILES)

    def let_time_pass(self, did, seconds):
        self._passed += timedelta(seconds=seconds)

    def add_rule_of_others(self, did, site):
        self._stager.add_rule(did, site, state=RequestState.MOVING)
