"""What became of jobs that named datasets: did they find their data, and how long did they wait?

A job's site is the one that its schedd recorded of the slot where it ran last
(``MachineAttrDataLocalitySite0``, see ``hydrator submit pool-config``). What was
there is what the site's ad said at that start, as ``archive.py`` keeps it, less
what the job itself reported as missing. Where the site or the ad of that time is
not known, nothing is concluded.

Pure: values in, values out. A job's ad is what its owner wrote: a value of the
wrong kind counts as not there.
"""

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from hydrator.domain.errors import BadDid
from hydrator.domain.misses import MISSES_ATTRIBUTE, Miss, misses
from hydrator.domain.model import DatasetState, Did, Site, SiteAd, from_unix, parse_did
from hydrator.domain.numbers import moment, whole
from hydrator.reconcile.ads.site_ads import facts_of
from hydrator.reconcile.history import Entry

_MOST_BYTES = 1 << 60
CLOCKS_DIFFER = timedelta(minutes=5)


class Found(StrEnum):
    """How much of a job's data was on disk at its site when it started."""

    ALL = "all"
    SOME = "some"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that left its queue; ``datasets`` is None for one that names none, or no list of DIDs."""

    submitted: datetime | None
    first_start: datetime | None
    last_start: datetime | None
    site: Site | None
    datasets: frozenset[Did] | None
    sizes: Mapping[Did, int]
    missed: tuple[Miss, ...]

    @property
    def waited(self) -> timedelta | None:
        """From submission to the first start; None where it never started."""
        if self.submitted is None or self.first_start is None or self.first_start < self.submitted:
            return None
        return self.first_start - self.submitted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one job that started found; bytes are of the datasets whose size is known."""

    job: EndedJob
    found: Found
    bytes_here: int = 0
    bytes_elsewhere: int = 0
    unsized: int = 0


class Shown:
    """What each site's ad said, at any time that the archive reaches back to."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._ads: dict[Site, list[SiteAd]] = defaultdict(list)
        self._times: dict[Site, list[datetime]] = defaultdict(list)
        self._available: dict[tuple[Site, int], frozenset[Did]] = {}
        for one in sorted(entries, key=lambda one: (one.ad.site, one.at)):
            self._ads[one.ad.site].append(one.ad)
            self._times[one.ad.site].append(one.at)

    def knows(self, site: Site | None) -> bool:
        """Has an ad of *site* ever been kept?"""
        return site in self._ads

    def available(self, site: Site, at: datetime) -> frozenset[Did] | None:
        """The datasets on disk at *site*, as its ad said at that time; None where that is not kept."""
        place = bisect.bisect_right(self._times.get(site, []), at) - 1
        if place < 0:
            return None
        if (site, place) not in self._available:
            facts = facts_of(self._ads[site][place])
            self._available[site, place] = frozenset(
                did for did, fact in facts.items() if fact.state is DatasetState.AVAILABLE
            )
        return self._available[site, place]


def ended_job(row: Mapping[str, Any], default_scope: str | None = None) -> EndedJob:
    """The job of *row*: ``QDate``, ``JobStartDate`` and ``JobCurrentStartDate`` (Unix s), ``site``,
    ``datasets`` (names, or None), ``bytes`` (by name) and ``misses`` (the texts of MISSES_ATTRIBUTE).
    """
    names = row.get("datasets")
    dids = _dids(names, default_scope) if isinstance(names, Sequence) and not isinstance(names, str) else None
    sizes = row.get("bytes")
    site = row.get("site")
    first = _moment(row.get("JobStartDate"))
    return EndedJob(
        submitted=_moment(row.get("QDate")),
        first_start=first,
        last_start=_moment(row.get("JobCurrentStartDate")) or first,
        site=Site(site) if isinstance(site, str) and site.strip() and site.isprintable() else None,
        datasets=dids,
        sizes=_sizes(sizes, dids or frozenset(), default_scope) if isinstance(sizes, Mapping) else {},
        missed=misses({MISSES_ATTRIBUTE: row.get("misses")}),
    )


def outcome(job: EndedJob, shown: Shown, sizes: Mapping[Did, int]) -> Outcome:
    """What *job*, which names datasets and started, found at its site; *sizes* where it says none."""
    wanted = job.datasets or frozenset()
    there = shown.available(job.site, job.last_start) if job.site and job.last_start else None
    known = {did: job.sizes.get(did, sizes.get(did)) for did in wanted}
    if there is None:
        return Outcome(job, Found.UNKNOWN, unsized=sum(size is None for size in known.values()))
    since = (job.last_start or from_unix(0)) - CLOCKS_DIFFER
    missed = {miss.did for miss in job.missed if miss.site == job.site and miss.when >= since}
    here = (wanted & there) - missed
    return Outcome(
        job,
        Found.ALL if here == wanted else Found.SOME if here else Found.NONE,
        bytes_here=sum(known[did] or 0 for did in here),
        bytes_elsewhere=sum(known[did] or 0 for did in wanted - here),
        unsized=sum(size is None for size in known.values()),
    )


@dataclass(slots=True)
class Tally:
    """Counts of outcomes, of one site or of all."""

    found: dict[Found, int] = field(default_factory=lambda: dict.fromkeys(Found, 0))
    bytes_here: int = 0
    bytes_elsewhere: int = 0
    missed: int = 0
    """Jobs that missed datasets there, wherever they ended; of all sites, each once."""

    def add(self, one: Outcome) -> None:
        self.found[one.found] += 1
        self.bytes_here += one.bytes_here
        self.bytes_elsewhere += one.bytes_elsewhere

    @property
    def share(self) -> float | None:
        """Of the jobs of which it is known, those that found all; None where it is known of none."""
        known = sum(self.found.values()) - self.found[Found.UNKNOWN]
        return self.found[Found.ALL] / known if known else None

    @property
    def share_of_bytes(self) -> float | None:
        """Of the bytes whose size and place are known, those at the site."""
        total = self.bytes_here + self.bytes_elsewhere
        return self.bytes_here / total if total else None


@dataclass(frozen=True, slots=True)
class Tallied:
    """What became of many jobs; waits are sorted, of those that started, in seconds."""

    total: Tally
    sites: Mapping[Site, Tally]
    never_started: int
    unsized: int
    missed_datasets: int
    waits: tuple[float, ...]
    """Of jobs that name datasets."""
    other_waits: tuple[float, ...]
    """Of jobs that name none."""

    @property
    def added(self) -> float | None:
        """The median wait of jobs that name datasets less that of those that name none, s."""
        one, other = median(self.waits), median(self.other_waits)
        return None if one is None or other is None else one - other


def tally(jobs: Iterable[EndedJob], shown: Shown, sizes: Mapping[Did, int]) -> Tallied:
    """Count what became of *jobs*."""
    total, sites = Tally(), defaultdict[Site, Tally](Tally)
    never = unsized = missed = 0
    waits: list[float] = []
    others: list[float] = []
    for job in jobs:
        if job.waited is not None:
            (others if job.datasets is None else waits).append(job.waited.total_seconds())
        if job.datasets is None:
            continue
        if job.last_start is None:
            never += 1
            continue
        one = outcome(job, shown, sizes)
        unsized += one.unsized
        missed += len(job.missed)
        total.add(one)
        total.missed += bool(job.missed)
        for site in {miss.site for miss in job.missed if shown.knows(miss.site)}:
            sites[site].missed += 1
        if job.site and shown.knows(job.site):
            sites[job.site].add(one)
    known = {site: sites[site] for site in sorted(sites)}
    return Tallied(total, known, never, unsized, missed, tuple(sorted(waits)), tuple(sorted(others)))


def median(values: Sequence[float]) -> float | None:
    """Of sorted *values*; None of none."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The least of sorted *values* that *share* (0 to 1) of them do not exceed; None of none."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else None


def _moment(value: object) -> datetime | None:
    return moment(value) if value else None  # 0: it never was


def _dids(names: Iterable[object], default_scope: str | None) -> frozenset[Did] | None:
    """All DIDs, or None where one is none: a part of what a job reads says nothing of the job."""
    try:
        return frozenset(parse_did(str(name), default_scope) for name in names) or None
    except BadDid:
        return None


def _sizes(sizes: Mapping[Any, object], dids: frozenset[Did], scope: str | None) -> dict[Did, int]:
    """By DID; the job's record ignores letter case, so the DIDs that it names decide it."""
    spelled = {did.lower(): did for did in dids}
    found: dict[Did, int] = {}
    for name, size in sizes.items():
        try:
            did = spelled.get(parse_did(str(name), scope).lower())
        except BadDid:
            continue
        known = whole(size, _MOST_BYTES)
        if did and known is not None:
            found[did] = known
    return found
