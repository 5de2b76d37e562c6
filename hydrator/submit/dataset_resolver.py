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
from hydrator.reconcile.reconciler import read_all

from .nearest_names import MOST_ASKED, nearest, patterns_near
from .rapthor_job import base_name, fits, is_glob

_MOST_QUESTIONS = 8
"""Patterns in one question to the catalogues: many names are looked for by what they begin with."""
_SHOWN = 5

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
    unknown: Mapping[str, str] = field(default_factory=dict)
    ambiguous: Mapping[str, tuple[Did, ...]] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    unchecked: frozenset[Did] = frozenset()
    sizes: Mapping[Did, int] = field(default_factory=dict)
    answers: Mapping[str, Survey | Unseen] = field(default_factory=dict)

    @property
    def pairs(self) -> tuple[tuple[str, Did], ...]:
        """Names with their DIDs, without those that have none."""
        return tuple((name, did) for name, did in zip(self.names, self.dids, strict=True) if did)

    @property
    def doubles(self) -> dict[Did, tuple[str, ...]]:
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
            if name in self.ambiguous:
                listed = _some(self.ambiguous[name])
                found.append(f"{name}: could be {listed}; add it to [submit].names, or set default_scope")
            elif name in self.unknown:
                found.append(f"{name}: {self.unknown[name]}")
        return list(dict.fromkeys(found))

    @property
    def absences(self) -> list[str]:
        """One sentence for each catalogue that did not answer."""
        return [f"catalogue {name} did not answer: {why}" for name, why in self.unreachable.items()]


@dataclass(frozen=True, slots=True)
class Expansion:
    """The names that globs stand for; ``empty`` matched nothing, ``catalogued`` only in the catalogues."""

    names: tuple[str, ...]
    empty: tuple[str, ...] = ()
    catalogued: Mapping[str, int] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)


def expand(
    searches: Sequence[str],
    local: Callable[[str], Collection[str]],
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
    for search in searches:
        here = local(search)
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
        questions = _questions_for_globs(left, within)
        held, away = _ask_all(catalogues, lambda c, asked=questions: c.find(asked))  # type: ignore[misc]
        unreachable |= away
        known = {_name(did) for dids in held.values() for did in dids}
        for search in left:
            matched = _matched(search, known, settings)
            names += matched
            counts[search] = len(matched)
    if left := [search for search in far if not counts[search]]:
        by_pattern, away = _by_patterns(left, settings, catalogues)
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


def _by_patterns(
    searches: Sequence[str], settings: Settings, catalogues: Sequence[Catalogue]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return what globs stand for where [submit].patterns make DIDs of names, and who did not answer.

    A pattern leads from a name to a DID, not back. So the names tried are a dataset's own, with and without
    what the glob has before its first wildcard and behind its last: for ``lofar:L1_SB001`` and ``*.ms`` that
    is ``L1_SB001.ms``. One that fits the glob, and of which a pattern makes just that DID, stands for it.
    """
    patterns = _compiled(settings.submit.patterns)
    scope = settings.daemon.default_scope
    templates = sorted({_GROUP_REFERENCE.sub("*", pattern.did) for pattern in settings.submit.patterns})
    questions = [text if ":" in text else f"{scope or '*'}:{text}" for text in templates]
    if not questions:
        return {}, {}
    held, away = _ask_all(catalogues, lambda catalogue: catalogue.find(questions))
    dids = sorted({did for found in held.values() for did in found})
    found: dict[str, list[str]] = {}
    for search in searches:
        folder, _, shape = search.rstrip("/").rpartition("/")
        head, tail = re.split(r"[*?\[]", shape)[0], re.split(r"[*?\]]", shape)[-1]
        bases = {
            name: did
            for did in dids
            for begin in ("", head)
            for end in ("", tail)
            if fits(name := f"{begin}{base_name(_name(did))}{end}", shape)
        }
        matched = [base for base, did in bases.items() if _made(base, patterns, scope) == did]
        found[search] = [f"{folder}/{base}" if folder else base for base in sorted(matched)]
    return found, away


def _made(name: str, patterns: Sequence[tuple[re.Pattern[str], str]], scope: str | None) -> Did | None:
    """Return the DID that the patterns make of *name*; None where they make none."""
    try:
        return parse_did(_configured(name, {}, patterns) or "", scope)
    except BadDid:
        return None


def _matched(search: str, known: Iterable[str], settings: Settings) -> list[str]:
    """What a glob stands for among the *known* names and those of the table, in the folder that it names."""
    bases = {_without_tar(base_name(name)) for name in known if _fits_either(name, search)}
    bases |= {base_name(name) for name in settings.submit.names if fits(name, search)}
    folder = search.rstrip("/").rpartition("/")[0]
    return [f"{folder}/{base}" if folder else base for base in sorted(bases)]


def resolve(
    names: Sequence[str],
    settings: Settings,
    catalogues: Sequence[Catalogue],
    witnesses: Sequence[Catalogue] = (),
) -> Resolution:
    """Find the DID of each of *names*, and ask the catalogues about all of them at once.

    A DID that no catalogue holds anywhere is unknown, where all answered;
    where one did not, it is unchecked. *witnesses* are asked where datasets
    are, but not which there are: a daemon knows only what jobs asked it for.

    Raises:
        ConfigError: the table or a pattern of the configuration makes what is no DID, or is no pattern.
    """
    scope = settings.daemon.default_scope
    chosen = by_configuration(names, settings)
    chosen |= {name: did for name in names if name not in chosen and (did := _written_out(name))}
    found, ambiguous, unreachable = _by_catalogue(
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
    answers = read_all([*catalogues, *witnesses], frozenset(chosen.values()))
    # a daemon knows only what jobs asked for: beside catalogues its silence on a name says nothing
    judges = {catalogue.name for catalogue in catalogues or witnesses}
    judging = {name: answer for name, answer in answers.items() if name in judges}
    unreachable |= {name: a.reason for name, a in judging.items() if isinstance(a, Unseen)}
    readings, judged = _readings(answers), _readings(judging)
    unchecked = set()
    lost: dict[str, Did] = {}
    for name, did in list(chosen.items()):
        if _exists(did, readings):
            continue
        if any(isinstance(reading, Unseen) for reading in judged.get(did, [Unseen("")])):
            unchecked.add(did)
        else:
            lost[name] = did
    near = _near(list(lost.values())[:MOST_ASKED], catalogues)
    for name, did in lost.items():
        alike = f"; did you mean {' or '.join(near[did])}?" if near.get(did) else ""
        advice = "another name goes into [submit].names or [submit].patterns"
        unknown[name] = f"{did} is in no catalogue{alike or f'; {advice}'}"
    return Resolution(
        names=tuple(names),
        dids=tuple(chosen.get(name) for name in names),
        unknown=unknown,
        ambiguous=ambiguous,
        unreachable=dict(sorted(unreachable.items())),
        unchecked=frozenset(unchecked),
        sizes=_sizes(chosen.values(), readings),
        answers=answers,
    )


# --- by the configuration -----------------------------------------------------------------------------


def by_configuration(names: Sequence[str], settings: Settings) -> dict[str, Did]:
    """The DIDs that the table and the patterns make of *names*, of those for which they make one.

    Raises:
        ConfigError: one of them makes what is no DID, or a pattern is no regular expression.
    """
    patterns = _compiled(settings.submit.patterns)
    table = {name.rstrip("/"): text for name, text in settings.submit.names.items()}
    chosen: dict[str, Did] = {}
    problems: list[str] = []
    for name in dict.fromkeys(names):
        try:
            if made := _configured(name, table, patterns):
                chosen[name] = parse_did(made, settings.daemon.default_scope)
        except BadDid as bad:
            problems.append(f"[submit] makes of {name}: {bad}")
    if problems:
        raise ConfigError(problems)
    return chosen


def _configured(
    name: str, table: Mapping[str, str], patterns: Sequence[tuple[re.Pattern[str], str]]
) -> str | None:
    whole, base = name.rstrip("/"), base_name(name)
    for key in (whole, base, _without_tar(base)):
        if key in table:
            return table[key]
    for pattern, template in patterns:
        if match := pattern.fullmatch(base) or pattern.fullmatch(whole):
            return match.expand(template)
    return None


def _compiled(patterns: Iterable[NamePattern]) -> list[tuple[re.Pattern[str], str]]:
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


def _by_catalogue(
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
        questions = _questions([_without_tar(base_name(name)) for name in left], within)
        held, away = _ask_all(catalogues, lambda c, asked=questions: c.find(asked))  # type: ignore[misc]
        unreachable |= away
        by_base: dict[str, set[Did]] = {}
        for did in (did for dids in held.values() for did in dids):
            by_base.setdefault(_without_tar(base_name(_name(did))), set()).add(did)
        for name in left:
            candidates = _best(name, by_base.get(_without_tar(base_name(name)), set()))
            if len(candidates) == 1:
                chosen[name] = candidates[0]
            elif candidates:
                ambiguous[name] = candidates
        left = [name for name in left if name not in chosen and name not in ambiguous]
    return chosen, ambiguous, unreachable


def _best(name: str, candidates: Collection[Did]) -> tuple[Did, ...]:
    """Those spelled as *name* is, where there are any: ``.ms`` and ``.ms.tar`` are not the same thing."""
    exact = [did for did in candidates if base_name(_name(did)) == base_name(name)]
    return tuple(sorted(exact or candidates))


def _questions(bases: Sequence[str], within: str) -> list[str]:
    """Few patterns that match every DID of *within* whose name ends in one of *bases*, ``.tar`` or not."""
    length = max((len(base) for base in bases), default=0)
    starts = {base[:length] for base in bases}
    while len(starts) > _MOST_QUESTIONS and length:
        length = length * 2 // 3
        starts = {base[:length] for base in bases}
    escaped = [re.sub(r"([*?[])", r"[\1]", start) for start in sorted(starts)]
    if within == "*":
        return [pattern for start in escaped for pattern in (f"*:{start}*", f"*/{start}*")]
    return [f"{within}{start}*" for start in escaped]


def _questions_for_globs(searches: Iterable[str], within: str) -> list[str]:
    """Patterns for every DID of *within* whose name ends in what one of *searches* matches."""
    bases = sorted({base_name(search) for search in searches})
    heads = ("*:", "*/") if within == "*" else (within,)
    return [f"{head}{base}{tail}" for base in bases for tail in ("", ".tar", "/") for head in heads]


def _ask_all(
    catalogues: Sequence[Catalogue], question: Callable[[Catalogue], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """The answers, side by side, and why some did not answer."""

    def one(catalogue: Catalogue) -> tuple[str, T | CatalogueError]:
        try:
            return catalogue.name, question(catalogue)
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


def _near(dids: Sequence[Did], catalogues: Sequence[Catalogue]) -> dict[Did, tuple[Did, ...]]:
    """What the catalogues hold under names that look like those of *dids*."""
    if not dids:
        return {}
    held, _ = _ask_all(catalogues, lambda catalogue: catalogue.find(patterns_near(dids)))
    known = frozenset(did for found in held.values() for did in found)
    return {did: nearest(did, known) for did in dids}


def _readings(answers: Mapping[str, Survey | Unseen]) -> dict[Did, list[Seen | Unseen]]:
    readings: dict[Did, list[Seen | Unseen]] = {}
    failed = [answer for answer in answers.values() if isinstance(answer, Unseen)]
    for answer in answers.values():
        if isinstance(answer, Survey):
            for did, reading in answer.readings.items():
                readings.setdefault(did, [*failed]).append(reading)
    return readings


def _exists(did: Did, readings: Mapping[Did, Sequence[Seen | Unseen]]) -> bool:
    """Does some catalogue hold *did* somewhere, or at least know its size?"""
    return any(
        isinstance(reading, Seen) and (reading.replicas or reading.bytes_total is not None)
        for reading in readings.get(did, ())
    )


def _sizes(dids: Iterable[Did], readings: Mapping[Did, Sequence[Seen | Unseen]]) -> dict[Did, int]:
    sizes = {}
    for did in sorted(set(dids)):
        told = [
            r.bytes_total for r in readings.get(did, ()) if isinstance(r, Seen) and r.bytes_total is not None
        ]
        if told:
            sizes[did] = max(told)
    return sizes


# --- names --------------------------------------------------------------------------------------------


def _written_out(name: str) -> Did | None:
    """*name* where it is a DID already: ``scope:name``, and not a path with a colon somewhere."""
    if "/" in name.partition(":")[0]:
        return None
    try:
        return parse_did(name.rstrip("/"))
    except BadDid:
        return None


def _name(did: Did) -> str:
    return did.partition(":")[2]


def _without_tar(base: str) -> str:
    return base.removesuffix(".tar")


def _fits_either(name: str, search: str) -> bool:
    return fits(name, search) or fits(name.rstrip("/").removesuffix(".tar"), search)


def _some(dids: Sequence[Did]) -> str:
    more = f" or {len(dids) - _SHOWN} more" if len(dids) > _SHOWN else ""
    return f"{', '.join(dids[:_SHOWN])}{more}"
