"""Logs (structlog) and metrics; the registry is passed in, so that two daemons in one process do not meet."""

import contextlib
import io
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
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
from hydrator.diagnostics.job_outcomes import Counted
from hydrator.diagnostics.outcomes import Found
from hydrator.diagnostics.slot_coverage import Coverage
from hydrator.domain.misses import Miss
from hydrator.domain.model import DatasetState, Origin, Publish, Site, SiteAd, Withdraw, unix
from hydrator.domain.ports import Merged
from hydrator.domain.redaction import Redactor, printable, printable_tree
from hydrator.domain.text import count as counted
from hydrator.reconcile.audit.ledger import Lie
from hydrator.reconcile.audit.runner import Asked
from hydrator.reconcile.reconciler import Report
from hydrator.reconcile.snapshot.breaker import Cause

_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_WAITS = (60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86_400)
_MOST_MISSES = 10_000
"""Misses that may wait for the first cycle."""
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


class _Redacting(logging.Formatter):
    """Formats as another one does, and lets the finished line be looked through."""

    def __init__(self, inner: logging.Formatter, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._inner = inner
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(self._inner.format(record))


def _plainly(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leave only characters that show in what is logged: a console's line is read on a terminal."""
    traceback = {key: event.pop(key) for key in ("exc_info", "stack_info") if key in event}
    return {**printable_tree(dict(event)), **traceback}


def _plain_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    """The traceback in characters that show."""
    drawn = io.StringIO()
    structlog.dev.plain_traceback(drawn, exc_info)
    stream.write(printable(drawn.getvalue(), "\n"))


def configure_logs(
    level: str, style: str, stream: TextIO = sys.stderr, redact: Callable[[str], str] | None = None
) -> None:
    """Send all logs, also those of libraries, to *stream*.

    ``auto`` is coloured on a terminal and JSON elsewhere; NO_COLOR is obeyed.
    Tracebacks show no values of variables, and every line goes through
    *redact*: logs are read by more people than secrets are meant for.
    """
    console = style == "console" or (style == "auto" and stream.isatty())
    colors = console and stream.isatty() and not os.environ.get("NO_COLOR")
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    last: list[Any] = (
        [_plainly, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=_plain_traceback)]
        if console
        else [_TRACEBACKS, structlog.processors.JSONRenderer()]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Redacting(formatter, redact or Redactor()))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for noisy in ("apscheduler", "httpx", "httpcore", "urllib3", "dogpile", "uvicorn"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


_LETTER_CASE = {
    "hydrator_clashing_datasets": "Datasets not advertised: only letter case tells them apart.",
    "hydrator_misspelt_datasets": "Wanted datasets that no catalogue has, except in another letter case.",
}


class Process(ProcessCollector):
    """Memory, CPU time, files and start of the daemon's process.

    The boot time comes from a clock: systemd hides /proc/stat from the service (ProcSubset=pid).
    """

    def _boot_time(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _describe_process(registry: CollectorRegistry, version: str) -> None:
    Process(registry=registry)
    built = Gauge("hydrator_build_info", "The version that runs.", ["version"], registry=registry)
    built.labels(version).set(1)


# a second series for every counter and histogram, which nothing reads
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """What the daemon counts; labels are sites, catalogues, publishers and states, never datasets."""

    _restarts_counted = 0

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        _describe_process(registry, version)
        self._cycles = Counter(
            "hydrator_cycles", "Cycles, by outcome: whole, partial or failed.", ["outcome"], registry=registry
        )
        self._seconds = Histogram(
            "hydrator_cycle_seconds", "How long a cycle took.", buckets=_SECONDS, registry=registry
        )
        self._last = Gauge(
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
            buckets=_SECONDS,
            registry=registry,
        )
        self._pending = Gauge(
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
        self._datasets = Gauge(
            "hydrator_site_datasets",
            "Demanded datasets at a site, by state.",
            ["site", "state"],
            registry=registry,
        )
        self._generation = Gauge(
            "hydrator_site_generation", "The generation of a site's ad.", ["site"], registry=registry
        )
        self._left_out = Gauge(
            "hydrator_site_left_out_jobs",
            "Jobs whose datasets the size budget left out.",
            ["site"],
            registry=registry,
        )
        self._ad_bytes = Gauge(
            "hydrator_site_ad_bytes", "How large the content of a site's ad is.", ["site"], registry=registry
        )
        self._demanded = Gauge(
            "hydrator_demanded_datasets", "Datasets wanted, by why.", ["origin"], registry=registry
        )
        self._unseen = Gauge(
            "hydrator_unseen_datasets",
            "Datasets that some catalogue could not be asked about.",
            registry=registry,
        )
        self._unmapped = Gauge(
            "hydrator_unmapped_storage_elements",
            "Storage elements for which no site is known; what they hold is nowhere.",
            ["catalogue"],
            registry=registry,
        )
        self._held = Gauge(
            "hydrator_held_sites",
            "Sites where a change is held because too much would vanish, by cause.",
            ["cause"],
            registry=registry,
        )
        self._rolled_back = Gauge(
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
        self._clashes, self._misspelt = (
            Gauge(name, meaning, registry=registry) for name, meaning in _LETTER_CASE.items()
        )
        self._published = Counter(
            "hydrator_ads_sent",
            "Site ads sent, by publisher and what was done.",
            ["publisher", "action"],
            registry=registry,
        )
        self._publish_errors = Counter(
            "hydrator_publish_errors", "Cycles in which a publisher failed.", ["publisher"], registry=registry
        )
        self._unconfirmed = Gauge(
            "hydrator_unconfirmed_ads", "Site ads sent but not read back.", ["publisher"], registry=registry
        )
        self._rejected = Gauge(
            "hydrator_rejected_ads",
            "Ads that a publisher shows and that are not adopted: of another identity, or with odd numbers.",
            ["publisher"],
            registry=registry,
        )
        self._implausible = Gauge(
            "hydrator_implausible_generations",
            "Sites whose generation is a day or more ahead, so that every hook refuses it.",
            registry=registry,
        )
        self._saved = Gauge(
            "hydrator_state_saved",
            "1 when the last cycle left the state on disk, 0 when it could not be written.",
            registry=registry,
        )
        self._restarts = Counter(
            "hydrator_condor_child_restarts",
            "How often the HTCondor child process was replaced.",
            registry=registry,
        )
        self._sites: frozenset[Site] | None = None
        self._misses: deque[Site] = deque(maxlen=_MOST_MISSES)
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
        self._corrected = Gauge(
            "hydrator_site_corrected_datasets",
            "Datasets that a catalogue says are at a site, and that the audit found not to be.",
            ["site"],
            registry=registry,
        )
        self._lies = Counter(
            "hydrator_lies", "Claims repeated after they were found false.", ["site"], registry=registry
        )
        self._missed = Counter(
            "hydrator_missed_datasets",
            "Datasets that jobs did not find, by the site they say.",
            ["site"],
            registry=registry,
        )
        self._audited = Counter(
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
            buckets=_WAITS,
            registry=registry,
        )
        self._leads = Gauge(
            "hydrator_leads", "1 when this daemon publishes, 0 when it stands by.", registry=registry
        )
        self._leads.set(1)
        self._reloaded = Gauge(
            "hydrator_config_last_reload_successful",
            "0 when the last reload was refused, so that an older configuration is in use, 1 otherwise.",
            registry=registry,
        )
        self._reloaded.set(1)
        self._credentials = Gauge(
            "hydrator_credential_expiry_timestamp_seconds",
            "When a token or certificate ends, by who renews it: daemon or somebody.",
            ["credential", "by"],
            registry=registry,
        )
        self._lives = Gauge(
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
        for found in Found:
            self._jobs_local.labels(found.value)
        for at in ("site", "elsewhere"):
            self._jobs_bytes.labels(at)
        for outcome in ("whole", "partial", "failed"):
            self._cycles.labels(outcome)
        self._bugs.labels("cycle")

    def failed(self) -> None:
        """A cycle ended with an error that nobody foresaw."""
        self._cycles.labels("failed").inc()

    def bug(self, part: str) -> None:
        """*part* raised an exception that nobody foresaw; from any thread."""
        self._bugs.labels(part).inc()

    def child_restarts(self, restarts: int) -> None:
        """Count up to *restarts* of the child; fewer than before are those of a new child's supervisor."""
        before = self._restarts_counted if restarts >= self._restarts_counted else 0
        self._restarts.inc(restarts - before)
        self._restarts_counted = restarts

    def merged(self, done: Mapping[str, Merged]) -> None:
        """One turn of the slot merge, by collector; from any thread."""
        for collector, merged in done.items():
            self._merge_sent.labels(collector).inc(merged.merged + merged.withdrawn)
            self._merge_time.labels(collector, "yes").inc(merged.covered)
            self._merge_time.labels(collector, "no").inc(merged.missed)
            if merged.error:
                self._merge_errors.labels(collector).inc()
            else:
                self._merge_slots.labels(collector).set(merged.slots)

    def record(self, report: Report, seconds: float) -> None:
        """Count one cycle that took *seconds*."""
        self._cycles.labels("whole" if report.whole else "partial").inc()
        self._seconds.observe(seconds)
        self._last.set(unix(report.at))
        for catalogue in report.surveyed:
            since = report.pending.get(catalogue)
            seconds_pending = (report.at - since).total_seconds() if since else 0.0
            self._pending.labels(catalogue).set(max(0.0, seconds_pending))
        for catalogue, took in report.took.items():
            self._reads.labels(catalogue, "failed" if report.surveyed[catalogue] else "answered").inc()
            self._read_seconds.labels(catalogue).observe(took.total_seconds())
        self._record_sites(report)
        self._record_held(report)
        self._record_audit(report)
        self._record_outcomes(report)
        self._rejected.clear()
        for publisher, ads in report.rejected.items():
            self._rejected.labels(publisher).set(len(ads))
        self._implausible.set(len(report.implausible))
        for origin in Origin:
            dids = {did for want in report.demand.wants if want.origin is origin for did in want.dids}
            self._demanded.labels(origin.name.lower()).set(len(dids))
        self._saved.set(0 if report.unsaved else 1)
        self._unseen.set(len(report.thought.snapshot.unseen))
        for catalogue, memory in report.thought.state.memories.items():
            self._unmapped.labels(catalogue).set(len(memory.unmapped))
        self._clashes.set(sum(len(clash) for clash in report.thought.snapshot.clashes))
        self._misspelt.set(len(report.thought.snapshot.misspelt))

    def _record_held(self, report: Report) -> None:
        held = report.thought.state.held
        for cause in Cause:
            self._held.labels(cause.value).set(sum(one.cause is cause for one in held.values()))
        self._rolled_back.set(len(report.thought.state.rollbacks))
        self._held_datasets.clear()
        for site, one in held.items():
            self._held_datasets.labels(site).set(len(one.gone))

    def audited(self, asked: Asked) -> None:
        """One expensive question; from any thread."""
        verdicts = {"true": asked.true, "false": asked.false, "none": int(asked.error is not None)}
        for verdict, count in verdicts.items():
            self._audited.labels(asked.catalogue, asked.by, verdict).inc(count)

    def leads(self, *, yes: bool) -> None:
        """Does this daemon publish?"""
        self._leads.set(yes)

    def reloaded(self, *, yes: bool) -> None:
        """Is the configuration in use the last one that the daemon read?"""
        self._reloaded.set(yes)

    def credentials(self, found: Iterable[Credential]) -> None:
        """What we show to others now."""
        self._credentials.clear()
        self._lives.clear()
        for one in found:
            self._credentials.labels(one.name, one.by.value).set(unix(one.until))
            if one.life:
                self._lives.labels(one.name, one.by.value).set(one.life.total_seconds())

    def covered(self, slots: Mapping[Site, Mapping[Coverage, int]]) -> None:
        """What the pool's slots carry; from any thread."""
        self._slots.clear()
        for site, kinds in slots.items():
            for kind, count in kinds.items():
                self._slots.labels(site, kind.value).set(count)

    def ended(self, counted: Counted) -> None:
        """What became of jobs; from any thread."""
        for one in counted.outcomes:
            self._jobs_local.labels(one.found.value).inc()
            self._jobs_bytes.labels("site").inc(one.bytes_here)
            self._jobs_bytes.labels("elsewhere").inc(one.bytes_elsewhere)
        for job in counted.jobs:
            if job.waited is not None:
                named = "none" if job.datasets is None else "named"
                self._jobs_wait.labels(named).observe(job.waited.total_seconds())

    def missed(self, misses: Iterable[Miss]) -> None:
        """What jobs report anew; a job's owner writes what he likes, so it makes no new series.

        It is counted once a cycle has told which sites there are. From any thread.
        """
        self._misses.extend(miss.site for miss in misses)
        self._count_misses()

    def _count_misses(self) -> None:
        while self._sites is not None and self._misses:
            with contextlib.suppress(IndexError):  # another thread counted the last one
                site = self._misses.popleft()
                self._missed.labels(site if site in self._sites else "unknown").inc()

    def _record_audit(self, report: Report) -> None:
        audit = report.thought.state.audit
        for gauge in (self._trust, self._audit_last, self._corrected):
            gauge.clear()
        self._sites = frozenset(report.thought.ads)
        self._count_misses()
        for site in report.thought.ads:
            self._trust.labels(site).set(audit.trust.get(site, 1.0))
            self._corrected.labels(site).set(audit.false_claims(site))
            tally = audit.tallies.get(site)
            if tally and tally.last:
                self._audit_last.labels(site).set(unix(tally.last))
        for site in report.thought.ads:  # from 0 on, or the first of them would be no increase
            self._lies.labels(site)
            self._missed.labels(site)
        for lie in report.thought.lies:
            self._lies.labels(lie.claim.site).inc()

    def _record_sites(self, report: Report) -> None:
        for gauge in (self._as_of, self._datasets, self._generation, self._left_out, self._ad_bytes):
            gauge.clear()
        for site, ad in report.thought.ads.items():
            self._as_of.labels(site).set(unix(ad.as_of))
            self._generation.labels(site).set(ad.generation)
            self._ad_bytes.labels(site).set(_size(ad))
        for site, facts in report.thought.snapshot.sites.items():
            for state in DatasetState:
                count = sum(fact.state is state for fact in facts.facts.values())
                self._datasets.labels(site, state.value).set(count)
        for site, draft in report.thought.drafts.items():
            self._left_out.labels(site).set(sum(max(1, want.jobs) for want in draft.left_out))

    def _record_outcomes(self, report: Report) -> None:
        for outcome in report.outcomes:
            self._publish_errors.labels(outcome.publisher)
            self._rivals.labels(outcome.publisher).set(outcome.publisher in report.rivals)
            if outcome.error:
                self._publish_errors.labels(outcome.publisher).inc()
                continue
            self._unconfirmed.labels(outcome.publisher).set(len(outcome.unconfirmed))
            for action in outcome.plan:
                self._published.labels(outcome.publisher, type(action).__name__.lower()).inc()


def _size(ad: SiteAd) -> int:
    """Bytes of an ad's attributes, each on a line of its own as ``name = value``."""
    return sum(len(f"{name} = {value}\n".encode()) for name, value in ad.content)


def cycle_line(report: Report, seconds: float) -> Mapping[str, Any]:
    """What one cycle says of itself in the log: what changed and why, and what went wrong."""
    line: dict[str, Any] = {
        "sites": len(report.thought.ads),
        "datasets": len(report.demand.dids),
        "seconds": round(seconds, 3),
    }
    changed = {
        f"{action.site} in {outcome.publisher}": _sent(action)
        for outcome in report.outcomes
        for action in outcome.plan
        if isinstance(action, Publish | Withdraw) and not outcome.error
    }
    rolled_back = {site: one.text for site, one in report.thought.state.rollbacks.items()}
    withheld = report.thought.withheld
    wrong = {
        "catalogues": {name: why for name, why in report.surveyed.items() if why},
        "publishers": {o.publisher: o.error for o in report.outcomes if o.error},
        "unsaved": report.unsaved,
        "not_read_back": {o.publisher: o.unconfirmed for o in report.outcomes if o.unconfirmed},
        "left_out": {site: len(d.left_out) for site, d in report.thought.drafts.items() if d.left_out},
        "held": {s: why for s, why in report.held.items() if s not in {*rolled_back, *withheld}},
        "rolled_back": rolled_back,
        "withheld": dict(withheld),
        "rejected": {
            f"{name} in {publisher}": why
            for publisher, ads in report.rejected.items()
            for name, why in ads.items()
        },
        "rivals": dict(report.rivals),
        "implausible_generations": {
            site: f"hooks refuse {generation}: hydrator renumber {site}"
            for site, generation in report.implausible.items()
        },
        "let_go": {site: len(gone) for site, gone in report.thought.released.items()},
        "orders": report.orders.problems,
        "clashes": report.thought.snapshot.clashes,
        "misspelt": report.thought.snapshot.misspelt,
        "untrusted": {site: trust for site, trust in report.thought.state.audit.trust.items() if trust < 1},
        "refused": report.demand.refused,
    }
    return {**line, "changed": changed} | {key: value for key, value in wrong.items() if value}


def _sent(action: Publish | Withdraw) -> str:
    """Return what was sent and why: of an ad its own generation, and which one it replaces."""
    if isinstance(action, Withdraw):
        return f"withdrawn: {action.why}"
    return f"generation {action.ad.generation}: {action.why}"


def status_line(line: Mapping[str, Any]) -> str:
    """A cycle's log line for ``systemctl status``: how much, and which kinds of trouble."""
    extent = {"sites", "datasets", "seconds", "changed"}
    trouble = ", ".join(sorted(key.replace("_", " ") for key in line.keys() - extent))
    sites, datasets = counted(line["sites"], "site"), counted(line["datasets"], "dataset")
    return f"{sites}, {datasets}; {trouble or 'all is well'}"


def lie_line(lie: Lie) -> Mapping[str, Any]:
    """Who said what, when, and by which question it came out."""
    found = lie.correction.found
    return {
        "catalogue": lie.claim.catalogue,
        "dataset": lie.claim.did,
        "site": lie.claim.site,
        "said": "AVAILABLE",
        "said_at": lie.said.isoformat(),
        "found": str(found.state) if found else "nothing",
        "found_at": lie.correction.at.isoformat(),
        "by": str(lie.by),
    }
