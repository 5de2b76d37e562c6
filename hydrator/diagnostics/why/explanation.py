"""Values of an explanation of a job: causes, reasons, remedies, one answer for each site.

``hydrator why --json`` prints the fields of these classes, and of those in ``missing_data``,
``pool_facts`` and ``query``. "Attributes" describes their JSON keys.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from hydrator.domain.model import Site
from hydrator.domain.units import Bytes

from .missing_data import MissingDataset
from .pool_facts import JobFacts, SlotSetFacts


class MismatchCause(StrEnum):
    """Causes that keep a job from a slot, in the order in which :func:`.explain.funnel` applies them."""

    DATA = "data"
    UNREADABLE_DATA = "missed"  # the job ran at the site and could not read its data
    CORES = "cores"
    MEMORY = "memory"
    DISK = "disk"
    GPUS = "gpus"
    PLATFORM = "platform"
    PATH = "path"
    REQUIREMENT = "requirement"
    START = "start"
    BROKEN = "broken"  # the startd says that the slot cannot be used
    BUSY = "busy"
    SLOTS = "slots"  # the site has no slots


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why the job does not match some slots of a site.

    Attributes:
        cause: data, missed, cores, memory, disk, gpus, platform, path, requirement, start, broken…
        slots: slots that this reason excludes.
        text: the reason in one sentence.
        clauses: clauses of the job's or the slots' expressions that are not true.
        missing_datasets: datasets that the job cannot use at the site.
        set_facts: entries of the slots' ads for all the job's datasets together; null: the reason is not
            about data.
    """

    cause: MismatchCause
    slots: int
    text: str
    clauses: tuple[str, ...] = ()
    missing_datasets: tuple[MissingDataset, ...] = ()
    set_facts: SlotSetFacts | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that lets the job match; a small ``cost`` means little effort or a short wait.

    Attributes:
        cost: estimated effort: a small number means little effort or a short wait.
        text: the change.
        is_sure: false: the sites at which the job matches after the change are not known.
        copy_bytes: bytes that the data manager copies; null: no data is missing, or a size is unknown.
    """

    cost: int
    text: str
    is_sure: bool = True
    copy_bytes: Bytes | None = None

    @property
    def effort(self) -> tuple[int, float]:
        """Return what to order remedies by: the cost, then the bytes of a copy."""
        return self.cost, inf if self.copy_bytes is None else self.copy_bytes


@dataclass(frozen=True, slots=True)
class SiteMatch:
    """One site: its slots, the matching slots, the obstacles at the other slots, and the cheapest remedy.

    Attributes:
        site: name of the site.
        slots: slots of the site.
        matching_slots: slots of the site that match now.
        reasons: reasons why the other slots do not match.
        remedy: cheapest change that lets the job match at the site.
        held_change: change of the site's ad that the daemon holds back.
        pool: collector of the other pool, if the job's schedd flocks there.
    """

    site: Site
    slots: int
    matching_slots: int
    reasons: tuple[Reason, ...] = ()
    remedy: Remedy | None = None
    held_change: str | None = None
    pool: str = ""

    @property
    def display_name(self) -> str:
        """Return the site's name for people, with its pool if that is not the job's own pool."""
        return f"{self.site} (pool {self.pool}, by flocking)" if self.pool else self.site


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """The explanation of one job, or of several equal jobs.

    Attributes:
        job: the job.
        verdict: the answer in one sentence.
        matching_sites: sites with a slot that matches now.
        could_run: true if the job would match now, runs, or has run.
        notes: further remarks.
        wait: until when the job waits for its data.
        funnel: number of slots that remain after each cause of a mismatch.
        remedy: the cheapest change that lets the job match.
        sites: each site, with the obstacles at the site.
        staging: requests of the daemon for the job's data, or the reason why there is none; empty without
            staging.
    """

    job: JobFacts
    verdict: str
    matching_sites: tuple[str, ...]
    could_run: bool
    notes: tuple[str, ...] = ()
    wait: str | None = None
    funnel: str = ""
    remedy: str | None = None
    sites: tuple[SiteMatch, ...] = ()
    staging: tuple[str, ...] = ()
