"""Estimates in seconds: the wait of a job for a slot beside its data, and its read from elsewhere.

The daemon computes the estimates in each cycle (``hydrator/reconcile/estimates``) and publishes them in the
site ads. Frozen values only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from hydrator.domain.ads.dataset_sets import SetKey
from hydrator.domain.model import Site


@dataclass(frozen=True, slots=True)
class Rate:
    """A measured or configured transfer rate from one site to another, for all readers together.

    Attributes:
        bytes_per_second: the rate.
        origin: source of this figure, such as ``job history`` or ``[network.uplinks]``.
        measured_at: end of the newest sample; null: configured, not measured.
        samples: samples behind the figure; 0: configured.
    """

    bytes_per_second: float
    origin: str
    measured_at: datetime | None = None
    samples: int = 0


NO_QUEUE_SECONDS = 4 * 2**20
"""The queue seconds of a set for which no slot is beside all its data; also the longest queue (48 days)."""


class RateLookup(Protocol):
    """The transfer rates between sites, as of one cycle."""

    def rate(self, source: Site, destination: Site) -> Rate | None:
        """Return the rate from *source* to *destination*; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class SetEstimate:
    """The estimates of one set of datasets for jobs at one site; all numbers are classes, see ``classes.py``.

    A job at the site could have read its missing data after ``read_seconds``: 0 if all is on disk there,
    None if the sources cannot be reached or take no further readers. Beside the data, a slot comes free for
    one more such job after ``queue_seconds``: 0 if one is free now. ``source`` is the site from which most
    of the missing bytes would come. ``lone_read_seconds`` and ``source_readers`` explain ``read_seconds``:
    the seconds without other readers, and the jobs that read from ``source`` now. ``rate`` is the rate from
    ``source``. ``queue_site`` is the site beside the data with the shortest queue; None if no site with
    slots has all datasets, and ``queue_seconds`` is then ``NO_QUEUE_SECONDS``. ``ready_at`` is the expected
    end of staging at this site, if a job here would wait for the staging and not read from elsewhere.
    """

    read_seconds: int | None
    queue_seconds: int
    source: Site | None = None
    lone_read_seconds: float | None = None
    source_readers: int = 0
    missing_bytes: int = 0
    rate: Rate | None = None
    queue_site: Site | None = None
    ready_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobQueue:
    """The queue of one site: the idle jobs whose data the site has, and the cores of its slots.

    ``run_seconds`` is the expected run time of these jobs, or of the site's running jobs if none is idle.
    ``idle_jobs`` is not always whole: idle jobs whose data several sites have count at each site in part.
    """

    idle_jobs: float = 0.0
    free_cpus: float = 0.0
    total_cpus: float = 0.0
    run_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SiteEstimates:
    """The estimates for one site.

    A set without an entry in ``by_key`` has no estimate: the job's datasets are nowhere on disk, or the
    rate or the queue is unknown. ``own_queue_seconds`` is the time until the site has worked off the
    queued jobs whose data it has; ``queue`` explains it.
    """

    by_key: Mapping[SetKey, SetEstimate] = field(default_factory=dict)
    own_queue_seconds: int = 0
    queue: JobQueue = field(default_factory=JobQueue)


@dataclass(frozen=True, slots=True)
class Estimates:
    """The estimates of one cycle, by site; jobs do not use them after ``valid_until``."""

    valid_until: datetime
    sites: Mapping[Site, SiteEstimates] = field(default_factory=dict)


class TransferOrigin(StrEnum):
    """The measurer of a transfer."""

    WRAPPER = "job wrapper"
    SCHEDD = "transfer records"


@dataclass(frozen=True, slots=True)
class TransferSample:
    """One finished read of a job at the site ``destination`` from the storage of ``source``.

    ``user`` is the job's owner as the schedd knows it. ``job`` and ``ended_at`` distinguish two reads of
    the same size. ``readers`` is the mean number of jobs that read from ``source`` meanwhile, this job
    included: 1 or more, or None if they were not counted. Anyone who submits jobs can invent samples of the
    origin ``WRAPPER``.
    """

    source: Site
    destination: Site
    bytes: int
    seconds: float
    ended_at: datetime
    origin: TransferOrigin
    user: str = ""
    job: str = ""
    readers: float | None = None


@dataclass(frozen=True, slots=True)
class TransferLogAnswer:
    """New samples, and by the name of a part that did not answer (such as a schedd) the reason."""

    samples: Sequence[TransferSample] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


class TransferLog(Protocol):
    """A port that reads finished transfers between sites."""

    @property
    def origin(self) -> TransferOrigin:
        """The origin of the samples."""

    def read_samples(self) -> TransferLogAnswer:
        """Return the samples since the last call, or since the daemon's start; some may come twice.

        Raises:
            PoolError: the pool could not be queried at all.
        """

    def close(self) -> None:
        """Close connections, also during a query."""
