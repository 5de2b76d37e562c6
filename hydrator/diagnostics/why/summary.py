"""Summary of the jobs of a large cluster that get no explanation of their own. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hydrator.domain.text import format_count, shorten_list

from .pool_facts import JobFacts, JobStatus


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Counts of jobs.

    Attributes:
        job_kinds: number of kinds of jobs that have no explanation of their own.
        by_status: number of jobs of these kinds, by job status.
        example: an idle job, else any of these jobs.
    """

    job_kinds: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)
    example: str | None = None

    @property
    def text(self) -> str:
        """Return the summary as one line for people; empty without jobs."""
        if not self.job_kinds:
            return ""
        states = shorten_list([f"{number} {status}" for status, number in self.by_status.items()])
        return (
            f"and {format_count(self.job_kinds, 'more kind')} of the cluster's jobs,"
            f" {format_count(sum(self.by_status.values()), 'job')}: {states};"
            f" for example: hydrator why {self.example}"
        )


def summarize_jobs(jobs: Sequence[JobFacts]) -> JobSummary:
    """Summarize *jobs*, one of each kind; each one counts as ``job_count`` equal jobs."""
    statuses = Counter[str]()
    for job in jobs:
        statuses[job.status or "of unknown status"] += job.job_count
    names = [job.name for job in sorted(jobs, key=lambda job: job.status is not JobStatus.IDLE)]
    return JobSummary(len(jobs), dict(statuses.most_common()), names[0] if names else None)
