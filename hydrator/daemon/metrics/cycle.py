"""Metrics of one cycle, from its view: polls, sites, held changes and publishing."""

from hydrator.domain.model import DatasetState
from hydrator.reconcile.snapshot.removal_guard import HoldCause
from hydrator.reconcile.view import CycleView, SiteView

from .table import Instruments

_SITE_GAUGES = (
    "site_as_of_timestamp_seconds",
    "site_datasets",
    "site_generation",
    "site_left_out_jobs",
    "site_ad_bytes",
    "held_datasets",
    "site_backlog",
    "site_open_sets",
    "site_readers",
)


def record_cycle(metrics: Instruments, view: CycleView, seconds: float) -> None:
    """Record one cycle that took *seconds*."""
    metrics.count("cycles", "complete" if view.complete else "partial")
    metrics.histograms["cycle_seconds"].observe(seconds)
    metrics.set("last_cycle_timestamp_seconds", view.at)
    metrics.set("state_saved", view.save_error is None)
    _record_polls(metrics, view)
    _record_demand(metrics, view)
    metrics.clear_gauges(*_SITE_GAUGES, "rejected_ads")
    for site in view.sites:
        _record_site(metrics, site)
    for cause in HoldCause:
        count = sum(site.loss is not None and site.loss.cause is cause for site in view.sites)
        metrics.set("held_sites", count, cause.value)
    _record_publish_results(metrics, view)
    metrics.set("paced", view.pacing.open_until is not None)
    if view.pacing.open_until is not None and view.pacing.load_at is not None:
        metrics.set("paced_load_timestamp_seconds", view.pacing.load_at)


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
    metrics.set("clashing_datasets", sum(map(len, view.demand.clashes)))
    metrics.set("misspelt_datasets", len(view.demand.misspelt))


def _record_site(metrics: Instruments, site: SiteView) -> None:
    name = site.site
    if site.generation is not None:
        metrics.set("site_generation", site.generation, name)
        metrics.set("site_ad_bytes", site.ad_bytes or 0, name)
        metrics.set("site_left_out_jobs", site.left_out.jobs if site.left_out else 0, name)
        metrics.count("missed_datasets", name, by=0)  # so that Prometheus sees the first missed dataset
        if site.as_of is not None:
            metrics.set("site_as_of_timestamp_seconds", site.as_of, name)
    if site.states is not None:
        for state in DatasetState:
            metrics.set("site_datasets", site.states.get(state.value, 0), name, state.value)
    if site.loss:
        metrics.set("held_datasets", site.loss.datasets, name)
    if site.open_sets is not None:
        metrics.set("site_open_sets", site.open_sets, name)
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
