"""Site names of slots and catalogues, and sites that read each other's storage.

Catalogues use the names of their administrators, slots the names of their pool. Jobs at one
site can read the storage of another: at almost no cost across the road, at some cost across
a country. The operator configures both.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hydrator.domain.model import FilesOnDisk, Provenance

from .model import Did, Replica, ReplicaState, Seen, Site, Survey
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
        """Return *sites* by their names in slots, plus the sites that read the storage of one of them."""
        known = frozenset(self.aliases.get(site, site) for site in sites)
        return known | {site for site, others in self.read_costs.items() if known & others.keys()}

    def shared_storage_groups(self, sites: AbstractSet[Site]) -> frozenset[frozenset[Site]]:
        """Return groups of *sites* (a catalogue's names) whose storage the jobs of a site read at no cost."""
        found = set()
        for here in {self.aliases.get(site, site) for site in sites} | self.read_costs.keys():
            read = {here, *(site for site, cost in self.read_costs.get(here, {}).items() if cost == 0)}
            found.add(frozenset(site for site in sites if self.aliases.get(site, site) in read))
        return frozenset(found - {frozenset()})

    def map_reading(self, reading: Seen) -> Seen:
        """Return *reading* as jobs at each site see it.

        Only a dataset that is complete on disk is read from another site. At cost 0 it is complete there
        too. At another cost it is PARTIAL with 1 - cost as its fraction: no job that requires its data
        counts on it. A site's own replica has priority over one that it reads at a cost.

        Files at a site and at neighbours of cost 0 are counted together; if the sum is incomplete, each
        site has its own files only. A site with an unreachable neighbour is unreachable as well, unless
        it has the data itself.
        """
        own = tuple(
            replace(each, site=self.aliases.get(each.site, each.site)) if self.aliases else each
            for each in reading.replicas
        )
        own = add_unions(own)
        blind = {self.aliases.get(site, site) for site in reading.unreachable_sites}
        found = [replica for replica in own if replica.site not in blind]
        for site, others in sorted(self.read_costs.items()):
            here = {replica.site for replica in own}
            for replica in own:
                cost = others.get(replica.site)
                if cost is None or replica.state is not ReplicaState.COMPLETE:
                    continue
                if cost == 0 or (site not in here and cost < 1):
                    found.append(_remote_replica(replica, site, cost))
        found = [*self._merge_shared_files(own, blind), *found]
        whole = {replica.site for replica in found if replica.state is ReplicaState.COMPLETE}
        more = {site for site, others in self.read_costs.items() if blind & others.keys()} - whole
        found = [replica for replica in found if replica.site not in more]
        return replace(reading, replicas=tuple(found), unreachable_sites=frozenset(blind | more))

    def _merge_shared_files(
        self, replicas: Sequence[Replica], unreachable_sites: AbstractSet[Site]
    ) -> list[Replica]:
        """Return the replicas that are complete with the files of the neighbours at cost 0."""
        if sum(replica.files is not None for replica in replicas) < 2:
            return []
        found = []
        for site, others in sorted(self.read_costs.items()):
            read = {site, *(other for other, cost in others.items() if cost == 0)}
            union = union_at(site, [part for part in replicas if part.site in read - unreachable_sites])
            if union and union.state is ReplicaState.COMPLETE:
                reason = f"{union.provenance.reason}; {site} reads them all"
                found.append(replace(union, provenance=replace(union.provenance, reason=reason)))
        return found


def _remote_replica(replica: Replica, site: Site, cost: float) -> Replica:
    """Return *replica* as jobs at *site* see it."""
    reason = f"whole at {replica.site}, which {site} reads" + (f" at a cost of {cost:g}" if cost else "")
    provenance = replace(replica.provenance, reason=reason)
    if cost == 0:
        return replace(replica, site=site, provenance=provenance)
    return replace(replica, site=site, state=ReplicaState.PARTIAL, fraction=1.0 - cost, provenance=provenance)


class MappedCatalogue:
    """Another catalogue, with its sites renamed and connected by a :class:`SiteMapping`."""

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
    """Another auditor, with the same :class:`SiteMapping` as the catalogue whose answers it verifies."""

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
    """Add to *replicas* of one dataset, at each site where its parts are more together, their union.

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
    """Count *parts* together for jobs at *site*; return None if one of them is complete, or as good alone.

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
    whole = together.files_on_disk == together.files_total
    places = [f"{files.files_on_disk} at {part.storage or part.site}" for part, files in known]
    reason = f"{together.files_on_disk} of its {together.files_total} files together: {', '.join(places)}"
    return Replica(
        parts[0].did,
        site,
        ReplicaState.COMPLETE if whole else ReplicaState.PARTIAL,
        1.0 if whole else max(_fraction(together), *(part.fraction or 0.0 for part in parts)),
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
    """Return bytes there / bytes in all, or files if bytes are unknown."""
    sizes = array("d", files.sizes)
    if files.bytes_total > 0 and sizes and all(size > 0 for size in sizes):
        there = sum(size for number, size in enumerate(sizes) if files.mask >> number & 1)
        return min(1.0, there / files.bytes_total)
    return min(1.0, files.files_on_disk / files.files_total) if files.files_total else 0.0
