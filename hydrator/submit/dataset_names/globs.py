"""Globs: find the measurement sets that the globs in input_ms match, on this host or in catalogues."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hydrator.config import Settings
from hydrator.domain.ports import Catalogue
from hydrator.submit.rapthor.parset import is_glob, matches_base_name

from .lookup import base_name, is_url, strip_tar
from .search import find_dids, name_part, scope_prefixes


@dataclass(frozen=True, slots=True)
class Expansion:
    """The ``names`` of the measurement sets that globs match.

    ``catalogue_counts`` has the globs that match nothing on this host, each with its number of matches in the
    catalogues. ``unreachable_catalogues`` has the reason for each catalogue that did not answer.
    """

    names: tuple[str, ...]
    catalogue_counts: Mapping[str, int] = field(default_factory=dict)
    unreachable_catalogues: Mapping[str, str] = field(default_factory=dict)


def expand_globs(
    globs: Sequence[str],
    find_local: Callable[[str], Collection[str]],
    settings: Settings,
    catalogues: Sequence[Catalogue],
    *,
    is_daemon: bool = False,
) -> Expansion:
    """Return the measurement sets that *globs* (input_ms) match, sorted as Rapthor sorts them.

    If a glob matches names on this host (*find_local*), the result has these names, as in Rapthor; if there
    are none, the archives of such names on this host. For any other glob the function searches the
    catalogues, because the submit host seldom has the data. It puts the folder of the glob before each name
    from a catalogue. A name without wildcards stays unchanged. *is_daemon*: see :func:`scope_prefixes`.
    """
    names: list[str] = []
    remote: list[str] = []
    for search in globs:
        local_names = find_local(search) or _find_local_archives(search, find_local)
        if local_names or not is_glob(search) or is_url(search):
            names += local_names or [search]
        else:
            remote.append(search)
    prefixes = scope_prefixes(settings.daemon.default_scope, is_daemon=is_daemon)
    matches, failures = _match_in_catalogues(remote, settings, prefixes, catalogues)
    for matched in matches.values():
        names += matched
    return Expansion(tuple(sorted(names)), {search: len(matches[search]) for search in remote}, failures)


def _find_local_archives(search: str, find_local: Callable[[str], Collection[str]]) -> list[str]:
    """Return the archives on this host that hold measurement sets which *search* matches."""
    path = search.rstrip("/")
    found = [*find_local(f"{path}.tar"), *find_local(f"{path}_*.tar")]
    return sorted(name for name in found if matches_base_name(strip_tar(name), path))


def _match_in_catalogues(
    globs: Sequence[str], settings: Settings, prefixes: Sequence[str], catalogues: Sequence[Catalogue]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the matching names by glob, and the reason for each catalogue that did not answer.

    The function searches for each glob in the scopes of *prefixes*, one prefix after another.
    """
    matches: dict[str, list[str]] = {search: [] for search in globs}
    failures: dict[str, str] = {}
    for prefix in prefixes:
        if not (unmatched := [search for search in globs if not matches[search]]):
            break
        dids, new_failures = find_dids(catalogues, _suffix_patterns(unmatched, prefix))
        failures |= new_failures
        names = {name_part(did) for did in dids}
        matches |= {search: _match_glob(search, names, settings) for search in unmatched}
    return matches, failures


def _suffix_patterns(globs: Iterable[str], scope_prefix: str) -> list[str]:
    """Return search patterns for all DIDs whose last part matches one of *globs*."""
    bases = sorted({base_name(search) for search in globs})
    heads = ("*:", "*/") if scope_prefix == "*" else (scope_prefix,)
    return [f"{head}{base}{tail}" for base in bases for tail in ("", ".tar", "_*.tar", "/") for head in heads]


def _match_glob(search_glob: str, known_names: Iterable[str], settings: Settings) -> list[str]:
    """Return the names in *known_names* and [submit].names that match, each with the folder of the glob."""
    bases = {strip_tar(base_name(name)) for name in known_names if _matches_ignoring_tar(name, search_glob)}
    bases |= {base_name(name) for name in settings.submit.names if matches_base_name(name, search_glob)}
    folder = search_glob.rstrip("/").rpartition("/")[0]
    return [f"{folder}/{base}" if folder else base for base in sorted(bases)]


def _matches_ignoring_tar(name: str, search_glob: str) -> bool:
    return matches_base_name(name, search_glob) or matches_base_name(strip_tar(name.rstrip("/")), search_glob)
