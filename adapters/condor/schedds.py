"""The pool's schedds as Queues: each asked alone, so that one that hangs costs only its own answer."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from hydrator.domain.model import QueuedJobs, ScheddDemand, Unseen
from hydrator.domain.ports import Clock, EndedJobs

from . import CondorClient
from .schedd_rounds import ScheddPoller

MAX_ENDED_JOBS = 20_000
"""Ended jobs that one answer of a schedd may have: some 10 MB."""
OVERLAP = timedelta(minutes=5)
"""The schedd's clock may differ from ours; what is heard twice counts once."""


class ScheddQueues:
    """Keeps ``Queues``: the schedds that the collector knows, each with the client's time limit.

    Its *client* is none that a cycle waits for; with *more*, which makes another one, schedds that are
    silent are asked several at a time.
    """

    def __init__(
        self, client: CondorClient, clock: Clock, make_client: Callable[[], CondorClient] | None = None
    ) -> None:
        self._client = client
        self._rounds = ScheddPoller(client, make_client)
        self._clock = clock

    def read_demand(self) -> Mapping[str, ScheddDemand | Unseen]:
        """See :class:`hydrator.domain.ports.Queues`."""
        return self._rounds.ask(self._query_queue)

    def close(self) -> None:
        """End the clients, also under a question."""
        self._rounds.close()
        self._client.close()

    def _query_queue(self, client: CondorClient, schedd: str) -> ScheddDemand:
        at = self._clock()
        rows = client.count_queued_datasets(schedd)
        return ScheddDemand(at, tuple(QueuedJobs(datasets, jobs) for datasets, jobs in rows))


class ScheddMisses:
    """Keeps ``Misses``: each schedd is asked for its queue, and for jobs that ended since it last answered.

    Its *client* is none that a cycle waits for, and ends with it: an answer may take long.
    """

    def __init__(
        self, client: CondorClient, clock: Clock, *, first_period: timedelta = timedelta(hours=1)
    ) -> None:
        self._client = client
        self._rounds = ScheddPoller(client)
        self._clock = clock
        self._begin_at = clock() - first_period
        self._answered_at: dict[str, datetime] = {}

    def read_reports(self) -> Mapping[str, Sequence[Sequence[str]] | Unseen]:
        """See :class:`hydrator.domain.ports.MissReports`."""
        return self._rounds.ask(self._query_schedd)

    def close(self) -> None:
        """End the client, also under a question."""
        self._client.close()

    def _query_schedd(self, client: CondorClient, schedd: str) -> Sequence[Sequence[str]]:
        now = self._clock()
        since = self._answered_at.get(schedd, self._begin_at) - OVERLAP
        found = client.query_misses(schedd, since)
        self._answered_at[schedd] = now
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
        max_jobs: int = MAX_ENDED_JOBS,
    ) -> None:
        self._client = client
        self._rounds = ScheddPoller(client)
        self._site_attributes = site_attributes
        self._max_jobs = max_jobs
        self._begin_at = clock()
        self._last_job_ids: dict[str, str | None] = {}

    def read_ended_jobs(self, ended_after: datetime) -> Mapping[str, EndedJobs | Unseen]:
        """See :class:`hydrator.domain.ports.JobHistory`."""
        return self._rounds.ask(lambda _, schedd: self._query_outcomes(schedd, ended_after, None))

    def read_newly_ended_jobs(self) -> Mapping[str, EndedJobs | Unseen]:
        """See :class:`hydrator.domain.ports.JobHistory`."""
        return self._rounds.ask(lambda _, schedd: self._read_newly_ended_at(schedd))

    def close(self) -> None:
        """End the client, also under a question."""
        self._client.close()

    def _read_newly_ended_at(self, schedd: str) -> EndedJobs:
        """Those that ended since we began, and later those that left the queue after the last one told of."""
        first = schedd not in self._last_job_ids
        newest = self._client.last_ended(schedd) if first else self._last_job_ids[schedd]
        found = self._query_outcomes(schedd, self._begin_at, None if first else newest)
        last = found.jobs[0]["GlobalJobId"] if found.jobs else newest
        self._last_job_ids[schedd] = last if isinstance(last, str) else newest
        return found

    def _query_outcomes(self, schedd: str, since: datetime, after_job_id: str | None) -> EndedJobs:
        jobs = self._client.outcomes(
            schedd, since, self._site_attributes, after_job_id=after_job_id, max_jobs=self._max_jobs
        )
        return EndedJobs(tuple(jobs), is_complete=len(jobs) < self._max_jobs)
