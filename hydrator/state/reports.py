"""Reports of the daemon that it reads again after a restart: hours of the locality, the network, the pool."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from operator import add
from typing import Final

from hydrator.domain.model import ScheddDemand
from hydrator.domain.network import TransferSample
from hydrator.domain.ports import ScheddLoad, ScheddQueue

from .store import Store

MAX_AGE: Final = timedelta(days=92)
"""Age of the oldest hour: there are 2,208 at most."""
_KEY: Final = "locality hours"


@dataclass(frozen=True, slots=True)
class LocalityHour:
    """The jobs with datasets that the daemon counted in the hour, or hours, that began at ``started_at``.

    ``local_count`` of them started beside their data. ``byte_count`` are the bytes of their datasets, as far
    as these are known, and ``local_bytes`` those of them that were at the site of the job.
    """

    started_at: datetime
    local_count: int = 0
    job_count: int = 0
    local_bytes: int = 0
    byte_count: int = 0

    @property
    def share_of_jobs(self) -> float | None:
        """Return the share of the jobs that started beside their data; None without jobs."""
        return self.local_count / self.job_count if self.job_count else None

    @property
    def share_of_bytes(self) -> float | None:
        """Return the share of the bytes that were at the site of the job; None if no size is known."""
        return self.local_bytes / self.byte_count if self.byte_count else None

    def __add__(self, other: "LocalityHour") -> "LocalityHour":
        """Return the sums of both, with the time of the first."""
        (_, *counts), (_, *others) = astuple(self), astuple(other)
        return LocalityHour(self.started_at, *map(add, counts, others))


def begin_of_hour(time: datetime) -> datetime:
    """Return the begin of the hour (UTC) of *time*."""
    return time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def add_hour(store: Store, hour: LocalityHour) -> None:
    """Add the sums of *hour* to the saved sums of this hour; delete old and future hours.

    Raises:
        StateError: the state cannot be read or written.
    """
    at, oldest = hour.started_at, hour.started_at - MAX_AGE
    hours = {one.started_at: one for one in load_hours(store, oldest) if oldest < one.started_at <= at}
    hours[at] = hours.get(at, LocalityHour(at)) + hour
    store.save_reports({_KEY: [hours[one] for one in sorted(hours)]})


def load_hours(store: Store, since: datetime) -> list[LocalityHour]:
    """Return the hours since *since*, oldest first; none if the saved hours cannot be decoded.

    Raises:
        StateError: the state cannot be read.
    """
    hours = store.load_report(_KEY, list[LocalityHour]) or []
    return [hour for hour in hours if hour.started_at >= since]


NETWORK_REPORT = "network"
"""The name of the report in the state; a lost one costs little: the rates are measured again."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source of measured rates.

    Attributes:
        name: its name.
        read_at: its last query.
        failures: schedds and parts without an answer, and why.
    """

    name: str
    read_at: datetime
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NetworkRecord:
    """The samples of transfers, and the sources that were read."""

    samples: tuple[TransferSample, ...] = ()
    sources: tuple[SourceStatus, ...] = ()


_POOL = "pool"
"""The name of the report in the state."""


def save_queues(store: Store, queues: Mapping[str, ScheddQueue]) -> None:
    """Save the idle and running jobs of each of *queues*, with their time.

    Raises:
        StateError: the state cannot be written.
    """
    store.save_reports({_POOL: {name: (queue.demand.as_of, queue.load) for name, queue in queues.items()}})


def load_queues(store: Store) -> dict[str, ScheddQueue]:
    """Return the saved queues; none if they cannot be decoded. Their demand is in the state of the cycle.

    Raises:
        StateError: the state cannot be read.
    """
    loads = store.load_report(_POOL, dict[str, tuple[datetime, ScheddLoad]]) or {}
    return {name: ScheddQueue(ScheddDemand(as_of, ()), load) for name, (as_of, load) in loads.items()}
