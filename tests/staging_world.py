"""A world for tests of staging: a catalogue, a stager, queues and the daemon's parts, all in memory.

A rule of the stager that moves makes an incoming replica, a rule that is done a complete one. When the last
rule of a replica ends, the replica goes, as in Rucio; a replica that never had a rule stays.
"""

from datetime import timedelta
from pathlib import Path

from hydrator.domain.errors import StateError
from hydrator.domain.model import Did, QueuedJobs, Replica, ReplicaState, ScheddDemand, Site, Unseen
from hydrator.domain.ports import DataNeed
from hydrator.domain.staging_ports import RequestState, SiteSpace, StagingKind, StagingSize
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.state import PendingCommands, ReconcileState
from hydrator.staging.commands import StagingCommand
from hydrator.staging.controller import StagingController
from hydrator.staging.executor import StagingExecutor
from hydrator.staging.ledger import Ledger
from hydrator.staging.policy import TERABYTE, StagingLimits, StagingMode, StagingPolicy, StagingTimes
from tests.factories import CAM, HOUR, NOON, OSO, RAL
from tests.memory import MemoryCatalogue, MemoryQueues
from tests.memory_stager import MemoryStager

SITES = (CAM, OSO, RAL)
ANN, BOB = "ann@example.org", "bob@example.org"
SCHEDD = "ap1.example.org"
MOVING = frozenset({RequestState.MOVING, RequestState.QUEUED})


def policy(
    mode: StagingMode = StagingMode.ASK,
    *,
    limits: StagingLimits = StagingLimits(),  # noqa: B008
    times: StagingTimes = StagingTimes(),  # noqa: B008
    catalogues=frozenset({"rucio"}),
    site_modes=None,
    **more,
) -> StagingPolicy:
    """A policy that allows all sites."""
    return StagingPolicy(
        mode=mode,
        default_scope="lofar",
        catalogues=catalogues,
        site_modes=site_modes or dict.fromkeys(SITES, StagingMode.ASK),
        limits=limits,
        times=times,
        **more,
    )


class Clock:
    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        return self.now


class MemoryLedgerStore:
    """A disk that keeps one ledger; ``is_broken`` like a full one."""

    def __init__(self):
        self.ledger = Ledger()
        self.is_broken = False
        self.saves = 0
        self.on_save = lambda: None

    def save(self, ledger):
        if self.is_broken:
            raise StateError("the state cannot be written: disk full")
        self.on_save()
        self.ledger = ledger
        self.saves += 1

    def load(self):
        return self.ledger


class MemoryControl:
    def __init__(self):
        self.stop_reason = None
        self.commands: list[StagingCommand] = []

    def read_pending(self):
        return PendingCommands(tuple((Path("command"), command) for command in self.commands))

    def remove_processed(self, pending):
        self.commands.clear()


class MemoryNeeds:
    """The queues; ``needs`` by schedd may be an Unseen."""

    def __init__(self):
        self.needs = {}

    def read_needs(self):
        return dict(self.needs)

    def close(self):
        pass


def need(*dids, user=ANN, jobs=1, queued_since=NOON - HOUR, sites=SITES, **more) -> DataNeed:
    """Idle jobs that wait for nothing but data and match all sites."""
    values = {"is_data_missing": True, "matching_sites": frozenset(sites)} | more
    return DataNeed(tuple(dids), jobs, user, "1.0", queued_since, **values)


def run(*dids, site=CAM, user=ANN, jobs=1, since=NOON) -> DataNeed:
    """Running jobs."""
    return DataNeed(tuple(dids), jobs, user, "2.0", since, is_running=True, running_site=site)


class StagingWorld:
    """The parts; a test changes any of them between two steps.

    ``disk`` has the replicas that are there: state and fraction by dataset and site.
    """

    def __init__(self, rules: StagingPolicy | None = None, **sizes: float):
        self.clock = Clock()
        self.policy = rules or policy()
        space = SiteSpace(100 * TERABYTE, 200 * TERABYTE, NOON)
        self.stager = MemoryStager(self.clock, {}, dict.fromkeys(SITES, space), name="rucio")
        self.catalogue = MemoryCatalogue("rucio", (), SITES, clock=self.clock)
        self.queues = MemoryQueues()
        self.needs = MemoryNeeds()
        self.needs.needs[SCHEDD] = []
        self.store = MemoryLedgerStore()
        self.control = MemoryControl()
        self.disk: dict[tuple[Did, Site], tuple[ReplicaState, float | None]] = {}
        self.audit: list[tuple[str, dict]] = []
        self.guard_reason = None
        self.uses = []
        self.before_call = lambda: None
        self.overview = None
        self.report = None
        for name, terabytes in sizes.items():
            self.add_dataset(Did(f"lofar:{name}"), terabytes)
        self.restart()

    # the world

    def add_dataset(self, did, terabytes=1.0, files=100):
        self.stager.sizes[did] = StagingSize(round(terabytes * TERABYTE), files)

    def put(self, did, site, state=ReplicaState.COMPLETE, fraction=None):
        """Put a replica that no rule keeps."""
        self.disk[did, site] = (state, fraction)

    def queue(self, *needs, schedd=SCHEDD):
        self.needs.needs[schedd] = list(needs)

    def arrive(self, *dids):
        """Let all moving rules of *dids* (default: all) be done."""
        for handle, row in self.stager.rules.items():
            if row.rule.state in MOVING and (not dids or row.rule.did in dids):
                self.stager.set_state(handle, RequestState.DONE)
                self.disk[row.rule.did, row.rule.site] = (ReplicaState.COMPLETE, None)

    def restart(self, **more):
        """Start a new daemon with the ledger on disk."""
        self.executor = StagingExecutor(
            {"rucio": self.stager},
            self.store,
            self.policy,
            self.clock,
            lambda: self.control.stop_reason or self.guard_reason,
            lambda event, fields: self.audit.append((event, dict(fields))),
        )
        self.controller = StagingController(
            {"rucio": self.stager},
            self.needs,
            self.executor,
            self.store.load,
            self.control,
            self.policy,
            self.clock,
            **more,
        )
        self.reconciler = Reconciler(
            catalogues=[self.catalogue],
            queues=self.queues,
            targets=(),
            policy=ReconcilePolicy(default_scope="lofar"),
            clock=self.clock,
            state=ReconcileState(),
            store=None,
        )

    # the daemon

    def step(self, after: timedelta = timedelta(seconds=60)):
        """Turn the clock, run a cycle and a step of staging; return the overview."""
        self.clock.now += after
        self._settle()
        self.queues.queues = {
            schedd: answer
            if isinstance(answer, Unseen)
            else ScheddDemand(
                self.clock.now, tuple(QueuedJobs(one.datasets, one.job_count) for one in answer)
            )
            for schedd, answer in self.needs.needs.items()
        }
        self.reconciler.refresh_demand()
        self.report = self.reconciler.run()
        self.overview = self.controller.run_once(self.report, uses=self.uses)
        self.uses = []
        return self.overview

    def _settle(self):
        """Let ended rules free their replicas, and let the catalogue list what is there."""
        kept = {(row.rule.did, row.rule.site) for row in self.stager.rules.values()}
        self.stager.own_rules()  # ends the rules whose lifetime is over
        left = {(row.rule.did, row.rule.site) for row in self.stager.rules.values()}
        for key in kept - left:
            self.disk.pop(key, None)
        replicas = [
            Replica(did, site, state, fraction)
            for (did, site), (state, fraction) in sorted(self.disk.items())
        ]
        moving = [row for row in self.stager.rules.values() if row.rule.state in MOVING]
        replicas += [
            Replica(one.rule.did, one.rule.site, ReplicaState.INCOMING, one.files_done / one.size.files)
            for one in moving
            if (one.rule.did, one.rule.site) not in self.disk
        ]
        self.catalogue.replicas = tuple(replicas)
        self.catalogue.bytes_total = {did: size.bytes for did, size in self.stager.sizes.items()}

    # what the tests look at

    @property
    def ledger(self) -> Ledger:
        return self.executor.ledger

    @property
    def stages(self) -> set[tuple[Did, Site]]:
        """The datasets and sites of our rules that bring data."""
        return {
            (row.rule.did, row.rule.site) for row in self.stager.own_rules() if row.kind is StagingKind.STAGE
        }

    @property
    def pins(self) -> set[tuple[Did, Site]]:
        """The datasets and sites of our pins."""
        return {
            (row.rule.did, row.rule.site) for row in self.stager.own_rules() if row.kind is StagingKind.PIN
        }

    @property
    def reasons(self) -> list[str]:
        """Why jobs' data was not asked for, in the last step."""
        return [one.reason for one in self.overview.not_asked]
