"""Look-up of names: by [submit].names and [submit].patterns, and in the catalogues by their last part.

Globs find the measurement sets that they match, on this host or in the catalogues.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hydrator.config import Settings
from hydrator.domain.errors import BadDid, CatalogueError, ConfigError
from hydrator.domain.model import Did, parse_did
from hydrator.domain.ports import Catalogue
from hydrator.domain.text import group_pairs
from hydrator.submit.nearest_names import MAX_SEARCHED, similar_name_patterns, similar_names
from hydrator.submit.rapthor.parset import is_glob, matches_base_name

from .lookup import (
    CompiledPattern,
    base_name,
    compile_pattern,
    fitting_dids,
    is_url,
    look_up_configured,
    strip_tar,
)

_WIDE_GLOB = re.compile(r"(\[[^]]*\]|[*?]|\.\w*)*")
"""A glob that is only wildcards and extensions such as ``.MS`` or ``.ms.tar``."""
_MAX_PATTERNS = 8
"""Maximum of name beginnings in one query; for more names the query has shorter, shared beginnings."""


def apply_configuration(
    names: Sequence[str], settings: Settings, *, only_table: bool = False
) -> dict[str, Did]:
    """Return, by name, the DIDs that [submit].names and [submit].patterns give for *names*.

    With *only_table*, the patterns are checked but give no DIDs.

    Raises:
        ConfigError: an entry or a pattern gives an invalid DID, or a pattern is not a regular expression.
    """
    patterns: list[CompiledPattern] = []
    problems: list[str] = []
    for number, pattern in enumerate(settings.submit.patterns):
        try:
            patterns.append(compile_pattern(pattern.match, pattern.did))
        except ValueError as error:
            problems.append(f"submit.patterns[{number}].{error}")
    table = {name.rstrip("/"): text for name, text in settings.submit.names.items()}
    chosen: dict[str, Did] = {}
    for name in dict.fromkeys(names):
        try:
            if text := look_up_configured(name, table, () if only_table else patterns):
                chosen[name] = parse_did(text, settings.daemon.default_scope)
        except BadDid as bad:
            problems.append(f"[submit] gives an invalid DID for {name}: {bad}")
    if problems:
        raise ConfigError(problems)
    return chosen


def scope_prefixes(scope: str | None, *, is_daemon: bool = False) -> list[str]:
    """Return the beginnings of search patterns, in order: for the default *scope*, then for any scope.

    A daemon searches for all users, and Rucio lists every name for a pattern of any scope. So a daemon
    searches only in the default scope, if there is one.
    """
    if scope:
        return [f"{scope}:"] if is_daemon else [f"{scope}:", "*"]
    return ["*"]


def find_in_catalogues(
    names: Sequence[str], prefixes: Iterable[str], catalogues: Sequence[Catalogue]
) -> tuple[dict[str, Did], dict[str, tuple[Did, ...]], dict[str, str]]:
    """Search the catalogues for *names* in the scopes of *prefixes*, one prefix after another.

    Returns the DIDs by name, the candidates of ambiguous names, and the reason for each failed catalogue.
    """
    chosen: dict[str, Did] = {}
    ambiguous: dict[str, tuple[Did, ...]] = {}
    failures: dict[str, str] = {}
    for prefix in prefixes:
        remaining = [name for name in names if name not in chosen and name not in ambiguous]
        queries = _prefix_patterns([strip_tar(base_name(name)) for name in remaining], prefix)
        dids, new_failures = find_dids(catalogues, queries)
        failures |= new_failures
        by_base = group_pairs((strip_tar(base_name(did.partition(":")[2])), did) for did in dids)
        for name in remaining:
            candidates = sorted(fitting_dids(name, by_base.get(strip_tar(base_name(name)), ())))
            if len(candidates) == 1:
                chosen[name] = candidates[0]
            elif candidates:
                ambiguous[name] = tuple(candidates)
    return chosen, ambiguous, failures


def _prefix_patterns(bases: Sequence[str], scope_prefix: str) -> list[str]:
    """Return at most 16 search patterns that match every DID whose name begins with one of *bases*."""
    length = max((len(base) for base in bases), default=0)
    starts = {base[:length] for base in bases}
    while len(starts) > _MAX_PATTERNS and length:
        length = length * 2 // 3
        starts = {base[:length] for base in bases}
    escaped = [re.sub(r"([*?[])", r"[\1]", start) for start in sorted(starts)]
    if scope_prefix == "*":
        return [pattern for start in escaped for pattern in (f"*:{start}*", f"*/{start}*")]
    # in Rucio an archive is a file, and only a pattern with its ending finds files
    archives = [f"{scope_prefix}{start.removesuffix('.tar')}*.tar" for start in escaped]
    return [*archives, *(f"{scope_prefix}{start}*" for start in escaped)]


def find_dids(catalogues: Sequence[Catalogue], patterns: Sequence[str]) -> tuple[set[Did], dict[str, str]]:
    """Query all *catalogues*; return the matching DIDs, and the reason for each failed catalogue."""
    dids: set[Did] = set()
    failures = {}
    for catalogue in catalogues if patterns else ():
        try:
            dids.update(catalogue.find(patterns))
        except CatalogueError as error:
            failures[catalogue.name] = error.reason
    return dids, failures


def find_unlisted(
    dids: Collection[Did], prefixes: Sequence[str], catalogues: Sequence[Catalogue]
) -> dict[Did, tuple[Did, ...]]:
    """Return those of *dids* that no search finds, each with similar ones; none if a search fails.

    For *prefixes* see :func:`find_similar`.
    """
    by_scope = group_pairs(did.partition(":")[::2] for did in dids)
    patterns = [
        pattern for scope, names in by_scope.items() for pattern in _prefix_patterns(names, f"{scope}:")
    ]
    found, failures = find_dids(catalogues, patterns)
    return find_similar([] if failures else sorted(set(dids) - found), prefixes, catalogues)


def find_similar(
    dids: Sequence[Did], prefixes: Sequence[str], catalogues: Sequence[Catalogue]
) -> dict[Did, tuple[Did, ...]]:
    """Return for each of *dids* existing DIDs of similar names; of many, for the first only.

    If nothing is found in a scope, the function searches for the same name in the last of *prefixes*.
    """
    searched = dids[:MAX_SEARCHED]
    candidates, _ = find_dids(catalogues, similar_name_patterns(searched))
    scopes = {"*", *(did.partition(":")[0] for did in candidates)}
    scope = prefixes[-1].rstrip(":")
    names = [did.partition(":")[::2] for did in searched]
    elsewhere = [f"{scope}:{name}" for own, name in names if own not in scopes]
    candidates |= find_dids(catalogues, elsewhere)[0]
    return {did: similar_names(did, candidates) if did in searched else () for did in dids}


# --- globs


@dataclass(frozen=True, slots=True)
class Expansion:
    """The ``names`` of the measurement sets that globs match.

    ``catalogue_matches`` has the globs that match nothing on this host, each with its matches in the
    catalogues. ``unreachable_catalogues`` has the reason for each catalogue that did not answer.
    """

    names: tuple[str, ...]
    catalogue_matches: Mapping[str, Sequence[str]] = field(default_factory=dict)
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

    Raises:
        ConfigError: the last part of a glob for the catalogues is only wildcards and a file name extension,
            which would match all datasets.
    """
    names: list[str] = []
    remote: list[str] = []
    for search in globs:
        local_names = find_local(search) or _find_local_archives(search, find_local)
        if local_names or not is_glob(search) or is_url(search):
            names += local_names or [search]
        else:
            remote.append(search)
    if wide := [search for search in remote if _WIDE_GLOB.fullmatch(base_name(search))]:
        advice = "write the observation into the last part, as in L600003_*.MS: catalogues know no folders"
        raise ConfigError([f"{search} matches nothing on this host: {advice}" for search in wide])
    prefixes = scope_prefixes(settings.daemon.default_scope, is_daemon=is_daemon)
    matches, failures = _match_in_catalogues(remote, settings, prefixes, catalogues)
    for matched in matches.values():
        names += matched
    return Expansion(tuple(sorted(names)), matches, failures)


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
        unmatched = [search for search in globs if not matches[search]]
        dids, new_failures = find_dids(catalogues, _suffix_patterns(unmatched, prefix))
        failures |= new_failures
        names = {did.partition(":")[2] for did in dids}
        matches |= {search: _match_glob(search, names, settings) for search in unmatched}
    return matches, failures


def _suffix_patterns(globs: Iterable[str], scope_prefix: str) -> list[str]:
    """Return search patterns for all DIDs whose last part matches one of *globs*."""
    bases = sorted({base_name(search) for search in globs})
    heads = ("*:", "*/") if scope_prefix == "*" else (scope_prefix,)
    return [f"{head}{base}{tail}" for base in bases for tail in ("", ".tar", "_*.tar", "/") for head in heads]


def _match_glob(search_glob: str, known_names: Iterable[str], settings: Settings) -> list[str]:
    """Return the names in *known_names* and [submit].names that match, each with the folder of the glob.

    The name of an archive is that of its measurement set if this matches too.
    """
    bases = set()
    for base in map(base_name, known_names):
        matching = [each for each in (strip_tar(base), base) if matches_base_name(each, search_glob)]
        bases.update(matching[:1])
    bases |= {base_name(name) for name in settings.submit.names if matches_base_name(name, search_glob)}
    folder = search_glob.rstrip("/").rpartition("/")[0]
    return [f"{folder}/{base}" if folder else base for base in sorted(bases)]
