"""Reconciler: run the steps of a cycle in order: poll, evaluate, save, publish, read back.

:func:`hydrator.reconcile.evaluate.evaluate` is pure and makes all decisions. The reconciler does the rest:
it queries schedds and catalogues before, and sends ads to publishers after. If a query or a publisher fails
or hangs, the others go on.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hydrator.config import Settings
from hydrator.domain.ads.openings import OPENINGS_REPORT
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import ClockStepped
from hydrator.domain.model import (
    Demand,
    Did,
    Site,
    Survey,
    Unseen,
)
from hydrator.domain.ports import Catalogue, Clock, PoolReader
from hydrator.domain.text import hide_names, matches_any
from hydrator.reconcile.evaluate import (
    Answer,
    Answers,
    Evaluation,
    evaluate,
    keep_disputed_matches,
)
from hydrator.reconcile.pacer import Pacer
from hydrator.reconcile.poll import (
    CataloguePoller,
    DemandPoller,
    PollResult,
    PoolAnswer,
    read_catalogue,
)
from hydrator.reconcile.publish import (
    PlanOrError,
    PublishedAds,
    PublishTarget,
    PublishTargets,
    Withholding,
    highest_generations,
    publish_result,
)
from hydrator.reconcile.result import CycleReport, history_entries
from hydrator.reconcile.snapshot.merge import find_read_times
from hydrator.reconcile.state import (
    Approve,
    CommandSource,
    PendingCommands,
    ReconcileState,
    StateSaver,
    StateStore,
    approved_losses,
)
from hydrator.reconcile.threads import THREADS, Threads
from hydrator.reconcile.view import CYCLE_REPORT, CycleView, build_view

from .demand import build_demand, update_demand_memory


@dataclass(frozen=True, slots=True)
class CycleTimeouts:
    """The maximum times that a cycle waits; None means without a limit.

    ``poll`` is for the answers of catalogues, ``publish`` for sending ads to each publisher, and
    ``read_back`` for reading the ads of each publisher.
    """

    poll: timedelta | None = None
    read_back: timedelta | None = None
    publish: timedelta | None = None


def read_all(catalogues: Sequence[Catalogue], dids: AbstractSet[Did]) -> dict[str, Survey | Unseen]:
    """Query all catalogues about *dids* in parallel. The answer of a catalogue that fails is Unseen."""
    bugs = BugReporter()
    answers = {
        one.name: THREADS.start(f"catalogue {one.name}", lambda one=one: read_catalogue(one, dids, bugs))  # type: ignore[misc]
        for one in catalogues
    }
    return {name: answer.result() for name, answer in answers.items()}


class Reconciler:
    """A runner of cycles over one set of catalogues, schedds and publishers, with the state between cycles.

    Only the query of ``schedds`` is thread-safe: the daemon runs one cycle at a time.

    Args:
        view: the saved document of the last cycle before the start, if any.
        timeouts: the maximum times that a cycle waits for catalogues and publishers.
        bugs: counts and logs exceptions that no adapter should raise.
        on_late_answer: called from any thread when a catalogue answers after the cycle stopped waiting
            for it. The next cycle uses this answer.
        pacer: opens sets of datasets for reads from elsewhere.
        threads: run the work of the catalogues and publishers.
    """

    def __init__(
        self,
        *,
        catalogues: Sequence[Catalogue],
        queues: PoolReader | None,
        targets: Sequence[PublishTarget],
        settings: Settings,
        clock: Clock,
        state: ReconcileState,
        store: StateStore | None,
        view: CycleView | None = None,
        commands: CommandSource[Approve] | None = None,
        timeouts: CycleTimeouts = CycleTimeouts(),
        bugs: BugReporter | None = None,
        on_late_answer: Callable[[], None] = lambda: None,
        pacer: Pacer | None = None,
        threads: Threads = THREADS,
    ) -> None:
        self._bugs = bugs or BugReporter()
        self._pacer = pacer or Pacer(settings)
        self._timeouts = timeouts
        self._polls = CataloguePoller(catalogues, clock, self._bugs, on_late_answer, threads)
        self.schedds = DemandPoller(queues, self._bugs)
        self._targets = PublishTargets(targets, clock, self._bugs, threads)
        self._settings = settings
        self._clock = clock
        self._saver = StateSaver(store, commands, self._bugs)
        self.state = _match_patterns(state, settings.demand.patterns)
        self._withholding = Withholding(settings)
        self._view = view

    @property
    def view(self) -> CycleView:
        """Return the document of the last cycle that :meth:`run` or :meth:`plan` ran."""
        if self._view is None:
            raise RuntimeError("no cycle has run yet")
        return self._view

    @property
    def demand(self) -> Demand:
        """Return the demand after the last query of the schedds."""
        return self._demand_of(self.state)

    def _demand_of(self, state: ReconcileState) -> Demand:
        return build_demand(
            state.demand,
            pins=self._settings.pinned_dids,
            matches=frozenset[Did]().union(*state.pattern_matches.values()),
            now=self._clock(),
            never=self._settings.publish.never,
            default_scope=self._settings.daemon.default_scope,
        )

    def refresh_demand(self) -> frozenset[Did]:
        """Query the schedds, wait for each, and update the demand; return the newly demanded datasets."""
        return self.apply_demand(self.schedds.query(waits=True))

    def apply_demand(self, answer: PoolAnswer | None) -> frozenset[Did]:
        """Update the demand, and the jobs and slots, with *answer*; return the newly demanded datasets.

        If the collector could not list the schedds, keep the demand of every schedd.
        """
        now = self._clock()
        dids_before = self.demand.dids
        self.schedds.record(answer, self.state.demand)
        if answer is not None:
            self._pacer.update_load(answer if isinstance(answer, Unseen) else answer.load)
        memory = update_demand_memory(
            self.state.demand,
            self.schedds.answers,
            default_scope=self._settings.daemon.default_scope,
            now=now,
        )
        self.state = replace(self.state, demand=memory)
        return self.demand.dids - dids_before

    def run(
        self,
        answers: "PollAnswers | None" = None,
        *,
        is_only: bool = False,
        is_clock_stepping: Callable[[], bool] = lambda: False,
    ) -> CycleReport:
        """Run one cycle with all its steps. Save the state before sending ads.

        The *answers* of the catalogues are by default those of a poll that is due. The *only* cycle of a
        process also looks for another daemon in the ads that were published before.
        If the state cannot be saved (disk full), publish the ads all the same, because published ads
        expire. This is safe: generations are Unix times, so they rise even after a restart without state.

        Raises:
            ClockStepped: *is_clock_stepping* after the decisions: a fresh answer may look an hour old.
        """
        previous = self.state
        report, plans, state = self._decide(answers or self.poll(), is_only=is_only)
        if is_clock_stepping():
            raise ClockStepped
        self.state = state
        report = replace(report, history_entries=tuple(history_entries(previous, report)))
        save_error = self._save_cycle(report)
        results = self._targets.apply(plans, self._timeouts.publish)
        report = replace(report, results=results, save_error=save_error)
        view = self._view = self._build_view(report)
        reports = {CYCLE_REPORT: view, OPENINGS_REPORT: report.evaluation.paced}
        error = self._saver.write(lambda store: store.save_reports(reports))
        if error and not save_error:
            report = replace(report, save_error=error)
            self._view = replace(view, complete=False, save_error=error, failures=report.failures)
        return report

    def _build_view(self, report: CycleReport) -> CycleView:
        polls = self._settings.removal_guard.confirm_polls
        return build_view(report, self._view, confirming_polls=polls)

    def plan(self, *, is_only: bool = False) -> CycleReport:
        """Run a cycle like :meth:`run`, but save nothing and send nothing."""
        report = self._decide(self.poll(), is_only=is_only)[0]
        self._view = self._build_view(report)
        return report

    def _save_cycle(self, report: CycleReport) -> str | None:
        """Save the state and the history, then remove executed commands; return the first error, or None."""
        return self._saver.write(
            lambda store: store.save(self.state, report.history_entries)
        ) or self._saver.remove_commands(report.commands)

    def poll(self, *, is_due: bool = True) -> "PollAnswers":
        """Poll every catalogue without a running poll; return the answers that have arrived, each once.

        If no poll *is_due*, poll only the catalogues that were not queried yet about all demanded datasets.
        """
        state, now = self.state, self._clock()
        has_news = bool(self._polls.running_since) or self._pacer.has_new_load
        overdue_names = self._polls.mark_due() if is_due else frozenset()
        patterns = self._settings.demand.patterns if is_due else ()
        searched_names = self._polls.names if self._settings.demand.patterns else ()
        matches = {
            name: state.pattern_matches[name] for name in searched_names if name in state.pattern_matches
        }

        def choose_dids(new_matches: Mapping[str, frozenset[Did]]) -> frozenset[Did]:
            matches.update((name, new_matches[name]) for name in searched_names if name in new_matches)
            return self._demand_of(_add_matches(state, matches)).dids

        names = self._polls.names if is_due else self._polls.names_to_ask(choose_dids({}))
        results = self._polls.poll(names, patterns, choose_dids, self._timeouts.poll)
        return PollAnswers(
            now,
            matches,
            results,
            self._polls.running_since,
            overdue_names - results.keys(),
            has_news or bool(results),
        )

    def _decide(
        self, polls: "PollAnswers", *, is_only: bool
    ) -> tuple[CycleReport, dict[str, PlanOrError], ReconcileState]:
        """Read back, evaluate and plan; return the report, the plans and the state to save."""
        now = polls.started_at
        commands = self._saver.read_commands()
        state = _add_matches(self.state, polls.matches)
        demand = self._demand_of(state)
        published = self._targets.read_back(self._timeouts.read_back)
        rejected = self._targets.rejected_ads()
        evaluation = self._evaluate(state, demand, polls, commands, published, now)
        plans = self._targets.plan(
            published,
            evaluation.ads,
            lambda site: self._settings.sites.is_retired(site) or site in evaluation.gone_sites,
            now,
            evaluation.withheld_reasons,
        )
        report = CycleReport(
            now,
            demand,
            evaluation,
            tuple(publish_result(name, actions) for name, actions in plans.items()),
            {
                name: (why := memory.failure or self._polls.search_failures.get(name))
                and hide_names(why, self._settings.publish.never)
                for name, memory in evaluation.state.memories.items()
            },
            commands=commands,
            held_reasons=_held_reasons(evaluation, self._settings.removal_guard.confirm_polls),
            poll_durations=polls.durations(now),
            pending_since=polls.pending_since,
            rejected=rejected,
            rivals=self._targets.find_rivals(
                published, evaluation.ads.keys(), now, state.ads if is_only else None
            ),
            load=self._pacer.last_load,
        )
        matches = keep_disputed_matches(polls.matches, evaluation.state)
        return report, plans, replace(evaluation.state, pattern_matches=matches)

    def _evaluate(
        self,
        state: ReconcileState,
        demand: Demand,
        polls: "PollAnswers",
        commands: PendingCommands[Approve],
        published: Mapping[str, PublishedAds],
        now: datetime,
    ) -> Evaluation:
        answers = {name: polls.answer(name, demand.dids) for name in self._polls.names}
        generations = highest_generations(published.values())
        sources, searched = self.schedds.unanswered_sources(), self._polls.searched_names
        shown = generations
        if any(isinstance(ads, Unseen) for ads in published.values()):
            # any of them may have an ad that could not be read
            shown = dict.fromkeys(_named_sites(state, answers) | self._pacer.sites, 0) | generations
        return evaluate(
            state,
            answers,
            demand,
            published_generations=generations,
            settings=self._settings,
            now=now,
            approved_losses=approved_losses(commands),
            withheld_reasons=self._withholding.choose_sites(
                state, answers, shown, sources, searched, demand.dids, now
            ),
            make_openings=lambda snapshot: self._pacer.make(snapshot, demand, now),
        )


@dataclass(frozen=True, slots=True)
class PollAnswers:
    """Pattern matches and results of the polls of the cycle that began at ``started_at``.

    ``pending_since`` has the catalogues whose poll is still running, with the start of the poll.
    ``overdue_names`` are the catalogues whose poll has run so long that two later polls were due.
    ``has_news`` is False if all polls began now and none has answered, and the jobs and slots are those of
    the last cycle.
    """

    started_at: datetime
    matches: Mapping[str, frozenset[Did]]
    results: Mapping[str, PollResult]
    pending_since: Mapping[str, datetime]
    overdue_names: AbstractSet[str]
    has_news: bool

    def answer(self, name: str, demanded_dids: AbstractSet[Did]) -> Answer:
        if name in self.results:
            return self.results[name].answer_for(demanded_dids)
        if name in self.overdue_names:
            return Unseen(f"no answer yet to the query of {self.pending_since[name]:%Y-%m-%d %H:%M:%S} UTC")
        return None

    def durations(self, now: datetime) -> dict[str, timedelta]:
        """Return the duration of the poll of each catalogue that answered, failed, or is overdue."""
        overdue = {name: max(now - self.pending_since[name], timedelta()) for name in self.overdue_names}
        return {name: result.duration for name, result in self.results.items()} | overdue


def _match_patterns(state: ReconcileState, patterns: tuple[str, ...]) -> ReconcileState:
    """Return *state* with the known datasets that match *patterns*, until each catalogue has been searched.

    An earlier configuration may have had other patterns, or have named these datasets otherwise.
    """
    memories = state.memories if patterns else {}
    known = {name: frozenset(memory.records) for name, memory in memories.items()}
    matches = {
        name: frozenset(did for did in dids | known.get(name, frozenset()) if matches_any(did, patterns))
        for name, dids in {**dict.fromkeys(known, frozenset[Did]()), **state.pattern_matches}.items()
    }
    return replace(state, pattern_matches=matches)


def _add_matches(state: ReconcileState, matches: Mapping[str, frozenset[Did]]) -> ReconcileState:
    all_matches = {
        name: dids | state.pattern_matches.get(name, frozenset()) for name, dids in matches.items()
    }
    return replace(state, pattern_matches=all_matches)


def _named_sites(state: ReconcileState, answers: Answers) -> set[Site]:
    """Return the sites that a catalogue names now, named in its last answer, or has facts of."""
    answered = [answer.sites for answer in answers.values() if isinstance(answer, Survey)]
    return set(find_read_times(state.memories)).union(*answered)


def _held_reasons(evaluation: Evaluation, confirming_polls: int) -> dict[Site, str]:
    """Return, by site, the reason why the ad does not change: removal guard or lost state."""
    reasons = {site: held.text(confirming_polls) for site, held in evaluation.state.held_losses.items()}
    return {**reasons, **evaluation.withheld_reasons}
