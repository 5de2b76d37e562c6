"""Where a job finds a dataset as a local path, site by site, and the file that tells it: hydrator-paths.json.

Pure: values in, values and text out. ``hydrator submit rapthor`` writes the
file, the job-side wrapper (``job_start.py``) reads it at the site it woke up at.
"""

import hashlib
import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .config import StorageArea
from .model import Did, Site, has_unsafe_parts
from .private import is_opaque

PATHS_FILE = "hydrator-paths.json"
VERSION = 1
Paths = Mapping[Site, Mapping[Did, str]]
"""By site, the local path of each dataset that has one there."""


@dataclass(frozen=True, slots=True)
class JobDataset:
    """One dataset of a job: its DID, its name as the job's own files have it, its variable ``$INPUT_n``.

    ``did`` is an opaque name where the dataset is private, and ``plain`` its DID then.
    """

    did: Did
    name: str
    variable: str
    plain: Did | None = None


def hashed_path(did: Did) -> str:
    """Where Rucio puts *did* below a deterministic storage element: ``scope/xx/yy/name``.

    The four characters are the first of the MD5 of the DID; the dots of
    scopes that begin with ``user`` or ``group`` become slashes [1].

    [1] Rucio, RSEDeterministicTranslation, algorithm "hash" (its default).
    """
    scope, _, name = did.partition(":")
    digest = hashlib.md5(did.encode(), usedforsecurity=False).hexdigest()
    folder = scope.replace(".", "/") if scope.startswith(("user", "group")) else scope
    return f"{folder}/{digest[:2]}/{digest[2:4]}/{name}"


def path_at(area: StorageArea, did: Did) -> str | None:
    """The path of *did* in a storage area; None where its rule is a table that does not have it.

    A table also has the exceptions of the other two rules, which make no path
    of a DID with an empty part, ``.`` or ``..``: it could leave the prefix. An
    opaque name is nobody's path: on disk a private dataset has its own name.
    """
    if is_opaque(did):
        return None
    below = area.table.get(did)
    if below is None and area.rule != "table":
        made = hashed_path(did) if area.rule == "hash" else did.replace(":", "/", 1)
        below = None if has_unsafe_parts(made) else made
    return None if below is None else posixpath.join(area.prefix, below)


def local_paths(areas: Iterable[StorageArea], dids: Iterable[Did]) -> Paths:
    """Where each of *dids* is at each site of *areas*; of several areas of a site the first that has it."""
    wanted = sorted(set(dids))
    paths: dict[Site, dict[Did, str]] = {}
    for area in areas:
        here = paths.setdefault(Site(area.site), {})
        for did in wanted:
            path = path_at(area, did)
            if path is not None:
                here.setdefault(did, path)
    return {site: dict(sorted(here.items())) for site, here in sorted(paths.items())}


def job_datasets(
    pairs: Sequence[tuple[str, Did]], names: Mapping[Did, Did] | None = None
) -> tuple[JobDataset, ...]:
    """Number *pairs* of name and DID as the variables ``INPUT_1``, …; *names* has opaque names by DID."""
    made = []
    for number, (name, did) in enumerate(pairs, 1):
        called = (names or {}).get(did, did)
        made.append(JobDataset(called, name, f"INPUT_{number}", None if called == did else did))
    return tuple(made)


def called(paths: Paths, names: Mapping[Did, Did]) -> Paths:
    """The same *paths* for datasets under other *names*."""
    return {site: {names.get(did, did): path for did, path in here.items()} for site, here in paths.items()}


def paths_file(
    datasets: Sequence[JobDataset],
    paths: Paths,
    stage_in: str | None,
    site_attributes: Sequence[str] | None = None,
) -> str:
    """The text of hydrator-paths.json.

    Args:
        datasets: in the order of the job's own list.
        paths: by site, where they are.
        stage_in: a command that fetches ``{did}`` to ``{path}``, or None.
        site_attributes: where a slot says its site, after DataLocalitySite; None: as the wrapper knows it.
    """
    body: dict[str, object] = {
        "version": VERSION,
        "datasets": [
            {"did": d.did, "name": d.name, "variable": d.variable} | ({"plain": d.plain} if d.plain else {})
            for d in datasets
        ],
        "sites": {site: dict(here) for site, here in paths.items()},
        "stage_in": stage_in,
    }
    if site_attributes is not None:
        body["site_keys"] = list(site_attributes)
    return json.dumps(body, indent=1) + "\n"
