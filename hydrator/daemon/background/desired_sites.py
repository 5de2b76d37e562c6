"""Metrics and logs of the DESIRED_Sites controller."""

from collections.abc import Mapping

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from hydrator.domain.bugs import OngoingFailures
from hydrator.reconcile.desired_sites.controller import DesiredSitesResult
from hydrator.reconcile.desired_sites.decide import DesiredSitesStatus

_log = structlog.get_logger("hydrator")


class DesiredSitesMetrics:
    """Metrics of the runs of the DESIRED_Sites controller, and a log line when a result changes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = Gauge(
            "hydrator_desired_sites_jobs",
            (
                "Idle jobs that ask for DESIRED_Sites, by status: set (the list has the sites with the job's"
                " data), no_site (no site has all data), disjoint (the job's own list has no site with all"
                " data), free (the job may run anywhere), foreign (another writer changed the list)."
            ),
            ["schedd", "status"],
            registry=registry,
        )
        self._edits = Counter(
            "hydrator_desired_sites_edits",
            "Queued jobs whose DESIRED_Sites the daemon set or restored.",
            ["schedd"],
            registry=registry,
        )
        self._errors = Counter(
            "hydrator_desired_sites_errors",
            "Runs in which the daemon could not update DESIRED_Sites.",
            ["schedd"],
            registry=registry,
        )
        self._failing_schedds = OngoingFailures()
        self._disjoint_schedds = OngoingFailures()

    def record(self, results: Mapping[str, DesiredSitesResult]) -> None:
        """Count one run of the controller.

        Log when updates at a schedd fail or work again. Log also when a job keeps its own DESIRED_Sites
        although none of these sites has the job's data.
        """
        for schedd, result in results.items():
            self._edits.labels(schedd).inc(result.edited_count)
            if result.error:
                self._errors.labels(schedd).inc()
            if result.jobs_by_status or not result.error:
                for status in DesiredSitesStatus:
                    self._jobs.labels(schedd, status).set(result.jobs_by_status.get(status, 0))
            self._log_error(schedd, result)
            self._log_disjoint(schedd, result)

    def clear(self) -> None:
        """Remove the counts of jobs after the operator switched the controller off."""
        self._jobs.clear()
        self._failing_schedds.replace({})
        self._disjoint_schedds.replace({})

    def _log_error(self, schedd: str, result: DesiredSitesResult) -> None:
        if result.error and self._failing_schedds.begin(schedd):
            _log.error("update of desired sites failed", schedd=schedd, why=result.error)
        elif not result.error and self._failing_schedds.end(schedd):
            _log.info("update of desired sites works again", schedd=schedd)

    def _log_disjoint(self, schedd: str, result: DesiredSitesResult) -> None:
        """Log once that a job keeps its own DESIRED_Sites although none of these sites has the job's data."""
        if result.disjoint_example and self._disjoint_schedds.begin(schedd):
            _log.warning(
                "no site of a job's own DESIRED_Sites has its data: it keeps its list",
                schedd=schedd,
                job=result.disjoint_example,
                jobs=result.jobs_by_status.get(DesiredSitesStatus.DISJOINT, 0),
            )
        elif not result.disjoint_example and not result.error:
            self._disjoint_schedds.end(schedd)
