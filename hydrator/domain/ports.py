"""Ports: the protocols that adapters implement. The core imports these and no adapter.

:mod:`hydrator.domain.pool_ports` has the protocols of the HTCondor pool. A contract suite in
``tests/contracts`` checks each protocol; the in-memory adapters join it too.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from .errors import CatalogueError
from .model import (
    DatasetFile,
    Did,
    PublishedAd,
    Seen,
    Site,
    SiteAd,
    Survey,
)

Clock = Callable[[], datetime]
"""A function that returns the aware UTC time now."""


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """The address of the daemon's HTTP server from this machine.

    *token* is the bearer token to send; *certificate* is the server's, in PEM, if *url*
    is https; *socket* is the Unix socket to connect to instead of a host.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    certificate: str | None = None
    socket: str | None = None


@dataclass(frozen=True, slots=True)
class TokenValidity:
    """The time span in which a token from a server is valid; it is renewed before it ends."""

    valid_from: datetime | None
    valid_until: datetime


class EventHandler(Protocol):
    """A receiver of events, called from any thread; its methods must not block or fail."""

    def on_event(self, source: str, body: bytes | None) -> object:
        """Handle one event of *source*; None is an event that was too large to read."""

    def on_connect(self, source: str) -> None:
        """Record that *source* is connected and sends its events."""

    def on_disconnect(self, source: str, reason: str) -> None:
        """Record that *source* is unreachable; called again after each failed attempt."""


class EventSource(Protocol):
    """A subscriber to events, in a thread of its own, that calls its :class:`EventHandler`."""

    def start(self) -> None:
        """Start the thread; never blocks and never fails."""

    def stop(self) -> None:
        """Stop within a few seconds."""

    @property
    def name(self) -> str:
        """The name in the configuration."""

    def test_connection(self) -> str:
        """Connect once without consuming an event; return in words which steps succeeded.

        Raises:
            EventsError: the source is unreachable, rejected the login, or violates the protocol.
        """


class Catalogue(Protocol):
    """A service that knows which replicas exist where."""

    @property
    def name(self) -> str:
        """The name in the configuration, unique among catalogues."""

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Return the location of each of *dids*.

        The survey has a reading, Seen or Unseen, for every DID of the query. A DID
        that the catalogue does not know is Seen without replicas. If the location
        could not be read, it is Unseen: never left out and never empty.

        A site that the catalogue cannot query, in whole or in part, is among
        ``unreachable_sites`` of every affected reading; replicas on other storage of
        this site still count. An empty set is a valid query: the survey then names
        the sites. A site that an earlier survey named and this one does not counts
        as not queried.

        Raises:
            CatalogueError: no answer at all. Nothing may be concluded, least of all
                that the catalogue is empty.
        """

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Return all datasets whose DIDs match one of *patterns* (``*``, ``?``, ``[…]``; case counts).

        Raises:
            CatalogueError: the list is incomplete; a part is never returned.
        """

    def close(self) -> None:
        """Close connections and files."""


class FileLister(Protocol):
    """A catalogue that can list the files of a dataset."""

    @property
    def name(self) -> str:
        """The name of the catalogue."""

    def list_files(
        self, dids: AbstractSet[Did], storages: AbstractSet[str], max_files: int
    ) -> Mapping[Did, tuple[DatasetFile, ...] | CatalogueError]:
        """List the files of each of *dids*, ordered by name; the DID of a file gives that file alone.

        Args:
            dids: datasets, containers and files. A DID that the catalogue does not know is left out.
            storages: the storage elements whose addresses of each file are returned; no others are.
            max_files: files of all *dids* together; each dataset beyond it gets an error.

        Raises:
            CatalogueError: the catalogue could not be queried at all.
        """

    def close(self) -> None:
        """Close connections and files."""


class Auditor(Protocol):
    """A catalogue that can verify one dataset by expensive queries, without delaying its polls."""

    @property
    def name(self) -> str:
        """The name of the catalogue."""

    def verify(self, did: Did) -> Seen:
        """Return the location of *did*, read again file by file, without any cache.

        Raises:
            CatalogueError: the answer is missing or incomplete; nothing may be concluded.
        """

    def close(self) -> None:
        """Close connections and files, also during a call that waits for an answer."""


class Probe(Protocol):
    """A check of the storage itself, as the operator configured it."""

    def can_check(self, catalogue: str, site: Site) -> bool:
        """Return whether the probe is configured for this storage."""

    def check_dataset(self, catalogue: str, did: Did, site: Site) -> bool | None:
        """Return whether *did*, which *catalogue* lists at *site*, is in its storage; None if unknown."""


class Publisher(Protocol):
    """A destination for site ads that can be read back."""

    @property
    def name(self) -> str:
        """``collector``, ``file``, ``http``, ``sites`` or ``merge``."""

    def published(self) -> Mapping[Site, PublishedAd]:
        """Return the ads that others can read from this publisher now, by site.

        Raises:
            PublishError: the query failed; this does not mean that it has none.
        """

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Send *ads*; each replaces the ad of its site.

        Returning does not prove that they arrived: only ``published`` does.

        Raises:
            PublishError: some or all could not be sent.
        """

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Remove the ads of *sites*; a site without an ad is not an error.

        Raises:
            PublishError: some or all could not be withdrawn.
        """


@runtime_checkable
class RejectionReporter(Protocol):
    """A publisher that reports the ads it read and rejected."""

    @property
    def rejected(self) -> Mapping[str, str]:
        """Return the ads that the last ``published`` read and rejected, by name, with the reason."""
