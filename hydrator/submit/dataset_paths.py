"""Where a job finds a dataset as a local path, site by site, and the file that tells it: hydrator-paths.json.

Pure: values in, values and text out. ``hydrator submit rapthor`` writes the
file, the job-side wrapper (``job_start.py``) reads it at the site it woke up at.
"""

import hashlib
import json
import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hydrator.config import StorageArea
from hydrator.domain.errors import ConfigError
from hydrator.domain.model import DatasetFile, Did, Site, has_unsafe_parts
from hydrator.privacy.pseudonyms import is_opaque

PATHS_FILE = "hydrator-paths.json"
VERSION = 1
_FILE_RULES = ("hash", "identity", "catalogue")
"""Rules that make a path of each file of a dataset; the others make one of the dataset itself."""
_ARCHIVE_SUFFIXES = (".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")


@dataclass(frozen=True, slots=True)
class StorageFolder:
    """A folder in which files of a dataset lie, and the layout that says where below it."""

    prefix: str
    layout: str


DatasetLocation = str | tuple[StorageFolder, ...]
"""Where a dataset is at a site: one path, or the shelves on which its files are, the first that has each."""
Paths = Mapping[Site, Mapping[Did, DatasetLocation]]
"""By site, the place of each dataset that has one there."""
FilesByDid = Mapping[Did, Sequence[DatasetFile]]
"""The files of each dataset that a catalogue could list; a dataset not in it counts as one file."""


@dataclass(frozen=True, slots=True)
class JobDataset:
    """One dataset of a job: its DID, its name as the job's own files have it, its variable ``$INPUT_n``.

    ``did`` is an opaque name where the dataset is private, and ``plain`` its DID then.
    """

    did: Did
    name: str
    variable: str
    real_did: Did | None = None


def has_file_rule(areas: Iterable[StorageArea]) -> bool:
    """Return whether one of *areas* has a path for each file, not for the dataset as a whole."""
    return any(area.rule in _FILE_RULES for area in areas)


def hash_path(did: str) -> str:
    """Return where Rucio puts the file *did* at a deterministic storage element: ``scope/xx/yy/name``.

    The four characters are the first of the MD5 of the DID; the dots of
    scopes that begin with ``user`` or ``group`` become slashes [1].

    [1] Rucio, RSEDeterministicTranslation, algorithm "hash" (its default).
    """
    digest = hashlib.md5(did.encode(), usedforsecurity=False).hexdigest()
    return f"{_scope_folder(did)}/{digest[:2]}/{digest[2:4]}/{did.partition(':')[2]}"


def identity_path(did: str) -> str:
    """Return where Rucio's algorithm "identity" puts the file *did*: ``scope/name``, dots as in "hash"."""
    return f"{_scope_folder(did)}/{did.partition(':')[2]}"


def _scope_folder(did: str) -> str:
    scope = did.partition(":")[0]
    return scope.replace(".", "/") if scope.startswith(("user", "group")) else scope


def dataset_path(area: StorageArea, did: Did) -> str | None:
    """The path of *did* as a whole in a storage area; None where the area has none.

    Of rules that make a path of each file, it is the path of the one file *did*. A table also has the
    exceptions of the other rules, which make no path of a DID with an empty part, ``.`` or ``..``: it could
    leave the prefix. An opaque name is nobody's path: on disk a private dataset has its own name.
    """
    if is_opaque(did):
        return None
    below = area.table.get(did)
    if below is None:
        made = did.replace(":", "/", 1) if area.rule == "name" else _file_path(area, DatasetFile(did))
        below = None if made is None or has_unsafe_parts(made) else made
    return None if below is None else posixpath.join(area.prefix, below)


def _file_path(area: StorageArea, file: DatasetFile) -> str | None:
    """The path of one file below the prefix of an area with a file rule; None where there is none."""
    if area.rule == "hash":
        made = hash_path(file.did)
    elif area.rule == "identity":
        made = identity_path(file.did)
    elif area.rule == "catalogue" and area.rse is not None and area.address_prefix is not None:
        begin = area.address_prefix.rstrip("/") + "/"
        found = (each for each in file.addresses.get(area.rse, ()) if each.startswith(begin))
        made = next(found, "").removeprefix(begin).lstrip("/")
    else:
        return None
    name = file.did.partition(":")[2]
    return None if not made or has_unsafe_parts(made) or has_unsafe_parts(name) else made


def single_folder_path(areas: Iterable[StorageArea], site: Site, did: Did) -> str | None:
    """Return the path of *did* at *site* where it is one folder; None where rules make paths of its files."""
    place = local_paths(areas, [did], {did: ()}).get(site, {}).get(did)
    return place if isinstance(place, str) else None


def local_paths(
    areas: Iterable[StorageArea], dids: Iterable[Did], contents: FilesByDid | None = None
) -> Paths:
    """Where each of *dids* is at each site of *areas*.

    Of several areas of a site the first that has the dataset as one path counts. Where the first makes a
    path of each file, a file may be in any area of the site that does.

    Args:
        areas: as configured, in their order.
        dids: the datasets.
        contents: the files of those that could be listed; the others count as one file each.
    """
    wanted, by_site = sorted(set(dids)), dict[Site, list[StorageArea]]()
    for area in areas:
        by_site.setdefault(Site(area.site), []).append(area)
    paths: dict[Site, Mapping[Did, DatasetLocation]] = {}
    for site, here in sorted(by_site.items()):
        found = ((did, _find_location(here, did, (contents or {}).get(did))) for did in wanted)
        paths[site] = {did: place for did, place in found if place is not None}
    return paths


def _find_location(
    areas: Sequence[StorageArea], did: Did, files: Sequence[DatasetFile] | None
) -> DatasetLocation | None:
    """The place of one dataset in the areas of one site."""
    for number, area in enumerate(areas):
        as_files = files is not None and area.rule in _FILE_RULES and did not in area.table
        if not as_files and (path := dataset_path(area, did)) is not None:
            return path
        if as_files and files:
            filed = [each for each in areas[number:] if each.rule in _FILE_RULES]
            if all(any(_file_path(each, file) for each in filed) for file in files):
                return tuple(StorageFolder(each.prefix, _layout_name(each)) for each in filed)
    return None


def _layout_name(area: StorageArea) -> str:
    """The name of an area's layout: areas of one layout have a file at the same path below their prefixes."""
    return f"catalogue {area.rse} {area.address_prefix}" if area.rule == "catalogue" else area.rule


def job_datasets(
    pairs: Sequence[tuple[str, Did]], pseudonyms: Mapping[Did, Did] | None = None
) -> tuple[JobDataset, ...]:
    """Number *pairs* of name and DID as the variables ``INPUT_1``, …; *names* has opaque names by DID."""
    made = []
    for number, (name, did) in enumerate(pairs, 1):
        called = (pseudonyms or {}).get(did, did)
        made.append(JobDataset(called, name, f"INPUT_{number}", None if called == did else did))
    return tuple(made)


def with_pseudonyms(paths: Paths, pseudonyms: Mapping[Did, Did]) -> Paths:
    """The same *paths* for datasets under other *names*."""
    return {
        site: {pseudonyms.get(did, did): path for did, path in here.items()} for site, here in paths.items()
    }


def paths_file_text(
    datasets: Sequence[JobDataset],
    paths: Paths,
    stage_in: str | None,
    site_attributes: Sequence[str] | None = None,
    *,
    areas: Sequence[StorageArea] = (),
    contents: FilesByDid | None = None,
    unpack: Sequence[str] = (),
) -> str:
    """The text of hydrator-paths.json.

    Args:
        datasets: in the order of the job's own list.
        paths: by site, where they are.
        stage_in: a command that fetches ``{did}`` to ``{path}``, or None.
        site_attributes: where a slot says its site, after DataLocalitySite; None: as the wrapper knows it.
        areas: those that *paths* were made by.
        contents: the files of those datasets that could be listed.
        unpack: names of tar files that the job unpacks, with ``*`` and ``?``.
    """
    layouts = {_layout_name(area): area for area in areas if area.rule in _FILE_RULES}
    body: dict[str, object] = {
        "version": VERSION,
        "datasets": [
            _dataset_entry(each, (contents or {}).get(each.real_did or each.did), layouts)
            for each in datasets
        ],
        "sites": {
            site: {did: _location_to_json(place) for did, place in here.items()}
            for site, here in paths.items()
        },
        "stage_in": stage_in,
    }
    if unpack:
        body["unpack"] = list(unpack)
    if site_attributes is not None:
        body["site_keys"] = list(site_attributes)
    return json.dumps(body, indent=None if contents else 1) + "\n"


def check_length(text: str, max_bytes: float) -> str:
    """Return *text* of hydrator-paths.json, where it is not too long.

    Raises:
        ConfigError: it is longer than *most_bytes*.
    """
    if len(text) > max_bytes:
        given = f"hydrator-paths.json has {len(text):,} bytes, [submit].max_list_mb allows {max_bytes:,.0f}"
        raise ConfigError([f"{given}: submit fewer datasets in one run, or allow more"])
    return text


def _dataset_entry(
    dataset: JobDataset, files: Sequence[DatasetFile] | None, layouts: Mapping[str, StorageArea]
) -> dict[str, object]:
    """What hydrator-paths.json has of one dataset."""
    entry: dict[str, object] = {"did": dataset.did, "name": dataset.name, "variable": dataset.variable}
    if dataset.real_did:
        entry["plain"] = dataset.real_did
    if not files:
        return entry
    if layouts:
        names = _file_names(dataset.real_did or dataset.did, files)
        entry["files"] = [[name, file.bytes] for name, file in zip(names, files, strict=True)]
        entry["layouts"] = {
            key: [_file_path(area, file) for file in files] for key, area in sorted(layouts.items())
        }
    sizes = [file.bytes for file in files]
    if not any(file.did.lower().endswith(_ARCHIVE_SUFFIXES) for file in files) and None not in sizes:
        # of a folder that somebody else unpacked, the size is not that of the archives
        entry["bytes"] = sum(size or 0 for size in sizes)
    return entry


def _file_names(did: Did, files: Sequence[DatasetFile]) -> list[str]:
    """The files' names inside the folder that the job sees as *did*: each without the dataset's own name.

    Of two files with one name in two scopes, all names get their scope as a folder.
    """
    folder = did.partition(":")[2].rstrip("/") + "/"
    names = [file.did.partition(":")[2].removeprefix(folder) for file in files]
    if max(Counter(names).values()) > 1:
        return [file.did.replace(":", "/", 1) for file in files]
    return names


def _location_to_json(location: DatasetLocation) -> object:
    return location if isinstance(location, str) else [[shelf.prefix, shelf.layout] for shelf in location]
