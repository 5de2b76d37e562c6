"""The pool's schedds as Queues: each asked alone, so that one that hangs costs only its own answer."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from hydrator.errors import PoolError
from hydrator.model import Queue, QueuedJobs, Unseen
from hydrator.ports import Clock

from .condor import CondorClient

OVERLAP = timedelta(minutes=5)
"""The schedd's clock may differ from ours; what is heard twice counts once."""


class ScheddQueues:
    """Keeps ``Queues``: the schedds that the collector knows, each with the client's time limit."""

    def __init__(self, client: CondorClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def wanted(self) -> Mapping[str, Queue | Unseen]:
        return {str(ad["Name"]): self._queue(str(ad["Name"])) for ad in self._client.schedds()}

    def _queue(self, schedd: str) -> Queue | Unseen:
        at = self._clock()
        try:
            rows = self._client.queued_datasets(schedd)
        except PoolError as exc:
            return Unseen(exc.reason)
        return Queue(at, tuple(QueuedJobs(datasets, jobs) for datasets, jobs in rows))


class ScheddMisses:
    """Keeps ``Misses``: each schedd is asked for its queue, and for jobs that ended since it last answered.

    Its *client* is its own, and ends with it: an answer may take long, and no cycle waits for it.
    """

    def __init__(self, client: CondorClient, clock: Clock, *, first: timedelta = timedelta(hours=1)) -> None:
        self._client = client
        self._clock = clock
        self._begin = clock() - first
        self._answered: dict[str, datetime] = {}

    def reported(self) -> Mapping[str, Sequence[Sequence[str]] | Unseen]:
        """See :class:`hydrator.ports.Misses`."""
        return {str(ad["Name"]): self._of(str(ad["Name"])) for ad in self._client.schedds()}

    def close(self) -> None:
        """End the client, also under a question."""
        self._client.close()

    def _of(self, schedd: str) -> Sequence[Sequence[str]] | Unseen:
        now = self._clock()
        since = self._answered.get(schedd, self._begin) - OVERLAP
        try:
            found = self._client.reported_misses(schedd, since)
        except PoolError as exc:
            return Unseen(exc.reason)
        self._answered[schedd] = now
        return found
