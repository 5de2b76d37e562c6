"""Switchback: compare the jobs of an experiment's active blocks with those of its observe-only blocks.

A job belongs to the block in which it last started, because the negotiator chose its site then. The first
part of each block is left out: its jobs have waited since the block before, and share slots and links with
the jobs of that block.

The intervals are percentiles of a bootstrap over pairs of blocks. The two blocks of a pair follow each
other, so a change of the load over days is in both. Jobs of one block resemble each other, so they are drawn
together.

Pure: values in, values out.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hydrator.domain.model import Did
from hydrator.reconcile.publish.experiment import Block, Experiment

from .counterfactual import Estimate
from .outcomes import AdHistory, EndedJob, JobOutcome, LocalityResult, determine_outcome, quantile

MIN_PAIRS: Final = 5
"""Minimum number of pairs of blocks for an interval."""
_RESAMPLES: Final = 400
_SEED: Final = 15
_CONFIDENCE: Final = 0.95


class LeftOut(StrEnum):
    """The reason why a job with datasets that started is in no arm."""

    OUTSIDE = "outside"  # it started before or after the experiment
    DROPPED = "dropped"  # it started in the first part of a block
    OTHER_AD = "other_ad"  # its site's ad did not follow the plan, for example because the daemon was down
    LOST_AD = "lost_ad"  # the daemon has deleted the ad that its site had at its start
    NO_AD = "no_ad"  # its site, or the ad of its site, is unknown
    NO_PAIR = "no_pair"  # the other block of the pair has no job


@dataclass(slots=True)
class Arm:
    """Sums over the jobs of one or more blocks.

    The bytes are those of datasets of known size. The waits, in seconds, are from the submission to the
    start, without jobs that started more than once.
    """

    jobs: int = 0
    local_jobs: int = 0
    bytes_at_site: int = 0
    bytes_elsewhere: int = 0
    waits: list[float] = field(default_factory=list)

    def add(self, outcome: JobOutcome) -> None:
        self.jobs += 1
        self.local_jobs += outcome.locality is LocalityResult.ALL
        self.bytes_at_site += outcome.bytes_at_site
        self.bytes_elsewhere += outcome.bytes_elsewhere
        job = outcome.job
        if job.wait_time is not None and job.first_started_at == job.last_started_at:
            self.waits.append(job.wait_time.total_seconds())

    def measures(self) -> dict[str, float]:
        """Return the measures that are known, by name (:data:`MEASURES`)."""
        all_bytes = self.bytes_at_site + self.bytes_elsewhere
        found: dict[str, float] = {}
        if self.jobs:
            found["share_of_jobs"] = self.local_jobs / self.jobs
            found["bytes_moved_per_job"] = self.bytes_elsewhere / self.jobs
        if all_bytes:
            found["share_of_bytes"] = self.bytes_at_site / all_bytes
        if self.waits:
            found["mean_wait"] = sum(self.waits) / len(self.waits)
            found["p95_wait"] = quantile(sorted(self.waits), 0.95) or 0.0
        return found


MEASURES: Final = ("share_of_jobs", "share_of_bytes", "bytes_moved_per_job", "mean_wait", "p95_wait")


@dataclass(frozen=True, slots=True)
class Switchback:
    """The result: both arms, and for each measure the active arm minus the observe-only arm.

    A difference has no interval if fewer than MIN_PAIRS pairs count; it is absent if an arm does not have it.
    """

    active: Arm
    observed: Arm
    differences: Mapping[str, Estimate]
    pair_count: int
    left_out: Mapping[LeftOut, int]


_Pairs = Mapping[int, Mapping[bool, Arm]]
"""By pair, the sums of the observe-only block (True) and of the active block (False)."""


def compare_blocks(
    jobs: Iterable[EndedJob], ad_history: AdHistory, sizes: Mapping[Did, int], experiment: Experiment
) -> Switchback:
    """Compare the two kinds of blocks of *experiment*.

    Args:
        jobs: ended jobs; those that name no datasets, or never started, do not count.
        ad_history: the ads of the sites during the experiment.
        sizes: bytes of datasets for which a job itself has no size.
        experiment: the plan; blocks that have not begun have no jobs.
    """
    left_out: Counter[LeftOut] = Counter()
    arms: defaultdict[int, dict[bool, Arm]] = defaultdict(dict)
    for job in jobs:
        if job.datasets is None or job.last_started_at is None:
            continue
        block = experiment.block_at(job.last_started_at)
        reason = _reason_to_leave_out(job, block, ad_history, experiment)
        if reason or block is None:
            left_out[reason or LeftOut.OUTSIDE] += 1
            continue
        arm = arms[block.pair].setdefault(block.is_observing, Arm())
        arm.add(determine_outcome(job, ad_history, sizes))
    pairs = {pair: blocks for pair, blocks in sorted(arms.items()) if len(blocks) == 2}
    left_out[LeftOut.NO_PAIR] = sum(
        arm.jobs for pair, blocks in arms.items() if pair not in pairs for arm in blocks.values()
    )
    every = list(pairs)
    return Switchback(
        _pool(pairs, every, is_observing=False),
        _pool(pairs, every, is_observing=True),
        _differences(pairs),
        len(pairs),
        {reason: left_out[reason] for reason in LeftOut},
    )


def _reason_to_leave_out(
    job: EndedJob, block: Block | None, ad_history: AdHistory, experiment: Experiment
) -> LeftOut | None:
    start = job.last_started_at
    if block is None or start is None:
        return LeftOut.OUTSIDE
    if start - block.started_at < experiment.drop_time:
        return LeftOut.DROPPED
    is_observing = ad_history.is_observing(job.site, start) if job.site else None
    if is_observing is None:
        return LeftOut.LOST_AD if job.site and ad_history.has_lost(start, job.site) else LeftOut.NO_AD
    return None if is_observing is block.is_observing else LeftOut.OTHER_AD


def _pool(pairs: _Pairs, drawn: Sequence[int], *, is_observing: bool) -> Arm:
    """Return the sum of the blocks of one arm over the *drawn* pairs."""
    total = Arm()
    for pair in drawn:
        one = pairs[pair][is_observing]
        total.jobs += one.jobs
        total.local_jobs += one.local_jobs
        total.bytes_at_site += one.bytes_at_site
        total.bytes_elsewhere += one.bytes_elsewhere
        total.waits += one.waits
    return total


def _subtract(pairs: _Pairs, drawn: Sequence[int]) -> dict[str, float]:
    active = _pool(pairs, drawn, is_observing=False).measures()
    observed = _pool(pairs, drawn, is_observing=True).measures()
    return {name: active[name] - observed[name] for name in MEASURES if name in active and name in observed}


def _differences(pairs: _Pairs) -> dict[str, Estimate]:
    every = list(pairs)
    values = _subtract(pairs, every)
    if len(every) < MIN_PAIRS:
        return {name: Estimate(value, None, None) for name, value in values.items()}
    generator = random.Random(_SEED)  # noqa: S311 - the same report twice has the same interval
    drawn: dict[str, list[float]] = {name: [] for name in values}
    for _ in range(_RESAMPLES):
        for name, value in _subtract(pairs, generator.choices(every, k=len(every))).items():
            drawn[name].append(value)
    tail = (1 - _CONFIDENCE) / 2
    return {
        name: Estimate(value, quantile(sorted(drawn[name]), tail), quantile(sorted(drawn[name]), 1 - tail))
        for name, value in values.items()
    }
