"""Run times of jobs, and the datasets that sites hold for them.

Run times: the seconds that a job is expected to run, from the user or from earlier jobs.

The daemon learns run times from the running jobs of successive queries: a job that one query has, and the
next has not, ended between the two. Run times of jobs beside their data and of jobs that read from elsewhere
are kept apart, because the latter include the reading.

Holdings: the datasets on disk at each site, and the bytes of a set that a job at a site lacks.

The results of one cycle are the start of the next: only sites whose facts changed are read again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from statistics import fmean, median
from typing import Final

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.model import (
    DatasetState,
    Demand,
    Did,
    Fact,
    Site,
    SiteFacts,
    Snapshot,
    Unseen,
    to_unix,
)
from hydrator.domain.ports import IdleJobs, PoolLoad, RunningJobs
from hydrator.reconcile.snapshot.memory import TimestampedRows

MAX_SAMPLES: Final = 50
"""Ended jobs that are remembered for each place, and there for each set, for each run and for each user."""
MAX_GROUPS: Final = 5_000
"""Groups that are remembered; the ones without a new sample for the longest time are forgotten."""
OVERDUE_SHARE: Final = 0.1
"""A job that has run longer than expected is expected to run this share of its age longer."""
MAX_RUN_SECONDS: Final = 100 * 86_400

Place = str
PLACES: Final = frozenset({"beside", "elsewhere", "none"})
"""``beside``: the job's site has all its data; ``elsewhere``; ``none``: the job names no datasets."""
RunGroup = tuple[str, str, Place]
"""``key`` and the key, ``run`` and the run, ``user`` and the user, or ``pool`` and ``""``; then the place."""


@dataclass(frozen=True, slots=True)
class PlacedJobs:
    """Running jobs of one schedd, the key of their set (None if it is unknown), and their place.

    ``now`` is the time of the query, in Unix seconds. The starts of the jobs have the schedd's clock, which
    is ``clock_ahead`` seconds ahead of ours.
    """

    schedd: str
    jobs: RunningJobs
    key: str | None
    place: Place
    now: int
    clock_ahead: int = 0

    @property
    def ages(self) -> list[int]:
        """Return the seconds since the start of each job."""
        return [max(0, self.now + self.clock_ahead - start) for start in self.jobs.started_at]


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The run times of ended jobs, in seconds, newest last, and the running jobs of the last query."""

    samples: Mapping[RunGroup, tuple[float, ...]] = field(default_factory=dict)
    queried_at: int | None = None
    running: Mapping[tuple[str, RunningJobs], PlacedJobs] = field(default_factory=dict, repr=False)

    def update(self, load: PoolLoad, placed: Sequence[PlacedJobs]) -> "RunHistory":
        """Return the history after *load*, whose running jobs are *placed*.

        A job ended half-way between the two queries, as far as the daemon knows.
        """
        now = to_unix(load.as_of)
        if self.queried_at is not None and now <= self.queried_at:
            return self
        running = _group_running(placed)
        samples = dict(self.samples)
        if self.queried_at is not None:
            middle = (now + self.queried_at) / 2
            for identity, before in self.running.items():
                if isinstance(load.schedds.get(before.schedd, Unseen("")), Unseen):
                    continue
                after = running.get(identity)
                left = Counter(before.jobs.started_at) - Counter(after.jobs.started_at if after else ())
                ended_at = middle + before.clock_ahead
                _add_samples(samples, before, [max(1.0, ended_at - start) for start in left.elements()])
        for group in list(samples)[: max(0, len(samples) - MAX_GROUPS)]:
            del samples[group]
        return RunHistory(samples, now, running)


def _group_running(placed: Iterable[PlacedJobs]) -> dict[tuple[str, RunningJobs], PlacedJobs]:
    """Return the jobs by what stays the same while they run: a slot may begin to leave meanwhile."""
    running: dict[tuple[str, RunningJobs], PlacedJobs] = {}
    for each in placed:
        identity = each.schedd, replace(each.jobs, started_at=(), is_leaving=False)
        before = running[identity].jobs.started_at if identity in running else ()
        running[identity] = replace(each, jobs=replace(each.jobs, started_at=before + each.jobs.started_at))
    return running


def _add_samples(
    samples: dict[RunGroup, tuple[float, ...]], jobs: PlacedJobs, run_seconds: Sequence[float]
) -> None:
    if not run_seconds:
        return
    for group in _groups(jobs.key, jobs.jobs.run, jobs.jobs.user, jobs.place):
        samples[group] = (*samples.pop(group, ()), *run_seconds)[-MAX_SAMPLES:]


def _groups(key: str | None, run: str | None, user: str, place: Place) -> Iterator[RunGroup]:
    if key is not None:
        yield "key", key, place
    if run is not None:  # two users may give their runs the same name
        yield "run", f"{user} {run}", place
    yield "user", user, place
    yield "pool", "", place


class RunTimes:
    """The expected run times of jobs beside their data.

    Args:
        history: the run times of ended jobs.
        placed: the running jobs.
        default_seconds: the expected run time if nothing is known.
    """

    def __init__(self, history: RunHistory, placed: Iterable[PlacedJobs], default_seconds: float) -> None:
        self._history = history
        self._default_seconds = default_seconds
        self._mean_ages = _mean_ages(placed)
        self._learned: dict[tuple[str | None, str | None, str], tuple[float, Place]] = {}

    def expect(self, jobs: IdleJobs | RunningJobs, key: str | None) -> float:
        """Return the expected run time of *jobs* of the set *key*, in seconds, 1 or more.

        Use the user's ``DataLocalityExpectedSeconds``; else the median of ended jobs of the same set, of the
        same run, of the same user, or of the pool; else twice the mean age of running jobs, since a running
        job is half done on average; else the default.
        """
        if jobs.expected_seconds is not None and jobs.expected_seconds > 0:
            return float(min(jobs.expected_seconds, MAX_RUN_SECONDS))
        return self._learned_run(key, jobs)[0]

    def _learned_run(self, key: str | None, jobs: IdleJobs | RunningJobs) -> tuple[float, Place]:
        """Return the learned run time of *jobs*, and the place of the earlier jobs that show it."""
        question = key, jobs.run, jobs.user
        if question not in self._learned:
            seconds, place = self._learn(*question)
            self._learned[question] = min(max(1.0, seconds), MAX_RUN_SECONDS), place
        return self._learned[question]

    def _learn(self, key: str | None, run: str | None, user: str) -> tuple[float, Place]:
        places = ("beside", "elsewhere") if key is not None else ("none",)
        by_place = [list(_groups(key, run, user, place)) for place in places]
        groups = [group for level in zip(*by_place, strict=True) for group in level]
        for group in groups:
            if group in self._history.samples:
                # jobs that still run were left out of the median: do not let short jobs hide long ones
                learned = median(self._history.samples[group])
                return max(learned, self._mean_ages.get(group, 0.0)), group[2]
        for group in groups:
            if group in self._mean_ages:
                return 2 * self._mean_ages[group], group[2]
        return self._default_seconds, "beside"

    def remaining(self, placed: PlacedJobs, read_seconds: float = 0.0) -> list[float]:
        """Return the expected remaining seconds of each of the jobs in *placed*.

        Jobs that are not beside their data run *read_seconds* longer, unless the run times of earlier jobs
        include the reading.
        """
        jobs, key = placed.jobs, placed.key
        expected = self.expect(jobs, key)
        if jobs.expected_seconds is not None or self._learned_run(key, jobs)[1] != "elsewhere":
            expected += read_seconds
        return [max(expected - age, age * OVERDUE_SHARE) for age in placed.ages]


def _mean_ages(placed: Iterable[PlacedJobs]) -> dict[RunGroup, float]:
    ages: dict[RunGroup, list[float]] = {}
    for each in placed:
        values = each.ages
        for group in _groups(each.key, each.jobs.run, each.jobs.user, each.place):
            ages.setdefault(group, []).extend(values)
    return {group: fmean(values) for group, values in ages.items() if values}


Holders = tuple[Site, ...]
"""The sites that have the same datasets on disk, sorted."""


@dataclass(frozen=True)
class SiteHoldings:
    """The datasets of one site: on disk, on disk in part (with the fraction), on their way (with the ETA)."""

    rows: Mapping[Did, Fact] = field(repr=False, compare=False)
    available: frozenset[Did] = frozenset()
    fractions: Mapping[Did, float] = field(default_factory=dict)
    ready_at: Mapping[Did, datetime] = field(default_factory=dict)

    @cached_property
    def partial_dids(self) -> frozenset[Did]:
        return frozenset(self.fractions)


@dataclass(frozen=True)
class DatasetSet:
    """One demanded set: its datasets, the sites with all of them, and the bytes by the sites that have them.

    ``bytes_by_holders`` is None if the size of a dataset is unknown. The bytes that are on disk at no site
    are under ``()``.
    """

    key: SetKey
    dids: frozenset[Did]
    homes: frozenset[Site]
    bytes_by_holders: Mapping[Holders, int] | None


@dataclass(frozen=True)
class Holdings:
    """The holdings of all sites, and the demanded sets by key."""

    sites: Mapping[Site, SiteHoldings]
    sets: Mapping[SetKey, DatasetSet]
    sizes: Mapping[Did, int] = field(repr=False)

    def missing_bytes(self, one: DatasetSet, site: Site) -> dict[Holders, float]:
        """Return the bytes of *one* that are not on disk at *site*, by the sites that have them.

        The sizes of all datasets of *one* must be known.
        """
        sizes = one.bytes_by_holders or {}
        missing = {holders: float(size) for holders, size in sizes.items() if site not in holders}
        here = self.sites[site]
        if missing and not here.partial_dids.isdisjoint(one.dids):
            there = sum(here.fractions[did] * self.sizes[did] for did in here.partial_dids & one.dids)
            total = sum(missing.values())
            share = max(0.0, 1 - there / total) if total else 1.0
            missing = {holders: size * share for holders, size in missing.items()}
        return missing

    def ready_at(self, one: DatasetSet, site: Site) -> datetime | None:
        """Return the time when all datasets of *one* will be on disk at *site*; None if it is unknown."""
        here = self.sites[site]
        if not here.ready_at:
            return None
        missing = one.dids - here.available
        if not missing or not missing <= here.ready_at.keys():
            return None
        return max(here.ready_at[did] for did in missing)


def read_holdings(snapshot: Snapshot, demand: Demand, previous: Holdings | None = None) -> Holdings:
    """Return the holdings of *snapshot* and the sets of *demand*.

    Datasets whose DIDs differ in letter case only are in no set, and neither are sets whose key is withheld.
    """
    before = previous.sites if previous else {}
    sites = {site: _read_site(facts, before.get(site)) for site, facts in snapshot.sites.items()}
    is_unchanged = (
        previous is not None
        and previous.sizes is snapshot.bytes_total
        and sites.keys() == before.keys()
        and all(site is before[name] for name, site in sites.items())
    )
    known = previous.sets if previous and is_unchanged else {}
    colliding_dids = frozenset(did for clash in snapshot.case_collisions for did in clash)
    sets: dict[SetKey, DatasetSet] = {}
    for entry in demand.entries:
        key = entry.key
        if key is None or key in sets or not colliding_dids.isdisjoint(entry.dids):
            continue
        one, dids = known.get(key), frozenset(entry.dids)
        is_known = one is not None and one.dids == dids
        sets[key] = one if one and is_known else build_set(key, dids, sites, snapshot.bytes_total)
    return Holdings(sites, sets, snapshot.bytes_total)


def _read_site(facts: SiteFacts, previous: SiteHoldings | None) -> SiteHoldings:
    rows = facts.facts.rows if isinstance(facts.facts, TimestampedRows) else facts.facts
    if previous is not None and previous.rows is rows:
        return previous
    available = frozenset(did for did, fact in rows.items() if fact.state is DatasetState.AVAILABLE)
    others = [(did, fact) for did, fact in rows.items() if did not in available]
    fractions = {
        did: min(1.0, fact.fraction)
        for did, fact in others
        if fact.fraction and fact.state in {DatasetState.PARTIAL, DatasetState.STAGING}
    }
    ready_at = {
        did: fact.provenance.ready_at
        for did, fact in others
        if fact.state is DatasetState.STAGING and fact.provenance.ready_at
    }
    return SiteHoldings(rows, available, fractions, ready_at)


def build_set(
    key: SetKey, dids: frozenset[Did], sites: Mapping[Site, SiteHoldings], sizes: Mapping[Did, int]
) -> DatasetSet:
    """Build the set of *dids* from the holdings of all sites and the sizes of the datasets."""
    whole, some = [], []
    for site, here in sites.items():
        count = len(dids & here.available)
        if count == len(dids):
            whole.append(site)
        elif count:
            some.append(site)
    homes = frozenset(whole)
    if any(did not in sizes for did in dids):
        return DatasetSet(key, dids, homes, None)
    if not some:
        return DatasetSet(key, dids, homes, {tuple(sorted(whole)): sum(sizes[did] for did in dids)})
    groups: dict[Holders, int] = {}
    for did in dids:
        holders = tuple(sorted((*whole, *(site for site in some if did in sites[site].available))))
        groups[holders] = groups.get(holders, 0) + sizes[did]
    return DatasetSet(key, dids, homes, groups)
