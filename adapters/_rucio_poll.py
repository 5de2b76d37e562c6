"""What one poll of Rucio has learned so far."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.errors import CatalogueError, CatalogueGarbled
from hydrator.model import Did, Reading, Replica, Seen, Unseen

from ._rucio_rows import BadRow, Part, Storage


@dataclass
class Poll:
    """*lost* has the DIDs it could not learn of, and why; *empty* the datasets without any file."""

    name: str
    at: datetime
    storages: Mapping[str, Storage]
    lost: dict[Did, CatalogueError] = field(default_factory=dict)
    parts: dict[Did, Part] = field(default_factory=dict)
    empty: set[Did] = field(default_factory=set)

    def conclude(
        self, did: Did, size: int | None, replicas: Callable[..., tuple[Replica, ...]], *evidence: object
    ) -> None:
        """Keep what *replicas* makes of *evidence*; it may find it cannot be."""
        try:
            self.parts[did] = Part(replicas(did, *evidence, self.storages), size)
        except BadRow as exc:
            self.lost[did] = CatalogueGarbled(self.name, str(exc))

    def reading(self, did: Did, kind: str) -> Reading:
        """What is to be said of *did*, which Rucio calls a *kind*."""
        if did in self.lost:
            return Unseen(self.lost[did].reason)
        if kind == "ABSENT":
            return Seen(self.at)
        part = self.parts.get(did)
        if part is None:
            return Unseen(f"Rucio calls it a {kind}, which this version cannot read")
        return Seen(self.at, part.replicas, part.bytes_total)
