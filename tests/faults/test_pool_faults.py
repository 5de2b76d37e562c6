"""A real schedd that hangs, or denies access: publishing continues, demand stays, and all recovers by itself.

Collectors: test_two_collectors.py, and the denials in test_condor.py and test_slot_merge.py.
"""

import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.condor.bindings.client import CondorClient
from adapters.condor.bindings.process import CondorSettings
from adapters.condor.collector import CollectorPublisher
from adapters.condor.pool_load import CondorPool
from adapters.files.ad_files import AdFilePublisher
from hydrator.domain.model import DatasetState, Did, Replica, Site, Unseen
from hydrator.reconcile.publish import PublishTarget
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.state import ReconcileState
from hydrator.wiring import system_clock
from testbed.patience import wait_for
from testbed.pool import Pool, SiteSpec
from tests.factories import settings_with
from tests.memory import MemoryCatalogue

pytestmark = [pytest.mark.pool, pytest.mark.slow, pytest.mark.timeout(900)]

UK, AU = Site("UK"), Site("AU")
PINNED, QUEUED, LATER = Did("lofar:pinned"), Did("lofar:queued"), Did("lofar:later")
LIFETIME = timedelta(minutes=15)
TIMEOUT = 2.0
"""Seconds that a call may take; what hangs costs one of these."""
JOB = (
    f'executable = /bin/sleep\narguments = 1\n+RequiredDatasets = {{"{QUEUED}"}}\n'
    "requirements = TARGET.NoSlotHasThis =?= true\nqueue\n"
)


@pytest.fixture(scope="module")
def troubled(htcondor_release) -> Iterator[Pool]:
    """Return a pool for this test, with an idle job that names a dataset."""
    with Pool.start(htcondor_release, [SiteSpec(UK, cpus=1), SiteSpec(AU, cpus=1)]) as pool:
        pool.submit(JOB)
        yield pool


class Beside:
    """Cycles of the daemon on a pool: demand comes from its jobs, ads go to its collector and to files."""

    def __init__(self, pool: Pool, folder: Path) -> None:
        self.pool = pool
        self.catalogue = MemoryCatalogue("memory", sites=(UK, AU))
        token, limit = pool.token("hydrator"), timedelta(seconds=TIMEOUT)
        self.client = CondorClient(CondorSettings(pool.collector, token_directory=token, timeout=limit))
        self.collector = CollectorPublisher(self.client, lifetime=LIFETIME, clock=system_clock)
        self.file = AdFilePublisher(folder / "ads", system_clock)
        self.cycle = Reconciler(
            catalogues=[self.catalogue],
            queues=CondorPool(self.client, system_clock, ()),
            targets=[
                PublishTarget(self.collector, LIFETIME / 3),
                PublishTarget(self.file),
            ],
            settings=settings_with(pins={PINNED}),
            clock=system_clock,
            state=ReconcileState(),
            store=None,
        )
        self.hold(PINNED, QUEUED)

    def hold(self, *dids: Did) -> None:
        self.catalogue.replicas = tuple(Replica(did, UK, DatasetState.AVAILABLE) for did in dids)

    def run(self) -> CycleReport:
        """Run one poll of the daemon."""
        self.cycle.refresh_demand()
        return self.cycle.run()

    def settle(self) -> None:
        """Run until the jobs' datasets are in demand and both publishers have all ads."""
        wait_for(
            lambda: self.run().is_complete and not self.unasked and QUEUED in self.cycle.demand.dids, "peace"
        )

    @property
    def unasked(self) -> bool:
        """Return whether a schedd could not be queried for its demand."""
        return bool(self.cycle.schedds.error or self.reasons)

    @property
    def reasons(self) -> str:
        """Return the reasons why schedds could not be queried."""
        return "; ".join(a.reason for a in self.cycle.schedds.answers.values() if isinstance(a, Unseen))

    def in_files(self, did: Did) -> bool:
        """Return whether hooks read it from the files, whatever the collector has."""
        lines = self.file.path(UK).read_text().splitlines()
        (states,) = [line for line in lines if line.startswith("DatasetStates = ")]
        return f"'{did}'" in states


@pytest.fixture
def beside(troubled: Pool, tmp_path: Path) -> Iterator[Callable[..., Beside]]:
    made: list[Beside] = []

    def make() -> Beside:
        made.append(Beside(troubled, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.client.close()


def goes_on(daemon: Beside) -> None:
    """Check that a change reaches hooks and that the demand of jobs is kept."""
    daemon.hold(PINNED, QUEUED, LATER)
    report = daemon.run()
    assert QUEUED in daemon.cycle.demand.dids, "demand was lost"
    assert daemon.in_files(QUEUED)
    assert {outcome.publisher: outcome.error for outcome in report.results}["file"] is None


def test_a_schedd_that_hangs_costs_one_timeout_and_keeps_its_demand(beside, troubled):
    daemon = beside()
    daemon.settle()
    troubled.kill_daemon("schedd", signal.SIGSTOP)
    try:
        begun = time.monotonic()
        goes_on(daemon)
        assert daemon.unasked
        assert time.monotonic() - begun < 120, "it was waited for without end"
    finally:
        troubled.kill_daemon("schedd", signal.SIGCONT)
    daemon.settle()


def test_a_schedd_that_denies_us_keeps_its_demand_and_is_named(beside, troubled):
    daemon = beside()
    daemon.settle()
    troubled.reconfig(schedd="SCHEDD.DENY_READ = hydrator@pool.test\n")
    try:
        wait_for(lambda: (goes_on(daemon), daemon.unasked)[1], "the schedd to deny us")
        afresh = beside()  # a session from before is dropped without a word
        afresh.cycle.refresh_demand()
        assert "authenticated the client as hydrator@pool.test (by IDTOKENS) and denies" in afresh.reasons
    finally:
        troubled.reconfig(schedd="")
    daemon.settle()
