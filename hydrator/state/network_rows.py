"""The state about the network: samples of transfers, and their sources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.domain.network import TransferSample

from .saved_state import adapter
from .store import Store

_NETWORK = "network"
"""Key in the table ``report``."""


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
    store.save_report(_NETWORK, adapter(NetworkRecord).dump_python(record, mode="json"))


def load_network(store: Store) -> NetworkRecord:
    """Return the stored record; an empty one if there is none, or if it cannot be decoded.

    A lost record costs little: the rates are measured again.

    Raises:
        StateError: the state cannot be read.
    """
    try:
        record: NetworkRecord = adapter(NetworkRecord).validate_python(store.load_report(_NETWORK))
    except ValueError:
        return NetworkRecord()
    return record
