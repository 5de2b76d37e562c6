"""From the names of measurement sets, as people's files have them, to DIDs that exist.

Looked at in this order: the table [submit].names, the patterns
[submit].patterns, a name that is itself ``scope:name``, the names that the
catalogues hold (same last part, ``.tar`` and a trailing ``/`` aside), first those in
default_scope, and last the name in default_scope.
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
"""Patterns in one question to the catalogues: many names are looked for by what they begin with."""
_MAX_SHOWN = 5

_GROUP_REFERENCE = re.compile(r"\\(?:\d+|g<\w+>)")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resolution:
    """What became of *names*, in their order.

    ``dids`` has None where there is no answer; ``unknown`` and ``ambiguous``
    say of which names and why, ``unreachable`` which catalogues did not
    answer, by name; ``unchecked`` are DIDs that no catalogue could confirm
    because of that. ``answers`` is what the catalogues said of the DIDs.
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
        """Names with their DIDs, without those that have none."""
        return tuple((name, did) for name, did in zip(self.names, self.dids, strict=True) if did)

    @property
    def names_by_shared_did(self) -> dict[Did, tuple[str, ...]]:
        """DIDs that several names stand for."""
        names: dict[Did, list[str]] = {}
        for name, did in self.pairs:
            names.setdefault(did, []).append(name)
        return {did: tuple(found) for did, found in names.items() if len(set(found)) > 1}

    @property
    def problems(self) -> list[str]:
        """One sentence for each name without an answer."""
        found = []
        for name in self.names:
            if name in self.ambiguous_names:
                listed = _join_dids(self.ambiguous_names[name])
                found.append(f"{name}: could be {listed}; add it to [submit].names, or set default_scope")
            elif name in self.unknown_names:
                found.append(f"{name}: {self.unknown_names[name]}")
        return list(dict.fromkeys(found))

    @property
    def unreachable_notices(self) -> list[str]:
        """One sentence for each catalogue that did not answer."""
        return [
            f"catalogue {name} did not answer: {why}" for name, why in self.unreachable_catalogues.items()
        ]


@dataclass(frozen=True, slots=True)
class Expansion:
    """The names that globs stand for; ``empty`` matched nothing, ``catalogued`` only in the catalogues."""

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
    """The measurement sets that *searches* (input_ms) stand for, sorted as Rapthor sorts them.

    A glob that matches here (*local*) stands for what it matches, as in
    Rapthor. One that matches nothing here stands for the datasets that the
    catalogues hold under such names, in the folder that it names: Rapthor
    would refuse it, but the host that submits seldom has the data. A name
    without wildcards stands for itself.
    """
    names: list[str] = []
    far: list[str] = []
    for search in globs:
        here = find_local(search)
        if here or not is_glob(search):
            names += here or [search]
        else:
            far.append(search)
    if not far:
        return Expansion(tuple(sorted(names)))
    scope = settings.daemon.default_scope
    unreachable: dict[str, str] = {}
    counts: dict[str, int] = {}
    for within in (f"{scope}:", "*") if scope else ("*",):
        left = [search for search in far if not counts.get(search)]
        if not left:
            break
        questions = _suffix_patterns(left, within)
        held, away = _query_all(catalogues, lambda c, asked=questions: c.find(asked))  # type: ignore[misc]
        unreachable |= away
        known = {_name_part(did) for dids in held.values() for did in dids}
        for search in left:
            matched = _match_glob(search, known, settings)
            names += matched
            counts[search] = len(matched)
    if left := [search for search in far if not counts[search]]:
        by_pattern, away = _find_by_patterns(left, settings, catalogues)
        unreachable |= away
        for search, matched in by_pattern.items():
            names += matched
            counts[search] = len(matched)
    return Expansion(
        tuple(sorted(names)),
        tuple(search for search in far if not counts[search]),
        {search: count for search, count in counts.items() if count},
        unreachable,
    )


def _find_by_patterns(
    globs: Sequence[str], settings: Settings, catalogues: Sequence[Catalogue]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return what globs stand for where [submit].patterns make DIDs of names, and who did not answer.

    A pattern leads from a name to a DID, not back. So the names tried are a dataset's own, with and without
    what the glob has before its first wildcard and behind its last: for ``lofar:L1_SB001`` and ``*.ms`` that
    is ``L1_SB001.ms``. One that fits the glob, and of which a pattern makes just that DID, stands for it.
    """
    patterns = _compile_patterns(settings.submit.patterns)
    scope = settings.daemon.default_scope
    templates = sorted({_GROUP_REFERENCE.sub("*", pattern.did) for pattern in settings.submit.patterns})
    questions = [text if ":" in text else f"{scope or '*'}:{text}" for text in templates]
    if not questions:
        return {}, {}
    held, away = _query_all(catalogues, lambda catalogue: catalogue.find(questions))
    dids = sorted({did for found in held.values() for did in found})
    found: dict[str, list[str]] = {}
    for search in globs:
        folder, _, shape = search.rstrip("/").rpartition("/")
        head, tail = re.split(r"[*?\[]", shape)[0], re.split(r"[*?\]]", shape)[-1]
        bases = {
            name: did
            for did in dids
            for begin in ("", head)
            for end in ("", tail)
            if matches_base_name(name := f"{begin}{base_name(_name_part(did))}{end}", shape)
        }
        matched = [base for base, did in bases.items() if _apply_patterns(base, patterns, scope) == did]
        found[search] = [f"{folder}/{base}" if folder else base for base in sorted(matched)]
    return found, away


def _apply_patterns(
    name: str, patterns: Sequence[tuple[re.Pattern[str], str]], scope: str | None
) -> Did | None:
    """Return the DID that the patterns make of *name*; None where they make none."""
    try:
        return parse_did(_look_up_configured(name, {}, patterns) or "", scope)
    except BadDid:
        return None


def _match_glob(search_glob: str, known_names: Iterable[str], settings: Settings) -> list[str]:
    """What a glob stands for among the *known* names and those of the table, in the folder that it names."""
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
    """Find the DID of each of *names*, and ask the catalogues about all of them at once.

    A DID that no catalogue holds anywhere is unknown, where all answered;
    where one did not, it is unchecked. *witnesses* are asked where datasets
    are, but not which there are: a daemon knows only what jobs asked it for.

    Raises:
        ConfigError: the table or a pattern of the configuration makes what is no DID, or is no pattern.
    """
    scope = settings.daemon.default_scope
    chosen = apply_configuration(names, settings)
    chosen |= {name: did for name in names if name not in chosen and (did := _parse_explicit_did(name))}
    found, ambiguous, unreachable = _find_in_catalogues(
        [name for name in dict.fromkeys(names) if name not in chosen], scope, catalogues
    )
    chosen |= found
    unknown: dict[str, str] = {}
    for name in names:
        if name not in chosen and name not in ambiguous:
            try:
                chosen[name] = parse_did(base_name(name), scope)
            except BadDid:
                why = "no catalogue has a dataset of that name"
                away = f"; {' and '.join(sorted(unreachable))} could not be asked" if unreachable else ""
                unknown[name] = f"{why}{away}; add it to [submit].names or a pattern to [submit].patterns"
    answers = read_all([*catalogues, *daemon_catalogues], frozenset(chosen.values()))
    # a daemon knows only what jobs asked for: beside catalogues its silence on a name says nothing
    judges = {catalogue.name for catalogue in catalogues or daemon_catalogues}
    judging = {name: answer for name, answer in answers.items() if name in judges}
    unreachable |= {name: a.reason for name, a in judging.items() if isinstance(a, Unseen)}
    readings, judged = _group_readings(answers), _group_readings(judging)
    unchecked = set()
    lost: dict[str, Did] = {}
    for name, did in list(chosen.items()):
        if _is_in_catalogues(did, readings):
            continue
        if any(isinstance(reading, Unseen) for reading in judged.get(did, [Unseen("")])):
            unchecked.add(did)
        else:
            lost[name] = did
    near = _find_similar(list(lost.values())[:MAX_SEARCHED], catalogues)
    for name, did in lost.items():
        alike = f"; did you mean {' or '.join(near[did])}?" if near.get(did) else ""
        advice = "another name goes into [submit].names or [submit].patterns"
        unknown[name] = f"{did} is in no catalogue{alike or f'; {advice}'}"
    return Resolution(
        names=tuple(names),
        dids=tuple(chosen.get(name) for name in names),
        unknown_names=unknown,
        ambiguous_names=ambiguous,
        unreachable_catalogues=dict(sorted(unreachable.items())),
        unchecked_dids=frozenset(unchecked),
        sizes=_largest_sizes(chosen.values(), readings),
        answers=answers,
    )


# --- by the configuration -----------------------------------------------------------------------------


def apply_configuration(names: Sequence[str], settings: Settings) -> dict[str, Did]:
    """The DIDs that the table and the patterns make of *names*, of those for which they make one.

    Raises:
        ConfigError: one of them makes what is no DID, or a pattern is no regular expression.
    """
    patterns = _compile_patterns(settings.submit.patterns)
    table = {name.rstrip("/"): text for name, text in settings.submit.names.items()}
    chosen: dict[str, Did] = {}
    problems: list[str] = []
    for name in dict.fromkeys(names):
        try:
            if made := _look_up_configured(name, table, patterns):
                chosen[name] = parse_did(made, settings.daemon.default_scope)
        except BadDid as bad:
            problems.append(f"[submit] makes of {name}: {bad}")
    if problems:
        raise ConfigError(problems)
    return chosen


def _look_up_configured(
    name: str, table: Mapping[str, str], patterns: Sequence[tuple[re.Pattern[str], str]]
) -> str | None:
    whole, base = name.rstrip("/"), base_name(name)
    for key in (whole, base, _strip_tar(base)):
        if key in table:
            return table[key]
    for pattern, template in patterns:
        if match := pattern.fullmatch(base) or pattern.fullmatch(whole):
            return match.expand(template)
    return None


def _compile_patterns(patterns: Iterable[NamePattern]) -> list[tuple[re.Pattern[str], str]]:
    found, problems = [], []
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
        found.append((compiled, pattern.did))
    if problems:
        raise ConfigError(problems)
    return found


# --- by the catalogues --------------------------------------------------------------------------------


def _find_in_catalogues(
    names: Sequence[str], scope: str | None, catalogues: Sequence[Catalogue]
) -> tuple[dict[str, Did], dict[str, tuple[Did, ...]], dict[str, str]]:
    """What the catalogues hold under *names*, first in the default scope; what is ambiguous; who is away."""
    chosen: dict[str, Did] = {}
    ambiguous: dict[str, tuple[Did, ...]] = {}
    unreachable: dict[str, str] = {}
    left = list(names)
    for within in (f"{scope}:", "*") if scope else ("*",):
        if not left:
            break
        questions = _prefix_patterns([_strip_tar(base_name(name)) for name in left], within)
        held, away = _query_all(catalogues, lambda c, asked=questions: c.find(asked))  # type: ignore[misc]
        unreachable |= away
        by_base: dict[str, set[Did]] = {}
        for did in (did for dids in held.values() for did in dids):
            by_base.setdefault(_strip_tar(base_name(_name_part(did))), set()).add(did)
        for name in left:
            candidates = _prefer_exact_names(name, by_base.get(_strip_tar(base_name(name)), set()))
            if len(candidates) == 1:
                chosen[name] = candidates[0]
            elif candidates:
                ambiguous[name] = candidates
        left = [name for name in left if name not in chosen and name not in ambiguous]
    return chosen, ambiguous, unreachable


def _prefer_exact_names(name: str, candidates: Collection[Did]) -> tuple[Did, ...]:
    """Those spelled as *name* is, where there are any: ``.ms`` and ``.ms.tar`` are not the same thing."""
    exact = [did for did in candidates if base_name(_name_part(did)) == base_name(name)]
    return tuple(sorted(exact or candidates))


def _prefix_patterns(bases: Sequence[str], scope_prefix: str) -> list[str]:
    """Few patterns that match every DID of *within* whose name ends in one of *bases*, ``.tar`` or not."""
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
    """Patterns for every DID of *within* whose name ends in what one of *searches* matches."""
    bases = sorted({base_name(search) for search in globs})
    heads = ("*:", "*/") if scope_prefix == "*" else (scope_prefix,)
    return [f"{head}{base}{tail}" for base in bases for tail in ("", ".tar", "/") for head in heads]


def _query_all(
    catalogues: Sequence[Catalogue], query: Callable[[Catalogue], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """The answers, side by side, and why some did not answer."""

    def one(catalogue: Catalogue) -> tuple[str, T | CatalogueError]:
        try:
            return catalogue.name, query(catalogue)
        except CatalogueError as error:
            return catalogue.name, error

    answers: dict[str, T] = {}
    away: dict[str, str] = {}
    if catalogues:
        with ThreadPoolExecutor(len(catalogues)) as pool:
            for name, answer in pool.map(one, catalogues):
                if isinstance(answer, CatalogueError):
                    away[name] = answer.reason
                else:
                    answers[name] = answer
    return answers, away


def _find_similar(dids: Sequence[Did], catalogues: Sequence[Catalogue]) -> dict[Did, tuple[Did, ...]]:
    """What the catalogues hold under names that look like those of *dids*."""
    if not dids:
        return {}
    held, _ = _query_all(catalogues, lambda catalogue: catalogue.find(similar_name_patterns(dids)))
    known = frozenset(did for found in held.values() for did in found)
    return {did: similar_names(did, known) for did in dids}


def _group_readings(answers: Mapping[str, Survey | Unseen]) -> dict[Did, list[Seen | Unseen]]:
    readings: dict[Did, list[Seen | Unseen]] = {}
    failed = [answer for answer in answers.values() if isinstance(answer, Unseen)]
    for answer in answers.values():
        if isinstance(answer, Survey):
            for did, reading in answer.readings.items():
                readings.setdefault(did, [*failed]).append(reading)
    return readings


def _is_in_catalogues(did: Did, readings: Mapping[Did, Sequence[Seen | Unseen]]) -> bool:
    """Does some catalogue hold *did* somewhere, or at least know its size?"""
    return any(
        isinstance(reading, Seen) and (reading.replicas or reading.bytes_total is not None)
        for reading in readings.get(did, ())
    )


def _largest_sizes(dids: Iterable[Did], readings: Mapping[Did, Sequence[Seen | Unseen]]) -> dict[Did, int]:
    sizes = {}
    for did in sorted(set(dids)):
        told = [
            r.bytes_total for r in readings.get(did, ()) if isinstance(r, Seen) and r.bytes_total is not None
        ]
        if told:
            sizes[did] = max(told)
    return sizes


# --- names --------------------------------------------------------------------------------------------


def _parse_explicit_did(name: str) -> Did | None:
    """*name* where it is a DID already: ``scope:name``, and not a path with a colon somewhere."""
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
