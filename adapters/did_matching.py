"""DID matching: patterns, and DIDs that differ in letter case only."""

from collections.abc import Collection, Iterable, Mapping

from hydrator.domain.model import Did
from hydrator.domain.text import matches_any


def filter_by_patterns(dids: Iterable[Did], patterns: Collection[str]) -> frozenset[Did]:
    """Return the *dids* that match one of *patterns* (``*``, ``?``, ``[…]``; case-sensitive)."""
    ordered = tuple(sorted(patterns))
    return frozenset(did for did in dids if matches_any(did, ordered))


def group_by_lower_case(dids: Iterable[Did]) -> Mapping[str, frozenset[Did]]:
    """Group *dids* that differ only in the case of ASCII letters: ClassAds ignore this case in names."""
    groups: dict[str, set[Did]] = {}
    for did in dids:
        groups.setdefault(did.lower(), set()).add(did)
    return {lower: frozenset(group) for lower, group in groups.items()}


def case_variants(did: Did, groups: Mapping[str, frozenset[Did]]) -> frozenset[Did]:
    """Return the DIDs in *groups* that differ from *did* in case only; see :func:`group_by_lower_case`."""
    return groups.get(did.lower(), frozenset()) - {did}
