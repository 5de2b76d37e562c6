"""The report about the network: samples of transfers, and their sources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.domain.network import TransferSample

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
