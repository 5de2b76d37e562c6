"""The pool's schedds as Queues: each asked alone, so that one that hangs costs only its own answer."""

from collections.abc import Mapping

from hydrator.errors import PoolError
from hydrator.model import Queue, QueuedJobs, Unseen
from hydrator.ports import Clock

from .condor import CondorClient


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
