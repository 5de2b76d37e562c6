"""Jobs of the counterfactual with their costs at each site, and the slots of the pool when they started."""

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Final

from hydrator.domain.ads.estimates import RateLookup
from hydrator.domain.model import Did, Site

from ..outcomes import AdHistory, EndedJob, JobOutcome, LocalityResult, determine_outcome
from .turnover import count_starts

SlotTotals = Mapping[datetime, Mapping[Site, float]]
"""Samples of the pool: by time, the cores of each site's slots, or the slots if no cores are known."""

MAX_SAMPLE_AGE: Final = timedelta(hours=1)
"""Maximum age of a sample of the slots at the start of a job."""
MIN_WEIGHT_JOBS: Final = 20
"""Minimum number of a day's jobs that show its mix of reads. Of one job all slots would read the one link."""
Block = tuple[str, date]
"""A user and a day."""


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job with its costs, by site that had an ad: the missing bytes, and the seconds to read them."""

    block: Block
    site: Site
    missing_bytes: Mapping[Site, float]
    reads: Mapping[Site, Mapping[Site, float]] | None
    """By site, the seconds of the reads by source on idle links; None if a rate is unknown."""
    run_seconds: float | None
    slots: Mapping[Site, float] | None
    """The slots by site when the job started; None without a sample."""

    @property
    def read_seconds(self) -> dict[Site, float] | None:
        """Return the seconds of all reads by site; None if a rate is unknown."""
        if self.reads is None:
            return None
        return {site: sum(seconds.values()) for site, seconds in self.reads.items()}


@dataclass(slots=True)
class ComparedJobs:
    """Jobs for one comparison; later batches can be added, because one batch does not show the pool's mix."""

    jobs: list[PlacedJob] = field(default_factory=list)
    others: Counter[tuple[Block, Site]] = field(default_factory=Counter)
    """Jobs without data, by block and site."""
    started_count: int = 0
    """Jobs with datasets that started, with those that are not in ``jobs``."""
    lost_count: int = 0

    def extend(self, later: "ComparedJobs") -> None:
        """Add the jobs of *later*."""
        self.jobs += later.jobs
        self.others += later.others
        self.started_count += later.started_count
        self.lost_count += later.lost_count


def place_jobs(
    jobs: Iterable[EndedJob],
    ad_history: AdHistory,
    sizes: Mapping[Did, int],
    slot_totals: SlotTotals,
    rates: RateLookup | None,
) -> ComparedJobs:
    """Return *jobs* with their costs at each site; the arguments are those of the comparison."""
    slots = SlotSamples(slot_totals)
    placed = ComparedJobs()
    for job in jobs:
        if job.last_started_at is None:
            continue
        if job.datasets is None:
            if job.site:
                placed.others[(job.owner, job.last_started_at.date()), job.site] += 1
            continue
        placed.started_count += 1
        if ad_history.has_lost(job.last_started_at):
            placed.lost_count += 1
            continue
        outcome = determine_outcome(job, ad_history, sizes)
        has_size = outcome.datasets_without_size < len(job.datasets)
        if outcome.locality is not LocalityResult.UNKNOWN and has_size:
            placed.jobs.append(place(outcome, ad_history, sizes, slots, rates))
    return placed


def place(
    outcome: JobOutcome,
    ad_history: AdHistory,
    sizes: Mapping[Did, int],
    slots: "SlotSamples",
    rates: RateLookup | None,
) -> PlacedJob:
    """Return the costs of the job of *outcome* at each site that had an ad when the job started."""
    job, time, own_site = outcome.job, outcome.job.last_started_at, outcome.job.site
    if time is None or own_site is None:
        raise ValueError("a job with a known outcome has a site and a start")
    wanted = {did: job.sizes.get(did, sizes.get(did)) for did in job.datasets or ()}
    known_sizes = {did: size for did, size in wanted.items() if size is not None}
    available = {
        site: dids
        for site in ad_history.sites
        if (dids := ad_history.available_datasets(site, time)) is not None
    }
    missing = {site: {did for did in known_sizes if did not in dids} for site, dids in available.items()}
    missing[own_site] = known_sizes.keys() - outcome.local_dids
    holders = {did: [site for site in available if did not in missing[site]] for did in known_sizes}
    return PlacedJob(
        (job.owner, time.date()),
        own_site,
        {site: float(sum(known_sizes[did] for did in dids)) for site, dids in missing.items()},
        _find_reads(missing, known_sizes, holders, rates) if rates else None,
        job.run_seconds,
        slots.find(time),
    )


def _find_reads(
    missing: Mapping[Site, Iterable[Did]],
    sizes: Mapping[Did, int],
    holders: Mapping[Did, Sequence[Site]],
    rates: RateLookup,
) -> dict[Site, dict[Site, float]] | None:
    """Return the seconds of the reads by site and source, the fastest; None if a rate is unknown."""
    reads: dict[Site, dict[Site, float]] = {site: {} for site in missing}
    for site, dids in missing.items():
        for did in dids:
            known = [
                (rate.bytes_per_second, holder)
                for holder in holders[did]
                if (rate := rates.rate(holder, site)) and rate.bytes_per_second > 0
            ]
            fastest = max((rate for rate, _ in known), default=0.0)
            sources = [source for rate, source in known if rate == fastest]
            for source in sources:
                part = sizes[did] / fastest / len(sources)
                reads[site][source] = reads[site].get(source, 0.0) + part
            if holders[did] and not known:
                return None
    return reads


class SlotSamples:
    """The samples of the pool, by time."""

    def __init__(self, totals: SlotTotals) -> None:
        self._totals = totals
        self._times = sorted(totals)

    def find(self, time: datetime) -> Mapping[Site, float] | None:
        """Return the last sample before *time*; None if it is older than MAX_SAMPLE_AGE."""
        place = bisect.bisect_right(self._times, time) - 1
        if place < 0 or time - self._times[place] > MAX_SAMPLE_AGE:
            return None
        return self._totals[self._times[place]]


def weight_slots(placed: Sequence[PlacedJob]) -> list[PlacedJob]:
    """Return *placed* with the slots weighted by their turnover: job starts per slot, for each day's jobs.

    A day with fewer than MIN_WEIGHT_JOBS jobs has no weights.
    """
    by_day: defaultdict[date, list[PlacedJob]] = defaultdict(list)
    for job in placed:
        if job.slots and job.reads is not None and job.run_seconds is not None:
            by_day[job.block[1]].append(job)
    weights = {day: _find_weights(jobs) for day, jobs in by_day.items() if len(jobs) >= MIN_WEIGHT_JOBS}
    return [
        replace(job, slots={site: count * known.get(site, 1.0) for site, count in job.slots.items()})
        if job.slots and (known := weights.get(job.block[1]))
        else job
        for job in placed
    ]


def _find_weights(jobs: Sequence[PlacedJob]) -> dict[Site, float]:
    """Return the job starts per slot and second, by site, in a pool that is full of jobs like *jobs*."""
    slots: defaultdict[Site, float] = defaultdict(float)
    reads: defaultdict[Site, defaultdict[Site, float]] = defaultdict(lambda: defaultdict(float))
    compute_seconds = 0.0
    for job in jobs:
        own_read = (job.read_seconds or {}).get(job.site, 0.0)
        compute_seconds += max(1.0, (job.run_seconds or 0.0) - own_read) / len(jobs)
        for site, seconds in (job.reads or {}).items():
            slots[site] += (job.slots or {}).get(site, 0.0) / len(jobs)
            for source, lone in seconds.items():
                reads[site][source] += lone / len(jobs)
    known = {site: count for site, count in slots.items() if count > 0}
    return {site: found / known[site] for site, found in count_starts(known, compute_seconds, reads).items()}
