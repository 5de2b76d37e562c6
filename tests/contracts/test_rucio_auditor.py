"""Auditor contract on a real Rucio server: an audit finds the errors of Rucio's cheap answers."""

import pytest

from adapters.rucio.auditor import RucioAuditor
from hydrator.domain.errors import CatalogueDenied
from hydrator.domain.model import Did, ReplicaState
from tests.contracts.auditor import CAM, RAL, AuditorContract
from tests.rucio_contract import (
    COMPLETE,
    INCOMING,
    ON_TAPE,
    PARTIAL,
    RucioTests,
    replace,
    seeded,
    utc_now,
)

__all__ = ["seeded"]
pytestmark = pytest.mark.rucio


class TestRucioAuditor(RucioTests, AuditorContract):
    def auditor(self, **changes) -> RucioAuditor:
        return RucioAuditor(replace(self.settings, **changes), utc_now)

    def recording(self, *replicas):
        for did in sorted({replica.did for replica in replicas}):
            self.seed_all(did, *(each for each in replicas if each.did == did))
        return self.auditor()

    def without_answer(self):
        return self.auditor(url="http://127.0.0.1:1")

    def found(self, did: Did) -> set[tuple[str, ReplicaState, float | None]]:
        auditor = self.auditor()
        try:
            return {(r.site, r.state, r.fraction) for r in auditor.verify(did).replicas}
        finally:
            auditor.close()

    def test_an_audit_finds_bad_files_that_the_cheap_row_counts(self):
        did = self.dataset("L1", (CAM, COMPLETE, 1.0), (RAL, COMPLETE, 1.0))
        self.server.do("go_bad", did=did, rse="CAM-DISK", files=1)
        assert self.found(did) == {(CAM, PARTIAL, 0.75), (RAL, COMPLETE, 1.0)}

    def test_two_halves_at_two_elements_of_a_site_are_complete_there(self):
        did = self.dataset("L1")
        self.server.seed(
            ("place", {"did": did, "rse": "CAM-DISK", "files": 2}),
            ("place", {"did": did, "rse": "CAM-DISK2", "files": 2, "after": 2}),
        )
        assert self.found(did) == {(CAM, COMPLETE, 1.0), (CAM, PARTIAL, 0.5)}
        self.server.do("go_bad", did=did, rse="CAM-DISK", files=1)
        assert COMPLETE not in {state for _, state, _ in self.found(did)}

    def test_an_audit_finds_that_a_dataset_has_left(self):
        did = self.dataset("L1", (CAM, COMPLETE, 1.0), (RAL, COMPLETE, 1.0))
        self.server.do("remove", did=did, rse="CAM-DISK")
        assert self.found(did) == {(RAL, COMPLETE, 1.0)}

    def test_a_container_is_complete_where_each_of_its_datasets_is(self):
        whole = self.dataset("L1", (CAM, COMPLETE, 1.0), (RAL, COMPLETE, 1.0))
        broken = self.dataset("L2", (CAM, COMPLETE, 1.0), (RAL, COMPLETE, 1.0))
        both = Did(f"{self.scope}:both")
        self.server.seed(("add_container", {"did": both, "children": [whole, broken]}))
        assert {(site, state) for site, state, _ in self.found(both)} == {(CAM, COMPLETE), (RAL, COMPLETE)}
        self.server.do("go_bad", did=broken, rse="CAM-DISK", files=1)
        assert {(site, state) for site, state, _ in self.found(both)} == {(CAM, PARTIAL), (RAL, COMPLETE)}

    def test_a_dataset_without_files_is_nowhere(self):
        did = Did(f"{self.scope}:nothing")
        self.server.seed(("add_dataset", {"did": did, "rse": "ORIGIN", "files": 0}))
        assert self.found(did) == set()

    def test_a_single_file_is_found_where_it_is(self):
        did = self.dataset("L1", (CAM, COMPLETE, 1.0))
        assert (CAM, COMPLETE, 1.0) in self.found(Did(f"{did}.00000"))

    def test_an_audit_reports_incoming_and_tape_replicas(self):
        did = self.dataset("L1", (CAM, INCOMING, 0.5), (RAL, ON_TAPE, 0.0))
        assert self.found(did) == {(CAM, INCOMING, 0.5), (RAL, ON_TAPE, 0.0)}

    def test_the_auditor_has_its_own_login(self):
        did = self.dataset("L1", (CAM, COMPLETE, 1.0))
        catalogue, auditor = self.catalogue(), self.auditor()
        auditor.verify(did)
        assert catalogue.read({did}).readings[did].replicas
        auditor.close()
        assert catalogue.read({did}).readings[did].replicas
        catalogue.close()

    def test_a_wrong_password_is_an_error_of_the_audit(self):
        auditor = self.auditor(password="wrong")
        with pytest.raises(CatalogueDenied):
            auditor.verify(Did(f"{self.scope}:L1"))
        auditor.close()
