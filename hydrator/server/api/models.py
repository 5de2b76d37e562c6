"""Types of the HTTP API's requests and answers; ``/v1/openapi.json`` is derived from them.

The types are typed dictionaries, so the server does not spend time on validating thousands of rows.
Tests validate the answers.
"""

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic accepts typing.TypedDict only from Python 3.12 on

from hydrator.domain.ads.dataset_sets import KEY_PATTERN, MAX_KEY_CHARS
from hydrator.domain.model import MAX_DID_CHARS, DatasetState

from .dataset_query import MAX_DATASETS

CLOSED: Final = ConfigDict(extra="forbid")

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[int, Field(ge=0)]
UnixTime = Annotated[int, Field(ge=0, description="Unix time, seconds")]
DidText = Annotated[
    str,
    Field(pattern="^[A-Za-z0-9._/@=+~-]+:[A-Za-z0-9._:/@=+~-]+$", max_length=MAX_DID_CHARS),
]

KeyText = Annotated[str, Field(pattern=KEY_PATTERN, max_length=MAX_KEY_CHARS)]

# --- answers ----------------------------------------------------------------------------------------------


@with_config(CLOSED)
class Error(TypedDict):
    """An error: ``error`` is the kind in a few words, ``detail`` is one sentence."""

    error: str
    detail: str
    ready: NotRequired[Literal[False]]
    status: NotRequired[Literal["hung"]]
    similar_sites: NotRequired[Annotated[list[str], Field(description="known sites with a similar name")]]


@with_config(CLOSED)
class SiteAnswer(TypedDict):
    """One site with an ad."""

    site: str
    generation: Count
    as_of: UnixTime
    age_seconds: Count
    published_at: Annotated[float, Field(description="time of the last publication; Unix time, seconds")]
    known_datasets: Count | None
    held: Annotated[
        str | None, Field(description="reason why the daemon does not change this ad; null if there is none")
    ]
    ad: Annotated[str, Field(description="path of the ad on this server")]
    own_queue_seconds: Annotated[
        Seconds | None,
        Field(
            description="time until the site has worked off the queued jobs whose data it has; null: the"
            " daemon has no valid estimates for the site"
        ),
    ]
    estimates_until: Annotated[
        UnixTime | None, Field(description="until when the site's estimates are valid; null: there are none")
    ]
    observing: Annotated[
        bool,
        Field(
            description="an observe-only block of an experiment runs at the site: jobs of all modes except"
            " require match any slot, so do not steer them by the site's datasets"
        ),
    ]


@with_config(CLOSED)
class Sites(TypedDict):
    """All sites with an ad."""

    version: Literal[1]
    now: UnixTime
    sites: list[SiteAnswer]


@with_config(CLOSED)
class ProvenanceAnswer(TypedDict, total=False):
    """Source of a dataset's state at a site; only the fields that the catalogue gives."""

    reason: str
    rule: str
    account: str
    expires_at: UnixTime
    ready_at: UnixTime
    ready_error: Annotated[float, Field(ge=0, description="seconds")]


@with_config(CLOSED)
class FactAnswer(TypedDict):
    """State of a dataset at one site."""

    site: str
    state: DatasetState
    fraction: Annotated[float, Field(ge=0, le=1)] | None
    as_of: UnixTime
    age_seconds: Count
    provenance: ProvenanceAnswer


@with_config(CLOSED)
class DatasetAnswer(TypedDict):
    """One dataset and the sites that have it."""

    did: DidText
    demanded: bool
    jobs: Count
    bytes: Count | None
    unseen: Annotated[
        str | None,
        Field(description="reason why no catalogue answered for this dataset; the dataset may exist"),
    ]
    clashes_with: list[DidText]
    left_out_at: Annotated[
        list[str], Field(description="sites whose ads leave out the dataset because of the size budget")
    ]
    similar_names: Annotated[
        list[DidText],
        Field(
            description="similar names that exist; only if the query names this dataset and no site has it"
        ),
    ]
    sites: list[FactAnswer]


@with_config(CLOSED)
class Datasets(TypedDict):
    """One page of datasets."""

    version: Literal[1]
    now: UnixTime
    datasets: list[DatasetAnswer]
    next: Annotated[
        DidText | None, Field(description="value of `after` for the next page; null on the last page")
    ]


@with_config(CLOSED)
class SetAtSite(TypedDict):
    """A set of datasets at one site, as the site's ad gives it to the jobs."""

    site: str
    share: Annotated[float, Field(ge=0, le=1, description="share of the bytes on disk; 1: all are usable")]
    as_of: UnixTime
    read_seconds: Annotated[
        Seconds | None,
        Field(
            description="time until a job here could have read the missing data; null: unknown or unreachable"
        ),
    ]
    queue_seconds: Annotated[
        Seconds | None,
        Field(description="time until a slot beside the data comes free for one more job; null: unknown"),
    ]
    read_from: Annotated[str | None, Field(description="the site from which a job here would read")]
    queue_site: Annotated[
        str | None,
        Field(description="the site of the next slot beside the data; null: unknown, or there is none"),
    ]


@with_config(CLOSED)
class DatasetSetAnswer(TypedDict):
    """A set of datasets that queued jobs need together; ``key`` is their DataLocalityKey."""

    key: str
    datasets: Count
    example: Annotated[DidText, Field(description="one of the datasets")]
    jobs: Count
    bytes: Annotated[Count | None, Field(description="bytes of all datasets; null: a size is unknown")]
    sites: list[SetAtSite]
    staging: Annotated[
        list[str] | None, Field(description="what was requested for it, or why not; null without key=")
    ]


@with_config(CLOSED)
class Sets(TypedDict):
    """The sets of datasets that queued jobs need."""

    version: Literal[1]
    now: UnixTime
    estimates_none: Annotated[
        str | None, Field(description="why the daemon has no estimates; null if it has, or if not known")
    ]
    sets: list[DatasetSetAnswer]


@with_config(CLOSED)
class NameAnswer(TypedDict):
    """A dataset and the name that jobs use for it."""

    did: DidText
    name: str


@with_config(CLOSED)
class Names(TypedDict):
    """The names that jobs use for datasets."""

    version: Literal[1]
    datasets: list[NameAnswer]


@with_config(CLOSED)
class Accepted(TypedDict):
    """The daemon accepted an event."""

    version: Literal[1]


@with_config(CLOSED)
class Health(TypedDict):
    """Answer of /healthz while the daemon's cycles do not hang."""

    status: Literal["ok"]


@with_config(CLOSED)
class Ready(TypedDict):
    """The daemon has a complete state."""

    ready: Literal[True]


# --- requests ---------------------------------------------------------------------------------------------


class AdParameters(TypedDict):
    site: Annotated[str, Field(min_length=1, max_length=500)]


AdHeaders = TypedDict(
    "AdHeaders",
    {
        "If-None-Match": NotRequired[
            Annotated[
                str,
                Field(pattern='^(W/)?"[0-9]{1,15}"$', description="the ETag of an earlier answer"),
            ]
        ]
    },
)


class DatasetsParameters(TypedDict, total=False):
    did: Annotated[
        list[DidText],
        Field(description="a dataset, scope:name; repeatable; default: all demanded datasets"),
    ]
    limit: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_DATASETS,
            description="largest number of datasets in one answer; default: all named datasets",
        ),
    ]
    after: Annotated[DidText, Field(description="the field `next` of the previous page")]


class SetsParameters(TypedDict, total=False):
    key: Annotated[
        list[KeyText],
        Field(description="the key of a set (DataLocalityKey); repeatable; default: the sets of most jobs"),
    ]


class NamesParameters(TypedDict):
    did: Annotated[list[DidText], Field(min_length=1, description="a dataset, scope:name; repeatable")]


class SiteParameters(TypedDict):
    site: Annotated[str, Field(min_length=1, max_length=500)]


class DatasetParameters(TypedDict):
    did: DidText


class RunParameters(TypedDict, total=False):
    run: Annotated[
        str, Field(min_length=1, max_length=500, description="RapthorRun or DataLocalityKey of the jobs")
    ]
    cluster: Annotated[str, Field(pattern=r"^[0-9]{1,10}$", description="a cluster of jobs, instead of run")]
    schedd: Annotated[str, Field(description="the schedd of the cluster; default: all schedds")]


class LiveParameters(TypedDict, total=False):
    have: Annotated[str, Field(description="the version that the client has; if it is old, an event comes")]


class WhyParameters(TypedDict, total=False):
    job: Annotated[
        str,
        Field(
            pattern=r"^[0-9]{1,10}(\.[0-9]{1,10})?$",
            description="a job (123.4) or a cluster (123); default: a page with only the form",
        ),
    ]
    schedd: Annotated[str, Field(description="the schedd of the job; default: all schedds")]


class Event(TypedDict):
    """An event as Rucio's daemon hermes sends it; the server ignores other keys."""

    event_type: str
    payload: dict[str, Any]
