"""Publish targets: apply a plan to a publisher and read back."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import PublishError, SupersededByReload
from hydrator.domain.model import Hold, Plan, Publish, PublishedAd, Refresh, Site, SiteAd, Withdraw, to_unix
from hydrator.domain.ports import Publisher, RejectionReporter
from hydrator.reconcile.poll.threads import UnfinishedWork
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.result import PublishResult

from .plan import Policy


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """A publisher, and when it wants an unchanged ad again."""

    publisher: Publisher
    policy: Policy

    @property
    def name(self) -> str:
        return self.publisher.name


def apply_plan(
    actions: Plan, publisher: Publisher, fence: Fence | None = None, bugs: BugReporter | None = None
) -> PublishResult:
    """Do what *todo* says, then read back: what is not seen there is not published.

    Raises:
        Fenced: *fence* is closed, so nothing may be sent.
    """
    fence = fence or Fence()
    to_send = [ad for action in actions if (ad := ad_to_send(action)) is not None]
    to_withdraw = frozenset(action.site for action in actions if isinstance(action, Withdraw))
    try:
        if to_send:
            with fence.step():
                publisher.publish(to_send)
        if to_withdraw:
            with fence.step():
                publisher.withdraw(to_withdraw)
        there = publisher.published()
    except PublishError as error:
        return PublishResult(publisher.name, actions, error=error.reason)
    except SupersededByReload:
        raise
    except BaseException as error:  # noqa: BLE001 - its bug is its failure alone
        return PublishResult(
            publisher.name, actions, error=(bugs or BugReporter()).report(_part_name(publisher), error)
        )
    missing = [ad.site for ad in to_send if not _is_published(ad, there.get(ad.site))]
    missing += [site for site in to_withdraw if site in there]
    return PublishResult(publisher.name, actions, there, tuple(sorted(missing)))


def ad_to_send(action: object) -> SiteAd | None:
    """The ad that an action sends, if it sends one."""
    return action.ad if isinstance(action, Publish | Refresh | Hold) else None


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


def _read_published(publisher: Publisher, bugs: BugReporter) -> Mapping[Site, PublishedAd] | PublishError:
    try:
        there = publisher.published()
        if not isinstance(there, Mapping):
            raise TypeError(f"it shows a {type(there).__name__}, not its ads by site")  # noqa: TRY301
    except PublishError as error:
        return error
    except BaseException as error:  # noqa: BLE001 - its bug is its failure alone
        return PublishError(publisher.name, bugs.report(_part_name(publisher), error))
    bugs.mark_resolved(_part_name(publisher))
    return there


def _rejected_ads(publishers: Sequence[Publisher]) -> dict[str, dict[str, str]]:
    found = {one.name: dict(one.rejected) for one in publishers if isinstance(one, RejectionReporter)}
    return {name: ads for name, ads in found.items() if ads}


def _highest_generations(shown_ads: Collection[Mapping[Site, PublishedAd] | PublishError]) -> dict[Site, int]:
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
