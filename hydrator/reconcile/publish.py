"""Publishing: withhold ads while data is missing, plan the actions of publishers, send ads, read them back.

:class:`Withholding` chooses the sites whose published ads stay for now. A daemon without state does not know
the demand of a schedd that does not answer, or the replicas of a catalogue that does not answer. The ad that
was published before may have these datasets. So the daemon does not replace it until all schedds and
catalogues have answered, or until MAX_WITHHOLD has passed. If the disk was full, the state on it may be older
than the published ad; then the ad stays as long. Only answers since the start of the process count: those on
disk may be of another configuration, in which sites have other names. If a loss at the site was held when the
clock was set back, the ad also stays while the loss is held.

:func:`plan` makes one action for each site of one publisher, with the reason. An ad is *due* if the publisher
received it at least ``refresh_after`` ago. A publisher that keeps its ads has no ``refresh_after``: there, an
ad is due if its as_of is newer. An ad with openings that the publisher does not have is due at once.

desired  published           newer as_of  due   action
-------  ------------------  -----------  ----  ----------------------------------------
yes      no                  -            -     Publish
yes      another generation  -            -     Publish
yes      same generation     yes          yes   Refresh
yes      same generation     no           yes   Keep: send the ad again, with its age
yes      same generation     -            no    NoOp
no       yes                 -            -     Keep
retired  yes                 -            -     Withdraw

:class:`PublishTargets` runs the publishers, each in its own thread.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from hydrator.config import Settings
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import PublishError
from hydrator.domain.model import (
    Action,
    ActionKind,
    Did,
    Plan,
    PublishedAd,
    Seen,
    Site,
    SiteAd,
    Survey,
    Unseen,
    to_unix,
)
from hydrator.domain.ports import Clock, Publisher, RejectionReporter
from hydrator.domain.text import format_count, format_duration
from hydrator.reconcile.evaluate import Answer, Answers
from hydrator.reconcile.result import PublishResult
from hydrator.reconcile.snapshot.merge import CatalogueMemory
from hydrator.reconcile.snapshot.removal_guard import HoldCause
from hydrator.reconcile.state import ReconcileState
from hydrator.reconcile.threads import ParallelWorkers, Threads


def plan(
    published: Mapping[Site, PublishedAd],
    desired: Mapping[Site, SiteAd],
    *,
    retired: AbstractSet[Site],
    now: datetime,
    refresh_after: timedelta | None,
    withheld_reasons: Mapping[Site, str] | None = None,
) -> Plan:
    """Choose the fewest actions that turn *published* into *desired*.

    A collector forgets an ad after ``ClassAdLifetime`` seconds [1]. So send an unchanged ad again when it is
    *refresh_after* old. Withdraw only the ads of *retired* sites: a site that is neither desired nor
    retired keeps its ad.

    Args:
        published: the ads that were read back from the publisher, by site.
        desired: the ads that the publisher should have, by site.
        retired: sites that the operator removed.
        now: aware UTC time of this cycle, read once by the caller.
        refresh_after: the age of a published ad after which it is sent again; None if the publisher keeps it.
        withheld_reasons: sites whose published ads must not be replaced yet, each with the reason.

    Returns:
        One action per site, ordered by site: equal inputs, equal plan.

    [1] HTCondor manual, admin-manual/configuration/collector, CLASSAD_LIFETIME.
    """
    actions = []
    for site in sorted(published.keys() | (desired.keys() - retired)):
        shown, ad = published.get(site), desired.get(site)
        if site in retired:
            action = Action(ActionKind.WITHDRAW, site, "the site is retired in the configuration")
        elif ad is None:
            unknown = "the daemon has no facts about the site; add the site to sites.retired to remove its ad"
            action = Action(ActionKind.KEEP, site, (withheld_reasons or {}).get(site, unknown))
        elif shown is None:
            action = Action(ActionKind.PUBLISH, site, "not published", ad)
        else:
            action = _compare(ad, shown, now, refresh_after)
        actions.append(action)
    return tuple(actions)


def _compare(ad: SiteAd, shown: PublishedAd, now: datetime, refresh_after: timedelta | None) -> Action:
    """Return the action for *ad* at a publisher that has *shown*, its ad of the same site."""
    if shown.generation != ad.generation:
        return Action(ActionKind.PUBLISH, ad.site, f"replaces generation {shown.generation}", ad)
    as_of, shown_as_of = to_unix(ad.as_of), to_unix(shown.as_of)
    # If the clock was set back, the published as_of may be in the future. Jobs would take that ad for
    # fresh until then, so the ad is due at once.
    is_ahead = shown_as_of > to_unix(now)
    # received_at may then be in the future too; without abs() the ad's age would be negative
    age = abs(now - shown.received_at)
    is_due = as_of != shown_as_of if refresh_after is None else is_ahead or age >= refresh_after
    if not is_due and (ad.open_until is None or _has_openings(ad, shown)):
        return Action(ActionKind.NOOP, ad.site)
    if as_of > shown_as_of:
        return Action(ActionKind.REFRESH, ad.site, ad=ad)
    return Action(ActionKind.KEEP, ad.site, f"no newer facts since {ad.as_of:%Y-%m-%d %H:%M:%S} UTC", ad)


MAX_WITHHOLD: Final = timedelta(minutes=10)
"""After so long the missing catalogue or schedd does not come soon, and the published ads are too old."""


class Withholding:
    """The choice of sites whose published ads the daemon does not replace yet.

    The daemon replaces all ads at the latest MAX_WITHHOLD after the first cycle that withheld a site. A loss
    that was held when the clock was set back is held for so long, over restarts too, while it is demanded.
    """

    def __init__(self, settings: Settings) -> None:
        self._sites = settings.sites
        self._has_patterns = bool(settings.demand.patterns)
        self._started_at: datetime | None = None

    def choose_sites(
        self,
        state: ReconcileState,
        answers: Answers,
        published_generations: Mapping[Site, int],
        unanswered_sources: Sequence[str],
        searched_names: AbstractSet[str],
        demanded_dids: AbstractSet[Did],
        now: datetime,
    ) -> dict[Site, str]:
        """Return the sites whose published ad must not be replaced yet, each with the reason.

        Args:
            state: the state after the last cycle.
            answers: the answers of this cycle, by catalogue.
            published_generations: the sites that have, or may have, an ad at any publisher, each with the
                highest generation that was read back; 0 without one.
            unanswered_sources: sources of demand, such as ``schedd ap1``, that have not answered since the
                start of the process.
            searched_names: the catalogues that have been searched for the patterns since then.
            demanded_dids: the datasets that the ads must know.
            now: aware UTC time of this cycle.
        """
        held = {
            site: one.text(0)
            for site, one in state.held_losses.items()
            if one.cause is HoldCause.CLOCK
            and now - one.started_at < MAX_WITHHOLD
            and not one.missing_polls.keys().isdisjoint(demanded_dids)
        }
        lost_sites = frozenset(
            site
            for site, generation in {**dict.fromkeys(held, 0), **published_generations}.items()
            if (site not in state.ads or state.ads[site].generation < generation)
            and not self._sites.is_retired(site)
        )
        reasons = {}
        if lost_sites:
            unsearched = [name for name in answers if self._has_patterns and name not in searched_names]
            incomplete = [
                name
                for name, answer in answers.items()
                if not _has_answered(state.memories.get(name), answer, demanded_dids, lost_sites)
            ]
            reason = _choose_reason(unanswered_sources, unsearched, incomplete)
            reasons = {site: reason or held[site] for site in sorted(lost_sites) if reason or site in held}
        self._started_at = (self._started_at or now) if reasons else None
        is_over = self._started_at is not None and abs(now - self._started_at) >= MAX_WITHHOLD
        return {} if is_over else reasons


def _choose_reason(
    unanswered_sources: Sequence[str], unsearched: Sequence[str], incomplete: Sequence[str]
) -> str | None:
    """Return a sentence with the first schedd or catalogue without an answer; None if all answered.

    *unsearched* are the catalogues that have not yet said which datasets match the patterns, *incomplete*
    those that have not yet answered for each demanded dataset.
    """
    reasons = [f"the demand of {name} is not known yet" for name in unanswered_sources]
    reasons += [f"catalogue {name} has not been searched for the patterns yet" for name in unsearched]
    reasons += [f"catalogue {name} has not answered for all datasets yet" for name in incomplete]
    more = f" (further missing answers: {len(reasons) - 1})" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}; until then the published ad is unchanged" if reasons else None


def _has_answered(
    memory: CatalogueMemory | None, answer: Answer, demanded_dids: AbstractSet[Did], sites: AbstractSet[Site]
) -> bool:
    """Return True if the catalogue has answered for each of *demanded_dids* since the start of the process.

    An answer without one of *sites*, at which the catalogue could not look, does not count.
    """
    readings = answer.readings if isinstance(answer, Survey) else {}
    records = memory.records if memory else {}
    for did in demanded_dids:
        reading = readings.get(did)
        if not isinstance(reading, Seen):
            reading = records[did].reading if did in records else None
        if reading is None or reading.unreachable_sites & sites:
            return False
    return True


RIVAL_WINDOW: Final = timedelta(minutes=30)
_MAX_SENT: Final = 100
"""Number of sent ads to remember for each site, because a publisher may still return an older ad."""
_AdVersion = tuple[int, int]
"""Generation and ``DataLocalityAsOf`` (Unix seconds) of an ad."""


@dataclass(slots=True)
class _SiteWrites:
    """The ads of one site that this daemon sent to one publisher, and the ads that were read back."""

    sent_versions: deque[_AdVersion] = field(default_factory=lambda: deque(maxlen=_MAX_SENT))
    is_confirmed: bool = False
    last_version: _AdVersion | None = None
    foreign_writes_at: deque[datetime] = field(default_factory=lambda: deque(maxlen=2))


class RivalDetector:
    """A detector of another active daemon that writes to the same publisher. The time is an argument.

    If two daemons publish to one pool by accident, each replaces the ads of the other again and again. An ad
    that is read back has one of three origins: this daemon sent it; or it was published before this daemon's
    first ad was read back; or a rival sent it. The detector reports a rival only after the rival's second ad
    within ``RIVAL_WINDOW``, because a single ad may be the last ad of a daemon that just stopped. So the
    detector reports no restart.
    """

    def __init__(self) -> None:
        self._writes: dict[tuple[str, Site], _SiteWrites] = {}

    def note_sent(self, publisher: str, ads: Iterable[SiteAd]) -> None:
        """Remember *ads*, which this daemon is about to send to *publisher*."""
        for ad in ads:
            writes = self._writes.setdefault((publisher, ad.site), _SiteWrites())
            writes.sent_versions.append(_ad_version(ad))

    def note_read_back(self, publisher: str, published_ads: Mapping[Site, PublishedAd]) -> None:
        """Record the ads that this daemon read back after it had sent its ads.

        After this daemon's ad of a site was read back once, every other ad of the site is from a rival.
        """
        for site, ad in published_ads.items():
            writes = self._writes.get((publisher, site))
            if writes and _ad_version(ad) in writes.sent_versions:
                writes.is_confirmed, writes.last_version = True, _ad_version(ad)

    def detect(
        self,
        publisher: str,
        published_ads: Mapping[Site, PublishedAd],
        sites: Collection[Site],
        now: datetime,
    ) -> str | None:
        """Return the evidence of another daemon that writes to *publisher*, as a sentence, or None.

        Args:
            publisher: the name of the publisher.
            published_ads: the ads that were read back from the publisher, by site.
            sites: the sites that this daemon has an ad for; another daemon may publish other sites.
            now: the time of this cycle.
        """
        rivals = [
            ad
            for site, ad in sorted(published_ads.items())
            if site in sites and self._is_rival((publisher, site), ad, now)
        ]
        if not rivals:
            return None
        first = rivals[0]
        return (
            f"another daemon also writes to this publisher and replaced the ads of"
            f" {format_count(len(rivals), 'site')},"
            f" for example the ad of {first.site} by generation {first.generation}"
            f" with facts of {first.as_of:%Y-%m-%d %H:%M:%S} UTC"
        )

    def _is_rival(self, key: tuple[str, Site], ad: PublishedAd, now: datetime) -> bool:
        writes = self._writes.setdefault(key, _SiteWrites())
        version = _ad_version(ad)
        if version in writes.sent_versions:
            writes.is_confirmed = True
        elif writes.is_confirmed and version != writes.last_version:
            writes.foreign_writes_at.append(now)
        writes.last_version = version
        return len(writes.foreign_writes_at) == 2 and abs(now - writes.foreign_writes_at[0]) <= RIVAL_WINDOW


def find_recent_writers(
    published_ads: Mapping[Site, PublishedAd], own_ads: Mapping[Site, SiteAd], now: datetime
) -> str | None:
    """Return the evidence of another daemon in the ads that were published before the only cycle, or None.

    A single cycle cannot wait for a second ad of the rival. An ad newer than *own_ads*, those of the state
    on disk, that the publisher received within ``RIVAL_WINDOW`` is from a daemon with another state.
    """
    foreign = [
        ad
        for site, ad in sorted(published_ads.items())
        if now - ad.received_at <= RIVAL_WINDOW
        and (site not in own_ads or to_unix(ad.as_of) > to_unix(own_ads[site].as_of))
    ]
    if not foreign:
        return None
    newest = max(foreign, key=lambda ad: ad.received_at)
    return (
        f"another daemon published {format_count(len(foreign), 'site')} here, {newest.site}"
        f" {format_duration((now - newest.received_at).total_seconds())} ago, and this configuration"
        " replaces its ads: if it still runs, stop one of the two"
    )


def _ad_version(ad: PublishedAd | SiteAd) -> _AdVersion:
    return ad.generation, to_unix(ad.as_of)


PublishedAds = Mapping[Site, PublishedAd] | Unseen
"""The ads that were read back from a publisher, by site; or the reason if this failed."""
PlanOrError = Plan | Unseen


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """A publisher; one that drops an ad after some time gets it again when it is ``refresh_after`` old."""

    publisher: Publisher
    refresh_after: timedelta | None = None

    @property
    def name(self) -> str:
        return self.publisher.name


class PublishTargets:
    """The publishers, each in its own thread. A publisher that hangs or fails does not delay the others.

    Args:
        targets: the publishers.
        clock: aware UTC time.
        bugs: counts and logs exceptions that no publisher should raise.
        threads: run the work of the publishers.
    """

    def __init__(
        self, targets: Sequence[PublishTarget], clock: Clock, bugs: BugReporter, threads: Threads
    ) -> None:
        self._targets = tuple(targets)
        self._reporters = [one.publisher for one in targets if isinstance(one.publisher, RejectionReporter)]
        self._bugs = bugs
        self._readers = ParallelWorkers[PublishedAds]("publisher", clock, threads)
        self._senders = ParallelWorkers[PublishResult]("publisher", clock, threads)
        self._rival_detector = RivalDetector()

    def read_back(self, timeout: timedelta | None) -> dict[str, PublishedAds]:
        """Return, by publisher, the ads that were read back, or the error; wait at most *timeout*."""
        unfinished = {target.name: self._senders.find_unfinished(target.name) for target in self._targets}
        work = {
            one.name: partial(
                self._bugs.attempt, f"publisher {one.name}", one.publisher.published, PublishError
            )
            for one in self._targets
            if not unfinished[one.name]
        }
        ads_by_publisher = {**unfinished, **self._readers.run(work, timeout)}
        return {name: ads for name, ads in ads_by_publisher.items() if ads is not None}

    def rejected_ads(self) -> dict[str, dict[str, str]]:
        """Return, by publisher, the ads that the daemon read back and rejected, each with the reason."""
        rejected = {one.name: dict(one.rejected) for one in self._reporters}
        return {name: ads for name, ads in rejected.items() if ads}

    def plan(
        self,
        published: Mapping[str, PublishedAds],
        ads: Mapping[Site, SiteAd],
        is_retired: Callable[[Site], bool],
        now: datetime,
        withheld_reasons: Mapping[Site, str],
    ) -> dict[str, PlanOrError]:
        """Return, by publisher, the plan; or the error if reading its ads failed."""

        def plan_for(target: PublishTarget) -> PlanOrError:
            published_ads = published[target.name]
            if isinstance(published_ads, Unseen):
                return published_ads
            return plan(
                published_ads,
                ads,
                retired=frozenset(filter(is_retired, published_ads)),
                now=now,
                refresh_after=target.refresh_after,
                withheld_reasons=withheld_reasons,
            )

        return {target.name: plan_for(target) for target in self._targets}

    def apply(self, plans: Mapping[str, PlanOrError], timeout: timedelta | None) -> tuple[PublishResult, ...]:
        """Execute *plans* and read the ads back; return a result for each publisher."""
        work = {}
        for target in self._targets:
            if not isinstance(actions := plans[target.name], Unseen):
                self._rival_detector.note_sent(target.name, ads_to_send(actions))
                work[target.name] = partial(apply_plan, actions, target.publisher, self._bugs)
        sent = self._senders.run(work, timeout)
        results = tuple(
            publish_result(target.name, plans[target.name], sent.get(target.name)) for target in self._targets
        )
        for result in results:
            self._rival_detector.note_read_back(result.publisher, result.published)
        return results

    def find_rivals(
        self,
        published: Mapping[str, PublishedAds],
        sites: Collection[Site],
        now: datetime,
        own_ads: Mapping[Site, SiteAd] | None,
    ) -> dict[str, str]:
        """Return, by publisher, a sentence with the evidence that another daemon writes to the publisher.

        In the only cycle of a process, *own_ads* are the ads of the state on disk; else None.
        """
        reasons = {
            name: self._rival_detector.detect(name, ads, sites, now)
            if own_ads is None
            else find_recent_writers(ads, own_ads, now)
            for name, ads in published.items()
            if not isinstance(ads, Unseen)
        }
        return {name: reason for name, reason in reasons.items() if reason}


def apply_plan(actions: Plan, publisher: Publisher, bugs: BugReporter | None = None) -> PublishResult:
    """Execute *actions*, then read the ads back. The result lists the sites whose ads are not as planned."""
    to_send = ads_to_send(actions)
    to_withdraw = frozenset(action.site for action in actions if action.kind is ActionKind.WITHDRAW)

    def send() -> Mapping[Site, PublishedAd]:
        if to_send:
            publisher.publish(to_send)
        if to_withdraw:
            publisher.withdraw(to_withdraw)
        return publisher.published()

    published_ads = (bugs or BugReporter()).attempt(f"publisher {publisher.name}", send, PublishError)
    if isinstance(published_ads, Unseen):
        return PublishResult(publisher.name, actions, error=published_ads.reason)
    missing = [ad.site for ad in to_send if not _is_published(ad, published_ads.get(ad.site))]
    missing += [site for site in to_withdraw if site in published_ads]
    return PublishResult(publisher.name, actions, published_ads, tuple(sorted(missing)))


def ads_to_send(actions: Plan) -> list[SiteAd]:
    """Return the ads that the publisher must receive for *actions*."""
    return [action.ad for action in actions if action.ad is not None]


def publish_result(
    name: str, actions: PlanOrError, result: PublishResult | Unseen | None = None
) -> PublishResult:
    """Return the *result* of a publisher; before its plan is executed, the plan or the error."""
    if isinstance(actions, Unseen):
        return PublishResult(name, error=actions.reason)
    if isinstance(result, PublishResult):
        return result
    return PublishResult(name, actions, error=result.reason if result else None)


def highest_generations(shown_ads: Collection[PublishedAds]) -> dict[Site, int]:
    """Return, by site, the highest generation that was read back from any publisher."""
    highest: dict[Site, int] = {}
    for published in shown_ads:
        if not isinstance(published, Unseen):
            for site, ad in published.items():
                highest[site] = max(highest.get(site, 0), ad.generation)
    return highest


def _is_published(ad: SiteAd, published_ad: PublishedAd | None) -> bool:
    return (
        published_ad is not None
        and (published_ad.generation, to_unix(published_ad.as_of)) == (ad.generation, to_unix(ad.as_of))
        and _has_openings(ad, published_ad)
    )


def _has_openings(ad: SiteAd, published_ad: PublishedAd) -> bool:
    """Return True if *published_ad* has the openings of *ad*: each change of openings has another end."""
    ends = [until and to_unix(until) for until in (ad.open_until, published_ad.open_until)]
    return ends[0] == ends[1]
