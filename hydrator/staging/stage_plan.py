"""Plan of stage requests: which datasets to ask for at which site, and why others are not asked for. Pure.

The candidates are the sets of datasets that queued jobs wait for and that no site has, in a fair order.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hydrator.domain.model import DatasetState, Did, Site
from hydrator.domain.staging_ports import (
    ExistingRule,
    RequestState,
    SiteSpace,
    StagingKind,
    StagingPermissions,
    StagingSize,
)
from hydrator.domain.text import format_bytes, format_duration, shorten_list

from .ledger import EntryState, Ledger, make_batch
from .needs import LiveNeed, LiveNeeds
from .policy import StagingMode, StagingPolicy
from .upkeep import explain_backoff, explain_open_breaker
from .usage import PlannedBatch, PlannedItem, Usage
from .view import DataView


@dataclass(frozen=True, slots=True)
class Candidate:
    """Datasets that idle jobs wait for, and the sites that match the rest of these jobs.

    ``user`` is the owner of the oldest job, for whom the request counts. ``matching_sites`` match all these
    jobs, or the oldest if no site matches all.
    """

    dids: tuple[Did, ...]
    user: str
    job_count: int
    queued_since: datetime
    example: str
    matching_sites: frozenset[Site]
    schedds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Jobs for whose data nothing is requested now.

    Attributes:
        dids: datasets of the jobs.
        user: owner of the oldest job.
        job_count: these jobs.
        example: one of them.
        reason: reason in one sentence.
        site: site that was considered; null: none.
        is_waiting: the data is there or on its way, or it is too early; false: a limit or a missing fact
            prevents it.
    """

    dids: tuple[Did, ...]
    user: str
    job_count: int
    example: str
    reason: str
    site: Site | None = None
    is_waiting: bool = False


@dataclass(frozen=True, slots=True)
class CandidateList:
    """The candidates in the order in which they are served, and the jobs that are none."""

    candidates: tuple[Candidate, ...] = ()
    not_asked: tuple[NotAsked, ...] = field(default=())


def find_candidates(view: DataView, needs: LiveNeeds, policy: StagingPolicy, now: datetime) -> CandidateList:
    """Find the sets of datasets to request: round robin over users, the oldest job of each user first.

    Only idle jobs of schedds that answered in this step count, and only if nothing but data is missing.
    """
    groups: dict[tuple[Did, ...], list[LiveNeed]] = {}
    refused: list[NotAsked] = []
    for need in needs.current_needs:
        if need.jobs.is_running or need.jobs.is_data_missing is False:
            continue
        reason, is_waiting = _explain_exclusion(need, view, policy, now)
        if reason:
            refused.append(_refuse(need, reason, is_waiting=is_waiting))
        else:
            groups.setdefault(need.dids, []).append(need)
    candidates = [_merge(dids, group) for dids, group in groups.items()]
    return CandidateList(tuple(order_fairly(candidates)), tuple(refused))


def order_fairly(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return *candidates* in turns of the users: the oldest of each user, then the second oldest of each."""
    turns: Counter[str] = Counter()
    ordered = []
    for one in sorted(candidates, key=lambda each: (each.queued_since, each.dids)):
        ordered.append((turns[one.user], one.queued_since, one.dids, one))
        turns[one.user] += 1
    return [one for *_, one in sorted(ordered, key=lambda row: row[:3])]


def _explain_exclusion(
    need: LiveNeed, view: DataView, policy: StagingPolicy, now: datetime
) -> tuple[str | None, bool]:
    """Return why nothing is asked for *need*, and whether time alone helps; (None, False) for a candidate."""
    jobs = need.jobs
    if view.problem:
        return view.problem, False
    if jobs.is_data_missing is None or jobs.matching_sites is None:
        return "it is unknown whether the jobs wait for anything but data", False
    if unseen := next((why for did in need.dids if (why := view.unseen_reason(did))), None):
        return unseen, False
    if site := _find_site(need, view, DatasetState.AVAILABLE):
        return f"the data is complete at {site}", True
    if site := _find_site(need, view, DatasetState.AVAILABLE, DatasetState.STAGING):
        return f"the data is on its way to {site}", True
    waited = now - jobs.queued_since
    if waited < policy.times.wait:
        left = format_duration((policy.times.wait - waited).total_seconds())
        return f"the jobs have waited for {format_duration(waited.total_seconds())}; asked in {left}", True
    return None, False


def _find_site(need: LiveNeed, view: DataView, *states: DatasetState) -> Site | None:
    """Return a site where each dataset of *need* has one of *states*."""
    return next(
        (site for site in sorted(view.facts) if all(view.state(did, site) in states for did in need.dids)),
        None,
    )


def _refuse(need: LiveNeed, reason: str, *, is_waiting: bool) -> NotAsked:
    jobs = need.jobs
    return NotAsked(need.dids, need.user, jobs.job_count, jobs.example, reason, is_waiting=is_waiting)


def _merge(dids: tuple[Did, ...], group: list[LiveNeed]) -> Candidate:
    oldest = min(group, key=lambda need: (need.jobs.queued_since, need.schedd, need.jobs.example))
    sites = [need.jobs.matching_sites or frozenset() for need in group]
    common = frozenset[Site].intersection(*sites)
    return Candidate(
        dids,
        oldest.user,
        sum(need.jobs.job_count for need in group),
        oldest.jobs.queued_since,
        oldest.jobs.example,
        common or oldest.jobs.matching_sites or frozenset(),
        frozenset(need.schedd for need in group),
    )


JOINABLE_STATES = frozenset(
    {
        RequestState.DONE,
        RequestState.MOVING,
        RequestState.QUEUED,
        RequestState.UNAPPROVED,
        RequestState.STUCK,
    }
)
"""States of a rule that brings or will bring the data, so that no second rule is made."""

_MOVING_STATES = frozenset({RequestState.MOVING, RequestState.QUEUED})

ExpectedSeconds = Callable[[Site, Mapping[Did, int]], float | None]
"""The seconds until datasets of these sizes (bytes) could be at a site; None if no rate is known."""


@dataclass(frozen=True)
class CatalogueFacts:
    """The answers of one catalogue for one plan. What an answer omits is unknown."""

    name: str
    sizes: Mapping[Did, StagingSize] = field(default_factory=dict)
    rules: Sequence[ExistingRule] = ()
    space: Mapping[Site, SiteSpace] = field(default_factory=dict)
    permissions: StagingPermissions = field(default_factory=StagingPermissions)

    def rules_for(self, did: Did, site: Site | None = None) -> list[ExistingRule]:
        """Return the rules of *did*, at *site* or at any site."""
        return [rule for rule in self.rules if rule.did == did and site in (None, rule.site)]


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The result: requests to make now, requests that are only shown, and the jobs without a request.

    ``proposals`` are of the mode propose. ``unapproved`` wait for a person. ``joined`` are the rules of
    others that bring a missing dataset, by dataset and site, as ``account handle``.
    """

    batches: tuple[PlannedBatch, ...] = ()
    proposals: tuple[PlannedBatch, ...] = ()
    unapproved: tuple[PlannedBatch, ...] = ()
    not_asked: tuple[NotAsked, ...] = ()
    joined: Mapping[tuple[Did, Site], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Option:
    """One site for one candidate: the request to make there, or why it cannot be made there.

    If ``is_last``, no site of a higher rank is tried: waiting for this one is better. ``parked`` is the
    request that waits for a limit.
    """

    site: Site
    rank: tuple[float, ...]
    batch: PlannedBatch | None = None
    reason: str = ""
    is_waiting: bool = False
    is_last: bool = False
    joined: Mapping[tuple[Did, Site], str] = field(default_factory=dict)
    parked: PlannedBatch | None = None


class StagePlanner:
    """A planner for one step; :meth:`plan` serves the candidates in their order.

    Each request is reserved before the next candidate is looked at, so all of them together keep the limits.

    Args:
        catalogues: the facts of the catalogues, in the order of the configuration. The first that knows the
            size of all missing datasets serves a candidate.
        expected_seconds: estimates transfers.
    """

    def __init__(
        self,
        view: DataView,
        ledger: Ledger,
        catalogues: Sequence[CatalogueFacts],
        policy: StagingPolicy,
        now: datetime,
        expected_seconds: ExpectedSeconds = lambda _site, _sizes: None,
    ) -> None:
        self._view = view
        self._ledger = ledger
        self._catalogues = catalogues
        self._policy = policy
        self._now = now
        self._expected_seconds = expected_seconds
        self._usage = Usage.of(ledger, now)
        self._entries = ledger.group_entries()
        self._planned_sites: dict[Did, Site] = {}
        self._batches: dict[str, list[PlannedBatch]] = {"ask": [], "propose": [], "approve": []}
        self._joined: dict[tuple[Did, Site], str] = {}

    def plan(self, candidates: Sequence[Candidate]) -> StagePlan:
        """Plan the requests for *candidates* in their order.

        A request that fits into the limits may overtake one that does not. But for jobs that have waited
        for long, room is kept.
        """
        not_asked = [refusal for one in candidates if (refusal := self._serve(one))]
        return StagePlan(
            tuple(self._batches["ask"]),
            tuple(self._batches["propose"]),
            tuple(self._batches["approve"]),
            tuple(not_asked),
            self._joined,
        )

    def _serve(self, one: Candidate) -> NotAsked | None:
        """Plan a request for *one*, at the first site in rank order that can take it; return why not."""

        def refuse(reason: str, site: Site | None = None, *, is_waiting: bool = False) -> NotAsked:
            return NotAsked(one.dids, one.user, one.job_count, one.example, reason, site, is_waiting)

        bound = self._find_bound_sites(one)
        if len(bound) > 1:
            places = "; ".join(f"{did} to {site}" for site, did in sorted(bound.items()))
            return refuse(f"its datasets are on their way to different sites: {places}", is_waiting=True)
        options = [
            option
            for facts in self._catalogues
            for site in sorted(self._policy.allowed_sites(facts.name))
            if not bound or site in bound
            for option in [self._evaluate(one, facts, site)]
        ]
        if not options:
            if bound:
                site, did = next(iter(bound.items()))
                return refuse(f"{did} is on its way to {site}, where no data may be requested", site)
            return refuse("no catalogue and site are switched on for requests")
        options.sort(key=lambda option: option.rank)
        for option in options:
            if option.batch or option.joined:
                self._reserve(option)
            if option.batch:
                return None
            if option.parked and self._has_waited_long(one):
                self._usage.keep_for(option.parked, self._policy.limits)
            if option.is_last:
                return refuse(option.reason, option.site, is_waiting=option.is_waiting)
        return refuse(options[0].reason, options[0].site)

    def _has_waited_long(self, one: Candidate) -> bool:
        times = self._policy.times
        return self._now - one.queued_since >= times.wait + times.overtaken

    def _find_bound_sites(self, one: Candidate) -> dict[Site, Did]:
        """Return the sites to which a dataset of *one* is on its way; nothing is asked for at other sites."""
        bound: dict[Site, Did] = {}
        for did in one.dids:
            for entry in self._entries.get(did, ()):
                if entry.kind is StagingKind.STAGE and not entry.is_complete:
                    bound[entry.site] = did
            if did in self._planned_sites:
                bound[self._planned_sites[did]] = did
            for site in self._view.sites_with(did, DatasetState.STAGING):
                bound[site] = did
            for facts in self._catalogues:
                moving = [rule for rule in facts.rules_for(did) if rule.state in _MOVING_STATES]
                bound.update((rule.site, did) for rule in moving)
        return bound

    def _evaluate(self, one: Candidate, facts: CatalogueFacts, site: Site) -> _Option:
        """Return the option to bring all missing datasets of *one* to *site*."""
        missing = [did for did in one.dids if not self._view.is_available(did, site)]
        unknown = [did for did in missing if did not in facts.sizes]
        sizes = {did: facts.sizes[did].bytes for did in missing if did in facts.sizes}
        seconds = self._expected_seconds(site, sizes)
        free = facts.space[site].free_bytes - self._usage.site_bytes[site] if site in facts.space else 0
        left = sum(size * (1 - self._view.fraction(did, site)) for did, size in sizes.items())
        elsewhere = sum(
            size for did, size in sizes.items() if self._find_source(did, site) not in {None, site}
        )
        rank = (float(bool(unknown)), elsewhere, left, float("inf") if seconds is None else seconds, -free)
        if unknown:
            return _Option(site, rank, reason=f"the size of {shorten_list(unknown)} is unknown")
        if site not in one.matching_sites:
            return _Option(site, rank, reason=f"{site} does not match the rest of the jobs' requirements")
        if reason := self._explain_closed(facts, site, missing):
            return _Option(site, rank, reason=reason)
        joined, items, reason = self._split_missing(missing, facts, site)
        if reason or not items:
            ways = shorten_list(sorted(set(joined.values())))
            text = reason or f"the data is on its way to {site} by {ways}"
            return _Option(site, rank, reason=text, is_waiting=True, is_last=True, joined=joined)
        batch = self._build_batch(one, facts, site, items, seconds)
        if excess := self._usage.explain_excess(batch, self._policy.limits):
            return _Option(site, rank, reason=excess, is_last=True, parked=batch)
        if rejection := self._explain_rejection(batch, facts):
            return _Option(site, rank, reason=rejection)
        return _Option(site, rank, batch, joined=joined)

    def _find_source(self, did: Did, site: Site) -> Site | None:
        """Return the site from whose tape *did* must come to *site*; None if it is on disk somewhere."""
        if self._view.sites_with(did, DatasetState.AVAILABLE):
            return None
        tapes = self._view.sites_with(did, DatasetState.NEARLINE)
        return site if site in tapes else next(iter(tapes), None)

    def _explain_closed(self, facts: CatalogueFacts, site: Site, missing: Sequence[Did]) -> str | None:
        """Return why nothing may be asked at *site* now, whatever its size; None if it may."""
        if facts.name in self._ledger.halts:
            return f"catalogue {facts.name} refused: {self._ledger.halts[facts.name]}"
        if facts.permissions.can_ask is False:
            return f"catalogue {facts.name} does not allow this account to request data"
        times = self._policy.times
        if reason := explain_open_breaker(self._ledger, site, self._now, times):
            return reason
        for did in missing:
            if why := explain_backoff(self._ledger, did, site, self._now):
                return f"{did}: {why}"
        return None

    def _split_missing(
        self, missing: Sequence[Did], facts: CatalogueFacts, site: Site
    ) -> tuple[dict[tuple[Did, Site], str], list[PlannedItem], str]:
        """Split *missing* into datasets that a rule brings already, and datasets to ask for.

        The third value says why nothing may be asked for now: a request of ours is being cancelled, the
        catalogue contradicts itself, or the tape was asked a short time ago.
        """
        joined: dict[tuple[Did, Site], str] = {}
        items: list[PlannedItem] = []
        for did in missing:
            own = [entry for entry in self._entries.get(did, ()) if entry.site == site]
            if any(entry.state is EntryState.CANCELLING for entry in own):
                return joined, [], f"the last request for {did} at {site} is being cancelled"
            if own:
                joined[did, site] = f"our request {own[0].tag}"
                continue
            rules = [rule for rule in facts.rules_for(did, site) if rule.state in JOINABLE_STATES]
            if any(rule.state is RequestState.DONE for rule in rules) and not self._is_incoming(did, site):
                rule = next(rule for rule in rules if rule.state is RequestState.DONE)
                reason = f"the rule {rule.handle} of {rule.account} says that {did} is complete at {site}"
                return joined, [], f"{reason}, but its replicas are not"
            if rules:
                joined[did, site] = f"the rule {rules[0].handle} of {rules[0].account}"
                continue
            source = self._find_source(did, site)
            if source and (window := self._explain_tape_window(source)):
                return joined, [], window
            size = facts.sizes[did]
            items.append(
                PlannedItem(did, size.bytes, size.files, source, self._policy.storages.get(site, ""))
            )
        return joined, items, ""

    def _is_incoming(self, did: Did, site: Site) -> bool:
        return self._view.state(did, site) is DatasetState.STAGING

    def _explain_tape_window(self, source: Site) -> str | None:
        asked_at = self._ledger.tape_asked_at.get(source)
        if asked_at is None or self._now - asked_at >= self._policy.times.tape_window:
            return None
        left = format_duration((asked_at + self._policy.times.tape_window - self._now).total_seconds())
        return f"the tape of {source} is asked for all waiting jobs together, next in {left}"

    def _build_batch(
        self,
        one: Candidate,
        facts: CatalogueFacts,
        site: Site,
        items: Sequence[PlannedItem],
        seconds: float | None,
    ) -> PlannedBatch:
        name = make_batch(site, {item.did: item.bytes for item in items})
        lifetime = choose_lifetime(seconds, facts.permissions, self._policy)
        return PlannedBatch(
            name, facts.name, StagingKind.STAGE, site, tuple(items), one.user, one.job_count,
            one.queued_since, one.example, one.schedds, lifetime, seconds,
        )  # fmt: skip

    def _explain_rejection(self, batch: PlannedBatch, facts: CatalogueFacts) -> str | None:
        space = facts.space.get(batch.site)
        if reason := self._usage.explain_lack_of_space(batch, space, self._policy.limits):
            return reason
        approval = self._ledger.approvals.get(batch.batch)
        if approval and not approval.is_granted:
            return f"the operator rejected the request {batch.batch} of {format_bytes(batch.bytes)}"
        return None

    def _reserve(self, option: _Option) -> None:
        """Reserve the bytes of the option's request, and file the request by what may be done with it."""
        self._joined.update({key: text for key, text in option.joined.items() if text.startswith("the rule")})
        batch = option.batch
        if batch is None:
            return
        is_granted = batch.batch in self._ledger.approvals
        is_proposal = self._policy.mode_of(batch.catalogue, batch.site) < StagingMode.ASK
        is_large = batch.bytes > self._policy.limits.approval_bytes
        if is_large and not is_granted and not is_proposal:
            self._batches["approve"].append(batch)  # reserves nothing: others need not wait for the person
            return
        self._usage.add(batch)
        self._planned_sites.update((item.did, batch.site) for item in batch.items)
        self._batches["propose" if is_proposal else "ask"].append(batch)


def choose_lifetime(
    expected_seconds: float | None, permissions: StagingPermissions, policy: StagingPolicy
) -> timedelta:
    """Return three times the expected transfer, within the policy's limits.

    If the transfer's time is unknown and this account cannot renew, return the longest lifetime.
    """
    times = policy.times
    if expected_seconds is None:
        return times.max_lifetime if permissions.can_renew is False else times.min_lifetime
    seconds = min(3 * expected_seconds, times.max_lifetime.total_seconds())
    return max(times.min_lifetime, timedelta(seconds=seconds))
