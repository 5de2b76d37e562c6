"""Rates between sites, and the finished transfers that they are measured from. Frozen values only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from hydrator.domain.model import Site


@dataclass(frozen=True, slots=True)
class Rate:
    """A measured or configured transfer rate from one site to another, for all readers together.

    Attributes:
        bytes_per_second: the rate.
        origin: source of this figure, such as ``job history`` or ``[[network.links]]``.
        measured_at: end of the newest sample; null: configured, not measured.
        samples: samples behind the figure; 0: configured.
    """

    bytes_per_second: float
    origin: str
    measured_at: datetime | None = None
    samples: int = 0


FindRate = Callable[[Site, Site], float]
"""A function that returns the bytes/s from a source to a destination, of all readers together; 0: unknown."""


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
