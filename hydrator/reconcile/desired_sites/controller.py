"""Controller of ``DESIRED_Sites``, a job's list of sites: query the queues and edit the lists slowly."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from hydrator.domain.ads.set_answers import read_set_answers
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Site, SiteAd, Unseen
from hydrator.domain.pool_ports import JobGroup, JobSites
from hydrator.domain.ports import Clock
from hydrator.reconcile.ads.site_ads import facts_of

from .decide import AnswersBySite, DesiredSitesEdit, DesiredSitesStatus, FactsBySite, decide

_log = structlog.get_logger("hydrator")
MAX_BATCH = 500


@dataclass(frozen=True, slots=True)
class DesiredSitesResult:
    """The result of one run at one schedd: the number of jobs by status, and the number of edited jobs.

    ``error`` is the reason why the run ended early. ``disjoint_example`` is the id of one job
    whose own list of sites has no site with the job's data.
    """

    jobs_by_status: Mapping[DesiredSitesStatus, int] = field(default_factory=dict)
    edited_count: int = 0
    error: str | None = None
    disjoint_example: str | None = None


class DesiredSitesController:
    """A controller that updates ``DESIRED_Sites`` of queued jobs from the site ads, one run at a time.

    If a schedd rejected an edit, the controller edits only one job of this schedd in each run, until the
    schedd accepts an edit.

    Args:
        sites: the queues of the schedds.
        clock: aware UTC time.
        max_age: the maximum age of a fact, for jobs that set no limit.
        default_scope: the scope of datasets that jobs name without a scope.
        edits_per_second: the maximum number of jobs to edit in a second.
        interval: the time between runs. One run edits at most ``edits_per_second`` * *interval* (in s) jobs.
    """

    def __init__(
        self,
        sites: JobSites,
        clock: Clock,
        *,
        max_age: timedelta,
        default_scope: str | None,
        edits_per_second: float,
        interval: timedelta,
    ) -> None:
        self._sites = sites
        self._clock = clock
        self._max_age = max_age
        self._scope = default_scope
        self._edits_per_second = edits_per_second
        self._max_edits = max(1, int(edits_per_second * interval.total_seconds()))
        self._refusing_schedds: set[str] = set()
        self._closed = threading.Event()

    def close(self) -> None:
        """Stop the controller, even during a run."""
        self._closed.set()
        self._sites.close()

    def run_once(self, ads: Mapping[Site, SiteAd]) -> Mapping[str, DesiredSitesResult]:
        """Edit ``DESIRED_Sites`` of the queued jobs to match the site *ads*; return the result by schedd.

        After :meth:`close` the result is empty.
        """
        facts_by_site = {site: facts_of(ad) for site, ad in ads.items()}
        now = self._clock()
        answers_by_site = {site: read_set_answers(ad, now) for site, ad in ads.items()}
        try:
            answers = self._sites.read_job_groups()
        except PoolError as error:
            return {} if self._closed.is_set() else {"": DesiredSitesResult(error=str(error))}
        results = {
            schedd: self._reconcile_schedd(schedd, answer, facts_by_site, answers_by_site)
            for schedd, answer in answers.items()
        }
        return {} if self._closed.is_set() else results

    def _reconcile_schedd(
        self,
        schedd: str,
        answer: Sequence[JobGroup] | Unseen,
        facts_by_site: FactsBySite,
        answers_by_site: AnswersBySite,
    ) -> DesiredSitesResult:
        if isinstance(answer, Unseen):
            return DesiredSitesResult(error=answer.reason)
        jobs_by_status: Counter[DesiredSitesStatus] = Counter()
        changes: list[DesiredSitesEdit] = []
        disjoint_example = None
        now = self._clock()
        for jobs in answer:
            status, change = decide(
                jobs,
                facts_by_site,
                now=now,
                max_age=self._max_age,
                default_scope=self._scope,
                answers_by_site=answers_by_site,
            )
            if status:
                jobs_by_status[status] += jobs.jobs
            if status is DesiredSitesStatus.DISJOINT:
                disjoint_example = disjoint_example or jobs.example
            if change:
                changes.append(change)
        changes.sort(key=lambda change: (not change.is_restore, change.jobs.example))
        edited, error = self._apply_edits(schedd, changes)
        return DesiredSitesResult(jobs_by_status, edited, error, disjoint_example)

    def _apply_edits(self, schedd: str, edits: Sequence[DesiredSitesEdit]) -> tuple[int, str | None]:
        """Apply *edits* in their order; return the number of edited jobs, and the error if an edit failed."""
        edited = 0
        room = 1 if schedd in self._refusing_schedds else self._max_edits
        for change in edits:
            while room > 0:
                batch = max(1, min(room, MAX_BATCH, int(self._edits_per_second)))
                if edited and self._closed.wait(batch / self._edits_per_second):
                    return edited, None
                try:
                    edited_now = self._sites.set_desired_sites(
                        schedd,
                        change.jobs,
                        change.value,
                        change.original,
                        should_keep_mark=not change.is_restore,
                        max_jobs=batch,
                    )
                except PoolError as error:
                    self._refusing_schedds.add(schedd)
                    return edited, str(error)
                edited += edited_now
                room -= edited_now
                if edited_now:
                    self._refusing_schedds.discard(schedd)
                if edited_now < batch:
                    break
        return edited, None
