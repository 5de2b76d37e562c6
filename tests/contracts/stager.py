"""Stager contract: the promises of every stager as tests."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pytest

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import (
    OwnRequest,
    RefusalKind,
    RequestProgress,
    RequestState,
    Stager,
    StagingError,
    StagingKind,
    StagingOrder,
    StagingRefused,
    StagingUnavailable,
)

CAM, RAL = Site("CAM"), Site("RAL")
FILES, FILE_BYTES = 4, 1_000_000_000
LIFETIME = timedelta(days=3)
MARGIN = timedelta(minutes=5)


def make_order(tag: str, did: Did, site: Site = CAM, **changes) -> StagingOrder:
    """Return an order to stage a dataset of the contract."""
    values = {"batch": "b1", "kind": StagingKind.STAGE, "bytes": FILES * FILE_BYTES, "lifetime": LIFETIME}
    return StagingOrder(**{"tag": tag, "did": did, "site": site, **values, **changes})


class StagerContract(ABC):
    """Tests for every stager, for datasets that are at none of the sites CAM and RAL.

    ``cannot`` has, by name of a call or of an ability, the reason why this stager does not have it.
    """

    cannot: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def make_stager(self) -> Stager:
        """Build a stager."""

    @abstractmethod
    def make_failing_stager(self) -> Stager:
        """Build a stager whose catalogue cannot answer."""

    @abstractmethod
    def add_dataset(self, name: str) -> Did:
        """Add a closed dataset of 4 files of 1 GB that is at none of the sites."""

    def name_unknown_dataset(self, did: Did) -> Did:
        """Return the name of a dataset that does not exist, in the scope of *did*."""
        return Did(f"{did}-that-nobody-has")

    @abstractmethod
    def let_data_arrive(self, did: Did) -> None:
        """Let all files of *did* arrive where they were asked for."""

    @abstractmethod
    def let_time_pass(self, did: Did, seconds: float) -> None:
        """Let so much time pass for the requests for *did*."""

    def add_rule_of_others(self, did: Did, site: Site) -> None:
        """Let another account bring *did* to *site*."""
        raise NotImplementedError

    def add_rule_by_container(self, did: Did, site: Site) -> None:
        """Let another account bring a container with *did* to *site*."""
        raise NotImplementedError

    def now(self) -> datetime:
        """Return the time of the catalogue's clock."""
        return datetime.fromtimestamp(time.time(), UTC)

    def order(self, tag: str, did: Did, site: Site = CAM, **changes) -> StagingOrder:
        """Return an order whose tag begins with the prefix of this test."""
        return make_order(f"{self.prefix}:{tag}", did, site, **changes)

    @pytest.fixture(autouse=True)
    def _close_stagers(self) -> Iterator[None]:
        self.prefix = f"hydrator:{uuid.uuid4().hex[:12]}"
        self._open_stagers: list[Stager] = []
        yield
        for stager in self._open_stagers:
            stager.close()
            stager.close()

    def open_stager(self) -> Stager:
        self._open_stagers.append(self.make_stager())
        return self._open_stagers[-1]

    def ask_one(self, stager: Stager, order: StagingOrder) -> OwnRequest:
        result = stager.ask([order])[order.tag]
        assert isinstance(result, OwnRequest), result
        return result

    def look_at(self, stager: Stager, request: OwnRequest) -> RequestProgress | None:
        return stager.look({request.tag}, "nothing begins so").get(request.tag)

    def requests_of(self, stager: Stager) -> set[str]:
        return set(stager.look(set(), self.prefix))

    # -- ask and look

    def test_a_request_is_found_again_by_its_tag(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        order = self.order("1", did)
        request = self.ask_one(stager, order)
        assert (request.tag, request.did, request.site, request.kind) == (
            order.tag,
            did,
            CAM,
            StagingKind.STAGE,
        )
        assert request.handle
        progress = self.look_at(self.open_stager(), request)
        assert progress
        assert progress.request == request
        assert progress.state in {RequestState.QUEUED, RequestState.MOVING}
        assert progress.expires_at
        assert abs(progress.expires_at - self.now() - LIFETIME) < MARGIN

    def test_asking_twice_with_one_tag_makes_one_request(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        first = self.ask_one(stager, self.order("1", did))
        assert self.ask_one(self.open_stager(), self.order("1", did)) == first
        assert self.ask_one(stager, self.order("1", did)) == first

    def test_a_second_request_for_one_dataset_and_site_is_refused(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        first = self.ask_one(stager, self.order("1", did))
        second = stager.ask([self.order("2", did)])[f"{self.prefix}:2"]
        assert isinstance(second, StagingRefused)
        assert self.look_at(stager, first)
        assert f"{self.prefix}:2" not in stager.look({f"{self.prefix}:2"}, self.prefix)

    def test_orders_of_a_batch_have_one_result_each(self):
        stager = self.open_stager()
        dids = [self.add_dataset(f"L{number}") for number in range(3)]
        orders = [self.order(str(number), did) for number, did in enumerate(dids)]
        results = stager.ask(orders)
        assert {tag: result.did for tag, result in results.items() if isinstance(result, OwnRequest)} == {
            order.tag: order.did for order in orders
        }
        assert set(stager.look({order.tag for order in orders}, "x")) == {order.tag for order in orders}

    def test_a_refused_order_does_not_stop_the_others(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        unknown = self.order("1", self.name_unknown_dataset(did))
        results = stager.ask([unknown, self.order("2", did)])
        refused = results[unknown.tag]
        assert isinstance(refused, StagingRefused)
        assert refused.kind is RefusalKind.UNKNOWN_DATASET
        assert "\n" not in str(refused)
        assert isinstance(results[f"{self.prefix}:2"], OwnRequest)
        assert unknown.tag not in stager.look({unknown.tag}, self.prefix)

    def test_a_tag_that_was_never_used_is_not_in_the_answer(self):
        assert self.open_stager().look({f"{self.prefix}:never"}, f"{self.prefix}:never") == {}

    def test_requests_are_listed_by_the_prefix_of_their_tags(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        request = self.ask_one(stager, self.order("1", did))
        assert request.tag in self.open_stager().look(set(), self.prefix)
        assert request.tag not in stager.look(set(), f"{self.prefix}-2")

    def test_a_request_is_done_when_its_data_has_arrived(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        request = self.ask_one(stager, self.order("1", did))
        self.let_data_arrive(did)
        progress = self.look_at(stager, request)
        assert progress
        assert progress.state is RequestState.DONE
        assert progress.files_done == progress.files_total == FILES
        assert progress.bytes_done == progress.bytes_total == FILES * FILE_BYTES

    # -- the end of requests

    def test_a_request_ends_after_its_lifetime(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        request = self.ask_one(stager, self.order("1", did))
        self.let_time_pass(did, LIFETIME.total_seconds() - 60)
        assert self.look_at(stager, request)
        self.let_time_pass(did, 120)
        assert self.look_at(stager, request) is None

    def test_a_renewed_request_ends_later(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        request = self.ask_one(stager, self.order("1", did))
        stager.renew(request, 2 * LIFETIME)
        progress = self.look_at(stager, request)
        assert progress
        assert progress.expires_at
        assert abs(progress.expires_at - self.now() - 2 * LIFETIME) < MARGIN

    def test_a_cancelled_request_ends_at_once(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        request = self.ask_one(stager, self.order("1", did))
        stager.cancel(request)
        self.let_time_pass(did, 10)
        assert self.look_at(stager, request) is None
        stager.cancel(request)  # it is not an error that it has ended

    def test_an_ended_request_cannot_be_renewed(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        request = self.ask_one(stager, self.order("1", did))
        self.let_time_pass(did, LIFETIME.total_seconds() + 60)
        with pytest.raises(StagingRefused):
            stager.renew(request, LIFETIME)
        assert self.look_at(stager, request) is None

    def test_an_ended_request_can_be_made_again(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        self.ask_one(stager, self.order("1", did))
        self.let_time_pass(did, LIFETIME.total_seconds() + 60)
        for tag in "1", "2":
            request = self.ask_one(stager, self.order(tag, did))
            assert self.look_at(stager, request)
            self.let_time_pass(did, LIFETIME.total_seconds() + 60)
            assert self.look_at(stager, request) is None

    def test_a_request_with_another_tag_is_not_touched(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        request = self.ask_one(stager, self.order("1", did))
        alien = OwnRequest(f"{self.prefix}:2", request.handle, request.kind, request.site, request.did)
        before = self.look_at(stager, request)
        for call in (stager.cancel, lambda each: stager.renew(each, 2 * LIFETIME)):
            with pytest.raises(StagingRefused):
                call(alien)
        after = self.look_at(stager, request)
        assert before
        assert after
        assert before.expires_at == after.expires_at

    # -- dedup

    def test_a_search_finds_our_request_with_its_tag(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        assert list(stager.find_rules({did}, {CAM, RAL})) == []
        request = self.ask_one(stager, self.order("1", did))
        [rule] = stager.find_rules({did}, {CAM, RAL})
        assert (rule.tag, rule.handle, rule.did, rule.site) == (request.tag, request.handle, did, CAM)
        assert rule.state in {RequestState.QUEUED, RequestState.MOVING}
        assert list(stager.find_rules({did}, {RAL})) == []

    def test_a_search_finds_the_rules_of_other_accounts(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        self.add_rule_of_others(did, CAM)
        [rule] = stager.find_rules({did, self.add_dataset("L2")}, {CAM, RAL})
        assert (rule.did, rule.site, rule.tag) == (did, CAM, "")
        assert rule.account
        assert stager.look(set(), self.prefix) == {}

    def test_a_search_finds_the_rule_on_a_container(self):
        if reason := self.cannot.get("containers"):
            pytest.skip(reason)
        stager, did = self.open_stager(), self.add_dataset("L1")
        self.add_rule_by_container(did, CAM)
        assert [(rule.did, rule.site) for rule in stager.find_rules({did}, {CAM, RAL})] == [(did, CAM)]

    def test_a_search_omits_a_request_that_has_ended(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        self.ask_one(stager, self.order("1", did))
        self.let_time_pass(did, LIFETIME.total_seconds() + 60)
        assert list(stager.find_rules({did}, {CAM})) == []

    # -- sizes, space, permissions

    def test_sizes_are_known_for_known_datasets_only(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        sizes = stager.measure({did, self.name_unknown_dataset(did)})
        assert set(sizes) == {did}
        assert sizes[did].bytes == FILES * FILE_BYTES
        assert sizes[did].files in {FILES, None}

    def test_the_space_of_an_unknown_site_is_unknown(self):
        assert self.open_stager().read_space({Site("NOWHERE")}) == {}
        assert self.open_stager().read_space(set()) == {}

    def test_a_probe_of_permissions_makes_no_request(self):
        stager = self.open_stager()
        before = self.requests_of(stager)
        permissions = stager.probe_permissions()
        assert permissions.can_ask in {True, None}
        assert all(note and "\n" not in note for note in permissions.notes)
        assert self.requests_of(stager) == before

    # -- failures

    def test_a_failing_catalogue_never_means_that_there_is_nothing(self):
        did = self.add_dataset("L1")
        stager = self.make_failing_stager()
        self._open_stagers.append(stager)
        for call in (
            lambda: stager.look({f"{self.prefix}:1"}, self.prefix),
            lambda: stager.find_rules({did}, {CAM}),
            lambda: stager.measure({did}),
        ):
            with pytest.raises(CatalogueError):
                call()

    def test_an_order_that_cannot_be_sent_has_no_effect(self):
        did = self.add_dataset("L1")
        stager = self.make_failing_stager()
        self._open_stagers.append(stager)
        result: object
        try:
            result = stager.ask([self.order("1", did)])[f"{self.prefix}:1"]
        except StagingError as error:
            result = error
        assert isinstance(result, StagingUnavailable)
        assert self.open_stager().look({f"{self.prefix}:1"}, self.prefix) == {}
