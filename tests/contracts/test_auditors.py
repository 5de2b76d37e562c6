"""Auditor contract for the catalogues in memory and in a file."""

import os

import pytest

from adapters.files.catalogue import FileCatalogue
from hydrator.domain.model import Did, ReplicaState
from tests.contracts.auditor import AuditorContract
from tests.contracts.test_file_catalogue import table, toml
from tests.factories import CAM, L1, NOON, replica
from tests.memory import MemoryCatalogue


class TestMemoryAuditor(AuditorContract):
    def recording(self, *replicas):
        return MemoryCatalogue("memory", replicas, clock=lambda: NOON)

    def without_answer(self):
        return MemoryCatalogue("memory", clock=lambda: NOON, is_broken=True)

    def test_the_memory_auditor_may_differ_from_its_catalogue(self):
        catalogue = MemoryCatalogue("memory", [replica(L1)], clock=lambda: NOON)
        catalogue.audited_replicas = (replica(L1, CAM, ReplicaState.PARTIAL),)
        assert [r.state for r in catalogue.verify(L1).replicas] == [ReplicaState.PARTIAL]
        assert [r.state for r in catalogue.read({L1}).readings[L1].replicas] == [ReplicaState.COMPLETE]


class TestFileAuditor(AuditorContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.file = tmp_path / "catalogue.toml"

    def recording(self, *replicas):
        self.file.write_text(toml(table(replicas)))
        return FileCatalogue("files", self.file, lambda: NOON)

    def without_answer(self):
        return FileCatalogue("files", self.file.with_name("none.toml"), lambda: NOON)

    def test_the_file_auditor_reads_an_unchanged_file_again(self):
        auditor = self.recording(replica(L1))
        long_ago = (1_000_000_000, 1_000_000_000)
        os.utime(self.file, long_ago)
        assert auditor.verify(L1).replicas
        with self.file.open("r+") as file:  # in place: the same file, the same size
            file.write(self.file.read_text().replace("L1", "L9"))
        os.utime(self.file, long_ago)
        assert auditor.verify(L1).replicas == ()
        assert auditor.verify(Did("lofar:L9")).replicas
