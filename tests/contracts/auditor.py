"""Auditor contract: the promises of every auditor as tests."""

from abc import ABC, abstractmethod

import pytest

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Replica, ReplicaState, Site
from hydrator.domain.ports import Auditor

CAM, RAL = Site("CAM"), Site("RAL")


class AuditorContract(ABC):
    """Tests for every auditor. ``scope`` is the scope of the datasets in the tests."""

    scope = "lofar"

    @abstractmethod
    def recording(self, *replicas: Replica) -> Auditor:
        """Return the auditor of a catalogue with exactly these replicas."""

    @abstractmethod
    def without_answer(self) -> Auditor:
        """Return an auditor whose catalogue cannot answer now."""

    def did(self, name: str) -> Did:
        return Did(f"{self.scope}:{name}")

    def test_an_auditor_finds_exactly_the_replicas_that_exist(self):
        here = Replica(self.did("L1"), CAM, ReplicaState.COMPLETE)
        part = Replica(self.did("L1"), RAL, ReplicaState.PARTIAL, 0.5)
        auditor = self.recording(here, part, Replica(self.did("L2"), RAL, ReplicaState.COMPLETE))
        try:
            found = auditor.verify(self.did("L1"))
        finally:
            auditor.close()
        assert {(r.did, r.site, r.state) for r in found.replicas} == {
            (self.did("L1"), CAM, ReplicaState.COMPLETE),
            (self.did("L1"), RAL, ReplicaState.PARTIAL),
        }
        assert found.as_of.tzinfo is not None

    def test_an_auditor_finds_an_unknown_dataset_nowhere(self):
        auditor = self.recording(Replica(self.did("L1"), CAM, ReplicaState.COMPLETE))
        try:
            assert auditor.verify(self.did("unheard-of")).replicas == ()
        finally:
            auditor.close()

    def test_a_failing_auditor_raises_an_error_and_reports_no_absence(self):
        auditor = self.without_answer()
        with pytest.raises(CatalogueError):
            auditor.verify(self.did("L1"))
        auditor.close()
        auditor.close()
