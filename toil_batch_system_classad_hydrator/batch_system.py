"""Toil batch system: Toil's batch system interface, implemented with jobs in an HTCondor queue.

The batch system has no thread. Its code runs only while Toil's leader calls it, so every exception reaches
the leader. If the schedd is unreachable for ``--statePollingTimeout`` seconds (1200 by default), the workflow
ends. Until then, new jobs wait for submission, and the other jobs keep their last known state.
"""

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toil.batchSystems.abstractBatchSystem import BatchJobExitReason, UpdatedBatchJobInfo
from toil.batchSystems.cleanup_support import BatchSystemCleanupSupport
from toil.bus import ExternalBatchIdMessage
from toil.common import Toil
from toil.job import Job, JobDescription

from .affinity import SITE_FILE_VARIABLE, SiteAffinity
from .condor import Schedd, ScheddUnreachable, SubmitRejected
from .datasets import DatasetsError, NamingRules, find_required_dids, format_did_list, parse_did_list
from .job import (
    COMPLETED,
    EXIT_STATUS_UNAVAILABLE,
    IDLE,
    RUNNING,
    SITE_ATTRIBUTE,
    JobExit,
    StepGpus,
    SubmitParameterError,
    ToilJob,
    WorkflowSettings,
    build_submit_description,
    exit_from_ad,
    filter_environment,
    gpu_request,
)

logger = logging.getLogger(f"toil.{__name__}")  # Toil prints the messages of loggers below ``toil``
_POLL_SECONDS = 2.0
_SCHEDD_TIMEOUT_SECONDS = 1200.0
_IDLE_HINT_SECONDS = 600.0
_KILL_SECONDS = 60.0
_LOG_KINDS = (("output", "out"), ("error", "err"), ("log", "events"))
_LOST_AFTER_POLLS = 3
"""A job counts as lost after this many polls in a row without it in the queue or history."""


class ClassAdHydratorBatchSystem(BatchSystemCleanupSupport):  # type: ignore[misc]
    """A batch system with one HTCondor job for each Toil job; Toil's leader runs its local jobs itself."""

    def __init__(self, config: Any, maxCores: float, maxMemory: float, maxDisk: int) -> None:  # noqa: ANN401, N803
        try:
            self._workflow_settings = WorkflowSettings.from_environment(config.workflowID, os.environ)
            self._run_datasets = parse_did_list(self._workflow_settings.attributes.get("RequiredDatasets"))
            self._naming = NamingRules.load(os.environ.get("HYDRATOR_CONFIG"))
            self._step_gpus = StepGpus.load(os.environ.get("HYDRATOR_CONFIG"))
        except (SubmitParameterError, DatasetsError) as error:
            print(f"toil-cwl-runner (classad-hydrator): {error}", file=sys.stderr)
            raise SystemExit(2) from None  # exit without a traceback, before Toil starts threads
        super().__init__(config, maxCores, maxMemory, maxDisk)
        self._schedd = Schedd(os.environ)
        self._affinity = SiteAffinity(os.environ.get(SITE_FILE_VARIABLE))
        self._waiting_jobs: deque[ToilJob] = deque()
        self._clusters: dict[int, int] = {}
        self._ads: dict[int, dict[str, Any]] = {}
        self._missing_polls: dict[int, int] = {}
        self._hinted_clusters: set[int] = set()
        self._job_updates: deque[UpdatedBatchJobInfo] = deque()
        self._last_poll_at = self._last_answer_at = time.monotonic()
        self._poll_seconds = float(config.statePollingWait or _POLL_SECONDS)
        timeout = getattr(config, "state_polling_timeout", None)
        self._schedd_timeout_seconds = float(timeout or _SCHEDD_TIMEOUT_SECONDS)
        self._remove_leftovers()

    # --- what Toil calls -----------------------------------------------------------------------------

    @classmethod
    def supportsAutoDeployment(cls) -> bool:  # noqa: N802
        """Return False: Toil need not copy user code to the workers, which share the leader's files."""
        return False

    def issueBatchJob(  # noqa: N802
        self, command: str, job_desc: JobDescription, job_environment: dict[str, str] | None = None
    ) -> int:
        """Queue *command* for submission; return Toil's number for the job."""
        local: int | None = self.handleLocalJob(command, job_desc)
        if local is not None:
            return local
        self.check_resource_request(job_desc)
        job: int = self.getNextJobID()
        environment = filter_environment(os.environ) | self.environment | (job_environment or {})
        datasets = _datasets_of(job_desc, self.config.jobStore, self._naming, self._run_datasets)
        self._waiting_jobs.append(ToilJob(job, job_desc, command, environment, datasets))
        return job

    def getUpdatedBatchJob(self, maxWait: int) -> UpdatedBatchJobInfo | None:  # noqa: N802, N803
        """Return the next job that ended; wait at most *maxWait* seconds for the end of a job."""
        deadline = time.monotonic() + maxWait
        while True:
            if done := self.getUpdatedLocalJob(0):
                return done
            self._submit_and_poll()
            if self._job_updates:
                return self._job_updates.popleft()
            if time.monotonic() >= deadline:
                return None
            time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))

    def getIssuedBatchJobIDs(self) -> list[int]:  # noqa: N802
        """Return the numbers of all issued jobs whose end was not yet reported to Toil."""
        waiting = [waiting.number for waiting in self._waiting_jobs]
        jobs = [*self.getIssuedLocalJobIDs(), *waiting, *self._clusters]
        return [*jobs, *(info.jobID for info in self._job_updates)]

    def getRunningBatchJobIDs(self) -> dict[int, float]:  # noqa: N802
        """Return the running jobs, each with the seconds since its start."""
        self._submit_and_poll()
        now = time.time()
        running = {
            job: max(0.0, now - float(ad.get("EnteredCurrentStatus") or now))
            for job, cluster in self._clusters.items()
            if (ad := self._ads.get(cluster, {})).get("JobStatus") == RUNNING
        }
        local: dict[int, float] = self.getRunningLocalJobIDs()
        return running | local

    def killBatchJobs(self, jobIDs: Iterable[int]) -> None:  # noqa: N802, N803
        """Remove jobs from the queue and wait until none of them runs; do not report their end to Toil."""
        ids = set(jobIDs)
        self.killLocalJobs(list(ids))
        self._waiting_jobs = deque(item for item in self._waiting_jobs if item.number not in ids)
        self._job_updates = deque(info for info in self._job_updates if info.jobID not in ids)
        clusters = {self._clusters.pop(job) for job in ids if job in self._clusters}
        if not clusters:
            return
        self._retry_while_unreachable(lambda: self._schedd.remove(clusters, "killed by Toil"))
        workflow = self._workflow_settings.workflow_id
        deadline = time.monotonic() + _KILL_SECONDS
        while time.monotonic() < deadline:
            ads = self._retry_while_unreachable(lambda: self._schedd.query_jobs(workflow))
            if not any(ads.get(cluster, {}).get("JobStatus") == RUNNING for cluster in clusters):
                return
            time.sleep(0.5)
        logger.warning("HTCondor jobs %s still run although they were removed", sorted(clusters))

    def shutdown(self) -> None:
        """Remove this workflow's jobs that are still in the queue, and end the leader's local jobs."""
        self._waiting_jobs.clear()
        self._clusters = {}
        workflow = self._workflow_settings.workflow_id
        try:
            self._schedd.remove_workflow(workflow, "the Toil workflow has ended")
        except ScheddUnreachable as error:
            logger.warning("jobs with ToilWorkflowID %s may still be in the queue: %s", workflow, error)
        finally:
            self.shutdownLocal()

    def _check_accelerator_request(self, requirer: Any) -> None:  # noqa: ANN401 - Toil's hook
        gpu_request(requirer.accelerators)

    # --- the queue -----------------------------------------------------------------------------------

    def _submit_and_poll(self) -> None:
        """Submit waiting jobs; poll the queue if the last poll is some seconds old."""
        try:
            self._submit_waiting()
            if time.monotonic() - self._last_poll_at >= self._poll_seconds:
                self._last_poll_at = time.monotonic()
                self._poll_queue()
                self._last_answer_at = time.monotonic()
        except ScheddUnreachable as error:
            outage_seconds = time.monotonic() - self._last_answer_at
            if outage_seconds > self._schedd_timeout_seconds:
                raise
            text = "%s (no answer for %.0f s; the workflow waits at most %.0f s)"
            logger.warning(text, error, outage_seconds, self._schedd_timeout_seconds)
            self._last_poll_at = time.monotonic() + min(30.0, outage_seconds / 4)

    def _submit_waiting(self) -> None:
        while self._waiting_jobs and len(self._clusters) < int(self.config.max_jobs):
            if self._last_poll_at > time.monotonic():
                return  # the schedd was unreachable: wait before the next attempt
            toil_job = self._waiting_jobs[0]
            job, name = toil_job.number, toil_job.step or toil_job.description.jobName
            logs = {log: self.format_std_out_err_path(job, "condor", kind) for log, kind in _LOG_KINDS}
            try:
                description = build_submit_description(
                    toil_job, logs, self._workflow_settings, self._affinity.site, self._step_gpus
                )
                self._clusters[job] = cluster = self._schedd.submit(description, job)
            except (SubmitRejected, SubmitParameterError) as error:
                logger.error("%s (%s) was not submitted: %s", name, job, error)  # noqa: TRY400
                self._job_updates.append(
                    _job_update(job, JobExit(EXIT_STATUS_UNAVAILABLE, "FAILED", str(error)))
                )
            else:
                logger.info("%s (%s) is HTCondor job %s", name, job, cluster)
                if self._outbox is not None:
                    self._outbox.publish(ExternalBatchIdMessage(job, str(cluster), type(self).__name__))
            self._waiting_jobs.popleft()

    def _poll_queue(self) -> None:
        """Query the queue and report the jobs that ended."""
        if not (self._clusters or self._schedd.doubtful):
            return
        self._ads = self._schedd.query_jobs(self._workflow_settings.workflow_id)
        missing = {cluster for cluster in self._clusters.values() if cluster not in self._ads}
        past = self._schedd.query_history(missing) if missing else {}
        for job, cluster in list(self._clusters.items()):
            ad = self._ads.get(cluster) or past.get(cluster)
            end = exit_from_ad(ad) if ad else _exit_if_missing(cluster, self._missing_polls)
            if end is not None:
                self._finish(job, cluster, end, ad or {})
            elif ad:
                self._missing_polls.pop(cluster, None)
                _warn_if_idle(cluster, ad, self._hinted_clusters)

    def _finish(self, job: int, cluster: int, job_exit: JobExit, ad: dict[str, Any]) -> None:
        is_in_queue = cluster in self._ads
        if is_in_queue and ad.get("JobStatus") == COMPLETED:
            self._schedd.mark_seen(cluster)
        elif is_in_queue:
            self._schedd.remove([cluster], f"Toil has recorded the end of the job: {job_exit.reason}")
        del self._clusters[job]
        if job_exit.reason == "FINISHED":
            site = ad.get(SITE_ATTRIBUTE)
            if self._affinity.record_first_site(site, str(cluster)):
                logger.info(
                    "later jobs of the run will run at site %s, as HTCondor job %s did", site, cluster
                )
        else:
            logger.error("%s", job_exit.message)
        self._job_updates.append(_job_update(job, job_exit, cluster))

    def _remove_leftovers(self) -> None:
        """After a restart of Toil's leader, remove the earlier leader's jobs: Toil submits them again."""
        if getattr(self.config, "restart", False):
            workflow, reason = self._workflow_settings.workflow_id, "an earlier Toil leader left this job"
            self._retry_while_unreachable(lambda: self._schedd.remove_workflow(workflow, reason))

    def _retry_while_unreachable(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        deadline = time.monotonic() + self._schedd_timeout_seconds
        while True:
            try:
                return call()
            except ScheddUnreachable as error:
                if time.monotonic() > deadline:
                    raise
                logger.warning("%s", error)
                time.sleep(2)


def _exit_if_missing(cluster: int, missing_polls: dict[int, int]) -> JobExit | None:
    """Return the exit of a job that three polls in a row found in neither queue nor history; else None."""
    missing_polls[cluster] = missing_polls.get(cluster, 0) + 1
    if missing_polls[cluster] < _LOST_AFTER_POLLS:
        return None
    text = f"HTCondor job {cluster} is in neither the queue nor the history"
    return JobExit(EXIT_STATUS_UNAVAILABLE, "KILLED", text)


def _job_update(job: int, job_exit: JobExit, cluster: int | None = None) -> UpdatedBatchJobInfo:
    """Return Toil's record about the end of *job*."""
    return UpdatedBatchJobInfo(
        jobID=job,
        exitStatus=job_exit.status,
        exitReason=BatchJobExitReason[job_exit.reason],
        wallTime=job_exit.wall_seconds,
        backing_id=None if cluster is None else str(cluster),
    )


def _warn_if_idle(cluster: int, ad: dict[str, Any], hinted_clusters: set[int]) -> None:
    """Log one hint for each job that is idle for long, because Toil logs nothing while a job is idle."""
    idle_seconds = time.time() - float(ad.get("QDate") or time.time())
    if ad.get("JobStatus") == IDLE and idle_seconds > _IDLE_HINT_SECONDS and cluster not in hinted_clusters:
        hinted_clusters.add(cluster)
        text = "HTCondor job %s has been idle for %.0f s; see: hydrator why %s"
        logger.warning(text, cluster, idle_seconds, cluster)


def _datasets_of(
    job_desc: JobDescription, job_store: str, naming: NamingRules, run_dids: tuple[str, ...]
) -> str | None:
    """Return the RequiredDatasets of a step as a ClassAd list; None for a step without datasets.

    When Toil issues a step, the earlier steps have ended, so their outputs can be read too. For an input with
    ``valueFrom`` the CWL inputs have the value to which CWL applies ``valueFrom``.
    """
    try:
        job = Job.loadJob(Toil.resumeJobStore(job_store), job_desc) if job_desc.has_body() else None
        inputs = getattr(job, "cwljob", None)
        if isinstance(inputs, Mapping):
            inputs = {name: _resolve_value(one) for name, one in inputs.items()}
        dids = find_required_dids(inputs, naming, run_dids)
    except Exception as error:  # noqa: BLE001 - Toil does not document this interface: any error can occur
        dids = run_dids
        text = "the inputs of %s cannot be read, so the job requires all datasets of the run: %s: %s"
        logger.warning(text, job_desc, type(error).__name__, error)
    return format_did_list(dids) if dids else None


def _resolve_value(value: Any) -> Any:  # noqa: ANN401 - JSON, or Toil's promise of it
    """Return *value*; if *value* is a Toil promise, return the promised value."""
    resolve = getattr(value, "resolve", None)
    return resolve() if callable(resolve) else value
