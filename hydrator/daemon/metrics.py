"""Metrics of the daemon: the table with the name, type, help and labels of each, and what a cycle records.

The exported name is ``hydrator_`` and the name in the table; a counter also ends with ``_total``. Each
recorder has its own registry, so two daemons in one process share no metric.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.outcomes import EndedJobBatch, Start
from hydrator.diagnostics.slot_coverage import Coverage
from hydrator.domain.model import DatasetState, Site, to_unix
from hydrator.domain.staging_ports import RefusalKind
from hydrator.reconcile.misses import Miss
from hydrator.reconcile.snapshot.removal_guard import HoldCause
from hydrator.reconcile.view import CycleView, SiteView

_DURATION_BUCKETS_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_WAIT_BUCKETS_SECONDS = (60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86_400)

_Labels = tuple[str, ...]

COUNTERS: Final[tuple[tuple[str, str, _Labels], ...]] = (
    ("cycles", "Cycles, by outcome: complete, partial or failed.", ("outcome",)),
    ("catalogue_reads", "Polls of a catalogue, by outcome: answered or failed.", ("catalogue", "outcome")),
    ("bugs", "Unexpected exceptions, by the part that failed; the log shows each exception once.", ("part",)),
    ("ads_sent", "Site ads sent, by publisher and action.", ("publisher", "action")),
    ("publish_errors", "Cycles in which a publisher failed.", ("publisher",)),
    ("condor_child_restarts", "Restarts of the child process that runs HTCondor's bindings.", ()),
    ("missed_datasets", "Datasets that jobs did not find, by the site that the jobs report.", ("site",)),
    (
        "job_starts",
        (
            "Last starts of ended jobs: local, beside all its data; read, to read from another site; unknown,"
            " without an answer of the slot; no_datasets, of a job that names none."
        ),
        ("start",),
    ),
    ("merge_errors", "Runs of the slot merge that failed.", ("collector",)),
    (
        "staging_requests",
        "Calls for requests of data, by outcome: asked, pinned, renewed, cancelled or failed.",
        ("outcome",),
    ),
    (
        "staging_refusals",
        "Requests of data that the catalogue refused or that failed, by kind: permission, quota, closed…",
        ("kind",),
    ),
    (
        "staging_bytes",
        (
            "Bytes that were asked for, by outcome: asked, staged (complete on disk) or unused (they ended"
            " before any job used them)."
        ),
        ("outcome",),
    ),
)

GAUGES: Final[tuple[tuple[str, str, _Labels], ...]] = (
    ("build_info", "Version of the running daemon.", ("version",)),
    ("last_cycle_timestamp_seconds", "Start of the last cycle that did not fail.", ()),
    (
        "catalogue_pending_seconds",
        "Age of a catalogue's unanswered poll when the last cycle began; 0 if the catalogue answered.",
        ("catalogue",),
    ),
    ("site_as_of_timestamp_seconds", "Time of the last complete reading of a site.", ("site",)),
    ("site_datasets", "Demanded datasets at a site, by state.", ("site", "state")),
    (
        "site_left_out_jobs",
        "Jobs whose datasets are not in a site's ad, because the ad would exceed its size budget.",
        ("site",),
    ),
    ("site_ad_bytes", "Size of the content of a site's ad.", ("site",)),
    ("demanded_datasets", "Datasets in demand, by origin: pin, job or pattern.", ("origin",)),
    ("unseen_datasets", "Datasets in demand for which some catalogue gave no answer.", ()),
    (
        "unmapped_storage_elements",
        "Storage elements without a site mapping; their datasets are not advertised.",
        ("catalogue",),
    ),
    (
        "held_sites",
        (
            "Sites with a held loss of datasets, by cause: too many datasets of the site would vanish"
            " (site), too many of all sites together (all), no catalogue lists the site any more (unnamed),"
            " the clock was set back (clock)."
        ),
        ("cause",),
    ),
    ("unconfirmed_ads", "Site ads that the daemon sent but could not read back.", ("publisher",)),
    (
        "rejected_ads",
        (
            "Ads that the daemon read back from a publisher and ignores, because another identity sent them"
            " or their numbers are implausible."
        ),
        ("publisher",),
    ),
    ("rivals", "1 if another daemon overwrites the ads of this daemon, 0 otherwise.", ("publisher",)),
    ("state_saved", "1 if the last cycle saved the state to disk, 0 if it could not.", ()),
    (
        "paced",
        "1 if the last cycle paced the reads from elsewhere, 0 if it could not; the log has the reason.",
        (),
    ),
    ("site_backlog", "Idle jobs whose set of datasets is whole at a site.", ("site",)),
    ("site_readers", "Running jobs that started with a read from a site.", ("site",)),
    (
        "config_last_reload_successful",
        "1 if the last reload was accepted, 0 if an older configuration stays in use.",
        (),
    ),
    (
        "credential_expiry_timestamp_seconds",
        "Expiry of a token or certificate.",
        ("credential",),
    ),
    (
        "credential_lifetime_seconds",
        "Time from the start of a token's or certificate's validity to its expiry, if the start is known.",
        ("credential",),
    ),
    (
        "slots",
        "Slots that take jobs, by site and by the slot's copy of the site ad: current, outdated or none.",
        ("site", "coverage"),
    ),
    ("staging_problems", "Catalogues and parts of staging that fail now.", ()),
    ("staging_open_requests", "Requests of data that have not ended.", ("site", "kind")),
    ("staging_in_flight_bytes", "Bytes on their way because of requests.", ("site",)),
    ("staging_stuck_requests", "Requests that are stuck for longer than a day.", ("site",)),
    (
        "staging_unserved_jobs",
        "Jobs for whose data nothing is asked, because of a limit or a missing fact.",
        (),
    ),
    (
        "staging_limit_used_ratio",
        "Share of a limit that is taken; of several sites or users the largest.",
        ("limit",),
    ),
)

HISTOGRAMS: Final[tuple[tuple[str, str, _Labels, tuple[float, ...]], ...]] = (
    ("cycle_seconds", "Duration of a cycle.", (), _DURATION_BUCKETS_SECONDS),
    (
        "catalogue_read_seconds",
        "Duration of a poll of a catalogue, answered or not.",
        ("catalogue",),
        _DURATION_BUCKETS_SECONDS,
    ),
    (
        "job_wait_seconds",
        (
            "Time from the submission to the first start of ended jobs."
            " Label datasets: named if the job names datasets, else none."
        ),
        ("datasets",),
        _WAIT_BUCKETS_SECONDS,
    ),
)


_INITIAL_SERIES: Final[Mapping[str, Iterable[str]]] = {
    "job_starts": [start.value for start in Start],
    "cycles": ["complete", "partial", "failed"],
    "bugs": ["cycle"],
    "staging_requests": ["asked", "pinned", "renewed", "cancelled", "failed"],
    "staging_refusals": [kind.value for kind in RefusalKind],
    "staging_bytes": ["asked", "staged", "unused"],
}
"""Series that are exported with 0 from the start, so that their first event is an increase."""


class Instruments:
    """The metrics of the table, registered in *registry*, by name."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.counters = {
            name: Counter(f"hydrator_{name}", text, labels, registry=registry)
            for name, text, labels in COUNTERS
        }
        self.gauges = {
            name: Gauge(f"hydrator_{name}", text, labels, registry=registry) for name, text, labels in GAUGES
        }
        self.histograms = {
            name: Histogram(f"hydrator_{name}", text, labels, buckets=buckets, registry=registry)
            for name, text, labels, buckets in HISTOGRAMS
        }
        self._series: defaultdict[str, set[_Labels]] = defaultdict(set)
        """The labels of the series of each gauge."""
        for name, values in _INITIAL_SERIES.items():
            for value in values:
                self.count(name, value, by=0)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Increase a counter.

        An increase by 0 exports the counter. Prometheus then sees the first event as an increase.
        """
        counter = self.counters[name]
        (counter.labels(*labels) if labels else counter).inc(by)

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        gauge = self.gauges[name]
        (gauge.labels(*labels) if labels else gauge).set(value)
        self._series[name].add(labels)

    @contextlib.contextmanager
    def replacing(self, *prefixes: str) -> Iterator[None]:
        """Remove the series that the ``with`` block does not set, of the gauges with one of these prefixes.

        Gauges without labels stay. A series goes with its site, for example. A scrape meanwhile finds the
        old series, and never a gauge without any.
        """
        names = [name for name, _, labels in GAUGES if labels and name.startswith(prefixes)]
        before = {name: self._series.pop(name, set()) for name in names}
        try:
            yield
        finally:
            for name, labels_before in before.items():
                for labels in labels_before - self._series[name]:
                    self.gauges[name].remove(*labels)


def _record_polls(metrics: Instruments, view: CycleView) -> None:
    for one in view.catalogues:
        pending_since = view.at if one.pending_since is None else one.pending_since
        metrics.set("catalogue_pending_seconds", max(0, view.at - pending_since), one.name)
        metrics.set("unmapped_storage_elements", len(one.unmapped), one.name)
        if one.poll_seconds is not None:
            metrics.count("catalogue_reads", one.name, "failed" if one.error else "answered")
            metrics.histograms["catalogue_read_seconds"].labels(one.name).observe(one.poll_seconds)


def _record_demand(metrics: Instruments, view: CycleView) -> None:
    for origin, count in view.demand.by_origin.items():
        metrics.set("demanded_datasets", count, origin)
    metrics.set("unseen_datasets", len(view.demand.unseen))


def _record_site(metrics: Instruments, site: SiteView) -> None:
    name = site.site
    if site.generation is not None:
        metrics.set("site_ad_bytes", site.ad_bytes or 0, name)
        metrics.set("site_left_out_jobs", site.left_out.jobs if site.left_out else 0, name)
        metrics.count("missed_datasets", name, by=0)  # so that Prometheus sees the first missed dataset
        if site.as_of is not None:
            metrics.set("site_as_of_timestamp_seconds", site.as_of, name)
    if site.states is not None:
        for state in DatasetState:
            metrics.set("site_datasets", site.states.get(state.value, 0), name, state.value)
    if site.backlog is not None and site.readers is not None:
        metrics.set("site_backlog", site.backlog, name)
        metrics.set("site_readers", site.readers, name)


def _record_publish_results(metrics: Instruments, view: CycleView) -> None:
    for one in view.publishers:
        metrics.set("rejected_ads", len(one.rejected), one.name)
        metrics.set("rivals", one.rival is not None, one.name)
        # exported as 0 from the start, so that Prometheus sees the first error as an increase
        metrics.count("publish_errors", one.name, by=1 if one.error else 0)
        if not one.error:
            metrics.set("unconfirmed_ads", len(one.not_read_back), one.name)
    failed = {one.name for one in view.publishers if one.error}
    for row in view.plan:
        if row.publisher is not None and row.publisher not in failed:
            metrics.count("ads_sent", row.publisher, row.action)


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
        self.instruments = Instruments(registry)
        self._last_restart_count = 0
        self.instruments.set("build_info", 1, version)
        self.instruments.set("config_last_reload_successful", 1)

    def count_child_restarts(self, restarts: int) -> None:
        """Count the restarts since the last call; *restarts* is the number since the start of the daemon."""
        self.instruments.count("condor_child_restarts", by=restarts - self._last_restart_count)
        self._last_restart_count = restarts

    def record_cycle(self, view: CycleView, seconds: float) -> None:
        """Record one cycle that took *seconds*."""
        metrics = self.instruments
        metrics.count("cycles", "complete" if view.complete else "partial")
        metrics.histograms["cycle_seconds"].observe(seconds)
        metrics.set("last_cycle_timestamp_seconds", view.at)
        metrics.set("state_saved", view.save_error is None)
        _record_polls(metrics, view)
        _record_demand(metrics, view)
        with metrics.replacing("site_", "rejected_ads"):
            for site in view.sites:
                _record_site(metrics, site)
            _record_publish_results(metrics, view)
        for cause in HoldCause:
            count = sum(site.loss is not None and site.loss.cause is cause for site in view.sites)
            metrics.set("held_sites", count, cause.value)
        metrics.set("paced", view.pacing.open_until is not None)

    def record_ended_jobs(self, batch: EndedJobBatch) -> None:
        """Record the starts and the waiting times of ended jobs; any thread may call this."""
        for job in batch.jobs:
            if job.last_started_at is not None:
                self.instruments.count("job_starts", job.start.value)
            if job.wait_seconds is not None:
                datasets = "none" if job.datasets is None else "named"
                self.instruments.histograms["job_wait_seconds"].labels(datasets).observe(job.wait_seconds)

    def count_misses(self, misses: Iterable[Miss], known_sites: Container[Site]) -> None:
        """Count the datasets that jobs reported as missing, by site; any thread may call this.

        The owner of a job writes the report and could name any site. So all sites but *known_sites* count as
        ``unknown``.
        """
        for miss in misses:
            self.instruments.count("missed_datasets", miss.site if miss.site in known_sites else "unknown")

    def set_credentials(self, credentials: Iterable[Credential]) -> None:
        """Set the expiry and the lifetime of all credentials in use."""
        expiry, lifetime = "credential_expiry_timestamp_seconds", "credential_lifetime_seconds"
        with self.instruments.replacing(expiry, lifetime):
            for credential in credentials:
                self.instruments.set(expiry, to_unix(credential.expires_at), credential.name)
                if credential.lifetime:
                    self.instruments.set(lifetime, credential.lifetime.total_seconds(), credential.name)

    def set_slot_coverage(self, coverage: Mapping[Site, Mapping[Coverage, int]]) -> None:
        """Set the number of slots by site and by coverage; any thread may call this."""
        with self.instruments.replacing("slots"):
            for site, counts in coverage.items():
                for kind, count in counts.items():
                    self.instruments.set("slots", count, site, kind.value)
