"""State of one poll of Rucio: its results so far, and its errors."""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime

from hydrator.domain.errors import CatalogueError, CatalogueGarbled
from hydrator.domain.model import DatasetState, Did, Reading, Replica, Seen, Site, Unseen

from .responses import ABSENT_DID, BadRow, Counts, DidInfo, Rses

Dids = AbstractSet[Did]
DidErrors = dict[Did, CatalogueError]
"""DIDs without a result, each with the reason."""
StoragesByDid = Mapping[Did, AbstractSet[str]]
"""Names of storage elements, by dataset."""
Replicas = tuple[Replica, ...]
NEVER = datetime.min.replace(tzinfo=UTC)
"""The sort key of a DID that was not queried yet."""


@dataclass
class RucioPoll:
    """The state of one poll.

    *held_until*: if no rule keeps data until this time, no job should start on the data. *errors* has the
    DIDs without a result, *conclusions* the DIDs with a result, *empty_datasets* the datasets without a file,
    *shared_counts* the counts of datasets whose parts at several storage elements may be complete together.
    *did_infos* has Rucio's information about each name. *members_by_container* has the datasets in each
    demanded container.
    """

    name: str
    started_at: datetime
    held_until: datetime
    rses: Rses
    did_infos: dict[Did, DidInfo] = field(default_factory=dict)
    errors: DidErrors = field(default_factory=dict)
    conclusions: dict[Did, Seen] = field(default_factory=dict)
    empty_datasets: set[Did] = field(default_factory=set)
    shared_counts: dict[Did, Counts] = field(default_factory=dict)
    members_by_container: Mapping[Did, frozenset[Did]] = field(default_factory=dict)
    _parents: dict[Did, set[Did]] | None = None

    def parents(self, did: Did) -> Dids:
        """Return the demanded containers that *did* is in, at any depth."""
        if self._parents is None:
            self._parents = {}
            for container, members in self.members_by_container.items():
                for member in members:
                    self._parents.setdefault(member, set()).add(container)
        return self._parents.get(did, frozenset())

    def conclude(
        self,
        did: Did,
        size: int | None,
        storages: Collection[str],
        make_replicas: Callable[[], Replicas],
    ) -> None:
        """Store the replicas that *make_replicas* returns; if it raises BadRow, store an error for *did*.

        One of *storages*, which have its data, may be unreadable. Then the site of this element is left open,
        or all sites if its site is unknown; but not a site with a complete copy elsewhere.
        """
        try:
            replicas = make_replicas()
        except BadRow as exc:
            self.errors[did] = CatalogueGarbled(self.name, str(exc))
            return
        faulty = [rse for name in storages if (rse := self.rses[name]).fault]
        doubtful = {site for rse in faulty for site in rse.sites or self._all_sites()}
        doubtful -= {each.site for each in replicas if each.state is DatasetState.AVAILABLE}
        self.conclusions[did] = Seen(self.started_at, replicas, size, frozenset(doubtful))

    def _all_sites(self) -> set[Site]:
        return {site for rse in self.rses.values() for site in rse.sites}

    def build_reading(self, did: Did) -> Reading:
        """Build the reading of *did*."""
        if did in self.errors:
            return Unseen(self.errors[did].reason)
        return Seen(self.started_at) if self.did_infos[did] is ABSENT_DID else self.conclusions[did]
