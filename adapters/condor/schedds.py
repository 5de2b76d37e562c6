"""The pool's schedds as Queues: each asked alone, so that one that hangs costs only its own answer."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from hydrator.domain.model import Queue, QueuedJobs, Unseen
from hydrator.domain.ports import Clock, Ended

from . import CondorClient
from .schedd_rounds import Rounds

MOST_AT_ONCE = 20_000
"""Ended jobs that one answer of a schedd may have: some 10 MB."""
OVERLAP = timedelta(minutes=5)
"""The schedd's clock may differ from ours; what is heard twice counts once."""


class ScheddQueues:
    """Keeps ``Queues``: the schedds that the collector knows, each with the client's time limit.

    Its *client* is none that a cycle waits for; with *more*, which makes another one, schedds that are
    silent are asked several at a time.
    """

    def __init__(
        self, client: CondorClient, clock: Clock, more: Callable[[], CondorClient] | None = None
    ) -> None:
        self._client = client
        self._rounds = Rounds(client, more)
        self._clock = clock

    def wanted(self) -> Mapping[str, Queue | Unseen]:
        """See :class:`hydrator.domain.ports.Queues`."""
        return self._rounds.ask(self._queue)

    def close(self) -> None:
        """End the clients, also under a question."""
        self._rounds.close()
        self._client.close()

    def _queue(self, client: CondorClient, schedd: str) -> Queue:
        at = self._clock()
        rows = client.queued_datasets(schedd)
        return Queue(at, tuple(QueuedJobs(datasets, jobs) for datasets, jobs in rows))


class ScheddMisses:
    """Keeps ``Misses``: each schedd is asked for its queue, and for jobs that ended since it last answered.

    Its *client* is none that a cycle waits for, and ends with it: an answer may take long.
    """

    def __init__(self, client: CondorClient, clock: Clock, *, first: timedelta = timedelta(hours=1)) -> None:
        self._client = client
        self._rounds = Rounds(client)
        self._clock = clock
        self._begin = clock() - first
        self._answered: dict[str, datetime] = {}

    def reported(self) -> Mapping[str, Sequence[Sequence[str]] | Unseen]:
        """See :class:`hydrator.domain.ports.Misses`."""
        return self._rounds.ask(self._of)

    def close(self) -> None:
        """End the client, also under a question."""
        self._client.close()

    def _of(self, client: CondorClient, schedd: str) -> Sequence[Sequence[str]]:
        now = self._clock()
        since = self._answered.get(schedd, self._begin) - OVERLAP
        found = client.reported_misses(schedd, since)
        self._answered[schedd] = now
        return found


class ScheddHistory:
    """Keeps ``History``: each schedd is asked for its history alone, and bounded.

    Its *client* is none that a cycle waits for, and ends with it: an answer may take long.
    """

    def __init__(
        self,
        client: CondorClient,
        clock: Clock,
        site_attributes: Sequence[str],
        at_most: int = MOST_AT_ONCE,
    ) -> None:
        self._client = client
        self._rounds = Rounds(client)
        self._sites = site_attributes
        self._at_most = at_most
        self._begin = clock()
        self._last: dict[str, str | None] = {}

    def ended(self, since: datetime) -> Mapping[str, Ended | Unseen]:
        """See :class:`hydrator.domain.ports.History`."""
        return self._rounds.ask(lambda _, schedd: self._asked(schedd, since, None))

    def newly(self) -> Mapping[str, Ended | Unseen]:
        """See :class:`hydrator.domain.ports.History`."""
        return self._rounds.ask(lambda _, schedd: self._newly(schedd))

    def close(self) -> None:
        """End the client, also under a question."""
        self._client.close()

    def _newly(self, schedd: str) -> Ended:
        """Those that ended since we began, and later those that left the queue after the last one told of."""
        first = schedd not in self._last
        newest = self._client.last_ended(schedd) if first else self._last[schedd]
        found = self._asked(schedd, self._begin, None if first else newest)
        last = found.jobs[0]["GlobalJobId"] if found.jobs else newest
        self._last[schedd] = last if isinstance(last, str) else newest
        return found

    def _asked(self, schedd: str, since: datetime, after: str | None) -> Ended:
        jobs = self._client.outcomes(schedd, since, self._sites, after=after, at_most=self._at_most)
        return Ended(tuple(jobs), whole=len(jobs) < self._at_most)
