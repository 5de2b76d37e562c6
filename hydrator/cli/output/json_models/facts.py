"""Models of ``sites``, ``datasets`` and ``check``."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import (
    ByPublisher,
    BySite,
    ByState,
    Bytes,
    Count,
    Seconds,
    Share,
    StateName,
    UnixTime,
)

from .status import TrustJson


class ReadBackJson(TypedDict):
    """A site's ad as one publisher shows it."""

    generation: Count
    """generation of the ad there"""
    as_of: UnixTime
    """age of the facts in the ad there"""


class DatasetChangeJson(TypedDict):
    """One change of a dataset in a site's ad."""

    at: UnixTime
    """time of the decision"""
    did: str
    """the dataset"""
    before: str | None
    """its state before; null: not listed"""
    after: str | None
    """its state after; null: not listed"""
    why: str
    """one sentence"""


class SiteJson(TrustJson):
    """One site."""

    site: str
    """its name"""
    as_of: UnixTime | None
    """last complete read of the ad's site"""
    generation: Count | None
    """generation of the ad; null without an ad"""
    truncated: bool | None
    """the size budget left datasets out"""
    held: Count
    """datasets whose removal is held"""
    states: ByState[Count]
    """wanted datasets by state"""
    read_back: ByPublisher[ReadBackJson]
    """publishers that show the ad"""
    changes: list[DatasetChangeJson] | None
    """last changes of the ad, newest first; null for the list of all sites"""


class DatasetAtSiteJson(TypedDict):
    """The state of one dataset at one site."""

    state: StateName
    """its state there"""
    fraction: Share | None
    """share on disk there; null for none and for all"""
    as_of: UnixTime
    """time of that fact"""


class DatasetJson(TypedDict):
    """One dataset."""

    did: str
    """scope:name"""
    jobs: Count
    """jobs that name it"""
    wanted: bool
    """a job, pin or pattern wants it"""
    bytes: Bytes | None
    """its size; null: unknown"""
    unseen: str | None
    """reason why catalogues did not answer about it"""
    clash: bool
    """another dataset differs from it in letter case only"""
    misspelt: list[str]
    """spellings that a catalogue has; empty if a catalogue has the name"""
    sites: BySite[DatasetAtSiteJson]
    """sites with a record of it"""


class ProvenanceDetailsJson(TypedDict):
    """Further facts from the catalogue about one state; keys without a value are left out."""

    call: NotRequired[str]
    """query to the catalogue"""
    storage: NotRequired[str]
    """storage element"""
    reason: NotRequired[str]
    """reason of the state"""
    rule: NotRequired[str]
    """rule that holds or transfers the data"""
    account: NotRequired[str]
    """account of the rule"""
    expires_at: NotRequired[UnixTime]
    """end of the rule"""
    ready_at: NotRequired[UnixTime]
    """expected time of completion"""
    ready_error: NotRequired[Seconds]
    """uncertainty of that time, plus or minus"""


class DatasetSourceJson(TypedDict):
    """One catalogue's record of a dataset at a site."""

    did: str
    """scope:name"""
    catalogue: str
    """catalogue of this record"""
    unseen: str | None
    """reason why its last poll brought no answer about the dataset"""
    site: str | None
    """site; null: at no site"""
    state: StateName | None
    """its state there"""
    as_of: UnixTime | None
    """time of the record"""
    why: str
    """one line"""
    fraction: NotRequired[Share | None]
    """share on disk there"""
    storage: NotRequired[str]
    """storage element"""
    call: NotRequired[str]
    """query to the catalogue"""
    provenance: NotRequired[ProvenanceDetailsJson]
    """further facts from the catalogue"""


class FindingJson(TypedDict):
    """One finding of ``hydrator check``."""

    level: Literal["ok", "advice", "warn", "fail"]
    """severity; any `fail` makes the exit status 1"""
    subject: str
    """examined part"""
    message: str
    """result"""
    todo: str
    """advice; empty for `ok`"""
