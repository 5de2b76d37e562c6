"""Reads: the seconds until a job at a site could have read the datasets of its set that the site lacks.

All readers of a source share its rate. So a read takes the seconds without other readers, times the present
readers and the new one, and some more readers that start before the next estimate (half a portion).
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from itertools import permutations

from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS, Rate, RateLookup, SetEstimate
from hydrator.domain.model import Site

from .classes import to_class
from .holdings import DatasetSet, Holders, Holdings
from .queue import SiteQueues


@dataclass(frozen=True, slots=True)
class Read:
    """The read of a set's missing bytes at one site.

    ``seconds`` is None if no source takes further readers, or if no site has the bytes. ``mean_seconds`` are
    the same with the mean number of readers of the last cycles. ``lone_seconds`` are
    the seconds without other readers. ``source`` has most of the missing bytes; ``rate`` is its rate.
    ``ready_at`` is the end of staging at this site, if a job would wait for the staging.
    ``link_seconds`` are the seconds of a lone read from the fastest sources, whatever the readers; if a job
    would wait for the staging, the seconds until then. ``is_quiet`` if nothing has read from the sources for
    some minutes.
    """

    seconds: float | None
    lone_seconds: float | None = None
    source: Site | None = None
    rate: Rate | None = None
    missing_bytes: int = 0
    ready_at: datetime | None = None
    mean_seconds: float | None = None
    link_seconds: float | None = None
    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class _ReadSource:
    """The best source of datasets that several sites have; ``is_open`` if it takes further readers.

    ``best_rate`` is the rate of the fastest source, in bytes/s, whatever the readers.
    """

    site: Site
    rate: Rate
    is_open: bool
    best_rate: float


class Reads:
    """The reads of one cycle.

    Args:
        holdings: the datasets at each site.
        rates: the rates between the sites.
        readers: by source, the jobs that read from it now.
        mean_readers: by source, the mean number of readers in the last cycles.
        closed: the sources that take no further readers.
        busy: the sources that had a reader in the last minutes.
        portion: the jobs that may start to read from one source before the next estimate.
        now: aware UTC time of the cycle.
    """

    def __init__(
        self,
        holdings: Holdings,
        rates: RateLookup,
        readers: Mapping[Site, int],
        *,
        mean_readers: Mapping[Site, float],
        closed: AbstractSet[Site],
        busy: AbstractSet[Site],
        portion: float,
        now: datetime,
    ) -> None:
        self._holdings = holdings
        self._rates = rates
        self._readers = readers
        self._mean_readers = mean_readers
        self._closed = closed
        self._busy = busy
        self._portion = portion
        self._now = now
        self._known_rates: dict[tuple[Site, Site], Rate | None] = {}
        self._sources: dict[tuple[Holders, Site], _ReadSource | None] = {}

    def read(self, one: DatasetSet, site: Site) -> Read | None:
        """Return the read of *one* by a job at *site*; None if a size or all rates are unknown."""
        if site in one.homes:
            return Read(0.0, mean_seconds=0.0, link_seconds=0.0)
        ready_at = self._holdings.ready_at(one, site)
        transfer = self._transfer(one, site)
        if ready_at is None:
            return transfer
        wait = max(0.0, (ready_at - self._now).total_seconds())
        if transfer is not None and transfer.seconds is not None and transfer.seconds <= wait:
            return transfer
        missing = transfer.missing_bytes if transfer else 0
        return Read(
            wait, wait, missing_bytes=missing, ready_at=ready_at, mean_seconds=wait, link_seconds=wait
        )

    @property
    def lacks_rates(self) -> bool:
        """Return True if no rate between two sites is known."""
        if any(self._known_rates.values()):
            return False
        return not any(self._rate(*pair) for pair in permutations(self._holdings.sites, 2))

    def find_source(
        self, one: DatasetSet, site: Site, named: Site | None = None
    ) -> tuple[Site, float] | None:
        """Return the source of most bytes of *one* that *site* lacks, and the seconds of a lone read.

        The source is *named* if it is given and its rate is known.
        """
        transfer = self._transfer(one, site)
        if transfer is None or transfer.source is None or transfer.lone_seconds is None:
            return None
        if named is not None and named != transfer.source and transfer.rate is not None:
            rate = self._rate(named, site)
            if rate is not None and rate.bytes_per_second > 0:
                return named, transfer.lone_seconds * transfer.rate.bytes_per_second / rate.bytes_per_second
        return transfer.source, transfer.lone_seconds

    def _transfer(self, one: DatasetSet, site: Site) -> Read | None:
        """Return the read from other sites; None if a size is unknown, or no rate to datasets is known."""
        if one.bytes_by_holders is None:
            return None
        parts = [part for part in self._holdings.missing_bytes(one, site).items() if part[1] > 0]
        missing = round(sum(size for _, size in parts))
        if any(not holders for holders, _ in parts):
            return Read(None, missing_bytes=missing)
        lone_seconds = seconds = mean_seconds = link_seconds = most = 0.0
        best: _ReadSource | None = None
        is_open = is_quiet = True
        for holders, size in parts:
            source = self._best_source(holders, site)
            if source is None:
                return None
            if source.rate.bytes_per_second <= 0:
                return Read(None, missing_bytes=missing)
            lone = size / source.rate.bytes_per_second
            lone_seconds += lone
            others = 1 + self._portion / 2
            seconds += lone * (self._readers.get(source.site, 0) + others)
            mean_seconds += lone * (self._mean_readers.get(source.site, 0.0) + others)
            link_seconds += size / source.best_rate
            is_open = is_open and source.is_open
            is_quiet = is_quiet and source.site not in self._busy
            if best is None or size > most:
                best, most = source, size
        if best is None:
            return Read(0.0, mean_seconds=0.0, link_seconds=0.0)
        return Read(
            seconds if is_open else None,
            lone_seconds,
            best.site,
            best.rate,
            missing,
            mean_seconds=mean_seconds if is_open else None,
            link_seconds=link_seconds,
            is_quiet=is_quiet,
        )

    def _sharers(self, source: Site) -> float:
        return self._readers.get(source, 0) + 1 + self._portion / 2

    def _best_source(self, holders: Holders, site: Site) -> _ReadSource | None:
        """Return the source among *holders* with the fastest read at *site*, an open one if there is one."""
        question = holders, site
        if question not in self._sources:
            answers = ((holder, self._rate(holder, site)) for holder in holders)
            rates = [(holder, rate) for holder, rate in answers if rate is not None]
            best_rate = max((rate.bytes_per_second for _, rate in rates), default=0.0)
            sources = [
                _ReadSource(holder, rate, holder not in self._closed, best_rate) for holder, rate in rates
            ]
            self._sources[question] = max(sources, key=self._preference, default=None)
        return self._sources[question]

    def _preference(self, source: _ReadSource) -> tuple[bool, bool, float, Site]:
        rate = source.rate.bytes_per_second
        return rate > 0, source.is_open, rate / self._sharers(source.site), source.site

    def _rate(self, source: Site, destination: Site) -> Rate | None:
        question = source, destination
        if question not in self._known_rates:
            self._known_rates[question] = self._rates.rate(source, destination)
        return self._known_rates[question]


@dataclass(frozen=True, slots=True)
class CycleSets:
    """The queue and the read of a set of datasets, as of one cycle."""

    holdings: Holdings
    queues: SiteQueues
    reads: Reads
    readers: Mapping[Site, int]
    now: datetime

    def estimate_queue(
        self, one: DatasetSet, cpus: float, previous: int | None, least: float = 0.0
    ) -> tuple[int, Site | None] | None:
        """Return the class of the queue seconds of *one*, and its site; None: its data is nowhere.

        At a site that still stages datasets, a job waits for the staging and for a slot at the same time. The
        queue seconds are *least* or more.
        """
        waits = []
        for site in self.queues.sites & self.holdings.sites.keys():
            ready_at = None if site in one.homes else self.holdings.ready_at(one, site)
            if site in one.homes or ready_at is not None:
                staging = (ready_at - self.now).total_seconds() if ready_at else 0.0
                waits.append((max(staging, self.queues.seconds(site, cpus)), site))
        seconds, queue_site = min(waits, default=(float(NO_QUEUE_SECONDS), None))
        if queue_site is None and () in (one.bytes_by_holders or {}):
            return None
        seconds = max(seconds, least)
        if seconds >= NO_QUEUE_SECONDS:
            queue_site = None
        return to_class(seconds, previous), queue_site

    def build_estimate(self, read: Read, queue: tuple[int, Site | None], old_read: int | None) -> SetEstimate:
        """Build the estimate of a set at one site; *old_read* is the class of the last cycle's read."""
        return SetEstimate(
            None if read.seconds is None else to_class(read.seconds, old_read),
            queue[0],
            read.source,
            read.lone_seconds,
            self.readers.get(read.source, 0) if read.source else 0,
            read.missing_bytes,
            read.rate,
            queue[1],
            read.ready_at,
        )
