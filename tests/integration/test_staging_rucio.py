"""Staging with a real Rucio: its own daemons, run in steps, carry out, delete and reap the rules of ours."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.rucio.staging import RucioStager, RuleOptions, build_comment
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import (
    RefusalKind,
    RequestState,
    StagingFailed,
    StagingKind,
    StagingOrder,
    StagingQuery,
    StagingRefused,
)
from hydrator.wiring import system_clock
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
from testbed.patience import wait_for
from tests.contracts.stager import CAM, LIFETIME, RAL, StagerTests, make_order
from tests.contracts.test_rucio_stager import STORAGES, add_other_account
from tests.factories import MINUTE
from tests.memory import TurnedClock
from tests.rucio_contract import RucioTests, seeded
from tests.staging_world import BOB, TERABYTE, StagingWorld, need, policy

__all__ = ["seeded"]
pytestmark = pytest.mark.rucio

OTHER_PASSWORD = "a-word-of-the-other"
DISK = "CAM-DISK"


class StagingTests(RucioTests, StagerTests):
    """Tests with datasets of 4 files at ORIGIN, and helpers for requests."""

    @pytest.fixture(autouse=True)
    def _others(self, _scope):
        self.other = add_other_account(self.server)

    def make_stager(self, url: str = "", settings: dict | None = None, **options) -> RucioStager:
        known = replace(self.settings, url=url or self.settings.url, **(settings or {}))
        rules = RuleOptions(**({"pool": self.scope, "storages": STORAGES} | options))
        return RucioStager(known, rules, system_clock)

    def login_of_other(self) -> dict:
        login = {"account": self.other, "username": self.other, "password": OTHER_PASSWORD}
        return {"token_dir": self.settings.token_dir / "other", **login}

    def add(self, name: str = "L1", at: str = "ORIGIN", files: int = 4) -> Did:
        did = Did(f"{self.scope}:{name}")
        self.server.seed(("add_dataset", {"did": did, "rse": at, "files": files}), ("close", {"did": did}))
        return did

    def pin(self, did: Did, storage: str = DISK) -> StagingOrder:
        return make_order(did, kind=StagingKind.PIN, storage=storage)

    def refuse(self, stager: RucioStager, order) -> StagingRefused:
        with pytest.raises(StagingRefused) as raised:
            stager.request(order)
        assert "\n" not in str(raised.value)
        return raised.value

    def spaces(self, stager: RucioStager, *sites: Site):
        return stager.list(StagingQuery(spaces=frozenset(sites))).spaces

    def rules_on(self, did: Did) -> list[dict]:
        return self.server.do("rules_on", did=did)

    def files_at(self, did: Did, rse: str = DISK) -> int:
        return self.server.do("files_at", did=did, rse=rse)

    def run_clean_up(self) -> None:
        """Let Rucio delete the rules that have ended, and the files that no rule keeps."""
        self.server.seed(("clean", {}), ("reap", {"rse": DISK}), ("abacus", {}))


class TestRulesOfOurs(StagingTests):
    def test_a_rule_of_ours_is_modest(self):
        did = self.add()
        self.open_stager().request(make_order(did))
        [rule] = self.rules_on(did)
        assert (rule["rse"], rule["activity"], rule["notification"]) == (DISK, "Staging", "NO")
        assert (rule["copies"], rule["locked"], rule["purge"], rule["sources"]) == (1, False, False, None)
        assert rule["comment"].startswith(f"classad-hydrator stage for jobs at CAM [hydrator:{self.scope}:")

    def test_a_dataset_whose_source_is_gone_fails_for_good(self):
        stager, did = self.open_stager(), self.add()
        self.server.do("go_bad", did=did, rse="ORIGIN", files=4, state="BAD")
        rule = stager.request(make_order(did))
        self.server.seed(("convey", {"rse": DISK}))
        found = self.find(stager, rule)
        assert found.state is RequestState.FAILED, found
        assert "no storage has the missing files" in found.reason

    def test_a_cancelled_rule_stops_its_transfers_but_not_those_of_others(self):
        stager, did, shared = self.open_stager(), self.add("L1"), self.add("L2")
        self.server.do("replicate", did=shared, rse=DISK, account=self.other)
        rules = [stager.request(make_order(each)) for each in (did, shared)]
        before = self.server.do("count_requests", rse=DISK)
        assert before >= 8
        for rule in rules:
            stager.cancel(rule)
        for each in (did, shared):
            self.server.do("pass_time", did=each, seconds=10)
        assert all(
            self.find(stager, rule).expires_at < system_clock() for rule in rules
        )  # listed until the clean up
        self.server.do("clean")
        assert [self.find(stager, rule) for rule in rules] == [None, None]
        assert [rule["account"] for rule in self.rules_on(shared)] == [self.other]
        assert self.server.do("count_requests", rse=DISK) == before - 4

    def test_a_locked_rule_stays_listed_after_its_end(self):
        """R12."""
        stager, did = self.open_stager(), self.add()
        rule = stager.request(make_order(did))
        self.server.do("change_rule", rule=rule, locked=True)
        stager.cancel(rule)
        self.server.seed(("pass_time", {"did": did, "seconds": 10}), ("clean", {}))
        found = self.find(stager, rule)
        assert found.expires_at < system_clock()
        assert found.blocked == "it is locked"

    def test_a_deleted_rule_is_renewed_in_place_until_rucio_has_removed_it(self):
        """R18."""
        stager, did = self.open_stager(), self.add()
        rule = stager.request(make_order(did))
        self.server.do("delete_rule", rule=rule)
        assert self.find(stager, rule).expires_at < system_clock() + timedelta(hours=2)
        assert stager.request(make_order(did)) == rule
        self.server.do("pass_time", did=did, seconds=LIFETIME.total_seconds() + 60)
        assert stager.request(make_order(did)) == rule  # it has ended, and blocks a second one
        self.server.do("clean")
        assert self.find(stager, rule)
        self.server.seed(("change_rule", {"rule": rule, "lifetime": -1}), ("clean", {}))
        assert stager.request(make_order(did)) != rule

    def test_a_rule_on_a_file_inside_an_archive_is_followed_by_its_id(self):
        """R18."""
        stager, did = self.open_stager(), Did(f"{self.scope}:inside")
        zipped = self.server.do("archive", did=did, rse="ORIGIN")
        rule = stager.request(make_order(did))
        assert self.find(stager, rule).did == zipped
        assert stager.request(make_order(did)) == rule  # the duplicate is on the archive
        assert len(self.rules_on(zipped)) == 1

    def test_a_rule_with_a_name_of_another_pool_is_not_ours(self):
        did = self.add()
        rule = self.open_stager().request(make_order(did))
        other = self.open_stager(pool=f"{self.scope}-2")
        [found] = self.search(other, did)
        assert (found.id, found.is_ours) == (rule, False)
        assert self.refuse(other, make_order(did)).kind is RefusalKind.NOT_OURS
        with pytest.raises(StagingRefused):
            other.cancel(rule)


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
        pin = stager.request(self.pin(pinned))
        assert self.find(stager, pin).is_whole
        assert self.server.do("count_requests", rse=DISK) == before
        self.server.do("pass_time", did=unpinned, seconds=7200)
        for rule in self.rules_on(pinned):
            if rule["account"] == self.other:
                self.server.do("change_rule", rule=rule["id"], lifetime=-1)
        self.run_clean_up()
        assert (self.files_at(unpinned), self.files_at(pinned)) == (0, 4)
        stager.cancel(pin)
        self.server.do("pass_time", did=pinned, seconds=10)
        self.run_clean_up()
        assert self.files_at(pinned) == 0

    def test_data_whose_rule_has_ended_is_pinned_before_rucio_deletes_it(self):
        stager, did = self.open_stager(), self.held_by_other()
        self.server.do("end_rules", did=did, rse=DISK)
        stager.request(self.pin(did))
        self.run_clean_up()
        assert self.files_at(did) == 4

    def test_a_pin_of_data_that_has_left_moves_nothing_and_fails(self):
        """R16."""
        stager, did = self.open_stager(), self.held_by_other()
        self.server.do("remove", did=did, rse=DISK)
        before = self.server.do("count_requests", rse=DISK)
        pin = stager.request(self.pin(did))
        assert self.find(stager, pin).state is RequestState.FAILED
        assert self.server.do("count_requests", rse=DISK) == before

    @pytest.mark.parametrize("kind", list(StagingKind))
    def test_files_that_never_had_a_rule_get_none(self, kind):
        stager, did = self.open_stager(), self.add()
        self.server.do("place", did=did, rse=DISK, files=2)
        for each in (did, Did(f"{did}.00001")):
            error = self.refuse(stager, make_order(each, kind=kind, storage=DISK))
            assert "without any rule" in error.reason
            assert self.rules_on(each) == []

    def test_a_closed_storage_still_takes_a_pin(self):
        stager, did = self.open_stager(), self.add()
        self.server.seed(
            ("set_rse", {"rse": "CAM-FULL", "availability_write": True}),
            ("place", {"did": did, "rse": "CAM-FULL"}),
            ("replicate", {"did": did, "rse": "CAM-FULL", "account": self.other}),
            ("set_rse", {"rse": "CAM-FULL", "availability_write": False}),
        )
        pin = stager.request(self.pin(did, "CAM-FULL"))
        assert self.find(stager, pin).state is RequestState.DONE


class RucioWorld(StagingWorld):
    """The controller on a real Rucio: its stager, its catalogue, and the time of now."""

    def __init__(self, tests: StagingTests, stager: RucioStager, **settings):
        allowed = {"CAM": {"space_tb": 100}}
        super().__init__(policy(sites=allowed, **settings))
        self.stager, self.catalogue, self.clock = stager, tests.catalogue(), TurnedClock(system_clock())
        self.restart(poll_seconds=1200)

    def _settle(self):
        """Rucio says what is there."""


class TestController(StagingTests):
    """The controller and a real Rucio, step by step; its jobs match CAM only."""

    @pytest.fixture
    def open_world(self):
        opened = []

        def open_world(account=None, **settings):
            opened.append(RucioWorld(self, self.open_stager(settings=account), **settings))
            return opened[-1]

        yield open_world
        for world in opened:
            world.catalogue.close()

    def test_a_policy_that_cuts_lifetimes_is_read_back_and_told(self, open_world):
        """R17."""
        jobs = need(self.add(), sites=[CAM])
        self.server.do("cut_lifetimes", account=self.other, seconds=3600)
        try:
            world = open_world(self.login_of_other())
            world.step_with(jobs)
            assert [one.state for one in world.table.requests] == [None]
            world.step_with(jobs, need(self.add("L2"), sites=[CAM]))
        finally:
            self.server.do("cut_lifetimes", account=self.other, seconds=None)
        [row] = world.overview.requests
        assert "the catalogue gives a rule at CAM" in row.description
        assert "jobs need the data for 6 h" in row.description
        assert any("the catalogue gives a rule at CAM" in reason for reason in world.reasons)
        assert len(world.table.requests) == 1

    def test_a_cleaner_that_has_picked_a_rule_deletes_it_after_its_renewal_and_it_is_asked_again(
        self, open_world
    ):
        """R18."""
        did = self.add()
        world = open_world(max_lifetime_days=60 / 86_400)
        world.step_with(need(did, sites=[CAM]), after=MINUTE)
        [first] = self.rules_on(did)
        self.server.do("pass_time", did=did, seconds=61)
        world.step(11 * MINUTE)
        assert [verb for verb, *_ in world.audit] == ["ask", "renew"]
        self.server.do("end_rules", did=did, rse=DISK)  # the cleaner does not look at the end again
        assert self.rules_on(did) == []
        world.step()
        world.step()
        [second] = self.rules_on(did)
        assert second["id"] != first["id"]

    def test_after_an_approver_denied_the_rule_of_another_account_the_data_is_requested(self, open_world):
        """R18: Rucio deletes it."""
        did, world = self.add(), open_world()
        theirs = self.server.do("replicate", did=did, rse=DISK, account=self.other, ask_approval=True)[0]
        world.step_with(need(did, sites=[CAM]))
        assert [rule["id"] for rule in self.rules_on(did)] == [theirs]
        joined = world.overview.joined[f"{did} at CAM"]
        assert joined.startswith(f"the rule {theirs} of {self.other}, which is waiting for approval")
        self.server.do("deny_rule", rule=theirs)
        world.step()
        [rule] = self.rules_on(did)
        assert rule["comment"].startswith("classad-hydrator stage for jobs at CAM")

    def test_a_rule_of_ours_that_an_approver_denies_is_not_made_again(self, open_world):
        """R18. The daemon lost its table, and finds its rule."""
        did, world = self.add(), open_world()
        words = {"comment": build_comment(make_order(did), self.scope, DISK), "lifetime": 86_400}
        [rule] = self.server.do("replicate", did=did, rse=DISK, ask_approval=True, **words)
        world.step_with(need(did, sites=[CAM]))
        assert [(one.rule, one.state) for one in world.table.requests] == [(rule, RequestState.UNAPPROVED)]
        self.server.do("deny_rule", rule=rule)
        for _ in range(3):
            world.step()
        assert self.rules_on(did) == []
        assert "it was denied, or deleted before its end; not asked again for" in world.reasons[0]

    def test_two_users_wait_for_one_recall_from_the_tape_of_the_site(self, open_world):
        did, world = self.add(at="CAM-TAPE"), open_world()
        self.server.seed(("replicate", {"did": did, "rse": "CAM-TAPE"}), ("abacus", {}))
        world.step_with(need(did, sites=[CAM]))
        world.step_with(need(did, sites=[CAM]), need(did, user=BOB, sites=[CAM]))
        [(disk, sources), _] = sorted((rule["rse"], rule["sources"]) for rule in self.rules_on(did))
        assert (disk, sources) == (DISK, "rse_type=DISK|CAM-TAPE")
        self.server.seed(("convey", {"rse": DISK}), ("abacus", {}))
        [row] = world.step().requests
        assert (row.is_complete, row.job_count) == (True, 2)
        assert world.reasons == ["the data is complete at CAM"] * 2
        assert [verb for verb, *_ in world.audit] == ["ask"]

    def test_what_the_rule_of_another_account_brings_is_joined_and_the_rest_is_asked_for(self, open_world):
        moving, missing, world = self.add("L1"), self.add("L2"), open_world()
        theirs = self.server.do("replicate", did=moving, rse=DISK, account=self.other)[0]
        world.step_with(need(moving, missing, sites=[CAM]))
        assert world.overview.joined == {f"{moving} at CAM": f"the rule {theirs} of {self.other}"}
        self.server.seed(("convey", {"rse": DISK}), ("abacus", {}))
        world.step()
        assert world.reasons == ["the data is complete at CAM"]
        assert [rule["id"] for rule in self.rules_on(moving)] == [theirs]
        assert [rule["rse"] for rule in self.rules_on(missing)] == [DISK]

    def test_a_file_inside_an_archive_arrives_with_its_archive_by_one_rule(self, open_world):
        did, world = Did(f"{self.scope}:inside"), open_world()
        zipped = self.server.do("archive", did=did, rse="ORIGIN")
        world.step_with(need(did, sites=[CAM]))
        for _ in range(3):
            world.step()
        [rule] = self.rules_on(zipped)
        assert [one.rule for one in world.table.requests] == [rule["id"]]
        self.server.seed(("convey", {"rse": DISK}), ("abacus", {}))
        [row] = world.step().requests
        assert row.is_complete
        assert [verb for verb, *_ in world.audit] == ["ask"]

    def test_a_thousand_jobs_of_fifty_users_make_one_rule(self, open_world):
        did, world = self.add(), open_world()
        world.queue(*(need(did, user=f"u{n}@x", jobs=20, sites=[CAM]) for n in range(50)))
        for _ in range(3):
            world.step()
        assert len(self.rules_on(did)) == 1
        assert [(one.job_count, one.bytes) for one in world.table.requests] == [(1000, TERABYTE // 250)]

    def test_a_rule_that_an_admin_deletes_is_not_made_again(self, open_world):
        did, world = self.add(), open_world()
        world.step_with(need(did, sites=[CAM]))
        world.step()
        [rule] = self.rules_on(did)
        self.server.do("delete_rule", rule=rule["id"])
        world.step()
        assert "has shortened its lifetime in the catalogue" in world.overview.requests[0].description
        self.server.seed(("change_rule", {"rule": rule["id"], "lifetime": -1}), ("clean", {}))
        for _ in range(3):
            world.step()
        assert self.rules_on(did) == []
        assert "not asked again" in world.reasons[0]


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
        [rule] = self.search(stager, did)
        assert (rule.account, rule.state, rule.storage) == (self.other, state, DISK)
        assert (rule.is_ours, rule.is_whole, rule.expires_at) == (False, False, None)
        assert self.search(stager, did, RAL) == []

    def test_a_suspended_rule_whose_locks_are_ok_keeps_its_data(self):
        """R13."""
        stager, did = self.open_stager(), self.add()
        self.server.seed(
            ("place", {"did": did, "rse": DISK}),
            ("replicate", {"did": did, "rse": DISK, "account": self.other, "lifetime": 28_800}),
            ("change_rules", {"did": did, "rse": DISK, "state": "SUSPENDED"}),
        )
        [rule] = self.search(stager, did)
        assert (rule.state, rule.is_whole) == (RequestState.SUSPENDED, True)

    def test_a_container_whose_other_dataset_moves_keeps_the_whole_one(self):
        """R13 and R14."""
        stager, whole, moving = self.open_stager(), self.add("L1"), self.add("L2")
        both = Did(f"{self.scope}:both")
        self.server.seed(
            ("place", {"did": whole, "rse": DISK}),
            ("add_container", {"did": both, "children": [whole, moving]}),
            ("replicate", {"did": both, "rse": DISK, "account": self.other}),
        )
        found = {rule.did: rule for did in (whole, moving) for rule in self.search(stager, did)}
        assert {did: rule.is_whole for did, rule in found.items()} == {whole: True, moving: False}
        assert {rule.state for rule in found.values()} == {RequestState.MOVING}

    def test_a_rule_with_an_expression_is_found_where_it_brings_the_data(self):
        stager, did = self.open_stager(), self.add()
        several = "CAM-DISK|CAM-DISK2"
        self.server.do("replicate", did=did, rse=several, account=self.other, lifetime=3600)
        assert {rule.site for rule in self.search(stager, did, CAM, RAL)} == {CAM}

    def test_a_rule_on_a_container_of_a_container_is_found(self):
        stager, did = self.open_stager(), self.add()
        inner, outer = Did(f"{self.scope}:inner"), Did(f"{self.scope}:outer")
        self.server.seed(
            ("add_container", {"did": inner, "children": [did]}),
            ("add_container", {"did": outer, "children": [inner]}),
            ("replicate", {"did": outer, "rse": DISK, "account": self.other, "ask_approval": True}),
        )
        assert [rule.did for rule in self.search(stager, did)] == [did]
        assert [rule.did for rule in self.search(stager, inner)] == [inner]

    def test_rules_of_others_and_those_made_by_hand_are_not_touched(self):
        stager, did = self.open_stager(), self.add()
        self.server.seed(
            ("replicate", {"did": did, "rse": DISK, "account": self.other, "lifetime": 3600}),
            ("replicate", {"did": did, "rse": "RAL-DISK", "lifetime": 3600}),  # ours, by hand: no comment
        )
        before = {rule.id: rule.expires_at for rule in self.search(stager, did, CAM, RAL)}
        assert len(before) == 2
        for rule in before:
            for call in (stager.cancel, lambda each: stager.request(make_order(did, rule=each))):
                with pytest.raises(StagingRefused) as raised:
                    call(rule)
                assert raised.value.kind is RefusalKind.NOT_OURS
        assert self.refuse(stager, make_order(did, RAL)).kind is RefusalKind.NOT_OURS
        assert {rule.id: rule.expires_at for rule in self.search(stager, did, CAM, RAL)} == before


LOST_ANSWERS = {
    "no answer": Fault("", deliver=never, only="/rules/"),
    "half an answer": Fault("", deliver=cut_short, only="/rules/"),
    "garbage": Fault("", garbage, only="/rules/"),
    "502": Fault("", status(502), only="/rules/"),
    "a redirect": Fault("", status(302, Location="/elsewhere"), only="/rules/"),
}
KILL_MOMENTS = {"before delivery": None, "after delivery": 0.1}
"""Seconds after the call was delivered at which the daemon is killed; None: before it is delivered."""
ASK_AND_HANG = """
import sys
from pathlib import Path
from adapters.rucio.catalogue import RucioSettings
from adapters.rucio.staging import RucioStager, RuleOptions
from tests.contracts.stager import make_order
from hydrator.wiring import system_clock

url, account, username, password, folder, pool, did = sys.argv[1:]
settings = RucioSettings("rucio", url, account, Path(folder), username=username, password=password)
options = RuleOptions(pool=pool, storages={"CAM": "CAM-DISK"})
RucioStager(settings, options, system_clock).request(make_order(did))
"""


class TestLostAnswers(StagingTests):
    @pytest.mark.parametrize("fault", LOST_ANSWERS)
    def test_a_lost_answer_is_in_doubt_and_its_repeat_finds_the_one_rule(self, fault):
        did = self.add()
        with FaultProxy(self.server.url) as proxy:
            stager = self.open_stager(url=proxy.url)
            self.search(stager, did)  # logged in, and knows the sites
            proxy.fault = replace(LOST_ANSWERS[fault], only=r"/rules/$")
            proxy.asked.clear()
            with pytest.raises(StagingFailed):
                stager.request(make_order(did))
            assert len([path for path in proxy.asked if path == "/rules/"]) == 1
            proxy.fault = None
            [found] = self.search(stager, did)
        assert found.is_ours
        assert self.open_stager().request(make_order(did)) == found.id
        assert len(self.rules_on(did)) == 1

    @pytest.mark.parametrize("call", ["renew", "cancel"])
    def test_a_lost_answer_to_a_change_may_be_repeated(self, call):
        did = self.add()
        with FaultProxy(self.server.url) as proxy:
            stager = self.open_stager(url=proxy.url)
            rule = stager.request(make_order(did))
            longer = make_order(did, lifetime=2 * LIFETIME, rule=rule)
            change = {"renew": lambda: stager.request(longer), "cancel": lambda: stager.cancel(rule)}
            self.find(stager, rule)
            proxy.fault = Fault("", deliver=reset, only=r"/rules/\w+$")
            with pytest.raises(StagingFailed):
                change[call]()
            proxy.fault = None
            change[call]()
            left = self.find(stager, rule).expires_at - system_clock()
            assert left > 1.9 * LIFETIME if call == "renew" else left < timedelta(seconds=10)

    @pytest.mark.parametrize("moment", KILL_MOMENTS)
    def test_a_killed_daemon_has_one_rule(self, moment):
        did = self.add()
        with FaultProxy(self.server.url) as proxy:
            is_held = KILL_MOMENTS[moment] is None
            proxy.fault = Fault(
                "", deliver=never, hold=hold_until_healed if is_held else None, only=r"/rules/$"
            )
            login = (self.server.account, self.server.username, self.server.password)
            given = (proxy.url, *login, str(self.settings.token_dir), self.scope, did)
            words = [sys.executable, "-c", ASK_AND_HANG, *given]
            daemon = subprocess.Popen(words, cwd=Path(__file__).parents[2])
            try:
                wait_for(lambda: "/rules/" in proxy.asked, "the call of the daemon")
                proxy.over.wait(KILL_MOMENTS[moment] or 0)
            finally:
                daemon.send_signal(signal.SIGKILL)
                daemon.wait()
            stager = self.open_stager()
            if is_held:
                assert self.search(stager, did) == []
            proxy.fault = None  # a call that was held takes effect now, after the end of its daemon
            wait_for(lambda: self.rules_on(did), "the rule of the daemon")
        [found] = self.search(stager, did)
        assert stager.request(make_order(did)) == found.id
        assert len(self.rules_on(did)) == 1

    def test_fifty_requests_at_once_make_one_rule(self):
        did = self.add()
        folders = [self.settings.token_dir / str(number) for number in range(10)]
        slow = {"deadline": timedelta(minutes=5)}
        stagers = [self.open_stager(settings={"token_dir": folder, **slow}) for folder in folders]

        def ask(number):
            try:
                return stagers[number % 10].request(make_order(did))
            except StagingFailed:
                return None

        with ThreadPoolExecutor(50) as threads:
            made = set(threads.map(ask, range(50)))
        [rule] = self.rules_on(did)
        assert made - {None} == {rule["id"]}


class TestFaultyReads(StagingTests):
    def test_an_empty_answer_is_not_the_end_of_a_rule(self):
        did = self.add()
        rule = self.open_stager().request(make_order(did))
        with FaultProxy(self.server.url) as proxy:
            stager = self.open_stager(url=proxy.url)
            assert self.find(stager, rule)
            proxy.fault = FAULTS["empty 200"]
            with pytest.raises(CatalogueError):
                self.find(stager, rule)


class TestRefusals(StagingTests):
    def test_an_unknown_activity_is_named(self):
        error = self.refuse(self.open_stager(activity="Carousel"), make_order(self.add()))
        assert error.kind is RefusalKind.ACTIVITY
        assert error.reason.startswith("Rucio does not have the activity 'Carousel'")

    def test_an_account_without_quota_is_told_where(self):
        stager, did = self.open_stager(settings=self.login_of_other()), self.add()
        error = self.refuse(stager, make_order(did, storage="CAM-DISK2"))
        assert error.kind is RefusalKind.QUOTA
        assert "account other has no quota left at CAM-DISK2" in error.reason

    @pytest.mark.parametrize(
        ("storage", "words"),
        [
            ("CAM-FULL", "CAM-FULL takes no data now"),
            ("NOWHERE", "does not have the storage element NOWHERE"),
            ("RAL-DISK", "RAL-DISK is not at the site CAM"),
            ("CAM-TAPE", "CAM-TAPE is not a disk"),
            ("CAM-STAGING", "CAM-STAGING is not a disk"),
            ("CAM-DOWN", "jobs cannot read the storage element CAM-DOWN"),
        ],
    )
    def test_a_storage_that_cannot_be_a_destination_is_refused(self, storage, words):
        did = self.add()
        error = self.refuse(self.open_stager(), make_order(did, storage=storage))
        assert error.kind is RefusalKind.CLOSED
        assert words in error.reason
        assert self.rules_on(did) == []

    def test_a_site_with_two_disks_needs_a_choice(self):
        stager, did = self.open_stager(storages={}), self.add()
        assert "set storage for the site CAM" in self.refuse(stager, make_order(did)).reason
        nowhere = make_order(did, Site("NOWHERE"))
        assert "no disk at the site NOWHERE" in self.refuse(stager, nowhere).reason
        assert "set storage for the site CAM" in self.spaces(stager, CAM)[CAM]

    def test_a_wrong_password_is_a_missing_permission(self):
        stager, did = self.open_stager(settings={"password": "a-wrong-word"}), self.add()
        error = self.refuse(stager, make_order(did))
        assert error.kind is RefusalKind.PERMISSION
        assert "a-wrong-word" not in str(error)

    def test_an_account_without_rights_may_neither_renew_nor_cancel(self):
        stager, did = self.open_stager(settings=self.login_of_other()), self.add()
        rule = stager.request(make_order(did))
        for call in (stager.cancel, lambda each: stager.request(make_order(did, rule=each))):
            with pytest.raises(StagingRefused) as raised:
                call(rule)
            assert raised.value.kind is RefusalKind.PERMISSION
            assert "account other may not" in raised.value.reason
        permissions = stager.probe_permissions()
        assert (permissions.can_ask, permissions.can_renew, permissions.can_cancel) == (True, False, False)

    def test_a_probe_reports_an_unknown_activity_and_full_permissions(self):
        assert self.open_stager().probe_permissions().notes == ()
        permissions = self.open_stager(activity="Carousel").probe_permissions()
        assert permissions.can_ask is False
        assert "activity 'Carousel'" in permissions.notes[0]


class TestCapacity(StagingTests):
    def sizes(self, *dids: Did):
        return self.open_stager().list(StagingQuery(frozenset(dids), frozenset({CAM}))).sizes

    def test_only_closed_datasets_have_a_size(self):
        closed = self.add("L1")
        still_open, empty = Did(f"{self.scope}:open"), self.add("empty", files=0)
        self.server.seed(("add_dataset", {"did": still_open, "rse": "ORIGIN"}))
        assert set(self.sizes(closed, still_open, empty, Did(f"{self.scope}:none"))) == {closed}

    def test_a_closed_container_of_closed_datasets_has_the_sum_of_their_sizes(self):
        parts, both = [self.add("L1"), self.add("L2")], Did(f"{self.scope}:both")
        self.server.do("add_container", did=both, children=parts)
        assert self.sizes(both) == {}
        self.server.do("close", did=both)
        assert self.sizes(both) == {both: 8_000_000_000}

    def test_free_space_is_what_the_storage_reported_less_the_reserve(self):
        self.server.seed(
            ("report_space", {"rse": "RAL-DISK2", "free": 10**13, "used": 10**13}),
            ("set_rse_limit", {"rse": "RAL-DISK2", "name": "MinFreeSpace", "value": 10**12}),
        )
        stager = self.open_stager(storages={"CAM": "CAM-DISK2", "RAL": "RAL-DISK2"})
        assert self.spaces(stager, CAM, RAL) == {RAL: 9 * 10**12}
