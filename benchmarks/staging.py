"""Staging: time from the end of a request's transfer until its job starts, and calls of the catalogue."""

import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from adapters.rucio.staging.destinations import RuleOptions
from adapters.rucio.staging.stager import RucioStager
from hydrator.domain.model import Did, QueuedJobs, ScheddDemand, Site
from hydrator.domain.ports.data_needs import DataNeed
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.state import ReconcileState
from hydrator.staging.commands import StagingCommand
from hydrator.staging.controller import StagingController
from hydrator.staging.executor import StagingExecutor
from hydrator.staging.ledger import EntryState, Ledger
from hydrator.staging.policy import StagingLimits, StagingMode, StagingPolicy
from testbed.demo import RucioHoldings
from testbed.faults import FaultProxy
from testbed.installation import Installation
from testbed.patience import wait_for
from testbed.pool import Pool, SiteSpec
from testbed.rucio import VERSION, RucioServer
from tests.memory import MemoryQueues

from .freshness import spread_of
from .record import Figure, Result, round_samples

START_GOALS = {"p50": 60.0}
CALLS_GOAL = 1.0
SPACE = 10**14
FILES = 4
ABACUS_SECONDS = 10.0
SITE, SCHEDD = Site("SITE0"), "ap.example.org"
MINUTE = timedelta(minutes=1)


# the time from the end of a transfer to the start of the job


@dataclass(frozen=True, slots=True)
class StartPlan:
    """One series: *datasets* jobs with one dataset each; a transfer ends every *every* seconds.

    ``poll`` is the interval of the catalogue's polls, ``step`` of the steps of staging, ``hook`` of the
    hooks and ``cycle`` of the negotiator's cycles, in seconds.
    """

    datasets: int
    every: float
    poll: float
    step: float
    hook: int
    cycle: int

    @property
    def title(self) -> str:
        return f"poll every {self.poll:g} s, negotiator every {self.cycle} s"

    @property
    def settings(self) -> str:
        """Return the daemon's section [staging]."""
        sites = "".join(f"[staging.sites.{site.name}]\n" for site in site_specs())
        return (
            f'[staging]\nmode = "ask"\nname = "bench"\n'
            f"[staging.catalogues.rucio]\n{sites}"
            "[staging.limits]\nhour_requests = 1000\n[staging.times]\nwait_minutes = 0\n"
        )


def site_specs() -> list[SiteSpec]:
    return [SiteSpec(f"SITE{number}", cpus=16) for number in range(3)]


def measure_starts(plan: StartPlan, release: str | None) -> tuple[list[float], str]:
    """Return by job the seconds from the end of its dataset's rule to its start, and HTCondor's version."""
    cycle = {"negotiator": f"NEGOTIATOR_INTERVAL = {plan.cycle}\n"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(RucioServer.start(folder / "server"))
        pool = stack.enter_context(Pool.start(release, site_specs(), cycle))
        holdings = RucioHoldings(server, pool.home, [site.name for site in site_specs()], "bench", FILES)
        dids = [f"bench:set{number:03}" for number in range(plan.datasets)]
        for did in dids:
            holdings.put(did, {})
            server.do("close", did=did)
        for disk in holdings.disks.values():
            server.do("report_space", rse=disk, free=SPACE, used=SPACE)
        installed = stack.enter_context(
            Installation(
                pool, holdings, period_seconds=plan.hook, poll_seconds=plan.poll, settings=plan.settings
            )
        )
        jobs = {did: installed.submit([did], mode="wait") for did in dids}
        wait_for(lambda: all(server.do("rules_on", did=did) for did in dids), 120, "all rules")
        _convey_all(plan, server, holdings)
        ended = {f"bench:{name}": when for name, _, when in server.do("completed", scope="bench")}
        for job in jobs.values():
            pool.wait(lambda job=job: pool.done(job), 300, f"job {job} to end")  # type: ignore[misc]
        starts = {did: pool.history(f"ClusterId == {job}", "JobStartDate") for did, job in jobs.items()}
        return [max(0.0, starts[did][0]["JobStartDate"] - ended[did]) for did in dids], pool.version


def _convey_all(plan: StartPlan, server: RucioServer, holdings: RucioHoldings) -> None:
    """Let the transfers of one dataset after the other end, at random times; recount at intervals."""
    generator = random.Random(3)
    recounted_at = 0.0
    while len(server.do("completed", scope="bench")) < plan.datasets:
        for disk in sorted(holdings.disks.values()):
            server.do("convey", rse=disk, most=FILES)
            if time.monotonic() - recounted_at > ABACUS_SECONDS:
                server.do("abacus")
                recounted_at = time.monotonic()
            time.sleep(plan.every * generator.uniform(0.5, 1.5))
    server.do("abacus")


# the calls of the catalogue


class MemoryStore:
    """A ledger in memory, and no commands of an operator."""

    stop_reason = None

    def __init__(self) -> None:
        self.ledger = Ledger()

    def save(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def load(self) -> Ledger:
        return self.ledger

    def read_commands(self) -> tuple[StagingCommand, ...]:
        return ()

    def remove_commands(self) -> None:
        """Do nothing."""


class FixedNeeds:
    """Jobs that wait for one dataset each, for as long as the benchmark runs."""

    def __init__(self, dids: Sequence[Did], since: datetime) -> None:
        self.needs = [
            DataNeed(
                (did,), 1, "ann@example.org", f"{number}.0", since,
                is_data_missing=True, matching_sites=frozenset({SITE}),
            )
            for number, did in enumerate(dids)
        ]  # fmt: skip

    def read_needs(self) -> Mapping[str, Sequence[DataNeed]]:
        return {SCHEDD: self.needs}

    def close(self) -> None:
        """Do nothing."""


class StagingSteps:
    """Steps of staging beside cycles of the daemon, a simulated minute apart, at a real Rucio.

    A proxy counts the requests of a step; those of the catalogue's poll before it are not counted.
    """

    def __init__(
        self, stager: RucioStager, catalogue: RucioCatalogue, proxy: FaultProxy, needs: FixedNeeds
    ) -> None:
        self._proxy = proxy
        self._needs = needs
        self._store = MemoryStore()
        self.now = datetime.now(UTC)  # noqa: TID251 - the server's rules have real times
        policy = StagingPolicy(
            pool="bench",
            mode=StagingMode.ASK,
            catalogues=frozenset({"rucio"}),
            site_modes={SITE: StagingMode.ASK},
            limits=StagingLimits(hour_requests=10**6, user_bytes=10**18),
        )
        self.executor = StagingExecutor(
            {"rucio": stager}, self._store, policy, self.clock, lambda: None, lambda *_: None
        )
        self._controller = StagingController(
            {"rucio": stager}, needs, self.executor, self._store.load, self._store, policy, self.clock
        )
        self._queues = MemoryQueues()
        self._reconciler = Reconciler(
            catalogues=[catalogue],
            queues=self._queues,
            targets=(),
            policy=ReconcilePolicy(),
            clock=self.clock,
            state=ReconcileState(),
            store=None,
        )

    def clock(self) -> datetime:
        return self.now

    def step(self, after: timedelta = MINUTE) -> int:
        """Run one cycle and one step; return the calls of this step."""
        self.now += after
        jobs = tuple(QueuedJobs(one.datasets, one.job_count) for one in self._needs.needs)
        self._queues.queues = {SCHEDD: ScheddDemand(self.now, jobs)}
        self._reconciler.refresh_demand()
        report = self._reconciler.run()
        self._proxy.asked.clear()
        self._controller.run_once(report)
        return len(self._proxy.asked)

    def steps(self, minutes: int) -> list[int]:
        return [self.step() for _ in range(minutes)]

    @property
    def open_count(self) -> int:
        """Return the number of requests that Rucio has."""
        return sum(one.state is EntryState.OPEN for one in self.executor.ledger.entries.values())


@contextmanager
def open_steps(requests: int) -> Iterator[tuple[StagingSteps, RucioServer, str]]:
    """Start a Rucio with a dataset for each of *requests* requests; yield also the RSE they go to."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(RucioServer.start(folder / "server"))
        proxy = stack.enter_context(FaultProxy(server.url))
        holdings = RucioHoldings(server, folder, [SITE], "bench", files=1)
        dids = [Did(f"bench:set{number:05}") for number in range(requests)]
        for did in dids:
            server.seed(
                ("add_dataset", {"did": did, "rse": holdings.origin, "files": 1}), ("close", {"did": did})
            )
        disk = holdings.disks[SITE]
        server.seed(("report_space", {"rse": disk, "free": SPACE, "used": SPACE}), ("abacus", {}))
        needs = FixedNeeds(dids, datetime.now(UTC) - timedelta(hours=1))  # noqa: TID251

        def clock() -> datetime:
            return steps.now

        login: dict[str, Any] = {
            "account": server.account,
            "username": server.username,
            "password": server.password,
        }
        options = RuleOptions(call_limit=timedelta(minutes=5))
        settings = RucioSettings(name="rucio", url=proxy.url, token_dir=folder / "tokens", **login)
        stager = stack.enter_context(closing(RucioStager(settings, options, clock)))
        catalogue = stack.enter_context(closing(RucioCatalogue(settings, clock)))
        steps: StagingSteps = StagingSteps(stager, catalogue, proxy, needs)
        yield steps, server, disk


def measure_calls(requests: int, minutes: int) -> dict[str, list[int]]:
    """Return the calls of each step with *requests* requests: in flight, complete, and at their renewal."""
    with open_steps(requests) as (steps, server, disk):
        while not (steps.step() and steps.open_count == requests):
            pass
        in_flight = steps.steps(minutes)
        server.seed(("convey", {"rse": disk, "most": 10 * requests}), ("abacus", {}))
        steps.steps(2)
        complete = steps.steps(minutes)
        return {"in flight": in_flight, "complete": complete}


def run(quick: bool = False) -> Result:
    """Measure the starts of jobs, then the calls."""
    release = os.environ.get("HYDRATOR_TEST_HTCONDOR")
    plan = StartPlan(4, 0.5, 2, 1, 2, 5) if quick else StartPlan(45, 4, 30, 60, 5, 60)
    seconds, version = measure_starts(plan, release)
    figures = spread_of(
        f"{plan.title}, end of staging to start", seconds, START_GOALS if plan.poll == 30 else {}, "jobs"
    )
    requests, minutes = (10, 3) if quick else (1000, 60)
    calls = measure_calls(requests, minutes)
    for phase, counts in calls.items():
        mean = sum(counts) / len(counts)
        note = f"at most {max(counts)} calls in one step"
        name = f"calls a minute of {requests:,} requests, {phase}"
        figures.append(Figure(name, mean, "", CALLS_GOAL, note))
    how = " ".join(HOW.split()).format(plan=plan, abacus=ABACUS_SECONDS, requests=requests, minutes=minutes)
    raw = {"starts": round_samples(seconds, 1), **calls}
    return Result("staging", tuple(figures), how, raw, {"HTCondor": version, "Rucio": VERSION})


HOW = """\
{plan.datasets} jobs with one dataset each wait on a real pool of three sites; no site has the data. The real
daemon (poll every {plan.poll:g} s, step of staging every {plan.step:g} s, hooks every {plan.hook} s) makes a
rule for each in a real Rucio (SQLite, one thread). Rucio's own conveyor carries the rules out with mock
transfers, one dataset at a time at random moments, and abacus recounts every {abacus:g} s. The time is from
the completion that Rucio's row of the rule has to the start of the job (whole seconds). A slot is free for
each job, and the negotiator's cycle is {plan.cycle} s. The calls: {requests} requests of one daemon, steps
for {minutes} simulated minutes in each phase, with a job that waits for each request. A proxy counts the HTTP
requests of staging alone; the polls of the catalogue, which the daemon makes anyway, are not counted.
Renewals, one call for each request in about two days, do not fall into these minutes."""
