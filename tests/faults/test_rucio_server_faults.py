"""Faults between the daemon and a real Rucio server, through a proxy; all are in test_catalogue_faults.py."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from testbed.faults import FaultProxy

from .sources import CAM, FULL, RAL, Asked, Source, rucio_catalogue, rucio_settings

pytestmark = [pytest.mark.rucio, pytest.mark.slow, pytest.mark.timeout(900)]

FAULTS = (
    *("401 in mid-poll", "truncated stream in mid-poll", "wrong scope in mid-poll"),
    *("duplicates", "reordered", "clock ahead"),
)
"""Faults that keep a part of the server's own answer, or after which the client logs in again."""
STORAGE = {CAM: "CAM-FAULTS", RAL: "RAL-FAULTS"}


class RealSource(Source):
    """A real Rucio server behind the proxy, with seeded content."""

    def catalogue(self, clock):
        settings = rucio_settings(
            self.proxy.url,
            self._folder,
            account=self._server.account,
            username=self._server.username,
            password=self._server.password,
            sites={storage: site for site, storage in STORAGE.items()},
            site_attribute=None,
            timeout=timedelta(seconds=2),
            deadline=timedelta(seconds=6),
        )
        return rucio_catalogue(settings, clock)


@pytest.fixture(scope="module")
def seeded(rucio_server):
    """Seed the datasets of FULL: 4 files each, all at CAM, half of them at RAL where they are partial."""
    commands = [("add_scope", {"scope": "lofar"})]
    commands += [("add_rse", {"rse": storage}) for storage in STORAGE.values()]
    for did, where in FULL.items():
        commands.append(("add_dataset", {"did": did, "rse": STORAGE[CAM], "files": 4}))
        if RAL in where:
            commands.append(("place", {"did": did, "rse": STORAGE[RAL], "files": 2}))
    rucio_server.seed(*commands, ("abacus", {}))
    return rucio_server


@pytest.fixture
def asked(seeded, tmp_path) -> Iterator[Asked]:
    with FaultProxy(seeded.url) as proxy:
        made = Asked(RealSource(proxy, seeded, tmp_path))
        made.hold(FULL)
        with closing(made.catalogue):
            yield made


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_real_server_causes_no_false_fact_and_ends(asked, fault):
    asked.until_well()
    asked.break_with(fault)
    if fault in asked.source.harmless:
        asked.until_well()
        return
    for _ in range(2):
        assert asked.read() < set(FULL), "the fault was not noticed"
    asked.break_with("")
    asked.until_well()
