"""File lists: query the files of datasets from the catalogues, and report datasets without a file list."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hydrator.config import Settings, StorageArea
from hydrator.domain.errors import CatalogueError, TooManyFiles
from hydrator.domain.model import DatasetFile, Did
from hydrator.domain.ports import FileLister
from hydrator.domain.redaction import sanitize
from hydrator.domain.text import group_pairs, shorten_list

from .dataset_paths import FilesByDid, has_file_rule
from .rapthor.parset import matches_base_name

MAX_FILES = 20_000
"""The files of all datasets of one run: each is a line of hydrator-paths.json."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of datasets.

    ``contents`` has the files of each dataset that a catalogue listed. ``failures`` has the reason for each
    dataset that a catalogue failed to list. ``unlisted_dids`` are datasets whose files no
    catalogue lists; the rules for paths treat each of these datasets as one file. ``has_too_many_files`` is
    True if the datasets have more files than ``MAX_FILES``.
    """

    contents: FilesByDid = field(default_factory=dict)
    failures: Mapping[Did, str] = field(default_factory=dict)
    unlisted_dids: frozenset[Did] = frozenset()
    has_too_many_files: bool = False

    @property
    def problems(self) -> list[str]:
        """One sentence for each reason why a catalogue could not list files."""
        by_reason = group_pairs((reason, did) for did, reason in sorted(self.failures.items()))
        return [
            f"the files of {shorten_list(dids)} are not known: {reason}" for reason, dids in by_reason.items()
        ]

    def archives(
        self, patterns: Collection[str], dids: Iterable[Did], sizes: Mapping[Did, int]
    ) -> list[DatasetFile]:
        """Return the files of *dids* whose names match *patterns*.

        A dataset without a list of files counts as one file, with its size in *sizes* if it is known.
        """
        found = []
        for did in dids:
            for file in self.contents.get(did, (DatasetFile(did, sizes.get(did)),)):
                name = file.did.partition(":")[2].lower()
                if any(matches_base_name(name, pattern.lower()) for pattern in patterns):
                    found.append(file)
        return found


def list_files(dids: Collection[Did], settings: Settings, listers: Sequence[FileLister]) -> Listing:
    """List the files of each of *dids*, from the first of *listers* that has the dataset.

    Args:
        dids: the datasets of one run.
        settings: [[storage]] names the storage elements whose file addresses are needed.
        listers: the catalogues that can list files.
    """
    storages = frozenset(area.rse for area in settings.storage if area.rse)
    remaining, room = set(dids), MAX_FILES
    contents: dict[Did, Sequence[DatasetFile]] = {}
    failures: dict[Did, str] = {}
    is_too_long = False
    for lister in listers if remaining else ():
        try:
            answers = lister.list_files(frozenset(remaining), storages, room)
        except CatalogueError as error:
            failures |= dict.fromkeys(remaining, f"catalogue {lister.name}: {error.reason}")
            continue
        for did, answer in answers.items():
            is_too_long = is_too_long or isinstance(answer, TooManyFiles)
            if isinstance(answer, CatalogueError):
                failures[did] = f"catalogue {lister.name}: {answer.reason}"
            else:
                contents[did] = answer
                room -= len(answer)
                remaining.discard(did)
    failures = {did: why for did, why in failures.items() if did not in contents}
    return Listing(contents, failures, frozenset(remaining - failures.keys()), is_too_long)


def single_file_notice(areas: Collection[StorageArea], listing: Listing) -> str | None:
    """Return one sentence that names the datasets without a file list; None if no [[storage]] needs lists."""
    if not listing.unlisted_dids or not has_file_rule(areas):
        return None
    rule = "a [[storage]] rule for files takes each dataset without files as one file with its name"
    return f"no catalogue lists files of {shorten_list(sorted(listing.unlisted_dids))}: {rule}"


def address_mismatches(areas: Collection[StorageArea], contents: FilesByDid) -> list[str]:
    """Return one sentence for each area whose ``address_prefix`` matches no file address at its RSE."""
    every = [file for files in contents.values() for file in files]
    sentences = []
    for area in areas:
        begin = f"{(area.address_prefix or '').rstrip('/')}/"
        addresses = [one for file in every for one in file.addresses.get(area.rse or "", ())]
        if area.address_prefix and addresses and not any(one.startswith(begin) for one in addresses):
            sentences.append(
                f"[[storage]] of {area.site}: no file address at {area.rse} begins with {begin};"
                f" an example is {sanitize(addresses[0])}: correct address_prefix"
            )
    return sentences
