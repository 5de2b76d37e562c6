"""Ports: the protocols that adapters implement. The core imports these protocols and no adapter.

:mod:`hydrator.domain.pool_ports` has the protocols of the HTCondor pool, and
:mod:`hydrator.domain.ports.staging` the protocol of catalogues that stage data. A contract suite in
``tests/contracts`` tests every adapter of a protocol, also the in-memory adapters.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import (
    DatasetFile,
    Did,
    PublishedAd,
    Site,
    SiteAd,
    Survey,
)

Clock = Callable[[], datetime]
"""A function that returns the current time as an aware UTC datetime."""


class StepReporter(Protocol):
    """A display of the steps of a task, such as a progress bar; called from any thread."""

    def set_steps(self, count: int) -> None:
        """Set the number of all steps."""

    def advance(self) -> None:
        """Record that one step has ended."""


@dataclass(frozen=True, slots=True)
class TokenValidity:
    """The time span in which a token from a server is valid; the daemon renews the token before its end."""

    valid_from: datetime | None
    valid_until: datetime


class Catalogue(Protocol):
    """A service that knows which replicas exist where."""

    @property
    def name(self) -> str:
        """The name in the configuration, unique among catalogues."""

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """Return the location of each of *dids*.

        The survey has a reading, Seen or Unseen, for every DID of the query. A DID
        that the catalogue does not know is Seen without replicas. A DID whose
        location the catalogue could not read is Unseen. The survey never omits this
        DID, and never returns it as Seen without replicas.

        If the catalogue cannot query some or all storage of a site, the site is in
        ``unreachable_sites`` of every affected reading. The reading still has the
        replicas on other storage of the site. *dids* may be empty: the survey then
        has only the sites. If an earlier survey named a site and this survey does not, the daemon assumes
        that the catalogue did not query this site.

        Raises:
            CatalogueError: the catalogue gave no answer. The daemon concludes nothing
                from this, least of all that the catalogue is empty.
        """

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """Return all datasets whose DIDs match one of *patterns* (``*``, ``?``, ``[…]``; case-sensitive).

        Raises:
            CatalogueError: the catalogue could not find all matching datasets; an incomplete result is
                never returned.
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
        """List the files of each of *dids*, ordered by name. For the DID of a file, return only this file.

        Args:
            dids: datasets, containers and files. The result omits a DID that the catalogue does not know.
            storages: the storage elements for which the result has the address of each file.
            max_files: the limit on the files of all *dids* together. A dataset that exceeds the limit gets
                an error instead of its files.

        Raises:
            CatalogueError: the catalogue could not be queried at all.
        """

    def close(self) -> None:
        """Close connections and files."""


class Publisher(Protocol):
    """A destination for site ads, from which the daemon can read the ads back."""

    @property
    def name(self) -> str:
        """The name in the configuration: ``collector``, ``file``, ``http``, ``sites`` or ``merge``."""

    def published(self) -> Mapping[Site, PublishedAd]:
        """Return the ads that others can read from this publisher now, by site.

        Raises:
            PublishError: the query failed; this does not mean that the publisher has no ads.
        """

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Send *ads*; each replaces the ad of its site.

        A return without an error does not prove that the ads arrived. Only ``published`` proves this.

        Raises:
            PublishError: the publisher could not send some or all of *ads*.
        """

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Remove the ads of *sites*; a site without an ad is not an error.

        Raises:
            PublishError: the publisher could not remove some or all of the ads.
        """


@runtime_checkable
class RejectionReporter(Protocol):
    """A publisher that reports which published ads it read back and rejected."""

    @property
    def rejected(self) -> Mapping[str, str]:
        """Return the reason for each ad that the last call of ``published`` rejected, by the ad's name."""
