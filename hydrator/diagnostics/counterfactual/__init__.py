"""Counterfactual: the bytes that ended jobs did not read over the network, and the seconds that they gained.

The comparison is with a stock negotiator, which knows nothing of data. It is a model, so its result is an
estimate. A job counts if its data, the size of some of it and its site are known, and if the model has a
site for the job:

- *missing(job, site)* is the sum of the bytes of the job's datasets that were not on disk at the site when
  the job started, by the site's ad of that time. At the site where the job ran, a dataset that the job
  reported as missing counts too. Datasets of unknown size are left out.
- A job does not count if the daemon has deleted the ad of a site at its start: the site would be missing.
- *p(job, site)* is the probability that a stock negotiator would have started the job at the site. Only
  sites with an ad at that time count, so the probabilities of these sites add up to 1.
- The job's part is the expected value of *missing* over *p*, minus *missing* at the site where the job ran.
  The part of a job that read over the network what another site had can be negative.

``bytes_not_moved`` is the sum of the parts. If a stock negotiator placed the jobs, each part has the expected
value 0. With one site each part is 0. The sum is never more than the bytes of all jobs.

``seconds_gained`` is the same sum with seconds instead of bytes: the missing bytes divided by the best rate
from a site that had them. A dataset that no site had takes equally long everywhere, so it is left out. A job
counts if all these rates are known. The rates are those of a link without other readers. Waits do not count.

The probabilities come from the first of these that is known, see :class:`PlacementBasis`. Those in
proportion to the slots are weighted by the slots' turnover in a full pool (turnover.py): beside the data
slots come free sooner, so more jobs start there. If the rates or the run times are unknown, or a day has
fewer than MIN_WEIGHT_JOBS jobs, all cores weigh the same, and the result is too high. In a pool that is
mostly empty, the weights make it too low.

The intervals are percentiles of a bootstrap over blocks. One block has the jobs of one user that started on
one day, because such jobs resemble each other. An interval contains that of the slots without weights, too.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeVar

from hydrator.domain.ads.estimates import RateLookup
from hydrator.domain.model import Did, Site

from ..outcomes import AdHistory, EndedJob, quantile
from .placement import Block, ComparedJobs, PlacedJob, SlotTotals, place_jobs, weight_slots

MIN_OTHER_JOBS: Final = 20
"""Minimum number of jobs without data that show where a stock negotiator places jobs."""
MIN_BLOCKS: Final = 5
"""Minimum number of blocks for an interval."""
_RESAMPLES: Final = 400
_MAX_BOOTSTRAP_STEPS: Final = 4_000_000
_SEED: Final = 15
_CONFIDENCE: Final = 0.95

_Drawn = TypeVar("_Drawn", bound=Hashable)


class PlacementBasis(StrEnum):
    """The source of the probabilities, best first."""

    SLOTS = "slots"
    """In proportion to the slots of the sites when the job started, weighted by their turnover if known."""
    JOBS_WITHOUT_DATA = "jobs_without_data"
    """As often as jobs without data ran at the sites."""
    JOBS_WITH_DATA = "jobs_with_data"
    """As often as jobs with data of other blocks ran at the sites, whatever data they wanted."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated value with its interval (95 %); the bounds are None with fewer than MIN_BLOCKS blocks."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """The result of the comparison; an estimate is None if no job counts for it."""

    bytes_not_moved: Estimate | None = None
    seconds_gained: Estimate | None = None
    job_counts: Mapping[PlacementBasis, int] = field(default_factory=dict)
    """The jobs that count, by the source of their probabilities."""
    left_out_count: int = 0
    """Jobs with datasets that started and do not count."""
    timed_count: int = 0
    """Jobs that count for the seconds."""
    block_count: int = 0
    lost_count: int = 0
    """Jobs that are left out because a site then had an ad that the daemon has deleted."""


def compare(
    jobs: Iterable[EndedJob],
    ad_history: AdHistory,
    sizes: Mapping[Did, int],
    slot_totals: SlotTotals,
    rates: RateLookup | None = None,
) -> Counterfactual:
    """Compare *jobs* with the same jobs under a stock negotiator.

    Args:
        jobs: ended jobs, with and without datasets.
        ad_history: the ads of all sites.
        sizes: bytes of datasets for which the job itself has no size.
        slot_totals: samples of the pool.
        rates: the rates between sites; without it no seconds are estimated.
    """
    return compare_placed(place_jobs(jobs, ad_history, sizes, slot_totals, rates))


def compare_placed(placed: ComparedJobs) -> Counterfactual:
    """Compare *placed* with the same jobs under a stock negotiator."""
    basis, others = PlacementBasis.JOBS_WITHOUT_DATA, placed.others
    if others.total() < MIN_OTHER_JOBS:
        basis, others = PlacementBasis.JOBS_WITH_DATA, Counter((job.block, job.site) for job in placed.jobs)
    summary = _summarize(placed.jobs, others, basis, placed.started_count)
    return replace(summary, lost_count=placed.lost_count)


def _summarize(
    placed: Sequence[PlacedJob],
    others: Mapping[tuple[Block, Site], int],
    basis: PlacementBasis,
    started_count: int,
) -> Counterfactual:
    weighted, plain = _SumPair(others, basis), _SumPair(others, basis)
    job_counts: Counter[PlacementBasis] = Counter()
    for job, turned in zip(placed, weight_slots(placed), strict=True):
        used = weighted.add(turned)
        if used is not None:
            job_counts[used] += 1
            plain.add(job)
    return Counterfactual(
        _cover(weighted.bytes.estimate(), plain.bytes.estimate()),
        _cover(weighted.seconds.estimate(), plain.seconds.estimate()),
        dict(job_counts),
        started_count - job_counts.total(),
        weighted.seconds.job_count,
        len(weighted.bytes.blocks),
    )


def _cover(estimate: Estimate | None, other: Estimate | None) -> Estimate | None:
    """Return *estimate* with an interval that contains that of *other*, too."""
    bounds = (estimate, other)
    lows = [each.low for each in bounds if each and each.low is not None]
    highs = [each.high for each in bounds if each and each.high is not None]
    return replace(estimate, low=min(lows), high=max(highs)) if estimate and lows and highs else estimate


class _SumPair:
    """The sums of the bytes and of the seconds, see :class:`_Sums`."""

    def __init__(self, others: Mapping[tuple[Block, Site], int], basis: PlacementBasis) -> None:
        self.bytes, self.seconds = _Sums(others, basis), _Sums(others, basis)

    def add(self, job: PlacedJob) -> PlacementBasis | None:
        """Add *job*; return the source of the probabilities, None if it does not count."""
        used = self.bytes.add(job, job.missing_bytes)
        if used is not None and (seconds := job.read_seconds) is not None:
            self.seconds.add(job, seconds)
        return used


class _Sums:
    """The sum of the jobs' parts, by block, so that a bootstrap can draw blocks again.

    Args:
        others: jobs by block and site, for jobs without a sample of the slots.
        basis: the kind of these jobs. A job with data must not be compared with its own block: in a bootstrap
            it would meet copies of itself.
    """

    def __init__(self, others: Mapping[tuple[Block, Site], int], basis: PlacementBasis) -> None:
        self._basis = basis
        self._excludes_own_block = basis is PlacementBasis.JOBS_WITH_DATA
        self._others: defaultdict[Block, dict[Site, int]] = defaultdict(dict)
        for (block, site), count in others.items():
            self._others[block][site] = count
        self._totals = _add_up(self._others, dict.fromkeys(self._others, 1))
        self._sampled: defaultdict[Block, float] = defaultdict(float)
        self._differences: defaultdict[Block, dict[frozenset[Site], dict[Site, float]]] = defaultdict(dict)
        """By block and set of sites: the sum, over the jobs, of a site's cost minus the own site's cost."""
        self.job_count = 0

    @property
    def blocks(self) -> frozenset[Block]:
        """The blocks of the jobs that count."""
        return frozenset(self._sampled.keys() | self._differences.keys())

    def add(self, job: PlacedJob, costs: Mapping[Site, float]) -> PlacementBasis | None:
        """Add *job* with its *costs* by site; return the source of the probabilities, if any."""
        own_cost = costs[job.site]
        slots = {site: job.slots.get(site, 0.0) for site in costs} if job.slots else {}
        if total := sum(slots.values()):
            part = sum(share * (costs[site] - own_cost) for site, share in slots.items()) / total
            self._sampled[job.block] += part
            self.job_count += 1
            return PlacementBasis.SLOTS
        if not sum(self._references(job.block, costs, self._totals, 1).values()):
            return None
        differences = self._differences[job.block].setdefault(frozenset(costs), dict.fromkeys(costs, 0.0))
        for site, cost in costs.items():
            differences[site] += cost - own_cost
        self.job_count += 1
        return self._basis

    def estimate(self) -> Estimate | None:
        """Return the sum and its interval; None without jobs."""
        if not self.job_count:
            return None
        drawable = sorted(self.blocks | self._others.keys())
        value = self._sum(dict.fromkeys(drawable, 1))
        if len(self.blocks) < MIN_BLOCKS:
            return Estimate(value)
        site_count = max(1, len(self._totals))
        count = max(100, min(_RESAMPLES, _MAX_BOOTSTRAP_STEPS // (len(drawable) * site_count)))
        return _bootstrap(value, drawable, self._sum, count)

    def _sum(self, weights: Mapping[Block, int]) -> float:
        """Return the sum with each block as often as *weights* says."""
        totals = _add_up(self._others, weights)
        result = sum(weights.get(block, 0) * part for block, part in self._sampled.items())
        for block, groups in self._differences.items():
            weight = weights.get(block, 0)
            for differences in groups.values() if weight else ():
                references = self._references(block, differences, totals, weight)
                if total := sum(references.values()):
                    part = sum(count * differences[site] for site, count in references.items()) / total
                    result += weight * part
        return result

    def _references(
        self, block: Block, sites: Iterable[Site], totals: Mapping[Site, int], weight: int
    ) -> dict[Site, int]:
        """Return the number of other jobs by site for a job of *block*, which was drawn *weight* times."""
        own = self._others.get(block, {}) if self._excludes_own_block else {}
        return {site: totals.get(site, 0) - weight * own.get(site, 0) for site in sites}


def estimate_sum(parts: Sequence[float]) -> Estimate:
    """Return the sum of *parts*, one of each block, with its interval if there are MIN_BLOCKS blocks."""
    if len(parts) < MIN_BLOCKS:
        return Estimate(sum(parts))

    def add_up(weights: Mapping[int, int]) -> float:
        return sum(parts[place] * weight for place, weight in weights.items())

    return _bootstrap(sum(parts), range(len(parts)), add_up, _RESAMPLES)


def _bootstrap(
    value: float, blocks: Sequence[_Drawn], add_up: Callable[[Mapping[_Drawn, int]], float], count: int
) -> Estimate:
    """Return *value* with the interval of *count* sums over blocks that are drawn from *blocks*."""
    generator = random.Random(_SEED)  # noqa: S311 - the same report twice has the same interval
    draws = (Counter(generator.choices(blocks, k=len(blocks))) for _ in range(count))
    sums = sorted(add_up(draw) for draw in draws)
    tail = (1 - _CONFIDENCE) / 2
    return Estimate(value, quantile(sums, tail), quantile(sums, 1 - tail))


def _add_up(counts: Mapping[Block, Mapping[Site, int]], weights: Mapping[Block, int]) -> Counter[Site]:
    totals: Counter[Site] = Counter()
    for block, weight in weights.items():
        for site, count in counts.get(block, {}).items():
            totals[site] += weight * count
    return totals
