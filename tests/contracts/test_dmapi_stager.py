"""Stager contract for DMAPI, on a stand-in of DMAPI, Site Capabilities and IAM (testbed.dmapi_standin).

Inferred: the path of the stage call, its answer and its refusals. Recorded: the names of its parameters.
"""

from datetime import timedelta
from types import MappingProxyType

import pytest

from adapters.http.client import JsonClient
from adapters.http.oauth import ClientCredentials, ClientSettings
from adapters.ska.dmapi_stager import DmapiStager, StageOptions
from adapters.ska.site_capabilities import SiteCapabilities
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did
from hydrator.domain.ports.staging import (
    RefusalKind,
    RequestState,
    StagingKind,
    StagingOutcomeUnknown,
    StagingRefused,
    StagingUnavailable,
)
from testbed.dmapi_standin import CLIENT, DM_AUDIENCE, SC_AUDIENCE, SECRET, DmapiStandIn
from tests.contracts.stager import CAM, FILE_BYTES, FILES, RAL, StagerContract
from tests.contracts.test_dmapi_catalogue import FAST, standin_server
from tests.factories import NOON

pytestmark = pytest.mark.outside

__all__ = ["standin_server"]


class TestDmapiStagerOnTheStandIn(StagerContract):
    cannot = MappingProxyType(
        {
            "renew": "no call of DMAPI is known that renews a stage request",
            "cancel": "no call of DMAPI is known that cancels a stage request",
            "find": "no call of DMAPI is known that lists the requests of others",
        }
    )

    @pytest.fixture(autouse=True)
    def _start(self, standin_server, tmp_path):
        fresh = DmapiStandIn()
        names = ("habits", "held", "namespaces", "nodes", "sites", "storages", "areas", "services", "staged")
        for name in names:
            setattr(standin_server, name, getattr(fresh, name))
        self.standin, self.folder, self.passed = standin_server, tmp_path, timedelta()
        self.areas = {site: self.standin.add_area(site, f"{site}-DISK") for site in (CAM, RAL)}

    def now(self):
        return NOON + self.passed

    def build(self, url: str, **changes) -> DmapiStager:
        secret = self.folder / "secret"
        secret.write_text(SECRET)

        def server(address, audience):
            login = ClientSettings(self.standin.token_url, CLIENT, secret, audience, "openid")
            tokens = ClientCredentials("dmapi", login, self.now, limits=FAST)
            return JsonClient("dmapi", address, token_source=tokens, limits=FAST)

        options = StageOptions("/data/stage", self.folder / "journal.json", **changes)
        capabilities = SiteCapabilities(server(self.standin.capabilities_url, SC_AUDIENCE))
        return DmapiStager("dmapi", server(url, DM_AUDIENCE), options, self.now, capabilities=capabilities)

    def make_stager(self):
        return self.build(self.standin.url)

    def make_failing_stager(self):
        return self.build("http://127.0.0.1:1/dm/api/v1")

    def add_dataset(self, name):
        did = Did(f"testing:{name}")
        self.standin.put(did, FILES, {"ORIGIN": FILES})
        self.standin.held[did].bytes_each = FILE_BYTES
        return did

    def let_data_arrive(self, did):
        self.standin.arrive(did)

    def let_time_pass(self, did, seconds):
        self.passed += timedelta(seconds=seconds)

    def test_the_recorded_parameters_are_sent(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        request = self.ask_one(stager, self.order("1", did))
        assert self.standin.staged == {
            request.handle: {"area": self.areas[CAM], "dids": [did], "lifetime": 3 * 86_400}
        }

    def test_the_progress_is_the_share_of_files_at_the_storage_area(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        request = self.ask_one(stager, self.order("1", did))
        self.standin.held[did].at["CAM-DISK"] = 1
        self.standin.held[did].at["RAL-DISK"] = FILES
        progress = self.look_at(stager, request)
        assert progress
        assert (progress.state, progress.files_done, progress.files_total) == (RequestState.MOVING, 1, FILES)

    def test_a_request_whose_answer_was_lost_is_not_sent_again(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        order = self.order("1", did)
        self.standin.habits.loses_answers = True
        assert isinstance(stager.ask([order])[order.tag], StagingOutcomeUnknown)
        self.standin.habits.loses_answers = False
        found = self.open_stager().look({order.tag}, order.tag)[order.tag]
        assert "did not answer" in found.reason
        assert self.ask_one(self.open_stager(), order) == found.request
        assert len(self.standin.staged) == 1
        self.let_data_arrive(did)
        assert stager.look({order.tag}, "x")[order.tag].state is RequestState.DONE
        self.let_time_pass(did, 4 * 86_400)
        assert stager.look({order.tag}, order.tag) == {}

    def test_a_denied_namespace_stops_all_orders(self):
        stager, dids = self.open_stager(), [self.add_dataset("L1"), self.add_dataset("L2")]
        self.standin.habits.denied = {"testing"}
        results = stager.ask([self.order(str(number), did) for number, did in enumerate(dids)]).values()
        assert {each.kind for each in results if isinstance(each, StagingRefused)} == {RefusalKind.PERMISSION}
        assert self.standin.staged == {}

    @pytest.mark.parametrize("status", [404, 409, 422])
    def test_a_refused_call_is_one_sentence_and_leaves_nothing(self, status):
        stager, did = self.open_stager(), self.add_dataset("L1")
        order = self.order("1", did)
        self.standin.habits.stage_status = status
        result = stager.ask([order])[order.tag]
        assert isinstance(result, StagingRefused)
        assert "\n" not in str(result)
        assert stager.look({order.tag}, order.tag) == {}

    def test_a_busy_server_did_not_take_the_request(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        self.standin.habits.status = 503
        order = self.order("1", did)
        assert isinstance(stager.ask([order])[order.tag], StagingUnavailable)
        self.standin.habits.status = None
        assert stager.look({order.tag}, order.tag) == {}

    def test_a_site_with_two_areas_needs_a_choice(self):
        second = self.standin.add_area(CAM, "CAM-DISK2")
        stager, did = self.open_stager(), self.add_dataset("L1")
        refused = stager.ask([self.order("1", did)])[self.order("1", did).tag]
        assert isinstance(refused, StagingRefused)
        assert "has 2 open storage areas" in refused.reason
        for number, wanted in enumerate((second, "CAM-DISK")):
            self.ask_one(stager, self.order(str(number), did, storage=wanted))
        assert [job["area"] for job in self.standin.staged.values()] == [second, self.areas[CAM]]

    def test_only_the_space_that_the_operator_gave_is_known(self):
        stager, did = self.build(self.standin.url, spaces={CAM: 10**10}), self.add_dataset("L1")
        assert stager.read_space({CAM, RAL})[CAM].free_bytes == 10**10
        assert RAL not in stager.read_space({CAM, RAL})
        self.ask_one(stager, self.order("1", did))
        self.let_data_arrive(did)
        assert stager.read_space({CAM})[CAM].free_bytes == 10**10 - FILES * 10**9
        stager.close()

    def test_nothing_is_known_of_an_unreadable_journal(self):
        stager, did = self.open_stager(), self.add_dataset("L1")
        (self.folder / "journal.json").write_text("[{}]")
        with pytest.raises(CatalogueError):
            stager.look(set(), "")
        assert isinstance(next(iter(stager.ask([self.order("1", did)]).values())), StagingUnavailable)
        assert self.standin.staged == {}

    def test_pins_are_not_among_its_kinds(self):
        assert self.open_stager().kinds == {StagingKind.STAGE}
