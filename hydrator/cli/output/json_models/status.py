"""Model of the output of ``hydrator status --json``."""

from typing import Literal

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import BySite, Count, Share, UnixTime

from .cycle import DemandProblemsJson, PublisherProblemsJson, PublishResultJson
from .staging import StagingStatusJson


class TrustJson(TypedDict):
    """The audit's result for one site."""

    trust: Share
    """share of audited facts that were true; 1 before the first audit"""
    audited: Count
    """facts in the audit's window"""
    false: Count
    """audited facts that were false"""
    corrected: Count
    """datasets whose state the audit corrects now"""
    last_audit: UnixTime | None
    """time of the last audit"""


class CatalogueStatusJson(TypedDict):
    """The last answer of one catalogue."""

    catalogue: str
    """its name"""
    read: UnixTime | None
    """time of its last answer"""
    sites: list[str]
    """sites that it covers"""
    datasets: Count
    """datasets recorded from it"""
    failure: str | None
    """reason of its last failure"""
    unmapped: list[str]
    """storage elements without a site"""


class DemandStatusJson(DemandProblemsJson):
    """The demand of all jobs, pins and patterns."""

    datasets: Count
    """datasets that jobs, pins and patterns want"""
    jobs: Count
    """jobs that name datasets"""
    absent_datasets: list[str]
    """datasets that no catalogue has at any site; check the spelling"""


class EstimatesStatusJson(TypedDict):
    """The estimates of reads and queues in the last cycle."""

    at: UnixTime | None
    """time of the cycle whose estimates were saved last; null: none were saved"""
    valid_until: UnixTime | None
    """time until which jobs use them"""
    sets: Count
    """sets of datasets that have an estimate at some site now"""
    none: str | None
    """reason why jobs have no estimates now; null if they have some"""


class HeldLossJson(TypedDict):
    """Datasets that are missing at a site, and that the shrink breaker still publishes there."""

    site: str
    """site of the held change"""
    since: UnixTime
    """first poll that showed the loss"""
    cause: str
    """site or all: too many datasets would vanish; unnamed: no catalogue lists the site"""
    datasets: Count
    """datasets that the change would remove"""
    listed_count: Count
    """datasets listed now"""
    polls: Count
    """polls that confirmed the loss"""
    polls_needed: Count | None
    """polls that release it; null: only `hydrator approve` releases it"""
    why: str
    """one sentence"""


class PublisherStatusJson(PublishResultJson):
    """The last result of one publisher."""

    publisher: str
    """its name"""


class CredentialJson(TypedDict):
    """A token or certificate that expires."""

    credential: str
    """its name"""
    expires_at: UnixTime
    """end of its validity"""
    issued_at: UnixTime | None
    """start of its validity"""
    renewed_by: Literal["daemon", "operator"]
    """party that renews it"""
    docs_section: str
    """section of docs/reference/credentials.md"""


class ReloadFailureJson(TypedDict):
    """A reload of the configuration that failed."""

    at: UnixTime
    """time of the reload"""
    problems: list[str]
    """problems of the configuration file"""


class ExperimentStatusJson(TypedDict):
    """The last switchback experiment, and its block at this time."""

    since: UnixTime
    """its start"""
    until: UnixTime
    """its end"""
    block: Count | None
    """number of the block, from 1; null: no block runs"""
    blocks: Count
    """number of blocks in the plan"""
    is_observing: bool | None
    """jobs ignore where their data is; null: no block runs"""
    block_until: UnixTime | None
    """end of the block; null: no block runs"""


class StatusJson(PublisherProblemsJson):
    """The daemon's state."""

    last_cycle: UnixTime | None
    """start of the last cycle; null before the first"""
    complete: bool | None
    """no part of that cycle failed"""
    catalogues: list[CatalogueStatusJson]
    """each configured catalogue"""
    demand: DemandStatusJson
    """wanted datasets"""
    estimates: EstimatesStatusJson
    """estimates of reads and queues"""
    experiment: ExperimentStatusJson | None
    """switchback experiment; null: none has begun"""
    staging: StagingStatusJson | None
    """pins and requests of data; null: staging is off"""
    held: list[HeldLossJson]
    """held changes; `hydrator approve` releases them"""
    publishers: list[PublisherStatusJson]
    """result of each publisher"""
    trust: BySite[TrustJson]
    """result of the audit"""
    credentials: list[CredentialJson]
    """credentials that expire"""
    reload: ReloadFailureJson | None
    """refused reload: the daemon uses the configuration before it; null: the last file is in use"""
    daemon_problem: str | None
    """reason why the daemon counts as stopped or hung; null: it runs"""
