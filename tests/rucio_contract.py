"""The catalogue contract on a real Rucio server, and datasets there in any state."""

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from hydrator.domain.model import DatasetState, Did, Replica, Site
from hydrator.testing.catalogue_contract import CAM, CatalogueContract
from hydrator.wiring import system_clock
from testbed.rucio import RucioServer
from tests.factories import BEST_FIRST

FILES = 4
SCOPES = (f"test-{n}" for n in itertools.count())
AVAILABLE, STAGING, PARTIAL, NEARLINE, STUCK, UNAVAILABLE = BEST_FIRST


DISK = {"rse": "CAM-DISK"}
HALF = {**DISK, "files": FILES // 2}
HAPPENINGS = {
    "its transfer was suspended at half": [
        ("replicate", DISK),
        ("transferred", HALF),
        ("change_rules", {**DISK, "state": "SUSPENDED"}),
    ],
    "its transfer waits for approval": [("replicate", {**DISK, "ask_approval": True})],
    "its transfer was asked for and has not begun": [("replicate", {**DISK, "asynchronous": True})],
    "it left one site and is at another": [
        *((name, {"rse": rse}) for rse in ("CAM-DISK", "RAL-DISK") for name in ("place", "replicate")),
        ("remove", DISK),
    ],
    "it exists without any file": [("add_dataset", {"files": 0}), ("replicate", DISK)],
    "it is at no site": [],
    "a quarter of its files went bad": [
        ("place", DISK),
        ("replicate", DISK),
        ("go_bad", {**DISK, "files": 1}),
    ],
    "its storage cannot be read": [("place", {"rse": "CAM-DOWN"}), ("replicate", {"rse": "CAM-DOWN"})],
    "whole in a cache only": [("place", {"rse": "CAM-CACHE"})],
    "whole and about to be deleted": [("place", DISK), ("replicate", {**DISK, "lifetime": 3600})],
}


def storage(site: Site, state: DatasetState) -> str:
    kind = {NEARLINE: "TAPE", UNAVAILABLE: "DOWN"}.get(state, "DISK")
    return f"{site}-{kind}"


def seeds(replica: Replica) -> list[tuple[str, dict]]:
    """Return the commands that create one replica of a dataset that has all its files at ORIGIN."""
    where = {"did": replica.did, "rse": storage(replica.site, replica.state)}
    some = {**where, "files": round((replica.fraction or 0) * FILES)}
    return {
        AVAILABLE: [("place", where), ("replicate", where)],
        NEARLINE: [("place", where), ("replicate", where)],
        PARTIAL: [("place", some)],
        STAGING: [("replicate", where), ("transferred", some)],
        STUCK: [("replicate", where), ("transferred", some), ("fail", where)],
        UNAVAILABLE: [("place", where), ("replicate", where)],
    }[replica.state]


@pytest.fixture(scope="session")
def seeded(rucio_server):
    return with_storages(rucio_server)


WITH_STORAGES: set[str] = set()


def with_storages(server: RucioServer) -> RucioServer:
    """*server* with the storage elements of two sites, and ORIGIN, which has none; once for each server.

    pytest makes a session's fixture again for each module that brings it in by its name.
    """
    if server.url in WITH_STORAGES:
        return server
    WITH_STORAGES.add(server.url)
    sites = {"CAM": "CAM", "RAL": "RAL"}
    special = [
        ("add_rse", {"rse": "CAM-CACHE", "volatile": True, "attributes": {"site": "CAM"}}),
        ("add_rse", {"rse": "CAM-STAGING", "staging_area": True, "attributes": {"site": "CAM"}}),
        ("add_rse", {"rse": "CAM-DOWN", "attributes": {"site": "CAM"}}),
        ("add_rse", {"rse": "CAM-FULL", "attributes": {"site": "CAM"}}),
        ("set_rse", {"rse": "CAM-DOWN", "availability_read": False}),
        ("set_rse", {"rse": "CAM-FULL", "availability_write": False}),
    ]
    rses = [
        ("add_rse", {"rse": f"{site}-{kind}", "rse_type": rse_type, "attributes": {"site": site}})
        for site in sites
        for kind, rse_type in (("DISK", "DISK"), ("DISK2", "DISK"), ("TAPE", "TAPE"))
    ]
    server.seed(("add_rse", {"rse": "ORIGIN"}), *rses, *special)
    return server


class RucioTests:
    """Tests on the shared server, each with its own scope."""

    server: RucioServer
    settings: RucioSettings

    @pytest.fixture(autouse=True)
    def _scope(self, seeded, tmp_path):
        self.server, self.scope = seeded, next(SCOPES)
        self.settings = RucioSettings(
            name="rucio",
            url=seeded.url,
            account=seeded.account,
            username=seeded.username,
            password=seeded.password,
            token_dir=tmp_path / "tokens",
            verify_every=timedelta(0),
            twins_every=timedelta(0),
        )
        seeded.seed(("add_scope", {"scope": self.scope}))

    def dataset(self, name: str, *replicas: tuple[Site, DatasetState, float]) -> Did:
        did = Did(f"{self.scope}:{name}")
        self.seed_all(did, *(Replica(did, *replica) for replica in replicas))
        return did

    def seed_all(self, did: Did, *replicas: Replica) -> None:
        ready = [command for replica in replicas for command in seeds(replica)]
        self.server.seed(
            ("add_dataset", {"did": did, "rse": "ORIGIN", "files": FILES}), *ready, ("abacus", {})
        )

    def catalogue(self, **changes) -> RucioCatalogue:
        return RucioCatalogue(replace(self.settings, **changes), system_clock)


class RucioCatalogueContract(RucioTests, CatalogueContract):
    def make_catalogue(self, *replicas):
        for did, its in itertools.groupby(sorted(replicas, key=lambda r: r.did), key=lambda r: r.did):
            self.seed_all(did, *its)
        return self.catalogue()

    def make_failing_catalogue(self):
        return self.catalogue(url="http://127.0.0.1:1")

    def make_catalogue_for_scenario(self, scenario):
        if scenario.name.startswith("a container"):
            return self.contained(scenario)
        if scenario.name not in HAPPENINGS:
            return None
        did = self.did("L1")
        commands = [(name, {"did": did, **arguments}) for name, arguments in HAPPENINGS[scenario.name]]
        if scenario.name != "it exists without any file":
            commands.insert(0, ("add_dataset", {"did": did, "rse": "ORIGIN", "files": FILES}))
        self.server.seed(*commands, ("abacus", {}))
        return self.catalogue()

    def contained(self, scenario):
        second = AVAILABLE if scenario.expected_fraction is None else STAGING
        parts = [Did(f"{self.scope}:part-{n}") for n in range(2)]
        self.seed_all(parts[0], Replica(parts[0], CAM, AVAILABLE))
        self.seed_all(parts[1], Replica(parts[1], CAM, second, 0.5))
        self.server.do("add_container", did=self.did("L1"), children=parts)
        return self.catalogue()
