"""Nearest names: find existing datasets whose names are similar to the name of a missing dataset. Pure."""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import replace

from hydrator.domain.model import DaemonKnowledge, Did

MAX_SIMILAR = 3
MAX_SEARCHED = 5
"""Maximum of absent names for which the program searches similar names; it skips further absent names."""
_MAX_COMPARED = 5000
"""Maximum of names to compare with an absent name; the program skips the rest of a longer list."""
_MAX_NAME_CHARS = 200
"""Maximum length of a name to compare: the time of a comparison grows with the square of the length."""
_CUTOFF = 0.75


def similar_names(did: Did, candidates: Iterable[Did]) -> tuple[Did, ...]:
    """Return up to MAX_SIMILAR of *candidates* that are similar to *did*, the most similar first.

    The comparison ignores letter case.
    """
    if len(did) > _MAX_NAME_CHARS:
        return ()
    by_lower: dict[str, list[Did]] = {}
    for other in sorted(candidates)[:_MAX_COMPARED]:
        if other != did and abs(len(other) - len(did)) <= len(did) // 2:
            by_lower.setdefault(other.lower(), []).append(other)
    close = difflib.get_close_matches(did.lower(), list(by_lower), n=MAX_SIMILAR, cutoff=_CUTOFF)
    return tuple(other for lower in close for other in by_lower[lower])[:MAX_SIMILAR]


def similar_name_patterns(dids: Collection[Did]) -> list[str]:
    """Return globs for similar names: each has the scope and a half or both ends of the name of a DID.

    After a typing error of one or two characters, a half of the name or both its ends are still correct.

    >>> similar_name_patterns([Did("lofar:L1234_SB001")])
    ['lofar:L1234*', 'lofar:*_SB001', 'lofar:L1*01']
    """
    patterns = []
    for did in sorted(dids):
        scope, _, name = did.partition(":")
        half, quarter = max(1, len(name) // 2), max(1, len(name) // 4)
        parts = (f"{name[:half]}*", f"*{name[half:]}", f"{name[:quarter]}*{name[-quarter:]}")
        patterns += [f"{scope}:{part}" for part in parts]
    return list(dict.fromkeys(patterns))


def find_absent_dids(knowledge: DaemonKnowledge, dids: Iterable[Did]) -> list[Did]:
    """Return up to MAX_SEARCHED of *dids* that the daemon polled and found at no site."""
    polled = knowledge.demanded_dids | knowledge.queried_dids
    sites = knowledge.snapshot.sites.values()
    absent = [
        did
        for did in sorted(dids)
        if did in polled
        and did not in knowledge.snapshot.unseen_reasons
        and not any(did in site.facts for site in sites)
    ]
    return absent[:MAX_SEARCHED]


def add_similar_names(
    knowledge: DaemonKnowledge, dids: Iterable[Did], names: Iterable[Did] = ()
) -> DaemonKnowledge:
    """Return *knowledge* with similar names for those of *dids* that are at no site.

    The similar names come from *names* and from the snapshot.
    """
    absent = find_absent_dids(knowledge, dids)
    if not absent:
        return knowledge
    known = {did for site in knowledge.snapshot.sites.values() for did in site.facts} | set(names)
    near = {did: similar for did in absent if (similar := similar_names(did, known))}
    return replace(knowledge, similar_names={**knowledge.similar_names, **near})
