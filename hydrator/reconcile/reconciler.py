"""Poll, snapshot, ads, plan, apply: the one place where the order is written.

``think`` is pure and does all the deciding; around it stand the questions to
schedds and catalogues and the sending to publishers, each of which may fail,
or hang, without harm to the others.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import PoolError, PublishError, StateError
from hydrator.domain.model import (
    Demand,
    Did,
    Pending,
    Plan,
    PublishedAd,
    ScheddDemand,
    Site,
    SiteAd,
    Survey,
    Unseen,
)
from hydrator.domain.ports import Catalogue, Clock, Queues
from hydrator.reconcile.ads.site_ads import (
    implausible_generations,
)
from hydrator.reconcile.audit.ledger import (
    Audit,
    Verdict,
    record_verdicts,
)
from hydrator.reconcile.evaluate import (
    Evaluation,
    ReconcilePolicy,
    choose_withheld_sites,
    evaluate,
    keep_disputed_matches,
)
from hydrator.reconcile.overrides import PendingCommands
from hydrator.reconcile.poll.polls import CataloguePoller, PollResult, read_catalogue
from hydrator.reconcile.poll.threads import ParallelWorkers, UnfinishedWork, run_in_thread
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.publish.plan import plan
from hydrator.reconcile.publish.rivals import RivalDetector
from hydrator.reconcile.publish.targets import (
    PublishTarget,
    _highest_generations,
    _part_name,
    _publish_result,
    _read_published,
    _rejected_ads,
    ad_to_send,
    apply_plan,
)
from hydrator.reconcile.result import CycleReport, PublishResult, history_entries, summary
from hydrator.reconcile.state import ReconcileState
from hydrator.state.command_files import CommandQueue
from hydrator.state.store import Store

from .demand import build_demand
from .demand import update_demand_memory as remember_demand


@dataclass(frozen=True, slots=True)
class CycleTimeouts:
    """How long a cycle waits for its parts; None: until they are done.

    ``polls``: for the answers of catalogues. ``shown``: for what each publisher
    shows. ``sent``: for what is sent to each publisher.
    """

    poll: timedelta | None = None
    read_back: timedelta | None = None
    publish: timedelta | None = None


def read_all(catalogues: Sequence[Catalogue], dids: AbstractSet[Did]) -> dict[str, Survey | Unseen]:
    """Ask every catalogue, side by side; one that fails is Unseen."""
    bugs = BugReporter()
    answers = {
        one.name: run_in_thread(f"catalogue {one.name}", lambda one=one: read_catalogue(one, dids, bugs))  # type: ignore[misc]
        for one in catalogues
    }
    return {name: answer.result() for name, answer in answers.items()}


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


def _save_results(store: Store, report: CycleReport) -> None:
    for outcome in report.results:
        if outcome.error is None:
            store.save_readback(outcome.publisher, outcome.published)
            store.mark_published(outcome.publisher, outcome.published, report.started_at)
    store.save_report("cycle", summary(report))
