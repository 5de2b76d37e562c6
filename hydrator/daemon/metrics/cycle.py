"""Metrics of one cycle: polls, sites, held changes, audit and publishing."""

from hydrator.domain.model import DatasetState, Origin, SiteAd, to_unix
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.breaker import HoldCause

from .table import Instruments


def record_cycle(instruments: Instruments, report: CycleReport, seconds: float) -> None:
    """Record one cycle that took *seconds*, all but its misses."""
    counters, gauges = instruments.counters, instruments.gauges
    counters["cycles"].labels("complete" if report.is_complete else "partial").inc()
    instruments.histograms["cycle_seconds"].observe(seconds)
    gauges["last_cycle_timestamp_seconds"].set(to_unix(report.started_at))
    gauges["state_saved"].set(0 if report.save_error else 1)
    _record_polls(instruments, report)
    _record_demand(instruments, report)
    _record_sites(instruments, report)
    _record_held_losses(instruments, report)
    _record_audit(instruments, report)
    _record_publish_results(instruments, report)


def _record_polls(instruments: Instruments, report: CycleReport) -> None:
    counters, gauges = instruments.counters, instruments.gauges
    for catalogue in report.catalogue_errors:
        since = report.pending_since.get(catalogue)
        seconds_pending = (report.started_at - since).total_seconds() if since else 0.0
        gauges["catalogue_pending_seconds"].labels(catalogue).set(max(0.0, seconds_pending))
    for catalogue, duration in report.poll_durations.items():
        outcome = "failed" if report.catalogue_errors[catalogue] else "answered"
        counters["catalogue_reads"].labels(catalogue, outcome).inc()
        seconds = duration.total_seconds()
        instruments.histograms["catalogue_read_seconds"].labels(catalogue).observe(seconds)
    for catalogue, memory in report.evaluation.state.memories.items():
        gauges["unmapped_storage_elements"].labels(catalogue).set(len(memory.unmapped_storages))


def _record_demand(instruments: Instruments, report: CycleReport) -> None:
    gauges, snapshot = instruments.gauges, report.evaluation.snapshot
    for origin in Origin:
        dids = {did for entry in report.demand.entries if entry.origin is origin for did in entry.dids}
        gauges["demanded_datasets"].labels(origin.name.lower()).set(len(dids))
    gauges["unseen_datasets"].set(len(snapshot.unseen_reasons))
    gauges["clashing_datasets"].set(sum(len(names) for names in snapshot.case_collisions))
    gauges["misspelt_datasets"].set(len(snapshot.misspelt_dids))


def _record_sites(instruments: Instruments, report: CycleReport) -> None:
    gauges, evaluation = instruments.gauges, report.evaluation
    instruments.clear_gauges(
        "site_as_of_timestamp_seconds",
        "site_datasets",
        "site_generation",
        "site_left_out_jobs",
        "site_ad_bytes",
    )
    for site, ad in evaluation.ads.items():
        gauges["site_as_of_timestamp_seconds"].labels(site).set(to_unix(ad.as_of))
        gauges["site_generation"].labels(site).set(ad.generation)
        gauges["site_ad_bytes"].labels(site).set(_ad_size_bytes(ad))
    for site, facts in evaluation.snapshot.sites.items():
        for state in DatasetState:
            count = sum(fact.state is state for fact in facts.facts.values())
            gauges["site_datasets"].labels(site, state.value).set(count)
    for site, draft in evaluation.drafts.items():
        omitted_jobs = sum(max(1, entry.job_count) for entry in draft.omitted_entries)
        gauges["site_left_out_jobs"].labels(site).set(omitted_jobs)


def _ad_size_bytes(ad: SiteAd) -> int:
    """Return the bytes of an ad's attributes, each on a line of its own as ``name = value``."""
    return sum(len(f"{name} = {value}\n".encode()) for name, value in ad.content)


def _record_held_losses(instruments: Instruments, report: CycleReport) -> None:
    gauges, state = instruments.gauges, report.evaluation.state
    for cause in HoldCause:
        count = sum(loss.cause is cause for loss in state.held_losses.values())
        gauges["held_sites"].labels(cause.value).set(count)
    gauges["rolled_back_sites"].set(len(state.rollbacks))
    instruments.clear_gauges("held_datasets")
    for site, loss in state.held_losses.items():
        gauges["held_datasets"].labels(site).set(len(loss.missing_polls))


def _record_audit(instruments: Instruments, report: CycleReport) -> None:
    counters, gauges, audit = instruments.counters, instruments.gauges, report.evaluation.state.audit
    instruments.clear_gauges("site_trust_ratio", "site_audit_timestamp_seconds", "site_corrected_datasets")
    for site in report.evaluation.ads:
        gauges["site_trust_ratio"].labels(site).set(audit.trust.get(site, 1.0))
        gauges["site_corrected_datasets"].labels(site).set(audit.count_false_claims(site))
        tally = audit.tallies.get(site)
        if tally and tally.last_audited_at:
            gauges["site_audit_timestamp_seconds"].labels(site).set(to_unix(tally.last_audited_at))
        # exported from 0 on, or the first of them would not be an increase
        counters["repeated_false_claims"].labels(site)
        counters["missed_datasets"].labels(site)
    for repeated in report.evaluation.repeated_claims:
        counters["repeated_false_claims"].labels(repeated.claim.site).inc()


def _record_publish_results(instruments: Instruments, report: CycleReport) -> None:
    counters, gauges = instruments.counters, instruments.gauges
    instruments.clear_gauges("rejected_ads")
    for publisher, ads in report.rejected.items():
        gauges["rejected_ads"].labels(publisher).set(len(ads))
    gauges["implausible_generations"].set(len(report.implausible_generations))
    for result in report.results:
        publisher = result.publisher
        gauges["rivals"].labels(publisher).set(publisher in report.rivals)
        errors = counters["publish_errors"].labels(publisher)  # exported from 0 on
        if result.error:
            errors.inc()
            continue
        gauges["unconfirmed_ads"].labels(publisher).set(len(result.unconfirmed_sites))
        for action in result.plan:
            counters["ads_sent"].labels(publisher, type(action).__name__.lower()).inc()
