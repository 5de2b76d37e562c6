"""DID matching: patterns, and DIDs that differ in letter case only."""

import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping

from hydrator.domain.model import Did


def filter_by_patterns(dids: Iterable[Did], patterns: Collection[str]) -> frozenset[Did]:
    """Return the *dids* that match one of *patterns* (``*``, ``?``, ``[…]``; case-sensitive)."""
    if not patterns:
        return frozenset()
    any_pattern = re.compile("|".join(fnmatch.translate(pattern) for pattern in sorted(patterns)))
    return frozenset(did for did in dids if any_pattern.match(did))


def group_by_lower_case(dids: Iterable[Did]) -> Mapping[str, frozenset[Did]]:
    """Group *dids* that differ only in the case of ASCII letters: ClassAds ignore this case in names."""
    groups: dict[str, set[Did]] = {}
    for did in dids:
        groups.setdefault(did.lower(), set()).add(did)
    return {lower: frozenset(group) for lower, group in groups.items()}


def case_variants(did: Did, groups: Mapping[str, frozenset[Did]]) -> frozenset[Did]:
    """Return the DIDs in *groups* that differ from *did* in case only; see :func:`group_by_lower_case`."""
    return groups.get(did.lower(), frozenset()) - {did}
