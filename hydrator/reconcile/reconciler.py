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

from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import PoolError, PublishError, StateError, SupersededByReload
from hydrator.domain.model import (
    Demand,
    Did,
    Hold,
    Pending,
    Plan,
    Publish,
    PublishedAd,
    Refresh,
    ScheddDemand,
    Seen,
    Site,
    SiteAd,
    Snapshot,
    Survey,
    Unseen,
    Withdraw,
    to_unix,
)
from hydrator.domain.ports import Catalogue, Clock, Publisher, Queues, RejectionReporter
from hydrator.reconcile.ads.site_ads import (
    Budget,
    Draft,
    DraftSet,
    assign_generations,
    build_drafts,
    empty_draft,
    implausible_generations,
    redraft,
)
from hydrator.reconcile.audit.ledger import (
    AUDIT_WINDOW,
    Audit,
    RepeatedFalseClaim,
    Verdict,
    VerificationMethod,
    apply_corrections,
    expire_and_confirm,
    record_verdicts,
)
from hydrator.reconcile.poll.polls import CataloguePoller, PollResult, read_catalogue
from hydrator.reconcile.poll.threads import ParallelWorkers, UnfinishedWork, run_in_thread
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.publish.rivals import RivalDetector
from hydrator.reconcile.snapshot.breaker import (
    BreakerLimits,
    HeldLoss,
    ListedCounts,
    PreviousCounts,
    check_loss,
)
from hydrator.reconcile.snapshot.memory import CatalogueMemory, DatasetRows
from hydrator.reconcile.snapshot.merge import MergedSnapshot, merge_catalogues
from hydrator.reconcile.snapshot.update import apply_survey
from hydrator.state.command_files import CommandQueue, PendingCommands
from hydrator.state.store import ReconcileState, Store

from .demand import build_demand
from .demand import update_demand_memory as remember_demand
from .history import ChangeContext, HistoryEntry, build_entry
from .plan import Policy, plan


@dataclass(frozen=True, slots=True)
class ReconcilePolicy:
    """What the operator decided, as far as a cycle needs it."""

    default_scope: str | None = None
    pins: frozenset[Did] = frozenset()
    patterns: tuple[str, ...] = ()
    keep_demand: timedelta = timedelta(hours=24)
    max_age: timedelta = timedelta(hours=6)
    budget: Budget = field(default_factory=Budget)
    include_sites: tuple[str, ...] = ("*",)
    retired: frozenset[Site] = frozenset()
    audit_window: timedelta = AUDIT_WINDOW
    breaker_limits: BreakerLimits = field(default_factory=BreakerLimits)
    max_withhold: timedelta = timedelta(minutes=10)

    def is_retired(self, site: Site) -> bool:
        """Did the operator take this site out, by name or by no longer including it?"""
        included = any(fnmatchcase(site, pattern) for pattern in self.include_sites)
        return site in self.retired or not included


@dataclass(frozen=True, slots=True)
class CycleTimeouts:
    """How long a cycle waits for its parts; None: until they are done.

    ``polls``: for the answers of catalogues. ``shown``: for what each publisher
    shows. ``sent``: for what is sent to each publisher.
    """

    poll: timedelta | None = None
    read_back: timedelta | None = None
    publish: timedelta | None = None


@dataclass(frozen=True, slots=True)
class PreviousEvaluation:
    """What one cycle worked out that the next can start from, if that continues the same memories.

    ``marks`` says which: they are those of the memories that the cycle left.
    """

    versions: Mapping[str, object]
    policy: ReconcilePolicy
    retired: frozenset[Site]
    listed_counts: ListedCounts | None
    merged_snapshot: MergedSnapshot
    draft_set: DraftSet


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What follows from a state, the answers of one cycle and the time: everything but the sending.

    ``withheld`` are sites that get no ad yet, ``released`` datasets that left after they had been held,
    each with the reason.
    """

    state: ReconcileState
    snapshot: Snapshot
    drafts: Mapping[Site, Draft]
    ads: Mapping[Site, SiteAd]
    repeated_claims: tuple[RepeatedFalseClaim, ...] = ()
    released: Mapping[Site, Mapping[Did, str]] = field(default_factory=dict)
    basis: PreviousEvaluation | None = field(default=None, compare=False, repr=False)
    withheld_reasons: Mapping[Site, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """A publisher, and when it wants an unchanged ad again."""

    publisher: Publisher
    policy: Policy

    @property
    def name(self) -> str:
        return self.publisher.name


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What one publisher was to do and how that went; ``unconfirmed`` was sent but not read back."""

    publisher: str
    plan: Plan = ()
    published: Mapping[Site, PublishedAd] = field(default_factory=dict)
    unconfirmed_sites: tuple[Site, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CycleReport:
    """One cycle: what was asked, concluded, sent and read back; ``at`` is when it began.

    ``held`` says by site which change is held back, with the numbers;
    ``took`` is how long each catalogue was asked that answered in this cycle, or failed;
    ``pending`` are those that are still being asked, each with since when; of those, ``surveyed`` has
    what the last answer was, or that this one is overdue. ``entries`` are what was decided anew.
    ``rejected`` has by publisher the ads that it showed and that were not adopted, each with the reason;
    ``implausible`` by site the generations that every hook refuses; ``rivals`` by publisher why another
    daemon seems to write there.
    """

    started_at: datetime
    demand: Demand
    evaluation: Evaluation
    results: tuple[PublishResult, ...]
    catalogue_errors: Mapping[str, str | None]
    save_error: str | None = None
    commands: PendingCommands = field(default_factory=PendingCommands)
    held_reasons: Mapping[Site, str] = field(default_factory=dict)
    poll_durations: Mapping[str, timedelta] = field(default_factory=dict)
    history_entries: tuple[HistoryEntry, ...] = ()
    rejected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    implausible_generations: Mapping[Site, int] = field(default_factory=dict)
    pending_since: Mapping[str, datetime] = field(default_factory=dict)
    rivals: Mapping[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> tuple[str, ...]:
        """One sentence for each part of the cycle that failed."""
        failed = [f"catalogue {name}: {why}" for name, why in self.catalogue_errors.items() if why]
        failed += [f"publisher {o.publisher}: {o.error}" for o in self.results if o.error]
        failed += [
            f"publisher {o.publisher}: sent but not read back: {', '.join(o.unconfirmed_sites)}"
            for o in self.results
            if o.unconfirmed_sites
        ]
        failed += [f"publisher {name}: {why}" for name, why in self.rivals.items()]
        return (*failed, *([self.save_error] if self.save_error else []))

    @property
    def is_complete(self) -> bool:
        """Did every catalogue answer, every publisher show what it should, and is the state on disk?"""
        failed = [*self.catalogue_errors.values(), self.save_error]
        return not any(failed) and not any(o.error or o.unconfirmed_sites for o in self.results)


def evaluate(
    state: ReconcileState,
    answers: Mapping[str, Survey | Unseen | Pending],
    demand: Demand,
    *,
    published_generations: Mapping[Site, int],
    policy: ReconcilePolicy,
    now: datetime,
    approved_losses: Mapping[Site, AbstractSet[Did]] | None = None,
    sites_to_renumber: AbstractSet[Site] = frozenset(),
    previous: Evaluation | None = None,
    polls_started_at: Mapping[str, datetime] | None = None,
    withheld_reasons: Mapping[Site, str] | None = None,
) -> Evaluation:
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
        withheld: sites that get no ad yet, each with the reason; see :func:`choose_withheld_sites`.

    Returns:
        The state to remember, and the ads, also of sites that were not seen
        this cycle: those stand as they did, with the age they have, until
        they are older than ``rules.bound``; then they list nothing.
    """
    dids = demand.dids
    memories = {
        name: apply_survey(
            state.memories.get(name, CatalogueMemory()),
            answer,
            dids,
            now=min(now, (polls_started_at or {}).get(name, now)),
        )
        for name, answer in answers.items()
    }
    basis = (
        previous.basis
        if previous and previous.basis and _can_continue(previous.basis, state, answers, policy)
        else None
    )
    changed = frozenset[Did]().union(
        *(DatasetRows.wrap(one.records).changed_since_base for one in memories.values())
    )
    retired = _find_retired_sites(state, memories, policy)
    counted = basis.listed_counts if basis and basis.retired == retired else None
    judged = check_loss(
        state.memories,
        memories,
        dids,
        held_losses=state.held_losses,
        approved_losses=approved_losses or {},
        retired=retired,
        limits=policy.breaker_limits,
        now=now,
        previous_counts=PreviousCounts(counted, changed) if counted else None,
    )
    held = judged.memories
    audit, lies = expire_and_confirm(
        state.audit, held, now=now, window=policy.audit_window, max_age=policy.max_age
    )
    right = apply_corrections(
        held, _corrections_past_breaker(audit, judged.held_losses, policy.breaker_limits)
    )
    changed = changed.union(*(DatasetRows.wrap(one.records).changed_since_base for one in right.values()))
    folded = merge_catalogues(
        right,
        dids,
        now=now,
        max_age=policy.max_age,
        previous=basis.merged_snapshot if basis else None,
        changed_dids=changed if basis else None,
    )
    view = folded.snapshot
    kept = {site: facts for site, facts in view.sites.items() if not policy.is_retired(site)}
    returned = {
        site: redraft(one.ad, audit.trust.get(site, 1.0), now=now, max_age=policy.max_age)
        for site, one in state.rollbacks.items()
        if not policy.is_retired(site)
    }
    made = build_drafts(
        replace(view, sites=kept),
        demand,
        budget=policy.budget,
        trust=audit.trust,
        previous=basis.draft_set if basis else None,
        changed_dids=folded.changed_dids,
    )
    drafted = made.drafts
    left = {s: ad for s, ad in state.ads.items() if s not in drafted and not policy.is_retired(s)}
    standing = {
        site: empty_draft(ad, audit.trust.get(site, 1.0))
        if now - ad.as_of > policy.max_age or site in judged.released
        else redraft(ad, audit.trust.get(site, 1.0), now=now, max_age=policy.max_age)
        for site, ad in left.items()
    }
    apart = withheld_reasons or {}
    whole = {**drafted, **standing, **returned}
    desired = {site: draft for site, draft in whole.items() if site not in apart}
    ads = assign_generations(
        desired,
        state.ads,
        published_generations=published_generations,
        now=now,
        sites_to_renumber=sites_to_renumber,
    )
    after = replace(state, memories=held, held_losses=judged.held_losses, ads=ads, audit=audit)
    left_over = PreviousEvaluation(_versions(held), policy, retired, judged.listed_counts, folded, made)
    return Evaluation(after, view, drafted, ads, lies, judged.released, left_over, apart)


def choose_withheld_sites(
    state: ReconcileState,
    answers: Mapping[str, Survey | Unseen | Pending],
    *,
    published_sites: Collection[Site],
    unanswered_sources: Sequence[str],
    policy: ReconcilePolicy,
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
        for site in published_sites
        if site not in state.ads and site not in state.rollbacks and not policy.is_retired(site)
    ]
    if not lost:
        return {}
    silent = [
        name for name, answer in answers.items() if not _has_complete_memory(state.memories.get(name), answer)
    ]
    unknown = [f"the demand of {name} is not known yet" for name in unanswered_sources]
    unknown += [f"catalogue {name} has not answered for everything yet" for name in silent]
    if not unknown:
        return {}
    more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return dict.fromkeys(sorted(lost), f"{unknown[0]}{more}; what is published stays as it is")


def _has_complete_memory(memory: CatalogueMemory | None, answer: Survey | Unseen | Pending) -> bool:
    """Has the catalogue ever said something of all that it was asked about?"""
    known = memory.records if memory else {}
    if isinstance(answer, Survey):
        return all(isinstance(one, Seen) or did in known for did, one in answer.readings.items())
    return bool(memory and memory.answered_at)


def _versions(memories: Mapping[str, CatalogueMemory]) -> dict[str, object]:
    return {name: DatasetRows.wrap(memory.records).version for name, memory in memories.items()}


def _can_continue(
    basis: PreviousEvaluation, state: ReconcileState, answers: Collection[str], policy: ReconcilePolicy
) -> bool:
    """Is *state* what was left with *basis*, and are the same catalogues asked under the same rules?"""
    same = basis.versions == _versions(state.memories) and basis.versions.keys() == set(answers)
    return same and (basis.policy is policy or basis.policy == policy)


def _corrections_past_breaker(
    audit: Audit, held_losses: Mapping[Site, HeldLoss], limits: BreakerLimits
) -> Audit:
    """*audit* without what only the catalogue itself says, where the breaker would not believe that.

    An emptied catalogue answers the expensive question as it does the cheap
    one, and would let go one dataset a second of what is held; so would one
    whose polls fail. What no poll said again since counts for fewer datasets
    of a site than the breaker lets pass, the first ones.
    """
    doubtful = {(site, did) for site, one in held_losses.items() for did in one.missing_polls}
    most = limits.min_datasets - 1 if limits.confirming_polls else len(audit.corrections)
    alone: Counter[Site] = Counter()
    standing = {}
    for (claim, by), correction in sorted(
        audit.corrections.items(), key=lambda item: (item[1].first_found_at, item[0])
    ):
        if by is not VerificationMethod.PROBE:
            if (claim.site, claim.did) in doubtful:
                continue
            alone[claim.site] += correction.repeated_at is None
            if correction.repeated_at is None and alone[claim.site] > most:
                continue
        standing[claim, by] = correction
    return replace(audit, corrections=standing)


def _find_retired_sites(
    state: ReconcileState, memories: Mapping[str, CatalogueMemory], policy: ReconcilePolicy
) -> frozenset[Site]:
    sites = state.ads.keys() | {site for memory in memories.values() for site in memory.sites}
    return frozenset(site for site in sites if policy.is_retired(site))


def keep_disputed_matches(
    matches: Mapping[str, frozenset[Did]], state: ReconcileState
) -> dict[str, frozenset[Did]]:
    """What was *found* now, and what no longer was though nobody could see yet that it is gone.

    A catalogue that finds nothing has lost its datasets, or its mind. So what
    it found before is asked about once more, and stays wanted while it is
    held, or could not be asked about.
    """
    doubtful = {did for held in state.held_losses.values() for did in held.missing_polls}
    doubtful |= {did for memory in state.memories.values() for did in memory.unseen_reasons}
    before = {name: state.pattern_matches.get(name, frozenset()) & doubtful for name in matches}
    return {
        name: dids | {did for did in before[name] if _is_listed_anywhere(did, state)}
        for name, dids in matches.items()
    }


def _is_listed_anywhere(did: Did, state: ReconcileState) -> bool:
    known = [memory.records[did] for memory in state.memories.values() if did in memory.records]
    return any(one.facts for one in known)


def read_all(catalogues: Sequence[Catalogue], dids: AbstractSet[Did]) -> dict[str, Survey | Unseen]:
    """Ask every catalogue, side by side; one that fails is Unseen."""
    bugs = BugReporter()
    answers = {
        one.name: run_in_thread(f"catalogue {one.name}", lambda one=one: read_catalogue(one, dids, bugs))  # type: ignore[misc]
        for one in catalogues
    }
    return {name: answer.result() for name, answer in answers.items()}


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


class Reconciler:
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
        targets: Sequence[PublishTarget],
        policy: ReconcilePolicy,
        clock: Clock,
        state: ReconcileState,
        store: Store | None,
        take_verdicts: Callable[[], Sequence[Verdict]] = tuple,
        commands: CommandQueue | None = None,
        fence: Fence | None = None,
        timeouts: CycleTimeouts = CycleTimeouts(),
        bugs: BugReporter | None = None,
        on_late_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self._bugs = bugs or BugReporter()
        self._timeouts = timeouts
        self._polls = CataloguePoller(catalogues, clock, self._bugs, on_late_answer)
        self._read_back_workers = ParallelWorkers[Mapping[Site, PublishedAd] | PublishError](
            "publisher", clock
        )
        self._publish_workers = ParallelWorkers[PublishResult]("publisher", clock)
        self._queues = queues
        self._targets = tuple(targets)
        self._policy = policy
        self._clock = clock
        self._store = store
        self._take_verdicts = take_verdicts
        self._commands = commands
        self.state = state
        self.saved_state = state
        """The state that others may continue from: all that follows from it is on disk, orders included."""
        self.fence = fence or Fence()
        self._previous: Evaluation | None = None
        self.should_publish = True
        """False where another daemon does: then all is read, concluded and kept, and nothing is sent."""
        self.schedd_answers: Mapping[str, ScheddDemand | Unseen] = {}
        self.demand_error: str | None = None
        self._answered_schedds: set[str] = set()
        self._has_asked_schedds = False
        self._withheld_since: datetime | None = None
        self._rival_detector = RivalDetector()

    @property
    def demand(self) -> Demand:
        """What is wanted, as of the last time the schedds were asked."""
        return self._demand_of(self.state)

    def _demand_of(self, state: ReconcileState) -> Demand:
        found = frozenset(did for dids in state.pattern_matches.values() for did in dids)
        return build_demand(state.demand, pins=self._policy.pins, matches=found, now=self._clock())

    def refresh_demand(self) -> frozenset[Did]:
        """Ask the schedds; the datasets that were not wanted before."""
        return self.apply_demand(self.query_schedds())

    def query_schedds(self) -> Mapping[str, ScheddDemand | Unseen] | str:
        """Ask the schedds, which may take long and changes nothing here; or say why they cannot be named."""
        try:
            answers = self._queues.read_demand() if self._queues else {}
        except PoolError as error:
            return str(error)
        except BaseException as error:  # noqa: BLE001 - its bug is its failure alone
            return self._bugs.report("the query of schedds", error)
        self._bugs.mark_resolved("the query of schedds")
        return answers

    def apply_demand(self, answers: Mapping[str, ScheddDemand | Unseen] | str) -> frozenset[Did]:
        """Take in what :meth:`ask_schedds` returned; the datasets that were not wanted before.

        When the collector cannot even name the schedds, each keeps its demand.
        """
        now = self._clock()
        before = self.demand.dids
        self.demand_error = answers if isinstance(answers, str) else None
        self._has_asked_schedds = self._has_asked_schedds or not self.demand_error
        self.schedd_answers = (
            {want.schedd: Unseen(answers) for want in self.state.demand.entries}
            if isinstance(answers, str)
            else answers
        )
        self._answered_schedds |= {
            schedd for schedd, answer in self.schedd_answers.items() if isinstance(answer, ScheddDemand)
        }
        memory = remember_demand(
            self.state.demand,
            self.schedd_answers,
            default_scope=self._policy.default_scope,
            keep_for=self._policy.keep_demand,
            now=now,
        )
        self.state = replace(self.state, demand=memory)
        self.saved_state = replace(self.saved_state, demand=memory)
        return self.demand.dids - before

    def run(self, *, is_due: bool = True) -> CycleReport:
        """One whole cycle; the state is on disk before anything is sent.

        Every catalogue is asked that is not being asked already; if no poll is
        *due*, only those are that were not asked yet about all that is wanted.
        A state that cannot be saved (disk full) stops no publishing: ads would
        expire, and generations are Unix times that a restart cannot reset.

        Raises:
            Fenced: a reload has replaced these parts; nothing more was saved or sent.
        """
        self.state = replace(self.state, audit=self._record_verdicts())
        before = self.state
        report, todo, self.state = self._decide(is_due=is_due)
        report = replace(report, history_entries=tuple(history_entries(before, report)))
        with self.fence.step():
            unsaved = self._save_cycle(before, report)
        if not self.should_publish:
            self._rival_detector = RivalDetector()  # the one that leads is none
        outcomes = self._apply_plans(todo) if self.should_publish else ()
        for one in outcomes:
            self._rival_detector.note_read_back(one.publisher, one.published)
        report = replace(report, results=outcomes)
        with self.fence.step():
            unsaved = unsaved or self._try_save(lambda store: _save_results(store, report))
        return replace(report, save_error=unsaved)

    def _save_cycle(self, previous: ReconcileState, report: CycleReport) -> str | None:
        """Save the state, take followed orders away, keep what was decided; return why that failed."""
        unsaved = self._try_save(lambda store: store.save(self.state)) or self._discard_commands(
            report.commands
        )
        self.saved_state = self.state
        return unsaved or self._try_save(
            lambda store: store.add_history(report.history_entries, previous.ads, report.started_at)
        )

    def _try_save(self, write: Callable[[Store], None]) -> str | None:
        try:
            if self._store:
                write(self._store)
        except StateError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - ads expire while a state is not written
            return self._bugs.report("the state", error)
        return None

    def _record_verdicts(self) -> Audit:
        try:
            return record_verdicts(self.state.audit, self._take_verdicts())
        except Exception as error:  # noqa: BLE001 - its bug is its failure alone
            self._bugs.report("the audit", error)
        return self.state.audit

    def _discard_commands(self, commands: PendingCommands) -> str | None:
        """Take followed orders away, once what follows from them is on disk."""
        try:
            if self._commands:
                self._commands.remove_processed(commands)
        except StateError as error:
            return str(error)
        return None

    def plan(self) -> CycleReport:
        """The same, up to what would be sent: nothing is saved and nothing is sent."""
        return self._decide()[0]

    def _read_commands(self) -> PendingCommands:
        try:
            return self._commands.read_pending() if self._commands else PendingCommands()
        except Exception as error:  # noqa: BLE001 - its bug is its failure alone
            return PendingCommands(problem=self._bugs.report("the reading of orders", error))

    def _poll_catalogues(self, state: ReconcileState, *, is_due: bool) -> "_PollAnswers":
        """Ask the catalogues, and take what answers there are; each is used once."""
        overdue = self._polls.mark_due() if is_due else frozenset()
        patterns = self._policy.patterns if is_due else ()
        names = self._polls.names if self._policy.patterns else ()
        found = {name: state.pattern_matches.get(name, frozenset()) for name in names}

        def wanted(fresh: Mapping[str, frozenset[Did]]) -> frozenset[Did]:
            found.update((name, fresh[name]) for name in names if name in fresh)
            return self._demand_of(self._add_matches(state, found)).dids

        first = self._demand_of(self._add_matches(state, found)).dids
        names_due = self._polls.names if is_due else self._polls.names_to_ask(first)
        taken = self._polls.poll(names_due, patterns, wanted, self._timeouts.poll)
        return _PollAnswers(found, taken, self._polls.running_since, overdue - taken.keys())

    @staticmethod
    def _add_matches(state: ReconcileState, matches: Mapping[str, frozenset[Did]]) -> ReconcileState:
        asked = {name: dids | state.pattern_matches.get(name, frozenset()) for name, dids in matches.items()}
        return replace(state, pattern_matches=asked)

    def _decide(
        self, *, is_due: bool = True
    ) -> tuple[CycleReport, dict[str, Plan | PublishError], ReconcileState]:
        now = self._clock()
        orders = self._read_commands()
        state = replace(self.state, rollbacks=orders.apply_to_rollbacks(self.state.rollbacks, now))
        asked = self._poll_catalogues(state, is_due=is_due)
        state = self._add_matches(state, asked.matches)
        wanted = self._demand_of(state)
        answers = {name: asked.answer(name, wanted.dids) for name in self._polls.names}
        there = self._read_back()
        rejected = _rejected_ads([outlet.publisher for outlet in self._targets])
        generations = _highest_generations(there.values())
        thought = evaluate(
            state,
            answers,
            wanted,
            published_generations=generations,
            policy=self._policy,
            now=now,
            approved_losses=orders.approvals,
            sites_to_renumber=orders.sites_to_renumber,
            previous=self._previous,
            withheld_reasons=self._sites_to_withhold(state, answers, generations, now),
            polls_started_at={name: polled.started_at for name, polled in asked.results.items()},
        )
        self._previous = thought
        todo: dict[str, Plan | PublishError] = {}
        for outlet in self._targets:
            published = there[outlet.name]
            todo[outlet.name] = (
                published
                if isinstance(published, PublishError)
                else self._plan_target(outlet, published, thought, now)
            )
        outcomes = tuple(
            PublishResult(name, error=part.reason)
            if isinstance(part, PublishError)
            else PublishResult(name, part)
            for name, part in todo.items()
        )
        needed = self._policy.breaker_limits.confirming_polls
        held = {site: one.text(needed) for site, one in thought.state.held_losses.items()}
        held |= {site: one.text for site, one in thought.state.rollbacks.items()}
        held |= thought.withheld_reasons
        report = CycleReport(
            now,
            wanted,
            thought,
            outcomes,
            {name: memory.failure for name, memory in thought.state.memories.items()},
            commands=orders,
            held_reasons=held,
            poll_durations=asked.durations(now),
            pending_since=asked.pending_since,
            rejected=rejected,
            implausible_generations=implausible_generations(thought.ads, now),
            rivals=self._find_rivals(there, thought.ads, now),
        )
        return (
            report,
            todo,
            replace(thought.state, pattern_matches=keep_disputed_matches(asked.matches, thought.state)),
        )

    def _find_rivals(
        self,
        shown_ads: Mapping[str, Mapping[Site, PublishedAd] | PublishError],
        ads: Mapping[Site, SiteAd],
        now: datetime,
    ) -> dict[str, str]:
        """Return by publisher why another daemon writes there."""
        seen = {
            name: self._rival_detector.detect(name, shown, ads.keys(), now)
            for name, shown in shown_ads.items()
            if not isinstance(shown, PublishError)
        }
        return {name: why for name, why in seen.items() if why}

    def _sites_to_withhold(
        self,
        state: ReconcileState,
        answers: Mapping[str, Survey | Unseen | Pending],
        published_sites: Collection[Site],
        now: datetime,
    ) -> dict[Site, str]:
        """Return the sites to withhold, for a bounded time from the first one on."""
        wanting = {want.schedd for want in state.demand.entries}
        unheard = sorted(
            f"schedd {schedd}"
            for schedd, answer in self.schedd_answers.items()
            if isinstance(answer, Unseen) and schedd not in self._answered_schedds | wanting
        )
        if self._queues and not self._has_asked_schedds and not self._answered_schedds | wanting:
            unheard = ["all schedds"]
        found = choose_withheld_sites(
            state, answers, published_sites=published_sites, unanswered_sources=unheard, policy=self._policy
        )
        if not found:
            self._withheld_since = None
            return {}
        self._withheld_since = self._withheld_since or now
        return found if abs(now - self._withheld_since) < self._policy.max_withhold else {}

    def _read_back(self) -> dict[str, Mapping[Site, PublishedAd] | PublishError]:
        """Return what each publisher shows; one that takes too long could not be asked."""
        busy = {outlet.name: self._publish_workers.find_unfinished(outlet.name) for outlet in self._targets}
        asked = {
            outlet.name: lambda outlet=outlet: _read_published(outlet.publisher, self._bugs)
            for outlet in self._targets
            if not busy[outlet.name]
        }
        shown = {**busy, **self._read_back_workers.run(asked, self._timeouts.read_back)}
        return {
            name: PublishError(name, part.reason) if isinstance(part, UnfinishedWork) else part
            for name, part in shown.items()
            if part is not None
        }

    def _plan_target(
        self,
        target: PublishTarget,
        published: Mapping[Site, PublishedAd],
        evaluation: Evaluation,
        now: datetime,
    ) -> Plan | PublishError:
        try:
            retired = frozenset(site for site in published if self._policy.is_retired(site))
            return plan(
                published,
                evaluation.ads,
                retired=retired,
                now=now,
                policy=target.policy,
                withheld_reasons=evaluation.withheld_reasons,
            )
        except Exception as error:  # noqa: BLE001 - what it shows is of no use, and its failure alone
            return PublishError(target.name, self._bugs.report(_part_name(target.publisher), error))

    def _apply_plans(self, plans: Mapping[str, Plan | PublishError]) -> tuple[PublishResult, ...]:
        work = {
            outlet.name: lambda outlet=outlet, part=part: apply_plan(
                part, outlet.publisher, self.fence, self._bugs
            )
            for outlet in self._targets
            if not isinstance(part := plans[outlet.name], PublishError)
        }
        for name, part in plans.items():
            if not isinstance(part, PublishError):
                self._rival_detector.note_sent(
                    name, [ad for action in part if (ad := ad_to_send(action)) is not None]
                )
        sent = self._publish_workers.run(work, self._timeouts.publish)
        return tuple(
            _publish_result(outlet.name, plans[outlet.name], sent.get(outlet.name))
            for outlet in self._targets
        )


@dataclass(frozen=True, slots=True)
class _PollAnswers:
    """What patterns *found*, the answers *taken*, and the catalogues that are *pending* since when.

    *overdue* are those that were due again, and again, while they were still being asked.
    """

    matches: Mapping[str, frozenset[Did]]
    results: Mapping[str, PollResult]
    pending_since: Mapping[str, datetime]
    overdue_names: AbstractSet[str]

    def answer(self, name: str, demanded_dids: AbstractSet[Did]) -> Survey | Unseen | Pending:
        if name in self.results:
            return self.results[name].answer_for(demanded_dids)
        if name in self.overdue_names:
            return Unseen(f"still being asked since {self.pending_since[name]:%Y-%m-%d %H:%M:%S} UTC")
        return Pending()

    def durations(self, now: datetime) -> dict[str, timedelta]:
        """Return how long each catalogue was asked that answered, failed, or is overdue."""
        hung = {name: max(now - self.pending_since[name], timedelta()) for name in self.overdue_names}
        return {name: polled.duration for name, polled in self.results.items()} | hung


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


def history_entries(previous: ReconcileState, report: CycleReport) -> list[HistoryEntry]:
    """An entry for every ad that got a new generation in this cycle."""
    thought = report.evaluation
    clashing = frozenset(did for clash in thought.snapshot.case_collisions for did in clash)
    found = []
    for site, ad in sorted(thought.ads.items()):
        old = previous.ads.get(site)
        if old and old.generation == ad.generation:
            continue
        facts = thought.snapshot.sites.get(site)
        grounds = ChangeContext(
            demanded_dids=report.demand.dids,
            colliding_dids=clashing,
            facts=facts.facts if facts else {},
            released=thought.released.get(site, {}),
            rollback=_rollback_change(site, previous, thought.state),
        )
        found.append(build_entry(old, ad, grounds, now=report.started_at))
    return found


def _rollback_change(site: Site, previous: ReconcileState, current: ReconcileState) -> str | None:
    if rollback := current.rollbacks.get(site):
        return f"rolled back to generation {rollback.ad.generation}"
    return "the rollback ended" if site in previous.rollbacks else None


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


def _save_results(store: Store, report: CycleReport) -> None:
    for outcome in report.results:
        if outcome.error is None:
            store.save_readback(outcome.publisher, outcome.published)
            store.mark_published(outcome.publisher, outcome.published, report.started_at)
    store.save_report("cycle", summary(report))


def summary(report: CycleReport) -> dict[str, Any]:
    """One cycle in values that JSON knows, for ``hydrator status``."""
    return {
        "at": to_unix(report.started_at),
        "whole": report.is_complete,
        "catalogues": dict(report.catalogue_errors),
        "publishers": {
            o.publisher: {
                "error": o.error,
                "not_read_back": list(o.unconfirmed_sites),
                "ads": len(o.published),
            }
            for o in report.results
        },
        "left_out": {
            site: [
                {"datasets": len(w.dids), "first": w.dids[0], "jobs": w.job_count}
                for w in draft.omitted_entries
            ]
            for site, draft in report.evaluation.drafts.items()
            if draft.omitted_entries
        },
        "clashes": [list(clash) for clash in report.evaluation.snapshot.case_collisions],
        "misspelt": {did: list(held) for did, held in report.evaluation.snapshot.misspelt_dids.items()},
        "unseen": dict(report.evaluation.snapshot.unseen_reasons),
        "refused": dict(report.demand.rejected_texts),
        "held": report.held_reasons,
        "rejected": {name: dict(ads) for name, ads in report.rejected.items()},
        "implausible_generations": dict(report.implausible_generations),
        "rivals": dict(report.rivals),
    }
