"""The laws: what must hold whatever goes wrong. They are written from DESIGN.md and the README's promises."""

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from hydrator import startd_cron as hook
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import DatasetState, Did, QueuedJobs, Seen, Site, SiteAd, Survey, Unseen, to_unix
from hydrator.state.clock_step import TOLERATED_AHEAD_SECONDS

if TYPE_CHECKING:
    from hydrator.reconcile.view import CycleView
    from tests.simulation.world import World

EVENTS: Final = (
    "a collector that had forgotten its ads got them again",
    "a fact was too old to be shown",
    "a hook showed its copy",
    "a job (auto) started beside its data",
    "a job (require) started beside its data",
    "a job (wait) started beside its data",
    "a job started away from its data because its set was open",
    "a job started on a reused claim",
    "a job started without its data because its time was over",
    "a kill at a step of catalogue",
    "a kill at a step of disk",
    "a kill at a step of news",
    "a kill at a step of publisher",
    "a kill at a step of save",
    "a site stayed fresh beside a sick catalogue",
    "a held loss was published after its approval",
    "a hold outlived a clock that was set back",
    "a hold outlived a restart",
    "a sudden loss was held",
    "an ad that was lost on its way was not taken for published",
    "an ad was published although the disk was full",
    "an answer came long after its cycle",
    "an answer was cut in the middle",
    "an older view came after a newer one",
    "configuration 0 came into use",
    "the daemon started again because its clock was set",
    "the demand of a silent schedd stayed",
    "withholding protected ads after a lost state",
)
"""What must happen somewhere in each hundred seeds: else the laws say nothing about it."""
SLACK_SECONDS: Final = 60.0
"""Largest time from the cycle that judges a fact to the moment at which a publisher gets the ad."""
FRESH_SECONDS: Final = 40.0
"""Largest age of an ad if all that it depends on is well, beyond two polls: the waits of a cycle."""
KEPT_SECONDS: Final = 23 * 3600.0
"""So long, and an hour more, a dataset is demanded after its last job."""
SAVED_SECONDS: Final = 120.0
"""After this time what a schedd named is in the state on disk."""
WITHHELD_SECONDS: Final = 600.0
"""So long at most a daemon without its state keeps published ads as they are."""
COLLECTOR_SECONDS: Final = 300.0
"""A collector gets an unchanged ad only so often."""
HEALTHY_AFTER_SECONDS: Final = 200.0
"""A part that was sick so long ago is well again: a dropped answer takes 120 s."""
UNREAD_SECONDS: Final = 120.0
"""So long after its fault a publisher may still be unread: an answer that was dropped takes so long."""
SUDDEN_COUNT: Final = 5
"""Fewer datasets of a site than these are no sudden loss."""


@dataclass(frozen=True)
class Report:
    """One answer of a catalogue about one dataset: the sites that list it, and those that have it whole.

    It says nothing about the sites in ``unread_at``, and of those in ``unlisted_at`` only that the catalogue
    does not list them any more. The sites in ``renamed`` had another name in slots then.
    """

    begun: float
    delivered: float
    unread_at: frozenset[Site]
    unlisted_at: frozenset[Site]
    listed_at: frozenset[Site]
    whole_at: frozenset[Site]
    renamed: frozenset[Site] = frozenset()


@dataclass
class Shown:
    """The last ad that a publisher was given for a site, with its time and the incarnation of the state."""

    ad: SiteAd
    at: float
    life: int
    available: frozenset[Did] = field(default_factory=frozenset)


@lru_cache(5000)
def _read(name: str, literal: str) -> Any:
    return hook.read_literal(name, literal)


def available_in(ad: SiteAd) -> frozenset[Did]:
    """Return the datasets that *ad* advertises."""
    return frozenset(_read("AvailableDatasets", dict(ad.content)["AvailableDatasets"]))


class Laws:
    """What was seen in a run, and which laws it broke."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.broken: list[tuple[str, str]] = []
        self.events: Counter[str] = Counter()
        self._named: dict[Did, float] = {}
        self._last_named: dict[Did, float] = {}
        self._heard: dict[Did, float] = {}
        """The time of the first answer that named each dataset since the state was lost."""
        self._answered: dict[str, float] = {}
        """The time of the first answer of each schedd since the state was lost."""
        self._listed: dict[str, float] = {}
        """The time at which this process first saw each schedd listed, and, by "", any schedd at all."""
        self._reports: dict[str, dict[Did, deque[Report]]] = {}
        self._sites: frozenset[Site] = frozenset()
        self._whole_at: dict[tuple[Did, Site], float] = {}
        self._shown: dict[tuple[str, Site], Shown] = {}
        self._first_sent: dict[tuple[Site, int, int], float] = {}
        """The time at which an ad of each site and generation was first sent since the state was lost."""
        self._gone: dict[Site, frozenset[Did]] = {}
        """What left the ads of each site and was judged then: another publisher may get the ad much later."""
        self._lost_ads: dict[tuple[str, Site], tuple[int, int]] = {}
        self._checked: dict[Site, tuple[SiteAd, float]] = {}
        self._life = 0
        self.saved_at = 0.0
        """The time of the last save of the state that is on disk; negative if it was removed."""
        self._loaded_at = 0.0
        """The time of the last save before the present process, or of its start if the state was lost."""
        self.lost_at = -1e9
        """The time at which a process last began without the state."""
        self._withheld_at: float | None = None
        self._forgotten_at = -1e9
        self._held_at_step: frozenset[Site] = frozenset()
        """The sites with a held loss when the clock was set back: the hold outlives that."""
        self._approved: set[tuple[Site, Did]] = set()
        self._starts = [0.0]
        self._last_configuration_at = -1e9
        self._last_configuration = 0
        """The configuration of the last process that started."""
        self._clock_steps: list[tuple[float, float]] = []

    def happened(self, event: str) -> None:
        """Count *event*, one of the situations that each full run must have met."""
        self.events[event] += 1

    def add(self, law: str, sentence: str) -> None:
        """Note that *law* is broken."""
        self._world.tell(f"BROKEN: {law}: {sentence}")
        self.broken.append((law, sentence))

    # ---- what the laws need to know

    def note_survey(self, survey: Survey, begun: float) -> None:
        """Note what a catalogue reported in an answer that it began at the virtual time *begun*."""
        self._sites |= survey.sites
        alias = {site: self._world.shown_as(site, self._world.loaded_configuration) for site in self._sites}
        unlisted = frozenset(name for site in self._sites - survey.sites for name in (site, alias[site]))
        reports = self._reports.setdefault(survey.catalogue, {})
        now = self._world.loop.now
        names = {site: {site, alias[site]} for site in survey.sites}
        renamed = frozenset(site for site in survey.sites if alias[site] != site)
        if now - begun > 10:
            self.happened("an answer came long after its cycle")
        if any(isinstance(one, Unseen) for one in survey.readings.values()):
            self.happened("an answer was cut in the middle")
        for did, reading in survey.readings.items():
            if isinstance(reading, Seen):
                unread = frozenset(
                    name for site in reading.unreachable_sites for name in (site, alias.get(site, site))
                )
                listed, whole = set[Site](), set[Site]()
                for one in reading.replicas:
                    listed |= names[one.site]
                    if one.state is DatasetState.AVAILABLE:
                        whole |= names[one.site]
                for site in whole:
                    self._whole_at[did, site] = max(begun, self._whole_at.get((did, site), begun))
                reports.setdefault(did, deque(maxlen=40)).append(
                    Report(begun, now, unread, unlisted, frozenset(listed), frozenset(whole), renamed)
                )

    def note_listing(self, schedds: Collection[str]) -> None:
        """Note that the collector listed *schedds*; one that has just started lists none."""
        if schedds:
            self._listed = dict.fromkeys(("", *schedds), self._world.loop.now) | self._listed

    def note_demand(self, schedd: str, groups: Sequence[QueuedJobs]) -> None:
        """Note which sets the jobs of *schedd* named."""
        now = self._world.loop.now
        self._answered.setdefault(schedd, now)
        named = {Did(did): now for group in groups for did in group.datasets}
        wanted = self._world.wanted()
        self._named = named | self._named
        self._heard = {did: now for did in named if did in wanted} | self._heard
        self._last_named |= named

    def note_start(self) -> None:
        """Note that a process of the daemon has started."""
        self._starts.append(self._world.loop.now)
        self._listed.clear()
        world = self._world
        for reports in self._reports.values():  # what is or was private is not in the state
            for did in list(reports):
                if world.is_private(did) or world.is_private(did, self._last_configuration):
                    del reports[did]
        self._last_configuration = world.loaded_configuration
        published = {*self._world.published_sites()}
        for publisher, site in list(self._shown):
            if publisher == "http" and site not in published:  # its ads ended with the process before
                del self._shown[publisher, site]
        self._loaded_at = self.saved_at
        if self.saved_at < 0:
            self._held_at_step = frozenset()
            self.note_lost_state()
        elif self._age(self.saved_at, 0.0) < -TOLERATED_AHEAD_SECONDS:
            self.note_lost_state()  # its times are in the future

    @property
    def _started_at(self) -> float:
        return self._starts[-1]

    def note_lost_state(self) -> None:
        """Note that a process begins without the state on disk."""
        self._life += 1
        self.lost_at = self._world.loop.now
        self._loaded_at = self.lost_at  # withholding keeps what earlier processes knew
        self._heard.clear()
        self._answered.clear()

    def note_clock_step(self, seconds: float) -> None:
        """Note that the wall clock was set forward by *seconds*."""
        self._clock_steps.append((self._world.loop.now, seconds))
        if seconds < 0 and not self._world.faults.of("disk"):  # a full disk has no hold
            self._held_at_step = frozenset(
                site
                for (_, site), shown in self._shown.items()
                if site in self._world.held_losses()
                and not all(self._is_listed(did, site) for did in shown.available)  # the last answer has them
            )

    @property
    def was_set_back(self) -> bool:
        """Return True if the clock was set back so far that the state on disk is from the future."""
        return any(seconds < -SLACK_SECONDS for _, seconds in self._clock_steps)

    def note_approval(self, site: Site, dids: Collection[Did]) -> None:
        """Note that the operator lets the held *dids* leave the ad of *site*."""
        self._approved.update((site, did) for did in dids)

    def note_sent(self, publisher: str, ad: SiteAd, before: SiteAd | None, *, is_lost: bool) -> None:
        """Note that *ad* replaces *before*, and whether a publisher lost *ad*, so that no reader finds it."""
        version = ad.generation, to_unix(ad.as_of)
        if not is_lost:
            self._lost_ads.pop((publisher, ad.site), None)
        elif before is None or version != (before.generation, to_unix(before.as_of)):
            self._lost_ads[publisher, ad.site] = version

    def note_forgotten(self) -> None:
        """Note that the collector lost all its ads, as when it restarts."""
        self._forgotten_at = self._world.loop.now

    def note_withdrawn(self, publisher: str, site: Site) -> None:
        """Note that *publisher* has no ad of *site* any more: the site is retired, or has gone."""
        shown, world = self._shown.pop((publisher, site), None), self._world
        is_new = world.loop.now - self._last_configuration_at <= SLACK_SECONDS
        # no answer has renewed the ad for so long, and a new name of a cloud's site looks the same
        if shown and not shown.available and to_unix(world.clock()) - to_unix(shown.ad.as_of) > world.max_age:
            self.happened("an old ad without datasets was withdrawn")
        elif site in world.published_sites() and not is_new:
            self.add("withdrawn", f"{publisher} has no ad of {site} any more, which is not retired")

    def _age(self, begun: float, slack: float = SLACK_SECONDS) -> float:
        """Return how old a report from *begun* is by the wall clock, without steps of the last seconds."""
        now = self._world.loop.now
        return now - begun + sum(seconds for at, seconds in self._clock_steps if begun < at < now - slack)

    def note_configuration(self) -> None:
        """Note that the configuration changes."""
        self._last_configuration_at = self._world.loop.now
        wanted = self._world.wanted()  # not what only a set with a dataset that is private now has
        self._heard = {did: at for did, at in self._heard.items() if did in wanted}
        demanded = wanted if self._world.section("publish").get("never") else wanted | self._named.keys()
        for reports in self._reports.values():  # what is demanded no more is forgotten
            for did in reports.keys() - demanded:
                del reports[did]

    # ---- an ad that the daemon sends

    def check_ad(self, publisher: str, ad: SiteAd, there: SiteAd | None) -> None:
        """Check an ad that the daemon gives to *publisher* in place of the ad *there*."""
        before = self._shown.get((publisher, ad.site))
        now = Shown(ad, self._world.loop.now, self._life, available_in(ad))
        self._shown[publisher, ad.site] = now
        self._first_sent.setdefault((ad.site, ad.generation, self._life), now.at)
        if "full" in self._world.faults.active("disk", now.at):
            self.happened("an ad was published although the disk was full")
        if self._checked.get(ad.site) != (ad, now.at // SLACK_SECONDS):  # publishers get the same ad together
            self._checked[ad.site] = ad, now.at // SLACK_SECONDS
            self._check_reported(now)
            self._check_asked(now)
            self._check_ages(now)
            self._check_released(now)
        if there and not (before and self._is_forgotten(publisher, before, now)):
            self._check_generation(there, ad)
        judged = self._gone.get(ad.site, frozenset()) - now.available
        replaced = there or (self._find_other(ad) if publisher == "http" else None)
        if before and replaced and (gone := before.available - now.available - judged):
            self._check_gone(before, now, gone)
            judged |= gone
        self._gone[ad.site] = judged

    def _find_other(self, new: SiteAd) -> SiteAd | None:
        """Return an ad that the ad *new* will replace at a publisher.

        A process without its state serves no ad over HTTP at first, and decides there what the others get.
        """
        ads = (self._world.shown_ad(publisher, new.site) for publisher in self._world.shelves)
        return next((ad for ad in ads if ad and ad.generation != new.generation), None)

    def _reports_of(self, did: Did) -> Iterator[deque[Report]]:
        return (reports[did] for reports in self._reports.values() if did in reports)

    def _last_whole(self, did: Did, site: Site) -> float:
        """Return when the last report began that says that *did* is whole at *site*."""
        return self._whole_at.get((did, site), -1e9)

    def age_of_report(self, did: Did, site: Site, slack: float = SLACK_SECONDS) -> float:
        """Return how long ago, by the wall clock, a report began that says that *did* is whole at *site*."""
        return self._age(self._last_whole(did, site), slack)

    def seconds_since_report(self, did: Did, site: Site) -> float:
        """Return how long ago this report began, whatever the wall clock did meanwhile."""
        return self._world.loop.now - self._last_whole(did, site)

    def _check_reported(self, now: Shown) -> None:
        """Nothing is advertised that no catalogue reported within the age bound (decision 6)."""
        limit = self._world.max_age + SLACK_SECONDS
        for did in sorted(now.available):
            age = self.age_of_report(did, now.ad.site)
            # a step of the last minute may have been noticed, or not
            if age > limit and self.age_of_report(did, now.ad.site, 0.0) > limit:
                self.add("reported", f"{did} at {now.ad.site} was last reported whole {age:.0f} s ago")

    def _check_ages(self, now: Shown) -> None:
        """What is advertised has an age that jobs may trust, and that is true (decision 6)."""
        ad, world, wall = now.ad, self._world, to_unix(self._world.clock())
        ages = _read("DatasetAsOf", dict(ad.content)["DatasetAsOf"])
        times = {did: ages.get(did, to_unix(ad.as_of)) for did in now.available}
        steps = sum(
            seconds for at, seconds in self._clock_steps if at > now.at - SLACK_SECONDS and seconds > 0
        )
        if wall - min(times.values(), default=wall) - steps > world.max_age + SLACK_SECONDS:
            self.add("ages", f"the ad of {ad.site} advertises what is {wall - min(times.values())} s old")
        if ad.site not in world.published_sites():
            return  # the name of a site of another configuration
        reported = {did: self._last_whole(did, ad.site) for did in times}
        latest = {  # by time of a report: most datasets share it
            at: to_unix(world.clock_at(at)) + self._set_back_since(at)
            for at in {*reported.values()}
            if at > 0
        }
        for did, time in sorted(times.items()):
            if time > latest.get(reported[did], time):
                self.add(
                    "ages", f"the ad of {ad.site} says that {did} is {wall - time} s old, which is wrong"
                )

    def _set_back_since(self, begun: float) -> float:
        """Return the seconds by which a time before *begun* may be ahead of the clock as it is set now.

        A large step of the last minute may not be noticed yet; a small one is tolerated for ever.
        """
        now = self._world.loop.now
        return 2 - sum(
            seconds
            for at, seconds in self._clock_steps
            if at > begun
            and (-TOLERATED_AHEAD_SECONDS < seconds < 0 or (seconds < 0 and at > now - SLACK_SECONDS))
        )

    def _check_asked(self, now: Shown) -> None:
        """Only what jobs, pins or patterns name is in an ad, and nothing private (decisions 2, 16)."""
        world = self._world
        if now.at - self._last_configuration_at <= SLACK_SECONDS:
            return
        if secret := sorted(filter(world.is_private, now.available)):
            self.add("private", f"{', '.join(secret)} in the ad of {now.ad.site}")
        unasked = [did for did in now.available - self._named.keys() if not world.is_chosen(did)]
        if unasked:
            self.add("asked", f"{', '.join(sorted(unasked))} in the ad of {now.ad.site}, which nobody named")

    def _check_released(self, now: Shown) -> None:
        """A loss is held until polls confirmed it, and no longer, over restarts too (decision 7)."""
        site, world = now.ad.site, self._world
        needed = world.confirming_polls + 2  # the poll that saw it, and one whose answer has just come
        unknown = {*world.unlisted_sites(), *world.withheld_sites()}
        if world.faults.of("disk") or site in unknown or site not in world.published_sites():
            return
        for did in sorted(now.available):
            last = self._last_whole(did, site)
            poll_seconds = world.section("daemon")["poll_seconds"]
            if now.at - last < 2 * poll_seconds or self._is_listed(did, site):
                continue
            since = max(self._named_so_since(site), self._last_loss_at(site))
            count, _ = self._count_losses(did, site, poll_seconds / 2, since)
            restarts = sum(at > last for at in self._starts)  # what is killed forgets its last poll
            if count is not None and count > needed + restarts:
                self.add("released", f"{did} is still in the ad of {site}, though {count} answers lack it")
            elif restarts:
                self.happened("a hold outlived a restart")

    def _check_generation(self, old: SiteAd, new: SiteAd) -> None:
        """Generations only rise, also over a restart, a lost state and a clock that is set (the contract)."""
        has_changed = new.content != old.content
        if new.generation < old.generation or (new.generation == old.generation and has_changed):
            what = "other" if has_changed else "the same"
            self.add("generation", f"{new.site}: {old.generation}, then {new.generation} with {what} content")

    def _is_forgotten(self, publisher: str, before: Shown, now: Shown) -> bool:
        """Return True if nothing that the daemon could read knew the generation of the ad *before*.

        The state was lost, this publisher could not be read when the new ad got its generation, and the clock
        has been set back: else the present time is a higher generation than all earlier ones. DESIGN.md has
        no repair of clock steps. The publisher then has an ad of the same generation until the next refresh.
        """
        first = self._first_sent[now.ad.site, now.ad.generation, now.life]
        is_unread = any(
            fault.kind in {"fail", "hang", "drop"} and fault.at <= first < fault.end + UNREAD_SECONDS
            for fault in self._world.faults.of(f"publisher {publisher}")
        )
        is_behind = now.ad.generation > to_unix(self._world.clock())
        return before.life < now.life and is_unread and is_behind

    def _check_gone(self, before: Shown, now: Shown, gone: frozenset[Did]) -> None:
        site = now.ad.site
        if self._world.loop.now - self._last_configuration_at < SLACK_SECONDS:
            return
        if self._world.shown_as(site) != site:
            return  # the name of a site of an earlier configuration
        if self._life and self._has_just_stopped_withholding(now.at):
            return  # withholding ends, whoever is silent
        wanted = {
            did
            for did in self._world.wanted()
            if self._world.is_chosen(did) or self._can_know(did, before.at)
        }
        is_private = self._world.section("publish").get("never")
        if not self._life and not is_private and not self._world.faults.of("disk"):
            # Demand stays 24 h after its last job (decision 2), and is saved before an ad shows it.
            wanted |= {
                did
                for did, first in self._named.items()
                if (now.at - first > SAVED_SECONDS or not self._world.was_chosen(did))
                and now.at - self._last_named[did] < KEPT_SECONDS
                and not self._world.is_private(did)
            }
        lost = []
        for did in sorted(gone & wanted):
            if self._has_aged(did, site):
                self.happened("a fact was too old to be shown")
                continue
            is_approved = (site, did) in self._approved
            reports_of = () if is_approved else self._reports_of(did)
            if any(self._is_surely_whole(reports, site, now.at) for reports in reports_of):
                self.add("unknown is not absent", f"{did} left the ad of {site}, though it is reported")
            elif not self._has_aged(did, site, by_name=True):
                lost.append(did)
        if lost and (before.life == now.life or site in self._held_at_step):
            self._check_confirmed(before, now, lost)

    def _has_just_stopped_withholding(self, now: float) -> bool:
        """Return True if a process withheld ads as long as it may, and this has just ended.

        What it decided then is saved: the process after it may be the first to send it.
        """
        begun = [max(at, self.lost_at) for at in self._starts]
        return any(
            ended - at > WITHHELD_SECONDS > now - at - 2 * SLACK_SECONDS
            for at, ended in zip(begun, [*self._starts[1:], now], strict=True)
        )

    def _can_know(self, did: Did, shown_at: float) -> bool:
        """Return True if the daemon can know, or has to expect, that jobs name *did*.

        An ad with *did* was given to its publisher at *shown_at*: answers before it were known then.
        """
        schedds = [
            name
            for name, queue in self._world.truth.queues.items()
            if any(did in dids and not any(map(self._world.is_private, dids)) for dids in queue)
            if self._is_expected(name)
        ]
        heard = self._heard.get(did, 1e9)
        # the cycle may have begun with an earlier answer
        if heard > max(shown_at, self._world.loop.now - SLACK_SECONDS):
            return any(self._answered.get(one, 1e9) >= heard for one in schedds)
        is_unsaved = any(one.at - SLACK_SECONDS < heard for one in self._world.faults.of("disk"))
        return bool(schedds) and (self._last_named[did] > self._started_at or not is_unsaved)

    def _is_expected(self, schedd: str) -> bool:
        """Return False if the daemon does not know *schedd*: it was gone before the collector listed it.

        Only a daemon that lost its state forgets a schedd.
        """
        begun = self._world.loop.now - SLACK_SECONDS  # the cycle
        first, listed = self._listed.get("", 1e9), self._listed.get(schedd, 1e9)
        return not self._life or self._answered.get(schedd, 1e9) < begun or listed <= max(first, begun)

    def _is_surely_whole(self, reports: deque[Report], site: Site, now: float) -> bool:
        """Return True if the last reports all say so, and not only the very last one (decision 7).

        If no report ever said anything else, one is enough: it is on disk before an ad shows it.
        A report that is too old to be shown says nothing against those of another catalogue. What came before
        the state was lost is forgotten when withholding ends.
        """
        since = self.lost_at if now - self.lost_at > WITHHELD_SECONDS else -1e9
        since = max(since, self._named_so_since(site))
        known = [one for one in reports if since <= one.delivered <= now and site not in one.unread_at]
        if known and self._age(known[-1].begun, 0.0) > self._world.max_age - SLACK_SECONDS:
            return False
        if len(known) < 3 and not self._world.faults.of("disk"):
            return bool(known) and all(site in one.whole_at for one in known)
        last = known[-3:]
        return (
            len(last) > 1
            and all(site in one.whole_at for one in last)
            and now - last[-2].delivered > SLACK_SECONDS / 2
        )

    def _has_aged(self, did: Did, site: Site, *, by_name: bool = False) -> bool:
        """Return True if all that the process heard, or loaded from a disk that was full, is too old.

        *by_name*: what it heard while *site* had another name does not count.
        """
        known = [
            one.begun
            for reports in self._reports_of(did)
            for one in reports
            if site in one.whole_at
            and not self._is_unsaved(one.delivered)
            and not (by_name and site in one.renamed)
        ]
        return self._age(max(known, default=-1e9), 0.0) > self._world.max_age - SLACK_SECONDS

    def _is_unsaved(self, at: float) -> bool:
        """Return True if what an earlier process heard at *at* may be lost, since its disk was full."""
        disk = self._world.faults.of("disk")
        is_full = any(one.kind == "full" and one.at < self._started_at for one in disk)
        return is_full and self._loaded_at <= at < self._started_at

    def _check_confirmed(self, before: Shown, now: Shown, lost: Sequence[Did]) -> None:
        """A sudden loss of more than half of a site waits until polls have confirmed it (decision 7)."""
        site, limit = now.ad.site, self._world.confirming_polls
        if all((site, did) in self._approved for did in lost):
            self.happened("a held loss was published after its approval")
            return
        lost = [did for did in lost if not self._is_listed(did, site)]
        if len(lost) * 2 <= len(before.available) or len(lost) < SUDDEN_COUNT:
            return
        losses = [self._count_losses(did, site) for did in lost]
        if any(count is None for count, _ in losses) or len({at for _, at in losses}) > 1:
            return  # not at once
        if self._is_unsaved(losses[0][1]):
            return  # by the state that it has, the site had nothing
        count = min(count or 0 for count, _ in losses)
        if count <= limit:
            what = f"{len(lost)} of {len(before.available)} datasets"
            self.add("confirmation", f"{what} left the ad of {site} after {count} polls, {limit} must follow")
        else:
            self.happened("a sudden loss was confirmed by further polls, then published")

    def _is_listed(self, did: Did, site: Site) -> bool:
        """Return True if the last answer of a catalogue that looked at *site* lists *did* there."""
        known = [
            [one for one in reports if site not in one.unread_at | one.unlisted_at]
            for reports in self._reports_of(did)
        ]
        return any(site in reports[-1].listed_at for reports in known if reports)

    def _named_so_since(self, site: Site) -> float:
        """Return when the answers began to count for *site*: it had another name before, or was retired."""
        sections = [one.get("sites", {}) for one in self._world.configurations]
        is_changed = any(site in {*one.get("aliases", ()), *one.get("retired", ())} for one in sections)
        return self._last_configuration_at if is_changed else -1e9

    def _last_loss_at(self, site: Site) -> float:
        """Return when the last answer came that had a dataset at *site* which a later one lacks.

        Each further loss starts the count of polls for the whole site again.
        """
        return max(
            (
                max(one.delivered for one in reports if site in one.whole_at)
                for did, name in self._whole_at
                if name == site and not self._is_listed(did, site)
                for reports in self._reports_of(did)
                if any(site in one.whole_at for one in reports)
            ),
            default=-1e9,
        )

    def _count_losses(
        self, did: Did, site: Site, spacing: float = 0.0, since: float = -1e9
    ) -> tuple[int | None, float]:
        """Return how many answers since the last one with *did* at *site* lack it, and when that one came.

        Of answers that came within *spacing* seconds count one, and of those before *since* none.
        """
        known = [reports for reports in self._reports_of(did) if any(site in one.whole_at for one in reports)]
        if len(known) != 1:
            return None, 0.0
        reports = [one for one in known[0] if site not in one.unread_at | one.unlisted_at]
        last = max(number for number, one in enumerate(reports) if site in one.whole_at)
        count, counted_at = 0, since - spacing
        for one in reports[last + 1 :]:
            if one.delivered - counted_at >= spacing:
                count, counted_at = count + 1, one.delivered
        return count, reports[last].delivered

    # ---- once a minute

    def watch(self) -> None:
        """Check what must hold at every moment of a run."""
        self._check_freshness()
        self._check_shown()
        self._check_read_back()
        self._note_events()

    def _is_well(self, part: str, since: float = HEALTHY_AFTER_SECONDS) -> bool:
        now, faults = self._world.loop.now, self._world.faults.of(part)
        # a catalogue that takes long for each answer is well: no part gives up on it;
        # a collector that has forgotten its ads answers, so the next cycle sends them again
        waits = {"forget": self._fresh_seconds, "slow": -1e9}
        return all(one.end + waits.get(one.kind, since) < now or one.at > now for one in faults)

    def _is_settled(self, seconds: float = HEALTHY_AFTER_SECONDS) -> bool:
        """Return True if the daemon has run for a while, with its disk and clock in order."""
        now, world = self._world.loop.now, self._world
        steps = [at for at, _ in self._clock_steps]
        since = max(self._started_at, self._last_configuration_at, *steps)
        return world.daemon is not None and now - since > seconds and self._is_well("disk")

    @property
    def _fresh_seconds(self) -> float:
        """Return the largest age of an ad if all that it depends on is well."""
        return 2.0 * self._world.section("daemon")["poll_seconds"] + FRESH_SECONDS

    def _check_freshness(self) -> None:
        """A sick part ages only what depends on it: the rest stays fresh (decisions 7, 18, 20)."""
        world = self._world
        if not self._is_settled() or not self._is_well("schedds"):
            return
        earlier = world.truth_at(world.loop.now - HEALTHY_AFTER_SECONDS)
        new = {site for name, sites in world.truth.sites.items() for site in sites - earlier.sites[name]}
        held = world.held_sites() | {*map(world.shown_as, world.unlisted_sites() | new)}
        for site in world.published_sites():
            listing, others = [], []
            for name, sites in world.truth.sites.items():
                (listing if site in map(world.shown_as, sites) else others).append(f"catalogue {name}")
            if not listing or site in held:
                continue
            for publisher, extra in (("file", 0.0), ("http", 0.0), ("collector", COLLECTOR_SECONDS)):
                if self._is_fresh(publisher, site, listing, extra) and not all(map(self._is_well, others)):
                    self.happened("a site stayed fresh beside a sick catalogue")

    def _is_fresh(self, publisher: str, site: Site, listing: Sequence[str], extra: float) -> bool:
        shown, since = self._world.shown_ad(publisher, site), HEALTHY_AFTER_SECONDS + extra
        parts = (f"publisher {publisher}", *listing)
        if shown is None and all(map(self._is_well, parts)):
            self.add("freshness", f"{publisher} has no ad of {site}, its parts are well")
        if shown is None or not self._is_settled(since):
            return False
        if not all(self._is_well(part, since) for part in parts):
            return False
        age = to_unix(self._world.clock()) - to_unix(shown.as_of)
        if age > self._fresh_seconds + extra:
            self.add("freshness", f"{publisher}'s ad of {site} is {age} s old, its parts are well")
        return age <= self._fresh_seconds + extra

    def _check_shown(self) -> None:
        """What the daemon shows over HTTP is what the publishers have (decision 8).

        A daemon without its state and without any schedd has no cycle: it would empty all ads.
        """
        world = self._world
        parts = ("publisher file", "publisher http", "publisher collector", "schedds")
        well = all(map(self._is_well, parts))
        if not self._is_settled() or not well:
            return
        for site in world.section("sites").get("retired", ()):
            if world.shown_ad("file", site) or world.shown_ad("http", site):
                self.add("retired", f"the ad of {site}, which is retired, is still there")
        for site in world.published_sites():
            served, filed = world.shown_ad("http", site), world.shown_ad("file", site)
            if served is None or filed is None or served.generation != filed.generation:
                continue  # between two publishers
            if served.content != filed.content:
                self.add("shown", f"the ads of {site} over HTTP and in its file differ")

    def _check_read_back(self) -> None:
        """An ad that was sent and cannot be read back is not taken for published (decision 8)."""
        view = self._world.view
        unconfirmed = (
            {one.name: one.not_read_back for one in view.publishers if not one.error} if view else {}
        )
        for row in view.plan if view else ():
            version = row.generation, row.as_of
            if row.publisher in unconfirmed and self._lost_ads.get((row.publisher, row.site)) == version:
                if row.site not in unconfirmed[row.publisher]:
                    self.add(
                        "read back", f"{row.publisher} lost the ad of {row.site}, and the daemon says nothing"
                    )
                else:
                    self.happened("an ad that was lost on its way was not taken for published")
        if view:
            self._check_forgotten(view, unconfirmed.get("collector"))

    def _check_forgotten(self, view: "CycleView", unconfirmed: Collection[Site] | None) -> None:
        """A cycle sends the ads again that a collector forgot before it began (decision 8)."""
        world = self._world
        began = world.loop.now - (to_unix(world.clock()) - view.at) - 1
        if unconfirmed is None or not -1e9 < self._forgotten_at < began:
            return
        if any(at > self._started_at for at, _ in self._clock_steps):
            return  # by the clock as it is now, the cycle began at another time
        for site in view.sites:
            if site.generation is not None and site.site not in unconfirmed:
                if world.shown_ad("collector", site.site) is None:
                    self.add("read back", f"the collector forgot {site.site}, and the daemon says nothing")
                else:
                    self.happened("a collector that had forgotten its ads got them again")

    def _note_events(self) -> None:
        world, now = self._world, self._world.loop.now
        since = max(self.lost_at, self._started_at)
        if not (sites := world.withheld_sites()):
            self._withheld_at = None
        elif self._withheld_at is None or self._withheld_at < since:
            self._withheld_at = now  # the first cycle may have waited for the demand
        elif now - self._withheld_at > WITHHELD_SECONDS + SLACK_SECONDS:
            waited = now - self._withheld_at
            self.add("withholding", f"the ads of {', '.join(sorted(sites))} wait for {waited:.0f} s")
        for event, is_so in (
            ("a sudden loss was held", bool(world.held_losses())),
            ("withholding protected ads after a lost state", bool(world.withheld_sites())),
            (
                "a hold outlived a clock that was set back",
                now - since > SLACK_SECONDS and not self._held_at_step.isdisjoint(world.held_losses()),
            ),
        ):
            if is_so:
                self.happened(event)
        shown = {did for (_, site), one in self._shown.items() if one.at > now - 60 for did in one.available}
        for schedd, queue in world.truth.queues.items():
            if (
                world.faults.active(f"schedd {schedd}", now)
                and {did for dids in queue for did in dids} & shown
            ):
                self.happened("the demand of a silent schedd stayed")

    # ---- the end: what is published is the truth

    def check_end(self) -> None:
        """Check, some time after the last fault, that every publisher has the truth."""
        world = self._world
        if world.is_daemon_gone:
            return None
        if world.daemon is None:
            return self.add("truth", "the daemon does not run")
        for_a_person = world.losses_for_a_person()
        for site in sorted(world.truth.all_sites - world.unlisted_sites()):
            shown_as = world.shown_as(site)
            if shown_as in for_a_person:
                continue  # its loss was held when the clock was set back
            for source, extra in (("file", 0.0), ("http", 0.0), ("collector", COLLECTOR_SECONDS)):
                text = world.read_source(source, shown_as)
                if site in world.section("sites").get("retired", ()):
                    if text is not None:
                        self.add("truth", f"{source} has an ad of {site}, which is retired")
                elif text is None:
                    self.add("truth", f"{source} has no ad of {shown_as}")
                else:
                    self._check_source(source, site, text, self._fresh_seconds + extra)
        return None

    def _check_source(self, source: str, site: Site, text: str, max_age: float) -> None:
        """Check the ad of *site* from *source*; one in the collector may be older."""
        world, shown_as = self._world, self._world.shown_as(site)
        what, now = f"{source}'s ad of {shown_as}", to_unix(world.clock())
        try:
            ad = hook.read_ad(text.encode(), shown_as, now)
        except hook.InvalidAd as error:
            return self.add("truth", f"{what}: {error}")
        if source == "collector" and (sent := self._shown.get((source, shown_as))):
            max_age += max(0.0, now - ad["DataLocalityAsOf"] - (world.loop.now - sent.at))
        return self._check_truth(what, site, ad, max_age)

    def check_from_nothing(self, fresh: "World") -> None:
        """A, then B, then A again ends as A from nothing (decision 21)."""
        world = self._world
        wanted = world.wanted()
        for site in sorted({*world.published_sites()} - {*map(world.shown_as, world.unlisted_sites())}):
            here, there = world.shown_ad("file", site), fresh.shown_ad("file", site)
            if here is None or there is None:
                self.add("from nothing", f"{site} has no ad")
                continue
            for name in ("DatasetStates", "DatasetFractions"):
                was, should = (
                    {did: one for did, one in _read(name, dict(ad.content)[name]).items() if did in wanted}
                    for ad in (here, there)
                )
                if was != should:
                    self.add("from nothing", f"{name} of {site} is {was}, from nothing {should}")

    def _check_truth(self, what: str, site: Site, ad: Mapping[str, Any], max_age: float) -> None:
        truth, world = self._world.truth, self._world
        wanted, shown = world.wanted(), set(ad["AvailableDatasets"])
        whole = {did for did in truth.sizes if truth.share(did, site) == 1}
        if missing := (wanted & whole) - shown:
            self.add("truth", f"{what} lacks {', '.join(sorted(missing))}")
        if wrong := shown - whole:
            self.add("truth", f"{what} has {', '.join(sorted(wrong))}, which is not whole there")
        if unasked := shown - wanted - self._named.keys():
            self.add("truth", f"{what} has {', '.join(sorted(unasked))}, which nobody named")
        if secret := {did for did in shown if world.is_private(did)}:
            self.add("truth", f"{what} has {', '.join(sorted(secret))}, which are private")
        if (age := to_unix(world.clock()) - ad["DataLocalityAsOf"]) > max_age:
            self.add("truth", f"{what} is {age} s old")
        for queue in truth.queues.values():
            for dids in queue:
                if not any(world.is_private(did) for did in dids):
                    self._check_share(what, site, ad["DataLocalitySets"], dids)

    def _check_share(self, what: str, site: Site, sets: dict[str, float], dids: tuple[Did, ...]) -> None:
        truth = self._world.truth
        total = sum(truth.sizes[did] for did in dids)
        share = sum(truth.sizes[did] * (truth.share(did, site) or 0) for did in dids) / total
        shown = sets.get(set_key(dids))
        if shown is None or abs(shown - share) > 0.02 or (shown == 1) != (share == 1):
            self.add("truth", f"{what} shows {shown} of {', '.join(dids)}, where {share:.2f} is")
