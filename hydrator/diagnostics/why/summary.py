"""Summary of the jobs of a large cluster that get no explanation of their own. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.domain.model import DaemonKnowledge, Did, Fact, Site
from hydrator.domain.text import format_count, shorten_list

from .missing_data import has_all_data
from .pool_facts import JobFacts, JobStatus


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Counts of jobs, and the sites with the data of the idle jobs, according to the daemon.

    Attributes:
        job_kinds: number of kinds of jobs that have no explanation of their own.
        jobs: number of jobs of these kinds.
        by_status: number of these jobs, by job status.
        complete_by_site: number of idle jobs that have all their data at the site.
        complete_nowhere: number of idle jobs without a site that has all their data.
        unknown_jobs: number of idle jobs whose data is unknown.
        example: an idle job without a site that has all its data, else any of these jobs.
    """

    job_kinds: int = 0
    jobs: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)
    complete_by_site: Mapping[Site, int] = field(default_factory=dict)
    complete_nowhere: int = 0
    unknown_jobs: int = 0
    example: str | None = None

    @property
    def text(self) -> str:
        """Return the summary as one line for people."""
        if not self.jobs:
            return ""
        states = shorten_list([f"{number} {status}" for status, number in self.by_status.items()])
        line = (
            f"and {format_count(self.job_kinds, 'more kind')} of the cluster's jobs,"
            f" {format_count(self.jobs, 'job')}: {states}"
        )
        if self.complete_by_site:
            places = [f"{number} at {site}" for site, number in self.complete_by_site.items()]
            line += f"; idle jobs with all their data at one site: {shorten_list(places)}"
        if self.complete_nowhere:
            line += f"; idle jobs without a site that has all their data: {self.complete_nowhere}"
        return line + (f"; for example: hydrator why {self.example}" if self.example else "")


def summarize_jobs(jobs: Sequence[JobFacts], knowledge: DaemonKnowledge | None) -> JobSummary:
    """Summarize *jobs*; each one counts as ``job_count`` equal jobs.

    Args:
        jobs: one job of each kind.
        knowledge: the daemon's knowledge; None if it cannot be read.
    """
    facts_by_site = {site: here.facts for site, here in knowledge.snapshot.sites.items()} if knowledge else {}
    complete: Counter[Site] = Counter()
    incomplete_count, unknown_count, example = 0, 0, None
    for job in jobs:
        if job.status is not JobStatus.IDLE or not job.has_required_datasets:
            continue
        if knowledge is None:
            unknown_count += job.job_count
            continue
        sites = _complete_sites(job, facts_by_site, knowledge.now)
        complete.update(dict.fromkeys(sites, job.job_count))
        if not sites:
            incomplete_count += job.job_count
            example = example or job.name
    statuses = Counter[str]()
    for job in jobs:
        statuses[job.status.name.lower() if job.status else "of unknown status"] += job.job_count
    return JobSummary(
        job_kinds=len(jobs),
        jobs=sum(job.job_count for job in jobs),
        by_status=dict(statuses.most_common()),
        complete_by_site=dict(complete.most_common()),
        complete_nowhere=incomplete_count,
        unknown_jobs=unknown_count,
        example=example or (jobs[0].name if jobs else None),
    )


def _complete_sites(
    job: JobFacts, facts_by_site: Mapping[Site, Mapping[Did, Fact]], now: datetime
) -> list[Site]:
    """Return the sites that have all of the job's datasets, by facts that are not too old for the job."""
    if job.invalid_names:
        return []
    return [site for site, facts in facts_by_site.items() if has_all_data(job, facts, now)]
