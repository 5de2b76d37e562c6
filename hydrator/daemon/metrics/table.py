"""Metric table: name, type, help and labels of every metric about the cycles and the pool.

The exported name is ``hydrator_`` and the name in this table; a counter also ends with ``_total``.
"""

from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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
    (
        "merge_slot_seconds",
        "Slot-seconds of slots without a hook, by whether the slots had the site's attributes: yes or no.",
        ("collector", "covered"),
    ),
    (
        "merged_slots",
        "Slot ads into which the daemon merged attributes, or from which it withdrew them.",
        ("collector",),
    ),
    ("merge_errors", "Runs of the slot merge that failed.", ("collector",)),
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
    ("site_generation", "Generation of a site's ad.", ("site",)),
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
            "Sites where the daemon holds a loss of datasets, by cause: too many datasets of the site"
            " would vanish (site), too many of all sites together (all), or no catalogue lists the site any"
            " more (unnamed)."
        ),
        ("cause",),
    ),
    (
        "held_datasets",
        "Missing datasets that stay published at a site until further polls confirm the loss.",
        ("site",),
    ),
    (
        "clashing_datasets",
        (
            "Datasets that the daemon does not advertise, because their names differ from each other only in"
            " letter case."
        ),
        (),
    ),
    ("misspelt_datasets", "Datasets in demand that catalogues have only in another letter case.", ()),
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
    (
        "paced_load_timestamp_seconds",
        "Time of the query of jobs and slots from which the last openings were made.",
        (),
    ),
    ("site_backlog", "Idle jobs whose set of datasets is whole at a site.", ("site",)),
    ("site_open_sets", "Sets, or lanes of sets, whose jobs may start at a site by reading.", ("site",)),
    ("site_readers", "Running jobs that started with a read from a site.", ("site",)),
    (
        "config_last_reload_successful",
        "1 if the last reload was accepted, 0 if an older configuration stays in use.",
        (),
    ),
    (
        "credential_expiry_timestamp_seconds",
        "Expiry of a token or certificate, by who renews it: daemon or operator.",
        ("credential", "renewed_by"),
    ),
    (
        "credential_lifetime_seconds",
        "Time from the start of a token's or certificate's validity to its expiry, if the start is known.",
        ("credential", "renewed_by"),
    ),
    (
        "slots",
        "Slots that take jobs, by site and by the slot's copy of the site ad: current, outdated or none.",
        ("site", "coverage"),
    ),
    (
        "transfer_samples",
        "Measured transfers between sites that the daemon keeps, by origin: job wrapper or transfer records.",
        ("origin",),
    ),
    (
        "newest_transfer_sample_timestamp_seconds",
        "End of the newest measured transfer between sites, by origin.",
        ("origin",),
    ),
    ("merge_slots", "Slots without a hook at sites that the daemon advertises.", ("collector",)),
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


@dataclass(frozen=True, slots=True)
class Instruments:
    """The metrics of the table in one registry, by name."""

    counters: dict[str, Counter]
    gauges: dict[str, Gauge]
    histograms: dict[str, Histogram]

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

    def clear_gauges(self, *names: str) -> None:
        """Remove all series of these gauges: a site or part with a series may not exist any more."""
        for name in names:
            self.gauges[name].clear()


def build_instruments(registry: CollectorRegistry) -> Instruments:
    """Register every metric of the table in *registry*."""
    return Instruments(
        {
            name: Counter(f"hydrator_{name}", text, labels, registry=registry)
            for name, text, labels in COUNTERS
        },
        {name: Gauge(f"hydrator_{name}", text, labels, registry=registry) for name, text, labels in GAUGES},
        {
            name: Histogram(f"hydrator_{name}", text, labels, buckets=buckets, registry=registry)
            for name, text, labels, buckets in HISTOGRAMS
        },
    )
