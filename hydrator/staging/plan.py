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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hydrator.config.staging import StagingSettings, to_bytes
from hydrator.domain.model import DatasetState, Did, Site
from hydrator.domain.network import FindRate
from hydrator.domain.ports import DataNeed, take_turns
from hydrator.domain.staging_ports import (
    ExistingRule,
    RequestState,
    StagingKind,
)
from hydrator.domain.text import format_bytes, format_count, format_duration, shorten_list

from .table import DAY, MAX_CALLS, STUCK_AFTER, Request, Table, Write, make_batch, plan_upkeep
from .view import CatalogueFacts, DataView, LiveNeeds, age_order

PIN_LIFETIME = 2 * DAY
"""Lifetime of a pin; a pin is set only if the last rule ends within half of it."""
_NO_MATCH = "does not match the rest of the jobs' requirements"
_UNSEEN = ", which is complete, but its replicas were not seen there yet"
Sizes = Mapping[Did, int]
"""Bytes by dataset."""
_ON_THE_WAY = frozenset({RequestState.MOVING, RequestState.QUEUED})


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
        cls, need: DataNeed, reason: str, site: Site | None = None, *, is_waiting: bool = False
    ) -> "NotAsked":
        """Build the refusal for *need*."""
        return cls(need.dids, need.user, need.job_count, need.example, reason, site, is_waiting)


@dataclass(frozen=True, slots=True)
class Batch:
    """Datasets that would be requested together, at one site.

    Attributes:
        requests: the requests, one for each dataset.
        mode: propose: the daemon only shows it; approve: it waits for `hydrator staging approve`.
        description: the same in one sentence.
    """

    requests: tuple[Request, ...]
    mode: str
    description: str

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


@dataclass
class Planner:
    """A planner for one step: it finds what to read, and then what to call.

    Each request is put into ``table`` before the next is looked at, so that all together keep the limits.

    Args:
        view: the last cycle.
        find_rate: returns the present rates between sites.

    Attributes:
        candidates: the needs to request data for. The users take turns: the oldest job of each user, then
            the second oldest of each.
    """

    view: DataView
    needs: LiveNeeds
    settings: StagingSettings
    now: datetime
    find_rate: FindRate

    def __post_init__(self) -> None:
        self.table = Table()
        self._catalogues: Sequence[CatalogueFacts] = ()
        self._asked: list[Request] = []
        self._shown: list[Batch] = []
        self._joined: dict[tuple[Did, Site], str] = {}
        self._full_sites: set[Site] = set()
        self._refused: list[NotAsked] = []
        self.candidates = self._find_candidates()
        seen = (one for one in self.needs.needs if not self._explain_unseen(one))
        self._seen = sorted(seen, key=age_order)

    def plan(self, table: Table, catalogues: Sequence[CatalogueFacts]) -> Plan:
        """Plan the calls of the step: upkeep first, because it may be urgent, then pins, then requests.

        *catalogues* answered in this step, and are in the order of the configuration. No call is planned at
        any other.
        """
        self.table, self._catalogues = table, catalogues
        self._asked_count = table.count_last_hour(self.now)
        answered = {one.name for one in catalogues}
        own = (one for one in table.requests if one.catalogue in answered)
        changeable = [one for one in own if self.settings.mode_at(one.catalogue, one.site) == "request"]
        upkeep = plan_upkeep(changeable, self.now, is_complete=self.needs.is_complete)
        not_pinned = [self._pin(one) for one in self._seen]
        refused = (*self._refused, *map(self._stage, self.candidates), *not_pinned)
        return Plan(
            (*upkeep[:MAX_CALLS], *(Write(one, "ask") for one in self._asked)),
            tuple(self._shown),
            tuple(refusal for refusal in refused if refusal),
            {key: text for key, text in self._joined.items() if key not in self.table.by_key},
        )

    # -- candidates

    def _find_candidates(self) -> list[DataNeed]:
        """Find the sets of datasets to request; keep for the other jobs why nothing is asked.

        Only idle jobs count, and only if nothing but data is missing. While a schedd does not answer there
        are no candidates, because its jobs may need the data elsewhere.
        """
        groups: dict[tuple[Did, ...], list[DataNeed]] = {}
        silent = next((f"schedd {name} did not answer: {why}" for name, why in self.needs.unseen.items()), "")
        for need in self.needs.needs:
            if need.is_running or need.is_data_missing is False:
                continue
            if refusal := self._exclude(need) or (NotAsked.of(need, silent) if silent else None):
                self._refused.append(refusal)
            else:
                groups.setdefault(need.dids, []).append(need)
        return take_turns(sorted(map(_merge, groups.values()), key=age_order), lambda one: one.user)

    def _explain_unseen(self, need: DataNeed) -> str:
        """Return why the datasets of *need* were not all seen in this cycle; empty if they were."""
        unseen = self.view.unseen
        return self.view.problem or next((unseen[did] for did in need.dids if did in unseen), "")

    def _exclude(self, need: DataNeed) -> NotAsked | None:
        """Return why nothing is asked for *need*; None for a candidate."""
        view = self.view
        if need.is_data_missing is None or need.matching_sites is None:
            return NotAsked.of(need, "it is unknown whether the jobs wait for anything but data")
        if reason := self._explain_unseen(need):
            return NotAsked.of(need, reason)
        missing = {site: view.find_missing(need.dids, site) for site in view.facts}
        useless = missing.keys() - need.matching_sites if need.is_bound else frozenset[Site]()
        for site in sorted(missing, key=lambda one: (one in useless, bool(missing[one]), one)):
            is_near = all(view.state(did, site) is DatasetState.STAGING for did in missing[site])
            if not is_near or (site in useless and site not in self.settings.sites):
                continue  # not listed in [staging.sites]: a storage without slots; its jobs would never start
            where = f"the data is {'on its way to' if missing[site] else 'complete at'} {site}"
            reason = f"{where}, which {_NO_MATCH}" if site in useless else where
            return NotAsked.of(need, reason, is_waiting=site not in useless)
        waited, wait = abs(self.now - need.queued_since), timedelta(minutes=self.settings.wait_minutes)
        if waited < wait:
            age, left = (format_duration(each.total_seconds()) for each in (waited, wait - waited))
            return NotAsked.of(need, f"the jobs have waited for {age}; asked in {left}", is_waiting=True)
        return None

    # -- pins

    def find_present(self) -> frozenset[Did]:
        """Return the datasets whose rules decide on pins: those that are whole where jobs need them."""
        return frozenset(did for one in self._seen if self._find_pinnable_sites(one) for did in one.dids)

    def _find_pinnable_sites(self, need: DataNeed) -> list[Site]:
        """Return the sites that have all datasets of *need* and where its jobs run, or could run."""
        view, sites = self.view, {need.running_site} if need.is_running else need.matching_sites
        possible = (site for site in sorted(view.facts) if sites is None or site in sites)
        return [site for site in possible if not view.find_missing(need.dids, site)]

    def _pin(self, need: DataNeed) -> NotAsked | None:
        """Plan the pins for the jobs of *need*; return why they cannot be set.

        Running jobs need their data at their site. For idle jobs one site that keeps the data is enough.
        """
        options = [
            ([did for did in need.dids if not self._is_safe(did, site, facts)], site, facts)
            for facts in self._catalogues
            for site in self._find_pinnable_sites(need)
            if site in self.settings.allowed_sites(facts.name) and facts.known.keys() >= {*need.dids}
        ]
        refusal = None
        for ending, site, facts in sorted(options, key=lambda option: (len(option[0]), option[1])):
            if not ending or not (reason := self._explain_no_pin(facts, site, ending)):
                left = max(0, MAX_CALLS - len(self._asked) - len(self._shown))
                self._ask(need, facts, site, StagingKind.PIN, facts.sizes_of(ending[:left]))
                return None  # further pins follow in the next step
            refusal = refusal or NotAsked.of(need, f"not pinned: {reason}", site)
        return refusal

    def _is_safe(self, did: Did, site: Site, facts: CatalogueFacts) -> bool:
        """Return whether a rule keeps *did* at *site* for long enough."""
        own, last = self.table.by_key.get((did, site)), facts.last_rule(did, site)
        if own and not own.closed_until and not own.cancelled_at:
            return True
        return last is not None and last.last_moment - self.now > PIN_LIFETIME / 2

    def _explain_no_pin(self, facts: CatalogueFacts, site: Site, ending: Sequence[Did]) -> str:
        """Return why the datasets *ending* cannot be pinned at *site*; empty if they can."""
        if reason := self._explain_refusal(facts, site, ending, StagingKind.PIN):
            return reason
        if bare := next((did for did in ending if facts.last_rule(did, site) is None), None):
            return f"no rule keeps {bare} at {site}, so a pin that ends would make it deletable"
        return self._explain_excess(site, facts.sizes_of(ending), is_pin=True)

    # -- stage requests

    def _stage(self, one: DataNeed) -> NotAsked | None:
        """Plan a request for *one* at the first site in rank order that can take all its missing datasets.

        Return why there is none. If a limit is reached, waiting for that site is better than another site.
        """
        ways = {did: self._find_ways(did) for did in one.dids}
        bound = {site: did for did, (_, moving) in ways.items() for site in moving}
        matching = one.matching_sites or frozenset()
        if len(bound) > 1:
            targets = "; ".join(f"{did} to {site}" for site, did in sorted(bound.items()))
            return NotAsked.of(one, f"its datasets are on their way to different sites: {targets}")
        places = [
            (self._rank(one, facts, Site(site)), Site(site), facts)
            for facts in self._catalogues
            for site in self.settings.allowed_sites(facts.name)
            if not bound or site in bound
        ]
        for site, did in bound.items():
            if site not in matching or not places:
                lack = "where no data may be requested" if site in matching else f"which {_NO_MATCH}"
                return NotAsked.of(one, f"{did} is on its way to {site}, {lack}", site)
        refusals = []
        for _, site, facts in sorted(places, key=lambda place: place[:2]):
            missing = self.view.find_missing(one.dids, site)
            joined = {(did, site): ways[did][0][site] for did in missing if site in ways[did][0]}
            sizes = facts.sizes_of(did for did in missing if (did, site) not in joined)
            if reason := self._explain_no_request(one, facts, site, missing, sizes):
                refusals.append(NotAsked.of(one, reason, site))
                continue
            if excess := self._explain_excess(site, sizes):
                return NotAsked.of(one, excess, site)
            self._joined |= joined
            if sizes:
                self._ask(one, facts, site, StagingKind.STAGE, sizes)
                return None
            rules = shorten_list(sorted(set(joined.values())))
            return NotAsked.of(one, f"the data is on its way to {site} by {rules}", site, is_waiting=True)
        none = NotAsked.of(one, "no catalogue that answers is switched on for requests")
        return next((each for each in refusals if each.site in matching), refusals[0] if refusals else none)

    def _find_ways(self, did: Did) -> tuple[dict[Site, str], set[Site]]:
        """Return by site what brings *did* there already, and the sites that it is moving to now.

        A rule that is stuck is joined at its site for a day, and does not keep the data from another site.
        """
        moving = set(self.view.sites_with(did, DatasetState.STAGING))
        ways = dict.fromkeys(moving, "another transfer")
        for rule in (rule for facts in self._catalogues for rule in facts.rules_of(did)):
            if rule.is_ours or not self._is_joinable(rule):
                continue
            ways[rule.site] = f"the rule {rule.id} of {rule.account}{_UNSEEN * rule.is_whole}"
            if rule.state in _ON_THE_WAY and not rule.is_whole:
                moving.add(rule.site)
            elif not rule.is_whole:
                ways[rule.site] += f", which is {rule.state.value}" + (
                    f" ({rule.reason})" if rule.reason else ""
                )
        for own in self.table.stages.get(did, ()):
            ways[own.site] = f"our request {own.rule or own.batch}{_UNSEEN * own.is_complete}"
            if own.is_in_flight or not self.view.is_whole(did, own.site):
                moving.add(own.site)  # a rule may be done before a cycle has seen its data
        return ways, moving

    def _rank(self, one: DataNeed, facts: CatalogueFacts, site: Site) -> tuple[float, ...]:
        """Return how good *site* is for all datasets of *one*; the smallest is the best."""
        missing = self.view.find_missing(one.dids, site)
        sizes = facts.sizes_of(missing)
        seconds, space = self._estimate_seconds(site, sizes), self._space_at(site, facts)
        return (
            len(sizes) < len(missing),
            sum(size for did, size in sizes.items() if self._find_tape(did, site) not in {None, site}),
            sum(size * (1 - self.view.fraction(did, site)) for did, size in sizes.items()),
            seconds,
            self.table.taken[site] - (space if isinstance(space, int) else 0),
        )

    def _explain_no_request(
        self, one: DataNeed, facts: CatalogueFacts, site: Site, missing: Sequence[Did], sizes: Sizes
    ) -> str:
        """Return why *site* cannot take those of *missing* that have *sizes*; empty if it can."""
        if site not in (one.matching_sites or ()):
            return f"{site} {_NO_MATCH}"
        if reason := self._explain_refusal(facts, site, missing, StagingKind.STAGE):
            return reason
        if site in self._full_sites:
            return f"an older request waits for room at {site}"
        rows = (each for each in self.table.requests if (each.catalogue, each.site) == (facts.name, site))
        if reason := next(filter(None, (each.explain_lifetime(facts.needed) for each in rows)), ""):
            return reason
        decision, size = self.table.decisions.get(batch := make_batch(site, sizes)), sum(sizes.values())
        if decision and decision.verb == "reject":
            return f"the operator rejected the request {batch} of {format_bytes(size)} at {site}"
        return self._explain_lack_of_space(site, facts, size) if sizes else ""

    def _estimate_seconds(self, site: Site, sizes: Sizes) -> float:
        """Return the seconds to bring datasets to *site*, one after the other; infinite if a rate is unknown.

        The source of a dataset is the site with the best rate, of those that have it on disk, else on tape.
        """
        seconds = 0.0
        for did, size in sizes.items():
            on_disk = self.view.sites_with(did, DatasetState.AVAILABLE)
            sources = on_disk or self.view.sites_with(did, DatasetState.NEARLINE)
            best = max((self.find_rate(source, site) for source in sources), default=0.0)
            seconds += size / best if best > 0 else float("inf")
        return seconds

    def _space_at(self, site: Site, facts: CatalogueFacts) -> int | str | None:
        """Return the free bytes at *site*, before those on their way arrive; None or a text if unknown."""
        if site in facts.answer.spaces:
            return facts.answer.spaces[site]
        given = to_bytes(self.settings.sites[site].space_tb)
        own = (one for rows in self.table.stages.values() for one in rows if one.site == site)
        return max(0, given - sum(one.bytes for one in own if one.is_complete)) if given else None

    def _find_tape(self, did: Did, site: Site) -> Site | None:
        """Return the site from whose tape *did* must come to *site*; None if it is on disk somewhere."""
        if any(self.view.is_whole(did, other) for other in self.view.facts):
            return None
        tapes = self.view.sites_with(did, DatasetState.NEARLINE)
        return site if site in tapes else next(iter(tapes), None)

    def _is_joinable(self, rule: ExistingRule) -> bool:
        """Return whether *rule* may still bring its data: not if it is stuck or not approved for a day."""
        if rule.stuck_since and not rule.is_whole:
            return abs(self.now - rule.stuck_since) < STUCK_AFTER
        return rule.is_whole or rule.state in _ON_THE_WAY or rule.state is RequestState.UNAPPROVED

    def _explain_excess(self, site: Site, sizes: Sizes, *, is_pin: bool = False) -> str:
        """Return which limit would be exceeded by datasets of *sizes* more at *site*; empty if none.

        A request that waits for room lets no younger one overtake it at its site, unless it can never fit.
        """
        limits, taken_bytes, size = self.settings.limits, self.table.taken, sum(sizes.values())
        rows = [
            (to_bytes(limits.request_tb), 0, "for one request"),
            (to_bytes(limits.site_tb), taken_bytes[site], f"on the way to {site}"),
            (to_bytes(limits.total_tb), taken_bytes[None], "of all requests and pins"),
        ][2 * is_pin :]
        for limit, taken, what in rows:
            if size and taken + size > limit:
                if size <= min(row[0] for row in rows) and not is_pin:
                    self._full_sites.add(site)
                room = f": {format_bytes(taken)} are taken" if taken else ""
                excess = f"would exceed the limit of {format_bytes(limit)}"
                return f"{format_bytes(size)} at {site} {excess} {what}{room}"
        if self._asked_count >= limits.hour_requests and sizes and not is_pin:
            return f"{format_count(self._asked_count, 'request')} were made in the last hour, the limit"
        return ""

    def _explain_lack_of_space(self, site: Site, facts: CatalogueFacts, size: int) -> str:
        """Return why *size* bytes do not fit into the free space of *site*; empty if they fit.

        All bytes on their way count as if none of them had arrived: the free space may be an old figure.
        """
        space = self._space_at(site, facts)
        if not isinstance(space, int):
            return f"the free space of {site} is unknown" + (f": {space}" if space else "")
        coming, floor = self.table.taken[site], to_bytes(self.settings.limits.floor_tb)
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
            if did not in facts.known or not facts.known[did].size:
                return facts.answer.unread.get(did) or f"the size of {did} is unknown"
            if reason := self.table.explain_closed(did, site, kind, self.now):
                return reason
            if self.view.state(did, site) is DatasetState.UNAVAILABLE:
                return f"{did} is at {site}, whose storage cannot be read now"
        return ""

    def _ask(
        self, need: DataNeed, facts: CatalogueFacts, site: Site, kind: StagingKind, sizes: Sizes
    ) -> None:
        """Ask for datasets of *sizes* at *site*, or show what would be asked, or what waits for a person.

        What waits for a person takes no room: others need not wait.
        """
        if not sizes:
            return
        is_pin = kind is StagingKind.PIN
        name, total = make_batch(site, sizes), sum(sizes.values())
        is_large = not is_pin and total > to_bytes(self.settings.limits.approval_tb)
        lifetime = PIN_LIFETIME if is_pin else self.settings.max_lifetime_days * DAY
        requests = []
        for did, size in sizes.items():
            rule = facts.last_rule(did, site) if is_pin else None
            storage = rule.storage if rule else facts.answer.storages.get(site, "")
            request = Request(
                did, site, facts.name, kind, size, name, self.now, int(lifetime.total_seconds()),
                storage, None if is_pin else self._find_tape(did, site), need.user,
                job_count=need.job_count, example=need.example,
            )  # fmt: skip
            requests.append(request)
        what = f"{format_bytes(total)} in {format_count(len(sizes), 'dataset')} at {site}"
        if self.settings.mode_at(facts.name, site) == "propose":
            text = f"would {'pin' if is_pin else 'ask for'} {what}; the mode is propose"
            self._shown.append(Batch(tuple(requests), "propose", text))
        elif not is_large or self.table.is_approved(requests):
            self._asked += requests
        else:
            text = f"{what} wait for `hydrator staging approve {name}`"
            self._shown.append(Batch(tuple(requests), "approve", text))
            return
        self.table = self.table.put(*requests)
        self._asked_count += not is_pin


def _merge(group: list[DataNeed]) -> DataNeed:
    """Return the oldest need of *group* for all its jobs, at the sites that match all if there are any."""
    oldest = min(group, key=age_order)
    own_sites = oldest.matching_sites or frozenset()
    common = own_sites.intersection(*(need.matching_sites or () for need in group))
    count = sum(need.job_count for need in group)
    return replace(oldest, job_count=count, matching_sites=common or own_sites)
