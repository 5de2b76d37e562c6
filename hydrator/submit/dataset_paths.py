"""Dataset paths: find the path of each dataset at each site, and write the paths to hydrator-paths.json.

``hydrator submit rapthor`` writes the file; the job wrapper (job_wrapper.py) reads it at the site where the
job starts. Pure: values in, values and text out.
"""

import hashlib
import json
import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from hydrator.config import StorageArea
from hydrator.domain.model import DatasetFile, Did, Site
from hydrator.domain.text import group_pairs
from hydrator.domain.untrusted import has_unsafe_parts

PATHS_FILE = "hydrator-paths.json"
VERSION = 1
_FILE_RULES = ("hash", "identity", "catalogue")
"""Rules that give a path for each file of a dataset; the other rules give one path for the dataset."""
ARCHIVE_SUFFIXES = (".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")


class StorageFolder(NamedTuple):
    """A folder with files of a dataset; ``layout`` names the rule for the files' paths below this folder."""

    prefix: str
    layout: str


DatasetLocation = str | tuple[StorageFolder, ...]
"""One path of a dataset at a site, or folders; a job reads each file from the first folder that has it."""
Paths = Mapping[Site, Mapping[Did, DatasetLocation]]
"""The places of datasets by site; a dataset without a place is left out."""
FilesByDid = Mapping[Did, Sequence[DatasetFile]]
"""The files of each listed dataset; a dataset that is not in this mapping counts as one file."""


def has_file_rule(areas: Iterable[StorageArea]) -> bool:
    """Return whether one of *areas* has a rule that gives each file of a dataset its own path."""
    return any(area.rule in _FILE_RULES for area in areas)


def hash_path(did: str) -> str:
    """Return the path of the file *did* at a deterministic storage element of Rucio: ``scope/xx/yy/name``.

    ``xx`` and ``yy`` are the first four characters of the MD5 of the DID. If the scope begins with ``user``
    or ``group``, its dots become slashes [1].

    [1] Rucio, RSEDeterministicTranslation, algorithm "hash" (its default).
    """
    digest = hashlib.md5(did.encode(), usedforsecurity=False).hexdigest()
    return f"{_scope_folder(did)}/{digest[:2]}/{digest[2:4]}/{did.partition(':')[2]}"


def _scope_folder(did: str) -> str:
    scope = did.partition(":")[0]
    return scope.replace(".", "/") if scope.startswith(("user", "group")) else scope


def dataset_path(area: StorageArea, did: Did) -> str | None:
    """Return the path of the whole dataset *did* in a storage area; None if the area has no path for it.

    If the area has a rule for files, the result is the path of the single file *did*. The area's table
    overrides the area's rule. A rule gives no path for a DID with an empty part, ``.`` or ``..``, because the
    path could lead out of the prefix.
    """
    below = area.table.get(did)
    if below is None:
        path = did.replace(":", "/", 1) if area.rule == "name" else _file_path(area, DatasetFile(did))
        below = None if path is None or has_unsafe_parts(path) else path
    return None if below is None else posixpath.join(area.prefix, below)


def _file_path(area: StorageArea, file: DatasetFile) -> str | None:
    """Return the path of *file* below the area's prefix; None if the area has no path for the file.

    Rucio's algorithm "identity" gives ``scope/name``; for the scope see :func:`hash_path`.
    """
    name = file.did.partition(":")[2]
    if area.rule == "hash":
        path = hash_path(file.did)
    elif area.rule == "identity":
        path = f"{_scope_folder(file.did)}/{name}"
    elif area.rule == "catalogue" and area.rse is not None and area.address_prefix is not None:
        begin = area.address_prefix.rstrip("/") + "/"
        matches = (each for each in file.addresses.get(area.rse, ()) if each.startswith(begin))
        path = next(matches, "").removeprefix(begin).lstrip("/")
        if "?" in path:  # a signature, or a member of an archive: no path of a file
            return None
    else:
        return None
    return None if not path or has_unsafe_parts(path) or has_unsafe_parts(name) else path


def local_paths(
    areas: Iterable[StorageArea], dids: Iterable[Did], contents: FilesByDid | None = None
) -> Paths:
    """Return the place of each of *dids* at each site of *areas*.

    The function uses the first area of the site that has a path for the dataset. If that area has a rule for
    files, each file may be in that area or in any later area of the site with a rule for files.

    Args:
        areas: the [[storage]] areas, in the order of the configuration.
        dids: the datasets.
        contents: the files of the datasets that a catalogue listed; any other dataset counts as one file.
    """
    sorted_dids = sorted(set(dids))
    by_site = group_pairs((Site(area.site), area) for area in areas)
    paths: dict[Site, Mapping[Did, DatasetLocation]] = {}
    for site, site_areas in sorted(by_site.items()):
        places = ((did, _find_location(site_areas, did, (contents or {}).get(did))) for did in sorted_dids)
        paths[site] = {did: place for did, place in places if place is not None}
    return paths


def unlisted_paths(areas: Iterable[StorageArea], dids: Collection[Did]) -> Paths:
    """Return the paths of those of *dids* that are one file or folder, without asking for their files.

    A measurement set is a folder. So where Rucio knows only files, a name that is not of an archive is a
    dataset of several files: it gets no path.
    """
    return local_paths(areas, dids, {did: () for did in dids if not did.lower().endswith(ARCHIVE_SUFFIXES)})


def _find_location(
    areas: Sequence[StorageArea], did: Did, files: Sequence[DatasetFile] | None
) -> DatasetLocation | None:
    """Return the place of the dataset *did* in the *areas* of one site; None if no area has a path."""
    for number, area in enumerate(areas):
        as_files = files is not None and area.rule in _FILE_RULES and did not in area.table
        if not as_files and (path := dataset_path(area, did)) is not None:
            return path
        if as_files and files:
            file_areas = [each for each in areas[number:] if each.rule in _FILE_RULES]
            if all(any(_file_path(each, file) for each in file_areas) for file in files):
                return tuple(StorageFolder(each.prefix, _layout_name(each)) for each in file_areas)
    return None


def _layout_name(area: StorageArea) -> str:
    """Return an area's layout name; areas of one layout have a file at the same path below their prefix."""
    return f"catalogue {area.rse} {area.address_prefix}" if area.rule == "catalogue" else area.rule


def paths_file_text(
    datasets: Sequence[tuple[str, Did]],
    paths: Paths,
    stage_in: str | None,
    site_attributes: Sequence[str] = (),
    *,
    areas: Sequence[StorageArea] = (),
    contents: FilesByDid | None = None,
    unpack: Sequence[str] = (),
) -> str:
    """Return the text of hydrator-paths.json.

    Args:
        datasets: the name of each dataset in the job's own files, and its DID, in the order of the job.
        paths: the places of the datasets, by site.
        stage_in: a command that fetches ``{did}`` to ``{path}``, or None.
        site_attributes: slot attributes with the site's name, tried after DataLocalitySite.
        areas: the storage areas from which the caller made *paths*.
        contents: the files of the datasets that a catalogue listed.
        unpack: names of tar files that the wrapper unpacks; ``*`` and ``?`` are wildcards.
    """
    layouts = {_layout_name(area): area for area in areas if area.rule in _FILE_RULES}
    body: dict[str, object] = {
        "version": VERSION,
        "datasets": [_dataset_entry(name, did, (contents or {}).get(did), layouts) for name, did in datasets],
        "sites": paths,
        "stage_in": stage_in,
        "unpack": list(unpack),
        "site_keys": list(site_attributes),
    }
    return json.dumps(body, indent=None if contents else 1) + "\n"


def _dataset_entry(
    name: str, did: Did, files: Sequence[DatasetFile] | None, layouts: Mapping[str, StorageArea]
) -> dict[str, object]:
    """Return the entry of one dataset in hydrator-paths.json."""
    entry: dict[str, object] = {"did": did, "name": name}
    if not files:
        return entry
    if layouts:
        names = _file_names(did, files)
        entry["files"] = [[name, file.bytes] for name, file in zip(names, files, strict=True)]
        entry["layouts"] = {
            key: [_file_path(area, file) for file in files] for key, area in sorted(layouts.items())
        }
    sizes = [file.bytes for file in files]
    if not any(file.did.lower().endswith(ARCHIVE_SUFFIXES) for file in files) and None not in sizes:
        # no size for archives: the wrapper would compare this size with that of the unpacked folder
        entry["bytes"] = sum(size or 0 for size in sizes)
    return entry


def _file_names(did: Did, files: Sequence[DatasetFile]) -> list[str]:
    """Return the names that *files* get in the folder of the dataset *did*.

    The function removes the dataset's own name from the beginning of a file's name. If two files of different
    scopes then have the same name, each file gets its scope as a folder before its name.
    """
    folder = did.partition(":")[2].rstrip("/") + "/"
    names = [file.did.partition(":")[2].removeprefix(folder) for file in files]
    if max(Counter(names).values()) > 1:
        return [file.did.replace(":", "/", 1) for file in files]
    return names
