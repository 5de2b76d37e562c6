"""Dataset resolver: find the DIDs of measurement sets by the names in users' files.

The resolver uses the first of these rules that gives a DID for a name:

1. the table [submit].names;
2. a name that is itself ``scope:name``;
3. a DID in the catalogues whose name has the same last part as the user's name, apart from ``.tar`` and a
   trailing ``/``; the resolver searches default_scope first, then all scopes (a daemon: only default_scope);
4. the patterns [submit].patterns, also for a name that rule 3 gives several DIDs;
5. ``default_scope:name``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hydrator.config import Settings
from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Seen, Survey, Unseen, parse_did
from hydrator.domain.ports import Catalogue
from hydrator.domain.text import did_you_mean, group_pairs, shorten_list
from hydrator.reconcile.reconciler import read_all
from hydrator.submit.nearest_names import MAX_SEARCHED

from .lookup import base_name, is_url, strip_tar
from .search import apply_configuration, find_in_catalogues, find_similar, find_unlisted, scope_prefixes


@dataclass(frozen=True, slots=True)
class Resolution:
    """The DID of each name, in the order of the names, and the problems with the names.

    ``dids`` has None for a name without a DID: see ``unknown_names`` and ``ambiguous_names``.
    ``unreachable_catalogues`` has the reason for each catalogue that did not answer. ``unanswered_dids`` has
    the DIDs about which at least one catalogue did not answer, ``unchecked_dids`` those of them that may not
    exist, because no other catalogue confirmed them.
    ``unlisted_dids`` are unchecked, and the daemon's catalogues do not list them; each has similar DIDs.
    ``placeless_dids`` are at no site, by the answers of all catalogues. ``answers`` has each catalogue's
    answers about the DIDs.
    """

    dids: Mapping[str, Did | None]
    unknown_names: Mapping[str, str] = field(default_factory=dict)
    ambiguous_names: Mapping[str, tuple[Did, ...]] = field(default_factory=dict)
    unreachable_catalogues: Mapping[str, str] = field(default_factory=dict)
    unanswered_dids: frozenset[Did] = frozenset()
    unchecked_dids: frozenset[Did] = frozenset()
    unlisted_dids: Mapping[Did, tuple[Did, ...]] = field(default_factory=dict)
    placeless_dids: frozenset[Did] = frozenset()
    sizes: Mapping[Did, int] = field(default_factory=dict)
    answers: Mapping[str, Survey | Unseen] = field(default_factory=dict)

    @property
    def pairs(self) -> tuple[tuple[str, Did], ...]:
        """The names that have a DID, each with its DID."""
        return tuple((name, did) for name, did in self.dids.items() if did)

    @property
    def names_by_shared_did(self) -> dict[str, tuple[str, ...]]:
        """The DIDs, without ``.tar`` and a checksum, that several names share, each with these names."""
        names = group_pairs((strip_tar(did), name) for name, did in self.pairs)
        return {did: tuple(shared) for did, shared in names.items() if len(shared) > 1}

    @property
    def absent_names(self) -> dict[str, str]:
        """The names that no job can read, each with the reason: in no catalogue, or at no site."""
        placeless = {name: f"{did} is at no site" for name, did in self.pairs if did in self.placeless_dids}
        return {**placeless, **self.unknown_names}

    def without(self, names: Collection[str]) -> "Resolution":
        """Return the resolution of all names but *names*."""
        kept = {name: did for name, did in self.dids.items() if name not in names}
        unknown = {name: why for name, why in self.unknown_names.items() if name not in names}
        sizes = {did: size for did, size in self.sizes.items() if did in kept.values()}
        return replace(self, dids=kept, unknown_names=unknown, sizes=sizes)

    @property
    def problems(self) -> list[str]:
        """One sentence for each name without a DID; names with the same problem share it."""
        reasons = dict(self.unknown_names)
        for name, dids in self.ambiguous_names.items():
            reasons[name] = f"could be {shorten_list(dids)}: write the one that you mean"
        names_by_problem = group_pairs((reasons[name], name) for name in self.dids if name in reasons)
        return [f"{', '.join(names)}: {problem}" for problem, names in names_by_problem.items()]


def resolve_names(
    names: Sequence[str],
    settings: Settings,
    catalogues: Sequence[Catalogue],
    daemon_catalogues: Sequence[Catalogue] = (),
) -> Resolution:
    """Find the DID of each of *names*, and query the catalogues for all of them at once.

    If no catalogue has a DID, the DID is unknown if all catalogues answered, and else unchecked. The daemon
    (*daemon_catalogues*) has facts only about datasets that jobs name. So its answer shows where datasets
    are, but not which DIDs exist. If *catalogues* is empty, the function searches the daemon's catalogues.
    A search finds no private datasets, and of single files only archives. So a DID that it does not find is
    unlisted.

    Raises:
        ConfigError: [submit].names or a pattern gives an invalid DID, or a pattern is not valid.
    """
    searched = catalogues or daemon_catalogues
    prefixes = scope_prefixes(settings.daemon.default_scope, is_daemon=not catalogues)
    chosen, ambiguous, unknown, failures = _choose_dids(names, settings, prefixes, searched)
    answers = read_all([*catalogues, *daemon_catalogues], frozenset(chosen.values()))
    deciding = {catalogue.name: answers[catalogue.name] for catalogue in searched}
    failures |= {name: answer.reason for name, answer in deciding.items() if isinstance(answer, Unseen)}
    dids = set(chosen.values())
    seen = {did: [one for one in _readings(did, answers) if isinstance(one, Seen)] for did in dids}
    decisive = {did: _readings(did, deciding) for did in dids}
    exists = {did for did in dids if any(one.replicas or one.bytes_total is not None for one in seen[did])}
    has_place = {did for did in dids if any(isinstance(one, Seen) and one.replicas for one in decisive[did])}
    unanswered = frozenset(did for did in dids if any(isinstance(one, Unseen) for one in decisive[did]))
    absent = {name: did for name, did in chosen.items() if did not in exists | unanswered}
    unknown |= _absent_reasons(absent, prefixes, searched)
    unasked = frozenset() if catalogues or failures else unanswered - exists
    unlisted = find_unlisted(unasked, prefixes, searched)
    sizes = {did: [one.bytes_total for one in seen[did] if one.bytes_total is not None] for did in dids}
    return Resolution(
        dids={name: chosen.get(name) for name in names},
        unknown_names=unknown,
        ambiguous_names=ambiguous,
        unreachable_catalogues=dict(sorted(failures.items())),
        unanswered_dids=unanswered,
        unchecked_dids=unanswered - exists,
        unlisted_dids=unlisted,
        placeless_dids=frozenset(dids - unanswered - has_place),
        sizes={did: max(sizes[did]) for did in sorted(dids) if sizes[did]},
        answers=answers,
    )


def _choose_dids(
    names: Sequence[str], settings: Settings, prefixes: Sequence[str], catalogues: Sequence[Catalogue]
) -> tuple[dict[str, Did], dict[str, tuple[Did, ...]], dict[str, str], dict[str, str]]:
    """Choose a DID for each of *names*; perhaps no catalogue has this DID.

    Returns the DIDs by name, the candidates of ambiguous names, the reason for each name without a DID, and
    the reason for each catalogue that did not answer.
    """
    scope = settings.daemon.default_scope
    chosen = apply_configuration(names, settings, only_table=True)
    chosen |= {name: did for name in names if name not in chosen and (did := _parse_explicit_did(name))}
    others = [name for name in dict.fromkeys(names) if name not in chosen]
    in_catalogues, ambiguous, failures = find_in_catalogues(others, prefixes, catalogues)
    by_pattern = apply_configuration([name for name in others if name not in in_catalogues], settings)
    chosen |= in_catalogues | by_pattern
    ambiguous = {name: dids for name, dids in ambiguous.items() if name not in by_pattern}
    if by_pattern.keys() >= set(others):  # no name needs the search
        failures = {}
    by_scope, unknown = _apply_default_scope(
        [name for name in names if name not in chosen and name not in ambiguous], scope, failures
    )
    if scope is None and len(unknown) <= MAX_SEARCHED:  # of more names the scope is what lacks
        dids = {name: Did(f"*:{base_name(name)}") for name in unknown}
        similar = find_similar([*dids.values()], prefixes, catalogues)
        unknown |= {name: unknown[name] + _question(similar[did]) for name, did in dids.items()}
    return chosen | by_scope, ambiguous, unknown, failures


def _apply_default_scope(
    names: Iterable[str], scope: str | None, failures: Collection[str]
) -> tuple[dict[str, Did], dict[str, str]]:
    """Return ``scope:name`` for each of *names*, and the reason for each name that gives no valid DID.

    *failures* are the catalogues that did not answer. A folder of measurement sets is not one of them.
    """
    dids: dict[str, Did] = {}
    reasons: dict[str, str] = {}
    failed = f"; {' and '.join(sorted(failures))} did not answer" if failures else ""
    searched = f"no catalogue has a dataset of that name{failed}"
    for name in names:
        folder = name.rstrip("/")
        if folder != name and "." not in base_name(name):
            reasons[name] = f"{searched}; for the measurement sets in this folder write {folder}/L1234_*.MS"
            continue
        try:
            dids[name] = parse_did(base_name(name), scope)
        except BadDid as bad:
            advice = "or add the name to [submit].names, or a pattern to [submit].patterns"
            reasons[name] = f"{searched}, and it cannot be one: {bad.reason}; {advice}"
    return dids, reasons


def _readings(did: Did, answers: Mapping[str, Survey | Unseen]) -> list[Seen | Unseen]:
    """Return what each catalogue said of *did*; a catalogue that failed said nothing of any dataset."""
    found = [
        answer if isinstance(answer, Unseen) else answer.readings[did]
        for answer in answers.values()
        if isinstance(answer, Unseen) or did in answer.readings
    ]
    return found or [Unseen("")]


def _absent_reasons(
    dids_by_name: Mapping[str, Did], prefixes: Sequence[str], catalogues: Sequence[Catalogue]
) -> dict[str, str]:
    """Return for each name the sentence that no catalogue has its DID, with similar DIDs if there are any."""
    similar = find_similar([*dids_by_name.values()], prefixes, catalogues)
    advice = "; if you mean another dataset, add the name to [submit].names or a pattern to [submit].patterns"
    return {
        name: f"{did} is in no catalogue{_question(similar[did]) or advice}"
        for name, did in dids_by_name.items()
    }


def _question(similar: Sequence[Did]) -> str:
    return f"; {did_you_mean(similar)}" if similar else ""


def _parse_explicit_did(name: str) -> Did | None:
    """Return *name* as a DID if it is ``scope:name``; None for URLs, and for paths with a colon."""
    if "/" in name.partition(":")[0] or is_url(name):
        return None
    try:
        return parse_did(name.rstrip("/"))
    except BadDid:
        return None
