"""When will what moves be complete? From observed progress, with the error of that."""

from collections.abc import Sequence
from datetime import datetime, timedelta

Sample = tuple[datetime, float]
"""When it was looked at, and the fraction (0 to 1) that was there."""

_MIN_SAMPLES = 3
_MAX_REMAINING = timedelta(days=365)


def estimate_completion(samples: Sequence[Sample]) -> tuple[datetime, timedelta] | None:
    """When the fraction reaches 1 if it goes on as observed, and one standard error of that time.

    A straight line through *samples*, by least squares. The error is that of the
    slope and of the line's start together; of a perfect line it is 0.

    Args:
        samples: in order of time.

    Returns:
        None for fewer than three samples, where nothing grows, or beyond a year from the last sample.
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
    left_over = sum(
        (s - mean_share - slope * (t - mean_time)) ** 2 for t, s in zip(times, shares, strict=True)
    )
    noise = left_over / (count - 2)
    error = (noise / slope**2 * (1 / count + (ready - mean_time) ** 2 / spread)) ** 0.5
    at = start + timedelta(seconds=max(ready, times[-1]))
    return at, timedelta(seconds=min(error, _MAX_REMAINING.total_seconds()))
