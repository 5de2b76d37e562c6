"""How fast datasets arrive, from poll to poll, and when they will be whole."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from hydrator.domain.model import Did, Replica, ReplicaState

from .eta import Sample, estimate_completion

_MAX_SAMPLES = 60
_ROUNDING_SECONDS = 10  # seconds: an estimate that moves less says nothing new


class ProgressTracker:
    """Remembers what was there of all that moves; forgets it when it no longer does."""

    def __init__(self) -> None:
        self._samples: dict[tuple[Did, str], deque[Sample]] = {}

    def add_estimates(self, replicas: Iterable[Replica], now: datetime) -> tuple[Replica, ...]:
        """*replicas* of one dataset as seen *at*, those that move with the time they are ready."""
        return tuple(self._add_estimate(replica, now) for replica in replicas)

    def forget_all_but(self, dids: Iterable[Did]) -> None:
        """Forget all but *dids*."""
        kept = frozenset(dids)
        for key in [key for key in self._samples if key[0] not in kept]:
            del self._samples[key]

    def _add_estimate(self, replica: Replica, now: datetime) -> Replica:
        key = (replica.did, replica.storage)
        if replica.state is not ReplicaState.INCOMING or replica.fraction is None:
            self._samples.pop(key, None)
            return replica
        samples = self._samples.setdefault(key, deque(maxlen=_MAX_SAMPLES))
        if samples and replica.fraction < samples[-1][1]:
            samples.clear()  # files went bad, or it grew: what was observed no longer tells
        samples.append((now, replica.fraction))
        found = estimate_completion(tuple(samples))
        if found is None:
            return replica
        ready_at, error = found
        rounded = ready_at - timedelta(seconds=ready_at.timestamp() % _ROUNDING_SECONDS)
        return replace(replica, provenance=replace(replica.provenance, ready_at=rounded, ready_error=error))
