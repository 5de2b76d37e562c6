"""The files of datasets, listed by the catalogues that can, and what is to be said where none could."""

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hydrator.config import Settings, StorageArea
from hydrator.domain.errors import CatalogueError, TooManyFiles
from hydrator.domain.model import DatasetFile, Did
from hydrator.domain.ports import FileLister
from hydrator.domain.redaction import sanitize
from hydrator.domain.text import shorten_list

from .dataset_paths import FilesByDid, has_file_rule

_MAX_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of datasets.

    ``contents`` has those that a catalogue listed, ``failed`` the others that one should have, each with the
    reason; ``alone`` are known to no catalogue that lists files, and count as one file each.
    ``is_too_long`` is whether a reason is that there are too many files.
    """

    contents: FilesByDid = field(default_factory=dict)
    failures: Mapping[Did, str] = field(default_factory=dict)
    unlisted_dids: frozenset[Did] = frozenset()
    has_too_many_files: bool = False

    @property
    def problems(self) -> list[str]:
        """One sentence for each reason why files could not be listed."""
        by_reason: dict[str, list[Did]] = {}
        for did, reason in sorted(self.failures.items()):
            by_reason.setdefault(reason, []).append(did)
        return [
            f"the files of {_join_dids(dids)} are not known: {reason}" for reason, dids in by_reason.items()
        ]

    def archive_bytes(self, patterns: Collection[str]) -> int:
        """Return how large the archives are that the job unpacks, as far as sizes are known."""
        return sum(
            file.bytes or 0
            for files in self.contents.values()
            for file in files
            if any(fnmatch.fnmatchcase(_lower_base_name(file), pattern.lower()) for pattern in patterns)
        )


def _lower_base_name(file: DatasetFile) -> str:
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
            found = lister.list_files(frozenset(left), storages, room)
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


def single_file_notice(areas: Collection[StorageArea], listing: Listing) -> str | None:
    """The sentence on datasets that count as one file each, where that matters."""
    if not listing.unlisted_dids or not has_file_rule(areas):
        return None
    dids = sorted(listing.unlisted_dids)
    return (
        f"{_join_dids(dids)}: no catalogue here lists files of {'them, so each' if len(dids) > 1 else 'it, so it'}"
        " is taken for one file of that name where a [[storage]] has a rule for files"
    )


def address_mismatches(areas: Collection[StorageArea], contents: FilesByDid) -> list[str]:
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
            one = sanitize(known[0])
            found.append(
                f"[[storage]] of {area.site}: no address at {area.rse} begins with {begin}; one is {one}"
            )
    return found


def _join_dids(dids: Sequence[Did]) -> str:
    return shorten_list(dids, limit=_MAX_SHOWN)
