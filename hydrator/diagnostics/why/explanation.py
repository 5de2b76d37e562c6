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
    """Causes that keep a job from a slot, in the order of the funnel."""

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
    """One obstacle between the job and ``slots`` slots of a site."""

    cause: MismatchCause
    is_about_data: bool
    slots: int
    text: str
    clauses: tuple[str, ...] = ()
    missing_datasets: tuple[MissingDataset, ...] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that lets the job match; a small ``cost`` means little effort or a short wait."""

    cost: int
    text: str


@dataclass(frozen=True, slots=True)
class SiteMatch:
    """One site: its slots, the matching ones, the obstacles at the others, and the cheapest remedy."""

    site: Site
    slots: int
    matching_slots: int
    reasons: tuple[Reason, ...] = ()
    remedy: Remedy | None = None
    dataset_counts: DatasetCounts | None = None
    """Counts of the job's datasets there; None if all of them count."""
    held_change: str | None = None
    """The change of the site's ad that the daemon holds back."""
    pool: str = ""
    """The collector of another pool to which the job's schedd flocks; empty for the job's own pool."""

    @property
    def display_name(self) -> str:
        """Return the site for people, with its pool if that is another one."""
        return f"{self.site} (pool {self.pool}, by flocking)" if self.pool else self.site


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """The explanation of one job, or of several equal ones."""

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
    """Limit or priority that keeps it from slots although some match."""
