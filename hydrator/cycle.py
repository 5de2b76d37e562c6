"""Poll, snapshot, ads, plan, apply: the one place where the order is written.

``think`` is pure and does all the deciding; around it stand the questions to
schedds and catalogues and the sending to publishers, each of which may fail,
or hang, without harm to the others.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from .ads import Budget, Draft, Drafting, drafting, forgotten, implausible, number, restored
from .audit import WINDOW, Audit, By, Lie, Verdict, corrected, fold, settle
from .breaker import Held, Limits, Listed, Since, judge
from .bugs import Bugs
from .datasets import Datasets, Memory
from .demand import demand
from .demand import remember as remember_demand
from .errors import Fenced, PoolError, PublishError, StateError
from .fence import Fence
from .folding import Folded, fold_memories
from .history import Entry, Grounds, entry
from .model import (
    Demand,
    Did,
    Hold,
    Pending,
    Plan,
    Publish,
    PublishedAd,
    Queue,
    Refresh,
    Seen,
    Site,
    SiteAd,
    Snapshot,
    Survey,
    Unseen,
    Withdraw,
    unix,
)
from .orders import Orders, Waiting
from .plan import Policy, plan
from .polls import Polled, Polls, read
from .ports import Catalogue, Clock, Publisher, Queues, ReadsBack
from .rivals import Rivals
from .sidebyside import Busy, SideBySide, in_thread
from .snapshot import remember
from .store import State, Store


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator decided, as far as a cycle needs it."""

    default_scope: str | None = None
    pins: frozenset[Did] = frozenset()
    patterns: tuple[str, ...] = ()
    keep_demand: timedelta = timedelta(hours=24)
    bound: timedelta = timedelta(hours=6)
    budget: Budget = field(default_factory=Budget)
    include_sites: tuple[str, ...] = ("*",)
    retired: frozenset[Site] = frozenset()
    audit_window: timedelta = WINDOW
    limits: Limits = field(default_factory=Limits)
    withhold: timedelta = timedelta(minutes=10)

    def retires(self, site: Site) -> bool:
        """Did the operator take this site out, by name or by no longer including it?"""
        included = any(fnmatchcase(site, pattern) for pattern in self.include_sites)
        return site in self.retired or not included


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a cycle waits for its parts; None: until they are done.

    ``polls``: for the answers of catalogues. ``shown``: for what each publisher
    shows. ``sent``: for what is sent to each publisher.
    """

    polls: timedelta | None = None
    shown: timedelta | None = None
    sent: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Basis:
    """What one cycle worked out that the next can start from, if that continues the same memories.

    ``marks`` says which: they are those of the memories that the cycle left.
    """

    marks: Mapping[str, object]
    rules: Rules
    retired: frozenset[Site]
    listed: Listed | None
    folded: Folded
    drafting: Drafting


@dataclass(frozen=True, slots=True)
class Thought:
    """What follows from a state, the answers of one cycle and the time: everything but the sending.

    ``withheld`` are sites that get no ad yet, ``released`` datasets that left after they had been held,
    each with the reason.
    """

    state: State
    snapshot: Snapshot
    drafts: Mapping[Site, Draft]
    ads: Mapping[Site, SiteAd]
    lies: tuple[Lie, ...] = ()
    released: Mapping[Site, Mapping[Did, str]] = field(default_factory=dict)
    basis: Basis | None = field(default=None, compare=False, repr=False)
    withheld: Mapping[Site, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outlet:
    """A publisher, and when it wants an unchanged ad again."""

    publisher: Publisher
    policy: Policy

    @property
    def name(self) -> str:
        return self.publisher.name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one publisher was to do and how that went; ``unconfirmed`` was sent but not read back."""

    publisher: str
    plan: Plan = ()
    published: Mapping[Site, PublishedAd] = field(default_factory=dict)
    unconfirmed: tuple[Site, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One cycle: what was asked, concluded, sent and read back; ``at`` is when it began.

    ``held`` says by site which change is held back, with the numbers;
    ``took`` is how long each catalogue was asked that answered in this cycle, or failed;
    ``pending`` are those that are still being asked, each with since when; of those, ``surveyed`` has
    what the last answer was, or that this one is overdue. ``entries`` are what was decided anew.
    ``rejected`` has by publisher the ads that it showed and that were not adopted, each with the reason;
    ``implausible`` by site the generations that every hook refuses; ``rivals`` by publisher why another
    daemon seems to write there.
    """

    at: datetime
    demand: Demand
    thought: Thought
    outcomes: tuple[Outcome, ...]
    surveyed: Mapping[str, str | None]
    unsaved: str | None = None
    orders: Waiting = field(default_factory=Waiting)
    held: Mapping[Site, str] = field(default_factory=dict)
    took: Mapping[str, timedelta] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    rejected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    implausible: Mapping[Site, int] = field(default_factory=dict)
    pending: Mapping[str, datetime] = field(default_factory=dict)
    rivals: Mapping[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> tuple[str, ...]:
        """One sentence for each part of the cycle that failed."""
        failed = [f"catalogue {name}: {why}" for name, why in self.surveyed.items() if why]
        failed += [f"publisher {o.publisher}: {o.error}" for o in self.outcomes if o.error]
        failed += [
            f"publisher {o.publisher}: sent but not read back: {', '.join(o.unconfirmed)}"
            for o in self.outcomes
            if o.unconfirmed
        ]
        failed += [f"publisher {name}: {why}" for name, why in self.rivals.items()]
        return (*failed, *([self.unsaved] if self.unsaved else []))

    @property
    def whole(self) -> bool:
        """Did every catalogue answer, every publisher show what it should, and is the state on disk?"""
        failed = [*self.surveyed.values(), self.unsaved]
        return not any(failed) and not any(o.error or o.unconfirmed for o in self.outcomes)


def think(
    state: State,
    answers: Mapping[str, Survey | Unseen | Pending],
    demanded: Demand,
    *,
    published: Mapping[Site, int],
    rules: Rules,
    now: datetime,
    approved: Mapping[Site, AbstractSet[Did]] | None = None,
    renumbered: AbstractSet[Site] = frozenset(),
    last: Thought | None = None,
    began: Mapping[str, datetime] | None = None,
    withheld: Mapping[Site, str] | None = None,
) -> Thought:
    """Conclude from what is remembered and what was answered which ad every site should have.

    Args:
        state: what the last cycle left, and what the audit found since.
        answers: by catalogue, its survey, or why it gave none, or that it is pending.
        demanded: the datasets in question.
        published: by site, the highest generation that any publisher shows.
        rules: what the operator decided.
        now: when this cycle began; what was read since counts from then, so
            that one poll has one age.
        approved: by site, the held datasets that the operator lets go.
        renumbered: sites whose ads the operator gives a new generation.
        last: what the last cycle thought. It changes no answer: what it worked out, and what is still
            so, is not worked out again, so that a cycle costs by what changed.
        began: when the poll of a catalogue began, where that was before this cycle did.
        withheld: sites that get no ad yet, each with the reason; see :func:`withholding`.

    Returns:
        The state to remember, and the ads, also of sites that were not seen
        this cycle: those stand as they did, with the age they have, until
        they are older than ``rules.bound``; then they list nothing.
    """
    dids = demanded.dids
    memories = {
        name: remember(
            state.memories.get(name, Memory()), answer, dids, now=min(now, (began or {}).get(name, now))
        )
        for name, answer in answers.items()
    }
    basis = last.basis if last and last.basis and _continues(last.basis, state, answers, rules) else None
    changed = frozenset[Did]().union(*(Datasets.of(one.known).touched for one in memories.values()))
    retired = _retired(state, memories, rules)
    counted = basis.listed if basis and basis.retired == retired else None
    judged = judge(
        state.memories,
        memories,
        dids,
        held=state.held,
        approved=approved or {},
        retired=retired,
        limits=rules.limits,
        now=now,
        since=Since(counted, changed) if counted else None,
    )
    held = judged.memories
    audit, lies = settle(state.audit, held, now=now, window=rules.audit_window, bound=rules.bound)
    right = corrected(held, _sure(audit, judged.held, rules.limits))
    changed = changed.union(*(Datasets.of(one.known).touched for one in right.values()))
    folded = fold_memories(
        right,
        dids,
        now=now,
        bound=rules.bound,
        last=basis.folded if basis else None,
        changed=changed if basis else None,
    )
    view = folded.snapshot
    kept = {site: facts for site, facts in view.sites.items() if not rules.retires(site)}
    returned = {
        site: restored(one.ad, audit.trust.get(site, 1.0), now=now, bound=rules.bound)
        for site, one in state.rollbacks.items()
        if not rules.retires(site)
    }
    made = drafting(
        replace(view, sites=kept),
        demanded,
        budget=rules.budget,
        trust=audit.trust,
        last=basis.drafting if basis else None,
        altered=folded.altered,
    )
    drafted = made.drafts
    left = {s: ad for s, ad in state.ads.items() if s not in drafted and not rules.retires(s)}
    standing = {
        site: forgotten(ad, audit.trust.get(site, 1.0))
        if now - ad.as_of > rules.bound or site in judged.released
        else restored(ad, audit.trust.get(site, 1.0), now=now, bound=rules.bound)
        for site, ad in left.items()
    }
    apart = withheld or {}
    whole = {**drafted, **standing, **returned}
    desired = {site: draft for site, draft in whole.items() if site not in apart}
    ads = number(desired, state.ads, published=published, now=now, renumbered=renumbered)
    after = replace(state, memories=held, held=judged.held, ads=ads, audit=audit)
    left_over = Basis(_marks(held), rules, retired, judged.listed, folded, made)
    return Thought(after, view, drafted, ads, lies, judged.released, left_over, apart)


def withholding(
    state: State,
    answers: Mapping[str, Survey | Unseen | Pending],
    *,
    published: Collection[Site],
    unheard: Sequence[str],
    rules: Rules,
) -> dict[Site, str]:
    """Choose the sites whose published ad must not be replaced yet: what it was made of is lost.

    A daemon without its state knows neither what a silent schedd wants nor
    what a silent catalogue has. An ad of a site that is *published*, and that
    *state* does not know, was made of both. So it is left as it is until all
    have answered.

    Args:
        state: what the last cycle left.
        answers: those of this cycle, by catalogue.
        published: the sites that any publisher shows.
        unheard: those that have not told what they want since the state was lost, such as ``schedd ap1``.
        rules: what the operator decided.

    Returns:
        By site the reason; nothing once all that was asked has answered.
    """
    lost = [
        site
        for site in published
        if site not in state.ads and site not in state.rollbacks and not rules.retires(site)
    ]
    if not lost:
        return {}
    silent = [name for name, answer in answers.items() if not _is_known(state.memories.get(name), answer)]
    unknown = [f"the demand of {name} is not known yet" for name in unheard]
    unknown += [f"catalogue {name} has not answered for everything yet" for name in silent]
    if not unknown:
        return {}
    more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return dict.fromkeys(sorted(lost), f"{unknown[0]}{more}; what is published stays as it is")


def _is_known(memory: Memory | None, answer: Survey | Unseen | Pending) -> bool:
    """Has the catalogue ever said something of all that it was asked about?"""
    known = memory.known if memory else {}
    if isinstance(answer, Survey):
        return all(isinstance(one, Seen) or did in known for did, one in answer.readings.items())
    return bool(memory and memory.at)


def _marks(memories: Mapping[str, Memory]) -> dict[str, object]:
    return {name: Datasets.of(memory.known).mark for name, memory in memories.items()}


def _continues(basis: Basis, state: State, answers: Collection[str], rules: Rules) -> bool:
    """Is *state* what was left with *basis*, and are the same catalogues asked under the same rules?"""
    same = basis.marks == _marks(state.memories) and basis.marks.keys() == set(answers)
    return same and (basis.rules is rules or basis.rules == rules)


def _sure(audit: Audit, held: Mapping[Site, Held], limits: Limits) -> Audit:
    """*audit* without what only the catalogue itself says, where the breaker would not believe that.

    An emptied catalogue answers the expensive question as it does the cheap
    one, and would let go one dataset a second of what is held; so would one
    whose polls fail. What no poll said again since counts for fewer datasets
    of a site than the breaker lets pass, the first ones.
    """
    doubtful = {(site, did) for site, one in held.items() for did in one.gone}
    most = limits.least - 1 if limits.polls else len(audit.corrections)
    alone: Counter[Site] = Counter()
    standing = {}
    for (claim, by), correction in sorted(
        audit.corrections.items(), key=lambda item: (item[1].since, item[0])
    ):
        if by is not By.PROBE:
            if (claim.site, claim.did) in doubtful:
                continue
            alone[claim.site] += correction.repeated is None
            if correction.repeated is None and alone[claim.site] > most:
                continue
        standing[claim, by] = correction
    return replace(audit, corrections=standing)


def _retired(state: State, memories: Mapping[str, Memory], rules: Rules) -> frozenset[Site]:
    sites = state.ads.keys() | {site for memory in memories.values() for site in memory.sites}
    return frozenset(site for site in sites if rules.retires(site))


def still_found(found: Mapping[str, frozenset[Did]], state: State) -> dict[str, frozenset[Did]]:
    """What was *found* now, and what no longer was though nobody could see yet that it is gone.

    A catalogue that finds nothing has lost its datasets, or its mind. So what
    it found before is asked about once more, and stays wanted while it is
    held, or could not be asked about.
    """
    doubtful = {did for held in state.held.values() for did in held.gone}
    doubtful |= {did for memory in state.memories.values() for did in memory.unseen}
    before = {name: state.found.get(name, frozenset()) & doubtful for name in found}
    return {
        name: dids | {did for did in before[name] if _is_somewhere(did, state)}
        for name, dids in found.items()
    }


def _is_somewhere(did: Did, state: State) -> bool:
    known = [memory.known[did] for memory in state.memories.values() if did in memory.known]
    return any(one.here for one in known)


def read_all(catalogues: Sequence[Catalogue], dids: AbstractSet[Did]) -> dict[str, Survey | Unseen]:
    """Ask every catalogue, side by side; one that fails is Unseen."""
    bugs = Bugs()
    answers = {
        one.name: in_thread(f"catalogue {one.name}", lambda one=one: read(one, dids, bugs))  # type: ignore[misc]
        for one in catalogues
    }
    return {name: answer.result() for name, answer in answers.items()}


def apply(todo: Plan, publisher: Publisher, fence: Fence | None = None, bugs: Bugs | None = None) -> Outcome:
    """Do what *todo* says, then read back: what is not seen there is not published.

    Raises:
        Fenced: *fence* is closed, so nothing may be sent.
    """
    fence = fence or Fence()
    to_send = [ad for action in todo if (ad := sent_by(action)) is not None]
    to_withdraw = frozenset(action.site for action in todo if isinstance(action, Withdraw))
    try:
        if to_send:
            with fence.step():
                publisher.publish(to_send)
        if to_withdraw:
            with fence.step():
                publisher.withdraw(to_withdraw)
        there = publisher.published()
    except PublishError as error:
        return Outcome(publisher.name, todo, error=error.reason)
    except Fenced:
        raise
    except BaseException as error:  # noqa: BLE001 - its bug is its failure alone
        return Outcome(publisher.name, todo, error=(bugs or Bugs()).caught(_part(publisher), error))
    missing = [ad.site for ad in to_send if not _is_there(ad, there.get(ad.site))]
    missing += [site for site in to_withdraw if site in there]
    return Outcome(publisher.name, todo, there, tuple(sorted(missing)))


def sent_by(action: object) -> SiteAd | None:
    """The ad that an action sends, if it sends one."""
    return action.ad if isinstance(action, Publish | Refresh | Hold) else None


class Cycle:
    """Runs cycles over one set of catalogues, schedds and publishers, and keeps their state.

    Not thread-safe, but for :meth:`ask_schedds`: the daemon runs one at a time.

    Args:
        verdicts: what the audit found since it was asked last.
        patience: how long a cycle waits for its parts.
        bugs: takes exceptions that no part should raise.
        answered: called, from any thread, when a catalogue answered that no cycle waited for any more: the
            next cycle has something to take.
    """

    def __init__(
        self,
        *,
        catalogues: Sequence[Catalogue],
        queues: Queues | None,
        outlets: Sequence[Outlet],
        rules: Rules,
        clock: Clock,
        state: State,
        store: Store | None,
        verdicts: Callable[[], Sequence[Verdict]] = tuple,
        orders: Orders | None = None,
        fence: Fence | None = None,
        patience: Patience = Patience(),
        bugs: Bugs | None = None,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._bugs = bugs or Bugs()
        self._patience = patience
        self._polls = Polls(catalogues, clock, self._bugs, answered)
        self._shows = SideBySide[Mapping[Site, PublishedAd] | PublishError]("publisher", clock)
        self._sends = SideBySide[Outcome]("publisher", clock)
        self._queues = queues
        self._outlets = tuple(outlets)
        self._rules = rules
        self._clock = clock
        self._store = store
        self._verdicts = verdicts
        self._orders = orders
        self.state = state
        self.settled = state
        """The state that others may continue from: all that follows from it is on disk, orders included."""
        self.fence = fence or Fence()
        self._last: Thought | None = None
        self.publishes = True
        """False where another daemon does: then all is read, concluded and kept, and nothing is sent."""
        self.schedds: Mapping[str, Queue | Unseen] = {}
        self.demand_error: str | None = None
        self._heard: set[str] = set()
        self._asked_schedds = False
        self._withheld_since: datetime | None = None
        self._rivals = Rivals()

    @property
    def demand(self) -> Demand:
        """What is wanted, as of the last time the schedds were asked."""
        return self._demand_of(self.state)

    def _demand_of(self, state: State) -> Demand:
        found = frozenset(did for dids in state.found.values() for did in dids)
        return demand(state.demand, pins=self._rules.pins, found=found, now=self._clock())

    def ask_demand(self) -> frozenset[Did]:
        """Ask the schedds; the datasets that were not wanted before."""
        return self.heed(self.ask_schedds())

    def ask_schedds(self) -> Mapping[str, Queue | Unseen] | str:
        """Ask the schedds, which may take long and changes nothing here; or say why they cannot be named."""
        try:
            answers = self._queues.wanted() if self._queues else {}
        except PoolError as error:
            return str(error)
        except BaseException as error:  # noqa: BLE001 - its bug is its failure alone
            return self._bugs.caught("the query of schedds", error)
        self._bugs.over("the query of schedds")
        return answers

    def heed(self, answers: Mapping[str, Queue | Unseen] | str) -> frozenset[Did]:
        """Take in what :meth:`ask_schedds` returned; the datasets that were not wanted before.

        If the collector cannot list the schedds, those known until now are Unseen and keep their demand.
        """
        now = self._clock()
        before = self.demand.dids
        self.demand_error = answers if isinstance(answers, str) else None
        self._asked_schedds = self._asked_schedds or not self.demand_error
        if isinstance(answers, str):
            known = self.schedds.keys() | {want.schedd for want in self.state.demand.wants}
            answers = {schedd: Unseen(answers) for schedd in known}
        self.schedds = answers
        self._heard |= {schedd for schedd, answer in self.schedds.items() if isinstance(answer, Queue)}
        memory = remember_demand(
            self.state.demand,
            self.schedds,
            default_scope=self._rules.default_scope,
            keep=self._rules.keep_demand,
            now=now,
        )
        self.state = replace(self.state, demand=memory)
        self.settled = replace(self.settled, demand=memory)
        return self.demand.dids - before

    def run(self, *, due: bool = True) -> Report:
        """One whole cycle; the state is on disk before anything is sent.

        Every catalogue is asked that is not being asked already; if no poll is
        *due*, only those are that were not asked yet about all that is wanted.
        A state that cannot be saved (disk full) stops no publishing: ads would
        expire, and generations are Unix times that a restart cannot reset.

        Raises:
            Fenced: a reload has replaced these parts; nothing more was saved or sent.
        """
        self.state = replace(self.state, audit=self._audited())
        before = self.state
        report, todo, self.state = self._decide(due=due)
        report = replace(report, entries=tuple(decided(before, report)))
        with self.fence.step():
            unsaved = self._settle(before, report)
        if not self.publishes:
            self._rivals = Rivals()  # the one that leads is none
        outcomes = self._apply(todo) if self.publishes else ()
        for one in outcomes:
            self._rivals.confirm(one.publisher, one.published)
        report = replace(report, outcomes=outcomes)
        with self.fence.step():
            unsaved = unsaved or self._saved(lambda store: _save_outcomes(store, report))
        return replace(report, unsaved=unsaved)

    def _settle(self, before: State, report: Report) -> str | None:
        """Save the state, take followed orders away, keep what was decided; return why that failed."""
        unsaved = self._saved(lambda store: store.save(self.state)) or self._followed(report.orders)
        self.settled = self.state
        return unsaved or self._saved(lambda store: store.add_history(report.entries, before.ads, report.at))

    def _saved(self, write: Callable[[Store], None]) -> str | None:
        try:
            if self._store:
                write(self._store)
        except StateError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - ads expire while a state is not written
            return self._bugs.caught("the state", error)
        return None

    def _audited(self) -> Audit:
        try:
            return fold(self.state.audit, self._verdicts())
        except Exception as error:  # noqa: BLE001 - its bug is its failure alone
            self._bugs.caught("the audit", error)
        return self.state.audit

    def _followed(self, orders: Waiting) -> str | None:
        """Take followed orders away, once what follows from them is on disk."""
        try:
            if self._orders:
                self._orders.done(orders)
        except StateError as error:
            return str(error)
        return None

    def plan(self) -> Report:
        """The same, up to what would be sent: nothing is saved and nothing is sent."""
        return self._decide()[0]

    def _waiting(self) -> Waiting:
        try:
            return self._orders.waiting() if self._orders else Waiting()
        except Exception as error:  # noqa: BLE001 - its bug is its failure alone
            return Waiting(problem=self._bugs.caught("the reading of orders", error))

    def _asked(self, state: State, *, due: bool) -> "_Asked":
        """Ask the catalogues, and take what answers there are; each is used once."""
        overdue = self._polls.overdue() if due else frozenset()
        patterns = self._rules.patterns if due else ()
        names = self._polls.names if self._rules.patterns else ()
        found = {name: state.found.get(name, frozenset()) for name in names}

        def wanted(fresh: Mapping[str, frozenset[Did]]) -> frozenset[Did]:
            found.update((name, fresh[name]) for name in names if name in fresh)
            return self._demand_of(self._looking_for(state, found)).dids

        first = self._demand_of(self._looking_for(state, found)).dids
        names_due = self._polls.names if due else self._polls.lacking(first)
        taken = self._polls.ask(names_due, patterns, wanted, self._patience.polls)
        return _Asked(found, taken, self._polls.busy, overdue - taken.keys())

    @staticmethod
    def _looking_for(state: State, found: Mapping[str, frozenset[Did]]) -> State:
        asked = {name: dids | state.found.get(name, frozenset()) for name, dids in found.items()}
        return replace(state, found=asked)

    def _decide(self, *, due: bool = True) -> tuple[Report, dict[str, Plan | PublishError], State]:
        now = self._clock()
        orders = self._waiting()
        state = replace(self.state, rollbacks=orders.rollbacks(self.state.rollbacks, now))
        asked = self._asked(state, due=due)
        state = self._looking_for(state, asked.found)
        wanted = self._demand_of(state)
        answers = {name: asked.answer(name, wanted.dids) for name in self._polls.names}
        there = self._there()
        rejected = _rejected([outlet.publisher for outlet in self._outlets])
        generations = _generations(there.values())
        thought = think(
            state,
            answers,
            wanted,
            published=generations,
            rules=self._rules,
            now=now,
            approved=orders.approved,
            renumbered=orders.renumbered,
            last=self._last,
            withheld=self._withheld(state, answers, generations, now),
            began={name: polled.began for name, polled in asked.taken.items()},
        )
        self._last = thought
        todo: dict[str, Plan | PublishError] = {}
        for outlet in self._outlets:
            published = there[outlet.name]
            todo[outlet.name] = (
                published
                if isinstance(published, PublishError)
                else self._plan(outlet, published, thought, now)
            )
        outcomes = tuple(
            Outcome(name, error=part.reason) if isinstance(part, PublishError) else Outcome(name, part)
            for name, part in todo.items()
        )
        needed = self._rules.limits.polls
        held = {site: one.text(needed) for site, one in thought.state.held.items()}
        held |= {site: one.text for site, one in thought.state.rollbacks.items()}
        held |= thought.withheld
        report = Report(
            now,
            wanted,
            thought,
            outcomes,
            {name: memory.failure for name, memory in thought.state.memories.items()},
            orders=orders,
            held=held,
            took=asked.took(now),
            pending=asked.pending,
            rejected=rejected,
            implausible=implausible(thought.ads, now),
            rivals=self._rivals_of(there, thought.ads, now),
        )
        return report, todo, replace(thought.state, found=still_found(asked.found, thought.state))

    def _rivals_of(
        self,
        there: Mapping[str, Mapping[Site, PublishedAd] | PublishError],
        ads: Mapping[Site, SiteAd],
        now: datetime,
    ) -> dict[str, str]:
        """Return by publisher why another daemon writes there."""
        seen = {
            name: self._rivals.see(name, shown, ads.keys(), now)
            for name, shown in there.items()
            if not isinstance(shown, PublishError)
        }
        return {name: why for name, why in seen.items() if why}

    def _withheld(
        self,
        state: State,
        answers: Mapping[str, Survey | Unseen | Pending],
        published: Collection[Site],
        now: datetime,
    ) -> dict[Site, str]:
        """Return the sites to withhold, for a bounded time from the first one on."""
        wanting = {want.schedd for want in state.demand.wants}
        unheard = sorted(
            f"schedd {schedd}"
            for schedd, answer in self.schedds.items()
            if isinstance(answer, Unseen) and schedd not in self._heard | wanting
        )
        if self._queues and not self._asked_schedds and not self._heard | wanting:
            unheard = ["all schedds"]
        found = withholding(state, answers, published=published, unheard=unheard, rules=self._rules)
        if not found:
            self._withheld_since = None
            return {}
        self._withheld_since = self._withheld_since or now
        return found if abs(now - self._withheld_since) < self._rules.withhold else {}

    def _there(self) -> dict[str, Mapping[Site, PublishedAd] | PublishError]:
        """Return what each publisher shows; one that takes too long could not be asked."""
        busy = {outlet.name: self._sends.busy(outlet.name) for outlet in self._outlets}
        asked = {
            outlet.name: lambda outlet=outlet: _published(outlet.publisher, self._bugs)
            for outlet in self._outlets
            if not busy[outlet.name]
        }
        shown = {**busy, **self._shows.do(asked, self._patience.shown)}
        return {
            name: PublishError(name, part.reason) if isinstance(part, Busy) else part
            for name, part in shown.items()
            if part is not None
        }

    def _plan(
        self, outlet: Outlet, published: Mapping[Site, PublishedAd], thought: Thought, now: datetime
    ) -> Plan | PublishError:
        try:
            retired = frozenset(site for site in published if self._rules.retires(site))
            return plan(
                published,
                thought.ads,
                retired=retired,
                now=now,
                policy=outlet.policy,
                withheld=thought.withheld,
            )
        except Exception as error:  # noqa: BLE001 - what it shows is of no use, and its failure alone
            return PublishError(outlet.name, self._bugs.caught(_part(outlet.publisher), error))

    def _apply(self, todo: Mapping[str, Plan | PublishError]) -> tuple[Outcome, ...]:
        work = {
            outlet.name: lambda outlet=outlet, part=part: apply(
                part, outlet.publisher, self.fence, self._bugs
            )
            for outlet in self._outlets
            if not isinstance(part := todo[outlet.name], PublishError)
        }
        for name, part in todo.items():
            if not isinstance(part, PublishError):
                self._rivals.sends(name, [ad for action in part if (ad := sent_by(action)) is not None])
        sent = self._sends.do(work, self._patience.sent)
        return tuple(
            _outcome(outlet.name, todo[outlet.name], sent.get(outlet.name)) for outlet in self._outlets
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What patterns *found*, the answers *taken*, and the catalogues that are *pending* since when.

    *overdue* are those that were due again, and again, while they were still being asked.
    """

    found: Mapping[str, frozenset[Did]]
    taken: Mapping[str, Polled]
    pending: Mapping[str, datetime]
    overdue: AbstractSet[str]

    def answer(self, name: str, wanted: AbstractSet[Did]) -> Survey | Unseen | Pending:
        if name in self.taken:
            return self.taken[name].about(wanted)
        if name in self.overdue:
            return Unseen(f"still being asked since {self.pending[name]:%Y-%m-%d %H:%M:%S} UTC")
        return Pending()

    def took(self, now: datetime) -> dict[str, timedelta]:
        """Return how long each catalogue was asked that answered, failed, or is overdue."""
        hung = {name: max(now - self.pending[name], timedelta()) for name in self.overdue}
        return {name: polled.took for name, polled in self.taken.items()} | hung


def _outcome(name: str, todo: Plan | PublishError, sent: Outcome | Busy | None) -> Outcome:
    if isinstance(todo, PublishError):
        return Outcome(name, error=todo.reason)
    if isinstance(sent, Outcome):
        return sent
    return Outcome(name, todo, error=sent.reason if sent else None)


def _part(publisher: Publisher) -> str:
    return f"publisher {publisher.name}"


def _published(publisher: Publisher, bugs: Bugs) -> Mapping[Site, PublishedAd] | PublishError:
    try:
        there = publisher.published()
        if not isinstance(there, Mapping):
            raise TypeError(f"it shows a {type(there).__name__}, not its ads by site")  # noqa: TRY301
    except PublishError as error:
        return error
    except BaseException as error:  # noqa: BLE001 - its bug is its failure alone
        return PublishError(publisher.name, bugs.caught(_part(publisher), error))
    bugs.over(_part(publisher))
    return there


def _rejected(publishers: Sequence[Publisher]) -> dict[str, dict[str, str]]:
    found = {one.name: dict(one.rejected) for one in publishers if isinstance(one, ReadsBack)}
    return {name: ads for name, ads in found.items() if ads}


def decided(before: State, report: Report) -> list[Entry]:
    """An entry for every ad that got a new generation in this cycle."""
    thought = report.thought
    clashing = frozenset(did for clash in thought.snapshot.clashes for did in clash)
    found = []
    for site, ad in sorted(thought.ads.items()):
        old = before.ads.get(site)
        if old and old.generation == ad.generation:
            continue
        facts = thought.snapshot.sites.get(site)
        grounds = Grounds(
            wanted=report.demand.dids,
            clashing=clashing,
            known=facts.facts if facts else {},
            released=thought.released.get(site, {}),
            rollback=_returns(site, before, thought.state),
        )
        found.append(entry(old, ad, grounds, now=report.at))
    return found


def _returns(site: Site, before: State, after: State) -> str | None:
    if rollback := after.rollbacks.get(site):
        return f"rolled back to generation {rollback.ad.generation}"
    return "the rollback ended" if site in before.rollbacks else None


def _generations(there: Collection[Mapping[Site, PublishedAd] | PublishError]) -> dict[Site, int]:
    highest: dict[Site, int] = {}
    for published in there:
        if not isinstance(published, PublishError):
            for site, ad in published.items():
                highest[site] = max(highest.get(site, 0), ad.generation)
    return highest


def _is_there(ad: SiteAd, shown: PublishedAd | None) -> bool:
    return shown is not None and (shown.generation, unix(shown.as_of)) == (ad.generation, unix(ad.as_of))


def _save_outcomes(store: Store, report: Report) -> None:
    for outcome in report.outcomes:
        if outcome.error is None:
            store.save_readback(outcome.publisher, outcome.published)
            store.mark_published(outcome.publisher, outcome.published, report.at)
    store.save_report("cycle", summary(report))


def summary(report: Report) -> dict[str, Any]:
    """One cycle in values that JSON knows, for ``hydrator status``."""
    return {
        "at": unix(report.at),
        "whole": report.whole,
        "catalogues": dict(report.surveyed),
        "publishers": {
            o.publisher: {"error": o.error, "not_read_back": list(o.unconfirmed), "ads": len(o.published)}
            for o in report.outcomes
        },
        "left_out": {
            site: [{"datasets": len(w.dids), "first": w.dids[0], "jobs": w.jobs} for w in draft.left_out]
            for site, draft in report.thought.drafts.items()
            if draft.left_out
        },
        "clashes": [list(clash) for clash in report.thought.snapshot.clashes],
        "misspelt": {did: list(held) for did, held in report.thought.snapshot.misspelt.items()},
        "unseen": dict(report.thought.snapshot.unseen),
        "refused": dict(report.demand.refused),
        "held": report.held,
        "rejected": {name: dict(ads) for name, ads in report.rejected.items()},
        "implausible_generations": dict(report.implausible),
        "rivals": dict(report.rivals),
    }
