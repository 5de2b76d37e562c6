"""The budget of a schedd: for how many jobs it asks the negotiator, and whether waiting jobs use it up.

A schedd asks for MAX_JOBS_RUNNING less its running jobs, one kind of a user's jobs after another. If the
first ones match nothing, the user's other jobs get no slot (HTCONDOR-3855, all releases up to 25.14).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hydrator.domain.untrusted import valid_integer

MATCH_LIMITS = "SCHEDD_ENABLE_PER_USER_MATCH_LIMITS"
"""A schedd of 25.14 with it asks for no more slots for a user with 20 kinds of jobs that match nothing, or
with many jobs that send their input."""
MATCH_LIMITS_EFFECT = (
    f"{MATCH_LIMITS} is on: if 20 kinds of jobs of one user wait, they starve that user's other jobs"
)
CURES = "give the waiting jobs a lower JobPrio, an accounting_group of their own, or max_idle"


@dataclass(frozen=True, slots=True)
class ScheddBudget:
    """The figures of a schedd's ad.

    Attributes:
        idle: idle jobs of the schedd.
        running: running jobs of the schedd.
        most: largest number of running jobs, MAX_JOBS_RUNNING.
    """

    idle: int
    running: int
    most: int

    @property
    def room(self) -> int:
        """Return the number of jobs for which the schedd asks the negotiator."""
        return max(0, self.most - self.running)

    @property
    def can_starve(self) -> bool:
        """Return True if so many jobs are idle that others may get no slot."""
        return 0 < self.idle >= self.room


def is_on(config: Mapping[str, str | None], setting: str, default: str = "false") -> bool:
    """Return True if *setting* is true in the *config* of a schedd; *default* counts if it is not set."""
    return (config.get(setting) or default).strip().lower() in {"true", "t", "yes", "1"}


def parse_budget(schedd: Mapping[str, Any]) -> ScheddBudget | None:
    """Parse the ad of a schedd; return None if it lacks a figure."""
    names = "TotalIdleJobs", "TotalRunningJobs", "MaxJobsRunning"
    idle, running, most = (valid_integer(schedd.get(name)) for name in names)
    return None if idle is None or running is None or not most else ScheddBudget(idle, running, most)
