"""Catalogue contract: tests for every catalogue; docs/developers/catalogue-plugin.md explains them."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType

import pytest

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import (
    DatasetState,
    Demand,
    DemandEntry,
    Did,
    Origin,
    Replica,
    Seen,
    Site,
    SiteAd,
    Unseen,
)
from hydrator.domain.ports import Catalogue
from hydrator.reconcile.site_ads import Budget, draft_site_ads, facts_of
from hydrator.reconcile.snapshot.merge import CatalogueMemory, apply_survey, build_snapshot

from .scenarios import CAM, RAL, SCENARIOS, Scenario

STATES_WITHOUT_FRACTION = {DatasetState.AVAILABLE, DatasetState.NEARLINE, DatasetState.UNAVAILABLE}


class CatalogueContract(ABC):
    """Tests for every catalogue. ``scope`` is the scope of the datasets in the tests.

    ``states`` are the states that this catalogue can report, AVAILABLE among them. ``cannot_happen`` has, by
    name of a scenario, the reason why it cannot happen in this catalogue. Both leave tests out, so none is
    skipped.
    ``has_fractions``: False for a source that does not know which part of a dataset is there. Its replicas in
    the tests have no fraction.
    """

    scope = "lofar"
    has_fractions = True
    states: Collection[DatasetState] = tuple(
        state for state in DatasetState if state is not DatasetState.UNKNOWN
    )
    cannot_happen: Mapping[str, str] = MappingProxyType({})

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Offer the tests of states and scenarios that this catalogue can have; pytest calls this."""
        if "state" in metafunc.fixturenames:
            metafunc.parametrize("state", self.states)
        if "scenario" in metafunc.fixturenames:
            metafunc.parametrize("scenario", [*filter(self._can_happen, SCENARIOS)], ids=str)

    def _can_happen(self, scenario: Scenario) -> bool:
        states = {state for _, state, _ in scenario.replicas or ()}
        return scenario.name not in self.cannot_happen and states <= set(self.states)

    @abstractmethod
    def make_catalogue(self, *replicas: Replica) -> Catalogue:
        """Build a catalogue with exactly these *replicas*.

        Two replicas at one site are at different storage elements.
        """

    @abstractmethod
    def make_failing_catalogue(self) -> Catalogue:
        """Build a catalogue that cannot answer now."""

    def make_garbled_catalogue(self) -> Catalogue:
        """Build a catalogue whose source has something unreadable about L1; by default the failing one."""
        return self.make_failing_catalogue()

    def make_catalogue_for_scenario(self, scenario: Scenario) -> Catalogue | None:
        """Build a catalogue in which *scenario* happened; return None to use ``scenario.replicas``."""
        return None

    @pytest.fixture(autouse=True)
    def _close_catalogues(self) -> Iterator[None]:
        self._open_catalogues: list[Catalogue] = []
        yield
        for catalogue in self._open_catalogues:
            catalogue.close()
            catalogue.close()

    def open_catalogue(self, *replicas: Replica) -> Catalogue:
        self._open_catalogues.append(self.make_catalogue(*replicas))
        return self._open_catalogues[-1]

    def open_failing_catalogue(self) -> Catalogue:
        self._open_catalogues.append(self.make_failing_catalogue())
        return self._open_catalogues[-1]

    def did(self, name: str) -> Did:
        return Did(f"{self.scope}:{name}")

    def replica_at(
        self,
        name: str,
        site: Site = CAM,
        state: DatasetState = DatasetState.AVAILABLE,
        fraction: float | None = None,
    ) -> Replica:
        """Return a replica in *state*; in a state that this catalogue cannot report: a complete one."""
        state = state if state in self.states else DatasetState.AVAILABLE
        is_partial = self.has_fractions and state not in STATES_WITHOUT_FRACTION
        return Replica(self.did(name), site, state, fraction if is_partial else None)

    def read_states(self, catalogue: Catalogue, *names: str) -> dict[Did, dict[Site, set[DatasetState]]]:
        """Return the catalogue's states of *names*; fail if a reading is Unseen."""
        readings = catalogue.read({self.did(name) for name in names}).readings
        found: dict[Did, dict[Site, set[DatasetState]]] = {}
        for did, reading in readings.items():
            assert isinstance(reading, Seen), reading
            at_sites = found.setdefault(did, defaultdict(set))
            for replica in reading.replicas:
                assert replica.did == did
                at_sites[replica.site].add(replica.state)
        return found

    def test_a_survey_has_every_queried_did_and_no_other(self) -> None:
        catalogue = self.open_catalogue(self.replica_at("L1"), self.replica_at("L2"))
        asked = {self.did("L1"), self.did("L-absent")}
        survey = catalogue.read(asked)
        assert set(survey.readings) == asked
        assert survey.catalogue == catalogue.name
        assert survey.started_at.tzinfo is not None

    def test_a_did_it_does_not_know_is_seen_nowhere(self) -> None:
        reading = (
            self.open_catalogue(self.replica_at("L1"))
            .read({self.did("L-absent")})
            .readings[self.did("L-absent")]
        )
        assert isinstance(reading, Seen)
        assert reading.replicas == ()

    def test_a_scope_it_does_not_know_is_seen_nowhere(self) -> None:
        stranger = Did("nobodys-scope:L1")
        reading = self.open_catalogue(self.replica_at("L1")).read({stranger}).readings[stranger]
        assert isinstance(reading, Seen)
        assert reading.replicas == ()

    def test_each_replica_state_is_read_back(self, state: DatasetState) -> None:
        fraction = 0.5 if self.has_fractions and state not in STATES_WITHOUT_FRACTION else None
        catalogue = self.open_catalogue(self.replica_at("L1", state=state, fraction=fraction))
        reading = catalogue.read({self.did("L1")}).readings[self.did("L1")]
        assert isinstance(reading, Seen)
        (replica,) = reading.replicas
        assert (replica.did, replica.site, replica.state) == (self.did("L1"), CAM, state)
        if fraction is not None:
            assert replica.fraction == pytest.approx(fraction)

    def test_datasets_and_sites_are_not_mixed_up(self) -> None:
        part = self.replica_at("L1", RAL, DatasetState.PARTIAL, 0.25)
        catalogue = self.open_catalogue(
            self.replica_at("L1", CAM), part, self.replica_at("L2", RAL), self.replica_at("L3", CAM)
        )
        assert self.read_states(catalogue, "L1", "L2") == {
            self.did("L1"): {CAM: {DatasetState.AVAILABLE}, RAL: {part.state}},
            self.did("L2"): {RAL: {DatasetState.AVAILABLE}},
        }

    def test_two_storage_elements_of_a_site_both_have_a_replica(self) -> None:
        part = self.replica_at("L1", CAM, DatasetState.PARTIAL, 0.5)
        tape = self.replica_at("L1", CAM, DatasetState.NEARLINE)
        catalogue = self.open_catalogue(part, tape)
        assert self.read_states(catalogue, "L1") == {self.did("L1"): {CAM: {part.state, tape.state}}}

    def test_a_second_read_gives_the_same_states(self) -> None:
        catalogue = self.open_catalogue(
            self.replica_at("L1"), self.replica_at("L1", RAL, DatasetState.PARTIAL, 0.5)
        )
        assert self.read_states(catalogue, "L1") == self.read_states(catalogue, "L1")

    def test_a_survey_of_no_did_has_all_sites(self) -> None:
        survey = self.open_catalogue(self.replica_at("L1", CAM), self.replica_at("L2", RAL)).read(frozenset())
        assert survey.sites >= {CAM, RAL}
        assert survey.readings == {}

    def test_a_name_may_have_slashes_and_be_long(self) -> None:
        names = ("observations/L628584/SB244.MS", "L" * 230)
        catalogue = self.open_catalogue(*(self.replica_at(name) for name in names))
        assert self.read_states(catalogue, *names) == {
            self.did(name): {CAM: {DatasetState.AVAILABLE}} for name in names
        }

    def test_a_did_that_differs_in_letter_case_only_is_a_case_variant(self) -> None:
        catalogue = self.open_catalogue(self.replica_at("L1"), self.replica_at("l1", RAL))
        readings = catalogue.read({self.did("L1")}).readings
        reading = readings[self.did("L1")]
        assert isinstance(reading, Seen)
        assert reading.case_variants == {self.did("l1")}
        assert self.read_states(catalogue, "L1") == {self.did("L1"): {CAM: {DatasetState.AVAILABLE}}}

    def test_a_did_without_case_variants_has_none(self) -> None:
        catalogue = self.open_catalogue(self.replica_at("L1"), self.replica_at("L11"))
        reading = catalogue.read({self.did("L1")}).readings[self.did("L1")]
        assert isinstance(reading, Seen)
        assert reading.case_variants == frozenset()

    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            ("L1", {"L1"}),
            ("L*", {"L1", "L2", "L10", "L_1"}),
            ("L?", {"L1", "L2"}),
            ("L[12]", {"L1", "L2"}),
            ("L[!1]*", {"L2", "L_1"}),
            ("*1", {"L1", "l1", "L_1", "deep/L1"}),
            ("L_*", {"L_1"}),
            ("deep/*", {"deep/L1"}),
            ("M*", set()),
        ],
    )
    def test_a_pattern_finds_exactly_what_it_matches(self, pattern: str, names: set[str]) -> None:
        catalogue = self.open_catalogue(
            *(self.replica_at(name) for name in ("L1", "l1", "L2", "L10", "L_1", "deep/L1"))
        )
        assert catalogue.find([f"{self.scope}:{pattern}"]) == {self.did(name) for name in names}

    def test_patterns_add_up_and_may_span_the_colon(self) -> None:
        catalogue = self.open_catalogue(self.replica_at("L1"), self.replica_at("L2"), self.replica_at("M1"))
        start, end = self.scope[:-1], self.scope[-1]
        found = catalogue.find([f"{start}*M1", f"{start}[{end}]:L1"])
        assert found == {self.did("M1"), self.did("L1")}

    def test_no_pattern_finds_nothing(self) -> None:
        assert self.open_catalogue(self.replica_at("L1")).find([]) == frozenset()

    def test_the_ad_shows_what_happened(self, scenario: Scenario) -> None:
        catalogue = self.make_catalogue_for_scenario(scenario)
        if catalogue is None:
            assert scenario.replicas is not None, (
                "build the scenario in make_catalogue_for_scenario, or give the reason in cannot_happen"
            )
            catalogue = self.make_catalogue(*(self.replica_at("L1", *row) for row in scenario.replicas))
        self._open_catalogues.append(catalogue)
        did = self.did("L1")
        survey = catalogue.read({did})
        assert isinstance(survey.readings[did], Seen), survey.readings[did]
        memory = apply_survey(CatalogueMemory(), survey, {did}, now=survey.started_at)
        demand = Demand((DemandEntry((did,), 1, Origin.JOB, survey.started_at, set_key([did])),))
        view = build_snapshot({"it": memory}, {did}, now=survey.started_at, max_age=timedelta(hours=6))
        shown = {
            site: facts_of(SiteAd(site, survey.started_at, 1, draft.content)).get(did)
            for site, draft in draft_site_ads(view, demand, budget=Budget()).items()
        }
        assert {site: fact.state for site, fact in shown.items() if fact} == scenario.expected_states
        if CAM in scenario.expected_states:
            fact = shown[CAM]
            assert fact is not None
            assert fact.fraction == (scenario.expected_fraction if self.has_fractions else None)

    def test_a_failing_catalogue_raises_an_error_and_no_empty_survey(self) -> None:
        for question in (frozenset({self.did("L1")}), frozenset[Did]()):
            with pytest.raises(CatalogueError) as failure:
                self.open_failing_catalogue().read(question)
            assert failure.value.catalogue == self.open_failing_catalogue().name

    def test_what_cannot_be_read_is_no_empty_answer(self) -> None:
        self._open_catalogues.append(self.make_garbled_catalogue())
        try:
            reading = self._open_catalogues[-1].read({self.did("L1")}).readings[self.did("L1")]
        except CatalogueError:
            return
        assert isinstance(reading, Unseen)

    def test_a_failing_catalogue_raises_an_error_from_find(self) -> None:
        with pytest.raises(CatalogueError):
            self.open_failing_catalogue().find([f"{self.scope}:*"])


class SiteBySiteCatalogueContract(CatalogueContract):
    """Tests for a catalogue that may answer for one site and not for another."""

    @abstractmethod
    def make_catalogue_with_unreachable_site(self, site: Site, *replicas: Replica) -> Catalogue:
        """Build a catalogue with these *replicas* that cannot query *site*."""

    def test_a_site_that_cannot_be_queried_is_unreachable_for_every_did(self) -> None:
        catalogue = self.make_catalogue_with_unreachable_site(
            RAL, self.replica_at("L1", CAM), self.replica_at("L1", RAL), self.replica_at("L2", RAL)
        )
        self._open_catalogues.append(catalogue)
        survey = catalogue.read({self.did("L1"), self.did("L2"), self.did("L-absent")})
        assert survey.sites >= {CAM, RAL}
        for did, reading in survey.readings.items():
            if isinstance(reading, Seen):  # an Unseen reading makes no claim
                assert RAL in reading.unreachable_sites
                assert all(replica.site != RAL for replica in reading.replicas)
                assert CAM in reading.unreachable_sites or (did == self.did("L1")) == bool(reading.replicas)
        assert any(isinstance(reading, Seen) for reading in survey.readings.values())
