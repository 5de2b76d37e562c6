"""Look-up of names: by [submit].names and [submit].patterns, and in the catalogues by their last part."""

import re
from collections.abc import Collection, Iterable, Sequence

from hydrator.config import Settings
from hydrator.domain.errors import BadDid, CatalogueError, ConfigError
from hydrator.domain.model import Did, parse_did
from hydrator.domain.ports import Catalogue
from hydrator.submit.nearest_names import similar_name_patterns, similar_names

from .lookup import (
    CompiledPattern,
    base_name,
    compile_pattern,
    is_other_version,
    look_up_configured,
    strip_tar,
)

_MAX_PATTERNS = 8
"""Maximum of name beginnings in one query; for more names the query has shorter, shared beginnings."""


def apply_configuration(names: Sequence[str], settings: Settings) -> dict[str, Did]:
    """Return, by name, the DIDs that [submit].names and [submit].patterns give for *names*.

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
            if text := look_up_configured(name, table, patterns):
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
        if not remaining:
            break
        queries = _prefix_patterns([strip_tar(base_name(name)) for name in remaining], prefix)
        dids, new_failures = find_dids(catalogues, queries)
        failures |= new_failures
        by_base: dict[str, set[Did]] = {}
        for did in dids:
            by_base.setdefault(strip_tar(base_name(name_part(did))), set()).add(did)
        for name in remaining:
            candidates = _prefer_exact_names(name, by_base.get(strip_tar(base_name(name)), set()))
            if len(candidates) == 1:
                chosen[name] = candidates[0]
            elif candidates:
                ambiguous[name] = candidates
    return chosen, ambiguous, failures


def _prefer_exact_names(name: str, candidates: Collection[Did]) -> tuple[Did, ...]:
    """Return the *candidates* with exactly the last part of *name*; if there are none, all of its version.

    In this comparison ``.ms`` and ``.ms.tar`` differ.
    """
    bases = {did: base_name(name_part(did)) for did in candidates}
    exact = [did for did, base in bases.items() if base == base_name(name)]
    near = [did for did, base in bases.items() if not is_other_version(base, base_name(name))]
    return tuple(sorted(exact or near))


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
    for catalogue in catalogues:
        try:
            dids.update(catalogue.find(patterns))
        except CatalogueError as error:
            failures[catalogue.name] = error.reason
    return dids, failures


def find_unlisted(dids: Collection[Did], catalogues: Sequence[Catalogue]) -> frozenset[Did]:
    """Return those of *dids* that no search finds; none if a search fails."""
    by_scope: dict[str, list[str]] = {}
    for did in dids:
        by_scope.setdefault(did.partition(":")[0], []).append(name_part(did))
    patterns = [
        pattern for scope, names in by_scope.items() for pattern in _prefix_patterns(names, f"{scope}:")
    ]
    found, failures = find_dids(catalogues, patterns) if patterns else (set(), {})
    return frozenset() if failures else frozenset(dids) - found


def find_similar(dids: Sequence[Did], catalogues: Sequence[Catalogue]) -> dict[Did, tuple[Did, ...]]:
    """Return for each of *dids* the existing DIDs in the catalogues with similar names."""
    if not dids:
        return {}
    candidates, _ = find_dids(catalogues, similar_name_patterns(dids))
    return {did: similar_names(did, candidates) for did in dids}


def name_part(did: Did) -> str:
    return did.partition(":")[2]
