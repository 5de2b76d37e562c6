"""Counts what became of jobs, a little at a time, beside the daemon's cycles: numbers for the metrics."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hydrator.domain.model import Did, Unseen
from hydrator.domain.ports import History
from hydrator.reconcile.history import Entry

from .outcomes import EndedJob, Outcome, Shown, ended_job, outcome


@dataclass(frozen=True, slots=True)
class Counted:
    """What came to an end since the last count."""

    outcomes: tuple[Outcome, ...] = ()
    """Of jobs that name datasets and started."""
    jobs: tuple[EndedJob, ...] = ()
    unasked: Mapping[str, str] = field(default_factory=dict)
    """By schedd, why it could not be asked."""
    cut: tuple[str, ...] = ()
    """Schedds where more ended than one answer may have: the rest is not counted."""


def count(
    history: History,
    entries: Callable[[], Iterable[Entry]],
    sizes: Mapping[Did, int],
    default_scope: str | None,
) -> Counted:
    """Ask *history* for what is new.

    Args:
        history: remembers what it has told.
        entries: tells what was decided for the sites, as far back as it is kept; asked where it matters.
        sizes: bytes of datasets, for jobs that do not say.
        default_scope: of datasets that a job names without one.

    Raises:
        PoolError: the collector could not be asked.
    """
    answers = history.newly()
    unasked = {name: one.reason for name, one in answers.items() if isinstance(one, Unseen)}
    known = {name: one for name, one in answers.items() if not isinstance(one, Unseen)}
    jobs = [ended_job(row, default_scope) for one in known.values() for row in one.jobs]
    judged = [job for job in jobs if job.datasets is not None and job.last_start is not None]
    shown = Shown(entries() if judged else ())
    return Counted(
        tuple(outcome(job, shown, sizes) for job in judged),
        tuple(jobs),
        unasked,
        tuple(name for name, one in known.items() if not one.whole),
    )
