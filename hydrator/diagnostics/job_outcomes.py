"""Outcomes of newly ended jobs, collected in small steps between the daemon's cycles, for the metrics."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.domain.model import Did, Unseen
from hydrator.domain.ports import JobHistory
from hydrator.reconcile.history import AvailableSpans

from .outcomes import EndedJob, JobOutcome, determine_outcome, has_possible_times, parse_ended_job


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
    impossible_count: int = 0
    """Jobs that are not counted, because their times are impossible."""


def collect_outcomes(
    history: JobHistory,
    load_spans: Callable[[AbstractSet[Did]], AvailableSpans],
    sizes: Mapping[Did, int],
    default_scope: str | None,
    now: datetime,
) -> JobOutcomeBatch:
    """Query *history* for newly ended jobs.

    Args:
        history: returns each ended job once.
        load_spans: loads the times in which ads listed datasets; called only if a job with datasets started.
        sizes: bytes of each dataset, for jobs whose ads do not have the sizes.
        default_scope: scope of datasets that a job names without a scope.
        now: aware UTC time.

    Raises:
        PoolError: the query of the collector failed.
    """
    answers = history.read_newly_ended_jobs()
    unreachable = {name: answer.reason for name, answer in answers.items() if isinstance(answer, Unseen)}
    readable_answers = {name: answer for name, answer in answers.items() if not isinstance(answer, Unseen)}
    rows = [row for answer in readable_answers.values() for row in answer.jobs]
    jobs = [parse_ended_job(row, default_scope) for row in rows if has_possible_times(row, now)]
    started_jobs = [job for job in jobs if job.datasets is not None and job.last_started_at is not None]
    dids = frozenset[Did]().union(*(job.datasets or () for job in started_jobs))
    spans = load_spans(dids) if started_jobs else AvailableSpans()
    return JobOutcomeBatch(
        tuple(determine_outcome(job, spans, sizes) for job in started_jobs),
        tuple(jobs),
        unreachable,
        tuple(name for name, answer in readable_answers.items() if not answer.is_complete),
        len(rows) - len(jobs),
    )
