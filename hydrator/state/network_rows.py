"""Rows of the state about the network: samples of transfers, and their sources."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from hydrator.domain.model import Site, from_unix
from hydrator.domain.network import TransferOrigin, TransferSample

from .rows import DECODE_ERRORS
from .store import Store

_NETWORK = "network"
"""Key in the table ``report``."""

_T = TypeVar("_T")


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
    """The content of the state about the network."""

    samples: tuple[TransferSample, ...] = ()
    sources: tuple[SourceStatus, ...] = ()


def save_network(store: Store, record: NetworkRecord) -> None:
    """Replace the stored record by *record*.

    Raises:
        StateError: the state cannot be written.
    """
    samples = [
        [
            each.source, each.destination, each.bytes, each.seconds, each.ended_at.timestamp(),
            each.origin.value, each.user, each.job, each.readers,
        ]
        for each in record.samples
    ]  # fmt: skip
    sources = [[each.name, each.read_at.timestamp(), dict(each.failures)] for each in record.sources]
    store.save_report(_NETWORK, {"samples": samples, "sources": sources})


def load_network(store: Store) -> NetworkRecord:
    """Return the stored record without the rows that cannot be decoded.

    Raises:
        StateError: the state cannot be read.
    """
    network = store.load_report(_NETWORK)
    return NetworkRecord(
        tuple(_decode(network.get("samples"), _decode_sample)),
        tuple(_decode(network.get("sources"), _decode_source)),
    )


def _decode(rows: object, decode: Callable[[Any], _T]) -> Iterator[_T]:
    for row in rows if isinstance(rows, Iterable) else ():
        try:
            yield decode(row)
        except DECODE_ERRORS:
            continue


def _decode_sample(row: Any) -> TransferSample:  # noqa: ANN401 - JSON
    source, destination, size, seconds, ended_at, origin, user, job, readers = row
    return TransferSample(
        Site(str(source)), Site(str(destination)), int(size), float(seconds), from_unix(ended_at),
        TransferOrigin(origin), str(user), str(job), None if readers is None else float(readers),
    )  # fmt: skip


def _decode_source(row: Any) -> SourceStatus:  # noqa: ANN401 - JSON
    name, read_at, failures = row
    return SourceStatus(
        str(name), from_unix(read_at), {str(part): str(why) for part, why in dict(failures).items()}
    )
