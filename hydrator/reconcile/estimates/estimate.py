"""Estimates of one cycle: the seconds of reads and queues, by site and set, in classes.

This module is pure. docs/pacing.md explains the two numbers and what they ignore.

Estimator: query the load of the pool beside the cycles, and make the estimates of each cycle.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.estimates import (
    Estimates,
    Rate,
    RateLookup,
    SiteEstimates,
)
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Demand, Site, Snapshot, to_unix
from hydrator.domain.ports import IdleJobs, PoolLoad, PoolLoads, RunningJobs, ScheddLoad
from hydrator.reconcile.threads import THREADS, Threads

from .changes import (
    NamedSources,
    ReadStock,
    ReadTrend,
    build_source_finder,
    count_readers,
    find_closed_sources,
    limit_read_changes,
    smooth_readers,
    to_class,
    update_last_reads,
)
from .predictions import Predictions
from .run_times import DatasetSet, Holdings, PlacedJobs, RunHistory, RunTimes, read_holdings
from .waits import CycleSets, QueuedWork, Reads, SiteQueues

_NO_RATE_BETWEEN_SITES = "no transfer rate between two sites is known"


@dataclass(frozen=True, slots=True)
class EstimatePolicy:
    """The settings of the estimates: section [estimates] of the configuration.

    Jobs use an estimate until ``valid`` after the query of the load. A load older than ``max_load_age`` gives
    no estimates. A waiting job starts ``reaction`` from now at the earliest, when the negotiator has its next
    cycle, and with the slots that are free then. So no waiting job has fewer queue seconds.
    The daemon queries the load every ``query_interval``.
    """

    is_enabled: bool = True
    valid: timedelta = timedelta(minutes=10)
    max_load_age: timedelta = timedelta(minutes=5)
    max_readers_per_source: int = 10
    portion: float = 2.0
    default_run: timedelta = timedelta(hours=1)
    reaction: timedelta = timedelta(0)
    default_scope: str | None = None
    query_interval: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class ReadMemory:
    """Values that keep reads steady from cycle to cycle.

    By source the mean number of readers and the time of the last ones, and the closed sources; by site the
    stock of changes that is left; and the sources that the ads have named.
    """

    mean_readers: Mapping[Site, float] = field(default_factory=dict)
    closed_sources: frozenset[Site] = frozenset()
    read_stocks: Mapping[Site, ReadStock] = field(default_factory=dict)
    last_reads: Mapping[Site, datetime] = field(default_factory=dict)
    sources: NamedSources = field(default_factory=NamedSources)


@dataclass(frozen=True, slots=True)
class Estimation:
    """The estimates of one cycle, or the reason why there are none; and what the next cycle needs of it.

    Without rates ``estimates`` is None, and ``queues`` has the own queue of each site.
    ``load_at`` is the time of the jobs and slots behind the estimates. ``readers`` has, by source, the jobs
    that read from it now.
    ``load`` has the jobs and slots; None if they are unknown.
    """

    estimates: Estimates | None = None
    none_reason: str | None = None
    queues: Estimates | None = None
    load_at: datetime | None = None
    readers: Mapping[Site, int] = field(default_factory=dict)
    memory: ReadMemory = field(default_factory=ReadMemory, repr=False)
    predictions: Predictions = field(default_factory=Predictions, repr=False)
    history: RunHistory = field(default_factory=RunHistory, repr=False)
    holdings: Holdings | None = field(default=None, repr=False)
    load: PoolLoad | None = field(default=None, repr=False, compare=False)


def estimate(
    snapshot: Snapshot,
    demand: Demand,
    load: PoolLoad | str | None,
    rates: RateLookup | None,
    previous: Estimation | None,
    now: datetime,
    policy: EstimatePolicy,
) -> Estimation:
    """Estimate reads and queues for every demanded set at every site of *snapshot*.

    Args:
        snapshot: the state of every dataset and site.
        demand: the demanded sets.
        load: the jobs and slots of the pool; or, as text, why they are unknown; None before the first query.
        rates: the transfer rates between sites; None if there are none.
        previous: the estimation of the last cycle. Its classes stay for values near them.
        now: aware UTC time of the cycle.
        policy: the settings.

    Returns:
        The estimates. There are none if a schedd did not answer, because half of the jobs would give wrong
        queues. If no rate between two sites is known, there are only the sites' own queues.
    """
    previous = previous or Estimation()
    reason = _find_obstacle(load, now, policy)
    if reason is not None or not isinstance(load, PoolLoad):
        return replace(_without_estimates(previous, reason), queues=None, load_at=None)
    holdings = read_holdings(snapshot, demand, previous.holdings)
    cycle = _EstimateSteps(holdings, load, _NoRates() if rates is None else rates, previous, now, policy)
    estimates = cycle.estimate_sites()
    if cycle.lacks_rates:
        known = replace(previous, history=cycle.history, holdings=holdings, load_at=load.as_of)
        reason = "no transfer rates are known" if rates is None else _NO_RATE_BETWEEN_SITES
        return replace(_without_estimates(known, reason), queues=_without_sets(estimates))
    predictions = previous.predictions.with_resolution(policy.query_interval.total_seconds())
    made = predictions.update(estimates, to_unix(now))
    rest = (load.as_of, cycle.readers, cycle.memory, made, cycle.history, holdings)
    return Estimation(estimates, None, None, *rest)


def _without_sets(estimates: Estimates) -> Estimates:
    """Return the own queues of the sites in *estimates*."""
    return replace(estimates, sites={site: replace(one, by_key={}) for site, one in estimates.sites.items()})


def _without_estimates(known: Estimation, reason: str | None) -> Estimation:
    return replace(known, estimates=None, none_reason=reason, readers={})


class _NoRates:
    """The rates of a daemon that measures none."""

    def rate(self, source: Site, destination: Site) -> Rate | None:  # noqa: ARG002
        return None


def _find_obstacle(load: PoolLoad | str | None, now: datetime, policy: EstimatePolicy) -> str | None:
    if not policy.is_enabled:
        return "estimates are switched off ([estimates] enabled)"
    if load is None:
        return "the jobs and slots of the pool were not queried yet"
    if isinstance(load, str):
        return load
    if now - load.as_of > policy.max_load_age:
        return f"the last answer about jobs and slots is from {load.as_of:%Y-%m-%d %H:%M:%S} UTC"
    if not load.slots:
        return "the pool has no slots that take jobs"
    return load.unseen_reason


class _EstimateSteps:
    """The steps of :func:`estimate`, and the values that they share."""

    def __init__(
        self,
        holdings: Holdings,
        load: PoolLoad,
        rates: RateLookup,
        previous: Estimation,
        now: datetime,
        policy: EstimatePolicy,
    ) -> None:
        self._holdings = holdings
        self._load = load
        self._policy = policy
        self._previous = previous.estimates or previous.queues
        self._read_stocks = previous.memory.read_stocks
        self.read_stocks: dict[Site, ReadStock] = {}
        self._now = now
        placed = list(self._place_running_jobs())
        self.history = previous.history.update(load, placed)
        default_run_seconds = policy.default_run.total_seconds()
        self._run_times = RunTimes(self.history, placed, default_run_seconds)
        self._queues, self._cpus = self._build_queues(placed, default_run_seconds)
        self._rates = rates
        self._named_sources = previous.memory.sources
        find_source = build_source_finder(
            self._named_sources, self._previous, self._build_reads({}, {}, frozenset()).find_source
        )
        self.readers: Mapping[Site, int] = count_readers(placed, holdings.sets, find_source)
        self.last_reads = update_last_reads(self.readers, previous.memory.last_reads, now)
        busy = self.last_reads.keys()
        self.mean_readers = smooth_readers(self.readers, previous.memory.mean_readers, busy)
        self.closed = find_closed_sources(
            self.readers, previous.memory.closed_sources, policy.max_readers_per_source
        )
        self._reads = self._build_reads(self.readers, self.mean_readers, self.closed, self.last_reads.keys())
        self.sets = CycleSets(holdings, self._queues, self._reads, self.readers, now)

    @property
    def memory(self) -> ReadMemory:
        """Return the values that keep the reads of the next cycle steady."""
        return ReadMemory(
            self.mean_readers, self.closed, self.read_stocks, self.last_reads, self._named_sources
        )

    @property
    def lacks_rates(self) -> bool:
        """Return True if no rate between two sites is known."""
        return self._reads.lacks_rates

    def _build_reads(
        self,
        readers: Mapping[Site, int],
        mean_readers: Mapping[Site, float],
        closed: AbstractSet[Site],
        busy: AbstractSet[Site] = frozenset(),
    ) -> Reads:
        policy = self._policy
        return Reads(
            self._holdings,
            self._rates,
            readers,
            mean_readers=mean_readers,
            closed=closed,
            busy=busy,
            portion=policy.portion,
            now=self._now,
        )

    def estimate_sites(self) -> Estimates:
        """Return the estimates of all sites."""
        queues = {key: self._estimate_queue(one) for key, one in self._holdings.sets.items()}
        sites = {site: self._estimate_site(site, queues) for site in self._holdings.sites}
        made = Estimates(self._load.as_of + self._policy.valid, sites)
        self._named_sources = self._named_sources.update(made, self._previous, to_unix(self._now))
        return made

    def _estimate_queue(self, one: DatasetSet) -> tuple[int, Site | None] | None:
        """Return the class of the queue seconds of *one*, and its site; None: its data is nowhere."""
        cpus = self._cpus.get(one.key, 1.0)
        least = self._policy.reaction.total_seconds() if one.key in self._cpus else 0.0
        return self.sets.estimate_queue(one, cpus, self._previous_queue(one.key), least)

    def _previous_queue(self, key: SetKey) -> int | None:
        sites = self._previous.sites.values() if self._previous else ()
        return next((site.by_key[key].queue_seconds for site in sites if key in site.by_key), None)

    def _estimate_site(
        self, site: Site, queues: Mapping[SetKey, tuple[int, Site | None] | None]
    ) -> SiteEstimates:
        before = self._previous.sites.get(site, SiteEstimates()) if self._previous else None
        by_key = {}
        trends: dict[SetKey, ReadTrend] = {}
        for key, one in self._holdings.sets.items():
            queue = queues[key]
            if queue is None:
                continue
            read = self._reads.read(one, site)
            if read is None:
                continue
            old = before.by_key.get(key) if before else None
            old_read = old.read_seconds if old else None
            calm_read = None if read.mean_seconds is None else to_class(read.mean_seconds, old_read)
            trends[key] = ReadTrend(calm_read, read.mean_seconds, read.link_seconds, read.is_quiet)
            by_key[key] = self.sets.build_estimate(read, queue, old_read)
        own_seconds = self._queues.own_seconds(site)
        own_class = to_class(own_seconds, before.own_queue_seconds if before else None)
        made = SiteEstimates(by_key, own_class, self._queues.describe(site))
        stock = self._read_stocks.get(site, ReadStock())
        made, self.read_stocks[site] = limit_read_changes(made, trends, before, stock)
        return made

    # jobs

    def _find_key(self, jobs: IdleJobs | RunningJobs) -> SetKey | None:
        """Return the key of the jobs' set; None for jobs without data."""
        return None if jobs.key is None else SetKey(jobs.key)

    def _schedd_loads(self) -> Iterator[tuple[str, ScheddLoad]]:
        for schedd, load in sorted(self._load.schedds.items()):
            if isinstance(load, ScheddLoad):
                yield schedd, load

    def _place_running_jobs(self) -> Iterator[PlacedJobs]:
        queried_at = to_unix(self._load.as_of)
        for schedd, load in self._schedd_loads():
            for jobs in load.running:
                key = self._find_key(jobs)
                one = self._holdings.sets.get(key) if key else None
                place = "none" if key is None else "elsewhere"
                if one is not None and jobs.site in one.homes:
                    place = "beside"
                yield PlacedJobs(schedd, jobs, key, place, queried_at, load.clock_ahead)

    def _build_queues(
        self, placed: list[PlacedJobs], default_run_seconds: float
    ) -> tuple[SiteQueues, dict[SetKey, float]]:
        """Return the queues of the sites, and the mean cores of each set's idle jobs."""
        work, cpus = self._collect_work()
        busy: dict[Site, list[tuple[float, float]]] = {}
        run_seconds: dict[Site, list[float]] = {}
        for each in placed:
            if each.jobs.site is None or each.jobs.is_leaving:
                continue
            cores = each.jobs.cpus
            remaining = self._run_times.remaining(each, self._read_seconds(each))
            busy.setdefault(each.jobs.site, []).extend((seconds, cores) for seconds in remaining)
            count = len(remaining)
            total = run_seconds.setdefault(each.jobs.site, [0.0, 0.0])
            total[0] += count * self._run_times.expect(each.jobs, each.key)
            total[1] += count
        means = {site: total / max(1.0, count) for site, (total, count) in run_seconds.items()}
        return SiteQueues(self._load.slots, work, busy, means, default_run_seconds), cpus

    def _read_seconds(self, placed: PlacedJobs) -> float:
        """Return the seconds that running jobs read, as the last estimate for them said; 0 without one."""
        before = self._previous.sites.get(placed.jobs.site) if self._previous and placed.jobs.site else None
        old = before.by_key.get(SetKey(placed.key or "")) if before else None
        return float(old.read_seconds or 0) if old else 0.0

    def _collect_work(self) -> tuple[list[QueuedWork], dict[SetKey, float]]:
        """Return the idle jobs by set, and the mean cores of each set's idle jobs."""
        sums: dict[SetKey, list[float]] = {}
        for _, load in self._schedd_loads():
            for jobs in load.idle:
                key = self._find_key(jobs)
                if key is None or key not in self._holdings.sets:
                    continue
                cores = jobs.job_count * jobs.cpus
                total = sums.setdefault(key, [0.0, 0.0, 0.0])
                total[0] += jobs.job_count
                total[1] += cores
                total[2] += cores * self._run_times.expect(jobs, key)
        work = [QueuedWork(self._holdings.sets[key].homes, *total) for key, total in sums.items()]
        return work, {key: total[1] / total[0] for key, total in sums.items()}


_QUERY = "the query of jobs and slots"
_ESTIMATE = "the estimates"
MAX_WAIT: Final = timedelta(seconds=3)
"""The longest time that the query of the demand waits for the query of the load."""


class Estimator:
    """Estimates of each cycle, made from the last load of the pool and the last estimates.

    The query of the load has its own thread. A query that takes long delays no cycle: the cycles use the
    last complete load until it is too old. A schedd that does not answer counts with its last answer until
    then. No failure stops a cycle; the cycle has no estimates instead.

    Args:
        loads: the load of the pool; None if the daemon does not query schedds.
        get_rates: returns the transfer rates as of now; None if there are none.
        policy: the settings.
        bugs: counts and logs exceptions that no part should raise.
        last: the last estimation of the daemon before its restart.
        threads: run the query of the load.
    """

    def __init__(
        self,
        loads: PoolLoads | None = None,
        get_rates: Callable[[], RateLookup | None] = lambda: None,
        policy: EstimatePolicy | None = None,
        bugs: BugReporter | None = None,
        last: Estimation | None = None,
        threads: Threads = THREADS,
    ) -> None:
        self._threads = threads
        self._loads = loads
        self._get_rates = get_rates
        self._policy = policy or EstimatePolicy()
        self._bugs = bugs or BugReporter()
        self._lock = threading.Lock()
        self._query: Future[None] | None = None
        self._load: PoolLoad | None = None
        self._load_oldest_at: datetime | None = None
        self._failure: str | None = None
        self._answers: dict[str, tuple[datetime, ScheddLoad]] = {}
        self.last = last or Estimation()

    def begin_query(self) -> None:
        """Begin to query the load in another thread, unless the last query still runs."""
        if self._loads is None or not self._policy.is_enabled:
            return
        with self._lock:
            if self._query is None or self._query.done():
                loads = self._loads
                self._query = self._threads.start("load", lambda: self._read(loads))

    def await_query(self, timeout: timedelta = MAX_WAIT) -> None:
        """Wait for the query that runs, but not longer than *timeout*."""
        with self._lock:
            query = self._query
        if query is not None:
            self._threads.wait([query], timeout)

    def _read(self, loads: PoolLoads) -> None:
        """Store the load, or the reason why it is not complete; any thread may call this."""
        load = None
        try:
            load = self._with_last_answers(loads.read_load())
            failure = load.unseen_reason
        except PoolError as error:
            failure = str(error)
        except BaseException as error:  # noqa: BLE001 - a bug in this query must not stop the daemon
            failure = self._bugs.report(_QUERY, error)
        else:
            self._bugs.mark_resolved(_QUERY)
        with self._lock:
            self._failure = failure
            if load is not None and failure is None:
                self._load = load
                self._load_oldest_at = min((at for at, _ in self._answers.values()), default=load.as_of)

    def _with_last_answers(self, load: PoolLoad) -> PoolLoad:
        """Return *load* with the last answer, if it is new enough, of each schedd that did not answer now."""
        oldest = load.as_of - self._policy.max_load_age
        schedds = load.schedds
        known = {name: (at, last) for name, (at, last) in self._answers.items() if at >= oldest}
        known |= {name: (load.as_of, one) for name, one in schedds.items() if isinstance(one, ScheddLoad)}
        self._answers = {name: known[name] for name in schedds if name in known}
        return replace(load, schedds={**schedds, **{name: one for name, (_, one) in self._answers.items()}})

    def make(self, snapshot: Snapshot, demand: Demand, now: datetime) -> Estimates | None:
        """Return the estimates of the cycle at *now*, else the own queues, or None; ``last`` says why."""
        try:
            load = self._find_load(now)
            made = estimate(snapshot, demand, load, self._get_rates(), self.last, now, self._policy)
            self.last = replace(made, load=load if isinstance(load, PoolLoad) else None)
            self._bugs.mark_resolved(_ESTIMATE)
        except Exception as error:  # noqa: BLE001 - a bug here must not stop the cycle
            self.last = Estimation(None, self._bugs.report(_ESTIMATE, error))
        return self.last.estimates or self.last.queues

    def _find_load(self, now: datetime) -> PoolLoad | str | None:
        """Return the last complete load if it is new enough; else the failure of the last query."""
        if self._loads is None:
            return "the daemon does not query the schedds ([demand] ask_schedds)"
        with self._lock:
            load, failure, oldest_at = self._load, self._failure, self._load_oldest_at
        is_fresh = oldest_at is not None and now - oldest_at <= self._policy.max_load_age
        if load is not None and (failure is None or is_fresh):
            return load
        return failure
