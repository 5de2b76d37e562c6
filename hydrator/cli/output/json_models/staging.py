"""Models of ``staging list`` and of the commands that change staging."""

from typing import Literal

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import Bytes, Count, Share, UnixTime


class StagingRequestJson(TypedDict):
    """A request of the daemon that has not ended."""

    tag: str
    """its name, in the comment of the rule as well; `hydrator staging cancel` takes it"""
    batch: str
    """id of the datasets that were requested together; `hydrator staging cancel` takes it"""
    catalogue: str
    """catalogue that has the request"""
    kind: Literal["pin", "stage"]
    """pin: keep data that the site has; stage: bring data to the site"""
    site: str
    """site whose disk gets or keeps the data"""
    dataset: str
    """the dataset"""
    state: str
    """asking, cancelling, or the state in the catalogue"""
    bytes: Bytes
    """size of the dataset"""
    bytes_done: Bytes
    """bytes on disk"""
    files: Count | None
    """files of the dataset; null: unknown"""
    files_done: Count
    """files on disk"""
    request_id: str
    """id at the catalogue, such as that of a rule; empty: no answer yet"""
    user: str
    """owner of the jobs for which the daemon made the request; empty: unknown"""
    jobs: Count
    """jobs that need the dataset"""
    asked_at: UnixTime
    """time of the request"""
    ready_at: UnixTime | None
    """expected end of the transfer; null: unknown"""
    expires_at: UnixTime | None
    """the catalogue ends the request at this time; null: not known yet"""
    complete: bool
    """all files are or were on disk"""
    stuck: bool
    """it is stuck for longer than a day"""
    reason: str
    """reason of a failure; empty without one"""
    text: str
    """the same in one sentence"""


class StagingPlanJson(TypedDict):
    """A request that the daemon has not made."""

    batch: str
    """id for `hydrator staging approve` and `reject`"""
    catalogue: str
    """catalogue that would get the request"""
    kind: Literal["pin", "stage"]
    """pin or stage"""
    site: str
    """site whose disk would get or keep the data"""
    datasets: list[str]
    """its datasets"""
    bytes: Bytes
    """their size"""
    files: Count | None
    """their files; null: unknown"""
    user: str
    """owner of the oldest job"""
    jobs: Count
    """jobs that need the datasets"""
    example: str
    """one of these jobs"""
    needs_approval: bool
    """it waits for `hydrator staging approve`; otherwise the mode is propose"""
    text: str
    """the same in one sentence"""


class NotAskedJson(TypedDict):
    """Jobs for whose data nothing is requested now."""

    datasets: list[str]
    """datasets of the jobs"""
    site: str | None
    """site that was considered; null: none"""
    user: str
    """owner of the oldest job"""
    jobs: Count
    """these jobs"""
    example: str
    """one of them"""
    reason: str
    """reason in one sentence"""
    waiting: bool
    """the data is there or on its way, or it is too early; false: a limit or a missing fact prevents it"""


class StagingLimitJson(TypedDict):
    """A limit of which something is taken."""

    limit: str
    """its name"""
    subject: str
    """site, tape or user; empty: all together"""
    used: Count
    """bytes, files or requests that are taken"""
    allowed: Count
    """bytes, files or requests that are allowed"""
    reached: bool
    """95 % or more are taken"""


class EndedRequestJson(TypedDict):
    """A request that has ended."""

    kind: Literal["pin", "stage"]
    """pin or stage"""
    site: str
    """its site"""
    dataset: str
    """its dataset"""
    bytes: Bytes
    """size of the dataset"""
    asked_at: UnixTime
    """time of the request"""
    ended_at: UnixTime
    """its end"""
    complete: bool
    """all files were on disk"""
    used: bool
    """a job that needs the dataset ran at the site"""
    reason: str
    """reason of the end"""


class StagingProblemJson(TypedDict):
    """A part of staging that failed."""

    part: str
    """catalogue, schedd or part"""
    reason: str
    """one sentence"""


class JoinedRuleJson(TypedDict):
    """A rule of another account that serves our jobs, so that the daemon requests nothing."""

    dataset_at_site: str
    """dataset and site"""
    rule: str
    """the rule and its account"""


class StagingJson(TypedDict):
    """Pins and requests of data."""

    as_of: UnixTime | None
    """time of the daemon's last step; null: there was none"""
    mode: str | None
    """highest mode of any catalogue and site: off, propose or ask; null: the daemon has made no step yet"""
    stopped: str | None
    """reason why nothing is requested or renewed; null: it is not stopped"""
    problems: list[StagingProblemJson]
    """parts that failed"""
    requests: list[StagingRequestJson]
    """requests that have not ended"""
    planned: list[StagingPlanJson]
    """requests that are proposed, or that wait for a person"""
    not_asked: list[NotAskedJson]
    """jobs for whose data nothing is requested, with the reason"""
    joined: list[JoinedRuleJson]
    """rules of others that serve the jobs"""
    limits: list[StagingLimitJson]
    """limits of which something is taken"""
    ended: list[EndedRequestJson]
    """the last requests that ended, newest first"""
    unused_share: Share
    """share of the staged bytes that ended without any use"""


class StagingStatusJson(TypedDict):
    """Pins and requests of data in brief."""

    as_of: UnixTime
    """time of the last step"""
    mode: str
    """highest mode of any catalogue and site: off, propose or ask"""
    stopped: str | None
    """reason why nothing is requested or renewed; null: it is not stopped"""
    requests: Count
    """requests that have not ended"""
    stuck: Count
    """requests that are stuck for longer than a day"""
    in_flight_bytes: Bytes
    """bytes on their way"""
    planned: list[str]
    """requests that are proposed, or that wait for a person, one sentence each"""
    planned_bytes: Bytes
    """their bytes"""
    problems: list[str]
    """parts that failed, one sentence each"""


class StagingCommandJson(TypedDict):
    """A command that the daemon executes in its next step."""

    command: Literal["approve", "reject", "cancel", "stop", "resume"]
    """the command"""
    target: str
    """id of the requests, or a tag; empty for stop and resume"""
    text: str
    """the effect in one sentence"""
