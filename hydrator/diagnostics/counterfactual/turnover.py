"""Turnover of slots: a slot at which jobs read from elsewhere comes free less often than one beside the data.

So a stock negotiator starts more jobs beside their data than the numbers of slots say. The pool is a closed
queueing network: the slots of a site are the customers of one class, computing is a delay, and the link of a
source site is a station that all its readers share. :func:`count_starts` solves it by approximate mean value
analysis (Schweitzer 1979): a new reader meets the other readers of the link.
"""

from collections.abc import Mapping
from typing import Final

from hydrator.domain.model import Site

_MAX_STEPS: Final = 500
_TOLERANCE: Final = 1e-6


def count_starts(
    slots: Mapping[Site, float], compute_seconds: float, reads: Mapping[Site, Mapping[Site, float]]
) -> dict[Site, float]:
    """Return the job starts per second at each site of a pool without free slots.

    Args:
        slots: the slots by site.
        compute_seconds: the mean run of a job without reading from elsewhere, above 0.
        reads: by site, the mean seconds of a job's reads by source, on links without other readers.
    """
    readers = {site: dict.fromkeys(reads.get(site, {}), 0.0) for site in slots}
    starts: dict[Site, float] = {}
    for _ in range(_MAX_STEPS):
        by_source: dict[Site, float] = {}
        for each in readers.values():
            for source, count in each.items():
                by_source[source] = by_source.get(source, 0.0) + count
        change = 0.0
        for site, count in slots.items():
            seconds = {
                source: lone * (1 + by_source[source] - readers[site][source] / max(1.0, count))
                for source, lone in reads.get(site, {}).items()
            }
            starts[site] = count / (compute_seconds + sum(seconds.values()))
            for source, each_seconds in seconds.items():
                found = starts[site] * each_seconds
                change = max(change, abs(found - readers[site][source]))
                readers[site][source] = found
        if change < _TOLERANCE * sum(slots.values()):
            break
    return starts
