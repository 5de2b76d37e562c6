"""Predictions: the estimates that held when a job was submitted or began, against what then happened.

The daemon remembers the changes of each estimate in memory only, so a restart forgets them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeVar

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.ads.estimates import Estimates
from hydrator.domain.model import Site

from .changes import UNIT_SECONDS

MAX_CHANGES: Final = 20
"""Changes of one number that are remembered, the newest."""
MAX_NUMBERS: Final = 50_000
"""Numbers that are remembered, those of the newest sets."""
COUNTED_AFTER_SECONDS: Final = 60
"""Time from a job's submission to the prediction of its wait: by then the daemon has counted the job."""
MAX_RESOLUTION_SECONDS: Final = 60.0
"""The largest resolution. Shorter times than the resolution count as the resolution."""

_Key = TypeVar("_Key")
_Changes = tuple[tuple[int, int | None], ...]
"""The times (Unix s) from which a number held, and the number in seconds; oldest first."""


class EstimateKind(StrEnum):
    """The number that is compared."""

    QUEUE = "queue"
    READ = "read"


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A job that ran once and ended: its set, its site, its times in Unix seconds, and its read.

    ``read_seconds`` is the measured time of its reads from other sites; None if it was not measured.
    """

    key: SetKey
    site: Site
    submitted_at: int
    started_at: int
    read_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Predictions:
    """The last changes of the queue seconds of each set, and of its read seconds at each site.

    Times below ``resolution_seconds`` count as this many: the daemon cannot predict them more exactly.
    """

    queues: Mapping[SetKey, _Changes] = field(default_factory=dict)
    reads: Mapping[tuple[SetKey, Site], _Changes] = field(default_factory=dict)
    resolution_seconds: float = MAX_RESOLUTION_SECONDS

    def update(self, estimates: Estimates, at: int) -> "Predictions":
        """Return the predictions with *estimates*, which hold from *at* (Unix s)."""
        queues, reads = dict(self.queues), dict(self.reads)
        for site, one in estimates.sites.items():
            for key, each in one.by_key.items():
                _add(queues, key, at, each.queue_seconds)
                _add(reads, (key, site), at, each.read_seconds)
        return replace(self, queues=queues, reads=reads)

    def with_resolution(self, query_seconds: float) -> "Predictions":
        """Return the predictions with the resolution of a daemon that queries the pool so often.

        Estimates know a job up to *query_seconds* after its submission, and the smallest class is
        UNIT_SECONDS.
        """
        resolution = min(MAX_RESOLUTION_SECONDS, query_seconds + UNIT_SECONDS)
        return replace(self, resolution_seconds=resolution)

    def compare(self, run: EndedRun) -> tuple[EstimateKind, float] | None:
        """Return the factor, 1 or more, between prediction and reality; None if they cannot be compared.

        For a job beside its data compare the wait; for any other job with a measured read, the read.
        """
        read = _find(self.reads.get((run.key, run.site), ()), run.started_at)
        if read == 0:
            queue = _find(self.queues.get(run.key, ()), run.submitted_at + COUNTED_AFTER_SECONDS)
            if queue is None:
                return None
            return EstimateKind.QUEUE, self._factor(queue, run.started_at - run.submitted_at)
        if read is None or run.read_seconds is None:
            return None
        return EstimateKind.READ, self._factor(read, run.read_seconds)

    def _factor(self, predicted: float, real: float) -> float:
        less, more = sorted((max(predicted, self.resolution_seconds), max(real, self.resolution_seconds)))
        return more / less

    def compare_all(self, runs: Iterable[EndedRun]) -> Iterator[tuple[EstimateKind, float]]:
        """Yield the factor of each run that can be compared."""
        for run in runs:
            if (factor := self.compare(run)) is not None:
                yield factor


def _add(changes: dict[_Key, _Changes], key: _Key, at: int, seconds: int | None) -> None:
    before = changes.get(key, ())
    if before and before[-1][1] == seconds:
        return
    if not before and len(changes) >= MAX_NUMBERS:
        del changes[next(iter(changes))]
    changes[key] = (*before, (at, seconds))[-MAX_CHANGES:]


def _find(changes: _Changes, time: int) -> int | None:
    return next((seconds for at, seconds in reversed(changes) if at <= time), None)
