"""Models of ``report``, ``submit rapthor`` and ``token list``."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import (
    ByDid,
    Bytes,
    Count,
    LocalityMode,
    Seconds,
    Share,
    UnixTime,
)


class LocalityCountsJson(TypedDict):
    """Numbers of jobs, by the share of a job's data that was at the job's site.

    Attributes:
        all: all data was there.
        some: some data was there.
        none: no data was there.
        unknown: unknown.
    """

    all: Count
    some: Count
    none: Count
    unknown: Count


class OutcomeCountsJson(TypedDict):
    """Outcomes of the jobs of one site, or of all sites.

    Attributes:
        jobs: jobs that named datasets, by the share of their data at their site.
        share_of_jobs: share of jobs that found all data.
        bytes_at_site: bytes that were there.
        bytes_elsewhere: bytes that were not there.
        share_of_bytes: share of bytes that were there.
        jobs_that_missed: jobs that could not read data which their slot listed.
    """

    jobs: LocalityCountsJson
    share_of_jobs: Share | None
    bytes_at_site: Bytes
    bytes_elsewhere: Bytes
    share_of_bytes: Share | None
    jobs_that_missed: Count


class WaitJson(TypedDict):
    """Waiting times of jobs.

    Attributes:
        jobs: jobs that started.
        median: from submission to the first start.
        p90: the ninth decile.
    """

    jobs: Count
    median: Seconds | None
    p90: Seconds | None


class WaitsJson(TypedDict):
    """Waiting times of jobs with and without datasets.

    Attributes:
        named: jobs that named datasets.
        unnamed: jobs that named none.
        added: difference of the two medians.
    """

    named: WaitJson
    unnamed: WaitJson
    added: Seconds | None


class SiteOutcomesJson(OutcomeCountsJson):
    """Outcomes of the jobs of one site.

    Attributes:
        site: its name.
    """

    site: str


class ScheddHistoryJson(TypedDict):
    """The history of one schedd.

    Attributes:
        schedd: its name.
        jobs: jobs in its history; null: it did not answer.
        complete: false: its history has more jobs than one answer returns.
        failure: reason why it did not answer.
    """

    schedd: str
    jobs: Count | None
    complete: bool
    failure: str | None


class ErrorFactorJson(TypedDict):
    """The factor, 1 or more, between predicted and real seconds of ended jobs; 2: twice or half as long.

    Attributes:
        samples: compared jobs, of each kind at most the last 1,000.
        median: median of the factor; null: no sample.
        p90: 0.9 quantile of the factor; null: no sample.
    """

    samples: Count
    median: float | None
    p90: float | None


class ErrorFactorsJson(TypedDict):
    """Errors of the daemon's estimates.

    Attributes:
        queue: wait of jobs beside their data.
        read: read of jobs from other sites.
    """

    queue: ErrorFactorJson
    read: ErrorFactorJson


class LostAdsJson(TypedDict):
    """The jobs of one site that started before the history of the site's ad.

    Attributes:
        site: its name.
        jobs: jobs.
        begin: begin of the history.
    """

    site: str
    jobs: Count
    begin: UnixTime


class ReportJson(OutcomeCountsJson):
    """The outcomes of jobs in a period.

    Attributes:
        version: version of this document.
        since: start of the period in which the jobs ended.
        until: end of that period.
        never_started: jobs that named datasets and never started.
        datasets_without_size: datasets of unknown size.
        missed_datasets: missed datasets, over all jobs.
        lost_ads: sites with jobs whose result is unknown because the ad of their start is deleted.
        wait_seconds: waiting times of jobs.
        estimate_error_factor: predicted against real seconds.
        sites: the same by site.
        schedds: queried schedds.
    """

    version: Literal[1]
    since: UnixTime
    until: UnixTime
    never_started: Count
    datasets_without_size: Count
    missed_datasets: Count
    lost_ads: list[LostAdsJson]
    wait_seconds: WaitsJson
    estimate_error_factor: ErrorFactorsJson
    sites: list[SiteOutcomesJson]
    schedds: list[ScheddHistoryJson]


class JobAdJson(TypedDict):
    """The attributes of a Rapthor job.

    Attributes:
        RequiredDatasets: DIDs, sorted.
        DataLocalityKey: key by which the job looks up all its datasets.
        RequiredBytes: known sizes.
        DataLocality: the mode; left out: the pool's default.
        DataLocalityMaxWait: seconds, if the user set them.
        DataLocalityExpectedSeconds: run time that the user expects, if given, in seconds.
        RapthorRun: name of the run.
    """

    RequiredDatasets: list[str]
    DataLocalityKey: str
    RequiredBytes: NotRequired[ByDid[Bytes]]
    DataLocality: NotRequired[LocalityMode]
    DataLocalityMaxWait: NotRequired[Count]
    DataLocalityExpectedSeconds: NotRequired[Count]
    RapthorRun: str
