"""Directory catalogue: measurement sets in folders below one root for each site. It is a plugin.

A folder is a dataset if one of the patterns matches its path below the root. If a *marker* is configured, a
dataset is complete when its folder has the file *marker*. Otherwise a dataset is complete when nothing in its
folder has changed for ``settled_minutes``. An empty root may be a root that is not mounted, so the
catalogue reports the site of an empty root as unreachable. An unreadable folder may contain any dataset.
So the catalogue also reports the site of an unreadable folder as unreachable for each dataset that it did
not find in another folder of this site.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from adapters.did_matching import case_variants, filter_by_patterns, group_by_lower_case
from hydrator.domain.errors import BadDid, CatalogueUnreachable
from hydrator.domain.model import (
    DatasetState,
    Did,
    Reading,
    Replica,
    Seen,
    Site,
    Survey,
    parse_did,
)
from hydrator.domain.ports import Clock


def _require_absolute(path: Path) -> Path:
    if not path.is_absolute() or "\0" in str(path):
        raise ValueError("it must be an absolute path, which starts with /")
    return path


def _require_below_root(pattern: str) -> str:
    parts = PurePath(pattern).parts
    if not parts or pattern.startswith("/") or ".." in parts or parts[-1] == "**":
        raise ValueError("it must be the path of a dataset below a root, such as *.MS or **/*.MS")
    return pattern


def _require_file_name(marker: str) -> str:
    if "/" in marker or "\0" in marker or marker in {".", ".."}:
        raise ValueError("it must be the name of a file in the folder of a dataset, without /")
    return marker


class DirectoryOptions(BaseModel):
    """Options of a [[catalogue]] with ``type = "directory"``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: dict[str, Annotated[Path, AfterValidator(_require_absolute)]] = Field(
        min_length=1, description="for each site, the folder with the site's measurement sets"
    )
    scope: str = Field(
        pattern=r"^[A-Za-z0-9._-]+$", description="the scope of each DID; a DID is scope:path/below/the/root"
    )
    patterns: list[Annotated[str, AfterValidator(_require_below_root)]] = Field(
        default=["*.MS", "*.ms"],
        min_length=1,
        description="the paths of datasets below a root; a pattern may have *, ? and **",
    )
    marker: Annotated[str, AfterValidator(_require_file_name)] = Field(
        "", description="name of a file that each complete folder has; if empty, settled_minutes decides"
    )
    settled_minutes: float = Field(
        10,
        ge=0,
        le=10_080,
        description="if marker is empty, a folder is complete when it was unchanged for so many minutes",
    )


def catalogue(name: str, options: Mapping[str, Any], clock: Clock) -> "DirectoryCatalogue":
    """Build the catalogue for ``type = "directory"``; raise ValueError if *options* are not valid."""
    return DirectoryCatalogue(name, DirectoryOptions(**options), clock)


class DirectoryCatalogue:
    """A catalogue of the folders below the roots; see the module's docstring."""

    def __init__(self, name: str, options: DirectoryOptions, clock: Clock) -> None:
        self.name = name
        self._options = options
        self._clock = clock

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :class:`hydrator.domain.ports.Catalogue`."""
        at = self._clock()
        paths, problems = self._scan()
        groups = group_by_lower_case(paths)
        readings: dict[Did, Reading] = {}
        for did in sorted(dids):
            states = {
                site: self._replica_state(path, at) for site, path in sorted(paths.get(did, {}).items())
            }
            replicas = tuple(Replica(did, site, state) for site, state in states.items() if state)
            failed = {site for site, state in states.items() if state is None}
            unreachable = frozenset(problems.keys() - states.keys()) | failed
            variants = case_variants(did, groups)
            readings[did] = Seen(at, replicas, unreachable_sites=unreachable, case_variants=variants)
        return Survey(self.name, at, frozenset(Site(site) for site in self._options.roots), readings)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :class:`hydrator.domain.ports.Catalogue`."""
        paths, problems = self._scan()
        if problems:
            site = min(problems)
            raise CatalogueUnreachable(self.name, f"{site}: {problems[site]}")
        return filter_by_patterns(paths, patterns)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _scan(self) -> tuple[dict[Did, dict[Site, Path]], dict[Site, str]]:
        """Return the folders by dataset and site, and the problem of each site that is not wholly read."""
        paths: dict[Did, dict[Site, Path]] = {}
        problems: dict[Site, str] = {}
        for name, root in sorted(self._options.roots.items()):
            site, errors = Site(name), list[OSError]()
            if not _list_folder(root, errors):
                problems[site] = "its root is empty or cannot be read"
                continue
            parts = [PurePath(pattern).parts for pattern in self._options.patterns]
            for path in {path for each in parts for path in _find_matches(root, each, errors)}:
                try:
                    did = parse_did(f"{self._options.scope}:{path.relative_to(root).as_posix()}")
                except BadDid:  # no job could name this DID
                    continue
                paths.setdefault(did, {})[site] = path
            if errors:
                problems[site] = "a folder below its root cannot be read"
        if not paths and problems.keys() == self._options.roots.keys():
            reason = "every root is empty or not wholly readable; check that the roots are mounted"
            raise CatalogueUnreachable(self.name, reason)
        return paths, problems

    def _replica_state(self, path: Path, now: datetime) -> DatasetState | None:
        """Return the state of a dataset's folder: complete, incoming or partial; None if it is unreadable."""
        marker = self._options.marker
        try:
            if marker and (path / marker).exists():
                return DatasetState.AVAILABLE
            changed = max(_change_time(each, now.timestamp()) for each in _walk(path))
        except OSError:
            return None
        if now.timestamp() - changed < 60 * self._options.settled_minutes:
            return DatasetState.STAGING
        return DatasetState.PARTIAL if marker else DatasetState.AVAILABLE


def _change_time(path: Path, now: float) -> float:
    """Return the mtime of *path* in Unix seconds; if it is later than *now*, return the ctime."""
    status = path.lstat()
    return status.st_mtime if status.st_mtime <= now else status.st_ctime


def _list_folder(folder: Path, errors: list[OSError]) -> list[Path]:
    """Return the entries of *folder*; after an error return none, and append the error to *errors*."""
    try:
        return list(folder.iterdir())
    except OSError as error:
        errors.append(error)
        return []


def _find_matches(folder: Path, parts: Sequence[str], errors: list[OSError]) -> Iterator[Path]:
    """Yield the folders below *folder* whose paths match *parts*; append each read error to *errors*.

    ``Path.glob`` would skip unreadable folders without an error.
    """
    if not parts:
        yield folder
        return
    deep = parts[0] == "**"
    if deep:
        yield from _find_matches(folder, parts[1:], errors)
    for path in _list_folder(folder, errors):
        if not (deep or fnmatchcase(path.name, parts[0])):
            continue
        try:
            is_folder = path.is_dir() and not (deep and path.is_symlink())
        except OSError as error:
            errors.append(error)
            continue
        if is_folder:
            yield from _find_matches(path, parts if deep else parts[1:], errors)


def _walk(path: Path) -> Iterator[Path]:
    """Yield *path* and all folders and files below it; raise OSError if a folder cannot be read."""

    def fail(error: OSError) -> None:
        raise error

    yield path
    for folder, folders, files in os.walk(path, onerror=fail):
        for name in (*folders, *files):
            yield Path(folder, name)
