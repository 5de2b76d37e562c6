"""A Catalogue of folders on file systems: measurement sets below one root a site. A plugin, written as one.

A folder is a dataset where one of the patterns matches its path below the root. It is complete when it holds
the *marker*, or, without a marker, when nothing in it changed for a while. A root without anything in it
looks just like one that is not mounted, so it counts as not looked at.
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hydrator.errors import BadDid, CatalogueUnreachable
from hydrator.model import Did, Reading, Replica, ReplicaState, Seen, Site, Survey, from_unix, parse_did
from hydrator.ports import Clock

from ._names import by_lower_case, matching, twins


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("write the whole path, from / on")
    return path


class Options(BaseModel):
    """What stands in its [[catalogue]]."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: dict[str, Annotated[Path, AfterValidator(_absolute)]] = Field(
        min_length=1, description="site = the folder of its measurement sets"
    )
    scope: str = Field(pattern=r"^[A-Za-z0-9._-]+$", description="of the DIDs: scope:path/below/the/root")
    patterns: list[str] = Field(default=["*.MS", "*.ms"], min_length=1, description="with * ? and **")
    marker: str = Field("", description="a file in each complete folder; without: nothing changed for …")
    settled_minutes: float = Field(10, ge=0, le=10_080, description="… so long")


def catalogue(name: str, options: Mapping[str, Any], clock: Clock) -> "DirectoryCatalogue":
    """What the configuration calls ``type = "directory"``. Raises ValueError where *options* are wrong."""
    return DirectoryCatalogue(name, Options(**options), clock)


class DirectoryCatalogue:
    """The folders below the roots; see the module's text."""

    def __init__(self, name: str, options: Options, clock: Clock) -> None:
        self.name = name
        self._options = options
        self._clock = clock

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :class:`hydrator.ports.Catalogue`."""
        at = self._clock()
        held, blind = self._held()
        groups = by_lower_case(held)
        readings: dict[Did, Reading] = {}
        for did in sorted(dids):
            states = {site: self._state(path, at) for site, path in sorted(held.get(did, {}).items())}
            replicas = tuple(Replica(did, site, state) for site, state in states.items() if state)
            unread = blind | {site for site, state in states.items() if state is None}
            readings[did] = Seen(at, replicas, blind=unread, twins=twins(did, groups))
        return Survey(self.name, at, frozenset(Site(site) for site in self._options.roots), readings)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :class:`hydrator.ports.Catalogue`."""
        held, blind = self._held()
        if blind:
            raise CatalogueUnreachable(self.name, f"the root of {min(blind)} is empty or cannot be read")
        return matching(held, patterns)

    def close(self) -> None:
        """Nothing to let go of."""

    def _held(self) -> tuple[dict[Did, dict[Site, Path]], frozenset[Site]]:
        """All datasets with their folders by site, and the sites that cannot be looked at."""
        held: dict[Did, dict[Site, Path]] = {}
        blind: set[Site] = set()
        for name, root in sorted(self._options.roots.items()):
            site = Site(name)
            try:
                empty = not any(root.iterdir())
                found = {path for pattern in self._options.patterns for path in root.glob(pattern)}
                folders = {path for path in found if path.is_dir()}
            except OSError:
                empty, folders = True, set()
            if empty:
                blind.add(site)
            for path in folders:
                try:
                    did = parse_did(f"{self._options.scope}:{path.relative_to(root).as_posix()}")
                except BadDid:  # no job could name it
                    continue
                held.setdefault(did, {})[site] = path
        if len(blind) == len(self._options.roots):
            raise CatalogueUnreachable(self.name, "every root is empty or cannot be read: is it mounted?")
        return held, frozenset(blind)

    def _state(self, path: Path, now: datetime) -> ReplicaState | None:
        """What *path* is: complete, still written to, or left unfinished; None where it cannot be read."""
        marker = self._options.marker
        try:
            if marker and (path / marker).exists():
                return ReplicaState.COMPLETE
            changed = max(each.lstat().st_mtime for each in (path, *path.rglob("*")))
        except OSError:
            return None
        if now - from_unix(int(changed)) < timedelta(minutes=self._options.settled_minutes):
            return ReplicaState.INCOMING
        return ReplicaState.PARTIAL if marker else ReplicaState.COMPLETE
