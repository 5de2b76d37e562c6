"""Reads in the model: a job that starts away from its data first reads what its site does not have."""

import heapq
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from hydrator.domain.model import Site

from .lines import SiteState
from .model import JobClass


@dataclass(slots=True)
class _Reading:
    """A job that reads: its site, the parts that are left (bytes, sources), and the delay of its start."""

    destination: Site
    parts: list[tuple[int, tuple[int, ...]]]
    delay: float


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
        self._plans: dict[tuple[int, int], list[tuple[int, tuple[int, ...]]]] = {}
        self._readings: dict[int, _Reading] = {}
        self.bytes_moved = 0

    def begin(self, job: int, job_class: int, site: SiteState, now: float, delay: float) -> None:
        """Let *job*, which starts at *site*, read its missing data from *now* on, and then compute."""
        plan = self._plans.get((job_class, site.index))
        if plan is None:
            plan = self._plans[job_class, site.index] = self._build_plan(job_class, site)
        if not plan:
            heapq.heappush(self._events, (now + delay + self._compute_seconds[job], job))
            return
        self.bytes_moved += sum(size for size, _ in plan)
        self._readings[job] = _Reading(site.site.name, list(plan), delay)
        self._continue(job, now)

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
        while reading.parts:
            size, holders = reading.parts.pop()
            known = [
                (source.link, source, rate)
                for source in (self._sites[one] for one in holders)
                if source.link and (rate := source.site.rate_to(reading.destination))
            ]
            if len(known) == len(holders):  # from a source of unknown rate, the read takes no time
                link, site, rate = min(
                    known, key=lambda one: ((one[0].reader_count + 1) / one[2], one[1].index)
                )
                link.add_reader(job, size, now, rate)
                self._plan_next_end(site, now)
                return
        del self._readings[job]
        heapq.heappush(self._events, (now + reading.delay + self._compute_seconds[job], job))

    def _plan_next_end(self, site: SiteState, now: float) -> None:
        end = site.link.next_end() if site.link else None
        site.next_read_end = None if end is None else max(end, now)
        if site.next_read_end is not None:
            heapq.heappush(self._events, (site.next_read_end, -1 - site.index))

    def _build_plan(self, job_class: int, site: SiteState) -> list[tuple[int, tuple[int, ...]]]:
        """Return the parts that a job reads at *site*: bytes and sources."""
        sizes: dict[tuple[int, ...], int] = {}
        for data in self._classes[job_class].inputs:
            if site.site.name not in data.holders and data.holders:
                sources = tuple(sorted(self._site_numbers[one] for one in data.holders))
                sizes[sources] = sizes.get(sources, 0) + data.byte_count
        return [(size, sources) for sources, size in sizes.items()]
