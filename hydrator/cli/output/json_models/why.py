"""Models of ``why``."""

from typing import Annotated, Any

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from .units import (
    ByAttribute,
    ByName,
    ByResource,
    BySchedd,
    BySite,
    ByStatus,
    Bytes,
    Count,
    Share,
    Title,
    UnixTime,
)


class MissingDatasetJson(TypedDict):
    """A dataset that does not count at a site."""

    did: str
    """the dataset as the job names it"""
    reason: str
    """state, stale, not yet, elsewhere…"""
    text: str
    """one sentence"""
    state: str | None
    """state in the slot ads, else in the daemon's snapshot"""
    fraction: Share | None
    """share on disk"""
    as_of: UnixTime | None
    """time of that fact"""
    rule: str | None
    """rule of the catalogue behind it"""
    explanation: str | None
    """the catalogue's reason for that state"""
    missing_bytes: Bytes | None
    """bytes still to arrive there; null: size unknown"""
    ready_at: UnixTime | None
    """expected time of completion"""
    similar_names: list[str]
    """similar names that exist, for a name that no catalogue has"""


class ReasonJson(TypedDict):
    """One obstacle between a job and the slots of a site."""

    cause: str
    """data, missed, cores, memory, disk, gpus, platform, path, requirement, start…"""
    is_about_data: bool
    """the cause is data"""
    slots: Count
    """slots that it excludes"""
    text: str
    """one sentence"""
    clauses: list[str]
    """clauses of the expressions that are not true"""
    missing_datasets: list[MissingDatasetJson]
    """datasets that do not count there"""


class RemedyJson(TypedDict):
    """A change that would let the job match."""

    cost: Count
    """effort; the cheapest remedy is shown first"""
    text: str
    """the change"""


class DatasetCountsJson(TypedDict):
    """Counts of a job's datasets at a site."""

    usable_count: Count
    """datasets of the job that count there"""
    other_counts: Annotated[dict[str, Count], Title("WORD")]
    """the other datasets, by their condition there"""
    missing_bytes: Bytes | None
    """bytes still to arrive there, of datasets of known size"""
    has_all_sizes: bool
    """the sizes of all missing datasets are known"""
    ready_at: UnixTime | None
    """expected arrival of the last staging dataset"""


class SiteMatchJson(TypedDict):
    """One site, with the obstacles between the job and its slots."""

    site: str
    """its name"""
    slots: Count
    """its slots"""
    matching_slots: Count
    """slots that match now"""
    reasons: list[ReasonJson]
    """obstacles at the other slots"""
    remedy: RemedyJson | None
    """cheapest change that helps there"""
    dataset_counts: DatasetCountsJson | None
    """null: all datasets count there"""
    held_change: str | None
    """change of the site's ad that the daemon holds back"""
    pool: str
    """collector of the other pool, for a schedd that flocks there"""


class MissJson(TypedDict):
    """A dataset that the job could not read where it ran."""

    site: str
    """site of the run"""
    did: str
    """the dataset"""
    missed_at: UnixTime
    """time of the report"""


class JobFactsJson(TypedDict):
    """The explained job."""

    name: str
    """CLUSTER.PROC"""
    schedd: str
    """schedd of the job"""
    job_count: Count
    """jobs of the cluster that share this answer"""
    status: str | None
    """idle, running, held…"""
    datasets: list[str]
    """datasets that it names"""
    invalid_names: ByName[str]
    """names that are not DIDs, with the reason"""
    private_datasets: list[str]
    """private datasets that it names without a pseudonym"""
    mode: str | None
    """require, wait or prefer"""
    any_after: UnixTime | None
    """time from which it may run anywhere"""
    max_age_seconds: Count | None
    """older facts do not count for it"""
    is_transformed: bool
    """the schedd's transform was applied"""
    is_released: bool
    """`hydrator release` lets it run anywhere"""
    opens_paths: bool
    """it opens paths at the site and cannot fetch"""
    misses: list[MissJson]
    """datasets that it could not read where it ran, the oldest first"""
    missed_sites: list[str]
    """sites that it avoids since then"""
    missed_until: UnixTime | None
    """time from which it tries them again"""
    concurrency_limits: str
    """its ConcurrencyLimits"""
    uploads: Count
    """jobs of its user at its schedd that send input files or wait to send them"""
    max_uploads: Count | None
    """from this many on, the schedd requests no slots for that user"""
    can_release: bool
    """the caller may release it with `hydrator release`"""
    requests: ByResource[float]
    """resources that it requests"""
    status_attributes: ByAttribute[Any]
    """attributes that explain its status"""


class JobExplanationJson(TypedDict):
    """The answer for one kind of jobs."""

    job: JobFactsJson
    """the job"""
    verdict: str
    """one sentence"""
    matching_sites: list[str]
    """sites with a slot that matches now"""
    could_run: bool
    """it would match now, runs, or has run"""
    notes: list[str]
    """further remarks"""
    wait: str | None
    """end of the wait for its data"""
    funnel: str
    """slots left after each condition"""
    remedy: str | None
    """the cheapest change that helps"""
    sites: list[SiteMatchJson]
    """each site, with the obstacles there"""
    block_reason: str | None
    """limit or priority that keeps it from slots that match"""


class JobSummaryJson(TypedDict):
    """The kinds of jobs of a large cluster without an answer of their own."""

    job_kinds: Count
    """kinds of jobs without an explanation"""
    jobs: Count
    """jobs of these kinds"""
    by_status: ByStatus[Count]
    """jobs"""
    complete_by_site: BySite[Count]
    """idle jobs with all their data there"""
    complete_nowhere: Count
    """idle jobs without a site that has all their data"""
    unknown_jobs: Count
    """idle jobs whose data is unknown"""
    example: str | None
    """one of these jobs"""


class WhyJson(TypedDict):
    """The answers of ``hydrator why``."""

    answers: list[JobExplanationJson]
    """one for each kind of jobs"""
    more: JobSummaryJson
    """summary of the other jobs of a large cluster"""
    unreachable_schedds: BySchedd[str]
    """schedds that did not answer, with the reason"""
