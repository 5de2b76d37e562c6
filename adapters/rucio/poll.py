"""What one poll of Rucio has learned so far."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import Did, Reading, Replica, Seen, Unseen

from .responses import BadRow, Rse


@dataclass
class RucioPoll:
    """*lost* has the DIDs it could not learn of, and why; *empty* the datasets without any file.

    *members* are the datasets in each wanted container.
    """

    name: str
    started_at: datetime
    rses: Mapping[str, Rse]
    errors: dict[Did, CatalogueError] = field(default_factory=dict)
    conclusions: dict[Did, Seen] = field(default_factory=dict)
    empty_datasets: set[Did] = field(default_factory=set)
    members_by_container: Mapping[Did, frozenset[Did]] = field(default_factory=dict)
    _parents: dict[Did, set[Did]] | None = None

    def parents(self, did: Did) -> AbstractSet[Did]:
        """The wanted containers that *did* is in, at any depth."""
        if self._parents is None:
            self._parents = {}
            for container, inside in self.members_by_container.items():
                for member in inside:
                    self._parents.setdefault(member, set()).add(container)
        return self._parents.get(did, frozenset())

    def conclude(self, did: Did, size: int | None, make_replicas: Callable[[], tuple[Replica, ...]]) -> None:
        """Keep what *replicas* answers; it may find that it cannot be."""
        try:
            self.conclusions[did] = Seen(self.started_at, make_replicas(), size)
        except BadRow as exc:
            self.errors[did] = CatalogueGarbled(self.name, str(exc))

    def build_reading(self, did: Did, kind: str) -> Reading:
        """What is to be said of *did*, which Rucio calls a *kind*."""
        if did in self.errors:
            return Unseen(self.errors[did].reason)
        if kind == "ABSENT":
            return Seen(self.started_at)
        return self.conclusions.get(did) or Unseen(f"Rucio calls it a {kind}, which this version cannot read")
