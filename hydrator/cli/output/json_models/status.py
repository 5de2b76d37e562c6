"""Model of the output of ``hydrator status --json``."""

from typing import Literal

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import Count, UnixTime
from hydrator.staging.overview import StagingOverview

from .cycle import DemandProblemsJson, PublisherProblemsJson, PublishResultJson


class CatalogueStatusJson(TypedDict):
    """The last answer of one catalogue.

    Attributes:
        catalogue: its name.
        read: time of its last answer.
        sites: sites that it covers.
        datasets: datasets recorded from it.
        failure: reason of its last failure.
        unmapped: storage elements without a site.
    """

    catalogue: str
    read: UnixTime | None
    sites: list[str]
    datasets: Count
    failure: str | None
    unmapped: list[str]


class DemandStatusJson(DemandProblemsJson):
    """The demand of all jobs, pins and patterns.

    Attributes:
        datasets: datasets that jobs, pins and patterns want.
        jobs: jobs that name datasets.
        kept_datasets: further datasets, which no job names any more; the daemon still publishes them.
        kept_until: time until which it does; null: there are none.
        absent_datasets: datasets that no catalogue has at any site; check the spelling.
    """

    datasets: Count
    jobs: Count
    kept_datasets: Count
    kept_until: UnixTime | None
    absent_datasets: list[str]


class OpeningsStatusJson(TypedDict):
    """The pacing of reads from elsewhere in the last cycle.

    Attributes:
        at: time of the cycle whose openings were saved last; null: none were saved.
        open_until: time until which jobs use them.
        sets: sets of datasets, or lanes of sets, that are open at some site now.
        backlog: idle jobs whose set is whole at a site; those of several sites count at each.
        none: reason why nothing is open now; null if the daemon paces reads.
    """

    at: UnixTime | None
    open_until: UnixTime | None
    sets: Count
    backlog: Count
    none: str | None


class HeldLossJson(TypedDict):
    """Datasets that are missing at a site, and that the removal guard still publishes there.

    Attributes:
        site: site of the held change.
        since: first poll that showed the loss.
        cause: site or all: too many datasets would vanish; unnamed: no catalogue lists the site.
        datasets: datasets that the change would remove.
        listed_count: datasets listed now.
        polls: polls that confirmed the loss.
        polls_needed: polls that release it; null: only `hydrator approve` releases it.
        why: one sentence.
    """

    site: str
    since: UnixTime
    cause: str
    datasets: Count
    listed_count: Count
    polls: Count
    polls_needed: Count | None
    why: str


class PublisherStatusJson(PublishResultJson):
    """The last result of one publisher.

    Attributes:
        publisher: its name.
    """

    publisher: str


class CredentialJson(TypedDict):
    """A token or certificate that expires.

    Attributes:
        credential: its name.
        expires_at: end of its validity.
        issued_at: start of its validity.
        renewed_by: party that renews it.
        docs_section: section of docs/operators/credentials.md.
    """

    credential: str
    expires_at: UnixTime
    issued_at: UnixTime | None
    renewed_by: Literal["daemon", "operator"]
    docs_section: str


class ReloadFailureJson(TypedDict):
    """A reload of the configuration that failed.

    Attributes:
        at: time of the reload.
        problems: problems of the configuration file.
    """

    at: UnixTime
    problems: list[str]


class StatusJson(PublisherProblemsJson):
    """The daemon's state.

    Attributes:
        last_cycle: start of the last cycle; null before the first.
        complete: no part of that cycle failed.
        catalogues: each configured catalogue.
        demand: wanted datasets.
        openings: pacing of reads from elsewhere.
        staging: pins and requests of data; null: staging is off.
        held: held changes; `hydrator approve` releases them.
        publishers: result of each publisher.
        credentials: credentials that expire.
        reload: refused reload: the daemon uses the configuration before it; null: the last file is in use.
        daemon_problem: reason why the daemon counts as stopped or hung; null: it runs.
    """

    last_cycle: UnixTime | None
    complete: bool | None
    catalogues: list[CatalogueStatusJson]
    demand: DemandStatusJson
    openings: OpeningsStatusJson
    staging: StagingOverview | None
    held: list[HeldLossJson]
    publishers: list[PublisherStatusJson]
    credentials: list[CredentialJson]
    reload: ReloadFailureJson | None
    daemon_problem: str | None
