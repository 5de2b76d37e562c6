"""Names of datasets: patterns, and those that differ in letter case only."""

import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping

from hydrator.domain.model import Did


def filter_by_patterns(dids: Iterable[Did], patterns: Collection[str]) -> frozenset[Did]:
    """Those of *dids* that match one of *patterns* (``*``, ``?``, ``[…]``; case counts)."""
    if not patterns:
        return frozenset()
    either = re.compile("|".join(fnmatch.translate(pattern) for pattern in sorted(patterns)))
    return frozenset(did for did in dids if either.match(did))


def group_by_lower_case(dids: Iterable[Did]) -> Mapping[str, frozenset[Did]]:
    """*dids* by what a ClassAd makes of them: attribute names ignore the case of ASCII letters."""
    groups: dict[str, set[Did]] = {}
    for did in dids:
        groups.setdefault(did.lower(), set()).add(did)
    return {lower: frozenset(group) for lower, group in groups.items()}


def case_variants(did: Did, groups: Mapping[str, frozenset[Did]]) -> frozenset[Did]:
    """Those of *groups* (see :func:`group_by_lower_case`) that differ from *did* in letter case only."""
    return groups.get(did.lower(), frozenset()) - {did}
