"""Logs (structlog) and metrics; the registry is passed in, so that two daemons in one process do not meet."""

import contextlib
import io
import time
from collections import deque
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, TextIO

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from structlog.typing import ExcInfo

from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.job_outcomes import JobOutcomeBatch
from hydrator.diagnostics.outcomes import LocalityResult
from hydrator.diagnostics.slot_coverage import Coverage
from hydrator.domain.misses import Miss
from hydrator.domain.model import DatasetState, Origin, Publish, Site, SiteAd, Withdraw, to_unix
from hydrator.domain.ports import MergeResult
from hydrator.domain.redaction import escape_unprintable, escape_unprintable_tree
from hydrator.reconcile.audit.runner import AuditAttempt
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.breaker import HoldCause

_DURATION_BUCKETS_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_WAIT_BUCKETS_SECONDS = (60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86_400)
_MAX_QUEUED_MISSES = 10_000
"""Misses that may wait for the first cycle."""


def _escape_unprintable(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leave only characters that show in what is logged: a console's line is read on a terminal."""
    traceback = {key: event.pop(key) for key in ("exc_info", "stack_info") if key in event}
    return {**escape_unprintable_tree(dict(event)), **traceback}


def _write_plain_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    """The traceback in characters that show."""
    drawn = io.StringIO()
    structlog.dev.plain_traceback(drawn, exc_info)
    stream.write(escape_unprintable(drawn.getvalue(), "\n"))


_LETTER_CASE_GAUGES = {
    "hydrator_clashing_datasets": "Datasets not advertised: only letter case tells them apart.",
    "hydrator_misspelt_datasets": "Wanted datasets that no catalogue has, except in another letter case.",
}


class DaemonProcessCollector(ProcessCollector):
    """Memory, CPU time, files and start of the daemon's process.

    The boot time comes from a clock: systemd hides /proc/stat from the service (ProcSubset=pid).
    """

    def _boot_time(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _describe_process(registry: CollectorRegistry, version: str) -> None:
    DaemonProcessCollector(registry=registry)
    built = Gauge("hydrator_build_info", "The version that runs.", ["version"], registry=registry)
    built.labels(version).set(1)


# a second series for every counter and histogram, which nothing reads
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """What the daemon counts; labels are sites, catalogues, publishers and states, never datasets."""

    _last_restart_count = 0

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        _describe_process(registry, version)
        self._cycles = Counter(
            "hydrator_cycles", "Cycles, by outcome: whole, partial or failed.", ["outcome"], registry=registry
        )
        self._cycle_seconds = Histogram(
            "hydrator_cycle_seconds",
            "How long a cycle took.",
            buckets=_DURATION_BUCKETS_SECONDS,
            registry=registry,
        )
        self._last_cycle_at = Gauge(
            "hydrator_last_cycle_timestamp_seconds",
            "When the last cycle began that did not fail.",
            registry=registry,
        )
        self._reads = Counter(
            "hydrator_catalogue_reads",
            "Polls of a catalogue, by outcome.",
            ["catalogue", "outcome"],
            registry=registry,
        )
        self._read_seconds = Histogram(
            "hydrator_catalogue_read_seconds",
            "How long a poll of a catalogue took, answered or not.",
            ["catalogue"],
            buckets=_DURATION_BUCKETS_SECONDS,
            registry=registry,
        )
        self._pending_seconds = Gauge(
            "hydrator_catalogue_pending_seconds",
            "How long the poll of a catalogue had been under way when the last cycle began; 0: none was.",
            ["catalogue"],
            registry=registry,
        )
        self._bugs = Counter(
            "hydrator_bugs",
            "Exceptions that no part should raise, by the part that failed; the log has each once.",
            ["part"],
            registry=registry,
        )
        self._as_of = Gauge(
            "hydrator_site_as_of_timestamp_seconds",
            "The last complete reading of a site.",
            ["site"],
            registry=registry,
        )
        self._site_datasets = Gauge(
            "hydrator_site_datasets",
            "Demanded datasets at a site, by state.",
            ["site", "state"],
            registry=registry,
        )
        self._generation = Gauge(
            "hydrator_site_generation", "The generation of a site's ad.", ["site"], registry=registry
        )
        self._left_out_jobs = Gauge(
            "hydrator_site_left_out_jobs",
            "Jobs whose datasets the size budget left out.",
            ["site"],
            registry=registry,
        )
        self._ad_bytes = Gauge(
            "hydrator_site_ad_bytes", "How large the content of a site's ad is.", ["site"], registry=registry
        )
        self._demanded_datasets = Gauge(
            "hydrator_demanded_datasets", "Datasets wanted, by why.", ["origin"], registry=registry
        )
        self._unseen_datasets = Gauge(
            "hydrator_unseen_datasets",
            "Datasets that some catalogue could not be asked about.",
            registry=registry,
        )
        self._unmapped_storages = Gauge(
            "hydrator_unmapped_storage_elements",
            "Storage elements for which no site is known; what they hold is nowhere.",
            ["catalogue"],
            registry=registry,
        )
        self._held_sites = Gauge(
            "hydrator_held_sites",
            "Sites where a change is held because too much would vanish, by cause.",
            ["cause"],
            registry=registry,
        )
        self._rolled_back_sites = Gauge(
            "hydrator_rolled_back_sites",
            "Sites that the operator returned to an earlier generation.",
            registry=registry,
        )
        self._held_datasets = Gauge(
            "hydrator_held_datasets",
            "Datasets that are held at a site until it is confirmed that they left.",
            ["site"],
            registry=registry,
        )
        self._case_collisions, self._misspelt_datasets = (
            Gauge(name, meaning, registry=registry) for name, meaning in _LETTER_CASE_GAUGES.items()
        )
        self._ads_sent = Counter(
            "hydrator_ads_sent",
            "Site ads sent, by publisher and what was done.",
            ["publisher", "action"],
            registry=registry,
        )
        self._publish_errors = Counter(
            "hydrator_publish_errors", "Cycles in which a publisher failed.", ["publisher"], registry=registry
        )
        self._unconfirmed_ads = Gauge(
            "hydrator_unconfirmed_ads", "Site ads sent but not read back.", ["publisher"], registry=registry
        )
        self._rejected_ads = Gauge(
            "hydrator_rejected_ads",
            "Ads that a publisher shows and that are not adopted: of another identity, or with odd numbers.",
            ["publisher"],
            registry=registry,
        )
        self._implausible_generations = Gauge(
            "hydrator_implausible_generations",
            "Sites whose generation is a day or more ahead, so that every hook refuses it.",
            registry=registry,
        )
        self._state_saved = Gauge(
            "hydrator_state_saved",
            "1 when the last cycle left the state on disk, 0 when it could not be written.",
            registry=registry,
        )
        self._restarts = Counter(
            "hydrator_condor_child_restarts",
            "How often the HTCondor child process was replaced.",
            registry=registry,
        )
        self._known_sites: frozenset[Site] | None = None
        self._queued_misses: deque[Site] = deque(maxlen=_MAX_QUEUED_MISSES)
        self._trust = Gauge(
            "hydrator_site_trust_ratio",
            "The share of a site's audited facts that were true; DataLocalityTrust in its ad.",
            ["site"],
            registry=registry,
        )
        self._audit_last = Gauge(
            "hydrator_site_audit_timestamp_seconds",
            "When a fact of a site was last audited.",
            ["site"],
            registry=registry,
        )
        self._corrected_datasets = Gauge(
            "hydrator_site_corrected_datasets",
            "Datasets that a catalogue says are at a site, and that the audit found not to be.",
            ["site"],
            registry=registry,
        )
        self._repeated_false_claims = Counter(
            "hydrator_lies", "Claims repeated after they were found false.", ["site"], registry=registry
        )
        self._missed_datasets = Counter(
            "hydrator_missed_datasets",
            "Datasets that jobs did not find, by the site they say.",
            ["site"],
            registry=registry,
        )
        self._audited_facts = Counter(
            "hydrator_audited_facts",
            "Facts audited, by catalogue, how (file by file, probe) and verdict (true, false, none).",
            ["catalogue", "by", "verdict"],
            registry=registry,
        )
        self._jobs_local = Counter(
            "hydrator_jobs_local",
            "Ended jobs that named datasets, by how much was at their site: all, some, none, unknown.",
            ["found"],
            registry=registry,
        )
        self._jobs_bytes = Counter(
            "hydrator_jobs_data_bytes",
            "Bytes that ended jobs named, where size and place are known: at their site or elsewhere.",
            ["at"],
            registry=registry,
        )
        self._jobs_wait = Histogram(
            "hydrator_job_wait_seconds",
            "From submission to the first start of ended jobs that named datasets, or none.",
            ["datasets"],
            buckets=_WAIT_BUCKETS_SECONDS,
            registry=registry,
        )
        self._is_leader = Gauge(
            "hydrator_leads", "1 when this daemon publishes, 0 when it stands by.", registry=registry
        )
        self._is_leader.set(1)
        self._reload_successful = Gauge(
            "hydrator_config_last_reload_successful",
            "0 when the last reload was refused, so that an older configuration is in use, 1 otherwise.",
            registry=registry,
        )
        self._reload_successful.set(1)
        self._credential_expiry = Gauge(
            "hydrator_credential_expiry_timestamp_seconds",
            "When a token or certificate ends, by who renews it: daemon or somebody.",
            ["credential", "by"],
            registry=registry,
        )
        self._credential_lifetimes = Gauge(
            "hydrator_credential_lifetime_seconds",
            "How long a token or certificate is good in all, where it says.",
            ["credential", "by"],
            registry=registry,
        )
        self._slots = Gauge(
            "hydrator_slots",
            "Slots of the pool, by site and what they carry: our current ad, another (behind), none (bare).",
            ["site", "carries"],
            registry=registry,
        )
        self._merge_slots = Gauge(
            "hydrator_merge_slots",
            "Slots without a hook at sites that we speak for.",
            ["collector"],
            registry=registry,
        )
        self._merge_time = Counter(
            "hydrator_merge_slot_seconds",
            "Time of these slots, by whether they carried their site's attributes (yes, no).",
            ["collector", "covered"],
            registry=registry,
        )
        self._merge_sent = Counter(
            "hydrator_merged_slots", "Merges sent into slots' ads.", ["collector"], registry=registry
        )
        self._merge_errors = Counter(
            "hydrator_merge_errors", "Turns of the slot merge that failed.", ["collector"], registry=registry
        )
        self._start_at_zero(registry)

    def _start_at_zero(self, registry: CollectorRegistry) -> None:
        """Show what has not happened yet, so that its first time is an increase."""
        self._rivals = Gauge(
            "hydrator_rivals",
            "1 where another daemon replaces what this one publishes, 0 elsewhere.",
            ["publisher"],
            registry=registry,
        )
        for found in LocalityResult:
            self._jobs_local.labels(found.value)
        for at in ("site", "elsewhere"):
            self._jobs_bytes.labels(at)
        for outcome in ("whole", "partial", "failed"):
            self._cycles.labels(outcome)
        self._bugs.labels("cycle")

    def count_failed_cycle(self) -> None:
        """A cycle ended with an error that nobody foresaw."""
        self._cycles.labels("failed").inc()

    def count_bug(self, part: str) -> None:
        """*part* raised an exception that nobody foresaw; from any thread."""
        self._bugs.labels(part).inc()

    def count_child_restarts(self, restarts: int) -> None:
        """Count up to *restarts* of the child; fewer than before are those of a new child's supervisor."""
        before = self._last_restart_count if restarts >= self._last_restart_count else 0
        self._restarts.inc(restarts - before)
        self._last_restart_count = restarts

    def record_merge(self, results: Mapping[str, MergeResult]) -> None:
        """One turn of the slot merge, by collector; from any thread."""
        for collector, merged in results.items():
            self._merge_sent.labels(collector).inc(merged.merged_count + merged.withdrawn_count)
            self._merge_time.labels(collector, "yes").inc(merged.covered_slot_seconds)
            self._merge_time.labels(collector, "no").inc(merged.uncovered_slot_seconds)
            if merged.error:
                self._merge_errors.labels(collector).inc()
            else:
                self._merge_slots.labels(collector).set(merged.slot_count)

    def record_cycle(self, report: CycleReport, seconds: float) -> None:
        """Count one cycle that took *seconds*."""
        self._cycles.labels("whole" if report.is_complete else "partial").inc()
        self._cycle_seconds.observe(seconds)
        self._last_cycle_at.set(to_unix(report.started_at))
        for catalogue in report.catalogue_errors:
            since = report.pending_since.get(catalogue)
            seconds_pending = (report.started_at - since).total_seconds() if since else 0.0
            self._pending_seconds.labels(catalogue).set(max(0.0, seconds_pending))
        for catalogue, took in report.poll_durations.items():
            self._reads.labels(
                catalogue, "failed" if report.catalogue_errors[catalogue] else "answered"
            ).inc()
            self._read_seconds.labels(catalogue).observe(took.total_seconds())
        self._record_sites(report)
        self._record_held_losses(report)
        self._record_audit(report)
        self._record_publish_results(report)
        self._rejected_ads.clear()
        for publisher, ads in report.rejected.items():
            self._rejected_ads.labels(publisher).set(len(ads))
        self._implausible_generations.set(len(report.implausible_generations))
        for origin in Origin:
            dids = {did for want in report.demand.entries if want.origin is origin for did in want.dids}
            self._demanded_datasets.labels(origin.name.lower()).set(len(dids))
        self._state_saved.set(0 if report.save_error else 1)
        self._unseen_datasets.set(len(report.evaluation.snapshot.unseen_reasons))
        for catalogue, memory in report.evaluation.state.memories.items():
            self._unmapped_storages.labels(catalogue).set(len(memory.unmapped_storages))
        self._case_collisions.set(sum(len(clash) for clash in report.evaluation.snapshot.case_collisions))
        self._misspelt_datasets.set(len(report.evaluation.snapshot.misspelt_dids))

    def _record_held_losses(self, report: CycleReport) -> None:
        held = report.evaluation.state.held_losses
        for cause in HoldCause:
            self._held_sites.labels(cause.value).set(sum(one.cause is cause for one in held.values()))
        self._rolled_back_sites.set(len(report.evaluation.state.rollbacks))
        self._held_datasets.clear()
        for site, one in held.items():
            self._held_datasets.labels(site).set(len(one.missing_polls))

    def record_audit_attempt(self, attempt: AuditAttempt) -> None:
        """One expensive question; from any thread."""
        verdicts = {
            "true": attempt.true_count,
            "false": attempt.false_count,
            "none": int(attempt.error is not None),
        }
        for verdict, count in verdicts.items():
            self._audited_facts.labels(attempt.catalogue, attempt.method, verdict).inc(count)

    def set_leader(self, *, is_leader: bool) -> None:
        """Does this daemon publish?"""
        self._is_leader.set(is_leader)

    def set_reload_result(self, *, is_successful: bool) -> None:
        """Is the configuration in use the last one that the daemon read?"""
        self._reload_successful.set(is_successful)

    def set_credentials(self, credentials: Iterable[Credential]) -> None:
        """What we show to others now."""
        self._credential_expiry.clear()
        self._credential_lifetimes.clear()
        for one in credentials:
            self._credential_expiry.labels(one.name, one.renewed_by.value).set(to_unix(one.expires_at))
            if one.lifetime:
                self._credential_lifetimes.labels(one.name, one.renewed_by.value).set(
                    one.lifetime.total_seconds()
                )

    def set_slot_coverage(self, slots: Mapping[Site, Mapping[Coverage, int]]) -> None:
        """What the pool's slots carry; from any thread."""
        self._slots.clear()
        for site, kinds in slots.items():
            for kind, count in kinds.items():
                self._slots.labels(site, kind.value).set(count)

    def record_ended_jobs(self, counts: JobOutcomeBatch) -> None:
        """What became of jobs; from any thread."""
        for one in counts.outcomes:
            self._jobs_local.labels(one.locality.value).inc()
            self._jobs_bytes.labels("site").inc(one.bytes_at_site)
            self._jobs_bytes.labels("elsewhere").inc(one.bytes_elsewhere)
        for job in counts.jobs:
            if job.wait_time is not None:
                named = "none" if job.datasets is None else "named"
                self._jobs_wait.labels(named).observe(job.wait_time.total_seconds())

    def record_misses(self, misses: Iterable[Miss]) -> None:
        """What jobs report anew; a job's owner writes what he likes, so it makes no new series.

        It is counted once a cycle has told which sites there are. From any thread.
        """
        self._queued_misses.extend(miss.site for miss in misses)
        self._count_misses()

    def _count_misses(self) -> None:
        while self._known_sites is not None and self._queued_misses:
            with contextlib.suppress(IndexError):  # another thread counted the last one
                site = self._queued_misses.popleft()
                self._missed_datasets.labels(site if site in self._known_sites else "unknown").inc()

    def _record_audit(self, report: CycleReport) -> None:
        audit = report.evaluation.state.audit
        for gauge in (self._trust, self._audit_last, self._corrected_datasets):
            gauge.clear()
        self._known_sites = frozenset(report.evaluation.ads)
        self._count_misses()
        for site in report.evaluation.ads:
            self._trust.labels(site).set(audit.trust.get(site, 1.0))
            self._corrected_datasets.labels(site).set(audit.count_false_claims(site))
            tally = audit.tallies.get(site)
            if tally and tally.last_audited_at:
                self._audit_last.labels(site).set(to_unix(tally.last_audited_at))
        for site in report.evaluation.ads:  # from 0 on, or the first of them would be no increase
            self._repeated_false_claims.labels(site)
            self._missed_datasets.labels(site)
        for lie in report.evaluation.repeated_claims:
            self._repeated_false_claims.labels(lie.claim.site).inc()

    def _record_sites(self, report: CycleReport) -> None:
        for gauge in (
            self._as_of,
            self._site_datasets,
            self._generation,
            self._left_out_jobs,
            self._ad_bytes,
        ):
            gauge.clear()
        for site, ad in report.evaluation.ads.items():
            self._as_of.labels(site).set(to_unix(ad.as_of))
            self._generation.labels(site).set(ad.generation)
            self._ad_bytes.labels(site).set(_ad_size_bytes(ad))
        for site, facts in report.evaluation.snapshot.sites.items():
            for state in DatasetState:
                count = sum(fact.state is state for fact in facts.facts.values())
                self._site_datasets.labels(site, state.value).set(count)
        for site, draft in report.evaluation.drafts.items():
            self._left_out_jobs.labels(site).set(
                sum(max(1, want.job_count) for want in draft.omitted_entries)
            )

    def _record_publish_results(self, report: CycleReport) -> None:
        for outcome in report.results:
            self._publish_errors.labels(outcome.publisher)
            self._rivals.labels(outcome.publisher).set(outcome.publisher in report.rivals)
            if outcome.error:
                self._publish_errors.labels(outcome.publisher).inc()
                continue
            self._unconfirmed_ads.labels(outcome.publisher).set(len(outcome.unconfirmed_sites))
            for action in outcome.plan:
                self._ads_sent.labels(outcome.publisher, type(action).__name__.lower()).inc()


def _ad_size_bytes(ad: SiteAd) -> int:
    """Bytes of an ad's attributes, each on a line of its own as ``name = value``."""
    return sum(len(f"{name} = {value}\n".encode()) for name, value in ad.content)


def _describe_action(action: Publish | Withdraw) -> str:
    """Return what was sent and why: of an ad its own generation, and which one it replaces."""
    if isinstance(action, Withdraw):
        return f"withdrawn: {action.reason}"
    return f"generation {action.ad.generation}: {action.reason}"
