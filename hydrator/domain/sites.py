"""Site mapping: translate the sites of catalogues into those of slots, and add sites that share storage.

Catalogues use the names of their administrators, slots the names of their pool. Jobs at one
site may read the storage of another, at a cost that depends on the network between them.
The operator configures both, in ``[sites]``.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TypeVar

from .model import Did, FilesOnDisk, Provenance, Replica, ReplicaState, Seen, Site, Survey
from .ports import Auditor, Catalogue


@dataclass(frozen=True, slots=True)
class SiteMapping:
    """The operator's configuration of sites.

    Args:
        aliases: the name of a site in slots, by its name in catalogues.
        read_costs: by site, the sites whose storage its jobs can read, with the cost:
            0 (as if local) to 1 (useless).
    """

    aliases: Mapping[Site, Site] = field(default_factory=dict)
    read_costs: Mapping[Site, Mapping[Site, float]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.aliases or self.read_costs)

    def map_sites(self, sites: AbstractSet[Site]) -> frozenset[Site]:
        """Return *sites* by their names in slots, and the sites whose jobs read one of their storages."""
        known = frozenset(self.aliases.get(site, site) for site in sites)
        return known | {site for site, others in self.read_costs.items() if known & others.keys()}

    def shared_storage_groups(self, sites: AbstractSet[Site]) -> frozenset[frozenset[Site]]:
        """Return groups of *sites* (a catalogue's names) whose storage the jobs of a site read at no cost."""
        groups = set()
        for reader in {self.aliases.get(site, site) for site in sites} | self.read_costs.keys():
            local = self._local_sites(reader)
            groups.add(frozenset(site for site in sites if self.aliases.get(site, site) in local))
        return frozenset(groups - {frozenset()})

    def _local_sites(self, site: Site) -> set[Site]:
        """Return *site* and the sites whose storage its jobs read at no cost."""
        return {site, *(other for other, cost in self.read_costs.get(site, {}).items() if cost == 0)}

    def map_reading(self, reading: Seen) -> Seen:
        """Return *reading* as jobs at each site see it.

        Jobs read only complete datasets from another site. At cost 0 the dataset is complete at their site
        too. At any other cost it is PARTIAL there, with 1 - cost as its fraction, so that jobs which
        require their data do not start. A site's own replica has priority over one that it reads at a cost.

        Files at a site and at neighbours of cost 0 are counted together; if the sum is incomplete, each
        site has its own files only. A site that reads from an unreachable site is unreachable as well,
        unless the dataset is complete at it.
        """
        own = tuple(
            replace(each, site=self.aliases.get(each.site, each.site)) if self.aliases else each
            for each in reading.replicas
        )
        own = add_unions(own)
        unreachable = {self.aliases.get(site, site) for site in reading.unreachable_sites}
        replicas = [
            *self._merge_shared_files(own, unreachable),
            *(replica for replica in own if replica.site not in unreachable),
            *self._remote_replicas(own),
        ]
        complete = {replica.site for replica in replicas if replica.state is ReplicaState.COMPLETE}
        readers = {site for site, others in self.read_costs.items() if unreachable & others.keys()}
        incomplete_readers = readers - complete
        return replace(
            reading,
            replicas=tuple(replica for replica in replicas if replica.site not in incomplete_readers),
            unreachable_sites=frozenset(unreachable | incomplete_readers),
        )

    def _remote_replicas(self, own: Sequence[Replica]) -> Iterator[Replica]:
        """Yield the complete replicas that the jobs of another site read, as they see them."""
        sites = {replica.site for replica in own}
        for site, others in sorted(self.read_costs.items()):
            for replica in own:
                cost = others.get(replica.site)
                if cost is None or replica.state is not ReplicaState.COMPLETE:
                    continue
                if cost == 0 or (site not in sites and cost < 1):
                    yield _remote_replica(replica, site, cost)

    def _merge_shared_files(
        self, replicas: Sequence[Replica], unreachable_sites: AbstractSet[Site]
    ) -> list[Replica]:
        """Return the replicas that are complete with the files of the neighbours at cost 0."""
        if sum(replica.files is not None for replica in replicas) < 2:
            return []
        unions = []
        for site in sorted(self.read_costs):
            sites = self._local_sites(site) - unreachable_sites
            union = union_at(site, [part for part in replicas if part.site in sites])
            if union and union.state is ReplicaState.COMPLETE:
                reason = f"{union.provenance.reason}; {site} reads them all"
                unions.append(replace(union, provenance=replace(union.provenance, reason=reason)))
        return unions


def _remote_replica(replica: Replica, site: Site, cost: float) -> Replica:
    """Return *replica* as jobs at *site* see it."""
    reason = f"whole at {replica.site}, which {site} reads" + (f" at a cost of {cost:g}" if cost else "")
    provenance = replace(replica.provenance, reason=reason)
    if cost == 0:
        return replace(replica, site=site, provenance=provenance)
    return replace(replica, site=site, state=ReplicaState.PARTIAL, fraction=1.0 - cost, provenance=provenance)


class MappedCatalogue:
    """A catalogue that returns another catalogue's answers with sites mapped by a :class:`SiteMapping`."""

    def __init__(self, inner: Catalogue, mapping: SiteMapping) -> None:
        self._inner = inner
        self._mapping = mapping

    @property
    def name(self) -> str:
        return self._inner.name

    def read(self, dids: AbstractSet[Did]) -> Survey:
        """See :meth:`hydrator.domain.ports.Catalogue.read`."""
        survey = self._inner.read(dids)
        readings = {
            did: self._mapping.map_reading(reading) if isinstance(reading, Seen) else reading
            for did, reading in survey.readings.items()
        }
        return replace(survey, sites=self._mapping.map_sites(survey.sites), readings=readings)

    def find(self, patterns: Collection[str]) -> frozenset[Did]:
        """See :meth:`hydrator.domain.ports.Catalogue.find`."""
        return self._inner.find(patterns)

    def close(self) -> None:
        self._inner.close()


class MappedAuditor:
    """An auditor that maps the sites of another one by the same :class:`SiteMapping` as its catalogue."""

    def __init__(self, inner: Auditor, mapping: SiteMapping) -> None:
        self._inner = inner
        self._mapping = mapping

    @property
    def name(self) -> str:
        return self._inner.name

    def verify(self, did: Did) -> Seen:
        """See :meth:`hydrator.domain.ports.Auditor.verify`."""
        return self._mapping.map_reading(self._inner.verify(did))

    def close(self) -> None:
        self._inner.close()


P = TypeVar("P")


def add_unions(replicas: Iterable[Replica]) -> tuple[Replica, ...]:
    """Add to *replicas* of one dataset the union of each site's parts, if it has more files than each part.

    Unions come before the parts, which are unchanged: the best of all counts.
    """
    replicas = tuple(replicas)
    if sum(replica.files is not None for replica in replicas) < 2:
        return replicas
    added = [
        union
        for site in sorted({replica.site for replica in replicas if replica.files})
        if (union := union_at(site, [replica for replica in replicas if replica.site == site]))
    ]
    return (*added, *replicas)


def union_at(site: Site, parts: Sequence[Replica]) -> Replica | None:
    """Return the union of *parts* as jobs at *site* read it; None if one part alone has as many files.

    The union is complete only if each file of the dataset is on disk in one of the parts.
    """
    known = [(part, part.files) for part in parts if part.files is not None]
    if len(known) < 2 or any(part.state is ReplicaState.COMPLETE for part in parts):
        return None
    mask = 0
    for _, files in known:
        mask |= files.mask
    together = replace(known[0][1], mask=mask, files_total=max(files.files_total for _, files in known))
    if together.files_on_disk <= max(files.files_on_disk for _, files in known):
        return None
    is_complete = together.files_on_disk == together.files_total
    places = [f"{files.files_on_disk} at {part.storage or part.site}" for part, files in known]
    reason = f"{together.files_on_disk} of its {together.files_total} files together: {', '.join(places)}"
    return Replica(
        parts[0].did,
        site,
        ReplicaState.COMPLETE if is_complete else ReplicaState.PARTIAL,
        1.0 if is_complete else max(_fraction(together), *(part.fraction or 0.0 for part in parts)),
        ",".join(sorted({part.storage for part, _ in known if part.storage})),
        Provenance(call=known[0][0].provenance.call, reason=reason),
        together,
    )


def number_files(places: Mapping[P, Collection[str]]) -> tuple[dict[str, int], dict[P, int]]:
    """Return a number for each file in *places* (names by place), and the mask of files by place."""
    every = sorted(set[str]().union(*places.values()))  # the same numbers for the same files, every time
    numbers = {name: number for number, name in enumerate(every)}
    masks = {}
    for place, names in places.items():
        bits = bytearray(len(numbers) // 8 + 1)
        for name in names:
            byte, bit = divmod(numbers[name], 8)
            bits[byte] |= 1 << bit
        masks[place] = int.from_bytes(bits, "little")
    return numbers, masks


def _fraction(files: FilesOnDisk) -> float:
    """Return bytes on disk / bytes in all, or the same of files if bytes are unknown."""
    sizes = array("d", files.sizes)
    if files.bytes_total > 0 and sizes and all(size > 0 for size in sizes):
        there = sum(size for number, size in enumerate(sizes) if files.mask >> number & 1)
        return min(1.0, there / files.bytes_total)
    return min(1.0, files.files_on_disk / files.files_total) if files.files_total else 0.0
