"""DID matching: patterns, and DIDs that differ in letter case only."""

from collections.abc import Collection, Iterable, Mapping

from hydrator.domain.model import Did
from hydrator.domain.text import group_pairs, matches_any


def filter_by_patterns(dids: Iterable[Did], patterns: Collection[str]) -> frozenset[Did]:
    """Return the *dids* that match one of *patterns* (``*``, ``?``, ``[…]``; case-sensitive)."""
    ordered = tuple(sorted(patterns))
    return frozenset(did for did in dids if matches_any(did, ordered))


def group_by_lower_case(dids: Iterable[Did]) -> Mapping[str, list[Did]]:
    """Group *dids* that differ only in the case of ASCII letters: ClassAds ignore this case in names."""
    return group_pairs((did.lower(), did) for did in dids)


def case_variants(did: Did, groups: Mapping[str, list[Did]]) -> frozenset[Did]:
    """Return the DIDs in *groups* that differ from *did* in case only; see :func:`group_by_lower_case`."""
    return frozenset(groups.get(did.lower(), ())) - {did}
