"""Types of the HTTP API's answers. Times are Unix times in seconds; each class explains its keys.

The types are typed dictionaries, so the server does not spend time on validating thousands of rows.
Tests validate the answers.
"""

from typing import Final, Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic accepts typing.TypedDict only from Python 3.12 on

from hydrator.domain.model import DatasetState

CLOSED: Final = ConfigDict(extra="forbid")


@with_config(CLOSED)
class Error(TypedDict):
    """An error.

    Attributes:
        error: its kind in a few words.
        detail: one sentence.
        ready: false while the daemon has no complete state.
        status: hung, if the daemon's cycles hang.
        similar_sites: known sites with a similar name.
    """

    error: str
    detail: str
    ready: NotRequired[Literal[False]]
    status: NotRequired[Literal["hung"]]
    similar_sites: NotRequired[list[str]]


@with_config(CLOSED)
class SiteAnswer(TypedDict):
    """One site with an ad.

    Attributes:
        site: its name.
        generation: a number that grows when the site's facts change.
        as_of: time of the last complete reading of the site.
        age_seconds: the age of this reading.
        published_at: time of the last publication.
        known_datasets: datasets with a state at the site; null before the first reading.
        held: reason why the daemon does not change this ad; null if there is none.
        ad: path of the ad on this server.
        backlog: idle jobs whose set of datasets is whole at the site; null: the daemon does not know them.
        open_until: until when the site's openings are valid; null: there are none.
    """

    site: str
    generation: int
    as_of: int
    age_seconds: int
    published_at: float
    known_datasets: int | None
    held: str | None
    ad: str
    backlog: int | None
    open_until: int | None


@with_config(CLOSED)
class Sites(TypedDict):
    """All sites with an ad.

    Attributes:
        version: version of this answer.
        now: time of the answer.
        sites: the sites.
    """

    version: Literal[1]
    now: int
    sites: list[SiteAnswer]


@with_config(CLOSED)
class ProvenanceAnswer(TypedDict, total=False):
    """Source of a dataset's state at a site; only the fields that the catalogue gives.

    Attributes:
        reason: reason of the state.
        rule: rule that holds or transfers the data.
        account: account of the rule.
        expires_at: end of the rule.
        ready_at: expected time of completion.
        ready_error: uncertainty of that time, in seconds, plus or minus.
    """

    reason: str
    rule: str
    account: str
    expires_at: int
    ready_at: int
    ready_error: float


@with_config(CLOSED)
class FactAnswer(TypedDict):
    """State of a dataset at one site.

    Attributes:
        site: the site.
        state: the state there.
        fraction: share of the bytes on disk, 0 to 1; null: unknown, or all if the state is AVAILABLE.
        as_of: time of this fact.
        age_seconds: the age of this fact.
        provenance: the source of the state.
    """

    site: str
    state: DatasetState
    fraction: float | None
    as_of: int
    age_seconds: int
    provenance: ProvenanceAnswer


@with_config(CLOSED)
class PathAnswer(TypedDict):
    """The path of a dataset for jobs at one site.

    Attributes:
        site: the site.
        path: the path of the dataset, which is one file or folder.
    """

    site: str
    path: str


@with_config(CLOSED)
class DatasetAnswer(TypedDict):
    """One dataset and the sites that have it.

    Attributes:
        did: its name, scope:name.
        demanded: a job, pin or pattern names it; else the daemon does not poll it, and its sites are unknown.
        jobs: jobs that name it.
        bytes: its size; null: unknown.
        unseen: reason why no catalogue answered for this dataset; the dataset may exist.
        clashes_with: datasets that differ from it in letter case only.
        left_out_at: sites whose ads leave out the dataset because of the size budget.
        similar_names: similar names that exist; only if the query names this dataset and no site has it.
        sites: the sites that have it.
        paths: where jobs would find it at each site, by the daemon's [[storage]]; only if the query names it.
    """

    did: str
    demanded: bool
    jobs: int
    bytes: int | None
    unseen: str | None
    clashes_with: list[str]
    left_out_at: list[str]
    similar_names: list[str]
    sites: list[FactAnswer]
    paths: list[PathAnswer]


@with_config(CLOSED)
class Datasets(TypedDict):
    """One page of datasets.

    Attributes:
        version: version of this answer.
        now: time of the answer.
        datasets: the datasets, in the order of their names.
        next: value of the parameter `after` for the next page; null on the last page.
    """

    version: Literal[1]
    now: int
    datasets: list[DatasetAnswer]
    next: str | None


@with_config(CLOSED)
class SetAtSite(TypedDict):
    """A set of datasets at one site, as the site's ad gives it to the jobs.

    Attributes:
        site: the site.
        share: share of the bytes on disk, 0 to 1; 1: all are usable.
        as_of: time of the oldest fact behind the share.
        open_seconds: seconds that a job here reads the missing data; null: the set is not open here.
        read_from: the site from which a job here would read.
    """

    site: str
    share: float
    as_of: int
    open_seconds: int | None
    read_from: str | None


@with_config(CLOSED)
class OutlookAnswer(TypedDict):
    """The prospect of the waiting jobs of a set.

    Attributes:
        reason: beside: its data is at the sites; open: the jobs may start at the sites now by reading; turn:
            the link of the site feeds other sets before it; absent: no site has its data on disk; nowhere:
            no site has slots that are large enough.
        sites: the sites.
        before: jobs or sets that come before.
    """

    reason: str
    sites: list[str]
    before: int


@with_config(CLOSED)
class DatasetSetAnswer(TypedDict):
    """A set of datasets that queued jobs need together.

    Attributes:
        key: the DataLocalityKey of these jobs; null: no site answers for it, because other jobs have it too.
        datasets: number of datasets.
        example: one of the datasets.
        jobs: number of the jobs.
        bytes: bytes of all datasets; null: a size is unknown.
        sites: the set at each site.
        outlook: the prospect of its waiting `auto` jobs; null: there are none.
        staging: what was requested for it, or why not; null without the parameter `key`.
    """

    key: str | None
    datasets: int
    example: str
    jobs: int
    bytes: int | None
    sites: list[SetAtSite]
    outlook: OutlookAnswer | None
    staging: list[str] | None


@with_config(CLOSED)
class Sets(TypedDict):
    """The sets of datasets that queued jobs need.

    Attributes:
        version: version of this answer.
        now: time of the answer.
        openings_none: why the daemon has no openings; null if it has, or if not known.
        sets: the sets.
    """

    version: Literal[1]
    now: int
    openings_none: str | None
    sets: list[DatasetSetAnswer]


@with_config(CLOSED)
@with_config(CLOSED)
class Health(TypedDict):
    """Answer of /healthz while the daemon's cycles do not hang.

    Attributes:
        status: ok.
    """

    status: Literal["ok"]


@with_config(CLOSED)
class Ready(TypedDict):
    """The daemon has a complete state.

    Attributes:
        ready: true.
    """

    ready: Literal[True]
