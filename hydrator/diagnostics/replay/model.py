"""Values of the replay: sites, classes of equal jobs, a workload, and the rules of the model.

Frozen values only. Times are seconds since the start of the workload; jobs are numbers, in the order of
their submission. A workload has columns, not an object for each job: a million jobs fit in 50 MB.
"""

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from hydrator.domain.errors import ConfigError
from hydrator.domain.model import Site
from hydrator.reconcile.estimates.estimate import EstimatePolicy
from hydrator.submit.expressions import Mode

from .expressions import TurnRules

PolicyMode = Mode | Literal["off"]
"""A job's mode. With ``off``, the pool has no data locality: every job may use every slot, without a rank."""


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy to replay: the mode of all jobs with data; ``name`` is what the user wrote, ``wait:1h``.

    The schedd rounds the end of ``wait_seconds`` up to a multiple of ``rounding_seconds``, see
    :meth:`wait_end`. With ``is_recorded``, each job has the mode that it had when it ran.
    """

    name: str
    mode: PolicyMode
    wait_seconds: float = 0.0
    rounding_seconds: float = 1.0
    is_recorded: bool = False

    def wait_end(self, submitted_at: float) -> float:
        """Return the end of the wait of a job that the schedd got at *submitted_at*, in Unix seconds.

        The transform of the pool configuration computes ``DataLocalityAnyAfter`` like this: the end is a
        multiple of the rounding, but at most of half the wait, and at least of a twelfth of it.
        """
        if self.mode == "require":
            return math.inf
        at, wait, rounding = math.floor(submitted_at), int(self.wait_seconds), int(self.rounding_seconds)
        step = max(min(rounding, wait // 2), wait // 12)
        return rounding * (at // rounding) + wait if not step else step * -((at + wait) // -step)


OFF = PolicyChoice("off", "off")
RECORDED = PolicyChoice("recorded", "off", is_recorded=True)
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class PolicyDefaults:
    """The pool's defaults for jobs that set no time: seconds that jobs of each mode wait.

    A ``wait`` job waits for ``wait_seconds``, a ``prefer`` job for ``settle_seconds``. An ``auto`` job waits
    for ``auto_settle_seconds`` at slots without estimates. The schedd rounds the end of a wait up to a
    multiple of ``rounding_seconds``.
    """

    wait_seconds: float = 3600.0
    settle_seconds: float = 600.0
    rounding_seconds: float = 300.0
    auto_settle_seconds: float = 600.0

    def wait_of(self, mode: object) -> float:
        """Return the seconds that a job of *mode* waits if it sets no time."""
        by_mode = {"wait": self.wait_seconds, "auto": self.auto_settle_seconds}
        return by_mode.get(str(mode), self.settle_seconds)


def parse_policy(text: str, defaults: PolicyDefaults) -> PolicyChoice:
    """Parse a policy as ``--policy`` has it: a mode, or a mode and the seconds to wait, ``wait:90m``.

    Raises:
        ConfigError: *text* is not a policy.
    """
    mode, colon, time = text.partition(":")
    if mode in {"off", "recorded"} and not colon:
        return OFF if mode == "off" else RECORDED
    match = re.fullmatch(r"(\d{1,8})(s|m|min|h|d|)", time)
    if mode not in get_args(Mode) or (colon and (match is None or mode == "require")):
        known = "off, recorded, require, auto, prefer, wait, or one of the last three with a time: wait:1h"
        raise ConfigError([f"--policy {text!r}: give one of {known}"])
    seconds = float(int(match[1]) * _UNITS[match[2]]) if match else defaults.wait_of(mode)
    return build_policy(text, mode, seconds, defaults.rounding_seconds)


def build_policy(name: str, mode: str, wait_seconds: float, rounding_seconds: float) -> PolicyChoice:
    """Build the policy *name* for jobs of *mode*.

    Raises:
        ValueError: *mode* is not a mode of jobs.
    """
    for known in get_args(Mode):
        if known == mode:
            return PolicyChoice(name, known, wait_seconds, rounding_seconds)
    raise ValueError(f"{mode!r} is not a mode")


@dataclass(frozen=True, slots=True)
class PoolSite:
    """A site: ``machine_count`` partitionable slots with ``machine_cores`` cores each.

    A site without machines only stores data. All readers of the site's data share its links. Without other
    readers, a job at another site reads at the rate in ``rates_to`` if it has one, else at
    ``bytes_per_second``. With n readers each of them gets 1/n of its rate. If the rate is unknown (None), a
    read takes no time.
    """

    name: Site
    machine_count: int
    machine_cores: int
    bytes_per_second: float | None = None
    rates_to: Mapping[Site, float] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        return self.machine_count * self.machine_cores

    def rate_to(self, destination: Site) -> float | None:
        """Return the bytes/s of a lone reader at *destination*; None if the rate is unknown."""
        return self.rates_to.get(destination, self.bytes_per_second)


@dataclass(frozen=True, slots=True)
class InputData:
    """Data that a job reads, and the sites that have it on disk. The holders do not change in a replay.

    ``name`` is a DID, or any name without spaces.
    """

    byte_count: int
    holders: frozenset[Site]
    name: str = ""


@dataclass(frozen=True, slots=True)
class JobClass:
    """The common properties of equal jobs; jobs without data have no ``inputs``.

    ``policy`` is the mode that the jobs had when they ran; None if it is unknown. ``expected_seconds`` is the
    computing time that the user has stated (``DataLocalityExpectedSeconds``).
    """

    user: str
    cores: int = 1
    inputs: tuple[InputData, ...] = ()
    policy: PolicyChoice | None = None
    expected_seconds: float | None = None

    def missing_at(self, site: Site) -> int:
        """Return the bytes that are not on disk at *site*."""
        return sum(one.byte_count for one in self.inputs if site not in one.holders)

    @property
    def byte_count(self) -> int:
        return sum(one.byte_count for one in self.inputs)

    def is_local_at(self, site: Site) -> bool:
        """Return True if *site* has all data of the jobs."""
        return all(site in one.holders for one in self.inputs)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The run of one job in the pool's history: its slot's site and its times, in workload seconds."""

    site: Site | None
    started_at: float
    ended_at: float


@dataclass(frozen=True)
class Workload:
    """Jobs and the pool that they run on.

    The job *n* has ``classes[class_of[n]]``, is submitted at ``submitted[n]`` and computes for
    ``compute_seconds[n]`` after it has read its data. ``submitted`` is sorted. ``unknowns`` are sentences
    about what the source of the workload does not have. ``begin_unix`` is the Unix time of second 0, 0 if
    the workload is generated. ``recorded`` has the runs of the history by job; empty without a history.
    """

    sites: tuple[PoolSite, ...]
    classes: tuple[JobClass, ...]
    submitted: "array[float]"
    compute_seconds: "array[float]"
    class_of: "array[int]"
    unknowns: tuple[str, ...] = ()
    begin_unix: int = 0
    recorded: Sequence[RecordedRun | None] = ()

    @property
    def job_count(self) -> int:
        return len(self.submitted)

    def with_unknowns(self, texts: Sequence[str]) -> "Workload":
        """Return the workload with *texts* as further unknowns."""
        return replace(self, unknowns=(*self.unknowns, *texts))


@dataclass(frozen=True, slots=True)
class PoolRules:
    """The pool's rules of matching, as HTCondor's defaults have them.

    Attributes:
        cycle_seconds: time between two negotiation cycles (NEGOTIATOR_INTERVAL).
        cycle_delay_seconds: a submission starts the next cycle at once, but not earlier than this time after
            the last one (NEGOTIATOR_CYCLE_DELAY).
        publish_seconds: time between two cycles of the daemon. Its ads have the state before the jobs that
            are submitted at the same time.
        delivery_seconds: time until slots have the ads of a daemon cycle: on average, half the time between
            two runs of the hook.
        claim_worklife_seconds: a claim takes no further job after this time (CLAIM_WORKLIFE).
        gap_seconds: time between two jobs of one claim.
        has_leftovers: the schedd uses the other cores of a matched slot (CLAIM_PARTITIONABLE_LEFTOVERS).
        is_claim_kept_by_rank: a claim takes only jobs that rank the slot as high as its first job did.
            True for job Ranks of contract 1; later contracts leave the job's Rank alone.
        is_published_beforehand: the ads have every set from the start, and all sets are settled. If False,
            a job's set is in the ads from the first daemon cycle after the first submission.
        settle_seconds: for this time, the ads of sites without all datasets of a new set do not show it.
        max_age_seconds: jobs do not use older facts.
        estimates: the settings of the daemon's estimates.
        has_learned_runs: the daemon knows the users' run times from earlier jobs. If False, it expects
            ``estimates.default_run`` until the first job has ended.
        others_weight: how much a site's own queue lowers the rank of its slots for jobs without datasets.
        priority_half_life_seconds: half-life of a user's past use (PRIORITY_HALFLIFE).
        turns: the turns in which auto jobs begin to read from a source; None in a pool without them.
    """

    cycle_seconds: float = 60.0
    cycle_delay_seconds: float = 20.0
    publish_seconds: float = 60.0
    delivery_seconds: float = 0.0
    claim_worklife_seconds: float = 1200.0
    gap_seconds: float = 1.0
    has_leftovers: bool = True
    is_claim_kept_by_rank: bool = False
    is_published_beforehand: bool = False
    settle_seconds: float = 600.0
    max_age_seconds: float = 20_700.0
    estimates: EstimatePolicy = field(default_factory=EstimatePolicy)
    has_learned_runs: bool = True
    others_weight: float = 1e6
    priority_half_life_seconds: float = 86_400.0
    turns: TurnRules | None = field(default_factory=TurnRules)


@dataclass(frozen=True)
class ReplayRun:
    """The result of one run of the model: by job, start, end, index of the site, and machine.

    Machines of a site have numbers from 0. A job that never started has the site and the machine -1; the
    history has no machines, so ``machine_of`` of its run is empty. ``policy`` and ``seed`` are the run's.
    ``bytes_moved`` are those that jobs needed from elsewhere; ``links_bytes_read`` are those that came over
    the link of each source, so reads of unknown rate are missing there.
    """

    workload: Workload
    policy: PolicyChoice
    seed: int
    started: "array[float]"
    ended: "array[float]"
    site_of: "array[int]"
    bytes_moved: int = 0
    evaluation_count: int = 0
    links_busy_seconds: dict[Site, float] = field(default_factory=dict)
    machine_of: "array[int]" = field(default_factory=lambda: array("i"))
    links_bytes_read: dict[Site, int] = field(default_factory=dict)

    @property
    def never_started_count(self) -> int:
        return sum(site < 0 for site in self.site_of)

    @property
    def makespan_seconds(self) -> float:
        """Return the time from the first submission to the end of the last job."""
        return max(self.ended, default=0.0) - (self.workload.submitted[0] if self.workload.submitted else 0.0)
