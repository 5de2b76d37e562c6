"""Completion estimates: the progress of moving datasets from poll to poll, and the time of completion."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from hydrator.domain.model import Did, Replica, ReplicaState

from .poll import Dids, Replicas

Sample = tuple[datetime, float]
"""The time of an observation, and the fraction (0 to 1) that had arrived."""

_MIN_SAMPLES = 3
_MAX_SAMPLES = 60
_MAX_REMAINING = timedelta(days=365)
_ROUNDING_SECONDS = 10  # rounding: small changes of an estimate do not change the ad


class ProgressTracker:
    """Samples of the fraction of each moving replica; they are deleted when the replica stops moving."""

    def __init__(self) -> None:
        self._samples: dict[tuple[Did, str], deque[Sample]] = {}

    def add_estimates(self, replicas: Iterable[Replica], now: datetime) -> Replicas:
        """Return the *replicas* of one dataset; moving replicas get an estimate of their completion time."""
        return tuple(self._add_estimate(replica, now) for replica in replicas)

    def forget_all_but(self, dids: Dids) -> None:
        """Forget the samples of all datasets but *dids*."""
        self._samples = {key: each for key, each in self._samples.items() if key[0] in dids}

    def _add_estimate(self, replica: Replica, now: datetime) -> Replica:
        key = (replica.did, replica.storage)
        if replica.state is not ReplicaState.INCOMING or replica.fraction is None:
            self._samples.pop(key, None)
            return replica
        samples = self._samples.setdefault(key, deque(maxlen=_MAX_SAMPLES))
        if samples and replica.fraction < samples[-1][1]:
            samples.clear()  # files went bad, or the dataset grew: older samples are no longer valid
        samples.append((now, replica.fraction))
        estimate = estimate_completion(tuple(samples))
        if estimate is None:
            return replica
        ready_at, error = estimate
        rounded = ready_at - timedelta(seconds=ready_at.timestamp() % _ROUNDING_SECONDS)
        return replace(replica, provenance=replace(replica.provenance, ready_at=rounded, ready_error=error))


def estimate_completion(samples: Sequence[Sample]) -> tuple[datetime, timedelta] | None:
    """Estimate the time when the fraction on disk reaches 1, and one standard error of that time.

    The estimate is a straight line through *samples*, by least squares. The error combines the errors of
    the line's slope and height; it is 0 if all samples are on the line.

    Args:
        samples: times and fractions, in order of time.

    Returns:
        None if there are fewer than three samples, if the fraction does not grow, or if the estimated time
        is more than a year after the last sample.
    """
    if len(samples) < _MIN_SAMPLES or samples[-1][1] <= samples[0][1]:
        return None
    start = samples[0][0]
    times = [(at - start).total_seconds() for at, _ in samples]
    shares = [share for _, share in samples]
    count, mean_time, mean_share = len(samples), sum(times) / len(times), sum(shares) / len(shares)
    spread = sum((time - mean_time) ** 2 for time in times)
    if spread <= 0:
        return None
    slope = sum((t - mean_time) * (s - mean_share) for t, s in zip(times, shares, strict=True)) / spread
    if slope <= 0:
        return None
    ready = mean_time + (1 - mean_share) / slope
    if ready - times[-1] > _MAX_REMAINING.total_seconds():
        return None
    residual = sum(
        (s - mean_share - slope * (t - mean_time)) ** 2 for t, s in zip(times, shares, strict=True)
    )
    noise = residual / (count - 2)
    error = (noise / slope**2 * (1 / count + (ready - mean_time) ** 2 / spread)) ** 0.5
    at = start + timedelta(seconds=max(ready, times[-1]))
    return at, timedelta(seconds=min(error, _MAX_REMAINING.total_seconds()))
