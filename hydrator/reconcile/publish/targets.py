"""Publish targets: make a plan for each publisher, send its ads, and read them back."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import PublishError
from hydrator.domain.model import Hold, Plan, Publish, PublishedAd, Refresh, Site, SiteAd, Withdraw, to_unix
from hydrator.domain.ports import Clock, Publisher, RejectionReporter
from hydrator.reconcile.poll.threads import ParallelWorkers, UnfinishedWork
from hydrator.reconcile.result import PublishResult

from .plan import Policy, plan
from .rivals import RivalDetector, find_recent_writers

PublishedAds = Mapping[Site, PublishedAd] | PublishError
"""The ads that were read back from a publisher, by site; or the error if this failed."""
PlanOrError = Plan | PublishError


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """A publisher, and its rule for sending an unchanged ad again."""

    publisher: Publisher
    policy: Policy

    @property
    def name(self) -> str:
        return self.publisher.name


class PublishTargets:
    """The publishers, each in its own thread. A publisher that hangs or fails does not delay the others.

    Args:
        targets: the publishers with their policies.
        clock: aware UTC time.
        bugs: counts and logs exceptions that no publisher should raise.
    """

    def __init__(self, targets: Sequence[PublishTarget], clock: Clock, bugs: BugReporter) -> None:
        self._targets = tuple(targets)
        self._bugs = bugs
        self._readers = ParallelWorkers[PublishedAds]("publisher", clock)
        self._senders = ParallelWorkers[PublishResult]("publisher", clock)
        self._rival_detector = RivalDetector()

    def read_back(self, timeout: timedelta | None) -> dict[str, PublishedAds]:
        """Return, by publisher, the ads that were read back, or the error; wait at most *timeout*."""
        unfinished = {target.name: self._senders.find_unfinished(target.name) for target in self._targets}
        work = {
            target.name: partial(_read_published, target.publisher, self._bugs)
            for target in self._targets
            if not unfinished[target.name]
        }
        ads_by_publisher = {**unfinished, **self._readers.run(work, timeout)}
        return {
            name: PublishError(name, ads.reason) if isinstance(ads, UnfinishedWork) else ads
            for name, ads in ads_by_publisher.items()
            if ads is not None
        }

    def rejected_ads(self) -> dict[str, dict[str, str]]:
        """Return, by publisher, the ads that the daemon read back and rejected, each with the reason."""
        rejected = {
            target.name: dict(target.publisher.rejected)
            for target in self._targets
            if isinstance(target.publisher, RejectionReporter)
        }
        return {name: ads for name, ads in rejected.items() if ads}

    def plan(
        self,
        published: Mapping[str, PublishedAds],
        ads: Mapping[Site, SiteAd],
        is_retired: Callable[[Site], bool],
        now: datetime,
        withheld_reasons: Mapping[Site, str],
    ) -> dict[str, PlanOrError]:
        """Return, by publisher, the plan; or the error if reading its ads or making the plan failed."""

        def plan_for(target: PublishTarget) -> PlanOrError:
            published_ads = published[target.name]
            if isinstance(published_ads, PublishError):
                return published_ads
            try:
                return plan(
                    published_ads,
                    ads,
                    retired=frozenset(filter(is_retired, published_ads)),
                    now=now,
                    policy=target.policy,
                    withheld_reasons=withheld_reasons,
                )
            except Exception as error:  # noqa: BLE001 - a bug must stop this publisher only
                return PublishError(target.name, self._bugs.report(_part_name(target.publisher), error))

        return {target.name: plan_for(target) for target in self._targets}

    def apply(self, plans: Mapping[str, PlanOrError], timeout: timedelta | None) -> tuple[PublishResult, ...]:
        """Execute *plans* and read the ads back; return a result for each publisher."""
        work = {}
        for target in self._targets:
            if not isinstance(actions := plans[target.name], PublishError):
                self._rival_detector.note_sent(target.name, ads_to_send(actions))
                work[target.name] = partial(apply_plan, actions, target.publisher, self._bugs)
        sent = self._senders.run(work, timeout)
        results = tuple(
            _publish_result(target.name, plans[target.name], sent.get(target.name))
            for target in self._targets
        )
        for result in results:
            self._rival_detector.note_read_back(result.publisher, result.published)
        return results

    def find_rivals(
        self, published: Mapping[str, PublishedAds], sites: Collection[Site], now: datetime
    ) -> dict[str, str]:
        """Return, by publisher, a sentence with the evidence that another daemon writes to the publisher."""
        reasons = {
            name: self._rival_detector.detect(name, ads, sites, now)
            for name, ads in published.items()
            if not isinstance(ads, PublishError)
        }
        return {name: reason for name, reason in reasons.items() if reason}

    @staticmethod
    def find_recent_writers(
        published: Mapping[str, PublishedAds], own_ads: Mapping[Site, SiteAd], now: datetime
    ) -> dict[str, str]:
        """Return, by publisher, the evidence of another daemon in the ads that were there before."""
        reasons = {
            name: find_recent_writers(ads, own_ads, now)
            for name, ads in published.items()
            if not isinstance(ads, PublishError)
        }
        return {name: reason for name, reason in reasons.items() if reason}


def apply_plan(actions: Plan, publisher: Publisher, bugs: BugReporter | None = None) -> PublishResult:
    """Execute *actions*, then read the ads back. The result lists the sites whose ads are not as planned."""
    to_send = ads_to_send(actions)
    to_withdraw = frozenset(action.site for action in actions if isinstance(action, Withdraw))
    try:
        if to_send:
            publisher.publish(to_send)
        if to_withdraw:
            publisher.withdraw(to_withdraw)
        published_ads = publisher.published()
    except PublishError as error:
        return PublishResult(publisher.name, actions, error=error.reason)
    except BaseException as error:  # noqa: BLE001 - a bug of one publisher must not stop the others
        return PublishResult(
            publisher.name, actions, error=(bugs or BugReporter()).report(_part_name(publisher), error)
        )
    missing = [ad.site for ad in to_send if not _is_published(ad, published_ads.get(ad.site))]
    missing += [site for site in to_withdraw if site in published_ads]
    return PublishResult(publisher.name, actions, published_ads, tuple(sorted(missing)))


def ads_to_send(actions: Plan) -> list[SiteAd]:
    """Return the ads that the publisher must receive for *actions*."""
    sending = (action for action in actions if isinstance(action, Publish | Refresh | Hold))
    return [action.ad for action in sending if action.ad is not None]


def _publish_result(
    name: str, actions: Plan | PublishError, result: PublishResult | UnfinishedWork | None
) -> PublishResult:
    if isinstance(actions, PublishError):
        return PublishResult(name, error=actions.reason)
    if isinstance(result, PublishResult):
        return result
    return PublishResult(name, actions, error=result.reason if result else None)


def _part_name(publisher: Publisher) -> str:
    return f"publisher {publisher.name}"


def _read_published(publisher: Publisher, bugs: BugReporter) -> PublishedAds:
    try:
        published_ads = publisher.published()
        if not isinstance(published_ads, Mapping):
            raise TypeError(f"published() returned a {type(published_ads).__name__}, not a Mapping")  # noqa: TRY301
    except PublishError as error:
        return error
    except BaseException as error:  # noqa: BLE001 - a bug of one publisher must not stop the others
        return PublishError(publisher.name, bugs.report(_part_name(publisher), error))
    bugs.mark_resolved(_part_name(publisher))
    return published_ads


def highest_generations(shown_ads: Collection[PublishedAds]) -> dict[Site, int]:
    """Return, by site, the highest generation that was read back from any publisher."""
    highest: dict[Site, int] = {}
    for published in shown_ads:
        if not isinstance(published, PublishError):
            for site, ad in published.items():
                highest[site] = max(highest.get(site, 0), ad.generation)
    return highest


def _is_published(ad: SiteAd, published_ad: PublishedAd | None) -> bool:
    return published_ad is not None and (published_ad.generation, to_unix(published_ad.as_of)) == (
        ad.generation,
        to_unix(ad.as_of),
    )
