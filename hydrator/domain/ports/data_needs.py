"""Port to the queues of a pool: the datasets that jobs need, and the sites that match all else of a job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hydrator.domain.model import Site, Unseen


@dataclass(frozen=True, slots=True)
class DataNeed:
    """Jobs of one schedd that are alike: same owner, same datasets, and all idle or all running at one site.

    Args:
        datasets: the names in ``RequiredDatasets``, 1 or more, as in the job's ad.
        job_count: the number of jobs, 1 or more.
        user: the authenticated owner of the jobs, such as ``ann@example.org``.
        example: the id of the oldest of the jobs, such as ``12.0``.
        queued_since: the time since which the oldest of the jobs is idle; for running jobs, their last start.
        is_running: whether the jobs run.
        running_site: the site at which they run; None if they are idle or the site is unknown.
        matching_sites: the sites with a slot that matches the jobs, if the slot were empty and their data
            were there; None if this is unknown. Running jobs have None.
        is_data_missing: True if no slot matches the jobs, and one would if their data were there; None if
            this is unknown. Only such jobs wait for nothing else but data; held jobs do not.
    """

    datasets: tuple[str, ...]
    job_count: int
    user: str
    example: str
    queued_since: datetime
    is_running: bool = False
    running_site: Site | None = None
    matching_sites: frozenset[Site] | None = None
    is_data_missing: bool | None = None


class DataNeeds(Protocol):
    """The queues of a pool, as a source of the data that jobs need."""

    def read_needs(self) -> Mapping[str, Sequence[DataNeed] | Unseen]:
        """Return, by schedd, the jobs in its queue that name datasets, or the reason why they are unknown.

        Raises:
            PoolError: the collector could not list the schedds.
        """

    def close(self) -> None:
        """Close connections, also during a query."""
