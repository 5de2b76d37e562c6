"""Recorder of metrics. Each recorder has its own registry, so two daemons in one process share no metric."""

import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.outcomes import EndedJobBatch, Start
from hydrator.diagnostics.slot_coverage import Coverage
from hydrator.domain.model import Site, to_unix
from hydrator.domain.network import TransferOrigin, TransferSample
from hydrator.domain.ports import MergeResult
from hydrator.reconcile.misses import Miss
from hydrator.reconcile.view import CycleView

from .cycle import record_cycle
from .table import build_instruments

_MAX_QUEUED_MISSES = 10_000
"""Maximum number of misses (datasets that jobs did not find) that wait for the first cycle."""
_INITIAL_SERIES: Mapping[str, Iterable[str]] = {
    "job_starts": [start.value for start in Start],
    "cycles": ["complete", "partial", "failed"],
    "bugs": ["cycle"],
}
"""Series that are exported with 0 from the start, so that their first event is an increase."""


class DaemonProcessCollector(ProcessCollector):
    """Memory, CPU time, files and start time of the daemon's process.

    The boot time is computed from a clock, since systemd hides /proc/stat from the service (ProcSubset=pid).
    """

    def _boot_time(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


# prometheus_client exports a "created" series for each counter and histogram; this project does not need it
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Metrics of the daemon; labels are sites, catalogues, publishers and states, never datasets."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        DaemonProcessCollector(registry=registry)
        self._metrics = build_instruments(registry)
        self._last_restart_count = 0
        self._known_sites: frozenset[Site] | None = None
        self._queued_misses: deque[Site] = deque(maxlen=_MAX_QUEUED_MISSES)
        self._metrics.set("build_info", 1, version)
        self.set_reload_result(is_successful=True)
        for name, values in _INITIAL_SERIES.items():
            for value in values:
                self._metrics.count(name, value, by=0)

    def count_failed_cycle(self) -> None:
        """Count a cycle that ended with an unexpected error."""
        self._metrics.count("cycles", "failed")

    def count_bug(self, part: str) -> None:
        """Count an unexpected exception of *part*; any thread may call this."""
        self._metrics.count("bugs", part)

    def count_child_restarts(self, restarts: int) -> None:
        """Count the restarts since the last call; *restarts* is the total of the child process.

        A smaller total than at the last call means that the total began again at 0.
        """
        before = self._last_restart_count if restarts >= self._last_restart_count else 0
        self._metrics.count("condor_child_restarts", by=restarts - before)
        self._last_restart_count = restarts

    def record_cycle(self, view: CycleView, seconds: float) -> None:
        """Record one cycle that took *seconds*."""
        record_cycle(self._metrics, view, seconds)
        self._known_sites = frozenset(site.site for site in view.sites if site.generation is not None)
        self.record_misses(())

    def record_merge(self, results: Mapping[str, MergeResult]) -> None:
        """Record one run of the slot merge, by collector; any thread may call this."""
        for collector, result in results.items():
            sent_count = result.merged_count + result.withdrawn_count
            self._metrics.count("merged_slots", collector, by=sent_count)
            self._metrics.count("merge_slot_seconds", collector, "yes", by=result.covered_slot_seconds)
            self._metrics.count("merge_slot_seconds", collector, "no", by=result.uncovered_slot_seconds)
            if result.error:
                self._metrics.count("merge_errors", collector)
            else:
                self._metrics.set("merge_slots", result.slot_count, collector)

    def record_ended_jobs(self, batch: EndedJobBatch) -> None:
        """Record the starts and the waiting times of ended jobs; any thread may call this."""
        for job in batch.jobs:
            if job.last_started_at is not None:
                self._metrics.count("job_starts", job.start.value)
            if job.wait_seconds is not None:
                datasets = "none" if job.datasets is None else "named"
                self._metrics.histograms["job_wait_seconds"].labels(datasets).observe(job.wait_seconds)

    def record_misses(self, misses: Iterable[Miss]) -> None:
        """Count the datasets that jobs reported as missing, by site; any thread may call this.

        The owner of a job writes the report and could name any site. So misses are counted only after a cycle
        has listed the sites, and all other site names count as ``unknown``.
        """
        self._queued_misses.extend(miss.site for miss in misses)
        while self._known_sites is not None and self._queued_misses:
            with contextlib.suppress(IndexError):  # another thread has counted these misses
                site = self._queued_misses.popleft()
                label = site if site in self._known_sites else "unknown"
                self._metrics.count("missed_datasets", label)

    def set_transfer_samples(self, samples: Iterable[TransferSample]) -> None:
        """Set the number and the age of the samples of transfers, by origin; any thread may call this."""
        newest: dict[str, float] = {}
        counts: Counter[str] = Counter()
        for sample in samples:
            counts[sample.origin.value] += 1
            ended_at = sample.ended_at.timestamp()
            newest[sample.origin.value] = max(ended_at, newest.get(sample.origin.value, 0.0))
        for origin in TransferOrigin:
            self._metrics.set("transfer_samples", counts[origin.value], origin.value)
        for name, ended_at in newest.items():
            self._metrics.set("newest_transfer_sample_timestamp_seconds", ended_at, name)

    def set_reload_result(self, *, is_successful: bool) -> None:
        """Set whether the daemon accepted the configuration at the last reload."""
        self._metrics.set("config_last_reload_successful", is_successful)

    def set_credentials(self, credentials: Iterable[Credential]) -> None:
        """Set the expiry and the lifetime of all credentials in use."""
        expiry, lifetime = "credential_expiry_timestamp_seconds", "credential_lifetime_seconds"
        self._metrics.clear_gauges(expiry, lifetime)
        for credential in credentials:
            labels = (credential.name, credential.renewed_by.value)
            self._metrics.set(expiry, to_unix(credential.expires_at), *labels)
            if credential.lifetime:
                self._metrics.set(lifetime, credential.lifetime.total_seconds(), *labels)

    def set_slot_coverage(self, coverage: Mapping[Site, Mapping[Coverage, int]]) -> None:
        """Set the number of slots by site and by coverage; any thread may call this."""
        self._metrics.clear_gauges("slots")
        for site, counts in coverage.items():
            for kind, count in counts.items():
                self._metrics.set("slots", count, site, kind.value)
