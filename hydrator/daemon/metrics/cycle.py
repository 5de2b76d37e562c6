"""Metrics of one cycle: polls, sites, held changes, misses and publishing."""

from collections import Counter

from hydrator.domain.model import DatasetState, Origin, SiteAd, to_unix
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.removal_guard import HoldCause

from .table import Instruments


def record_cycle(metrics: Instruments, report: CycleReport, seconds: float) -> None:
    """Record one cycle that took *seconds*, except the datasets that jobs missed."""
    metrics.count("cycles", "complete" if report.is_complete else "partial")
    metrics.histograms["cycle_seconds"].observe(seconds)
    metrics.set("last_cycle_timestamp_seconds", to_unix(report.started_at))
    metrics.set("state_saved", 0 if report.save_error else 1)
    _record_polls(metrics, report)
    _record_demand(metrics, report)
    _record_sites(metrics, report)
    _record_held_losses(metrics, report)
    _export_misses(metrics, report)
    _record_publish_results(metrics, report)
    _record_openings(metrics, report)


def _record_polls(metrics: Instruments, report: CycleReport) -> None:
    for catalogue in report.catalogue_errors:
        since = report.pending_since.get(catalogue)
        seconds_pending = (report.started_at - since).total_seconds() if since else 0.0
        metrics.set("catalogue_pending_seconds", max(0.0, seconds_pending), catalogue)
    for catalogue, duration in report.poll_durations.items():
        outcome = "failed" if report.catalogue_errors[catalogue] else "answered"
        metrics.count("catalogue_reads", catalogue, outcome)
        seconds = duration.total_seconds()
        metrics.histograms["catalogue_read_seconds"].labels(catalogue).observe(seconds)
    for catalogue, memory in report.evaluation.state.memories.items():
        metrics.set("unmapped_storage_elements", len(memory.unmapped_storages), catalogue)


def _record_demand(metrics: Instruments, report: CycleReport) -> None:
    snapshot = report.evaluation.snapshot
    for origin in Origin:
        dids = {did for entry in report.demand.entries if entry.origin is origin for did in entry.dids}
        metrics.set("demanded_datasets", len(dids), origin.name.lower())
    metrics.set("unseen_datasets", len(snapshot.unseen_reasons))
    metrics.set("clashing_datasets", sum(len(names) for names in snapshot.case_collisions))
    metrics.set("misspelt_datasets", len(snapshot.misspelt_dids))


def _record_sites(metrics: Instruments, report: CycleReport) -> None:
    evaluation = report.evaluation
    metrics.clear_gauges(
        "site_as_of_timestamp_seconds",
        "site_datasets",
        "site_generation",
        "site_left_out_jobs",
        "site_ad_bytes",
    )
    for site, ad in evaluation.ads.items():
        metrics.set("site_as_of_timestamp_seconds", to_unix(ad.as_of), site)
        metrics.set("site_generation", ad.generation, site)
        metrics.set("site_ad_bytes", _ad_size_bytes(ad), site)
    for site, facts in evaluation.snapshot.sites.items():
        counts = Counter(fact.state for fact in facts.facts.values())
        for state in DatasetState:
            metrics.set("site_datasets", counts[state], site, state.value)
    for site, draft in evaluation.drafts.items():
        omitted = [entry for entry in draft.omitted_entries if not entry.is_kept]
        omitted_jobs = sum(max(1, entry.job_count) for entry in omitted)
        metrics.set("site_left_out_jobs", omitted_jobs, site)


def _ad_size_bytes(ad: SiteAd) -> int:
    """Return the size of an ad in bytes, written as one line ``name = value`` for each attribute."""
    return sum(len(f"{name} = {value}\n".encode()) for name, value in ad.content)


def _record_held_losses(metrics: Instruments, report: CycleReport) -> None:
    state = report.evaluation.state
    for cause in HoldCause:
        count = sum(loss.cause is cause for loss in state.held_losses.values())
        metrics.set("held_sites", count, cause.value)
    metrics.clear_gauges("held_datasets")
    for site, loss in state.held_losses.items():
        metrics.set("held_datasets", len(loss.missing_polls), site)


def _export_misses(metrics: Instruments, report: CycleReport) -> None:
    """Export the misses of each site from 0, so that Prometheus sees the first missed dataset."""
    for site in report.evaluation.ads:
        metrics.count("missed_datasets", site, by=0)


def _record_publish_results(metrics: Instruments, report: CycleReport) -> None:
    metrics.clear_gauges("rejected_ads")
    for publisher, ads in report.rejected.items():
        metrics.set("rejected_ads", len(ads), publisher)
    for result in report.results:
        publisher = result.publisher
        metrics.set("rivals", publisher in report.rivals, publisher)
        # exported as 0 from the start, so that Prometheus sees the first error as an increase
        metrics.count("publish_errors", publisher, by=1 if result.error else 0)
        if result.error:
            continue
        metrics.set("unconfirmed_ads", len(result.unconfirmed_sites), publisher)
        for action in result.plan:
            metrics.count("ads_sent", publisher, type(action).__name__.lower())


def _record_openings(metrics: Instruments, report: CycleReport) -> None:
    paced = report.paced
    metrics.set("paced", paced.openings is not None)
    metrics.clear_gauges("site_backlog", "site_open_sets", "site_readers")
    if paced.openings is None:
        return
    if paced.load:
        metrics.set("paced_load_timestamp_seconds", to_unix(paced.load.as_of))
    for site, names in paced.openings.openings.items():
        metrics.set("site_open_sets", len(names), site)
    for site in paced.openings.openings.keys() | report.evaluation.ads.keys():
        metrics.set("site_backlog", paced.openings.backlog.get(site, 0), site)
        metrics.set("site_readers", paced.readers.get(site, 0), site)
