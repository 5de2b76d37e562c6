"""Models of the output of ``hydrator once --json`` and ``hydrator plan --json``."""

from typing import Literal

from typing_extensions import TypedDict  # before Python 3.12, pydantic rejects typing.TypedDict

from hydrator.diagnostics.units import ByCatalogue, ByDid, ByName, ByPublisher, BySite, Count, UnixTime


class ActionJson(TypedDict):
    """One action of a plan.

    Attributes:
        publisher: target of the action; null for held changes.
        site: site of the ad.
        action: action on the ad.
        why: reason; empty for routine actions.
        generation: generation of the ad; null without an ad.
        as_of: last complete read of the ad's site.
    """

    publisher: str | None
    site: str
    action: Literal["publish", "refresh", "keep", "withdraw", "noop", "held"]
    why: str
    generation: Count | None
    as_of: UnixTime | None


class LeftOutJson(TypedDict):
    """Datasets that the size budget left out of a site's ad.

    Attributes:
        datasets: number of datasets that these jobs need.
        first: example of these datasets.
        jobs: jobs that name them.
    """

    datasets: Count
    first: str
    jobs: Count


class PublishResultJson(TypedDict):
    """The result of one publisher.

    Attributes:
        error: reason of the failure.
        not_read_back: sites whose ad was sent but not read back.
        ads: ads read back.
    """

    error: str | None
    not_read_back: list[str]
    ads: Count


class DemandProblemsJson(TypedDict):
    """Wanted datasets that no ad lists, or that ads list under another spelling than the jobs use.

    Attributes:
        left_out: datasets that the size budget left out.
        clashes: datasets that differ in letter case only; not advertised.
        misspelt: wanted datasets that no catalogue has, with the spellings that a catalogue has.
        unseen: datasets that no catalogue answered about, with the reason.
        refused: names in jobs that are not DIDs, with the reason.
        withheld_keys: each `DataLocalityKey` of two lists of datasets, or not of its job's list, with the
            number of its jobs.
    """

    left_out: BySite[list[LeftOutJson]]
    clashes: list[list[str]]
    misspelt: ByDid[list[str]]
    unseen: ByDid[str]
    refused: ByName[str]
    withheld_keys: ByName[int]


class PublisherProblemsJson(TypedDict):
    """Ads at the publishers that differ from the daemon's ads.

    Attributes:
        rejected: ads read back there and not adopted, with the reason.
        rivals: evidence that another daemon publishes there.
    """

    rejected: ByPublisher[ByName[str]]
    rivals: ByPublisher[str]


class OnceJson(DemandProblemsJson, PublisherProblemsJson):
    """One cycle.

    Attributes:
        at: start of the cycle.
        complete: no part of the cycle failed.
        catalogues: reason of the failure; null: it answered.
        publishers: result of each publisher.
        held: sites whose ad is unchanged, with the reason: a held change, a pending answer.
        plan: actions taken, as in `hydrator plan`.
    """

    at: UnixTime
    complete: bool
    catalogues: ByCatalogue[str | None]
    publishers: ByPublisher[PublishResultJson]
    held: BySite[str]
    plan: list[ActionJson]
