"""Datasets whose files lie in several storage elements that one site's jobs read: counted together, by file.

Pure: values in, values out.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from .model import FilesOnDisk, Provenance, Replica, ReplicaState, Site

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
