"""Nearest names: the datasets whose names look most like one that exists nowhere. Pure."""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import replace

from hydrator.domain.model import DaemonKnowledge, Did

MAX_SIMILAR = 3
MAX_SEARCHED = 5
"""Of so many names that exist nowhere, names that look like them are looked for."""
_MAX_COMPARED = 5000
"""So many names are compared; the rest of a longer list is not."""
_MAX_NAME_CHARS = 200
"""A longer name is compared with none: the comparison takes time with the square of the length."""
_CUTOFF = 0.75


def similar_names(did: Did, candidates: Iterable[Did]) -> tuple[Did, ...]:
    """Return up to MOST_NEAR of *known* that look like *did*, the most alike first, letter case aside."""
    if len(did) > _MAX_NAME_CHARS:
        return ()
    by_lower: dict[str, list[Did]] = {}
    for other in sorted(candidates)[:_MAX_COMPARED]:
        if other != did and abs(len(other) - len(did)) <= len(did) // 2:
            by_lower.setdefault(other.lower(), []).append(other)
    close = difflib.get_close_matches(did.lower(), list(by_lower), n=MAX_SIMILAR, cutoff=_CUTOFF)
    return tuple(other for lower in close for other in by_lower[lower])[:MAX_SIMILAR]


def similar_name_patterns(dids: Collection[Did]) -> list[str]:
    """Return globs for names in the same scope that share a half with one of *dids*, or both its ends.

    A slip of one or two characters leaves a half of the name, or both ends of it, as they should be.

    >>> patterns_near([Did("lofar:L1234_SB001")])
    ['lofar:L1234*', 'lofar:*_SB001', 'lofar:L1*01']
    """
    found = []
    for did in sorted(dids):
        scope, _, name = did.partition(":")
        half, quarter = max(1, len(name) // 2), max(1, len(name) // 4)
        parts = (f"{name[:half]}*", f"*{name[half:]}", f"{name[:quarter]}*{name[-quarter:]}")
        found += [f"{scope}:{part}" for part in parts]
    return list(dict.fromkeys(found))


def find_absent_dids(knowledge: DaemonKnowledge, dids: Iterable[Did]) -> list[Did]:
    """Return those of *dids* that were looked for and are at no site, MOST_ASKED at most."""
    looked_for = knowledge.demanded_dids | knowledge.queried_dids
    sites = knowledge.snapshot.sites.values()
    found = [
        did
        for did in sorted(dids)
        if did in looked_for
        and did not in knowledge.snapshot.unseen_reasons
        and not any(did in site.facts for site in sites)
    ]
    return found[:MAX_SEARCHED]


def add_similar_names(
    knowledge: DaemonKnowledge, dids: Iterable[Did], names: Iterable[Did] = ()
) -> DaemonKnowledge:
    """Add the names that look like those of *dids* that exist nowhere, out of *names* and what is known."""
    wanted = find_absent_dids(knowledge, dids)
    if not wanted:
        return knowledge
    known = {did for site in knowledge.snapshot.sites.values() for did in site.facts} | set(names)
    near = {did: found for did in wanted if (found := similar_names(did, known))}
    return replace(knowledge, similar_names={**knowledge.similar_names, **near})
