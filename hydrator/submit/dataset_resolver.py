"""Dataset resolver: find the DIDs of measurement sets by the names in users' files.

A name is looked up in this order:

1. the table [submit].names;
2. the patterns [submit].patterns;
3. a name that is itself ``scope:name``;
4. the names in the catalogues with the same last part (``.tar`` and a trailing ``/`` do not count),
   first those in default_scope;
5. the name itself in default_scope.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from hydrator.config import NamePattern, Settings
from hydrator.domain.errors import BadDid, CatalogueError, ConfigError
from hydrator.domain.model import Did, Seen, Survey, Unseen, parse_did
from hydrator.domain.ports import Catalogue
from hydrator.domain.text import shorten_list
from hydrator.reconcile.reconciler import read_all
from hydrator.submit.rapthor.parset import base_name, is_glob, matches_base_name

from .nearest_names import MAX_SEARCHED, similar_name_patterns, similar_names

_MAX_PATTERNS = 8
"""Patterns in one query to the catalogues: many names are searched by their common beginnings."""
_MAX_SHOWN = 5

_GROUP_REFERENCE = re.compile(r"\\(?:\d+|g<\w+>)")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resolution:
    """The DIDs of ``names``, in their order, and the problems with them.

    ``dids`` has None for a name without a DID: see ``unknown_names`` and ``ambiguous_names``.
    ``unreachable_catalogues`` has the reason by catalogue that did not answer, ``unchecked_dids`` the DIDs
    that no catalogue confirmed because of that. ``answers`` has the surveys of the DIDs by catalogue.
    """

    names: tuple[str, ...]
    dids: tuple[Did | None, ...]
    unknown_names: Mapping[str, str] = field(default_factory=dict)
    ambiguous_names: Mapping[str, tuple[Did, ...]] = field(default_factory=dict)
    unreachable_catalogues: Mapping[str, str] = field(default_factory=dict)
    unchecked_dids: frozenset[Did] = frozenset()
    sizes: Mapping[Did, int] = field(default_factory=dict)
    answers: Mapping[str, Survey | Unseen] = field(default_factory=dict)

    @property
    def pairs(self) -> tuple[tuple[str, Did], ...]:
        """The names that have a DID, each with it."""
        return tuple((name, did) for name, did in zip(self.names, self.dids, strict=True) if did)

    @property
    def names_by_shared_did(self) -> dict[Did, tuple[str, ...]]:
        """The DIDs that several names have, each with these names."""
        names: dict[Did, list[str]] = {}
        for name, did in self.pairs:
            names.setdefault(did, []).append(name)
        return {did: tuple(shared) for did, shared in names.items() if len(set(shared)) > 1}

    @property
    def problems(self) -> list[str]:
        """One sentence for each name without a DID."""
        sentences = []
        for name in self.names:
            if name in self.ambiguous_names:
                listed = _join_dids(self.ambiguous_names[name])
                sentences.append(f"{name}: could be {listed}; add it to [submit].names, or set default_scope")
            elif name in self.unknown_names:
                sentences.append(f"{name}: {self.unknown_names[name]}")
        return list(dict.fromkeys(sentences))

    @property
    def unreachable_notices(self) -> list[str]:
        """One sentence for each catalogue that did not answer."""
        return [
            f"catalogue {name} did not answer: {why}" for name, why in self.unreachable_catalogues.items()
        ]


@dataclass(frozen=True, slots=True)
class Expansion:
    """The names that globs match; ``catalogue_counts`` has the globs that match in the catalogues only."""

    names: tuple[str, ...]
    unmatched_globs: tuple[str, ...] = ()
    catalogue_counts: Mapping[str, int] = field(default_factory=dict)
    unreachable_catalogues: Mapping[str, str] = field(default_factory=dict)


def expand_globs(
    globs: Sequence[str],
    find_local: Callable[[str], Collection[str]],
    settings: Settings,
    catalogues: Sequence[Catalogue],
) -> Expansion:
    """Return the measurement sets that *globs* (input_ms) match, sorted as Rapthor sorts them.

    A glob that matches on this host (*find_local*) gives those names, as in Rapthor. Any other glob gives
    the datasets that the catalogues have under such names, in the folder of the glob: Rapthor would refuse
    it, but the submit host seldom has the data. A name without wildcards gives itself.
    """
    names: list[str] = []
    remote: list[str] = []
    for search in globs:
        local_names = find_local(search)
        if local_names or not is_glob(search):
            names += local_names or [search]
        else:
            remote.append(search)
    if not remote:
        return Expansion(tuple(sorted(names)))
    matches, failures = _match_in_catalogues(remote, settings, catalogues)
    for matched in matches.values():
        names += matched
    return Expansion(
        tuple(sorted(names)),
        tuple(search for search in remote if not matches.get(search)),
        {search: len(matches[search]) for search in remote if matches.get(search)},
        failures,
    )


def _match_in_catalogues(
    globs: Sequence[str], settings: Settings, catalogues: Sequence[Catalogue]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return by glob the names in the default scope, else in any scope, else by [submit].patterns.

    The second value has the reason by catalogue that did not answer.
    """
    scope = settings.daemon.default_scope
    matches: dict[str, list[str]] = {}
    failures: dict[str, str] = {}
    for scope_prefix in (f"{scope}:", "*") if scope else ("*",):
        if not (unmatched := [search for search in globs if not matches.get(search)]):
            break
        dids, new_failures = _find_dids(catalogues, _suffix_patterns(unmatched, scope_prefix))
        failures |= new_failures
        names = {_name_part(did) for did in dids}
        matches |= {search: _match_glob(search, names, settings) for search in unmatched}
    if unmatched := [search for search in globs if not matches[search]]:
        by_pattern, new_failures = _find_by_patterns(unmatched, settings, catalogues)
        failures |= new_failures
        matches |= by_pattern
    return matches, failures


def _find_by_patterns(
    globs: Sequence[str], settings: Settings, catalogues: Sequence[Catalogue]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return by glob the names that [submit].patterns turn into existing DIDs; and catalogue failures.

    A pattern leads from a name to a DID, not back. So candidates are made of each DID's own name, with and
    without the glob's text before its first wildcard and after its last: ``lofar:L1_SB001`` and ``*.ms``
    give ``L1_SB001.ms``. A candidate counts if it matches the glob and a pattern turns it into that DID.
    """
    patterns = _compile_patterns(settings.submit.patterns)
    scope = settings.daemon.default_scope
    templates = sorted({_GROUP_REFERENCE.sub("*", pattern.did) for pattern in settings.submit.patterns})
    queries = [text if ":" in text else f"{scope or '*'}:{text}" for text in templates]
    if not queries:
        return {}, {}
    dids, failures = _find_dids(catalogues, queries)
    matches: dict[str, list[str]] = {}
    for search in globs:
        folder, _, shape = search.rstrip("/").rpartition("/")
        head, tail = re.split(r"[*?\[]", shape)[0], re.split(r"[*?\]]", shape)[-1]
        bases = {
            name: did
            for did in sorted(dids)
            for begin in ("", head)
            for end in ("", tail)
            if matches_base_name(name := f"{begin}{base_name(_name_part(did))}{end}", shape)
        }
        matched = [base for base, did in bases.items() if _apply_patterns(base, patterns, scope) == did]
        matches[search] = [f"{folder}/{base}" if folder else base for base in sorted(matched)]
    return matches, failures


def _apply_patterns(
    name: str, patterns: Sequence[tuple[re.Pattern[str], str]], scope: str | None
) -> Did | None:
    """Return the DID that the patterns give for *name*; None if they give none."""
    try:
        return parse_did(_look_up_configured(name, {}, patterns) or "", scope)
    except BadDid:
        return None


def _match_glob(search_glob: str, known_names: Iterable[str], settings: Settings) -> list[str]:
    """Return the *known_names* and names of [submit].names that match the glob, in the folder of the glob."""
    bases = {_strip_tar(base_name(name)) for name in known_names if _matches_ignoring_tar(name, search_glob)}
    bases |= {base_name(name) for name in settings.submit.names if matches_base_name(name, search_glob)}
    folder = search_glob.rstrip("/").rpartition("/")[0]
    return [f"{folder}/{base}" if folder else base for base in sorted(bases)]


def resolve_names(
    names: Sequence[str],
    settings: Settings,
    catalogues: Sequence[Catalogue],
    daemon_catalogues: Sequence[Catalogue] = (),
) -> Resolution:
    """Find the DID of each of *names*, and query the catalogues for all of them at once.

    A DID that no catalogue has is unknown if all catalogues answered, else unchecked. The daemon
    (*daemon_catalogues*) is queried for places only: it has only the datasets that jobs name. Without
    catalogues it decides on names too.

    Raises:
        ConfigError: [submit].names or a pattern gives an invalid DID, or a pattern is not valid.
    """
    scope = settings.daemon.default_scope
    chosen = apply_configuration(names, settings)
    chosen |= {name: did for name in names if name not in chosen and (did := _parse_explicit_did(name))}
    in_catalogues, ambiguous, failures = _find_in_catalogues(
        [name for name in dict.fromkeys(names) if name not in chosen], scope, catalogues
    )
    chosen |= in_catalogues
    by_scope, unknown = _apply_default_scope(
        [name for name in names if name not in chosen and name not in ambiguous], scope, failures
    )
    chosen |= by_scope
    answers = read_all([*catalogues, *daemon_catalogues], frozenset(chosen.values()))
    deciding_names = {catalogue.name for catalogue in catalogues or daemon_catalogues}
    deciding = {name: answer for name, answer in answers.items() if name in deciding_names}
    failures |= {name: answer.reason for name, answer in deciding.items() if isinstance(answer, Unseen)}
    readings = _group_readings(answers)
    absent = {name: did for name, did in chosen.items() if not _is_in_catalogues(did, readings)}
    unchecked = _find_unanswered(absent.values(), _group_readings(deciding))
    unknown |= _absent_reasons(
        {name: did for name, did in absent.items() if did not in unchecked}, catalogues
    )
    return Resolution(
        names=tuple(names),
        dids=tuple(chosen.get(name) for name in names),
        unknown_names=unknown,
        ambiguous_names=ambiguous,
        unreachable_catalogues=dict(sorted(failures.items())),
        unchecked_dids=unchecked,
        sizes=_largest_sizes(chosen.values(), readings),
        answers=answers,
    )


def _apply_default_scope(
    names: Iterable[str], scope: str | None, failures: Collection[str]
) -> tuple[dict[str, Did], dict[str, str]]:
    """Return the DIDs of *names* in the default scope, and by name why it gives none."""
    dids: dict[str, Did] = {}
    reasons: dict[str, str] = {}
    failed = f"; {' and '.join(sorted(failures))} did not answer" if failures else ""
    for name in names:
        try:
            dids[name] = parse_did(base_name(name), scope)
        except BadDid:
            reasons[name] = (
                f"no catalogue has a dataset of that name{failed};"
                " add it to [submit].names or a pattern to [submit].patterns"
            )
    return dids, reasons


def _find_unanswered(dids: Iterable[Did], readings: Mapping[Did, Sequence[Seen | Unseen]]) -> frozenset[Did]:
    """Return those of *dids* about which a catalogue did not answer."""
    no_reading = [Unseen("")]
    return frozenset(
        did for did in dids if any(isinstance(reading, Unseen) for reading in readings.get(did, no_reading))
    )


def _absent_reasons(dids_by_name: Mapping[str, Did], catalogues: Sequence[Catalogue]) -> dict[str, str]:
    """Return by name one sentence on its DID, which no catalogue has, with similar names if there are any."""
    similar = _find_similar(list(dids_by_name.values())[:MAX_SEARCHED], catalogues)
    advice = "; another name goes into [submit].names or [submit].patterns"
    reasons = {}
    for name, did in dids_by_name.items():
        question = f"; did you mean {' or '.join(similar[did])}?" if similar.get(did) else ""
        reasons[name] = f"{did} is in no catalogue{question or advice}"
    return reasons


# --- by the configuration -----------------------------------------------------------------------------


def apply_configuration(names: Sequence[str], settings: Settings) -> dict[str, Did]:
    """Return the DIDs that [submit].names and [submit].patterns give for *names*; other names are left out.

    Raises:
        ConfigError: one of them gives an invalid DID, or a pattern is not a regular expression.
    """
    patterns = _compile_patterns(settings.submit.patterns)
    table = {name.rstrip("/"): text for name, text in settings.submit.names.items()}
    chosen: dict[str, Did] = {}
    problems: list[str] = []
    for name in dict.fromkeys(names):
        try:
            if text := _look_up_configured(name, table, patterns):
                chosen[name] = parse_did(text, settings.daemon.default_scope)
        except BadDid as bad:
            problems.append(f"[submit] gives an invalid DID for {name}: {bad}")
    if problems:
        raise ConfigError(problems)
    return chosen


def _look_up_configured(
    name: str, table: Mapping[str, str], patterns: Sequence[tuple[re.Pattern[str], str]]
) -> str | None:
    path, base = name.rstrip("/"), base_name(name)
    for key in (path, base, _strip_tar(base)):
        if key in table:
            return table[key]
    for pattern, template in patterns:
        if match := pattern.fullmatch(base) or pattern.fullmatch(path):
            return match.expand(template)
    return None


def _compile_patterns(patterns: Iterable[NamePattern]) -> list[tuple[re.Pattern[str], str]]:
    templates, problems = [], []
    for number, pattern in enumerate(patterns):
        try:
            compiled = re.compile(pattern.match)
        except re.error as error:
            problems.append(f"submit.patterns[{number}].match: not a regular expression: {error}")
            continue
        try:
            re.compile(f"(?:{pattern.match})|").match("").expand(pattern.did)  # type: ignore[union-attr]
        except (re.error, IndexError) as error:
            problems.append(f"submit.patterns[{number}].did: {error}; groups are \\1 or \\g<name>")
        templates.append((compiled, pattern.did))
    if problems:
        raise ConfigError(problems)
    return templates


# --- by the catalogues --------------------------------------------------------------------------------


def _find_in_catalogues(
    names: Sequence[str], scope: str | None, catalogues: Sequence[Catalogue]
) -> tuple[dict[str, Did], dict[str, tuple[Did, ...]], dict[str, str]]:
    """Search the catalogues for *names*, first in the default scope.

    Returns the DIDs by name, the candidates of ambiguous names, and the reason by failed catalogue.
    """
    chosen: dict[str, Did] = {}
    ambiguous: dict[str, tuple[Did, ...]] = {}
    failures: dict[str, str] = {}
    remaining = list(names)
    for scope_prefix in (f"{scope}:", "*") if scope else ("*",):
        if not remaining:
            break
        queries = _prefix_patterns([_strip_tar(base_name(name)) for name in remaining], scope_prefix)
        dids, new_failures = _find_dids(catalogues, queries)
        failures |= new_failures
        by_base: dict[str, set[Did]] = {}
        for did in dids:
            by_base.setdefault(_strip_tar(base_name(_name_part(did))), set()).add(did)
        for name in remaining:
            candidates = _prefer_exact_names(name, by_base.get(_strip_tar(base_name(name)), set()))
            if len(candidates) == 1:
                chosen[name] = candidates[0]
            elif candidates:
                ambiguous[name] = candidates
        remaining = [name for name in remaining if name not in chosen and name not in ambiguous]
    return chosen, ambiguous, failures


def _prefer_exact_names(name: str, candidates: Collection[Did]) -> tuple[Did, ...]:
    """Return the *candidates* with exactly this name, else all: ``.ms`` and ``.ms.tar`` differ."""
    exact = [did for did in candidates if base_name(_name_part(did)) == base_name(name)]
    return tuple(sorted(exact or candidates))


def _prefix_patterns(bases: Sequence[str], scope_prefix: str) -> list[str]:
    """Return a few patterns that match every DID whose name begins like one of *bases*."""
    length = max((len(base) for base in bases), default=0)
    starts = {base[:length] for base in bases}
    while len(starts) > _MAX_PATTERNS and length:
        length = length * 2 // 3
        starts = {base[:length] for base in bases}
    escaped = [re.sub(r"([*?[])", r"[\1]", start) for start in sorted(starts)]
    if scope_prefix == "*":
        return [pattern for start in escaped for pattern in (f"*:{start}*", f"*/{start}*")]
    return [f"{scope_prefix}{start}*" for start in escaped]


def _suffix_patterns(globs: Iterable[str], scope_prefix: str) -> list[str]:
    """Return patterns for every DID whose name ends in a text that one of *globs* matches."""
    bases = sorted({base_name(search) for search in globs})
    heads = ("*:", "*/") if scope_prefix == "*" else (scope_prefix,)
    return [f"{head}{base}{tail}" for base in bases for tail in ("", ".tar", "/") for head in heads]


def _query_all(
    catalogues: Sequence[Catalogue], query: Callable[[Catalogue], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """Query all *catalogues* at once; return the answers, and the reasons of those that failed."""

    def one(catalogue: Catalogue) -> tuple[str, T | CatalogueError]:
        try:
            return catalogue.name, query(catalogue)
        except CatalogueError as error:
            return catalogue.name, error

    answers: dict[str, T] = {}
    failures: dict[str, str] = {}
    if catalogues:
        with ThreadPoolExecutor(len(catalogues)) as pool:
            for name, answer in pool.map(one, catalogues):
                if isinstance(answer, CatalogueError):
                    failures[name] = answer.reason
                else:
                    answers[name] = answer
    return answers, failures


def _find_dids(catalogues: Sequence[Catalogue], patterns: Sequence[str]) -> tuple[set[Did], dict[str, str]]:
    """Return the DIDs that match *patterns* in any catalogue, and the reason by failed catalogue."""
    answers, failures = _query_all(catalogues, lambda catalogue: catalogue.find(patterns))
    return {did for dids in answers.values() for did in dids}, failures


def _find_similar(dids: Sequence[Did], catalogues: Sequence[Catalogue]) -> dict[Did, tuple[Did, ...]]:
    """Return by DID the names in the catalogues that are similar to it."""
    if not dids:
        return {}
    candidates, _ = _find_dids(catalogues, similar_name_patterns(dids))
    return {did: similar_names(did, candidates) for did in dids}


def _group_readings(answers: Mapping[str, Survey | Unseen]) -> dict[Did, list[Seen | Unseen]]:
    readings: dict[Did, list[Seen | Unseen]] = {}
    failed = [answer for answer in answers.values() if isinstance(answer, Unseen)]
    for answer in answers.values():
        if isinstance(answer, Survey):
            for did, reading in answer.readings.items():
                readings.setdefault(did, [*failed]).append(reading)
    return readings


def _is_in_catalogues(did: Did, readings: Mapping[Did, Sequence[Seen | Unseen]]) -> bool:
    """Return whether a catalogue has a replica of *did*, or at least its size."""
    return any(
        isinstance(reading, Seen) and (reading.replicas or reading.bytes_total is not None)
        for reading in readings.get(did, ())
    )


def _largest_sizes(dids: Iterable[Did], readings: Mapping[Did, Sequence[Seen | Unseen]]) -> dict[Did, int]:
    sizes = {}
    for did in sorted(set(dids)):
        values = [
            r.bytes_total for r in readings.get(did, ()) if isinstance(r, Seen) and r.bytes_total is not None
        ]
        if values:
            sizes[did] = max(values)
    return sizes


# --- names --------------------------------------------------------------------------------------------


def _parse_explicit_did(name: str) -> Did | None:
    """Return *name* as a DID if it is ``scope:name``; None for other names and for paths with a colon."""
    if "/" in name.partition(":")[0]:
        return None
    try:
        return parse_did(name.rstrip("/"))
    except BadDid:
        return None


def _name_part(did: Did) -> str:
    return did.partition(":")[2]


def _strip_tar(base: str) -> str:
    return base.removesuffix(".tar")


def _matches_ignoring_tar(name: str, search_glob: str) -> bool:
    return matches_base_name(name, search_glob) or matches_base_name(
        name.rstrip("/").removesuffix(".tar"), search_glob
    )


def _join_dids(dids: Sequence[Did]) -> str:
    return shorten_list(dids, limit=_MAX_SHOWN)
