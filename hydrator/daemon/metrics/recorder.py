"""Recorder of metrics; it gets its registry, so that two daemons in one process share nothing."""

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.job_outcomes import JobOutcomeBatch
from hydrator.diagnostics.outcomes import LocalityResult
from hydrator.diagnostics.slot_coverage import Coverage
from hydrator.domain.model import Site, to_unix
from hydrator.domain.pool_ports import MergeResult
from hydrator.reconcile.audit.misses import Miss
from hydrator.reconcile.audit.runner import AuditAttempt
from hydrator.reconcile.result import CycleReport

from .cycle import record_cycle
from .table import build_instruments

_MAX_QUEUED_MISSES = 10_000
"""Misses that may wait for the first cycle."""
_INITIAL_SERIES: Mapping[str, Iterable[str]] = {
    "jobs_local": [result.value for result in LocalityResult],
    "jobs_data_bytes": ["site", "elsewhere"],
    "cycles": ["complete", "partial", "failed"],
    "bugs": ["cycle"],
}
"""Series that are exported with 0 from the start, so that their first event is an increase."""


class DaemonProcessCollector(ProcessCollector):
    """Memory, CPU time, files and start time of the daemon's process.

    The boot time comes from a clock: systemd hides /proc/stat from the service (ProcSubset=pid).
    """

    def _boot_time(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


# a second series for every counter and histogram, which nothing reads
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Counts of the daemon; labels are sites, catalogues, publishers and states, never datasets."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        DaemonProcessCollector(registry=registry)
        self._instruments = build_instruments(registry)
        self._counters = self._instruments.counters
        self._gauges = self._instruments.gauges
        self._histograms = self._instruments.histograms
        self._last_restart_count = 0
        self._known_sites: frozenset[Site] | None = None
        self._queued_misses: deque[Site] = deque(maxlen=_MAX_QUEUED_MISSES)
        self._gauges["build_info"].labels(version).set(1)
        self.set_leader(is_leader=True)
        self.set_reload_result(is_successful=True)
        for name, values in _INITIAL_SERIES.items():
            for value in values:
                self._counters[name].labels(value)

    def count_failed_cycle(self) -> None:
        """Count a cycle that ended with an unexpected error."""
        self._counters["cycles"].labels("failed").inc()

    def count_bug(self, part: str) -> None:
        """Count an unexpected exception of *part*; from any thread."""
        self._counters["bugs"].labels(part).inc()

    def count_child_restarts(self, restarts: int) -> None:
        """Count up to *restarts* of the child; a smaller number than before comes from a new supervisor."""
        before = self._last_restart_count if restarts >= self._last_restart_count else 0
        self._counters["condor_child_restarts"].inc(restarts - before)
        self._last_restart_count = restarts

    def record_cycle(self, report: CycleReport, seconds: float) -> None:
        """Record one cycle that took *seconds*."""
        record_cycle(self._instruments, report, seconds)
        self._known_sites = frozenset(report.evaluation.ads)
        self._count_misses()

    def record_merge(self, results: Mapping[str, MergeResult]) -> None:
        """Record one run of the slot merge, by collector; from any thread."""
        for collector, result in results.items():
            sent_count = result.merged_count + result.withdrawn_count
            self._counters["merged_slots"].labels(collector).inc(sent_count)
            slot_seconds = self._counters["merge_slot_seconds"]
            slot_seconds.labels(collector, "yes").inc(result.covered_slot_seconds)
            slot_seconds.labels(collector, "no").inc(result.uncovered_slot_seconds)
            if result.error:
                self._counters["merge_errors"].labels(collector).inc()
            else:
                self._gauges["merge_slots"].labels(collector).set(result.slot_count)

    def record_audit_attempt(self, attempt: AuditAttempt) -> None:
        """Record one audit query and its verdicts; from any thread."""
        verdicts = {
            "true": attempt.true_count,
            "false": attempt.false_count,
            "none": int(attempt.error is not None),
        }
        for verdict, count in verdicts.items():
            self._counters["audited_facts"].labels(attempt.catalogue, attempt.method, verdict).inc(count)

    def record_ended_jobs(self, batch: JobOutcomeBatch) -> None:
        """Record the locality and the wait of ended jobs; from any thread."""
        for outcome in batch.outcomes:
            self._counters["jobs_local"].labels(outcome.locality.value).inc()
            self._counters["jobs_data_bytes"].labels("site").inc(outcome.bytes_at_site)
            self._counters["jobs_data_bytes"].labels("elsewhere").inc(outcome.bytes_elsewhere)
        for job in batch.jobs:
            if job.wait_time is not None:
                datasets = "none" if job.datasets is None else "named"
                self._histograms["job_wait_seconds"].labels(datasets).observe(job.wait_time.total_seconds())

    def record_misses(self, misses: Iterable[Miss]) -> None:
        """Record new misses that jobs report, by site; from any thread.

        The owner of a job writes the report and could name any site. So misses are counted only once a cycle
        has listed the sites, and other names count as ``unknown``.
        """
        self._queued_misses.extend(miss.site for miss in misses)
        self._count_misses()

    def _count_misses(self) -> None:
        while self._known_sites is not None and self._queued_misses:
            with contextlib.suppress(IndexError):  # another thread counted the last one
                site = self._queued_misses.popleft()
                label = site if site in self._known_sites else "unknown"
                self._counters["missed_datasets"].labels(label).inc()

    def set_leader(self, *, is_leader: bool) -> None:
        """Set whether this daemon publishes."""
        self._gauges["leads"].set(is_leader)

    def set_reload_result(self, *, is_successful: bool) -> None:
        """Set whether the configuration in use is the last one that the daemon read."""
        self._gauges["config_last_reload_successful"].set(is_successful)

    def set_credentials(self, credentials: Iterable[Credential]) -> None:
        """Set expiry and lifetime of all credentials in use."""
        names = ("credential_expiry_timestamp_seconds", "credential_lifetime_seconds")
        self._instruments.clear_gauges(*names)
        expiry, lifetime = (self._gauges[name] for name in names)
        for credential in credentials:
            labels = (credential.name, credential.renewed_by.value)
            expiry.labels(*labels).set(to_unix(credential.expires_at))
            if credential.lifetime:
                lifetime.labels(*labels).set(credential.lifetime.total_seconds())

    def set_slot_coverage(self, coverage: Mapping[Site, Mapping[Coverage, int]]) -> None:
        """Set how many slots carry their site's ad; from any thread."""
        self._instruments.clear_gauges("slots")
        for site, counts in coverage.items():
            for kind, count in counts.items():
                self._gauges["slots"].labels(site, kind.value).set(count)
