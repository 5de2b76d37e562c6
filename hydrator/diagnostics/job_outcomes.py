"""Outcomes of newly ended jobs, collected in small steps between the daemon's cycles, for the metrics."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.domain.model import Did, Site, Unseen
from hydrator.domain.pool_ports import JobHistory
from hydrator.reconcile.history import AvailableSpans, HistoryEntry

from .outcomes import AdHistory, EndedJob, JobOutcome, determine_outcome, parse_ended_job


@dataclass(frozen=True, slots=True)
class JobOutcomeBatch:
    """Jobs that ended since the last call of :func:`collect_outcomes`."""

    outcomes: tuple[JobOutcome, ...] = ()
    """Outcomes of jobs that name datasets and started."""
    jobs: tuple[EndedJob, ...] = ()
    unreachable_schedds: Mapping[str, str] = field(default_factory=dict)
    """For each schedd that did not answer, the reason why the query failed."""
    truncated_schedds: tuple[str, ...] = ()
    """Schedds where more jobs ended than one answer can contain. The further jobs are not counted."""


def collect_outcomes(
    history: JobHistory,
    load_entries: Callable[[], Iterable[HistoryEntry]],
    sizes: Mapping[Did, int],
    default_scope: str | None,
    load_begins: Callable[[], Mapping[Site, datetime]] = dict,
    load_spans: Callable[[], AvailableSpans] = AvailableSpans,
) -> JobOutcomeBatch:
    """Query *history* for newly ended jobs.

    Args:
        history: returns each ended job once.
        load_entries: loads the history of the sites' ads; called only if a job with datasets started.
        sizes: bytes of each dataset, for jobs whose ads do not have the sizes.
        default_scope: scope of datasets that a job names without a scope.
        load_begins, load_spans: load the other arguments of :class:`AdHistory`; called as rarely.

    Raises:
        PoolError: the query of the collector failed.
    """
    answers = history.read_newly_ended_jobs()
    unreachable = {name: answer.reason for name, answer in answers.items() if isinstance(answer, Unseen)}
    readable_answers = {name: answer for name, answer in answers.items() if not isinstance(answer, Unseen)}
    rows = (row for answer in readable_answers.values() for row in answer.jobs)
    jobs = [parse_ended_job(row, default_scope) for row in rows]
    started_jobs = [job for job in jobs if job.datasets is not None and job.last_started_at is not None]
    ad_history = AdHistory(load_entries(), load_begins(), load_spans) if started_jobs else AdHistory(())
    return JobOutcomeBatch(
        tuple(determine_outcome(job, ad_history, sizes) for job in started_jobs),
        tuple(jobs),
        unreachable,
        tuple(name for name, answer in readable_answers.items() if not answer.is_complete),
    )
