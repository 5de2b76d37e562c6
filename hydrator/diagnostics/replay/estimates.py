"""Estimates in the model: seconds to read data from elsewhere, and seconds to wait for a slot beside it.

The daemon computes the estimates of the ads in ``hydrator/reconcile/estimates``. The model uses the parts of
that package that do not depend on the facts of catalogues and schedds: classes, readers, closed sources, the
stock of changes, and the division of jobs among several homes. The other rules are the same, on the state of
the model; tests/unit/diagnostics/replay/test_estimates.py compares both. The model is coarser here:

- the readers of a source are those that read now; the daemon concludes them from the ages of jobs;
- the run time of a job is what the user has stated, else the mean of the user's last runs beside their data;
- groups of sets (lines.SetGroup) have one estimate.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.estimates import SetEstimate, SiteEstimates
from hydrator.domain.model import Site
from hydrator.reconcile.estimates.changes import (
    CHANGES_PER_CYCLE,
    MAX_CHANGES,
    ReadStock,
    ReadTrend,
    limit_read_changes,
)
from hydrator.reconcile.estimates.classes import to_class
from hydrator.reconcile.estimates.queue import DIGITS, QueuedWork, assign_work
from hydrator.reconcile.estimates.readers import QUIET, find_closed_sources, smooth_readers
from hydrator.reconcile.estimates.run_times import MAX_SAMPLES, OVERDUE_SHARE, Place

from .lines import AdBatch, ExpectedRun, JobLine, SetGroup, SiteState, UserState
from .model import PoolRules

_EXACT_CORES = 100
"""With more busy cores at a site, their ends are spread evenly over a run time."""
_MAX_PERIODS = 1000
_ReadPlan = list[list[tuple[Site, float, float]]]
"""The parts of a read: for each of its sources the site, the seconds of a lone read, and the rate."""


_POOL = ""


@dataclass(slots=True)
class _RunMean:
    """The moving mean of the last run times, in seconds, and their number up to MAX_SAMPLES."""

    seconds: float = 0.0
    count: int = 0

    def add(self, seconds: float) -> None:
        self.count = min(MAX_SAMPLES, self.count + 1)
        self.seconds += (seconds - self.seconds) / self.count


@dataclass(slots=True)
class _Readers:
    """The readers of one cycle by source: now, and as a mean of the last cycles; and the closed sources.

    ``last_reads`` has the times, in seconds, when the sources that are not quiet last had readers.
    """

    counts: dict[Site, int] = field(default_factory=dict)
    means: dict[Site, float] = field(default_factory=dict)
    closed: frozenset[Site] = frozenset()
    last_reads: dict[Site, float] = field(default_factory=dict)


class ModelEstimates:
    """The estimates of the model, with the values that keep them steady from cycle to cycle.

    Args:
        sites: the sites of the model.
        rules: the pool's rules.
        run_seconds: the run time that the daemon expects before the first job has ended.
    """

    def __init__(self, sites: Sequence[SiteState], rules: PoolRules, run_seconds: float) -> None:
        self._sites, self._rules, self._first_run_seconds = sites, rules, run_seconds
        self._runs: dict[tuple[str, Place], _RunMean] = {}
        self._learned: dict[tuple[str, bool], tuple[float, Place]] = {}
        self._readers = _Readers()
        self._published: list[SiteEstimates | None] = [None] * len(sites)
        self._read_stocks = [ReadStock()] * len(sites)
        self._plans: dict[tuple[int, int], _ReadPlan | None] = {}
        self._published_at = 0.0

    # run times

    def expect(self, line: JobLine) -> float:
        """Return the computing time that the daemon expects of jobs of *line*, in seconds, 1 or more."""
        if line.expected_seconds is not None:
            return max(1.0, line.expected_seconds)
        return self._learn(line)[0]

    def _learn(self, line: JobLine) -> tuple[float, Place]:
        """Return the mean of earlier runs like those of *line*, in seconds, and the place of these runs."""
        question = line.user.name, bool(line.group.typical.inputs)
        if question not in self._learned:
            self._learned[question] = self._find_mean(*question)
        return self._learned[question]

    def _find_mean(self, user: str, has_data: bool) -> tuple[float, Place]:
        places = ("beside", "elsewhere") if has_data else ("none",)
        for name in (user, _POOL):
            for place in places:
                if (runs := self._runs.get((name, place))) is not None:
                    return max(1.0, runs.seconds), place
        return max(1.0, self._first_run_seconds), places[0]

    def begin_run(self, line: JobLine, site: SiteState, now: float) -> ExpectedRun:
        """Count a job of *line* that starts at *site*, and return what the daemon expects of it."""
        seconds, place = self.expect(line), "elsewhere"
        if not line.group.typical.inputs:
            place = "none"
        elif site.index in line.group.homes:
            place = "beside"
        end = now + seconds
        published = self._published[site.index]
        if published and place == "elsewhere" and (one := published.by_key.get(line.group.key)):
            is_read_included = line.expected_seconds is None and self._learn(line)[1] == "elsewhere"
            end += 0 if is_read_included else one.read_seconds or 0
        run = ExpectedRun(end, seconds, place)
        for _ in range(line.cores):
            insort(site.expected_ends, run.end)
        site.expected_runs += seconds * line.cores
        return run

    def end_run(self, run: ExpectedRun, line: JobLine, site: SiteState, run_seconds: float) -> None:
        """Count the end of a job of *line* after *run_seconds*."""
        first = bisect_left(site.expected_ends, run.end)
        del site.expected_ends[first : first + line.cores]
        site.expected_runs -= run.seconds * line.cores
        self._learned.clear()
        for name in (line.user.name, _POOL):
            self._runs.setdefault((name, run.place), _RunMean()).add(run_seconds)

    # one cycle

    def publish(
        self, now: float, users: Iterable[UserState], groups: Iterable[SetGroup], *, are_sets_new: bool
    ) -> AdBatch:
        """Return the ads of one cycle of the daemon.

        Args:
            now: the time of the cycle.
            users: the users with waiting jobs.
            groups: the groups with a demanded set.
            are_sets_new: other sets are demanded than in the last cycle, so every ad is rewritten.
        """
        queues = _QueueTimes(self._sites, self._collect_work(users), now, self._first_run_seconds)
        self._update_readers(now)
        skipped = round((now - self._published_at) / self._rules.publish_seconds) - 1
        self._published_at = now
        ordered = list(groups)
        by_group = {group.key: self._queue_class(group, queues) for group in ordered}
        estimates = []
        for site in self._sites:
            before = self._published[site.index]
            stock = self._read_stocks[site.index]
            left = min(MAX_CHANGES, stock.changes_left + max(0, skipped) * CHANGES_PER_CYCLE)
            made, trends = self._estimate_site(site, ordered, by_group, queues)
            made, self._read_stocks[site.index] = limit_read_changes(
                made, trends, None if are_sets_new else before, replace(stock, changes_left=left)
            )
            self._published[site.index] = made
            estimates.append(made)
        until = now + self._rules.estimates.valid.total_seconds()
        return AdBatch(now, now + self._rules.max_age_seconds, until, estimates)

    def _collect_work(self, users: Iterable[UserState]) -> list[QueuedWork]:
        """Return the waiting jobs with data, by their homes."""
        sums: dict[tuple[int, ...], list[float]] = {}
        for user in users:
            for line in user.lines:
                homes = () if line.is_free else line.group.fitting_homes
                if homes:
                    count = len(line.waiting)
                    total = sums.setdefault(homes, [0.0, 0.0, 0.0])
                    total[0] += count
                    total[1] += count * line.cores
                    total[2] += count * line.cores * self.expect(line)
        names = [site.site.name for site in self._sites]
        return [QueuedWork(frozenset(names[home] for home in homes), *total) for homes, total in sums.items()]

    def _update_readers(self, now: float) -> None:
        counts = {
            site.site.name: site.link.reader_count
            for site in self._sites
            if site.link and site.link.reader_count
        }
        closed = find_closed_sources(
            counts, self._readers.closed, self._rules.estimates.max_readers_per_source
        )
        before = self._readers
        quiet = QUIET.total_seconds()
        last_reads = {source: at for source, at in before.last_reads.items() if now - at < quiet}
        last_reads |= dict.fromkeys(counts, now)
        means = smooth_readers(counts, before.means, last_reads.keys())
        self._readers = _Readers(counts, means, closed, last_reads)

    def _queue_class(self, group: SetGroup, queues: "_QueueTimes") -> int:
        seconds = min((queues.seconds(home, group.cores) for home in group.homes), default=math.inf)
        seconds = max(seconds, self._rules.estimates.reaction.total_seconds())
        published = (one.by_key.get(group.key) for one in self._published if one)
        return to_class(seconds, next((one.queue_seconds for one in published if one), None))

    def _estimate_site(
        self,
        site: SiteState,
        groups: Sequence[SetGroup],
        queues: Mapping[SetKey, int],
        all_queues: "_QueueTimes",
    ) -> tuple[SiteEstimates, dict[SetKey, ReadTrend]]:
        """Return the estimates for *site*, and the trends of its reads.

        Groups without waiting jobs keep their last estimates: their sets stay in the ads for some hours.
        """
        before = self._published[site.index]
        known = before.by_key if before else {}
        by_key = dict(known)
        links = self._read_stocks[site.index].link_seconds
        trends = {
            key: _build_resting_trend(each.read_seconds, links.get(key))
            for key, each in known.items()
            if key not in queues
        }
        for group in groups:
            plan = self._find_plan(group, site)
            if plan is None:
                continue
            key, old = group.key, known.get(group.key)
            seconds, mean_seconds, link_seconds, is_quiet, source = self._read(plan)
            old_read = old.read_seconds if old else None
            read = None if seconds is None else to_class(seconds, old_read)
            calm_read = read
            if mean_seconds != seconds:
                calm_read = None if mean_seconds is None else to_class(mean_seconds, old_read)
            trends[key] = ReadTrend(calm_read, mean_seconds, link_seconds, is_quiet)
            is_same = old is not None and old.read_seconds == read and old.queue_seconds == queues[key]
            by_key[key] = old if old is not None and is_same else SetEstimate(read, queues[key], source)
        own = to_class(all_queues.own_seconds(site.index), before.own_queue_seconds if before else None)
        return SiteEstimates(by_key, own), trends

    # reads

    def _find_plan(self, group: SetGroup, site: SiteState) -> _ReadPlan | None:
        """Return the reads of a job of *group* at *site*; None if a rate is unknown."""
        question = group.index, site.index
        if question not in self._plans:
            self._plans[question] = self._build_plan(group, site.site.name)
        return self._plans[question]

    def _build_plan(self, group: SetGroup, destination: Site) -> _ReadPlan | None:
        parts: dict[frozenset[Site], int] = {}
        for data in group.typical.inputs:
            if destination not in data.holders:
                parts[data.holders] = parts.get(data.holders, 0) + data.byte_count
        plan = []
        for holders, size in parts.items():
            rates = ((one, one.site.rate_to(destination)) for one in self._sites if one.site.name in holders)
            sources = [(one.site.name, size / rate, rate) for one, rate in rates if rate]
            if not sources:
                return None
            if size:
                plan.append(sources)
        return plan

    def _read(self, plan: _ReadPlan) -> tuple[float | None, float | None, float | None, bool, Site | None]:
        """Return the seconds of a read with the present, the mean and no readers; if it is quiet; its source.

        The seconds are None if a source is closed. :class:`Read` explains them.
        """
        readers, others = self._readers, 1 + self._rules.estimates.portion / 2
        seconds = mean_seconds = link_seconds = 0.0
        is_quiet, main_source, most = True, None, 0.0
        for sources in plan:
            source, lone, rate = sources[0] if len(sources) == 1 else max(sources, key=self._preference)
            if source in readers.closed:
                return None, None, None, False, None
            if lone * rate > most:
                main_source, most = source, lone * rate
            link_seconds += min(each[1] for each in sources)
            is_quiet = is_quiet and source not in readers.last_reads
            seconds += lone * (readers.counts.get(source, 0) + others)
            mean_seconds += lone * (readers.means.get(source, 0.0) + others)
        return seconds, mean_seconds, link_seconds, is_quiet, main_source

    def _preference(self, one: tuple[Site, float, float]) -> tuple[bool, float, Site]:
        source, _, rate = one
        sharers = self._readers.counts.get(source, 0) + 1 + self._rules.estimates.portion / 2
        return source not in self._readers.closed, rate / sharers, source


@lru_cache(maxsize=4096)
def _build_resting_trend(read_seconds: int | None, link_seconds: float | None) -> ReadTrend:
    """Return the trend of a read that no waiting job asks for; most cycles have the same ones."""
    return ReadTrend(read_seconds, read_seconds, link_seconds)


class _QueueTimes:
    """The queues of the sites in one cycle, as ``hydrator/reconcile/estimates/queue.py`` computes them.

    Args:
        sites: the sites of the model.
        work: the waiting jobs with data.
        now: the time of the cycle.
        default_run_seconds: the run time at a site without busy cores.
    """

    def __init__(
        self, sites: Sequence[SiteState], work: Iterable[QueuedWork], now: float, default_run_seconds: float
    ) -> None:
        self._sites, self._now, self._default_run_seconds = sites, now, default_run_seconds
        with_slots = {
            site.site.name: (site.site.cores / self._typical_run(site), float(site.free_total))
            for site in sites
            if site.site.cores
        }
        self._work = assign_work(work, with_slots)
        self._seconds: dict[tuple[int, int], float] = {}

    def own_seconds(self, site: int) -> float:
        """Return the seconds until *site* has a slot for more than its own waiting jobs; 0 without them."""
        work = self._work.get(self._sites[site].site.name)
        return self.seconds(site, math.ceil(round(work.cores / work.job_count, DIGITS))) if work else 0.0

    def seconds(self, site: int, cores: int) -> float:
        """Return the seconds until one more job of *cores* starts at *site*; infinity if it cannot."""
        question = site, max(1, cores)
        if question not in self._seconds:
            self._seconds[question] = self._compute(self._sites[site], question[1])
        return self._seconds[question]

    def _compute(self, site: SiteState, cores: int) -> float:
        pool_site = site.site
        total = pool_site.machine_cores // cores * cores * pool_site.machine_count
        if not total:
            return math.inf
        free = site.free_total
        if cores > 1:
            free = sum(each // cores * cores for each in site.free_cores.values())
        work = self._work.get(pool_site.name)
        needed = (work.cores if work else 0.0) + cores
        if needed <= free:
            return 0.0
        run_seconds = max(1.0, work.core_seconds / work.cores) if work else self._typical_run(site)
        return _find_start(math.ceil(needed), free, site.expected_ends, self._now, run_seconds)

    def _typical_run(self, site: SiteState) -> float:
        busy = len(site.expected_ends)
        return max(1.0, site.expected_runs / busy if busy else self._default_run_seconds)


def _find_start(needed: int, free: int, ends: Sequence[float], now: float, run_seconds: float) -> float:
    """Return the seconds until *needed* cores have come free, of *free* ones and those that end at *ends*.

    Each core comes free again after *run_seconds*. In the period p, which begins at p * run_seconds, each
    core that was free before its end comes free once.
    """
    shortest = OVERDUE_SHARE * run_seconds
    period, left = 0, needed
    while True:
        limit = now + (period + 1) * run_seconds
        count = free + bisect_left(ends, limit)
        if left <= count or period == _MAX_PERIODS:
            break
        if count == free + len(ends):  # all cores take part from now on
            if not count:
                return math.inf
            more = (left - 1) // count
            period, left = period + more, left - more * count
            break
        period, left = period + 1, left - count
    if not period:
        return 0.0 if left <= free else max(ends[left - free - 1] - now, shortest)
    if count > _EXACT_CORES or left > count:
        return (period + left / max(1, count)) * run_seconds
    remaining = [max(end - now, shortest) for end in ends[: count - free]]
    offsets = sorted([0.0] * free + [each - each // run_seconds * run_seconds for each in remaining])
    return period * run_seconds + offsets[left - 1]
