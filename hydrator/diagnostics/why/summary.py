"""The kinds of jobs of a large cluster that are not explained one by one, summed up. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hydrator.domain.beliefs import Beliefs
from hydrator.domain.model import Did, Fact, Site, unix
from hydrator.domain.text import count, some

from .missing_data import clause_holds
from .pool_facts import Job, JobStatus


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many ``kinds`` and ``jobs``; of the idle ones, whose data is whole at a site, by the daemon.

    ``whole`` counts idle jobs by site (a job counts at each that has all its data), ``apart`` those
    whose data is whole nowhere, with ``example`` one of them; ``unknown`` those nothing is known of.
    """

    kinds: int = 0
    jobs: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)
    whole: Mapping[Site, int] = field(default_factory=dict)
    apart: int = 0
    unknown: int = 0
    example: str | None = None

    @property
    def text(self) -> str:
        """One line for people."""
        if not self.jobs:
            return ""
        states = some([f"{number} {status}" for status, number in self.by_status.items()])
        said = f"and {count(self.kinds, 'more kind')} of its jobs, {count(self.jobs, 'job')}: {states}"
        if self.whole:
            places = [f"{number} at {site}" for site, number in self.whole.items()]
            said += f"; idle with all their data at one site: {some(places)}"
        if self.apart:
            said += f"; idle with their data whole nowhere: {self.apart}"
        return said + (f"; for one of them: hydrator why {self.example}" if self.example else "")


def crowd(jobs: Sequence[Job], beliefs: Beliefs | None) -> Crowd:
    """Sum up *jobs*, each standing for ``alike`` ones.

    Args:
        jobs: one of each kind.
        beliefs: what the daemon holds true; None where that is not known.
    """
    known = {site: here.facts for site, here in beliefs.snapshot.sites.items()} if beliefs else {}
    whole: Counter[Site] = Counter()
    apart, unknown, example = 0, 0, None
    for job in jobs:
        if job.status is not JobStatus.IDLE or not job.names_data:
            continue
        if beliefs is None:
            unknown += job.alike
            continue
        sites = _whole_at(job, known, unix(beliefs.now))
        whole.update(dict.fromkeys(sites, job.alike))
        if not sites:
            apart += job.alike
            example = example or job.name
    statuses = Counter[str]()
    for job in jobs:
        statuses[job.status.name.lower() if job.status else "of unknown status"] += job.alike
    return Crowd(
        kinds=len(jobs),
        jobs=sum(job.alike for job in jobs),
        by_status=dict(statuses.most_common()),
        whole=dict(whole.most_common()),
        apart=apart,
        unknown=unknown,
        example=example or (jobs[0].name if jobs else None),
    )


def _whole_at(job: Job, known: Mapping[Site, Mapping[Did, Fact]], now: int) -> list[Site]:
    """The sites that hold all of the job's datasets, by facts young enough for it."""
    if job.refused:
        return []
    return [site for site, facts in known.items() if _holds(job, facts, now)]


def _holds(job: Job, facts: Mapping[Did, Fact], now: int) -> bool:
    here = {did: facts[did] for did in job.datasets if did in facts}
    return clause_holds(
        job.datasets,
        {did: str(fact.state) for did, fact in here.items()},
        {did: unix(fact.as_of) for did, fact in here.items()},
        None,
        now=now,
        max_age=job.max_age,
    )
