"""The switchback experiment: blocks of time in which jobs ignore, or use, where their data is.

The blocks are in pairs. Each pair has one observe-only and one active block, and a hash of the seed and of
the pair's number says which comes first. So each arm has the same number of blocks, and a trend over days
favours neither. Pure.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hydrator.domain.ads.contract import OBSERVE_ATTRIBUTE
from hydrator.domain.model import Site, from_unix, to_unix
from hydrator.reconcile.ads.drafts import Draft


@dataclass(frozen=True, slots=True)
class ExperimentPolicy:
    """The plan of an experiment in the configuration.

    ``seed`` None: the time of the start is the seed. ``start`` None: the experiment starts at once.
    """

    block_time: timedelta = timedelta(hours=6)
    total_time: timedelta = timedelta(days=14)
    drop_time: timedelta = timedelta(hours=1)
    seed: int | None = None
    start: datetime | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A period of an experiment; ``number`` counts from 0, and ``pair`` is half of it, rounded down."""

    number: int
    started_at: datetime
    ends_at: datetime
    is_observing: bool

    @property
    def pair(self) -> int:
        return self.number // 2


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment that began, with a plan that never changes; ``stopped_at`` if the operator ended it.

    ``block_count`` is even. The first ``drop_time`` of each block does not count in the report.
    """

    seed: int
    started_at: datetime
    block_time: timedelta
    block_count: int
    drop_time: timedelta
    stopped_at: datetime | None = None

    @property
    def ends_at(self) -> datetime:
        """Return the end of the last block, or the time at which the operator stopped the experiment."""
        planned = self.started_at + self.block_count * self.block_time
        return min(planned, self.stopped_at) if self.stopped_at else planned

    def block_at(self, time: datetime) -> Block | None:
        """Return the block at *time*; None before the first block and after the end."""
        if not self.started_at <= time < self.ends_at:
            return None
        number = (time - self.started_at) // self.block_time
        start = self.started_at + number * self.block_time
        end = min(start + self.block_time, self.ends_at)
        return Block(number, start, end, self._is_first_observing(number // 2) is (number % 2 == 0))

    def is_observing(self, time: datetime) -> bool:
        """Return True if an observe-only block contains *time*."""
        block = self.block_at(time)
        return block is not None and block.is_observing

    def describe(self, time: datetime) -> str:
        """Return a sentence about the block at *time*, or about the start or the end of the experiment."""
        block = self.block_at(time)
        if block:
            kind = "observe-only" if block.is_observing else "active"
            until = f"{block.ends_at:%Y-%m-%d %H:%M} UTC"
            return f"experiment: block {block.number + 1} of {self.block_count} ({kind}) until {until}"
        if self.stopped_at and self.stopped_at <= self.started_at:
            return f"experiment: it was stopped at {self.stopped_at:%Y-%m-%d %H:%M} UTC, before it began"
        if time < self.started_at:
            return f"experiment: it begins at {self.started_at:%Y-%m-%d %H:%M} UTC"
        return f"experiment: it ended at {self.ends_at:%Y-%m-%d %H:%M} UTC; hydrator report --experiment"

    def _is_first_observing(self, pair: int) -> bool:
        return bool(hashlib.sha256(f"{self.seed}:{pair}".encode()).digest()[0] & 1)


def advance_experiment(
    experiment: Experiment | None, policy: ExperimentPolicy | None, now: datetime
) -> Experiment | None:
    """Return the experiment at *now*: start one that the *policy* asks for, or stop the running one.

    A running or finished experiment keeps its plan, whatever the policy says now. Without a policy it is
    stopped, and a later policy starts a new one.
    """
    if policy is None:
        return replace(experiment, stopped_at=now) if experiment and not experiment.stopped_at else experiment
    if experiment and not experiment.stopped_at:
        return experiment
    start = from_unix(to_unix(policy.start or now))
    return Experiment(
        to_unix(start) if policy.seed is None else policy.seed,
        start,
        policy.block_time,
        max(2, policy.total_time // policy.block_time // 2 * 2),
        policy.drop_time,
    )


def mark_observed(drafts: Mapping[Site, Draft]) -> dict[Site, Draft]:
    """Return *drafts* for an observe-only block: each has DataLocalityObserve before its version."""
    return {
        site: replace(draft, content=(*draft.content[:-1], (OBSERVE_ATTRIBUTE, "true"), draft.content[-1]))
        for site, draft in drafts.items()
    }
