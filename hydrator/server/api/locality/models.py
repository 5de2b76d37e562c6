"""Types of the requests and answers of /v1/locality; see :mod:`hydrator.server.api.models`."""

from typing import Annotated, Final, Literal, NotRequired

from pydantic import BeforeValidator, Field, with_config
from typing_extensions import TypedDict

from hydrator.domain.model import DatasetState
from hydrator.domain.untrusted import MAX_CLASSAD_INTEGER

from ..models import CLOSED, Count, DidText, Seconds, UnixTime

MAX_LOCALITY_DATASETS: Final = 10_000
MAX_LOCALITY_SITES: Final = 1000
MAX_SITE_CHARS: Final = 500
MAX_CPUS: Final = 10_000

# --- answers ----------------------------------------------------------------------------------------------


@with_config(CLOSED)
class LocalitySite(TypedDict):
    """A site in the answers of /v1/locality."""

    site: str
    as_of: Annotated[UnixTime, Field(description="time of the last complete reading of the site")]
    age_seconds: Count
    start_seconds: Annotated[
        Seconds | None,
        Field(
            description="time until one more job of so many cores starts at the site, whatever its data;"
            " null: unknown, or the site has no slots with so many cores"
        ),
    ]


@with_config(CLOSED)
class LocalityHead(TypedDict):
    """First line of the answer. A listed site without a row for a dataset does not have the dataset."""

    version: Literal[1]
    now: UnixTime
    datasets: Annotated[Count, Field(description="number of different datasets in the request")]
    estimates_none: Annotated[
        str | None, Field(description="why the daemon has no estimates in seconds; null if it has")
    ]
    unknown_sites: Annotated[
        list[str], Field(description="sites of the request that the daemon does not know")
    ]
    sites: list[LocalitySite]


@with_config(CLOSED)
class LocalityAtSite(TypedDict):
    """One dataset at one site."""

    site: str
    state: Annotated[
        DatasetState | Literal["ABSENT"],
        Field(description="ABSENT, for a site that the request names: the site does not have the dataset"),
    ]
    fraction: Annotated[float, Field(ge=0, le=1, description="share of the bytes on disk")] | None
    bytes: Annotated[Count | None, Field(description="bytes on disk; null: unknown")]
    as_of: UnixTime
    age_seconds: Count
    ready_at: Annotated[UnixTime | None, Field(description="expected end of the transfer; null: unknown")]
    eta_seconds: Annotated[Seconds | None, Field(description="time until ready_at; 0: it has passed")]
    read_seconds: Annotated[
        Seconds | None,
        Field(
            description="time until a job here could have read the missing data; null: unknown or unreachable"
        ),
    ]
    read_from: Annotated[str | None, Field(description="the site from which a job here would read")]


@with_config(CLOSED)
class LocalityRow(TypedDict):
    """One line for each dataset, in the order of the names."""

    did: DidText
    polled: Annotated[
        bool,
        Field(
            description="false: the daemon does not ask the catalogues for this dataset, because no job, pin"
            " or pattern names it; the sites that have it are then unknown"
        ),
    ]
    unseen: Annotated[
        str | None, Field(description="why no catalogue answered for this dataset in the last poll")
    ]
    bytes: Annotated[Count | None, Field(description="bytes of the whole dataset; null: unknown")]
    queue_seconds: Annotated[
        Seconds | None,
        Field(description="time until a slot beside the data comes free for one more job; null: unknown"),
    ]
    sites: list[LocalityAtSite]


@with_config(CLOSED)
class LocalityEnd(TypedDict):
    """Last line of the answer. An answer without this line is not complete."""

    next: Annotated[
        DidText | None,
        Field(description="value of `after` in the request for the next page; null on the last page"),
    ]


@with_config(CLOSED)
class SetLocalityAtSite(TypedDict):
    """A set of datasets at one site: could a job run there, and when would its data be usable?"""

    site: str
    share: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        Field(description="share of the bytes on disk; 1: all are usable; null: the state is unknown"),
    ]
    as_of: Annotated[UnixTime, Field(description="time of the oldest fact behind the share")]
    age_seconds: Count
    can_run: Annotated[
        bool | None, Field(description="whether the site has slots with so many cores; null: unknown")
    ]
    start_seconds: Annotated[
        Seconds | None, Field(description="time until one more such job starts at the site; null: unknown")
    ]
    usable_seconds: Annotated[
        Seconds | None,
        Field(
            description="time until a job at the site could have read all its data: 0 if all is on disk"
            " there; null: unknown or unreachable"
        ),
    ]
    read_seconds: Annotated[
        Seconds | None,
        Field(
            description="the daemon's estimate of the read of the missing data; null: unknown or unreachable"
        ),
    ]
    read_from: Annotated[str | None, Field(description="the site from which a job here would read")]
    ready_at: Annotated[
        UnixTime | None,
        Field(description="when the last missing dataset will be on disk here; null: unknown"),
    ]


@with_config(CLOSED)
class SetLocality(TypedDict):
    """A set of datasets at each site."""

    version: Literal[1]
    now: UnixTime
    key: Annotated[str, Field(description="the DataLocalityKey of a job that reads these datasets")]
    datasets: Annotated[Count, Field(description="number of different datasets in the request")]
    bytes: Annotated[Count | None, Field(description="bytes of all datasets; null: a size is unknown")]
    queue_seconds: Annotated[
        Seconds | None,
        Field(description="time until a slot beside the data comes free for one more job; null: unknown"),
    ]
    queue_site: Annotated[
        str | None,
        Field(description="the site of the next slot beside the data; null: unknown, or there is none"),
    ]
    not_polled: Annotated[
        Count,
        Field(
            description="number of datasets that no job, pin or pattern names, and of which the request has"
            " no facts; if not 0, all shares are null"
        ),
    ]
    not_polled_example: Annotated[DidText | None, Field(description="one of these datasets")]
    unseen: Annotated[Count, Field(description="number of datasets for which no catalogue answered lately")]
    estimates_none: Annotated[
        str | None, Field(description="why the daemon has no estimates in seconds; null if it has")
    ]
    unknown_sites: Annotated[
        list[str], Field(description="sites of the request that the daemon does not know")
    ]
    sites: list[SetLocalityAtSite]


# --- requests ---------------------------------------------------------------------------------------------

_LocalityDids = Annotated[
    list[DidText],
    Field(min_length=1, max_length=MAX_LOCALITY_DATASETS, description="datasets, scope:name"),
]
_SiteNames = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_SITE_CHARS)]],
    Field(max_length=MAX_LOCALITY_SITES, description="only these sites; default: all sites"),
]
_WHOLE: Final = BeforeValidator(
    lambda value: int(value) if isinstance(value, float) and value.is_integer() else value
)
"""In JSON, 45.0 is an integer, too."""
_Cpus = Annotated[int, Field(ge=1, le=MAX_CPUS, description="cores of a job; default: 1"), _WHOLE]


@with_config(CLOSED)
class LocalityQuery(TypedDict):
    """Body of POST /v1/locality."""

    datasets: _LocalityDids
    sites: NotRequired[_SiteNames]
    cpus: NotRequired[_Cpus]
    limit: NotRequired[
        Annotated[
            int,
            Field(
                ge=1,
                le=MAX_LOCALITY_DATASETS,
                description="largest number of datasets in one answer; default: all",
            ),
            _WHOLE,
        ]
    ]
    after: NotRequired[Annotated[DidText, Field(description="the field `next` of the previous page")]]


@with_config(CLOSED)
class GivenFacts(TypedDict):
    """Facts of the client about a dataset that the daemon does not poll."""

    bytes: Annotated[int, Field(ge=0, le=MAX_CLASSAD_INTEGER, description="bytes of the dataset"), _WHOLE]
    sites: Annotated[
        dict[
            Annotated[str, Field(min_length=1, max_length=MAX_SITE_CHARS)],
            Annotated[float, Field(ge=0, le=1, description="share of the bytes on disk")],
        ],
        Field(max_length=MAX_LOCALITY_SITES, description="by site; sites unknown to the daemon are ignored"),
    ]


@with_config(CLOSED)
class SetLocalityQuery(TypedDict):
    """Body of POST /v1/locality/set: datasets that one job reads together."""

    datasets: _LocalityDids
    sites: NotRequired[_SiteNames]
    cpus: NotRequired[_Cpus]
    facts: NotRequired[
        Annotated[
            dict[DidText, GivenFacts],
            Field(
                max_length=MAX_LOCALITY_DATASETS,
                description="what the client knows about datasets that the daemon does not poll; the daemon"
                " uses it for this answer only, and its own facts about all other datasets",
                json_schema_extra={"additionalProperties": False},
            ),
        ]
    ]
