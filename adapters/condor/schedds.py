"""Schedds of a pool: query each schedd for demand, misses and ended jobs."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from hydrator.domain.model import QueuedJobs, ScheddDemand, Unseen
from hydrator.domain.pool_ports import EndedJobs
from hydrator.domain.ports import Clock, StepReporter
from hydrator.domain.untrusted import valid_time

from .bindings.client import QueueClient
from .schedd_rounds import ScheddRounds

MAX_ENDED_JOBS = 20_000
"""Ended jobs in one answer of a schedd: some 10 MB."""
MAX_HISTORY_JOBS = 1_000_000
"""Ended jobs of one schedd that ``report`` reads, in answers of MAX_ENDED_JOBS."""
OVERLAP = timedelta(minutes=5)
"""Period that is read twice, since the schedd's clock may differ; a miss read twice counts once."""


class ScheddQueues(ScheddRounds):
    """A ``Queues`` port: query the demand of each schedd of the pool, within the client's time limit.

    If some schedds do not answer and *make_client* is given, this object makes further
    clients and queries several schedds at the same time.
    """

    def __init__(
        self, client: QueueClient, clock: Clock, make_client: Callable[[], QueueClient] | None = None
    ) -> None:
        super().__init__(client, make_client)
        self._clock = clock

    def read_demand(self) -> Mapping[str, ScheddDemand | Unseen]:
        """See :class:`hydrator.domain.pool_ports.Queues`."""
        return self.ask(self._query_queue)

    def _query_queue(self, client: QueueClient, schedd: str) -> ScheddDemand:
        queried_at = self._clock()
        rows = client.count_queued_datasets(schedd)
        return ScheddDemand(queried_at, tuple(QueuedJobs(*row) for row in rows))


class ScheddMisses(ScheddRounds):
    """A ``MissReports`` port.

    It reads the misses of jobs in each schedd's queue, and of jobs that ended since the schedd's last answer.
    """

    def __init__(
        self, client: QueueClient, clock: Clock, *, first_period: timedelta = timedelta(hours=1)
    ) -> None:
        super().__init__(client)
        self._clock = clock
        self._begin_at = clock() - first_period
        self._answered_at: dict[str, datetime] = {}

    def read_reports(self) -> Mapping[str, Sequence[Sequence[str]] | Unseen]:
        """See :class:`hydrator.domain.pool_ports.MissReports`."""
        return self.ask(self._query_schedd)

    def _query_schedd(self, client: QueueClient, schedd: str) -> Sequence[Sequence[str]]:
        now = self._clock()
        since = self._answered_at.get(schedd, self._begin_at) - OVERLAP
        misses = client.query_misses(schedd, since)
        self._answered_at[schedd] = now
        return misses


class ScheddHistory(ScheddRounds):
    """A ``JobHistory`` port: query each schedd's history, for at most *max_jobs* jobs at a time.

    For a period with more jobs it queries shorter periods, until it has *max_history_jobs* jobs.
    """

    def __init__(
        self,
        client: QueueClient,
        clock: Clock,
        site_attributes: Sequence[str],
        max_jobs: int = MAX_ENDED_JOBS,
        max_history_jobs: int = MAX_HISTORY_JOBS,
        reporter: StepReporter | None = None,
    ) -> None:
        super().__init__(client, reporter=reporter)
        self._site_attributes = site_attributes
        self._max_jobs, self._max_history_jobs = max_jobs, max_history_jobs
        self._begin_at = clock()
        self._last_job_ids: dict[str, str | None] = {}

    def read_ended_jobs(self, ended_after: datetime) -> Mapping[str, EndedJobs | Unseen]:
        """See :class:`hydrator.domain.pool_ports.JobHistory`."""
        return self.ask(lambda _, schedd: self._query_pages(schedd, ended_after))

    def read_newly_ended_jobs(self) -> Mapping[str, EndedJobs | Unseen]:
        """See :class:`hydrator.domain.pool_ports.JobHistory`."""
        return self.ask(lambda _, schedd: self._read_newly_ended_at(schedd))

    def _query_pages(self, schedd: str, since: datetime) -> EndedJobs:
        """Return all jobs that ended after *since*, by periods of fewer than *max_jobs* jobs, newest first.

        Periods of the end do not overlap, because the history has the order in which jobs left the queue.
        """
        jobs: list[Mapping[str, Any]] = []
        before: datetime | None = None
        while True:
            page = self._query_outcomes(schedd, since, None, before)
            middle = None if page.is_complete else _find_median_end(page.jobs)
            if middle is None or middle <= since or (before and middle >= before):
                return EndedJobs((*jobs, *page.jobs), is_complete=page.is_complete)
            newer = self._query_outcomes(schedd, middle, None, before)
            jobs += newer.jobs
            before = middle
            if not newer.is_complete or len(jobs) >= self._max_history_jobs:
                return EndedJobs(tuple(jobs), is_complete=False)

    def _read_newly_ended_at(self, schedd: str) -> EndedJobs:
        """Return the jobs that ended since the last call; for the first call, since the daemon started."""
        is_first = schedd not in self._last_job_ids
        newest = self._client.last_ended(schedd) if is_first else self._last_job_ids[schedd]
        ended_jobs = self._query_outcomes(schedd, self._begin_at, None if is_first else newest)
        last = ended_jobs.jobs[0]["GlobalJobId"] if ended_jobs.jobs else newest
        self._last_job_ids[schedd] = last if isinstance(last, str) else newest
        return ended_jobs

    def _query_outcomes(
        self, schedd: str, since: datetime, after_job_id: str | None, before: datetime | None = None
    ) -> EndedJobs:
        jobs = self._client.outcomes(
            schedd,
            since,
            self._site_attributes,
            after_job_id=after_job_id,
            max_jobs=self._max_jobs,
            ended_before=before,
        )
        return EndedJobs(tuple(jobs), is_complete=len(jobs) < self._max_jobs)


def _find_median_end(jobs: Sequence[Mapping[str, Any]]) -> datetime | None:
    """Return the median end of *jobs*, in whole seconds; None without a valid end."""
    ends = sorted(end for job in jobs if (end := valid_time(job.get("EnteredCurrentStatus"))) is not None)
    return ends[len(ends) // 2] if ends else None
