"""Values that ``--json`` prints, as typed models: a contract that tests keep and the docs show.

The JSON Schema of each command is derived from these (``json_schema.py``). Keys are added;
none is renamed or removed without a line in the CHANGELOG.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import Field
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Title:
    """The unit of a number, or the kind of an object's keys, as the schema's title."""

    text: str

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's hook
        return {**handler(schema), "title": self.text}


def means(text: str) -> Any:  # noqa: ANN401 - pydantic's Field
    """Attach the meaning of a key, for the schema and the docs."""
    return Field(description=text)


Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[int, Field(ge=0), Title("bytes")]
Share = Annotated[float, Field(ge=0, le=1), Title("share, 0 to 1")]
Seconds = Annotated[float, Title("seconds")]
UnixTime = Annotated[int, Field(ge=0), Title("Unix s")]
StateName = Literal["AVAILABLE", "STAGING", "PARTIAL", "NEARLINE", "STUCK", "UNKNOWN"]
LocalityMode = Literal["require", "wait", "prefer"]

BySite = Annotated[dict[str, _Value], Title("SITE")]
ByDid = Annotated[dict[str, _Value], Title("DID")]
ByName = Annotated[dict[str, _Value], Title("NAME")]
ByCatalogue = Annotated[dict[str, _Value], Title("CATALOGUE")]
ByPublisher = Annotated[dict[str, _Value], Title("PUBLISHER")]
BySchedd = Annotated[dict[str, _Value], Title("SCHEDD")]
ByState = Annotated[dict[str, _Value], Title("STATE")]
ByStatus = Annotated[dict[str, _Value], Title("STATUS")]
ByResource = Annotated[dict[str, _Value], Title("RESOURCE")]
ByAttribute = Annotated[dict[str, _Value], Title("ATTRIBUTE")]

Generation = Annotated[Count | None, means("of the ad; null without an ad")]
AsOf = Annotated[UnixTime | None, means("last complete read of the ad's site")]


# --- once, plan, status -----------------------------------------------------------------------------------


class ActionJson(TypedDict):
    """One action of a plan."""

    publisher: Annotated[str | None, means("target of the action; null for held changes")]
    site: Annotated[str, means("site of the ad")]
    action: Annotated[
        Literal["publish", "refresh", "hold", "withdraw", "noop", "held"], means("action on the ad")
    ]
    why: Annotated[str, means("reason; empty for routine actions")]
    generation: Generation
    as_of: AsOf


class LeftOutJson(TypedDict):
    """Datasets that the size budget left out of a site's ad."""

    datasets: Annotated[Count, means("number of these jobs' datasets left out of the site's ad")]
    first: Annotated[str, means("example of these datasets")]
    jobs: Annotated[Count, means("jobs that name them")]


class PublishResultJson(TypedDict):
    """The result of one publisher."""

    error: Annotated[str | None, means("reason of the failure")]
    not_read_back: Annotated[list[str], means("sites whose ad was sent but not read back")]
    ads: Annotated[Count, means("ads read back")]


Unseen = Annotated[ByDid[str], means("datasets that no catalogue answered about, with the reason")]
Refused = Annotated[ByName[str], means("names in jobs that are not DIDs, with the reason")]
Clashes = Annotated[list[list[str]], means("datasets that differ in letter case only; not advertised")]
Misspelt = Annotated[
    ByDid[list[str]],
    means("wanted datasets that no catalogue has, with the spellings that a catalogue has"),
]
Rivals = Annotated[ByPublisher[str], means("evidence that another daemon publishes there")]
Rejected = Annotated[
    ByPublisher[ByName[str]],
    means("ads read back there and not adopted, with the reason"),
]
Implausible = Annotated[
    BySite[Count], means("generations that hooks refuse; `hydrator renumber` replaces them")
]
LeftOut = Annotated[BySite[list[LeftOutJson]], means("datasets that the size budget left out")]


class OnceJson(TypedDict):
    """One cycle."""

    at: Annotated[UnixTime, means("start of the cycle")]
    complete: Annotated[bool, means("no part of the cycle failed")]
    catalogues: Annotated[ByCatalogue[str | None], means("reason of the failure; null: it answered")]
    publishers: Annotated[ByPublisher[PublishResultJson], means("result of each publisher")]
    left_out: LeftOut
    clashes: Clashes
    misspelt: Misspelt
    unseen: Unseen
    refused: Refused
    held: Annotated[
        BySite[str],
        means("sites whose ad is unchanged, with the reason: a held change, a rollback, a pending answer"),
    ]
    rejected: Rejected
    rivals: Rivals
    implausible_generations: Implausible
    plan: Annotated[list[ActionJson], means("actions taken, as in `hydrator plan`")]


class TrustJson(TypedDict):
    """The audit's result for one site."""

    trust: Annotated[Share, means("share of audited facts that were true; 1 before the first audit")]
    audited: Annotated[Count, means("facts in the audit's window")]
    false: Annotated[Count, means("audited facts that were false")]
    corrected: Annotated[Count, means("datasets whose state the audit corrects now")]
    last_audit: Annotated[UnixTime | None, means("time of the last audit")]


class CatalogueStatusJson(TypedDict):
    """The last answer of one catalogue."""

    catalogue: Annotated[str, means("its name")]
    read: Annotated[UnixTime | None, means("time of its last answer")]
    sites: Annotated[list[str], means("sites that it covers")]
    datasets: Annotated[Count, means("datasets recorded from it")]
    failure: Annotated[str | None, means("reason of its last failure")]
    unmapped: Annotated[list[str], means("storage elements without a site")]


class DemandStatusJson(TypedDict):
    """The demand of all jobs, pins and patterns."""

    datasets: Annotated[Count, means("datasets that jobs, pins and patterns want")]
    jobs: Annotated[Count, means("jobs that name datasets")]
    refused: Refused
    unseen: Unseen
    clashes: Clashes
    misspelt: Misspelt
    absent_datasets: Annotated[
        list[str], means("datasets that no catalogue has at any site; check the spelling")
    ]
    left_out: LeftOut


class HeldLossJson(TypedDict):
    """A loss of datasets that the shrink breaker holds back."""

    site: Annotated[str, means("site of the held change")]
    since: Annotated[UnixTime, means("first poll that showed the loss")]
    cause: Annotated[str, means("site, catalogue or unnamed: the part that shrank")]
    datasets: Annotated[Count, means("datasets that the change would remove")]
    listed_count: Annotated[Count, means("datasets listed now")]
    polls: Annotated[Count, means("polls that confirmed the loss")]
    polls_needed: Annotated[
        Count | None, means("polls that release it; null: only `hydrator approve` releases it")
    ]
    why: Annotated[str, means("one sentence")]


class RollbackStatusJson(TypedDict):
    """A site whose ad an operator rolled back."""

    site: Annotated[str, means("site that an operator rolled back")]
    since: Annotated[UnixTime, means("time of the rollback")]
    generation: Annotated[Count, means("generation of its ad now")]
    as_of: Annotated[UnixTime, means("age of the facts in that ad")]


class PublisherStatusJson(PublishResultJson):
    """The last result of one publisher."""

    publisher: Annotated[str, means("its name")]


class CredentialJson(TypedDict):
    """A token or certificate with an end."""

    credential: Annotated[str, means("its name")]
    expires_at: Annotated[UnixTime, means("end of its validity")]
    issued_at: Annotated[UnixTime | None, means("start of its validity")]
    renewed_by: Annotated[Literal["daemon", "operator"], means("party that renews it")]
    docs_section: Annotated[str, means("section of docs/reference/credentials.md")]


class ReloadFailureJson(TypedDict):
    """A reload of the configuration that failed."""

    at: Annotated[UnixTime, means("time of the reload")]
    problems: Annotated[list[str], means("problems of the configuration file")]


class StatusJson(TypedDict):
    """The daemon's state."""

    last_cycle: Annotated[UnixTime | None, means("start of the last cycle; null before the first")]
    complete: Annotated[bool | None, means("no part of that cycle failed")]
    catalogues: Annotated[list[CatalogueStatusJson], means("each configured catalogue")]
    demand: Annotated[DemandStatusJson, means("wanted datasets")]
    held: Annotated[list[HeldLossJson], means("held changes; `hydrator approve` releases them")]
    rolled_back: Annotated[list[RollbackStatusJson], means("`hydrator rollback SITE --end` ends a rollback")]
    publishers: Annotated[list[PublisherStatusJson], means("result of each publisher")]
    rejected: Rejected
    rivals: Rivals
    implausible_generations: Implausible
    trust: Annotated[BySite[TrustJson], means("result of the audit")]
    credentials: Annotated[list[CredentialJson], means("credentials that expire")]
    reload: Annotated[
        ReloadFailureJson | None,
        means("refused reload: the daemon uses the configuration before it; null: the last file is in use"),
    ]
    privacy_problem: Annotated[
        str | None, means("reason why names of private datasets may be lost; null without a problem")
    ]
    daemon_problem: Annotated[
        str | None, means("reason why the daemon counts as stopped or hung; null: it runs")
    ]


# --- sites, datasets, history -----------------------------------------------------------------------------


class ReadBackJson(TypedDict):
    """A site's ad as one publisher shows it."""

    generation: Annotated[Count, means("generation of the ad there")]
    as_of: Annotated[UnixTime, means("age of the facts in the ad there")]


class SiteJson(TrustJson):
    """One site."""

    site: Annotated[str, means("its name")]
    as_of: AsOf
    generation: Generation
    truncated: Annotated[bool | None, means("the size budget left datasets out")]
    held: Annotated[Count, means("datasets whose removal is held")]
    states: Annotated[ByState[Count], means("wanted datasets by state")]
    read_back: Annotated[ByPublisher[ReadBackJson], means("publishers that show the ad")]


class DatasetAtSiteJson(TypedDict):
    """The state of one dataset at one site."""

    state: Annotated[StateName, means("its state there")]
    fraction: Annotated[Share | None, means("share on disk there; null for none and for all")]
    as_of: Annotated[UnixTime, means("time of that fact")]


class DatasetJson(TypedDict):
    """One dataset."""

    did: Annotated[str, means("scope:name")]
    jobs: Annotated[Count, means("jobs that name it")]
    wanted: Annotated[bool, means("a job, pin or pattern wants it")]
    bytes: Annotated[Bytes | None, means("its size; null: unknown")]
    unseen: Annotated[str | None, means("reason why catalogues did not answer about it")]
    clash: Annotated[bool, means("another dataset differs from it in letter case only")]
    misspelt: Annotated[list[str], means("spellings that a catalogue has; empty if a catalogue has the name")]
    sites: Annotated[BySite[DatasetAtSiteJson], means("sites with a record of it")]


class ProvenanceDetailsJson(TypedDict):
    """Further facts from the catalogue about one state; keys without a value are left out."""

    call: NotRequired[Annotated[str, means("query to the catalogue")]]
    storage: NotRequired[Annotated[str, means("storage element")]]
    reason: NotRequired[Annotated[str, means("reason of the state")]]
    rule: NotRequired[Annotated[str, means("rule that holds or transfers the data")]]
    account: NotRequired[Annotated[str, means("account of the rule")]]
    expires_at: NotRequired[Annotated[UnixTime, means("end of the rule")]]
    ready_at: NotRequired[Annotated[UnixTime, means("expected time of completion")]]
    ready_error: NotRequired[Annotated[Seconds, means("uncertainty of that time, plus or minus")]]


class DatasetSourceJson(TypedDict):
    """One catalogue's record of a dataset at a site."""

    did: Annotated[str, means("scope:name")]
    catalogue: Annotated[str, means("catalogue of this record")]
    unseen: Annotated[str | None, means("reason why its last poll brought no answer about the dataset")]
    site: Annotated[str | None, means("site; null: at no site")]
    state: Annotated[StateName | None, means("its state there")]
    as_of: Annotated[UnixTime | None, means("time of the record")]
    why: Annotated[str, means("one line")]
    fraction: NotRequired[Annotated[Share | None, means("share on disk there")]]
    storage: NotRequired[Annotated[str, means("storage element")]]
    call: NotRequired[Annotated[str, means("query to the catalogue")]]
    provenance: NotRequired[Annotated[ProvenanceDetailsJson, means("further facts from the catalogue")]]


class DatasetChangeJson(TypedDict):
    """One changed dataset."""

    did: Annotated[str, means("the dataset")]
    before: Annotated[str | None, means("its state before; null: not listed")]
    after: Annotated[str | None, means("its state after; null: not listed")]
    why: Annotated[str, means("one sentence")]


class HistoryEntryJson(TypedDict):
    """One new generation of a site's ad."""

    at: Annotated[UnixTime, means("time of the decision")]
    site: Annotated[str, means("site of the ad")]
    generation: Annotated[Count, means("new generation of the ad")]
    as_of: Annotated[UnixTime, means("age of the facts in the ad")]
    published: Annotated[ByPublisher[UnixTime], means("time from which each publisher shows it")]
    changes: Annotated[list[DatasetChangeJson], means("changed datasets")]


class RollbackJson(TypedDict):
    """A rollback that the daemon will execute."""

    site: Annotated[str, means("site of the rollback")]
    generation: Annotated[Count | None, means("generation that returns; null with --end")]


class FindingJson(TypedDict):
    """One finding of ``hydrator check``."""

    level: Annotated[
        Literal["ok", "advice", "warn", "fail"], means("severity; any `fail` makes the exit status 1")
    ]
    subject: Annotated[str, means("examined part")]
    message: Annotated[str, means("result")]
    todo: Annotated[str, means("advice; empty for `ok`")]


# --- why --------------------------------------------------------------------------------------------------


class MissingDatasetJson(TypedDict):
    """A dataset that does not count at a site."""

    did: Annotated[str, means("the dataset as the job names it")]
    reason: Annotated[str, means("state, stale, not yet, elsewhere…")]
    text: Annotated[str, means("one sentence")]
    state: Annotated[str | None, means("state in the slot ads, else in the daemon's snapshot")]
    fraction: Annotated[Share | None, means("share on disk")]
    as_of: Annotated[UnixTime | None, means("time of that fact")]
    rule: Annotated[str | None, means("rule of the catalogue behind it")]
    explanation: Annotated[str | None, means("the catalogue's reason for that state")]
    missing_bytes: Annotated[Bytes | None, means("bytes still to arrive there; null: size unknown")]
    ready_at: Annotated[UnixTime | None, means("expected time of completion")]
    similar_names: Annotated[list[str], means("similar names that exist, for a name that no catalogue has")]


class ReasonJson(TypedDict):
    """One obstacle between a job and the slots of a site."""

    cause: Annotated[
        str, means("data, missed, cores, memory, disk, gpus, platform, path, requirement, start…")
    ]
    is_about_data: Annotated[bool, means("the cause is data")]
    slots: Annotated[Count, means("slots that it excludes")]
    text: Annotated[str, means("one sentence")]
    clauses: Annotated[list[str], means("clauses of the expressions that are not true")]
    missing_datasets: Annotated[list[MissingDatasetJson], means("datasets that do not count there")]


class RemedyJson(TypedDict):
    """A change that would let the job match."""

    cost: Annotated[Count, means("effort; the cheapest remedy is shown first")]
    text: Annotated[str, means("the change")]


class DatasetCountsJson(TypedDict):
    """Counts of a job's datasets at a site."""

    usable_count: Annotated[Count, means("datasets of the job that count there")]
    other_counts: Annotated[
        Annotated[dict[str, Count], Title("WORD")], means("the other datasets, by their condition there")
    ]
    missing_bytes: Annotated[Bytes | None, means("bytes still to arrive there, of datasets of known size")]
    has_all_sizes: Annotated[bool, means("the sizes of all missing datasets are known")]
    ready_at: Annotated[UnixTime | None, means("expected arrival of the last staging dataset")]


class SiteMatchJson(TypedDict):
    """One site, with the obstacles between the job and its slots."""

    site: Annotated[str, means("its name")]
    slots: Annotated[Count, means("its slots")]
    matching_slots: Annotated[Count, means("slots that match now")]
    reasons: Annotated[list[ReasonJson], means("obstacles at the other slots")]
    remedy: Annotated[RemedyJson | None, means("cheapest change that helps there")]
    dataset_counts: Annotated[DatasetCountsJson | None, means("null: all datasets count there")]
    held_change: Annotated[str | None, means("change of the site's ad that the daemon holds back")]
    pool: Annotated[str, means("collector of the other pool, for a schedd that flocks there")]


class MissJson(TypedDict):
    """A dataset that the job could not read where it ran."""

    site: Annotated[str, means("site of the run")]
    did: Annotated[str, means("the dataset")]
    missed_at: Annotated[UnixTime, means("time of the report")]


class JobFactsJson(TypedDict):
    """The explained job."""

    name: Annotated[str, means("CLUSTER.PROC")]
    schedd: Annotated[str, means("schedd of the job")]
    job_count: Annotated[Count, means("jobs of the cluster that share this answer")]
    status: Annotated[str | None, means("idle, running, held…")]
    datasets: Annotated[list[str], means("datasets that it names")]
    invalid_names: Annotated[ByName[str], means("names that are not DIDs, with the reason")]
    private_datasets: Annotated[list[str], means("private datasets that it names without a pseudonym")]
    mode: Annotated[str | None, means("require, wait or prefer")]
    any_after: Annotated[UnixTime | None, means("time from which it may run anywhere")]
    max_age_seconds: Annotated[Count | None, means("older facts do not count for it")]
    is_transformed: Annotated[bool, means("the schedd's transform was applied")]
    is_released: Annotated[bool, means("`hydrator release` lets it run anywhere")]
    opens_paths: Annotated[bool, means("it opens paths at the site and cannot fetch")]
    misses: Annotated[list[MissJson], means("datasets that it could not read where it ran, the oldest first")]
    missed_sites: Annotated[list[str], means("sites that it avoids since then")]
    missed_until: Annotated[UnixTime | None, means("time from which it tries them again")]
    concurrency_limits: Annotated[str, means("its ConcurrencyLimits")]
    uploads: Annotated[
        Count, means("jobs of its user at its schedd that send input files or wait to send them")
    ]
    max_uploads: Annotated[
        Count | None, means("from this many on, the schedd requests no slots for that user")
    ]
    can_release: Annotated[bool, means("the caller may release it with `hydrator release`")]
    requests: Annotated[ByResource[float], means("resources that it requests")]
    status_attributes: Annotated[ByAttribute[Any], means("attributes that explain its status")]


class JobExplanationJson(TypedDict):
    """The answer for one kind of jobs."""

    job: Annotated[JobFactsJson, means("the job")]
    verdict: Annotated[str, means("one sentence")]
    matching_sites: Annotated[list[str], means("sites with a slot that matches now")]
    could_run: Annotated[bool, means("it would match now, runs, or has run")]
    notes: Annotated[list[str], means("further remarks")]
    wait: Annotated[str | None, means("end of the wait for its data")]
    funnel: Annotated[str, means("slots left after each condition")]
    remedy: Annotated[str | None, means("the cheapest change that helps")]
    sites: Annotated[list[SiteMatchJson], means("each site, with the obstacles there")]
    block_reason: Annotated[str | None, means("limit or priority that keeps it from slots that match")]


class JobSummaryJson(TypedDict):
    """The kinds of jobs of a large cluster without an answer of their own."""

    job_kinds: Annotated[Count, means("kinds of jobs without an explanation")]
    jobs: Annotated[Count, means("jobs of these kinds")]
    by_status: Annotated[ByStatus[Count], means("jobs")]
    complete_by_site: Annotated[BySite[Count], means("idle jobs with all their data there")]
    complete_nowhere: Annotated[Count, means("idle jobs without a site that has all their data")]
    unknown_jobs: Annotated[Count, means("idle jobs whose data is unknown")]
    example: Annotated[str | None, means("one of these jobs")]


class WhyJson(TypedDict):
    """The answers of ``hydrator why``."""

    answers: Annotated[list[JobExplanationJson], means("one for each kind of jobs")]
    more: Annotated[JobSummaryJson, means("summary of the other jobs of a large cluster")]
    unreachable_schedds: Annotated[BySchedd[str], means("schedds that did not answer, with the reason")]


# --- report, submit, token --------------------------------------------------------------------------------


class LocalityCountsJson(TypedDict):
    """Jobs by the share of their data at their site."""

    all: Annotated[Count, means("all data was there")]
    some: Annotated[Count, means("some data was there")]
    none: Annotated[Count, means("no data was there")]
    unknown: Annotated[Count, means("unknown")]


class OutcomeCountsJson(TypedDict):
    """Outcomes of the jobs of one site, or of all."""

    jobs: Annotated[
        LocalityCountsJson, means("jobs that named datasets, by the share of their data at their site")
    ]
    share_of_jobs: Annotated[Share | None, means("share of jobs that found all data")]
    bytes_at_site: Annotated[Bytes, means("bytes that were there")]
    bytes_elsewhere: Annotated[Bytes, means("bytes that were not there")]
    share_of_bytes: Annotated[Share | None, means("share of bytes that were there")]
    jobs_that_missed: Annotated[Count, means("jobs that could not read data which their slot listed")]


class WaitJson(TypedDict):
    """Waiting times of jobs."""

    jobs: Annotated[Count, means("jobs that started")]
    median: Annotated[Seconds | None, means("from submission to the first start")]
    p90: Annotated[Seconds | None, means("the ninth decile")]


class WaitsJson(TypedDict):
    """Waiting times of jobs with and without datasets."""

    named: Annotated[WaitJson, means("jobs that named datasets")]
    unnamed: Annotated[WaitJson, means("jobs that named none")]
    added: Annotated[Seconds | None, means("difference of the two medians")]


class SiteOutcomesJson(OutcomeCountsJson):
    """Outcomes of the jobs of one site."""

    site: Annotated[str, means("its name")]


class ScheddHistoryJson(TypedDict):
    """The history of one schedd."""

    schedd: Annotated[str, means("its name")]
    jobs: Annotated[Count | None, means("jobs in its history; null: it did not answer")]
    complete: Annotated[bool, means("false: its history has more jobs than one answer returns")]
    failure: Annotated[str | None, means("reason why it did not answer")]


class ReportJson(OutcomeCountsJson):
    """The outcomes of jobs in a period."""

    version: Annotated[Literal[1], means("version of this document")]
    since: Annotated[UnixTime, means("start of the period in which the jobs ended")]
    until: Annotated[UnixTime, means("end of that period")]
    never_started: Annotated[Count, means("jobs that named datasets and never started")]
    datasets_without_size: Annotated[Count, means("datasets of unknown size")]
    missed_datasets: Annotated[Count, means("missed datasets, over all jobs")]
    wait_seconds: Annotated[WaitsJson, means("waiting times of jobs")]
    sites: Annotated[list[SiteOutcomesJson], means("the same by site")]
    schedds: Annotated[list[ScheddHistoryJson], means("queried schedds")]


class SiteOutlookJson(TypedDict):
    """One site where a Rapthor run could go."""

    site: Annotated[str, means("its name")]
    matches: Annotated[bool, means("the run would match there now")]
    available: Annotated[Count, means("datasets of the run that are there")]
    bytes_local: Annotated[Bytes | None, means("bytes of these datasets; null: sizes unknown")]
    facts_age_seconds: Annotated[Count | None, means("age of the oldest fact")]
    has_paths: Annotated[bool, means("a [[storage]] names the data's path there")]
    missing: Annotated[ByDid[str], means("datasets that are not there, with their state")]


class OutlookJson(TypedDict):
    """The outlook of a Rapthor run before its submission."""

    run: Annotated[str, means("its name")]
    datasets: Annotated[Count, means("datasets that it reads")]
    answers: Annotated[ByCatalogue[str], means("result of each catalogue's query")]
    sites: Annotated[list[SiteOutlookJson], means("candidate sites")]


class JobAdJson(TypedDict):
    """The attributes of a Rapthor job."""

    RequiredDatasets: Annotated[list[str], means("DIDs, sorted")]
    RequiredBytes: NotRequired[Annotated[ByDid[Bytes], means("known sizes")]]
    DataLocality: Annotated[LocalityMode, means("the mode")]
    DataLocalityMaxWait: NotRequired[Annotated[Count, means("seconds, if the user set them")]]
    RapthorRun: Annotated[str, means("name of the run")]


class TokenJson(TypedDict):
    """One token of the HTTP API."""

    key: Annotated[str, means("argument of `hydrator token revoke`")]
    made: Annotated[str, means("day of its creation, as 2026-11-21")]
    role: Annotated[str, means("read, submit, event, or site:NAME")]
