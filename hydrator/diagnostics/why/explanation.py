"""Values of an explanation of a job: causes, reasons, remedies, one answer for each site."""

from dataclasses import dataclass
from enum import StrEnum

from hydrator.domain.model import Site

from .missing_data import (
    DatasetCounts,
    MissingDataset,
)
from .pool_facts import JobFacts


class MismatchCause(StrEnum):
    """What keeps a job from a slot, in the order of the funnel."""

    DATA = "data"
    UNREADABLE_DATA = "missed"  # the job ran there and could not read its data
    CORES = "cores"
    MEMORY = "memory"
    DISK = "disk"
    GPUS = "gpus"
    PLATFORM = "platform"
    PATH = "path"
    REQUIREMENT = "requirement"
    START = "start"
    BUSY = "busy"
    SLOTS = "slots"  # the site has none


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps the job from ``slots`` slots of a site; ``ours`` when it is about data."""

    cause: MismatchCause
    is_about_data: bool
    slots: int
    text: str
    clauses: tuple[str, ...] = ()
    missing_datasets: tuple[MissingDataset, ...] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that lets the job match; the smaller the ``cost``, the sooner one would make it."""

    cost: int
    text: str


@dataclass(frozen=True, slots=True)
class SiteMatch:
    """One site: its slots, how many match now, what keeps the job from the others, what would help."""

    site: Site
    slots: int
    matching_slots: int
    reasons: tuple[Reason, ...] = ()
    remedy: Remedy | None = None
    dataset_counts: DatasetCounts | None = None
    """How many of the job's datasets count there, and what the others are; None where all count."""
    held_change: str | None = None
    """The change of the site's ad that the daemon holds back."""
    pool: str = ""
    """The collector of another pool, to which the job's schedd flocks; empty for the job's own."""

    @property
    def display_name(self) -> str:
        """The site for people, with its pool where that is another one."""
        return f"{self.site} (pool {self.pool}, by flocking)" if self.pool else self.site


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """All that can be said of one job (or of alike ones)."""

    job: JobFacts
    verdict: str
    matching_sites: tuple[str, ...]
    could_run: bool
    notes: tuple[str, ...] = ()
    wait: str | None = None
    funnel: str = ""
    remedy: str | None = None
    sites: tuple[SiteMatch, ...] = ()
    block_reason: str | None = None
    """Why no negotiator gives it a slot though some match: a limit or a priority."""
