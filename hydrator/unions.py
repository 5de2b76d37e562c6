"""Datasets whose files lie in several storage elements that one site's jobs read: counted together, by file.

Pure: values in, values out.
"""

from collections.abc import Iterable, Sequence

from .model import FilesOnDisk, Replica, ReplicaState, Site, Told


def united(replicas: Iterable[Replica]) -> tuple[Replica, ...]:
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
    """What *parts* make together for jobs at *site*; None where one of them is whole, or as good alone.

    It is whole only where each file of the dataset is on disk in one of them.
    """
    known = [(part, part.files) for part in parts if part.files is not None]
    if len(known) < 2 or any(part.state is ReplicaState.COMPLETE for part in parts):
        return None
    sizes = dict(sorted(pair for _, files in known for pair in files.sizes))
    length = max(files.length for _, files in known)
    bytes_total = max(files.bytes_total for _, files in known)
    most = max(len(files.sizes) for _, files in known)
    if len(sizes) <= most:
        return None
    whole = len(sizes) == length
    places = [f"{files_at(part)} at {part.storage or part.site}" for part, _ in known]
    reason = f"{len(sizes)} of its {length} files together: {', '.join(places)}"
    return Replica(
        parts[0].did,
        site,
        ReplicaState.COMPLETE if whole else ReplicaState.PARTIAL,
        1.0
        if whole
        else max(_fraction(sizes, length, bytes_total), *(part.fraction or 0.0 for part in parts)),
        ",".join(sorted({part.storage for part, _ in known if part.storage})),
        Told(call=known[0][0].told.call, reason=reason),
        FilesOnDisk(frozenset(sizes.items()), length, bytes_total),
    )


def files_at(part: Replica) -> int:
    """How many files are known to be on disk in *part*."""
    return len(part.files.sizes) if part.files else 0


def _fraction(sizes: dict[str, float], length: int, bytes_total: float) -> float:
    there = sum(sizes.values())
    if bytes_total > 0 and all(size > 0 for size in sizes.values()):
        return min(1.0, there / bytes_total)
    return min(1.0, len(sizes) / length) if length else 0.0
