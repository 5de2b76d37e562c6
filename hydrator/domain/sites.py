"""Sites as slots call them, and sites that read each other's storage.

Catalogues call sites as their administrators do; slots as their pool does. And
jobs at one site can read what is at another: at no cost worth the name across
the road, at some cost across a country. Both are the operator's to say.
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
    """What the operator says of sites.

    Args:
        aliases: by the name that catalogues use, the site as slots say it.
        reads: by site, the sites whose storage its jobs can read, with the cost of it:
            0 (as if it were here) to 1 (of no use).
    """

    aliases: Mapping[Site, Site] = field(default_factory=dict)
    read_costs: Mapping[Site, Mapping[Site, float]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.aliases or self.read_costs)

    def map_sites(self, sites: AbstractSet[Site]) -> frozenset[Site]:
        """*sites* as slots call them, and those that read the storage of one of them."""
        known = frozenset(self.aliases.get(site, site) for site in sites)
        return known | {site for site, others in self.read_costs.items() if known & others.keys()}

    def shared_storage_groups(self, sites: AbstractSet[Site]) -> frozenset[frozenset[Site]]:
        """Return those of *sites*, in a catalogue's names, whose storage jobs elsewhere read as their own."""
        found = set()
        for here in {self.aliases.get(site, site) for site in sites} | self.read_costs.keys():
            read = {here, *(site for site, cost in self.read_costs.get(here, {}).items() if cost == 0)}
            found.add(frozenset(site for site in sites if self.aliases.get(site, site) in read))
        return frozenset(found - {frozenset()})

    def map_reading(self, reading: Seen) -> Seen:
        """The same reading, as it is from all sites.

        Only what is whole on disk is read from afar. At no cost it is whole there too; at a cost it is
        PARTIAL, with what the cost leaves as its fraction: no job that must have its data counts
        on it. What a site has of its own stands before what it would have to fetch at a cost. Files that
        lie here and at neighbours that are read at no cost are counted together; of what is not whole
        then, a site has its own. A
        site whose neighbour could not be looked at is blind as well, unless it has the data anyhow.
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
        """Return what is whole where files at a site and at its neighbours are counted together."""
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
    """*replica*, as jobs at *site* have it."""
    reason = f"whole at {replica.site}, which {site} reads" + (f" at a cost of {cost:g}" if cost else "")
    told = replace(replica.provenance, reason=reason)
    if cost == 0:
        return replace(replica, site=site, provenance=told)
    return replace(replica, site=site, state=ReplicaState.PARTIAL, fraction=1.0 - cost, provenance=told)


class MappedCatalogue:
    """Another catalogue, its sites called and connected as *places* say."""

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
    """Another auditor, its sites as *places* say: it is to judge what the catalogue was taken to say."""

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
    """Add to *replicas* of one dataset, at each site where its parts make more together, what they make.

    What is added stands before the parts, which stay as they are: the best of all counts.
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
    """Count *parts* together for jobs at *site*; None where one of them is whole, or as good alone.

    It is whole only where each file of the dataset is on disk in one of them.
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
    """Number the files in *places*, which has their names by place; and by place, the mask of its files."""
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
    """Bytes there / bytes in all, files where bytes are unknown."""
    sizes = array("d", files.sizes)
    if files.bytes_total > 0 and sizes and all(size > 0 for size in sizes):
        there = sum(size for number, size in enumerate(sizes) if files.mask >> number & 1)
        return min(1.0, there / files.bytes_total)
    return min(1.0, files.files_on_disk / files.files_total) if files.files_total else 0.0
