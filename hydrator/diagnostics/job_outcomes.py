"""Counts what became of jobs, a little at a time, beside the daemon's cycles: numbers for the metrics."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hydrator.domain.model import Did, Unseen
from hydrator.domain.ports import JobHistory
from hydrator.reconcile.history import HistoryEntry

from .outcomes import AdHistory, EndedJob, JobOutcome, determine_outcome, parse_ended_job


@dataclass(frozen=True, slots=True)
class JobOutcomeBatch:
    """What came to an end since the last count."""

    outcomes: tuple[JobOutcome, ...] = ()
    """Of jobs that name datasets and started."""
    jobs: tuple[EndedJob, ...] = ()
    unreachable_schedds: Mapping[str, str] = field(default_factory=dict)
    """By schedd, why it could not be asked."""
    truncated_schedds: tuple[str, ...] = ()
    """Schedds where more ended than one answer may have: the rest is not counted."""


def collect_outcomes(
    history: JobHistory,
    load_entries: Callable[[], Iterable[HistoryEntry]],
    sizes: Mapping[Did, int],
    default_scope: str | None,
) -> JobOutcomeBatch:
    """Ask *history* for what is new.

    Args:
        history: remembers what it has told.
        entries: tells what was decided for the sites, as far back as it is kept; asked where it matters.
        sizes: bytes of datasets, for jobs that do not say.
        default_scope: of datasets that a job names without one.

    Raises:
        PoolError: the collector could not be asked.
    """
    answers = history.read_newly_ended_jobs()
    unasked = {name: one.reason for name, one in answers.items() if isinstance(one, Unseen)}
    known = {name: one for name, one in answers.items() if not isinstance(one, Unseen)}
    jobs = [parse_ended_job(row, default_scope) for one in known.values() for row in one.jobs]
    judged = [job for job in jobs if job.datasets is not None and job.last_started_at is not None]
    shown = AdHistory(load_entries() if judged else ())
    return JobOutcomeBatch(
        tuple(determine_outcome(job, shown, sizes) for job in judged),
        tuple(jobs),
        unasked,
        tuple(name for name, one in known.items() if not one.is_complete),
    )
