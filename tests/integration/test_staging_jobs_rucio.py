"""The whole of staging with a real Rucio: the needs of jobs become rules, and end with the jobs."""

from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.rucio.catalogue import RucioCatalogue
from adapters.rucio.staging.destinations import RuleOptions
from adapters.rucio.staging.stager import RucioStager
from hydrator.domain.model import Did
from hydrator.domain.staging_ports import StagingKind
from hydrator.staging.policy import StagingLimits, StagingMode
from testbed.faults import FAULTS, FaultProxy
from tests.contracts.stager import CAM, RAL
from tests.contracts.test_rucio_stager import STORAGES, add_other_account
from tests.factories import HOUR, MINUTE
from tests.rucio_contract import RucioTests, seeded, utc_now
from tests.staging_world import ANN, BOB, StagingWorld, need, policy, run

__all__ = ["seeded"]
pytestmark = pytest.mark.rucio

DISK = "CAM-DISK"
NOTHING = timedelta()
SECOND = timedelta(seconds=1)


class RucioWorld(StagingWorld):
    """The world with a real Rucio as its catalogue and its stager."""

    def __init__(self, stager, catalogue, rules):
        super().__init__(rules)
        self.stager, self.catalogue = stager, catalogue
        self.clock.now = utc_now()
        self.restart()

    def _settle(self):
        """Do nothing: Rucio's own daemons move and delete data."""


class TestJobsAndRules(RucioTests):
    @pytest.fixture(autouse=True)
    def _world(self, _scope):
        self.other = add_other_account(self.server)
        for storage in STORAGES.values():
            self.server.do("report_space", rse=storage, free=10**14, used=10**14)
        slow = self.options = RuleOptions(storages=STORAGES, call_limit=timedelta(minutes=5))
        rules = policy(
            site_modes={CAM: StagingMode.ASK, RAL: StagingMode.ASK},
            storages=dict(STORAGES),
            limits=StagingLimits(hour_requests=100),
            pool=self.scope,
        )
        catalogue = RucioCatalogue(self.settings, lambda: self.world.clock.now)
        with closing(RucioStager(self.settings, slow, utc_now)) as stager, closing(catalogue):
            self.world = RucioWorld(stager, catalogue, rules)
            yield

    def add(self, name: str = "L1", at: str = "ORIGIN") -> Did:
        did = Did(f"{self.scope}:{name}")
        self.server.seed(("add_dataset", {"did": did, "rse": at}), ("close", {"did": did}), ("abacus", {}))
        return did

    def need(self, did: Did, **more):
        return need(did, queued_since=utc_now() - HOUR, **{"sites": [CAM], **more})

    def rules_on(self, did: Did) -> list[dict]:
        return self.server.do("rules_on", did=did)

    def ours(self, did: Did) -> list[dict]:
        return [rule for rule in self.rules_on(did) if rule["account"] == self.server.account]

    def files_at(self, did: Did) -> int:
        return self.server.do("files_at", did=did, rse=DISK)

    def run_clean_up(self, did: Did) -> None:
        """Let a minute pass for the rules; let Rucio delete ended rules, and files that no rule keeps."""
        self.server.seed(
            ("pass_time", {"did": did, "seconds": 60}), ("clean", {}), ("reap", {"rse": DISK}), ("abacus", {})
        )

    def test_a_thousand_jobs_of_two_users_make_one_rule_that_ends_with_them(self):
        did, world = self.add(), self.world
        world.queue(self.need(did, user=ANN, jobs=500), self.need(did, user=BOB, jobs=500))
        for _ in range(3):
            world.step(NOTHING)
        [rule] = self.rules_on(did)
        assert (rule["rse"], rule["state"]) == (DISK, "REPLICATING")
        assert f"hydrator:{self.scope}:stage:" in rule["comment"]
        self.server.seed(("convey", {"rse": DISK}), ("abacus", {}))
        [row] = world.step(NOTHING).requests
        assert row.is_complete
        world.queue(run(did, since=utc_now(), jobs=1000))
        world.step(MINUTE)
        self.run_clean_up(did)
        assert self.files_at(did) == 4
        world.queue()
        for hours in (1, 50, 50, 50):
            world.step(hours * HOUR)
            self.server.do("pass_time", did=did, seconds=hours * 3600)
        self.run_clean_up(did)
        assert self.rules_on(did) == []
        assert self.files_at(did) == 0
        world.step(NOTHING)
        assert world.ledger.entries == {}

    def test_a_rule_of_another_account_is_joined(self):
        did = self.add()
        self.server.do("replicate", did=did, rse=DISK, account=self.other, asynchronous=True)
        self.world.queue(self.need(did))
        for _ in range(2):
            self.world.step(NOTHING)
        assert [rule["account"] for rule in self.rules_on(did)] == [self.other]

    def test_data_on_tape_is_recalled_at_its_own_site(self):
        did = self.add(at="CAM-TAPE")
        self.server.do("replicate", did=did, rse="CAM-TAPE")
        self.world.queue(self.need(did, sites=[CAM, RAL]))
        for _ in range(3):
            self.world.step(20 * MINUTE)
        assert self.world.reasons == ["the data is on its way to CAM"]
        [rule] = [rule for rule in self.rules_on(did) if rule["rse"] != "CAM-TAPE"]
        assert (rule["rse"], rule["sources"]) == (DISK, "rse_type=DISK|CAM-TAPE")
        self.server.seed(("convey", {"rse": DISK}), ("abacus", {}))
        assert self.files_at(did) == 4

    def test_data_that_would_expire_is_pinned_until_its_jobs_have_run(self):
        did, world = self.add(), self.world
        self.server.seed(
            ("place", {"did": did, "rse": DISK}),
            ("replicate", {"did": did, "rse": DISK, "account": self.other, "lifetime": 8 * 3600}),
            ("abacus", {}),
        )
        world.queue(self.need(did, is_data_missing=False))
        for _ in range(2):
            world.step(20 * MINUTE)
        assert self.world.overview.problems == {}
        [pin] = self.ours(did)
        assert f"classad-hydrator {StagingKind.PIN}" in pin["comment"]
        assert pin["sources"] == DISK
        [other] = [rule["id"] for rule in self.rules_on(did) if rule["account"] == self.other]
        self.server.do("end_rule", rule=other)
        self.server.seed(("clean", {}), ("reap", {"rse": DISK}), ("abacus", {}))
        assert self.files_at(did) == 4
        world.queue()
        for hours in (1, 50, 50, 50):
            world.step(hours * HOUR)
        self.server.do("pass_time", did=did, seconds=100 * 3600)
        self.run_clean_up(did)
        assert self.files_at(did) == 0

    @pytest.mark.parametrize("fault", ["500", "empty 200"])
    def test_nothing_is_requested_while_the_catalogue_fails(self, fault):
        did, world = self.add(), self.world
        with FaultProxy(self.server.url) as proxy:
            behind = replace(self.settings, url=proxy.url, deadline=5 * SECOND)
            catalogue = RucioCatalogue(behind, lambda: world.clock.now)
            with closing(RucioStager(behind, self.options, utc_now)) as stager, closing(catalogue):
                world.stager, world.catalogue = stager, catalogue
                world.restart()
                world.step(NOTHING)  # logged in
                world.queue(self.need(did))
                for part in ("", "/rules", "/dids", "/usage"):
                    proxy.fault = replace(FAULTS[fault], only=part)
                    world.step(MINUTE)
                    assert self.rules_on(did) == [], part
                proxy.fault = None
                for _ in range(3):
                    world.step(6 * MINUTE)
                assert len(self.rules_on(did)) == 1, (world.reasons, world.overview.problems)

    def test_wmcore_10037_a_request_without_sources_is_never_asked_again(self):
        did, world = self.add(), self.world
        world.queue(self.need(did))
        world.step(NOTHING)
        [rule] = self.ours(did)
        self.server.do("go_bad", did=did, rse="ORIGIN", files=4, state="BAD")
        self.server.seed(("convey", {"rse": DISK}))
        for _ in range(5):
            world.step(20 * MINUTE)
        assert [one["id"] for one in self.ours(did)] in ([rule["id"]], [])
        assert world.ledger.failures[did, CAM].is_final
        assert world.ledger.totals.asked == 1
