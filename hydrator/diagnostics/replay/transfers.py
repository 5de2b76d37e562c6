"""Reads in the model: a job that starts away from its data first reads what its site does not have."""

import heapq
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from hydrator.domain.model import Site

from .lines import SiteState
from .links import SharedLink
from .model import JobClass

_Source = tuple[SharedLink, SiteState, float]
"""A source of a read: its link, its site, and the rate of a lone read in bytes/s."""


@dataclass(slots=True)
class _Reading:
    """A job that reads: the parts that are left (bytes, sources), and the delay of its start."""

    parts: list[tuple[int, list[_Source]]]
    delay: float


@dataclass(frozen=True, slots=True)
class _ReadPlan:
    """The reads of a job at one site: all bytes, and the parts of them whose sources have known rates.

    From a source of unknown rate, a read takes no time.
    """

    byte_count: int
    parts: list[tuple[int, list[_Source]]]


class Transfers:
    """The reads of all jobs. A job reads part after part, each from the source that is fastest then.

    Args:
        sites: the sites of the model, with their links.
        classes: the classes of jobs.
        compute_seconds: the computing time by job.
        events: the model's events (time, number): a job ends, or a read ends at the site -1 - number.
    """

    def __init__(
        self,
        sites: Sequence[SiteState],
        classes: Sequence[JobClass],
        compute_seconds: "array[float]",
        events: list[tuple[float, int]],
    ) -> None:
        self._sites, self._classes = sites, classes
        self._compute_seconds, self._events = compute_seconds, events
        self._site_numbers: dict[Site, int] = {site.site.name: site.index for site in sites}
        self._plans: dict[tuple[int, int], _ReadPlan] = {}
        self._readings: dict[int, _Reading] = {}
        self.bytes_moved = 0

    def begin(self, job: int, job_class: int, site: SiteState, now: float, delay: float) -> None:
        """Let *job*, which starts at *site*, read its missing data from *now* on, and then compute."""
        plan = self._plans.get((job_class, site.index))
        if plan is None:
            plan = self._plans[job_class, site.index] = self._build_plan(job_class, site)
        self.bytes_moved += plan.byte_count
        if plan.parts:
            self._readings[job] = _Reading(list(plan.parts), delay)
            self._continue(job, now)
        else:
            heapq.heappush(self._events, (now + delay + self._compute_seconds[job], job))

    def end_read(self, index: int, now: float) -> None:
        """End the read at the source *index* that is complete at *now*."""
        site = self._sites[index]
        if site.link is None or site.next_read_end != now:
            return  # another reader came since, so this event is outdated
        job = site.link.end_read(now)
        self._plan_next_end(site, now)
        self._continue(job, now)

    def _continue(self, job: int, now: float) -> None:
        """Begin the next part of the reads of *job*; after the last part, let the job compute."""
        reading = self._readings[job]
        if not reading.parts:
            del self._readings[job]
            heapq.heappush(self._events, (now + reading.delay + self._compute_seconds[job], job))
            return
        size, sources = reading.parts.pop()
        link, site, rate = sources[0] if len(sources) == 1 else min(sources, key=_load)
        link.add_reader(job, size, now, rate)
        self._plan_next_end(site, now)

    def _plan_next_end(self, site: SiteState, now: float) -> None:
        end = site.link.next_end() if site.link else None
        site.next_read_end = None if end is None else max(end, now)
        if site.next_read_end is not None:
            heapq.heappush(self._events, (site.next_read_end, -1 - site.index))

    def _build_plan(self, job_class: int, site: SiteState) -> _ReadPlan:
        sizes: dict[tuple[int, ...], int] = {}
        for data in self._classes[job_class].inputs:
            if site.site.name not in data.holders and data.holders:
                holders = tuple(sorted(self._site_numbers[one] for one in data.holders))
                sizes[holders] = sizes.get(holders, 0) + data.byte_count
        parts = []
        for holders, size in sizes.items():
            sources = [
                (source.link, source, rate)
                for source in (self._sites[one] for one in holders)
                if source.link and (rate := source.site.rate_to(site.site.name))
            ]
            if len(sources) == len(holders):
                parts.append((size, sources))
        return _ReadPlan(sum(sizes.values()), parts)


def _load(source: _Source) -> tuple[float, int]:
    """Return the time of one more byte from *source*, in s; sources with equal times have an order."""
    link, site, rate = source
    return (link.reader_count + 1) / rate, site.index
