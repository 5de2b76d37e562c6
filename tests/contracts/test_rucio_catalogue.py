"""The tests of the Rucio catalogue for Rucio only; tests/gate/test_rucio.py has the catalogue contract."""

import itertools
from datetime import timedelta

import pytest

from adapters.rucio.catalogue import RucioCatalogue
from hydrator.domain.model import DatasetState, Did, Provenance, Seen, Site
from hydrator.reconcile.snapshot.merge import CatalogueMemory, apply_survey
from hydrator.testing.catalogue_contract import CAM, RAL
from hydrator.wiring import system_clock
from tests.rucio_contract import (
    AVAILABLE,
    NEARLINE,
    PARTIAL,
    STAGING,
    STUCK,
    RucioTests,
    seeded,
)

__all__ = ["seeded"]
pytestmark = pytest.mark.rucio


class TestOnlyRucio(RucioTests):
    @pytest.fixture(autouse=True)
    def _opened(self, _scope):
        self.open = self.catalogue()
        yield
        self.open.close()

    def read(self, did: Did, catalogue: RucioCatalogue | None = None) -> Seen:
        reading = (catalogue or self.open).read({did}).readings[did]
        assert isinstance(reading, Seen), reading
        return reading

    def read_states_of(self, did: Did) -> set[tuple[Site, DatasetState, float | None]]:
        return {(r.site, r.state, r.fraction) for r in self.read(did).replicas}

    def test_a_dataset_is_complete_by_its_cheap_rows_before_a_count(self):
        did = self.dataset("L1")
        where = {"did": did, "rse": "CAM-DISK"}
        self.server.seed(("place", where), ("replicate", where))  # and no abacus: the cheap row says 0 of 0
        assert self.read_states_of(did) == {(CAM, AVAILABLE, 1.0)}

    def test_a_rule_that_places_single_files_moves_too(self):
        did = self.dataset("L1")
        self.server.do("replicate", did=did, rse="CAM-DISK", grouping="NONE")
        self.server.do("transferred", did=did, rse="CAM-DISK", files=1)
        assert self.read_states_of(did) == {(CAM, STAGING, 0.25)}

    def test_data_at_an_element_that_was_deleted_leaves_although_its_rows_remain(self):
        name, site = f"GONE-{self.scope[5:]}", Site(f"GONE{self.scope[5:]}")
        self.server.seed(("add_rse", {"rse": name, "attributes": {"site": site}}))
        did = self.dataset("L1")
        where = {"did": did, "rse": name}
        self.server.seed(("place", where), ("replicate", where), ("abacus", {}))
        memory = apply_survey(CatalogueMemory(), self.open.read({did}), {did}, now=system_clock())
        assert memory.records[did].facts[site].state is DatasetState.AVAILABLE
        self.server.seed(("delete_rse", {"rse": name}))
        for _ in range(2):
            memory = apply_survey(memory, self.open.read({did}), {did}, now=system_clock())
            assert site in memory.sites, "it was looked at: nothing is there"
            assert memory.records[did].facts == {}

    def test_data_at_an_element_that_moved_to_another_site_leaves_the_first(self):
        name, site = f"MOVED-{self.scope[5:]}", Site(f"OLD{self.scope[5:]}")
        self.server.seed(("add_rse", {"rse": name, "attributes": {"site": site}}))
        did = self.dataset("L1")
        self.server.seed(("place", {"did": did, "rse": name}))
        catalogue = self.catalogue(attributes_every=timedelta(0))
        memory = apply_survey(CatalogueMemory(), catalogue.read({did}), {did}, now=system_clock())
        self.server.seed(("set_rse_attribute", {"rse": name, "key": "site", "value": "CAM"}))
        memory = apply_survey(memory, catalogue.read({did}), {did}, now=system_clock())
        assert memory.records[did].facts.keys() == {CAM}
        catalogue.close()

    @pytest.mark.parametrize("kind", ["dataset", "container", "dataset of a container"])
    def test_a_did_that_expires_soon_is_not_complete(self, kind):
        catalogue = self.catalogue(verify_every=timedelta(hours=1))
        part = self.dataset("L1", (CAM, AVAILABLE, 1.0))
        box = Did(f"{self.scope}:box")
        self.server.do("add_container", did=box, children=[part])
        did = part if kind == "dataset" else box
        ending = box if kind == "container" else part
        assert self.read(did, catalogue).replicas[0].state == AVAILABLE
        for seconds, state in [(3600, PARTIAL), (48 * 3600, AVAILABLE), (60, PARTIAL)]:
            self.server.do("end_in", did=ending, seconds=seconds)
            (replica,) = self.read(did, self.catalogue()).replicas
            assert (replica.state, replica.fraction) == (state, 1.0)
        assert "its own lifetime" in replica.provenance.reason
        catalogue.close()

    @pytest.mark.parametrize("owner", ["itself", "a container"])
    def test_after_a_restart_data_whose_last_rule_ended_is_not_to_be_counted_on(self, owner):
        did = self.dataset("L1")
        box = Did(f"{self.scope}:box")
        self.server.do("add_container", did=box, children=[did])
        where = {"did": did if owner == "itself" else box, "rse": "CAM-DISK"}
        self.server.seed(("place", {**where, "did": did}), ("replicate", where), ("abacus", {}))
        assert self.read_states_of(did) == {(CAM, AVAILABLE, 1.0)}
        self.server.do("end_rules", **where)  # the files are still there, with a tombstone
        restarted = self.catalogue()
        (replica,) = self.read(did, restarted).replicas
        assert (replica.state, replica.fraction) == (PARTIAL, 1.0)
        assert "rule has ended" in replica.provenance.reason
        self.server.do("replicate", **where)
        assert self.read(did, restarted).replicas[0].state == AVAILABLE
        restarted.close()

    def test_after_a_restart_data_that_never_had_a_rule_is_there(self):
        did = self.dataset("L1")
        self.server.do("place", did=did, rse="CAM-DISK")
        self.server.do("replicate", did=did, rse="RAL-DISK")
        self.server.do("end_rules", did=did, rse="RAL-DISK")
        assert self.read_states_of(did) == {(CAM, AVAILABLE, 1.0)}

    def test_a_container_is_complete_where_all_datasets_are_at_any_storage(self):
        one, two = self.dataset("L1", (CAM, AVAILABLE, 1.0)), self.dataset("L2", (RAL, PARTIAL, 0.5))
        self.server.do("place", did=two, rse="CAM-DISK2")
        inner, outer = Did(f"{self.scope}:inner"), Did(f"{self.scope}:outer")
        self.server.do("add_container", did=inner, children=[one, two])
        self.server.do("add_container", did=outer, children=[inner])
        for container in (inner, outer):
            assert self.read_states_of(container) == {(CAM, AVAILABLE, 1.0), (RAL, PARTIAL, 0.25)}
            assert self.read(container).bytes_total == 8_000_000_000

    def test_a_container_with_an_empty_dataset_can_be_complete(self):
        one, empty = self.dataset("L1", (CAM, AVAILABLE, 1.0)), Did(f"{self.scope}:empty")
        container, hollow = Did(f"{self.scope}:both"), Did(f"{self.scope}:hollow")
        self.server.do("add_dataset", did=empty, files=0)
        self.server.do("add_container", did=container, children=[one, empty])
        self.server.do("add_container", did=hollow, children=[empty])
        assert self.read_states_of(container) == {(CAM, AVAILABLE, 1.0)}
        assert self.read_states_of(hollow) == set()

    def test_a_single_file_is_read_too(self):
        did = self.dataset("L1", (CAM, AVAILABLE, 1.0), (RAL, NEARLINE, 1.0))
        assert self.read_states_of(Did(f"{did}.00002")) == {(CAM, AVAILABLE, 1.0), (RAL, NEARLINE, 0.0)}

    def test_a_single_file_whose_transfer_failed_is_stuck(self):
        did = self.dataset("L1", (CAM, STUCK, 0.5))
        assert self.read_states_of(Did(f"{did}.00000")) == {(CAM, AVAILABLE, 1.0)}
        assert self.read_states_of(Did(f"{did}.00003")) == {(CAM, STUCK, 0.0)}

    def test_one_refused_name_leaves_the_others_seen(self):
        did = self.dataset("L1", (CAM, AVAILABLE, 1.0))
        odd = {Did("a-scope-longer-than-rucio-allows:L1"), Did(f"{self.scope}:~+")}
        readings = self.open.read({did, *odd}).readings
        assert [len(readings[each].replicas) for each in sorted(odd)] == [0, 0]
        assert len(readings[did].replicas) == 1

    def provenance_of(self, did: Did) -> Provenance:
        """Return where the facts at CAM are from."""
        (found,) = {replica.provenance for replica in self.read(did).replicas if replica.site == CAM}
        return found

    def test_a_stuck_rule_has_its_reason_and_account(self):
        did = self.dataset("L1", (CAM, STAGING, 0.5))
        self.server.do("fail", did=did, rse="CAM-DISK", error="no route to host")
        assert self.read_states_of(did) == {(CAM, STUCK, 0.5)}
        found = self.provenance_of(did)
        assert "no route to host" in found.reason
        assert (found.account, len(found.rule)) == ("root", 32)

    def new_disk(self) -> str:
        """Create a disk at CAM for this test only: the conveyor transfers all that rules want there."""
        name = f"CAM-{self.scope[5:]}"
        self.server.seed(("add_rse", {"rse": name, "attributes": {"site": "CAM"}}))
        return name

    def test_a_transfer_by_the_conveyor_has_a_completion_estimate(self):
        disk = self.new_disk()
        did = self.dataset("L1")
        ticks = itertools.count()
        slow = RucioCatalogue(self.settings, lambda: system_clock() + next(ticks) * timedelta(minutes=10))
        self.server.do("replicate", did=did, rse=disk)
        seen = []
        for _ in range(4):
            (replica,) = self.read(did, slow).replicas
            seen.append((replica.state, replica.fraction, replica.provenance.ready_at is not None))
            ready, found = system_clock() + next(ticks) * timedelta(minutes=10), replica.provenance
            self.server.do("convey", rse=disk, most=1)
        assert seen == [(STAGING, n / 4, n > 1) for n in range(4)]
        assert abs(found.ready_at - ready) < timedelta(minutes=15)  # ten, and what the calls took
        (replica,) = self.read(did, slow).replicas
        assert (replica.state, replica.provenance.ready_at) == (AVAILABLE, None)
        slow.close()

    def test_a_rule_that_any_of_several_sites_fulfils_counts_at_none(self):
        did = self.dataset("L1")
        self.server.do("replicate", did=did, rse="CAM-DISK|RAL-DISK", asynchronous=True)
        assert self.read_states_of(did) == set()

    def test_data_with_a_shortened_rule_is_partial_until_the_rule_is_renewed(self):
        catalogue = self.catalogue(verify_every=timedelta(hours=1))
        did = self.dataset("L1", (CAM, AVAILABLE, 1.0))
        where = {"did": did, "rse": "CAM-DISK"}
        self.server.do("remove", did=did, rse="ORIGIN")
        for seconds, state in [(None, AVAILABLE), (3600, PARTIAL), (48 * 3600, AVAILABLE), (60, PARTIAL)]:
            self.server.do("change_rules", **where, lifetime=seconds)
            (replica,) = self.read(did, catalogue).replicas
            assert (replica.state, replica.fraction) == (state, 1.0)
        self.server.do("end_rules", **where)  # the files are still there
        for _ in range(2):
            assert self.read(did, catalogue).replicas[0].state == PARTIAL
        self.server.do("replicate", **where)
        assert self.read(did, catalogue).replicas[0].state == AVAILABLE
        catalogue.close()

    def test_a_dataset_that_was_erased_is_gone_at_once_whatever_is_remembered_of_it(self):
        catalogue = self.catalogue(verify_every=timedelta(hours=1))
        did = self.dataset("L1", (CAM, AVAILABLE, 1.0))
        assert self.read(did, catalogue).replicas
        self.server.do("erase", did=did)
        assert self.read(did, catalogue).replicas == ()
        catalogue.close()

    def test_rules_that_are_listed_tell_what_locks_would(self):
        many = {self.dataset(f"L{n:02}", (CAM, AVAILABLE, 1.0)) for n in range(20)}
        ending, spread, inside, cut = (self.dataset(name) for name in ("ending", "spread", "inside", "cut"))
        box = Did(f"{self.scope}:box")
        disk = {"rse": "CAM-DISK"}
        self.server.seed(
            *(("place", {"did": did, **disk}) for did in (ending, spread, inside, cut)),
            ("replicate", {"did": ending, **disk, "lifetime": 3600}),
            ("replicate", {"did": spread, "rse": "CAM-DISK|RAL-TAPE"}),
            ("add_container", {"did": box, "children": [inside]}),
            ("replicate", {"did": box, **disk}),
            ("replicate", {"did": cut, "rse": "CAM-DISK|CAM-DISK2", "lifetime": 3600}),
            ("replicate", {"did": cut, **disk}),
            ("abacus", {}),
        )
        together = self.open.read(many | {ending, spread, inside, cut}).readings
        for did in (min(many), ending, spread, inside, cut):
            assert together[did].replicas == self.read(did, self.catalogue()).replicas
        assert together[ending].replicas[0].state == PARTIAL
        assert together[cut].replicas[0].state == together[inside].replicas[0].state == AVAILABLE

    def test_a_transfer_to_an_unwritable_element_is_stuck(self):
        did = self.dataset("L1")
        self.server.do("replicate", did=did, rse="CAM-FULL")
        assert self.read_states_of(did) == {(CAM, STUCK, 0.0)}
        self.server.do("transferred", did=did, rse="CAM-FULL")
        assert self.read_states_of(did) == {(CAM, AVAILABLE, 1.0)}

    def halves(self, name: str, second: str) -> Did:
        """Create a dataset with its first two files at CAM-DISK and the other two at *second*."""
        did = self.dataset(name)
        self.server.seed(
            ("place", {"did": did, "rse": "CAM-DISK", "files": 2}),
            ("place", {"did": did, "rse": second, "files": 2, "after": 2}),
            ("abacus", {}),
        )
        return did

    def test_two_halves_at_two_elements_of_a_site_are_complete_there(self):
        did = self.halves("L1", "CAM-DISK2")
        whole, *parts = self.read(did).replicas
        assert (whole.site, whole.state, whole.fraction) == (CAM, AVAILABLE, 1.0)
        assert whole.storage == "CAM-DISK,CAM-DISK2"
        assert (
            "4 of the dataset's 4 files are on disk: 2 at CAM-DISK, 2 at CAM-DISK2" in whole.provenance.reason
        )
        assert {(part.state, part.fraction) for part in parts} == {(PARTIAL, 0.5)}
        box = Did(f"{self.scope}:box")
        self.server.do("add_container", did=box, children=[did, self.dataset("L2", (CAM, AVAILABLE, 1.0))])
        assert self.read_states_of(box) == {(CAM, AVAILABLE, 1.0)}
        self.server.do("go_bad", did=did, rse="CAM-DISK", files=1)
        assert self.read_states_of(did) == {(CAM, PARTIAL, 0.25), (CAM, PARTIAL, 0.5)}

    def test_a_staging_area_is_disk_for_as_long_as_its_rule_lasts(self):
        did = self.dataset("L1")
        where = {"did": did, "rse": "CAM-STAGING"}
        self.server.seed(("place", where), ("replicate", {**where, "lifetime": 86400}), ("abacus", {}))
        assert self.read_states_of(did) == {(CAM, AVAILABLE, 1.0)}
        self.server.do("change_rules", **where, lifetime=3600)
        assert self.read_states_of(did) == {(CAM, PARTIAL, 1.0)}

    def test_an_open_dataset_that_grew_is_partial_until_the_rest_came(self):
        did = self.dataset("L1", (CAM, AVAILABLE, 1.0))
        assert self.read_states_of(did) == {(CAM, AVAILABLE, 1.0)}
        self.server.do("add_files", did=did, rse="ORIGIN", names=[f"{self.scope}-late"])
        assert self.read_states_of(did) == {(CAM, PARTIAL, 0.8)}

    @pytest.mark.parametrize("state", ["BAD", "TEMPORARY_UNAVAILABLE"])
    def test_a_dataset_all_of_whose_files_went_bad_is_not_here(self, state):
        did = self.dataset("L1", (CAM, AVAILABLE, 1.0))
        self.server.seed(("go_bad", {"did": did, "rse": "CAM-DISK", "files": None, "state": state}))
        assert self.read_states_of(did) == set()

    def test_a_rule_on_a_container_that_spreads_single_files_moves_its_datasets(self):
        one, two = self.dataset("L1"), self.dataset("L2")
        container, top = Did(f"{self.scope}:both"), Did(f"{self.scope}:top")
        self.server.do("add_container", did=container, children=[one, two])
        self.server.do("add_container", did=top, children=[container])
        self.server.do("replicate", did=top, rse="CAM-DISK", grouping="NONE")
        self.server.do("transferred", did=two, rse="CAM-DISK")
        assert self.read_states_of(one) == {(CAM, STAGING, 0.0)}
        assert self.read_states_of(top) == {(CAM, STAGING, 0.5)}
        assert self.read_states_of(two) == {(CAM, AVAILABLE, 1.0)}

    def test_a_container_names_its_stuck_dataset_and_the_reason(self):
        one, two = self.dataset("L1", (CAM, AVAILABLE, 1.0)), self.dataset("L2", (CAM, STAGING, 0.5))
        self.server.do("fail", did=two, rse="CAM-DISK", error="no space left")
        container = Did(f"{self.scope}:both")
        self.server.do("add_container", did=container, children=[one, two])
        assert self.read_states_of(container) == {(CAM, STUCK, 0.75)}
        assert two in self.provenance_of(container).reason
        assert "no space left" in self.provenance_of(container).reason
