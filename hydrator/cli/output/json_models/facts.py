"""Models of ``sites``, ``datasets`` and ``check``."""

from typing import NotRequired

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


class ReadBackJson(TypedDict):
    """A site's ad as one publisher shows it.

    Attributes:
        generation: generation of the ad there.
        as_of: age of the facts in the ad there.
    """

    generation: Count
    as_of: UnixTime


class DatasetChangeJson(TypedDict):
    """One change of a dataset in a site's ad.

    Attributes:
        at: time of the decision.
        did: the dataset.
        before: its state before; null: not listed.
        after: its state after; null: not listed.
        why: one sentence.
    """

    at: UnixTime
    did: str
    before: str | None
    after: str | None
    why: str


class SiteJson(TypedDict):
    """One site.

    Attributes:
        site: its name.
        as_of: last complete read of the ad's site.
        generation: generation of the ad; null without an ad.
        truncated: the size budget left datasets out.
        held: datasets whose removal is held.
        states: wanted datasets by state.
        read_back: publishers that show the ad.
        changes: last changes of the ad, newest first; null for the list of all sites.
    """

    site: str
    as_of: UnixTime | None
    generation: Count | None
    truncated: bool | None
    held: Count
    states: ByState[Count]
    read_back: ByPublisher[ReadBackJson]
    changes: list[DatasetChangeJson] | None


class DatasetAtSiteJson(TypedDict):
    """The state of one dataset at one site.

    Attributes:
        state: its state there.
        fraction: share on disk there; null for none and for all.
        as_of: time of that fact.
    """

    state: StateName
    fraction: Share | None
    as_of: UnixTime


class DatasetJson(TypedDict):
    """One dataset.

    Attributes:
        did: scope:name.
        jobs: jobs that name it.
        wanted: a job, pin or pattern wants it, or a job did until lately.
        kept_until: end of this time if no job names it any more; null: a job, pin or pattern wants it, or
            nothing did.
        bytes: its size; null: unknown.
        unseen: reason why catalogues did not answer about it.
        clash: another dataset differs from it in letter case only.
        misspelt: spellings that a catalogue has; empty if a catalogue has the name.
        sites: sites with a record of it.
    """

    did: str
    jobs: Count
    wanted: bool
    kept_until: UnixTime | None
    bytes: Bytes | None
    unseen: str | None
    clash: bool
    misspelt: list[str]
    sites: BySite[DatasetAtSiteJson]


class ProvenanceDetailsJson(TypedDict):
    """Further facts from the catalogue about one state; keys without a value are left out.

    Attributes:
        call: query to the catalogue.
        storage: storage element.
        reason: reason of the state.
        rule: rule that holds or transfers the data.
        account: account of the rule.
        expires_at: end of the rule.
        ready_at: expected time of completion.
        ready_error: uncertainty of that time, plus or minus.
    """

    call: NotRequired[str]
    storage: NotRequired[str]
    reason: NotRequired[str]
    rule: NotRequired[str]
    account: NotRequired[str]
    expires_at: NotRequired[UnixTime]
    ready_at: NotRequired[UnixTime]
    ready_error: NotRequired[Seconds]


class DatasetSourceJson(TypedDict):
    """One catalogue's record of a dataset at a site.

    Attributes:
        did: scope:name.
        catalogue: catalogue of this record.
        unseen: reason why its last poll brought no answer about the dataset.
        site: site; null: at no site.
        state: its state there.
        as_of: time of the record.
        why: one line.
        fraction: share on disk there.
        storage: storage element.
        call: query to the catalogue.
        provenance: further facts from the catalogue.
    """

    did: str
    catalogue: str
    unseen: str | None
    site: str | None
    state: StateName | None
    as_of: UnixTime | None
    why: str
    fraction: NotRequired[Share | None]
    storage: NotRequired[str]
    call: NotRequired[str]
    provenance: NotRequired[ProvenanceDetailsJson]
