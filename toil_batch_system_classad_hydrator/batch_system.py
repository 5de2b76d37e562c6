"""Toil's side: its interface, on a queue of HTCondor jobs.

Everything happens in the leader's own calls, in no thread of ours: what fails, fails where Toil
sees it. The schedd may be away for ``--statePollingTimeout`` seconds (1200 by default) before the
workflow ends; until then jobs wait to be submitted and keep the state they were last seen in.
"""

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from toil.batchSystems.abstractBatchSystem import BatchJobExitReason, UpdatedBatchJobInfo
from toil.batchSystems.cleanup_support import BatchSystemCleanupSupport
from toil.bus import ExternalBatchIdMessage
from toil.job import JobDescription

from .affinity import SITE_FILE, Affinity
from .condor import Refused, Schedd, ScheddAway
from .datasets import DatasetsWrong, Naming, parse_list, print_list, required
from .environment import allowed
from .gpus import StepGpus
from .job import (
    COMPLETED,
    IDLE,
    RUNNING,
    SITE_ATTRIBUTE,
    Ended,
    ParametersWrong,
    Setting,
    Why,
    Work,
    description,
    ended,
    gpus,
    lost,
)
from .steps import InputsUnknown, inputs_of

logger = logging.getLogger(f"toil.{__name__}")  # Toil prints what is below its own
_T = TypeVar("_T")
_POLL_SECONDS = 2.0
_PATIENCE_SECONDS = 1200.0
_IDLE_HINT_SECONDS = 600.0
_KILL_SECONDS = 60.0
_MISSING_POLLS = 3
"""How often in a row a job must be missing from queue and history before it counts as lost."""


class ClassAdHydratorBatchSystem(BatchSystemCleanupSupport):  # type: ignore[misc]
    """One HTCondor job for each Toil job; the leader's small jobs stay on the leader."""

    def __init__(self, config: Any, maxCores: float, maxMemory: float, maxDisk: int) -> None:  # noqa: ANN401, N803
        try:
            self._setting = Setting.of(config.workflowID, os.environ)
            self._run_datasets = parse_list(self._setting.attributes.get("RequiredDatasets"))
            self._naming = Naming.load(os.environ.get("HYDRATOR_CONFIG"))
            self._gpus = StepGpus.load(os.environ.get("HYDRATOR_CONFIG"))
        except (ParametersWrong, DatasetsWrong) as wrong:
            print(f"toil-cwl-runner (classad-hydrator): {wrong}", file=sys.stderr)
            raise SystemExit(2) from None  # before any thread of Toil's runs, and without a traceback
        super().__init__(config, maxCores, maxMemory, maxDisk)
        self._schedd = Schedd(os.environ)
        self._affinity = Affinity.load(os.environ.get(SITE_FILE))
        self._waiting: deque[tuple[int, Work, str | None]] = deque()
        self._clusters: dict[int, int] = {}
        self._ads: dict[int, dict[str, Any]] = {}
        self._missing: dict[int, int] = {}
        self._hinted: set[int] = set()
        self._ended: deque[UpdatedBatchJobInfo] = deque()
        self._polled = self._answered = time.monotonic()
        self._poll_seconds = float(config.statePollingWait or _POLL_SECONDS)
        self._patience = float(getattr(config, "state_polling_timeout", None) or _PATIENCE_SECONDS)
        self._remove_leftovers()

    # --- what Toil calls -----------------------------------------------------------------------------

    @classmethod
    def supportsAutoDeployment(cls) -> bool:  # noqa: N802
        """No: leader and workers share a file system."""
        return False

    def issueBatchJob(  # noqa: N802
        self, command: str, job_desc: JobDescription, job_environment: dict[str, str] | None = None
    ) -> int:
        """Queue *command*; returns Toil's number of it."""
        local: int | None = self.handleLocalJob(command, job_desc)
        if local is not None:
            return local
        self.check_resource_request(job_desc)
        job: int = self.getNextJobID()
        environment = allowed(os.environ) | self.environment | (job_environment or {})
        work = Work(
            command=command,
            cores=job_desc.cores,
            memory=job_desc.memory,
            disk=job_desc.disk,
            name=job_desc.jobName,
            unit=job_desc.unitName or job_desc.displayName or "",
            environment=environment,
            accelerators=job_desc.accelerators,
            duration=getattr(job_desc, "walltime", None) or None,
        )
        self._waiting.append((job, work, self._datasets_of(job_desc)))
        return job

    def getUpdatedBatchJob(self, maxWait: int) -> UpdatedBatchJobInfo | None:  # noqa: N802, N803
        """The next job that ended, waiting for one up to *maxWait* seconds."""
        deadline = time.monotonic() + maxWait
        while True:
            if done := self.getUpdatedLocalJob(0):
                return done
            self._advance()
            if self._ended:
                return self._ended.popleft()
            if time.monotonic() >= deadline:
                return None
            time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))

    def getIssuedBatchJobIDs(self) -> list[int]:  # noqa: N802
        """All jobs that were issued and have not been reported as ended."""
        issued = [*self.getIssuedLocalJobIDs(), *(job for job, _, _ in self._waiting), *self._clusters]
        return [*issued, *(info.jobID for info in self._ended)]

    def getRunningBatchJobIDs(self) -> dict[int, float]:  # noqa: N802
        """The jobs that run, with the seconds since they started to."""
        self._advance()
        now = time.time()
        running = {
            job: max(0.0, now - float(ad.get("EnteredCurrentStatus") or now))
            for job, cluster in self._clusters.items()
            if (ad := self._ads.get(cluster, {})).get("JobStatus") == RUNNING
        }
        local: dict[int, float] = self.getRunningLocalJobIDs()
        return running | local

    def killBatchJobs(self, jobIDs: Iterable[int]) -> None:  # noqa: N802, N803
        """Remove jobs and wait until none of them runs; they are not reported as ended."""
        wanted = set(jobIDs)
        self.killLocalJobs(list(wanted))
        self._waiting = deque(item for item in self._waiting if item[0] not in wanted)
        self._ended = deque(info for info in self._ended if info.jobID not in wanted)
        doomed = {self._clusters.pop(job) for job in wanted if job in self._clusters}
        if not doomed:
            return
        self._patiently(lambda: self._schedd.remove(doomed, "killed by Toil"))
        deadline = time.monotonic() + _KILL_SECONDS
        while time.monotonic() < deadline:
            there = self._patiently(lambda: self._schedd.jobs(self._setting.workflow))
            if not any(there.get(cluster, {}).get("JobStatus") == RUNNING for cluster in doomed):
                return
            time.sleep(0.5)
        logger.warning("HTCondor jobs %s were removed and still run", sorted(doomed))

    def getSchedulingStatusMessage(self) -> str | None:  # noqa: N802
        """What Toil may tell the user when nothing moves."""
        seen = {cluster: self._ads.get(cluster, {}) for cluster in self._clusters.values()}
        idle = [cluster for cluster, ad in seen.items() if ad.get("JobStatus") == IDLE]
        return f"HTCondor jobs {idle} are idle; ask: hydrator why {idle[0]}" if idle else None

    def shutdown(self) -> None:
        """Remove what is still in the queue, and end the local jobs."""
        self._waiting.clear()
        left, self._clusters = set(self._clusters.values()), {}
        try:
            self._schedd.remove(left, "the Toil workflow has ended")
        except ScheddAway as away:
            logger.warning("HTCondor jobs %s may be left in the queue: %s", sorted(left), away)
        finally:
            self.shutdownLocal()

    def _check_accelerator_request(self, requirer: Any) -> None:  # noqa: ANN401 - Toil's hook
        gpus(requirer.accelerators)

    # --- the queue -----------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Submit what may be submitted and, when it is time, look at the queue."""
        try:
            self._submit_waiting()
            if time.monotonic() - self._polled >= self._poll_seconds:
                self._polled = time.monotonic()
                self._look()
                self._answered = time.monotonic()
        except ScheddAway as away:
            silent = time.monotonic() - self._answered
            if silent > self._patience:
                raise
            logger.warning("%s (for %.0f s; the workflow waits %.0f s)", away, silent, self._patience)
            self._polled = time.monotonic() + min(30.0, silent / 4)

    def _submit_waiting(self) -> None:
        while self._waiting and len(self._clusters) < int(self.config.max_jobs):
            if self._polled > time.monotonic():  # the schedd was away a moment ago
                return
            job, work, datasets = self._waiting[0]
            try:
                site, logs = self._affinity.site, self._logs(job)
                said = description(work, job, logs, self._setting, datasets, site, self._gpus)
                cluster = self._schedd.submit(said)
            except (Refused, ParametersWrong) as refused:
                self._waiting.popleft()
                logger.error("%s (%s) was not submitted: %s", work.unit or work.name, job, refused)  # noqa: TRY400
                self._report(job, Ended(255, Why.FAILED, str(refused)))
                continue
            self._waiting.popleft()
            self._clusters[job] = cluster
            logger.info("%s (%s) is HTCondor job %s", work.unit or work.name, job, cluster)
            if self._outbox is not None:
                self._outbox.publish(ExternalBatchIdMessage(job, str(cluster), type(self).__name__))

    def _look(self) -> None:
        """Read the queue and report what has ended."""
        if not self._clusters:
            return
        self._ads = self._schedd.jobs(self._setting.workflow)
        gone = {cluster for cluster in self._clusters.values() if cluster not in self._ads}
        past = self._schedd.past(gone) if gone else {}
        for job, cluster in list(self._clusters.items()):
            ad = self._ads.get(cluster) or past.get(cluster)
            end = ended(ad) if ad else self._when_missing(cluster)
            if end is not None:
                self._finish(job, cluster, end, ad or {}, listed=cluster in self._ads)
            elif ad:
                self._missing.pop(cluster, None)
                self._hint(cluster, ad)

    def _when_missing(self, cluster: int) -> Ended | None:
        """A job is not in the queue and not yet in the history: it is on its way, or lost."""
        self._missing[cluster] = self._missing.get(cluster, 0) + 1
        return lost(cluster) if self._missing[cluster] >= _MISSING_POLLS else None

    def _finish(self, job: int, cluster: int, end: Ended, ad: dict[str, Any], *, listed: bool) -> None:
        if listed and ad.get("JobStatus") == COMPLETED:
            self._schedd.release([cluster])
        elif listed:
            self._schedd.remove([cluster], f"seen by Toil: {end.why.value}")
        del self._clusters[job]
        if end.why is Why.FINISHED:
            site = ad.get(SITE_ATTRIBUTE)
            if self._affinity.settle(site, str(cluster)):
                logger.info("the run's later jobs stay at %s, where HTCondor job %s ran", site, cluster)
        else:
            logger.error("%s", end.text)
        self._report(job, end, cluster)

    def _report(self, job: int, end: Ended, cluster: int | None = None) -> None:
        self._ended.append(
            UpdatedBatchJobInfo(
                jobID=job,
                exitStatus=end.status,
                exitReason=BatchJobExitReason[end.why.name],
                wallTime=end.seconds,
                backing_id=None if cluster is None else str(cluster),
            )
        )

    def _hint(self, cluster: int, ad: dict[str, Any]) -> None:
        """Say once of a job that matches nothing where to ask why: Toil itself waits in silence."""
        waited = time.time() - float(ad.get("QDate") or time.time())
        if ad.get("JobStatus") == IDLE and waited > _IDLE_HINT_SECONDS and cluster not in self._hinted:
            self._hinted.add(cluster)
            logger.warning(
                "HTCondor job %s has been idle for %.0f s; ask: hydrator why %s", cluster, waited, cluster
            )

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return ask()
            except ScheddAway as away:
                if time.monotonic() > deadline:
                    raise
                logger.warning("%s", away)
                time.sleep(2)

    def _remove_leftovers(self) -> None:
        """A leader that was killed left its jobs: a restarted workflow would run them twice."""
        if getattr(self.config, "restart", False):
            left = self._patiently(lambda: self._schedd.jobs(self._setting.workflow))
            self._patiently(lambda: self._schedd.remove(left, "left by an earlier Toil leader"))

    # --- one job -------------------------------------------------------------------------------------

    def _logs(self, job: int) -> dict[str, str]:
        kinds = {"output": "out", "error": "err", "log": "events"}
        return {name: self.format_std_out_err_path(job, "condor", kind) for name, kind in kinds.items()}

    def _datasets_of(self, job_desc: JobDescription) -> str | None:
        """Return RequiredDatasets of this step, as a ClassAd list; None for a step that reads no dataset."""
        try:
            found = required(inputs_of(job_desc, self.config.jobStore), self._naming, self._run_datasets)
        except InputsUnknown as unknown:
            found = self._run_datasets
            logger.warning(
                "the inputs of %s cannot be read, so it asks for all of the run's datasets: %s",
                job_desc, unknown,
            )  # fmt: skip
        return print_list(found) if found else None


__all__ = ["ClassAdHydratorBatchSystem"]
