"""Model of ``replay``."""

from typing import Literal

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import BySite, Count, Seconds, Share


class ShareValueJson(TypedDict):
    """A share with its interval."""

    value: Share | None
    """the share; null: unknown"""
    low: Share | None
    """lower end of the 95 % interval; null: too few runs, days and users"""
    high: Share | None
    """upper end of that interval"""


class SecondsValueJson(TypedDict):
    """A time with its interval."""

    value: Seconds | None
    """the time; null: unknown"""
    low: Seconds | None
    """lower end of the 95 % interval; null: too few runs, days and users"""
    high: Seconds | None
    """upper end of that interval"""


class BytesValueJson(TypedDict):
    """Bytes with their interval."""

    value: float | None
    """the bytes, a mean over the runs; null: unknown"""
    low: float | None
    """lower end of the 95 % interval; null: too few runs, days and users"""
    high: float | None
    """upper end of that interval"""


class PolicyResultJson(TypedDict):
    """The result of one policy in the model."""

    policy: str
    """the policy, as --policy has it; history: the jobs as they ran"""
    share_of_jobs: ShareValueJson
    """share of the jobs with datasets that ran at a site with all of them"""
    share_of_bytes: ShareValueJson
    """share of the bytes that were at the job's site"""
    bytes_moved: BytesValueJson
    """bytes that jobs read from other sites"""
    makespan_seconds: SecondsValueJson
    """from the first submission to the end of the last job"""
    wait_mean_seconds: SecondsValueJson
    """mean time from submission to start"""
    wait_p95_seconds: SecondsValueJson
    """95 % of the jobs started within this time"""
    never_started: Count
    """jobs that matched no slot until the end"""


class ReplaySiteJson(TypedDict):
    """A site of the model."""

    site: str
    """its name"""
    machines: Count
    """its partitionable slots"""
    cores: Count
    """cores of all its slots"""
    bytes_per_second: float | None
    """rate for all readers of its data together; null: unknown, but see rates_to"""
    rates_to: BySite[float]
    """rates to sites where the daemon knows them; from a source of unknown rate, a read takes no time"""


class ReplayJson(TypedDict):
    """The results of policies in a model of the pool."""

    version: Literal[1]
    """version of this document"""
    jobs: Count
    """replayed jobs"""
    seeds: Count
    """runs of each policy"""
    resampled: Literal["days", "users", "seeds", "none"]
    """units that the intervals are resampled from; ``none``: the jobs of few days and users, no intervals"""
    sites: list[ReplaySiteJson]
    """the pool of the model"""
    policies: list[PolicyResultJson]
    """results by policy"""
    history: PolicyResultJson | None
    """the jobs as they ran; null: the jobs are not from a history"""
    unknowns: list[str]
    """facts that the history or the workload file does not have, and what was assumed"""
