"""Models of the output of ``hydrator once --json`` and ``hydrator plan --json``."""

from typing import Literal

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import ByCatalogue, ByDid, ByName, ByPublisher, BySite, Count, UnixTime


class ActionJson(TypedDict):
    """One action of a plan."""

    publisher: str | None
    """target of the action; null for held changes"""
    site: str
    """site of the ad"""
    action: Literal["publish", "refresh", "hold", "withdraw", "noop", "held"]
    """action on the ad"""
    why: str
    """reason; empty for routine actions"""
    generation: Count | None
    """generation of the ad; null without an ad"""
    as_of: UnixTime | None
    """last complete read of the ad's site"""


class LeftOutJson(TypedDict):
    """Datasets that the size budget left out of a site's ad."""

    datasets: Count
    """number of datasets that these jobs need"""
    first: str
    """example of these datasets"""
    jobs: Count
    """jobs that name them"""


class PublishResultJson(TypedDict):
    """The result of one publisher."""

    error: str | None
    """reason of the failure"""
    not_read_back: list[str]
    """sites whose ad was sent but not read back"""
    ads: Count
    """ads read back"""


class DemandProblemsJson(TypedDict):
    """Wanted datasets that no ad lists, or that ads list under another spelling than the jobs use."""

    left_out: BySite[list[LeftOutJson]]
    """datasets that the size budget left out"""
    clashes: list[list[str]]
    """datasets that differ in letter case only; not advertised"""
    misspelt: ByDid[list[str]]
    """wanted datasets that no catalogue has, with the spellings that a catalogue has"""
    unseen: ByDid[str]
    """datasets that no catalogue answered about, with the reason"""
    refused: ByName[str]
    """names in jobs that are not DIDs, with the reason"""
    wrong_keys: list[LeftOutJson]
    """jobs whose `DataLocalityKey` is not the key of their datasets"""


class PublisherProblemsJson(TypedDict):
    """Ads at the publishers that differ from the daemon's ads."""

    rejected: ByPublisher[ByName[str]]
    """ads read back there and not adopted, with the reason"""
    rivals: ByPublisher[str]
    """evidence that another daemon publishes there"""


class OnceJson(DemandProblemsJson, PublisherProblemsJson):
    """One cycle."""

    at: UnixTime
    """start of the cycle"""
    complete: bool
    """no part of the cycle failed"""
    catalogues: ByCatalogue[str | None]
    """reason of the failure; null: it answered"""
    publishers: ByPublisher[PublishResultJson]
    """result of each publisher"""
    held: BySite[str]
    """sites whose ad is unchanged, with the reason: a held change, a pending answer"""
    plan: list[ActionJson]
    """actions taken, as in `hydrator plan`"""
