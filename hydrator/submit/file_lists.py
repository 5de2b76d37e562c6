"""The files of datasets, listed by the catalogues that can, and what is to be said where none could."""

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hydrator.config import Settings, StorageArea
from hydrator.domain.errors import CatalogueError, TooManyFiles
from hydrator.domain.model import DatasetFile, Did
from hydrator.domain.ports import FileLister
from hydrator.domain.redaction import shown
from hydrator.domain.text import count

from .dataset_paths import Contents, has_file_rule

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of datasets.

    ``contents`` has those that a catalogue listed, ``failed`` the others that one should have, each with the
    reason; ``alone`` are known to no catalogue that lists files, and count as one file each.
    ``is_too_long`` is whether a reason is that there are too many files.
    """

    contents: Contents = field(default_factory=dict)
    failed: Mapping[Did, str] = field(default_factory=dict)
    alone: frozenset[Did] = frozenset()
    is_too_long: bool = False

    @property
    def problems(self) -> list[str]:
        """One sentence for each reason why files could not be listed."""
        by_reason: dict[str, list[Did]] = {}
        for did, reason in sorted(self.failed.items()):
            by_reason.setdefault(reason, []).append(did)
        return [f"the files of {_some(dids)} are not known: {reason}" for reason, dids in by_reason.items()]

    def packed_bytes(self, patterns: Collection[str]) -> int:
        """Return how large the archives are that the job unpacks, as far as sizes are known."""
        return sum(
            file.bytes or 0
            for files in self.contents.values()
            for file in files
            if any(fnmatch.fnmatchcase(_base(file), pattern.lower()) for pattern in patterns)
        )


def _base(file: DatasetFile) -> str:
    return file.did.partition(":")[2].rpartition("/")[2].lower()


def list_files(dids: Collection[Did], settings: Settings, listers: Sequence[FileLister]) -> Listing:
    """List the files of *dids*, each by the first of *listers* that knows it.

    Args:
        dids: the datasets of one run.
        settings: how many files there may be, and of which storage elements addresses are needed.
        listers: the catalogues that can list files.
    """
    storages = frozenset(area.rse for area in settings.storage if area.rse)
    left, room = set(dids), settings.submit.max_files
    contents: dict[Did, Sequence[DatasetFile]] = {}
    failed: dict[Did, str] = {}
    is_too_long = False
    for lister in listers if left else ():
        try:
            found = lister.files(frozenset(left), storages, room)
        except CatalogueError as error:
            failed |= dict.fromkeys(left, f"catalogue {lister.name} did not answer: {error.reason}")
            continue
        for did, answer in found.items():
            is_too_long = is_too_long or isinstance(answer, TooManyFiles)
            if isinstance(answer, CatalogueError):
                failed[did] = f"catalogue {lister.name}: {answer.reason}"
            else:
                contents[did] = answer
                room -= len(answer)
                left.discard(did)
    failed = {did: why for did, why in failed.items() if did not in contents}
    return Listing(contents, failed, frozenset(left - failed.keys()), is_too_long)


def taken_alone(areas: Collection[StorageArea], listing: Listing) -> str | None:
    """The sentence on datasets that count as one file each, where that matters."""
    if not listing.alone or not has_file_rule(areas):
        return None
    dids = sorted(listing.alone)
    return (
        f"{_some(dids)}: no catalogue here lists files of {'them, so each' if len(dids) > 1 else 'it, so it'}"
        " is taken for one file of that name where a [[storage]] has a rule for files"
    )


def foreign_addresses(areas: Collection[StorageArea], contents: Contents) -> list[str]:
    """One sentence for each area to which no address of its storage element fits, though there are some."""
    found = []
    for area in areas:
        if area.rse is None or area.address_prefix is None:
            continue
        known = [
            address
            for files in contents.values()
            for file in files
            for address in file.addresses.get(area.rse, ())
        ]
        begin = area.address_prefix.rstrip("/") + "/"
        if known and not any(address.startswith(begin) for address in known):
            one = shown(known[0])
            found.append(
                f"[[storage]] of {area.site}: no address at {area.rse} begins with {begin}; one is {one}"
            )
    return found


def _some(dids: Sequence[Did]) -> str:
    more = f" and {count(len(dids) - _SHOWN, 'more dataset')}" if len(dids) > _SHOWN else ""
    return ", ".join(dids[:_SHOWN]) + more
