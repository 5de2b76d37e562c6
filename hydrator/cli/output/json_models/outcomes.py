"""Models of ``report``, ``submit rapthor`` and ``token list``."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import (
    ByCatalogue,
    ByDid,
    Bytes,
    Count,
    LocalityMode,
    Seconds,
    Share,
    UnixTime,
)


class LocalityCountsJson(TypedDict):
    """Numbers of jobs, by the share of a job's data that was at the job's site."""

    all: Count
    """all data was there"""
    some: Count
    """some data was there"""
    none: Count
    """no data was there"""
    unknown: Count
    """unknown"""


class OutcomeCountsJson(TypedDict):
    """Outcomes of the jobs of one site, or of all sites."""

    jobs: LocalityCountsJson
    """jobs that named datasets, by the share of their data at their site"""
    share_of_jobs: Share | None
    """share of jobs that found all data"""
    bytes_at_site: Bytes
    """bytes that were there"""
    bytes_elsewhere: Bytes
    """bytes that were not there"""
    share_of_bytes: Share | None
    """share of bytes that were there"""
    jobs_that_missed: Count
    """jobs that could not read data which their slot listed"""


class WaitJson(TypedDict):
    """Waiting times of jobs."""

    jobs: Count
    """jobs that started"""
    median: Seconds | None
    """from submission to the first start"""
    p90: Seconds | None
    """the ninth decile"""


class WaitsJson(TypedDict):
    """Waiting times of jobs with and without datasets."""

    named: WaitJson
    """jobs that named datasets"""
    unnamed: WaitJson
    """jobs that named none"""
    added: Seconds | None
    """difference of the two medians"""


class SiteOutcomesJson(OutcomeCountsJson):
    """Outcomes of the jobs of one site."""

    site: str
    """its name"""


class ScheddHistoryJson(TypedDict):
    """The history of one schedd."""

    schedd: str
    """its name"""
    jobs: Count | None
    """jobs in its history; null: it did not answer"""
    complete: bool
    """false: its history has more jobs than one answer returns"""
    failure: str | None
    """reason why it did not answer"""


class ErrorFactorJson(TypedDict):
    """The factor, 1 or more, between predicted and real seconds of ended jobs; 2: twice or half as long."""

    samples: Count
    """compared jobs, of each kind at most the last 1,000"""
    median: float | None
    """median of the factor; null: no sample"""
    p90: float | None
    """0.9 quantile of the factor; null: no sample"""


class ErrorFactorsJson(TypedDict):
    """Errors of the daemon's estimates."""

    queue: ErrorFactorJson
    """wait of jobs beside their data"""
    read: ErrorFactorJson
    """read of jobs from other sites"""


class LostAdsJson(TypedDict):
    """The jobs of one site that started before the history of the site's ad."""

    site: str
    """its name"""
    jobs: Count
    """jobs"""
    begin: UnixTime
    """begin of the history"""


class ReportJson(OutcomeCountsJson):
    """The outcomes of jobs in a period."""

    version: Literal[1]
    """version of this document"""
    since: UnixTime
    """start of the period in which the jobs ended"""
    until: UnixTime
    """end of that period"""
    never_started: Count
    """jobs that named datasets and never started"""
    datasets_without_size: Count
    """datasets of unknown size"""
    missed_datasets: Count
    """missed datasets, over all jobs"""
    lost_ads: list[LostAdsJson]
    """sites with jobs whose result is unknown because the ad of their start is deleted"""
    wait_seconds: WaitsJson
    """waiting times of jobs"""
    estimate_error_factor: ErrorFactorsJson
    """predicted against real seconds"""
    sites: list[SiteOutcomesJson]
    """the same by site"""
    schedds: list[ScheddHistoryJson]
    """queried schedds"""


class SiteOutlookJson(TypedDict):
    """One site where a Rapthor run could start."""

    site: str
    """its name"""
    matches: bool
    """the run would match there now"""
    available: Count
    """datasets of the run that are there"""
    bytes_local: Bytes | None
    """bytes of these datasets; null: sizes unknown"""
    facts_age_seconds: Count | None
    """age of the oldest fact"""
    has_paths: bool
    """a [[storage]] names the data's path there"""
    missing: ByDid[str]
    """datasets that are not there, with their state"""


class OutlookJson(TypedDict):
    """The outlook of a Rapthor run before its submission."""

    run: str
    """its name"""
    datasets: Count
    """datasets that it reads"""
    answers: ByCatalogue[str]
    """result of each catalogue's query"""
    sites: list[SiteOutlookJson]
    """candidate sites"""


class JobAdJson(TypedDict):
    """The attributes of a Rapthor job."""

    RequiredDatasets: list[str]
    """DIDs, sorted"""
    DataLocalityKey: str
    """key by which the job looks up all its datasets"""
    RequiredBytes: NotRequired[ByDid[Bytes]]
    """known sizes"""
    DataLocality: NotRequired[LocalityMode]
    """the mode; left out: the pool's default"""
    DataLocalityMaxWait: NotRequired[Count]
    """seconds, if the user set them"""
    DataLocalityExpectedSeconds: NotRequired[Count]
    """run time that the user expects, if given, in seconds"""
    RapthorRun: str
    """name of the run"""


class TokenJson(TypedDict):
    """One token of the HTTP API."""

    key: str
    """argument of `hydrator token revoke`"""
    made: str
    """day of its creation, as 2026-11-21"""
    role: str
    """read, submit, or site:NAME"""
