"""A world for tests of staging: a catalogue, a stager, queues and the daemon's parts, all in memory.

A rule of the stager that moves makes an incoming replica, a rule that is done a complete one. When the last
rule of a replica ends, the replica goes, as in Rucio; a replica that never had a rule stays.
"""

from datetime import timedelta
from functools import cache
from pathlib import Path

from hydrator.config.staging import StagingSettings
from hydrator.domain.errors import StateError
from hydrator.domain.model import (
    DatasetState,
    Did,
    Provenance,
    QueuedJobs,
    Replica,
    ScheddDemand,
    Site,
    Unseen,
)
from hydrator.domain.ports import DataNeed
from hydrator.domain.staging_ports import RequestState, Stager, StagingKind
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.state import PendingCommands, ReconcileState
from hydrator.staging.controller import StagingController, StagingParts
from hydrator.staging.table import StagingCommand, Table
from tests.factories import CAM, HOUR, MINUTE, NOON, OSO, RAL, settings_with
from tests.memory import MemoryCatalogue, MemoryPool, TurnedClock
from tests.memory_stager import FILES, MemoryStager

TERABYTE = 10**12
DAY = timedelta(days=1)
SITES = (CAM, OSO, RAL)
ANN, BOB = "ann@example.org", "bob@example.org"
SCHEDD = "ap1.example.org"
MOVING = frozenset({RequestState.MOVING, RequestState.QUEUED})


def policy(mode="request", *, sites=SITES, limits=None, **more) -> StagingSettings:
    """Settings that allow *sites* (names, or settings by name); *limits* differ from the defaults."""
    by_site = sites if isinstance(sites, dict) else {site: {} for site in sites}
    values = {"mode": mode, "catalogues": {"rucio": {}}, "sites": by_site, "limits": limits or {}} | more
    return StagingSettings.model_validate(values)


class MemoryStore:
    """A disk that keeps one table; ``is_broken`` like a full one."""

    def __init__(self):
        self.table = Table()
        self.is_broken = False
        self.on_save = lambda: None

    def save(self, table):
        if self.is_broken:
            raise StateError("the state cannot be written: disk full")
        self.on_save()
        self.table = table

    def load(self):
        return self.table


class MemoryControl:
    def __init__(self):
        self.stop_reason = None
        self.commands: list[StagingCommand] = []

    def prepare(self):
        pass

    def read_pending(self):
        return PendingCommands(tuple((Path("command"), command) for command in self.commands))

    def remove_processed(self, pending):
        self.commands.clear()


def need(*dids, user=ANN, jobs=1, queued_since=NOON - HOUR, sites=SITES, **more) -> DataNeed:
    """Idle jobs that wait for nothing but data and match all sites."""
    values = {"is_data_missing": True, "matching_sites": frozenset(sites)} | more
    return DataNeed(tuple(dids), jobs, user, "1.0", queued_since, **values)


def run(*dids, site=CAM, user=ANN, jobs=1, since=NOON) -> DataNeed:
    """Running jobs."""
    return DataNeed(tuple(dids), jobs, user, "2.0", since, is_running=True, running_site=site)


base_settings = cache(settings_with)
"""The settings without their section of staging; to build them costs more than a step."""


class StagingWorld:
    """The parts; a test changes any of them between two steps.

    ``disk`` has the replicas that are there: state and fraction by dataset and site. The cleaner runs before
    each step unless ``has_cleaner`` is false; while ``is_stale``, the catalogue answers as before. It expects
    data on its way at ``ready_at``. A ``backend`` takes the place of the stager in memory.
    """

    def __init__(self, settings: StagingSettings | None = None, **sizes: float):
        self.clock = TurnedClock()
        self.settings = settings or policy()
        self.stager = MemoryStager(self.clock, {}, dict.fromkeys(SITES, 100 * TERABYTE), name="rucio")
        self.catalogue = MemoryCatalogue("rucio", (), SITES, clock=self.clock)
        self.queues = MemoryPool()
        self.needs = {SCHEDD: []}
        self.store = MemoryStore()
        self.control = MemoryControl()
        self.disk: dict[tuple[Did, Site], tuple[DatasetState, float | None]] = {}
        self.audit: list[tuple] = []
        self.is_ending = False
        self.has_cleaner = True
        self.is_stale = False
        self.ready_at = None
        self.overview = None
        self.report = None
        self.backend: Stager | None = None
        for name, terabytes in sizes.items():
            self.add_dataset(Did(f"lofar:{name}"), terabytes)
        self.restart()

    # the world

    def add_dataset(self, did, terabytes=1.0):
        self.stager.sizes[did] = round(terabytes * TERABYTE)

    def put(self, did, site, state=DatasetState.AVAILABLE, fraction=None):
        """Put a replica that no rule keeps."""
        self.disk[did, site] = (state, fraction)

    def hold(self, did, site, **rule) -> str:
        """Put a whole replica, and a rule of another account that keeps it."""
        self.put(did, site)
        return self.stager.add_rule(did, site, **rule)

    def queue(self, *needs, schedd=SCHEDD):
        self.needs[schedd] = list(needs)

    def arrive(self, *dids):
        """Let all moving rules of *dids* (default: all) be done."""
        for rule in list(self.stager.rules.values()):
            if rule.state in MOVING and (not dids or rule.did in dids):
                self.stager.set(rule.id, state=RequestState.DONE)
                self.disk[rule.did, rule.site] = (DatasetState.AVAILABLE, None)

    def answer(self, verb, row):
        """Let a person answer *row* of the planned requests, as the command line does."""
        targets = [one.approval for one in row.requests] if verb == "approve" else [row.first.batch]
        self.control.commands.append(StagingCommand(verb, tuple(targets)))

    def restart(self, *, never=(), poll_seconds=100, **more):
        """Start a new daemon with the table on disk."""
        settings = base_settings(scope="lofar", never=never, poll_seconds=poll_seconds).model_copy(
            update={"staging": self.settings}
        )
        known = {"audit": lambda write, one, error: self.audit.append((write.verb, one, error))}
        self.controller = StagingController(
            StagingParts(settings, {"rucio": self.backend or self.stager}, self.needs.copy, self.control),
            self.store.load,
            self.store.save,
            self.clock,
            is_ending=lambda: self.is_ending,
            **known | more,
        )
        self.reconciler = Reconciler(
            catalogues=[self.catalogue],
            queues=self.queues,
            targets=(),
            settings=base_settings(scope="lofar"),
            clock=self.clock,
            state=ReconcileState(),
            store=None,
        )

    # the daemon

    def step(self, after: timedelta = MINUTE):
        """Turn the clock, run a cycle and a step of staging; return the overview."""
        self.clock.now += after
        self._settle()
        self.queues.queues = {
            schedd: answer
            if isinstance(answer, Unseen)
            else ScheddDemand(
                self.clock.now, tuple(QueuedJobs(one.datasets, one.job_count) for one in answer)
            )
            for schedd, answer in self.needs.items()
        }
        self.reconciler.refresh_demand()
        self.report = self.reconciler.run()
        self.overview = self.controller.run_once(self.report)
        return self.overview

    def step_with(self, *needs: DataNeed, after: timedelta = MINUTE):
        """Let only *needs* be in the queue, and make a step."""
        self.queue(*needs)
        return self.step(after)

    def _settle(self):
        """Let ended rules free their replicas, and let the catalogue list what is there."""
        gone = {(rule.did, rule.site) for rule in (self.stager.clean() if self.has_cleaner else ())}
        for key in gone - {(rule.did, rule.site) for rule in self.stager.rules.values()}:
            self.disk.pop(key, None)
        if self.is_stale:
            return
        replicas = [
            Replica(did, site, state, fraction)
            for (did, site), (state, fraction) in sorted(self.disk.items())
        ]
        replicas += [
            Replica(
                rule.did,
                rule.site,
                DatasetState.STAGING,
                rule.files_done / FILES,
                provenance=Provenance(ready_at=self.ready_at),
            )
            for rule in self.stager.rules.values()
            if rule.state in MOVING and (rule.did, rule.site) not in self.disk
        ]
        self.catalogue.replicas = tuple(replicas)
        self.catalogue.bytes_total = dict(self.stager.sizes)

    # what the tests look at

    @property
    def table(self) -> Table:
        return self.controller.table

    @property
    def stages(self) -> set[tuple[Did, Site]]:
        """The datasets and sites of our rules that bring data."""
        return {(one.did, one.site) for one in self.stager.own_rules() if one.kind is StagingKind.STAGE}

    @property
    def pins(self) -> set[tuple[Did, Site]]:
        """The datasets and sites of our pins."""
        return {(one.did, one.site) for one in self.stager.own_rules() if one.kind is StagingKind.PIN}

    @property
    def reasons(self) -> list[str]:
        """Why jobs' data was not asked for, in the last step."""
        return [one.reason for one in self.overview.not_asked]


def world_with(*needs: DataNeed, rules: StagingSettings | None = None, **sizes: float) -> StagingWorld:
    """Return a world with datasets of these *sizes* (TB), after a step with *needs* in the queue."""
    world = StagingWorld(rules, **sizes)
    world.step_with(*needs)
    return world
