"""Metrics and logs of the DESIRED_Sites controller."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as Count

from hydrator.reconcile.desired_sites.controller import DesiredSitesResult, _log
from hydrator.reconcile.desired_sites.decide import DesiredSitesStatus


class DesiredSitesMetrics:
    """What the turns came to, for people: metrics, and a line in the log when that changes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = Gauge(
            "hydrator_desired_sites_jobs",
            "Idle jobs that ask for DESIRED_Sites, by how they stand: set, nowhere, apart, free, theirs.",
            ["schedd", "stand"],
            registry=registry,
        )
        self._edits = Count(
            "hydrator_desired_sites_edits",
            "Queued jobs whose DESIRED_Sites was set or given back.",
            ["schedd"],
            registry=registry,
        )
        self._errors = Count(
            "hydrator_desired_sites_errors",
            "Turns in which DESIRED_Sites could not be kept.",
            ["schedd"],
            registry=registry,
        )
        self._failing_schedds: set[str] = set()
        self._disjoint_schedds: set[str] = set()

    def record(self, results: Mapping[str, DesiredSitesResult]) -> None:
        """Count one turn, and log who began or ceased to refuse, or has jobs that keep lists in vain."""
        for schedd, placed in results.items():
            self._edits.labels(schedd).inc(placed.edited_count)
            if placed.error:
                self._errors.labels(schedd).inc()
            if placed.jobs_by_status or not placed.error:
                for stand in DesiredSitesStatus:
                    self._jobs.labels(schedd, stand).set(placed.jobs_by_status.get(stand, 0))
            self._log_error(schedd, placed)
            self._log_disjoint(schedd, placed)

    def clear(self) -> None:
        """It was switched off: no job stands anyhow any more."""
        self._jobs.clear()
        self._failing_schedds.clear()
        self._disjoint_schedds.clear()

    def _log_error(self, schedd: str, result: DesiredSitesResult) -> None:
        if result.error and schedd not in self._failing_schedds:
            _log.error("desired sites not kept", schedd=schedd, why=result.error)
            self._failing_schedds.add(schedd)
        elif not result.error and schedd in self._failing_schedds:
            _log.info("desired sites are kept again", schedd=schedd)
            self._failing_schedds.discard(schedd)

    def _log_disjoint(self, schedd: str, result: DesiredSitesResult) -> None:
        """A list that the user gave stands, though none of its sites has the data: somebody should know."""
        if result.disjoint_example and schedd not in self._disjoint_schedds:
            _log.warning(
                "no site of a job's own DESIRED_Sites has its data: it keeps its list",
                schedd=schedd,
                job=result.disjoint_example,
                jobs=result.jobs_by_status.get(DesiredSitesStatus.DISJOINT, 0),
            )
            self._disjoint_schedds.add(schedd)
        elif not result.disjoint_example and not result.error:
            self._disjoint_schedds.discard(schedd)
