"""Contract of stagers: subclass StagerContract; the tests use datasets that no other test has."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import (
    ExistingRule,
    RefusalKind,
    RequestState,
    Stager,
    StagingFailed,
    StagingKind,
    StagingOrder,
    StagingQuery,
    StagingRefused,
)

CAM, RAL = Site("CAM"), Site("RAL")
FILES, FILE_BYTES = 4, 10**9
LIFETIME = timedelta(days=3)
MARGIN = timedelta(minutes=5)


def make_order(did: Did, site: Site = CAM, **changes) -> StagingOrder:
    """Return an order to stage *did*."""
    known = {"kind": StagingKind.STAGE, "bytes": FILES * FILE_BYTES, "lifetime": LIFETIME}
    return StagingOrder(site=site, did=did, **(known | changes))


class StagerTests(ABC):
    """Tests that open stagers, and find rules by their queries."""

    @abstractmethod
    def make_stager(self, **options) -> Stager:
        """Build a stager."""

    @pytest.fixture(autouse=True)
    def _close_stagers(self) -> Iterator[None]:
        self._open_stagers: list[Stager] = []
        yield
        for stager in self._open_stagers:
            stager.close()
            stager.close()

    def open_stager(self, **options) -> Stager:
        self._open_stagers.append(self.make_stager(**options))
        return self._open_stagers[-1]

    def find(self, stager: Stager, rule: str) -> ExistingRule | None:
        """Return the rule with this id, by a query for nothing else."""
        found = stager.list(StagingQuery(rules=frozenset({rule}))).rules
        return next((one for one in found if one.id == rule), None)

    def search(self, stager: Stager, did: Did, *sites: Site) -> list[ExistingRule]:
        """Return the rules on *did* at *sites*, by default at CAM."""
        return list(stager.list(StagingQuery(frozenset({did}), frozenset(sites or {CAM}))).rules)


class StagerContract(StagerTests):
    """Tests that every Stager passes."""

    @abstractmethod
    def make_failing_stager(self) -> Stager:
        """Build a stager whose catalogue cannot answer."""

    @abstractmethod
    def add_dataset(self, name: str) -> Did:
        """Add a closed dataset of 4 files of 1 GB that is at none of the sites."""

    @abstractmethod
    def let_data_arrive(self, did: Did) -> None:
        """Let all files of *did* arrive where they were asked for."""

    @abstractmethod
    def let_time_pass(self, did: Did, seconds: float) -> None:
        """Let so much time pass for the rules of *did*, and let the catalogue's cleaner run."""

    @abstractmethod
    def add_rule_of_others(self, did: Did, site: Site) -> None:
        """Let another account bring *did* to *site*."""

    def now(self) -> datetime:
        """Return the time of the catalogue's clock."""
        return datetime.fromtimestamp(time.time(), UTC)

    # -- a rule of ours

    def test_a_rule_of_ours_is_found_by_its_id_by_its_dataset_and_in_the_list_of_all(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        rule = stager.request(make_order(did))
        found = self.find(self.open_stager(), rule)
        assert found
        assert (found.id, found.did, found.site, found.kind) == (rule, did, CAM, StagingKind.STAGE)
        assert found.is_ours
        assert not found.is_whole
        assert found.state in {RequestState.QUEUED, RequestState.MOVING}
        assert abs(found.expires_at - self.now() - LIFETIME) < MARGIN
        assert [one.id for one in self.search(stager, did, CAM, RAL)] == [rule]
        assert self.search(stager, did, RAL) == []
        assert rule in {one.id for one in stager.list(StagingQuery(lists_all=True)).rules}

    def test_a_repeated_request_renews_the_one_rule(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        rule = stager.request(make_order(did))
        assert self.open_stager().request(make_order(did, lifetime=2 * LIFETIME)) == rule
        assert abs(self.find(stager, rule).expires_at - self.now() - 2 * LIFETIME) < MARGIN
        assert stager.request(make_order(did, lifetime=LIFETIME, rule=rule)) == rule
        assert abs(self.find(stager, rule).expires_at - self.now() - LIFETIME) < MARGIN
        assert len(self.search(stager, did, CAM, RAL)) == 1

    def test_a_rule_is_whole_when_its_data_has_arrived(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        rule = stager.request(make_order(did))
        self.let_data_arrive(did)
        for found in (self.find(stager, rule), *self.search(stager, did, CAM)):
            assert found
            assert (found.state, found.is_whole) == (RequestState.DONE, True)
            assert found.files_done == found.files == FILES

    def test_an_unknown_dataset_is_refused(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        with pytest.raises(StagingRefused) as raised:
            stager.request(make_order(Did(f"{did}-that-nobody-has")))
        assert raised.value.kind in {RefusalKind.UNKNOWN_DATASET, RefusalKind.OTHER}
        assert "\n" not in str(raised.value)

    # -- the end of rules

    def test_a_rule_ends_after_its_lifetime_and_can_be_made_again(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        rule = stager.request(make_order(did))
        self.let_time_pass(did, LIFETIME.total_seconds() - 60)
        assert self.find(stager, rule)
        self.let_time_pass(did, 120)
        assert self.find(stager, rule) is None
        assert self.search(stager, did, CAM) == []
        again = stager.request(make_order(did))
        assert self.find(stager, again)

    def test_a_cancelled_rule_ends_at_once(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        rule = stager.request(make_order(did))
        stager.cancel(rule)
        self.let_time_pass(did, 10)
        assert self.find(stager, rule) is None
        stager.cancel(rule)  # it is not an error that it has ended

    def test_an_ended_rule_cannot_be_renewed_by_its_id(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        rule = stager.request(make_order(did))
        self.let_time_pass(did, LIFETIME.total_seconds() + 60)
        with pytest.raises(StagingRefused):
            stager.request(make_order(did, rule=rule))

    # -- others, sizes, space, permissions

    def test_a_rule_of_another_account_is_found_and_not_touched(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        self.add_rule_of_others(did, CAM)
        [rule] = self.search(stager, did, CAM, RAL)
        assert (rule.did, rule.site, rule.is_ours) == (did, CAM, False)
        assert rule.account
        with pytest.raises(StagingRefused):
            stager.cancel(rule.id)
        assert self.search(stager, did, CAM) == [rule]
        assert rule.id not in {one.id for one in stager.list(StagingQuery(lists_all=True)).rules}

    def test_sizes_are_known_for_known_datasets_only(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        unknown = Did(f"{did}-that-nobody-has")
        answer = stager.list(StagingQuery(frozenset({did, unknown}), frozenset({CAM})))
        assert answer.sizes == {did: FILES * FILE_BYTES}

    def test_the_space_of_an_unknown_site_is_unknown(self):
        stager = self.open_stager()
        spaces = stager.list(StagingQuery(spaces=frozenset({Site("NOWHERE")}))).spaces
        assert not isinstance(spaces.get(Site("NOWHERE")), int)

    def test_a_probe_of_permissions_makes_no_rule(self):
        stager = self.open_stager()
        before = stager.list(StagingQuery(lists_all=True)).rules
        permissions = stager.probe_permissions()
        assert permissions.can_ask in {True, None}
        assert all(note and "\n" not in note for note in permissions.notes)
        assert {one.id for one in stager.list(StagingQuery(lists_all=True)).rules} == {
            one.id for one in before
        }

    # -- failures

    def test_a_failing_catalogue_never_means_that_there_is_nothing(self):
        did = self.add_dataset("L1")
        stager = self.make_failing_stager()
        self._open_stagers.append(stager)
        for query in (
            StagingQuery(rules=frozenset({"a"})),
            StagingQuery(frozenset({did}), frozenset({CAM})),
            StagingQuery(lists_all=True),
        ):
            with pytest.raises(CatalogueError):
                stager.list(query)
        with pytest.raises(StagingFailed):
            stager.request(make_order(did))
        assert self.search(self.open_stager(), did, CAM) == []
