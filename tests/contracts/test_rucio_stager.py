"""Stager contract on a real Rucio server, and the tests for Rucio only."""

from dataclasses import replace

import pytest

from adapters.rucio.catalogue import RucioSettings
from adapters.rucio.staging import RucioStager, RuleOptions
from hydrator.domain.model import Did
from hydrator.wiring import system_clock
from testbed.rucio import RucioServer
from tests.contracts.stager import FILE_BYTES, FILES, StagerContract
from tests.rucio_contract import RucioTests, seeded

__all__ = ["seeded"]
pytestmark = pytest.mark.rucio

STORAGES = {"CAM": "CAM-DISK", "RAL": "RAL-DISK"}


OTHER_ACCOUNTS: set[str] = set()


def add_other_account(server: RucioServer) -> str:
    """Add an account without rights of an administrator, once for each server."""
    if server.url not in OTHER_ACCOUNTS:
        OTHER_ACCOUNTS.add(server.url)
        limits = [{"account": "other", "rse": rse, "limit": 10**18} for rse in STORAGES.values()]
        server.seed(
            ("add_user", {"account": "other", "password": "a-word-of-the-other"}),
            *(("set_account_limit", limit) for limit in limits),
        )
    return "other"


class TestRucioStager(RucioTests, StagerContract):
    def make_stager(self, settings: RucioSettings | None = None) -> RucioStager:
        known = RuleOptions(pool=self.scope, storages=STORAGES)
        return RucioStager(settings or self.settings, known, system_clock)

    def make_failing_stager(self):
        return self.make_stager(replace(self.settings, url="http://127.0.0.1:1"))

    @pytest.fixture(autouse=True)
    def _others(self, seeded):
        self.other = add_other_account(seeded)

    def add_dataset(self, name):
        did = Did(f"{self.scope}:{name}")
        self.server.seed(
            ("add_dataset", {"did": did, "rse": "ORIGIN", "files": FILES, "bytes_each": FILE_BYTES}),
            ("close", {"did": did}),
        )
        return did

    def let_data_arrive(self, did):
        self.server.do("transferred", did=did, rse="CAM-DISK")

    def let_time_pass(self, did, seconds):
        self.server.seed(("pass_time", {"did": did, "seconds": seconds}), ("clean", {}))

    def add_rule_of_others(self, did, site):
        self.server.do("replicate", did=did, rse=STORAGES[site], account=self.other)
