"""Look-up of a name in the entries and patterns of [submit]. Toil's batch system uses it too.

Toil's leader imports this module without any library of ours, so the module needs only the standard library.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TypeVar
from urllib.parse import unquote

_CHECKSUM = re.compile(r"(?:(?<=\.ms)|(?<=\.dppp))_[0-9a-f]{8}$", re.IGNORECASE)
"""The LOFAR archive adds a checksum to the name of a measurement set, ``L1.MS`` or ``L1.MS.dppp``."""
_BETWEEN_PATHS = re.compile(r"""[\s,;|=\[\](){}'"\\]+""")
_Did = TypeVar("_Did", bound=str)
CompiledPattern = tuple[re.Pattern[str], str]
"""The regular expression of a name, and the template of its DID."""


def compile_pattern(match: str, template: str) -> CompiledPattern:
    """Compile one of [submit].patterns.

    Raises:
        ValueError: *match* is not a regular expression, or *template* refers to a group that it lacks.
    """
    try:
        compiled = re.compile(match)
    except re.error as error:
        raise ValueError(f"match: not a regular expression: {error}") from None
    try:
        re.compile(f"(?:{match})|").match("").expand(template)  # type: ignore[union-attr]
    except (re.error, IndexError) as error:
        raise ValueError(f"did: {error}; write a group as \\1 or \\g<name>") from None
    return compiled, template


def look_up_configured(
    name: str, table: Mapping[str, str], patterns: Sequence[CompiledPattern]
) -> str | None:
    """Return the DID of *name*, or of a path, by an entry of *table*, else by the first pattern that matches.

    The keys of *table* have no slash at their end.
    """
    path, base = name.rstrip("/"), base_name(name)
    for text in (path, base, strip_tar(base)):
        if text in table:
            return table[text]
    for pattern, template in patterns:
        for text in (base, path, strip_tar(base)):
            if match := pattern.fullmatch(text):
                return match.expand(template)
    return None


def base_name(name: str) -> str:
    """Return the last part of a path, of a dataset's name or of a URL, without a trailing slash.

    The LOFAR archive's web server puts the path of a file, with ``%2F``, into the name of the download; an
    SRM server takes it after ``SFN=``.

    >>> base_name("SRMFifoGet.py?surl=srm:%2F%2Fserver%2Flofar%2FL1_SB000_uv.MS_7d4aa18f.tar")
    'L1_SB000_uv.MS_7d4aa18f.tar'
    """
    if is_url(name):
        path = re.search(r"[?&](?:surl|SFN)=([^&]*)", name)
        name = unquote(path[1] if path else name.partition("?")[0])
    return name.rstrip("/").rpartition("/")[2]


def split_paths(text: str) -> list[str]:
    """Return the paths in *text*; a part with a colon counts as one path, and as several.

    >>> split_paths("msin=[/data/L1.ms,x:L2.ms]")
    ['msin', '/data/L1.ms', 'x:L2.ms', 'x', 'L2.ms']
    """
    parts = _BETWEEN_PATHS.split(text)
    return list(dict.fromkeys(path for part in parts for path in (part, *part.split(":")) if path))


def is_url(name: str) -> bool:
    """Return whether *name* is a URL, or a file that was named after the query of its URL."""
    return "://" in name or "?surl=" in name


def strip_tar(base: str) -> str:
    """Return the name of the measurement set in an archive: *base* without ``.tar`` and a checksum.

    >>> strip_tar("L775619_SB055_uv.MS_76a2361e.tar")
    'L775619_SB055_uv.MS'
    """
    return _CHECKSUM.sub("", base.removesuffix(".tar"))


def fitting_dids(path: str, dids: Iterable[_Did]) -> list[_Did]:
    """Return those of *dids*, which have the last part of *path* apart from ``.tar``, that fit *path* best.

    These have the most of its folders, from the end, and among these exactly its last part: ``.ms`` and
    ``.ms.tar`` differ. A scope counts as a folder. No other version fits.

    >>> fitting_dids("/data/obs1/L6.MS", ["x:obs1/L6.MS.tar", "x:obs2/L6.MS"])
    ['x:obs1/L6.MS.tar']
    """
    base = base_name(path)
    fit = {}
    for did in dids:
        own = base_name(did.partition(":")[2])
        if not is_other_version(own, base):
            fit[did] = (_count_shared_folders(path, did.replace(":", "/", 1)), own == base)
    return [did for did, rank in fit.items() if rank == max(fit.values())]


def _count_shared_folders(*paths: str) -> int:
    pairs = zip(*(path.rstrip("/").split("/")[-2::-1] for path in paths), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def is_other_version(first: str, second: str) -> bool:
    """Return whether two names are of archives with different checksums, which are two versions.

    >>> is_other_version("L1.MS_76a2361e.tar", "L1.MS_0011aaff.tar")
    True
    """
    checksums = [_CHECKSUM.search(name.removesuffix(".tar")) for name in (first, second)]
    return len({found[0].lower() for found in checksums if found}) > 1
