"""Plan of pins: which datasets would leave a site before the jobs have run that need them there. Pure.

A pin is a rule of ours beside the rules of others. It is set only where a rule exists and all rules end. On
data without any rule, a pin would do harm: when it ends, the data may be deleted.

Schedule of pins: which jobs' data is searched now for rules that end soon.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hydrator.domain.model import Did, Site
from hydrator.domain.staging_ports import ExistingRule, RequestState, StagingKind

from .ledger import EntryState, Ledger, make_batch
from .needs import LiveNeed, LiveNeeds
from .policy import StagingMode, StagingPolicy
from .stage_plan import CatalogueFacts, NotAsked
from .usage import PlannedBatch, PlannedItem, Usage
from .view import DataView

NOT_PINNED = "not pinned: "
"""Start of the reason of a dataset that is not pinned."""
PIN_INTERVAL = timedelta(minutes=15)
"""Interval between two searches for data that is about to leave."""


@dataclass(frozen=True, slots=True)
class PinPlan:
    """Pins to set, pins that the mode propose only shows, and the datasets that cannot be pinned.

    ``ends_at`` has the datasets whose last rule ends too soon, with the time of its end.
    """

    batches: tuple[PlannedBatch, ...] = ()
    proposals: tuple[PlannedBatch, ...] = ()
    not_pinned: tuple[NotAsked, ...] = ()
    ends_at: Mapping[Did, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Keeper:
    """The rules that keep one dataset at one site until ``ends_at``; ``ending_rule`` if that is too soon."""

    did: Did
    ends_at: datetime | None
    ending_rule: ExistingRule | None = None
    is_unruled: bool = False

    @property
    def is_safe(self) -> bool:
        return self.ending_rule is None and not self.is_unruled


def find_pinnable_sites(need: LiveNeed, view: DataView) -> tuple[Site, ...]:
    """Return the sites that have all datasets of *need* and where its jobs run, or could run."""
    jobs = need.jobs
    if jobs.is_running:
        sites: Iterable[Site] = [jobs.running_site] if jobs.running_site else []
    else:
        sites = (site for site in view.facts if jobs.matching_sites is None or site in jobs.matching_sites)
    return tuple(site for site in sorted(sites) if all(view.is_available(did, site) for did in need.dids))


class PinPlanner:
    """A planner of pins for one step.

    Running jobs need their data at their site. For idle jobs one site that keeps the data is enough.
    """

    def __init__(
        self,
        view: DataView,
        ledger: Ledger,
        catalogues: Sequence[CatalogueFacts],
        policy: StagingPolicy,
        now: datetime,
    ) -> None:
        self._view = view
        self._ledger = ledger
        self._catalogues = catalogues
        self._policy = policy
        self._now = now
        self._usage = Usage.of(ledger, now)
        self._entries = ledger.group_entries()
        self._batches: list[PlannedBatch] = []
        self._not_pinned: list[NotAsked] = []
        self._pinned: set[tuple[Did, Site]] = set()
        self._ends_at: dict[Did, datetime] = {}

    def plan(self, needs: Iterable[LiveNeed]) -> PinPlan:
        """Plan the pins for the jobs of *needs*, the oldest jobs first."""
        if self._view.problem:
            return PinPlan()
        for need in sorted(needs, key=lambda one: (one.jobs.queued_since, one.schedd, one.dids)):
            if not any(self._view.unseen_reason(did) for did in need.dids):
                self._serve(need)
        allowed: list[PlannedBatch] = []
        shown: list[PlannedBatch] = []
        for batch in self._batches:
            mode = self._policy.mode_of(batch.catalogue, batch.site)
            (allowed if mode is StagingMode.ASK else shown).append(batch)
        return PinPlan(tuple(allowed), tuple(shown), tuple(self._not_pinned), self._ends_at)

    def _serve(self, need: LiveNeed) -> None:
        options = [
            (facts, site, [self._find_keeper(did, site, facts) for did in need.dids])
            for facts in self._catalogues
            for site in find_pinnable_sites(need, self._view)
            if site in self._policy.allowed_sites(facts.name) - self._policy.unpinned_sites
        ]
        if not options or any(all(keeper.is_safe for keeper in keepers) for *_, keepers in options):
            return
        for keeper in (one for *_, keepers in options for one in keepers if one.ending_rule):
            self._ends_at[keeper.did] = max(
                keeper.ends_at or self._now, self._ends_at.get(keeper.did, self._now)
            )
        options.sort(key=lambda row: (sum(not keeper.is_safe for keeper in row[2]), row[1]))
        reasons = []
        for facts, site, keepers in options:
            reason = self._explain_impossible(facts, site, keepers)
            if reason is None:
                self._add(need, facts, site, keepers)
                return
            reasons.append((reason, site))
        jobs = need.jobs
        reason, site = reasons[0]
        self._not_pinned.append(
            NotAsked(need.dids, need.user, jobs.job_count, jobs.example, f"{NOT_PINNED}{reason}", site)
        )

    def _find_keeper(self, did: Did, site: Site, facts: CatalogueFacts) -> _Keeper:
        own = [
            entry
            for entry in self._entries.get(did, ())
            if entry.site == site and entry.state is not EntryState.CANCELLING
        ]
        rules = [rule for rule in facts.rules_for(did, site) if rule.state is RequestState.DONE]
        if own or (did, site) in self._pinned or any(rule.expires_at is None for rule in rules):
            return _Keeper(did, None)
        if not rules:
            return _Keeper(did, self._now, is_unruled=True)
        last = max(rules, key=lambda rule: (rule.expires_at or self._now, rule.handle))
        least = max(self._policy.times.pin_lifetime / 2, 2 * PIN_INTERVAL)
        is_late = (last.expires_at or self._now) - self._now > least
        return _Keeper(did, last.expires_at, None if is_late else last)

    def _explain_impossible(
        self, facts: CatalogueFacts, site: Site, keepers: Sequence[_Keeper]
    ) -> str | None:
        """Return why the datasets of *keepers* cannot be pinned at *site*; None if they can."""
        if facts.name in self._ledger.halts:
            return f"catalogue {facts.name} refused: {self._ledger.halts[facts.name]}"
        sizes = []
        for keeper in keepers:
            if keeper.is_unruled:
                return f"no rule keeps {keeper.did} at {site}, so a pin that ends would make it deletable"
            if keeper.ending_rule is None:
                continue
            if keeper.did not in facts.sizes:
                return f"the size of {keeper.did} is unknown"
            failure = self._ledger.failures.get((keeper.did, site))
            if failure and (failure.is_final or self._now < failure.retry_at):
                return f"the last attempt for {keeper.did} failed: {failure.reason}"
            sizes.append(facts.sizes[keeper.did].bytes)
        return self._usage.explain_excess_of_pins(sum(sizes), self._policy.limits)

    def _add(self, need: LiveNeed, facts: CatalogueFacts, site: Site, keepers: Sequence[_Keeper]) -> None:
        """Reserve and plan the pins of the datasets whose last rule ends too soon."""
        items = tuple(
            PlannedItem(
                keeper.did,
                facts.sizes[keeper.did].bytes,
                facts.sizes[keeper.did].files,
                None,
                keeper.ending_rule.storage,
            )
            for keeper in keepers
            if keeper.ending_rule
        )
        name = make_batch(site, {item.did: item.bytes for item in items})
        batch = PlannedBatch(
            name, facts.name, StagingKind.PIN, site, items, need.user, need.jobs.job_count,
            need.jobs.queued_since, need.jobs.example, frozenset({need.schedd}),
            self._policy.times.pin_lifetime,
        )  # fmt: skip
        self._usage.add(batch)
        self._pinned.update((item.did, site) for item in items)
        self._batches.append(batch)


_Place = tuple[tuple[Did, ...], tuple[Site, ...], bool]


class PinSchedule:
    """The time of the last search, and the jobs that it covered.

    All jobs are searched every PIN_INTERVAL. Jobs with other datasets or other sites are searched at once,
    because their rules may end before the next search. So are the jobs whose data leaves before the search
    after the next one, until a rule keeps it. Data that a request of ours keeps needs no search.
    """

    def __init__(self) -> None:
        self._searched_at: datetime | None = None
        self._searched: frozenset[_Place] = frozenset()
        self._is_complete = False

    def choose(self, needs: LiveNeeds, view: DataView, ledger: Ledger, now: datetime) -> tuple[LiveNeed, ...]:
        """Return the needs to search now; none whose datasets were not seen in this cycle."""
        if view.problem:
            return ()
        own = {
            (one.did, one.site)
            for one in ledger.entries.values()
            if one.state is not EntryState.CANCELLING and (one.is_complete or one.kind is StagingKind.PIN)
        }
        places = {need: _place_of(need, view) for need in needs.current_needs if _is_seen(need, view)}
        places = {need: place for need, place in places.items() if place[1] and not _is_kept(place, own)}
        self._is_complete = self._searched_at is None or now - self._searched_at >= PIN_INTERVAL
        if self._is_complete:
            self._searched = frozenset()
        self._searched &= frozenset(places.values())
        return tuple(need for need, place in places.items() if place not in self._searched)

    def record(self, needs: Iterable[LiveNeed], view: DataView, plan: PinPlan, now: datetime) -> None:
        """Record that *needs* were searched with all facts, and that the result is *plan*."""
        if self._is_complete:
            self._searched_at = now
        latest = now + 2 * PIN_INTERVAL
        done = {
            _place_of(need, view)
            for need in needs
            if not any(plan.ends_at.get(did, latest) < latest for did in need.dids)
        }
        self._searched |= done

    def merge(self, previous: PinPlan, plan: PinPlan, needs: Sequence[LiveNeed]) -> PinPlan:
        """Return what is to be shown: *plan*, and of *previous* what this search did not cover."""
        if self._is_complete:
            return plan
        covered = {need.dids for need in needs}
        dids = {did for each in covered for did in each}
        proposals = [one for one in previous.proposals if not dids & {item.did for item in one.items}]
        others = [one for one in previous.not_pinned if one.dids not in covered]
        return PinPlan(plan.batches, (*proposals, *plan.proposals), (*others, *plan.not_pinned), plan.ends_at)


def _is_seen(need: LiveNeed, view: DataView) -> bool:
    return not any(view.unseen_reason(did) for did in need.dids)


def _place_of(need: LiveNeed, view: DataView) -> _Place:
    return need.dids, find_pinnable_sites(need, view), need.jobs.is_running


def _is_kept(place: _Place, own: set[tuple[Did, Site]]) -> bool:
    """Return whether the requests *own* keep all datasets at one site; for running jobs there is only one."""
    dids, sites, _ = place
    return any(all((did, site) in own for did in dids) for site in sites)
