"""Staging with a real Rucio: its own daemons, run in steps, carry out, delete and reap the rules of ours."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.rucio.staging.destinations import RuleOptions
from adapters.rucio.staging.stager import RucioStager
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, ReplicaState, Site
from hydrator.domain.staging_ports import (
    OwnRequest,
    RefusalKind,
    RequestState,
    StagingKind,
    StagingOutcomeUnknown,
    StagingRefused,
    StagingUnavailable,
)
from testbed.faults import (
    FAULTS,
    Fault,
    FaultProxy,
    cut_short,
    garbage,
    hold_until_healed,
    never,
    reset,
    status,
)
from testbed.patience import PATIENCE, wait_for
from tests.contracts.stager import CAM, LIFETIME, RAL, make_order
from tests.contracts.test_rucio_stager import STORAGES, add_other_account
from tests.rucio_contract import RucioTests, seeded, utc_now

__all__ = ["seeded"]
pytestmark = pytest.mark.rucio

OTHER_PASSWORD = "a-word-of-the-other"
DISK = "CAM-DISK"


class StagingTests(RucioTests):
    """Tests with datasets of 4 files at ORIGIN, and helpers for requests."""

    @pytest.fixture(autouse=True)
    def _others(self, _scope):
        self.other = add_other_account(self.server)
        self._opened: list[RucioStager] = []
        yield
        for stager in self._opened:
            stager.close()

    def open_stager(self, url: str = "", options: RuleOptions | None = None, **settings) -> RucioStager:
        known = replace(self.settings, url=url or self.settings.url, **settings)
        self._opened.append(RucioStager(known, options or RuleOptions(storages=STORAGES), utc_now))
        return self._opened[-1]

    def open_stager_of_other(self, url: str = "") -> RucioStager:
        login = {"account": self.other, "username": self.other, "password": OTHER_PASSWORD}
        return self.open_stager(url, token_dir=self.settings.token_dir / "other", **login)

    def add(self, name: str = "L1", at: str = "ORIGIN", files: int = 4) -> Did:
        did = Did(f"{self.scope}:{name}")
        self.server.seed(("add_dataset", {"did": did, "rse": at, "files": files}), ("close", {"did": did}))
        return did

    def order(self, did: Did, tag: str = "1", site: Site = CAM, **changes):
        return make_order(f"hydrator:{self.scope}:{tag}", did, site, **changes)

    def pin(self, did: Did, tag: str = "p"):
        return self.order(did, tag, kind=StagingKind.PIN, storage=DISK)

    def ask(self, stager: RucioStager, order) -> OwnRequest:
        result = stager.ask([order])[order.tag]
        assert isinstance(result, OwnRequest), result
        return result

    def refuse(self, stager: RucioStager, order) -> StagingRefused:
        result = stager.ask([order])[order.tag]
        assert isinstance(result, StagingRefused), result
        assert "\n" not in str(result)
        return result

    def state_of(self, stager: RucioStager, request: OwnRequest) -> RequestState | None:
        progress = stager.look({request.tag}, request.tag).get(request.tag)
        return progress.state if progress else None

    def rules_on(self, did: Did) -> list[dict]:
        return self.server.do("rules_on", did=did)

    def files_at(self, did: Did, rse: str = DISK) -> int:
        return self.server.do("files_at", did=did, rse=rse)

    def run_clean_up(self) -> None:
        """Let Rucio delete the rules that have ended, and the files that no rule keeps."""
        self.server.seed(("clean", {}), ("reap", {"rse": DISK}), ("abacus", {}))


class TestRulesOfOurs(StagingTests):
    def test_a_rule_moves_the_data(self):
        stager, did = self.open_stager(), self.add()
        request = self.ask(stager, self.order(did))
        assert self.state_of(stager, request) is RequestState.MOVING
        self.server.seed(("convey", {"rse": DISK, "most": 1000}))
        assert self.state_of(stager, request) is RequestState.DONE
        assert self.files_at(did) == 4
        with closing(self.catalogue()) as catalogue:
            [replica] = [each for each in catalogue.read({did}).readings[did].replicas if each.site == CAM]
        assert replica.state is ReplicaState.COMPLETE
        assert replica.provenance.rule == request.handle

    def test_a_rule_of_ours_is_modest(self):
        did = self.add()
        self.ask(self.open_stager(), self.order(did))
        [rule] = self.rules_on(did)
        assert (rule["rse"], rule["activity"], rule["notification"]) == (DISK, "Staging", "PROGRESS")
        assert rule["copies"] == 1
        assert not rule["locked"]
        assert not rule["purge"]
        assert rule["sources"] is None
        assert rule["comment"] == f"classad-hydrator stage for jobs at CAM [hydrator:{self.scope}:1]"

    def test_data_on_tape_is_recalled_from_the_tape_of_its_own_site(self):
        stager, did = self.open_stager(), self.add(at="CAM-TAPE")
        self.server.do("replicate", did=did, rse="CAM-TAPE")
        self.ask(stager, self.order(did, source=CAM))
        [rule] = [rule for rule in self.rules_on(did) if rule["rse"] != "CAM-TAPE"]
        assert (rule["rse"], rule["sources"]) == (DISK, "rse_type=DISK|CAM-TAPE")
        self.server.seed(("convey", {"rse": DISK}), ("abacus", {}))
        assert self.files_at(did) == 4

    def test_a_dataset_whose_source_is_gone_fails_for_good(self):
        stager, did = self.open_stager(), self.add()
        self.server.do("go_bad", did=did, rse="ORIGIN", files=4, state="BAD")
        request = self.ask(stager, self.order(did))
        self.server.seed(("convey", {"rse": DISK}))
        progress = stager.look({request.tag}, request.tag)[request.tag]
        assert progress.state is RequestState.FAILED, progress
        assert "no storage has the missing files" in progress.reason

    def test_a_cancelled_rule_stops_its_transfers_but_not_those_of_others(self):
        stager, did, shared = self.open_stager(), self.add("L1"), self.add("L2")
        self.server.do("replicate", did=shared, rse=DISK, account=self.other)
        requests = [self.ask(stager, self.order(each, str(n))) for n, each in enumerate((did, shared))]
        assert self.server.do("count_requests", rse=DISK) >= 8
        before = self.server.do("count_requests", rse=DISK)
        for request in requests:
            stager.cancel(request)
            assert self.state_of(stager, request) in {RequestState.MOVING, None}
        for each in (did, shared):
            self.server.do("pass_time", did=each, seconds=10)
        assert stager.look({each.tag for each in requests}, f"hydrator:{self.scope}") == {}
        self.server.do("clean")
        assert self.rules_on(did) == []
        assert [rule["account"] for rule in self.rules_on(shared)] == [self.other]
        assert [rule["state"] for rule in self.rules_on(shared)] in (["REPLICATING"], [])
        assert self.server.do("count_requests", rse=DISK) == before - 4

    def test_the_progress_of_all_requests_costs_one_call(self):
        with FaultProxy(self.server.url) as proxy:
            slow = RuleOptions(storages=STORAGES, call_limit=timedelta(minutes=5))
            stager = self.open_stager(proxy.url, slow)
            orders = [self.order(self.add(f"L{number}"), str(number)) for number in range(5)]
            stager.ask(orders)
            assert len([path for path in proxy.asked if path == "/rules/"]) == 5
            proxy.asked.clear()
            found = stager.look({order.tag for order in orders}, f"hydrator:{self.scope}")
            assert len(found) == 5
            assert len(proxy.asked) == 1
            stager.renew(found[orders[0].tag].request, LIFETIME)
            assert len(proxy.asked) == 2


class TestPins(StagingTests):
    def held_by_other(self, name: str = "L1") -> Did:
        """Return a dataset at CAM that the rule of another account keeps."""
        did = self.add(name)
        self.server.seed(
            ("place", {"did": did, "rse": DISK}),
            ("replicate", {"did": did, "rse": DISK, "account": self.other, "lifetime": 3600}),
        )
        return did

    def test_a_pin_moves_nothing_and_keeps_the_data_until_it_ends(self):
        stager, pinned, unpinned = self.open_stager(), self.held_by_other("L1"), self.held_by_other("L2")
        before = self.server.do("count_requests", rse=DISK)
        request = self.ask(stager, self.pin(pinned))
        assert self.state_of(stager, request) is RequestState.DONE
        assert self.server.do("count_requests", rse=DISK) == before
        self.server.do("pass_time", did=unpinned, seconds=7200)
        for rule in self.rules_on(pinned):
            if rule["account"] == self.other:
                self.server.do("end_rule", rule=rule["id"])
        self.run_clean_up()
        assert (self.files_at(unpinned), self.files_at(pinned)) == (0, 4)
        stager.cancel(request)
        self.server.do("pass_time", did=pinned, seconds=10)
        self.run_clean_up()
        assert self.files_at(pinned) == 0

    def test_data_without_a_rule_is_pinned_before_rucio_deletes_it(self):
        stager, did = self.open_stager(), self.held_by_other()
        self.server.do("end_rules", did=did, rse=DISK)
        self.ask(stager, self.pin(did))
        self.run_clean_up()
        assert self.files_at(did) == 4

    def test_a_pin_of_data_that_has_left_moves_nothing_and_fails(self):
        stager, did = self.open_stager(), self.held_by_other()
        self.server.do("remove", did=did, rse=DISK)
        before = self.server.do("count_requests", rse=DISK)
        request = self.ask(stager, self.pin(did))
        assert self.state_of(stager, request) is RequestState.FAILED
        assert self.server.do("count_requests", rse=DISK) == before

    @pytest.mark.parametrize("kind", list(StagingKind))
    def test_files_that_never_had_a_rule_get_none(self, kind):
        stager, did = self.open_stager(), self.add()
        self.server.do("place", did=did, rse=DISK, files=2)
        error = self.refuse(stager, self.order(did, kind=kind, storage=DISK))
        assert "without any rule" in error.reason
        assert self.rules_on(did) == []
        self.run_clean_up()
        assert self.files_at(did) == 2

    def test_a_closed_storage_still_takes_a_pin(self):
        stager, did = self.open_stager(), self.add()
        self.server.seed(
            ("set_rse", {"rse": "CAM-FULL", "availability_write": True}),
            ("place", {"did": did, "rse": "CAM-FULL"}),
            ("replicate", {"did": did, "rse": "CAM-FULL", "account": self.other}),
            ("set_rse", {"rse": "CAM-FULL", "availability_write": False}),
        )
        request = self.ask(stager, self.order(did, kind=StagingKind.PIN, storage="CAM-FULL"))
        assert self.state_of(stager, request) is RequestState.DONE


RULES_OF_OTHERS = {
    "moving": ({}, RequestState.MOVING),
    "spread over files": ({"grouping": "NONE"}, RequestState.MOVING),
    "taken up later": ({"asynchronous": True}, RequestState.QUEUED),
    "waiting for approval": ({"ask_approval": True}, RequestState.UNAPPROVED),
}


class TestRulesOfOthers(StagingTests):
    @pytest.mark.parametrize("how", RULES_OF_OTHERS)
    def test_a_rule_of_another_account_is_found(self, how):
        stager, did = self.open_stager(), self.add()
        more, state = RULES_OF_OTHERS[how]
        self.server.do("replicate", did=did, rse=DISK, account=self.other, **more)
        [rule] = stager.find_rules({did}, {CAM})
        assert (rule.account, rule.state, rule.storage, rule.tag) == (self.other, state, DISK, "")
        assert rule.expires_at is None
        assert stager.find_rules({did}, {RAL}) == []

    def test_a_rule_with_an_expression_is_found_where_it_brings_the_data(self):
        stager, did = self.open_stager(), self.add()
        several = "CAM-DISK|CAM-DISK2"
        self.server.do("replicate", did=did, rse=several, account=self.other, lifetime=3600)
        assert {rule.site for rule in stager.find_rules({did}, {CAM, RAL})} == {CAM}

    def test_a_suspended_rule_is_found_as_suspended(self):
        stager, did = self.open_stager(), self.add()
        self.server.seed(
            ("replicate", {"did": did, "rse": DISK, "account": self.other}),
            ("suspend", {"did": did, "rse": DISK}),
        )
        [rule] = stager.find_rules({did}, {CAM})
        assert rule.state is RequestState.SUSPENDED

    def test_a_rule_on_a_container_of_a_container_is_found(self):
        stager, did = self.open_stager(), self.add()
        inner, outer = Did(f"{self.scope}:inner"), Did(f"{self.scope}:outer")
        self.server.seed(
            ("add_container", {"did": inner, "children": [did]}),
            ("add_container", {"did": outer, "children": [inner]}),
            ("replicate", {"did": outer, "rse": DISK, "account": self.other, "ask_approval": True}),
        )
        assert [rule.did for rule in stager.find_rules({did}, {CAM})] == [did]
        assert [rule.did for rule in stager.find_rules({inner}, {CAM})] == [inner]

    def test_our_rules_and_those_of_others_are_untouched_by_forged_requests(self):
        stager, did = self.open_stager(), self.add()
        self.server.seed(
            ("replicate", {"did": did, "rse": DISK, "account": self.other, "lifetime": 3600}),
            ("replicate", {"did": did, "rse": "RAL-DISK", "lifetime": 3600}),  # ours, by hand: no tag
        )
        before = {rule.handle: rule.expires_at for rule in stager.find_rules({did}, {CAM, RAL})}
        assert len(before) == 2
        for handle in before:
            forged = OwnRequest("hydrator:x:1", handle, StagingKind.STAGE, CAM, did)
            for call in (stager.cancel, lambda each: stager.renew(each, LIFETIME)):
                with pytest.raises(StagingRefused) as raised:
                    call(forged)
                assert raised.value.kind is RefusalKind.NOT_OURS
        error = self.refuse(stager, self.order(did, site=RAL))
        assert error.kind is RefusalKind.NOT_OURS
        assert {rule.handle: rule.expires_at for rule in stager.find_rules({did}, {CAM, RAL})} == before


LOST_ANSWERS = {
    "no answer": Fault("", deliver=never, only="/rules/"),
    "a reset": Fault("", deliver=reset, only="/rules/"),
    "half an answer": Fault("", deliver=cut_short, only="/rules/"),
    "garbage": Fault("", garbage, only="/rules/"),
    "500": Fault("", status(500), only="/rules/"),
    "502": Fault("", status(502), only="/rules/"),
    "503": Fault("", status(503, Retry_After="1"), only="/rules/"),
    "a redirect": Fault("", status(302, Location="/elsewhere"), only="/rules/"),
}
KILL_MOMENTS = {"before delivery": None, "after delivery": 0.1}
"""Seconds after the call was delivered at which the daemon is killed; None: before it is delivered."""
ASK_AND_HANG = """
import sys
from datetime import timedelta
from pathlib import Path
from adapters.rucio.catalogue import RucioSettings
from adapters.rucio.staging.destinations import RuleOptions
from adapters.rucio.staging.stager import RucioStager
from tests.contracts.stager import make_order
from tests.rucio_contract import utc_now

url, account, username, password, folder, tag, did = sys.argv[1:]
settings = RucioSettings("rucio", url, account, Path(folder), username=username, password=password)
options = RuleOptions(storages={"CAM": "CAM-DISK"}, call_limit=timedelta(seconds=300))
RucioStager(settings, options, utc_now).ask([make_order(tag, did)])
"""


class TestLostAnswers(StagingTests):
    @pytest.mark.parametrize("fault", LOST_ANSWERS)
    def test_a_lost_answer_leaves_one_rule_that_its_tag_finds(self, fault):
        did = self.add()
        order = self.order(did)
        with FaultProxy(self.server.url) as proxy:
            limit = RuleOptions(storages=STORAGES, call_limit=timedelta(seconds=3 * PATIENCE))
            stager = self.open_stager(proxy.url, limit)
            stager.look(set(), order.tag)  # logged in
            stager.find_rules({did}, {CAM})  # knows the sites
            proxy.fault = replace(LOST_ANSWERS[fault], only=r"/rules/$")
            proxy.asked.clear()
            result = stager.ask([order])[order.tag]
            assert isinstance(result, StagingOutcomeUnknown), result
            assert len([path for path in proxy.asked if path == "/rules/"]) == 1
            proxy.fault = None
            found = stager.look({order.tag}, order.tag)[order.tag].request
        assert self.ask(self.open_stager(), order) == found
        assert len(self.rules_on(did)) == 1

    def test_the_orders_after_a_lost_answer_are_not_sent(self):
        dids = [self.add(f"L{number}") for number in range(3)]
        orders = [self.order(did, str(number)) for number, did in enumerate(dids)]
        with FaultProxy(self.server.url) as proxy:
            stager = self.open_stager(proxy.url)
            proxy.fault = Fault("", deliver=reset, only="/rules/$")
            results = list(stager.ask(orders).values())
        assert [type(each) for each in results] == [
            StagingOutcomeUnknown, StagingUnavailable, StagingUnavailable
        ]  # fmt: skip
        assert [len(self.rules_on(did)) for did in dids] == [1, 0, 0]

    @pytest.mark.parametrize("call", ["renew", "cancel"])
    def test_a_lost_answer_to_a_change_may_be_repeated(self, call):
        did = self.add()
        with FaultProxy(self.server.url) as proxy:
            stager = self.open_stager(proxy.url)
            request = self.ask(stager, self.order(did))
            change = {
                "renew": lambda: stager.renew(request, 2 * LIFETIME),
                "cancel": lambda: stager.cancel(request),
            }
            stager.look(set(), request.tag)
            is_change = r"/rules/\w+$"
            proxy.fault = Fault("", deliver=reset, only=is_change, after=1 if call == "cancel" else 0)
            with pytest.raises(StagingOutcomeUnknown):
                change[call]()
            proxy.fault = None
            change[call]()
            [rule] = stager.look(set(), request.tag).values() or [None]
            assert rule.expires_at
            left = rule.expires_at - utc_now()
            assert left > 1.9 * LIFETIME if call == "renew" else left < timedelta(seconds=10)

    @pytest.mark.parametrize("moment", KILL_MOMENTS)
    def test_a_killed_daemon_finds_its_request_by_the_tag(self, moment):
        did = self.add()
        order = self.order(did)
        with FaultProxy(self.server.url) as proxy:
            is_held = KILL_MOMENTS[moment] is None
            proxy.fault = Fault(
                "", deliver=never, hold=hold_until_healed if is_held else None, only=r"/rules/$"
            )
            login = (self.server.account, self.server.username, self.server.password)
            words = [sys.executable, "-c", ASK_AND_HANG, proxy.url, *login, str(self.settings.token_dir)]
            daemon = subprocess.Popen([*words, order.tag, did], cwd=Path(__file__).parents[2])
            try:
                wait_for(lambda: "/rules/" in proxy.asked, 60, "the call of the daemon")
                proxy.over.wait(KILL_MOMENTS[moment] or 0)
            finally:
                daemon.send_signal(signal.SIGKILL)
                daemon.wait()
            stager = self.open_stager()
            if is_held:
                assert stager.look({order.tag}, order.tag) == {}
            proxy.fault = None  # a call that was held takes effect now, after the end of its daemon
            wait_for(lambda: self.rules_on(did), 60, "the rule of the daemon")
        progress = stager.look({order.tag}, order.tag)[order.tag]
        assert self.ask(stager, order) == progress.request
        assert len(self.rules_on(did)) == 1
        assert progress.expires_at
        assert progress.expires_at - utc_now() <= LIFETIME

    def test_fifty_asks_at_once_with_one_tag_make_one_rule(self):
        did = self.add()
        order = self.order(did)
        slow = RuleOptions(storages=STORAGES, call_limit=timedelta(minutes=5))
        folders = [self.settings.token_dir / str(number) for number in range(10)]
        stagers = [self.open_stager(options=slow, token_dir=folder) for folder in folders]
        with ThreadPoolExecutor(50) as threads:
            results = list(threads.map(lambda number: stagers[number % 10].ask([order]), range(50)))
        assert len(self.rules_on(did)) == 1
        made = {each[order.tag].handle for each in results if isinstance(each[order.tag], OwnRequest)}
        assert made == {self.rules_on(did)[0]["id"]}


class TestFaultyReads(StagingTests):
    def test_an_empty_answer_is_not_believed_after_a_restart(self):
        did = self.add()
        order = self.order(did)
        self.ask(self.open_stager_of_other(), order)
        login = {"account": self.other, "username": self.other, "password": OTHER_PASSWORD}
        with FaultProxy(self.server.url) as proxy:
            stager = self.open_stager(proxy.url, **login)
            stager.measure({did})  # logged in
            proxy.fault = FAULTS["empty 200"]
            with pytest.raises(CatalogueError):
                stager.look({order.tag}, order.tag)


class TestRefusals(StagingTests):
    def test_an_unknown_activity_stops_after_one_order(self):
        dids = [self.add(f"L{number}") for number in range(3)]
        with FaultProxy(self.server.url) as proxy:
            stager = self.open_stager(proxy.url, RuleOptions("Carousel", STORAGES))
            results = stager.ask([self.order(did, str(number)) for number, did in enumerate(dids)])
            assert len([path for path in proxy.asked if path == "/rules/"]) == 1
        assert {each.kind for each in results.values()} == {RefusalKind.ACTIVITY}
        assert {each.reason.partition(";")[0] for each in results.values()} == {
            "Rucio does not have the activity 'Carousel'"
        }

    def test_an_account_without_quota_is_told_where(self):
        stager, did = self.open_stager_of_other(), self.add()
        error = self.refuse(stager, self.order(did, storage="CAM-DISK2"))
        assert error.kind is RefusalKind.QUOTA
        assert "account other has no quota left at CAM-DISK2" in error.reason

    def test_a_closed_storage_takes_nothing(self):
        error = self.refuse(self.open_stager(), self.order(self.add(), storage="CAM-FULL"))
        assert error.kind is RefusalKind.CLOSED
        assert "CAM-FULL takes no data now" in error.reason

    @pytest.mark.parametrize(
        ("storage", "words"),
        [
            ("NOWHERE", "does not have the storage element NOWHERE"),
            ("RAL-DISK", "RAL-DISK is not at the site CAM"),
            ("CAM-TAPE", "CAM-TAPE is not a disk"),
            ("CAM-STAGING", "CAM-STAGING is not a disk"),
            ("CAM-DOWN", "jobs cannot read the storage element CAM-DOWN"),
        ],
    )
    def test_a_storage_that_cannot_be_a_destination_is_refused_before_any_write(self, storage, words):
        did = self.add()
        error = self.refuse(self.open_stager(), self.order(did, storage=storage))
        assert error.kind is RefusalKind.CLOSED
        assert words in error.reason
        assert self.rules_on(did) == []

    def test_a_site_with_two_disks_needs_a_choice(self):
        stager, did = self.open_stager(options=RuleOptions()), self.add()
        assert "the site CAM has 2 disks" in self.refuse(stager, self.order(did)).reason
        nowhere = self.order(did, site=Site("NOWHERE"))
        assert "no disk at the site NOWHERE" in self.refuse(stager, nowhere).reason
        assert stager.read_space({CAM}) == {}

    def test_a_wrong_password_is_a_missing_permission(self):
        stager, did = self.open_stager(password="a-wrong-word"), self.add()
        with pytest.raises(StagingRefused) as raised:
            stager.ask([self.order(did)])
        assert raised.value.kind is RefusalKind.PERMISSION
        assert "a-wrong-word" not in str(raised.value)

    def test_an_account_without_rights_may_neither_renew_nor_cancel(self):
        stager, did = self.open_stager_of_other(), self.add()
        request = self.ask(stager, self.order(did))
        for call in (stager.cancel, lambda each: stager.renew(each, LIFETIME)):
            with pytest.raises(StagingRefused) as raised:
                call(request)
            assert raised.value.kind is RefusalKind.PERMISSION
            assert "account other may not" in raised.value.reason
        permissions = stager.probe_permissions()
        assert (permissions.can_ask, permissions.can_renew, permissions.can_cancel) == (True, False, False)
        assert len(permissions.notes) == 2

    def test_a_probe_reports_an_unknown_activity_and_full_permissions(self):
        assert self.open_stager().probe_permissions().notes == ()
        permissions = self.open_stager(options=RuleOptions("Carousel", STORAGES)).probe_permissions()
        assert permissions.can_ask is False
        assert "activity 'Carousel'" in permissions.notes[0]


class TestCapacity(StagingTests):
    def test_only_closed_datasets_have_a_size(self):
        stager, closed = self.open_stager(), self.add("L1")
        still_open, empty = Did(f"{self.scope}:open"), self.add("empty", files=0)
        self.server.seed(("add_dataset", {"did": still_open, "rse": "ORIGIN"}))
        assert set(stager.measure({closed, still_open, empty, Did(f"{self.scope}:none")})) == {closed}

    def test_a_closed_container_of_closed_datasets_has_the_sum_of_their_sizes(self):
        stager, parts, both = self.open_stager(), [self.add("L1"), self.add("L2")], Did(f"{self.scope}:both")
        self.server.do("add_container", did=both, children=parts)
        assert stager.measure({both}) == {}
        self.server.do("close", did=both)
        [size] = stager.measure({both}).values()
        assert (size.bytes, size.files) == (8_000_000_000, 8)

    def test_free_space_is_what_the_storage_reported_less_the_reserve(self):
        self.server.seed(
            ("report_space", {"rse": "RAL-DISK2", "free": 10**13, "used": 10**13}),
            ("set_rse_limit", {"rse": "RAL-DISK2", "name": "MinFreeSpace", "value": 10**12}),
        )
        second = RuleOptions(storages={"CAM": "CAM-DISK2", "RAL": "RAL-DISK2"})
        spaces = self.open_stager(options=second).read_space({CAM, RAL})
        assert set(spaces) == {RAL}
        assert (spaces[RAL].free_bytes, spaces[RAL].total_bytes) == (9 * 10**12, 2 * 10**13)
        assert utc_now() - spaces[RAL].as_of < timedelta(hours=1)

    def test_the_space_of_the_operator_counts_where_rucio_knows_none(self):
        given = {CAM: 10**10, RAL: 10**10}
        options = RuleOptions(storages={"CAM": "CAM-DISK2", "RAL": "RAL-DISK"}, spaces=given)
        self.server.do("report_space", rse="RAL-DISK", free=10**13)
        stager, did = self.open_stager(options=options), self.add()
        assert stager.read_space({CAM, RAL})[CAM].free_bytes == 10**10
        assert stager.read_space({CAM, RAL})[RAL].free_bytes == 10**13
        self.ask(stager, self.order(did))
        self.server.do("transferred", did=did, rse="CAM-DISK2")
        assert stager.read_space({CAM})[CAM].free_bytes == 10**10 - 4 * 10**9
