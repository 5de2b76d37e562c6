"""Rucio on PostgreSQL: what depends on the database, with three queries at a time.

PostgreSQL counts bytes in floating point, and compares names by its own rules. The rest of the contract is
tested on SQLite (test_rucio_catalogue.py).
"""

import pytest

from hydrator.domain.model import Did, Seen
from hydrator.testing.catalogue_contract import CAM, RAL
from tests import rucio_contract as common
from tests.rucio_contract import AVAILABLE, PARTIAL, STAGING, STUCK

pytestmark = [pytest.mark.rucio, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def seeded(rucio_on_postgres):
    return common.with_storages(rucio_on_postgres)


class TestRucioCatalogueOnPostgres(common.RucioTests):
    @pytest.fixture(autouse=True)
    def _opened(self, _scope):
        self.open = self.catalogue(batch=1)
        yield
        self.open.close()

    def test_states_and_shares_of_datasets_are_exact_in_concurrent_queries(self):
        wanted = {
            (AVAILABLE, 1.0): self.dataset("complete", (CAM, AVAILABLE, 1.0)),
            (PARTIAL, 0.25): self.dataset("quarter", (CAM, PARTIAL, 0.25)),
            (PARTIAL, 0.75): self.dataset("most", (CAM, PARTIAL, 0.75)),
            (STAGING, 0.5): self.dataset("incoming", (CAM, STAGING, 0.5)),
            (STUCK, 0.5): self.dataset("stuck", (CAM, STUCK, 0.5)),
        }
        readings = self.open.read(frozenset(wanted.values())).readings
        for (state, fraction), did in wanted.items():
            assert isinstance(readings[did], Seen), readings[did]
            assert {(r.site, r.state, r.fraction) for r in readings[did].replicas} == {(CAM, state, fraction)}

    def test_share_of_a_container_is_that_of_its_files(self):
        parts = [self.dataset("whole", (CAM, AVAILABLE, 1.0)), self.dataset("half", (CAM, STAGING, 0.5))]
        box = Did(f"{self.scope}:box")
        self.server.do("add_container", did=box, children=parts)
        [replica] = self.open.read({box}).readings[box].replicas
        assert (replica.site, replica.state, replica.fraction) == (CAM, STAGING, 0.75)

    def test_bad_files_lower_the_share(self):
        did = self.dataset("bad", (CAM, AVAILABLE, 1.0))
        self.server.do("go_bad", did=did, rse="CAM-DISK", files=1)
        [replica] = self.open.read({did}).readings[did].replicas
        assert (replica.state, replica.fraction) == (PARTIAL, 0.75)

    def test_names_that_differ_in_letter_case_are_two_datasets(self):
        did, twin = self.dataset("L_1", (CAM, AVAILABLE, 1.0)), self.dataset("l_1", (RAL, AVAILABLE, 1.0))
        reading = self.open.read({did}).readings[did]
        assert ({r.site for r in reading.replicas}, reading.case_variants) == ({CAM}, {twin})

    @pytest.mark.parametrize(
        ("pattern", "names"), [("L*", {"L1", "L_1"}), ("L_*", {"L_1"}), ("L?", {"L1"}), ("l[!2]", {"l1"})]
    )
    def test_pattern_finds_exactly_what_it_matches(self, pattern, names):
        for name in ("L1", "l1", "L_1"):
            self.dataset(name)
        found = self.open.find([f"{self.scope}:{pattern}"])
        assert found == {Did(f"{self.scope}:{name}") for name in names}
