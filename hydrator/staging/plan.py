"""Plan of requests: which data is brought where, which data is kept, and why other data is not. Pure.

*Stage requests* are for the datasets that queued jobs wait for and that no site has. All missing datasets of
a job go to one site that matches the rest of the job: the one where the fewest bytes come from another site's
tape, then the fewest missing bytes (so a table of 10 MB is copied to the 500 GB), then the fewest seconds,
then the most free space.

*Pins* are for datasets that would leave a site before their jobs have run. A pin is a rule of ours beside the
rules of others. It is set only where a rule exists and all rules end: on data without any rule it would do
harm, because the data may be deleted when the pin ends. *Locks* say whether a rule keeps a dataset: a
container's rule that still moves another dataset keeps this one, too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hydrator.config.staging import StagingSettings, to_bytes
from hydrator.domain.model import DatasetState, Did, Site
from hydrator.domain.network import RateLookup
from hydrator.domain.ports import take_turns
from hydrator.domain.staging_ports import (
    ExistingRule,
    RequestState,
    StagingAnswer,
    StagingKind,
    StagingQuery,
)
from hydrator.domain.text import format_bytes, format_count, format_duration, shorten_list

from .table import (
    DAY,
    MAX_CALLS,
    STUCK_AFTER,
    Request,
    Table,
    Write,
    count_last_hour,
    make_batch,
    plan_upkeep,
    sum_bytes,
)
from .view import DataView, LiveNeed, LiveNeeds

PIN_LIFETIME = 2 * DAY
"""Lifetime of a pin; a pin is set only if the last rule ends within half of it."""
_RULES_AGE = timedelta(minutes=15)
"""A plan uses the rules of data on disk up to this age; those that are not done are read in each step."""
_NO_MATCH = "does not match the rest of the jobs' requirements"
_ON_THE_WAY = frozenset({RequestState.MOVING, RequestState.QUEUED})


@dataclass
class CatalogueFacts:
    """The last answers of one catalogue. What an answer omits is unknown.

    ``rules`` has the rules of every account by dataset, and ``read_at`` when they were read; a dataset that
    they omit was not read, and the last ``answer`` may say why. ``halted`` says why nothing is asked at this
    catalogue at all. Jobs need their data for ``needed``.
    """

    name: str
    needed: timedelta
    rules: dict[Did, tuple[ExistingRule, ...]] = field(default_factory=dict)
    read_at: dict[Did, datetime] = field(default_factory=dict)
    sizes: dict[Did, int] = field(default_factory=dict)
    answer: StagingAnswer = field(default_factory=StagingAnswer)
    listed_at: datetime | None = None
    halted: str = ""

    def is_due(self, did: Did, now: datetime) -> bool:
        """Return whether to read the rules of *did* again: they are too old, or one of them is not done."""
        is_old = did not in self.rules or now - self.read_at[did] >= _RULES_AGE
        return is_old or not all(one.is_whole for one in self.rules[did])

    def forget_all_but(self, dids: AbstractSet[Did]) -> None:
        """Forget the rules and sizes of all datasets but *dids*."""
        for known in (self.rules, self.read_at, self.sizes):
            for did in known.keys() - dids:
                del known[did]

    def keep(self, query: StagingQuery, answer: StagingAnswer, now: datetime) -> None:
        """Keep *answer* to *query*."""
        self.listed_at = now if query.lists_all else self.listed_at
        read = query.dids - answer.unread.keys()
        by_did: dict[Did, list[ExistingRule]] = {did: [] for did in read}
        for rule in answer.rules:
            if rule.did in read:
                by_did[rule.did].append(rule)
        self.rules |= {did: tuple(rules) for did, rules in by_did.items()}
        self.read_at |= dict.fromkeys(read, now)
        self.sizes.update(answer.sizes)
        self.answer = answer

    def others_at(self, did: Did, site: Site) -> list[ExistingRule]:
        """Return the rules of others for *did* at *site*; those of ours are in the table."""
        return [rule for rule in self.rules.get(did, ()) if rule.site == site and not rule.is_ours]


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

    @classmethod
    def of(
        cls, need: LiveNeed, reason: str, site: Site | None = None, *, is_waiting: bool = False
    ) -> "NotAsked":
        """Build the refusal for *need*."""
        jobs = need.jobs
        return cls(need.dids, jobs.user, jobs.job_count, jobs.example, reason, site, is_waiting)


@dataclass(frozen=True, slots=True)
class Batch:
    """Datasets to request together, at one site.

    Attributes:
        requests: the requests, one for each dataset.
        mode: propose: the daemon only shows it; approve: it waits for `hydrator staging approve`; request:
            the daemon makes it.
        description: the same in one sentence.
    """

    requests: tuple[Request, ...]
    mode: str
    description: str = ""

    @property
    def first(self) -> Request:
        return self.requests[0]

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.requests)


@dataclass(frozen=True)
class Plan:
    """The calls to make, in order, and what is only shown; ``joined`` are rules of others that serve jobs."""

    writes: tuple[Write, ...] = ()
    shown: tuple[Batch, ...] = ()
    not_asked: tuple[NotAsked, ...] = ()
    joined: Mapping[tuple[Did, Site], str] = field(default_factory=dict)


def find_seen(needs: LiveNeeds, view: DataView) -> list[LiveNeed]:
    """Return the needs of the schedds that answered, whose datasets were all seen in this cycle."""
    return [one for one in needs.needs if not view.problem and view.unseen.keys().isdisjoint(one.dids)]


def find_candidates(
    view: DataView, needs: LiveNeeds, settings: StagingSettings, now: datetime
) -> tuple[list[LiveNeed], list[NotAsked]]:
    """Find the sets of datasets to request, and the jobs that are no candidates, with the reason.

    Only idle jobs count, and only if nothing but data is missing. While a schedd does not answer there are
    no candidates, because its jobs may need the data elsewhere. The users take turns: the oldest job of each
    user, then the second oldest of each.
    """
    groups: dict[tuple[Did, ...], list[LiveNeed]] = {}
    refused: list[NotAsked] = []
    silent = next((f"schedd {name} did not answer: {why}" for name, why in needs.unseen.items()), "")
    for need in needs.needs:
        if need.jobs.is_running or need.jobs.is_data_missing is False:
            continue
        if refusal := _exclude(need, view, settings, now):
            refused.append(refusal)
        elif silent:
            refused.append(NotAsked.of(need, silent))
        else:
            groups.setdefault(need.dids, []).append(need)
    oldest_first = sorted(map(_merge, groups.values()), key=lambda one: one.order)
    return take_turns(oldest_first, lambda one: one.jobs.user), refused


def _exclude(need: LiveNeed, view: DataView, settings: StagingSettings, now: datetime) -> NotAsked | None:
    """Return why nothing is asked for *need*; None for a candidate."""
    jobs = need.jobs
    unseen = (view.unseen[did] for did in need.dids if did in view.unseen)
    if view.problem:
        return NotAsked.of(need, view.problem)
    if jobs.is_data_missing is None or jobs.matching_sites is None:
        return NotAsked.of(need, "it is unknown whether the jobs wait for anything but data")
    if reason := next(unseen, None):
        return NotAsked.of(need, reason)
    missing = {site: [did for did in need.dids if not view.is_whole(did, site)] for site in view.facts}
    useless = missing.keys() - jobs.matching_sites if jobs.is_bound else frozenset[Site]()
    for site in sorted(missing, key=lambda one: (one in useless, bool(missing[one]), one)):
        is_near = all(view.state(did, site) is DatasetState.STAGING for did in missing[site])
        if not is_near or (site in useless and site not in settings.sites):
            continue  # not listed in [staging.sites]: a storage without slots, so the jobs would never start
        where = f"the data is {'on its way to' if missing[site] else 'complete at'} {site}"
        reason = f"{where}, which {_NO_MATCH}" if site in useless else where
        return NotAsked.of(need, reason, is_waiting=site not in useless)
    waited, wait = now - jobs.queued_since, timedelta(minutes=settings.wait_minutes)
    if waited < wait:
        age, left = (format_duration(each.total_seconds()) for each in (waited, wait - waited))
        return NotAsked.of(need, f"the jobs have waited for {age}; asked in {left}", is_waiting=True)
    return None


def _merge(group: list[LiveNeed]) -> LiveNeed:
    """Return the oldest need of *group* for all its jobs, at the sites that match all if there are any."""
    oldest = min(group, key=lambda need: need.order)
    own_sites = oldest.jobs.matching_sites or frozenset()
    common = own_sites.intersection(*(need.jobs.matching_sites or () for need in group))
    count = sum(need.jobs.job_count for need in group)
    return replace(oldest, jobs=replace(oldest.jobs, job_count=count, matching_sites=common or own_sites))


def find_pinnable_sites(need: LiveNeed, view: DataView) -> tuple[Site, ...]:
    """Return the sites that have all datasets of *need* and where its jobs run, or could run."""
    jobs = need.jobs
    if jobs.is_running:
        sites: Iterable[Site] = [jobs.running_site] if jobs.running_site else []
    else:
        sites = (site for site in view.facts if jobs.matching_sites is None or site in jobs.matching_sites)
    return tuple(site for site in sorted(sites) if all(view.is_whole(did, site) for did in need.dids))


def find_endangered(needs: Iterable[LiveNeed], view: DataView, table: Table) -> frozenset[Did]:
    """Return the datasets whose rules decide on pins: whole at a site of their jobs, not kept by us there."""
    own = {one.key for one in table.requests if not one.closed_until and not one.is_in_flight}
    endangered: set[Did] = set()
    for need in needs:
        sites = find_pinnable_sites(need, view)
        if sites and not any(all((did, site) in own for did in need.dids) for site in sites):
            endangered.update(need.dids)
    return frozenset(endangered)


@dataclass
class Planner:
    """A planner for one step. Each request is reserved before the next is looked at, so all keep the limits.

    Args:
        view: the last cycle.
        catalogues: the facts of those that answered in this step, in the order of the configuration; no call
            is planned at any other.
        rates: the present rates between sites.
    """

    view: DataView
    needs: LiveNeeds
    table: Table
    catalogues: Sequence[CatalogueFacts]
    settings: StagingSettings
    now: datetime
    rates: RateLookup | None = None

    def __post_init__(self) -> None:
        requests = self.table.requests
        stages = [one for one in requests if one.kind is StagingKind.STAGE]
        self._asked: list[Request] = []
        self._shown: list[Batch] = []
        self._joined: dict[tuple[Did, Site], str] = {}
        self._taken, self._asked_count = sum_bytes(requests), count_last_hour(self.table, self.now)
        self._full_sites: set[Site] = set()
        self._brought: defaultdict[Did, dict[Site, bool]] = defaultdict(dict)
        self._arrived = Counter[Site]()
        for one in stages:
            self._brought[one.did][one.site] = one.is_in_flight
            self._arrived[one.site] += one.bytes if one.is_complete else 0
        self._kept = {one.key for one in requests if not one.closed_until and not one.cancelled_at}
        self._short_lives = {
            (facts.name, one.site): text
            for facts in self.catalogues
            for one in requests
            if (text := one.explain_lifetime(facts.needed))
        }

    def plan(self) -> Plan:
        """Plan the calls of the step: upkeep first, because it may be urgent, then pins, then requests."""
        answered = {one.name for one in self.catalogues}
        upkeep = [
            write
            for write in plan_upkeep(self.table, self.now, is_complete=self.needs.is_complete)
            if write.request.catalogue in answered
            and self.settings.mode_at(write.request.catalogue, write.request.site) == "request"
        ]
        seen = sorted(find_seen(self.needs, self.view), key=lambda one: one.order)
        not_pinned = [self._pin(one) for one in seen]
        del self._asked[MAX_CALLS:]  # further pins follow in the next step
        candidates, not_asked = find_candidates(self.view, self.needs, self.settings, self.now)
        refused = [*not_asked, *(self._stage(one) for one in candidates), *not_pinned]
        return Plan(
            (*upkeep[:MAX_CALLS], *(Write(one, "ask") for one in self._asked)),
            tuple(self._shown),
            tuple(refusal for refusal in refused if refusal),
            {key: text for key, text in self._joined.items() if key[1] not in self._brought[key[0]]},
        )

    # -- pins

    def _pin(self, need: LiveNeed) -> NotAsked | None:
        """Plan the pins for the jobs of *need*; return why they cannot be set.

        Running jobs need their data at their site. For idle jobs one site that keeps the data is enough.
        """
        options = [
            ([did for did in need.dids if not self._is_safe(did, site, facts)], site, facts)
            for facts in self.catalogues
            for site in find_pinnable_sites(need, self.view)
            if site in self.settings.allowed_sites(facts.name)
            if all(did in facts.rules for did in need.dids)
        ]
        refusal = None
        for ending, site, facts in sorted(options, key=lambda option: (len(option[0]), option[1])):
            reason = self._explain_no_pin(facts, site, ending) if ending else ""
            if ending and not reason:
                self._reserve(self._build(need, facts, site, StagingKind.PIN, ending))
            if not reason:
                return None
            refusal = refusal or NotAsked.of(need, f"not pinned: {reason}", site)
        return refusal

    def _is_safe(self, did: Did, site: Site, facts: CatalogueFacts) -> bool:
        """Return whether a rule keeps *did* at *site* for long enough."""
        if (did, site) in self._kept:
            return True
        last = self._last_rule(did, site, facts)
        return last is not None and last.last_moment - self.now > PIN_LIFETIME / 2

    def _last_rule(self, did: Did, site: Site, facts: CatalogueFacts) -> ExistingRule | None:
        """Return the rule of others that keeps the whole of *did* at *site* for longest."""
        rules = [rule for rule in facts.others_at(did, site) if rule.is_whole]
        return max(rules, key=lambda rule: (rule.last_moment, rule.id), default=None)

    def _explain_no_pin(self, facts: CatalogueFacts, site: Site, ending: Sequence[Did]) -> str:
        """Return why the datasets *ending* cannot be pinned at *site*; empty if they can."""
        if reason := self._explain_refusal(facts, site, ending, StagingKind.PIN):
            return reason
        if bare := next((did for did in ending if self._last_rule(did, site, facts) is None), None):
            return f"no rule keeps {bare} at {site}, so a pin that ends would make it deletable"
        return self._explain_excess(site, sum(facts.sizes[did] for did in ending), is_pin=True)

    # -- stage requests

    def _stage(self, one: LiveNeed) -> NotAsked | None:
        """Plan a request for *one*, at the first site in rank order that can take it; return why not."""
        bound = self._find_bound_sites(one)
        if len(bound) > 1:
            ways = "; ".join(f"{did} to {site}" for site, did in sorted(bound.items()))
            return NotAsked.of(one, f"its datasets are on their way to different sites: {ways}")
        places = [
            (self._rank(one, facts, Site(site)), Site(site), facts)
            for facts in self.catalogues
            for site in self.settings.allowed_sites(facts.name)
            if not bound or site in bound
        ]
        for site, did in bound.items():
            lack = "" if places else ", where no data may be requested"
            if site not in (one.jobs.matching_sites or ()):
                lack = f", which {_NO_MATCH}"
            if lack:
                return NotAsked.of(one, f"{did} is on its way to {site}{lack}", site)
        if not places:
            return NotAsked.of(one, "no catalogue that answers is switched on for requests")
        refusals = []
        for _, site, facts in sorted(places, key=lambda place: place[:2]):
            refusal, is_last = self._serve_at(site, facts, one)
            if refusal is None or is_last:
                return refusal
            refusals.append(refusal)
        matching = one.jobs.matching_sites or frozenset()
        return next((refusal for refusal in refusals if refusal.site in matching), refusals[0])

    def _find_bound_sites(self, one: LiveNeed) -> dict[Site, Did]:
        """Return the sites to which a dataset of *one* is on its way; nothing is asked for at other sites."""
        bound: dict[Site, Did] = {}
        for did in one.dids:
            rules = [rule for facts in self.catalogues for rule in facts.rules.get(did, ())]
            moving = [rule for rule in rules if rule.state in _ON_THE_WAY and not rule.is_whole]
            sites = {rule.site for rule in moving if not rule.is_ours}
            sites.update(self.view.sites_with(did, DatasetState.STAGING))
            for site, is_moving in self._brought[did].items():
                # a rule may be done before a cycle has seen its data
                if is_moving or not self.view.is_whole(did, site):
                    sites.add(site)
            bound |= dict.fromkeys(sites, did)
        return bound

    def _rank(self, one: LiveNeed, facts: CatalogueFacts, site: Site) -> tuple[float, ...]:
        """Return how good *site* is for all datasets of *one*; the smallest is the best."""
        missing = [did for did in one.dids if not self.view.is_whole(did, site)]
        sizes = {did: facts.sizes[did] for did in missing if did in facts.sizes and did in facts.rules}
        seconds, space = self._estimate_seconds(site, sizes), self._space_at(site, facts)
        return (
            len(sizes) < len(missing),
            sum(size for did, size in sizes.items() if self._find_tape(did, site) not in {None, site}),
            sum(size * (1 - self.view.fraction(did, site)) for did, size in sizes.items()),
            seconds,
            self._taken[site] - (space if isinstance(space, int) else 0),
        )

    def _serve_at(self, site: Site, facts: CatalogueFacts, one: LiveNeed) -> tuple[NotAsked | None, bool]:
        """Plan a request that brings all missing datasets of *one* to *site*; return why there is none.

        The second value says that no other site is tried: waiting for this one is better.
        """

        def refuse(reason: str, *, is_last: bool = False, is_waiting: bool = False) -> tuple[NotAsked, bool]:
            return NotAsked.of(one, reason, site, is_waiting=is_waiting), is_last

        missing = [did for did in one.dids if not self.view.is_whole(did, site)]
        if site not in (one.jobs.matching_sites or ()):
            return refuse(f"{site} {_NO_MATCH}")
        if reason := self._explain_refusal(facts, site, missing, StagingKind.STAGE):
            return refuse(reason)
        joined, wanted, reason = self._split_missing(missing, facts, site)
        if reason or not wanted:
            self._joined |= joined
            ways = shorten_list(sorted(set(joined.values())))
            text = reason or f"the data is on its way to {site} by {ways}"
            return refuse(text, is_last=True, is_waiting=not reason)
        size = sum(facts.sizes[did] for did in wanted)
        if excess := self._explain_excess(site, size):
            return refuse(excess, is_last=True)
        if reason := self._explain_lack_of_space(site, size, self._space_at(site, facts)):
            return refuse(reason)
        batch = self._build(one, facts, site, StagingKind.STAGE, wanted)
        if batch.mode == "reject":
            text = f"the operator rejected the request {batch.first.batch} of {format_bytes(size)} at {site}"
            return refuse(text)
        self._reserve(batch)
        self._joined |= joined
        return None, True

    def _estimate_seconds(self, site: Site, sizes: Mapping[Did, int]) -> float:
        """Return the seconds to bring datasets to *site*, one after the other; infinite if a rate is unknown.

        The source of a dataset is the site with the best rate, of those that have it on disk, else on tape.
        """
        seconds = 0.0
        for did, size in sizes.items():
            on_disk = self.view.sites_with(did, DatasetState.AVAILABLE)
            sources = on_disk or self.view.sites_with(did, DatasetState.NEARLINE)
            known = [self.rates.rate(source, site) for source in sources] if self.rates else []
            best = max((rate.bytes_per_second for rate in known if rate), default=0.0)
            seconds += size / best if best > 0 else float("inf")
        return seconds

    def _space_at(self, site: Site, facts: CatalogueFacts) -> int | str | None:
        """Return the free bytes at *site*, before those on their way arrive; None or a text if unknown."""
        if site in facts.answer.spaces:
            return facts.answer.spaces[site]
        given = to_bytes(self.settings.sites[site].space_tb)
        return max(0, given - self._arrived[site]) if given else None

    def _find_tape(self, did: Did, site: Site) -> Site | None:
        """Return the site from whose tape *did* must come to *site*; None if it is on disk somewhere."""
        if any(self.view.is_whole(did, other) for other in self.view.facts):
            return None
        tapes = self.view.sites_with(did, DatasetState.NEARLINE)
        return site if site in tapes else next(iter(tapes), None)

    def _split_missing(
        self, missing: Sequence[Did], facts: CatalogueFacts, site: Site
    ) -> tuple[dict[tuple[Did, Site], str], list[Did], str]:
        """Split *missing* into datasets that a rule brings already, and datasets to ask for.

        The third value says why nothing may be asked for now: the catalogue contradicts itself.
        """
        joined: dict[tuple[Did, Site], str] = {}
        wanted: list[Did] = []
        for did in missing:
            if site in self._brought[did]:
                own = self.table.by_key.get((did, site))
                text = f"our request {own.rule or own.batch}" if own else "a request of this step"
                if own and own.is_complete:
                    text += ", which is complete, but its replicas were not seen there yet"
                joined[did, site] = text
                continue
            others = facts.others_at(did, site)
            is_incoming = self.view.state(did, site) is DatasetState.STAGING
            if whole := next((rule for rule in others if rule.is_whole and not is_incoming), None):
                text = f"the rule {whole.id} of {whole.account} says that {did} is complete at {site}"
                return joined, [], f"{text}, but its replicas are not"
            if rule := next((each for each in others if self._is_joinable(each)), None):
                why = f" ({rule.reason})" if rule.reason else ""
                waits = f", which is {rule.state.value}{why}" if rule.state not in _ON_THE_WAY else ""
                joined[did, site] = f"the rule {rule.id} of {rule.account}{waits}"
            else:
                wanted.append(did)
        return joined, wanted, ""

    def _is_joinable(self, rule: ExistingRule) -> bool:
        """Return whether *rule* may still bring its data: not if it is stuck or not approved for a day."""
        if rule.stuck_since:
            return abs(self.now - rule.stuck_since) < STUCK_AFTER
        return rule.is_whole or rule.state in _ON_THE_WAY or rule.state is RequestState.UNAPPROVED

    def _explain_excess(self, site: Site, size: int, *, is_pin: bool = False) -> str:
        """Return which limit would be exceeded by *size* more bytes at *site*; empty if none.

        A request that waits for room lets no younger one overtake it at its site, unless it can never fit.
        """
        limits = self.settings.limits
        rows = [
            (to_bytes(limits.request_tb), 0, "for one request"),
            (to_bytes(limits.site_tb), self._taken[site], f"on the way to {site}"),
            (to_bytes(limits.total_tb), self._taken[None], "of all requests and pins"),
        ][2 * is_pin :]
        for limit, taken, what in rows:
            if taken + size > limit:
                if size <= min(row[0] for row in rows) and not is_pin:
                    self._full_sites.add(site)
                room = f": {format_bytes(taken)} are taken" if taken else ""
                excess = f"would exceed the limit of {format_bytes(limit)}"
                return f"{format_bytes(size)} at {site} {excess} {what}{room}"
        if self._asked_count >= limits.hour_requests and not is_pin:
            return f"{format_count(self._asked_count, 'request')} were made in the last hour, the limit"
        return ""

    def _explain_lack_of_space(self, site: Site, size: int, space: int | str | None) -> str:
        """Return why *size* bytes do not fit into the free *space* of *site*; empty if they fit.

        All bytes on their way count as if none of them had arrived: the free space may be an old figure.
        """
        if not isinstance(space, int):
            return f"the free space of {site} is unknown" + (f": {space}" if space else "")
        coming, floor = self._taken[site], to_bytes(self.settings.limits.floor_tb)
        if space - coming - size >= floor:
            return ""
        room = f"{format_bytes(max(0, space))} are free, {format_bytes(coming)} are on their way"
        return f"{format_bytes(size)} would leave less than {format_bytes(floor)} free at {site}: {room}"

    # -- both

    def _explain_refusal(
        self, facts: CatalogueFacts, site: Site, dids: Sequence[Did], kind: StagingKind
    ) -> str:
        """Return why no rule of *kind* may be made for *dids* at *site*, whatever its size; else nothing."""
        if facts.halted:
            return f"catalogue {facts.name} refused: {facts.halted}"
        for did in dids:
            own = self.table.by_key.get((did, site))
            if own and (own.cancelled_at or own.closed_until or own.kind is not kind):
                return f"the rule of ours for {did} at {site} must end first: {own.reason or own.status}"
            if did not in facts.sizes or did not in facts.rules:
                return facts.answer.unread.get(did) or f"the size of {did} is unknown"
            if reason := self.table.explain_closed(did, site, kind, self.now):
                return reason
            if self.view.state(did, site) is DatasetState.UNAVAILABLE:
                return f"{did} is at {site}, whose storage cannot be read now"
        if kind is StagingKind.PIN:
            return ""
        if site in self._full_sites:
            return f"an older request waits for room at {site}"
        return self._short_lives.get((facts.name, site), "")

    def _build(
        self, need: LiveNeed, facts: CatalogueFacts, site: Site, kind: StagingKind, dids: Sequence[Did]
    ) -> Batch:
        """Build the requests for *dids* at *site*."""
        sizes = {did: facts.sizes[did] for did in sorted(dids)}
        total, name = sum(sizes.values()), make_batch(site, sizes)
        jobs, is_pin = need.jobs, kind is StagingKind.PIN
        lifetime = PIN_LIFETIME if is_pin else self.settings.max_lifetime_days * DAY
        requests = []
        for did, size in sizes.items():
            rule = self._last_rule(did, site, facts) if is_pin else None
            storage = rule.storage if rule else facts.answer.storages.get(site, "")
            request = Request(
                did, site, facts.name, kind, size, name, self.now, int(lifetime.total_seconds()),
                storage, None if is_pin else self._find_tape(did, site), jobs.user,
                job_count=jobs.job_count, example=jobs.example, wanted_at=self.now,
            )  # fmt: skip
            requests.append(request)
        what = f"{format_bytes(total)} in {format_count(len(sizes), 'dataset')} at {site}"
        text = f"would {'pin' if is_pin else 'ask for'} {what}; the mode is propose"
        mode: str = self.settings.mode_at(facts.name, site)
        decision = self.table.decisions.get(name)
        is_large = total > to_bytes(self.settings.limits.approval_tb)
        if not is_pin and decision and decision.verb == "reject":
            mode = "reject"
        elif not is_pin and mode == "request" and is_large and not self.table.is_approved(site, sizes):
            mode, text = "approve", f"{what} wait for `hydrator staging approve {name}`"
        return Batch(tuple(requests), mode, text)

    def _reserve(self, batch: Batch) -> None:
        """Reserve the bytes of *batch*; one that waits for a person reserves none: others need not wait."""
        if batch.mode == "request":
            self._asked += batch.requests
        else:
            self._shown.append(batch)
        if batch.mode == "approve":
            return
        self._taken.update(sum_bytes(batch.requests))
        if batch.first.kind is StagingKind.PIN:
            self._kept |= {one.key for one in batch.requests}
        else:
            for one in batch.requests:
                self._brought[one.did][one.site] = True
            self._asked_count += 1
