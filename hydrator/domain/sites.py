"""Site mapping: translate the site names of catalogues into those of slots; add sites that share storage.

A catalogue and the slots of a pool may use different names for one site. Jobs at one site may read
the storage of another site like their own. The operator configures both in ``[sites]``.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TypeVar

from .model import DatasetState, FilesOnDisk, Provenance, Replica, Seen, Site


@dataclass(frozen=True, slots=True)
class SiteMapping:
    """The operator's configuration of sites.

    Args:
        aliases: the name of each site in slots, by its name in catalogues.
        reads: by site, the other sites whose storage its jobs read like their own.
    """

    aliases: Mapping[Site, Site] = field(default_factory=dict)
    reads: Mapping[Site, frozenset[Site]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.aliases or self.reads)

    def map_sites(self, sites: AbstractSet[Site]) -> frozenset[Site]:
        """Return the slots' names for *sites*, and the sites whose jobs read the storage of *sites*."""
        known = frozenset(self.aliases.get(site, site) for site in sites)
        return known | {site for site, others in self.reads.items() if known & others}

    def shared_storage_groups(self, sites: AbstractSet[Site]) -> frozenset[frozenset[Site]]:
        """Return groups of *sites* (the catalogue's site names) that share storage.

        For each site with jobs, one group has the sites whose storage these jobs read.
        Groups are never empty. A site may be in several groups.
        """
        groups = set()
        for reader in {self.aliases.get(site, site) for site in sites} | self.reads.keys():
            local = self._local_sites(reader)
            groups.add(frozenset(site for site in sites if self.aliases.get(site, site) in local))
        return frozenset(groups - {frozenset()})

    def _local_sites(self, site: Site) -> set[Site]:
        """Return *site* and the other sites whose storage the jobs at *site* read."""
        return {site, *self.reads.get(site, ())}

    def map_reading(self, reading: Seen) -> Seen:
        """Return *reading* with, for each site, the replicas that jobs at this site can read.

        Jobs read only complete datasets from another site; these are complete at their site, too.

        Count the files at a site together with the files at the sites that its jobs read. If
        these are not all files of the dataset, count only the site's own files. A site that reads
        from an unreachable site is unreachable as well, unless the dataset is complete at the reading site.
        """
        own = tuple(
            replace(each, site=self.aliases.get(each.site, each.site)) if self.aliases else each
            for each in reading.replicas
        )
        own = add_unions(own)
        unreachable = {self.aliases.get(site, site) for site in reading.unreachable_sites}
        replicas = [
            *self._merge_shared_files(own, unreachable),
            *own,
            *self._remote_replicas(own),
        ]
        complete = {replica.site for replica in replicas if replica.state is DatasetState.AVAILABLE}
        readers = {site for site, others in self.reads.items() if unreachable & others}
        incomplete_readers = readers - complete
        return replace(
            reading,
            replicas=tuple(replica for replica in replicas if replica.site not in incomplete_readers),
            unreachable_sites=frozenset(unreachable | incomplete_readers),
        )

    def _remote_replicas(self, own: Sequence[Replica]) -> Iterator[Replica]:
        """Yield a replica for each site whose jobs read a complete replica of another site."""
        for site, others in sorted(self.reads.items()):
            for replica in own:
                if replica.site in others and replica.state is DatasetState.AVAILABLE:
                    reason = f"complete at {replica.site}, whose storage jobs at {site} read"
                    yield replace(replica, site=site, provenance=replace(replica.provenance, reason=reason))

    def _merge_shared_files(
        self, replicas: Sequence[Replica], unreachable_sites: AbstractSet[Site]
    ) -> list[Replica]:
        """Return a complete replica for each site whose jobs find all files in several replicas."""
        if sum(replica.files is not None for replica in replicas) < 2:
            return []
        unions = []
        for site in sorted(self.reads):
            sites = self._local_sites(site) - unreachable_sites
            union = union_at(site, [part for part in replicas if part.site in sites])
            if union and union.state is DatasetState.AVAILABLE:
                reason = f"{union.provenance.reason}; jobs at {site} read all of these"
                unions.append(replace(union, provenance=replace(union.provenance, reason=reason)))
        return unions


P = TypeVar("P")


def add_unions(replicas: Iterable[Replica]) -> tuple[Replica, ...]:
    """Return *replicas* of one dataset and, for each site with several replicas, the union of these replicas.

    A union has the files of all replicas of a site. Add a union only if it has more files than each
    replica alone. Unions come first in the result. The caller uses the best replica of each site.
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
    """Return a replica at *site* with the files of all *parts*; None if one of the parts has all these files.

    The union is complete only if each file of the dataset is on disk in one of the parts.
    """
    known = [(part, part.files) for part in parts if part.files is not None]
    if len(known) < 2 or any(part.state is DatasetState.AVAILABLE for part in parts):
        return None
    mask = 0
    for _, files in known:
        mask |= files.mask
    together = replace(known[0][1], mask=mask, files_total=max(files.files_total for _, files in known))
    if together.files_on_disk <= max(files.files_on_disk for _, files in known):
        return None
    is_complete = together.files_on_disk == together.files_total
    places = [f"{files.files_on_disk} at {part.storage or part.site}" for part, files in known]
    count = f"{together.files_on_disk} of the dataset's {together.files_total} files are on disk"
    reason = f"{count}: {', '.join(places)}"
    return Replica(
        parts[0].did,
        site,
        DatasetState.AVAILABLE if is_complete else DatasetState.PARTIAL,
        1.0 if is_complete else max(_fraction(together), *(part.fraction or 0.0 for part in parts)),
        ",".join(sorted({part.storage for part, _ in known if part.storage})),
        Provenance(reason),
        together,
    )


def number_files(places: Mapping[P, Collection[str]]) -> tuple[dict[str, int], dict[P, int]]:
    """Return a number for each file name in *places*, and for each place the bit mask of its files."""
    every = sorted(set[str]().union(*places.values()))  # sorted: the same files always get the same numbers
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
    """Return bytes on disk / all bytes, or files on disk / all files if a size is unknown."""
    sizes = array("d", files.sizes)
    if files.bytes_total > 0 and sizes and all(size > 0 for size in sizes):
        there = sum(size for number, size in enumerate(sizes) if files.mask >> number & 1)
        return min(1.0, there / files.bytes_total)
    return min(1.0, files.files_on_disk / files.files_total) if files.files_total else 0.0
