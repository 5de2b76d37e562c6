"""File catalogue: one TOML or JSON file, read again when it changes; see :mod:`.catalogue_format`."""

import os
import time
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from adapters.did_matching import case_variants, filter_by_patterns
from hydrator.domain.errors import CatalogueDenied, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.files import file_signature, read_regular
from hydrator.domain.model import DatasetState, Did, Replica, Seen, Site, Survey
from hydrator.domain.ports import Clock

from .catalogue_format import DatasetInFile, ParsedFile, parse_file

CLOCK_SKEW: Final = timedelta(minutes=5)
"""``as_of`` may be ahead of the local clock by this much, and then counts as now."""

MAX_BYTES: Final = 256 * 1024 * 1024
MAX_READS: Final = 3
"""Attempts to read a file that changes while it is read."""

SETTLE_SECONDS: Final = 2.0
"""Seconds after a change during which a further change may leave the file's times unchanged."""
_ABSENT: Final = DatasetInFile()


class FileCatalogue:
    """A catalogue in one file.

    Args:
        name: the catalogue's name in the configuration.
        path: the file; its name ends in ``.toml`` or ``.json``.
        clock: a function that returns the present time: the time of the readings if the file has no
            ``as_of``.
        default_scope: the scope for names without a scope in the file.
        read_file: a function that reads a file and its status; tests replace this function.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        clock: Clock,
        default_scope: str | None = None,
        *,
        read_file: Callable[[Path, int], tuple[bytes, os.stat_result]] = read_regular,
    ) -> None:
        self.name = name
        self._path = path
        self._clock = clock
        self._default_scope = default_scope
        self._read_file = read_file
        self._cache: tuple[tuple[int, ...], ParsedFile] | None = None
        """The signature and the content of a file that has not just changed."""
        self._known_sites: frozenset[Site] = frozenset()

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :class:`hydrator.domain.ports.Catalogue`.

        Raises:
            CatalogueUnreachable: the file is missing, or keeps changing while it is read.
            CatalogueDenied: the daemon has no permission to read the file.
            CatalogueGarbled: the file is not valid; the message has every problem with its key.
        """
        now = self._clock()
        contents = self._load()
        at = self._as_of(contents, now)
        if contents.sites is None:  # the file still covers a site after its last dataset was removed
            self._known_sites |= contents.all_sites
        return Survey(
            catalogue=self.name,
            started_at=at,
            sites=self._known_sites if contents.sites is None else contents.all_sites,
            readings={did: _reading(did, at, contents) for did in sorted(dids)},
        )

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :class:`hydrator.domain.ports.Catalogue`. Raise the errors of :meth:`read`."""
        return filter_by_patterns(self._load().datasets, patterns)

    def close(self) -> None:
        """Drop the cache; no file stays open between reads."""
        self._cache = None

    def _as_of(self, contents: ParsedFile, now: datetime) -> datetime:
        """Return the time of the facts; never return a future time, so that no fact expires too late."""
        if contents.as_of is None:
            return now
        if contents.as_of > now + CLOCK_SKEW:
            raise CatalogueGarbled(
                self.name,
                f"{self._path}: as_of: {contents.as_of.isoformat()} is in the future; "
                "set as_of to the time when the list was made (UTC ends in Z)",
            )
        return min(contents.as_of, now)

    def _load(self) -> ParsedFile:
        """Return the current content of the file; parse the file only if it changed."""
        try:
            if self._cache and self._cache[0] == file_signature(self._path.stat()):
                return self._cache[1]
            signature, data = self._read_unchanged()
        except PermissionError as exc:
            raise CatalogueDenied(
                self.name, f"{self._path}: {exc.strerror}; let uid {os.geteuid()} read it"
            ) from exc
        except OSError as exc:
            raise CatalogueUnreachable(self.name, f"{self._path}: {exc.strerror}") from exc
        try:
            contents = parse_file(self._path.suffix, data, self._default_scope)
        except ValueError as exc:
            raise CatalogueGarbled(self.name, f"{self._path}: {exc}") from exc
        self._cache = (signature, contents) if _is_settled(signature) else None
        return contents

    def _read_unchanged(self) -> tuple[tuple[int, ...], bytes]:
        """Read the file; try again if the file changes or is replaced during the read.

        Raises:
            OSError: the file cannot be read.
            CatalogueUnreachable: the file changed during each read.
        """
        for _ in range(MAX_READS):
            data, before = self._read_file(self._path, MAX_BYTES)
            after = self._path.stat()
            # not the ctime, the last value: a rename or an unlink changes it, but not the bytes
            is_same = file_signature(before)[:-1] == file_signature(after)[:-1]
            if is_same and len(data) == after.st_size:
                return file_signature(before), data
        reason = f"{self._path}: the file changed during each of {MAX_READS} reads; replace it by a rename"
        raise CatalogueUnreachable(self.name, reason)


def _reading(did: Did, at: datetime, contents: ParsedFile) -> Seen:
    dataset = contents.datasets.get(did, _ABSENT)
    replicas = [
        Replica(did, site, DatasetState[one.state.upper()], one.fraction)
        for site, states in sorted(dataset.sites.items())
        for one in states
    ]
    return Seen(
        as_of=at,
        replicas=tuple(replicas),
        bytes_total=dataset.bytes,
        case_variants=case_variants(did, contents.case_groups),
    )


def _is_settled(signature: tuple[int, ...]) -> bool:
    """Return True if the file's times are so old that any further change will change them."""
    newest = max(signature[3], signature[4]) / 1e9
    return 0 <= newest < time.time() - SETTLE_SECONDS
