"""Controller of staging: one step reads the catalogues and queues, plans, and makes the planned calls.

The daemon runs a step at an interval, beside the reconciler. With the mode off no
catalogue is ever called.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import CatalogueError, PoolError, StateError
from hydrator.domain.model import DatasetState, Did, Site, Unseen
from hydrator.domain.network import RateLookup
from hydrator.domain.ports import Clock, DataNeed, DataNeeds
from hydrator.domain.staging_ports import Stager, StagingPermissions
from hydrator.reconcile.result import CycleReport

from .commands import StagingControl, apply_commands
from .executor import StagingExecutor
from .ledger import Ledger, forget_old
from .needs import DataUse, LiveNeed, LiveNeeds, apply_needs, apply_uses, update_needs
from .overview import STATE_PROBLEM, StagingOverview, build_overview
from .pin_plan import PinPlan, PinPlanner, PinSchedule
from .policy import StagingMode, StagingPolicy
from .stage_plan import (
    Candidate,
    CandidateList,
    CatalogueFacts,
    ExpectedSeconds,
    StagePlan,
    StagePlanner,
    find_candidates,
)
from .upkeep import Cancellation, Renewal, apply_progress, plan_upkeep
from .view import DataView, build_view

FACTS_AGE = timedelta(minutes=5)
"""Age up to which rules, sizes and space serve for plans; before a request they are always read again."""
KEEP_FAILURES = timedelta(days=7)


@dataclass(frozen=True)
class _Situation:
    """The inputs of the plans of one step."""

    view: DataView
    needs: LiveNeeds
    candidates: CandidateList
    pin_needs: tuple[LiveNeed, ...]
    now: datetime

    def stage_dids(self) -> frozenset[Did]:
        return frozenset(did for one in self.candidates.candidates for did in one.dids)

    def pin_dids(self) -> frozenset[Did]:
        return frozenset(did for need in self.pin_needs for did in need.dids)


@dataclass
class _Plans:
    stages: StagePlan = field(default_factory=StagePlan)
    pins: PinPlan = field(default_factory=PinPlan)

    @property
    def has_batches(self) -> bool:
        return bool(self.stages.batches or self.pins.batches)


class StagingController:
    """A controller with the ledger in memory and on disk.

    Args:
        stagers: the catalogues by name, in the order of the configuration.
        needs: the queues.
        executor: makes the calls; it also keeps the ledger.
        load_ledger: reads the ledger from disk; may raise StateError.
        control: the operator's switch and commands.
        is_retired: whether the operator retired a site.
        rates: returns the present rates between sites.
    """

    def __init__(
        self,
        stagers: Mapping[str, Stager],
        needs: DataNeeds,
        executor: StagingExecutor,
        load_ledger: Callable[[], Ledger],
        control: StagingControl,
        policy: StagingPolicy,
        clock: Clock,
        *,
        is_retired: Callable[[Site], bool] = lambda _site: False,
        rates: Callable[[], RateLookup | None] = lambda: None,
        bugs: BugReporter | None = None,
    ) -> None:
        self._stagers = {
            name: one for name, one in stagers.items() if policy.mode_of_catalogue(name) > StagingMode.OFF
        }
        self._queues = needs
        self._executor = executor
        self._load_ledger = load_ledger
        self._control = control
        self._policy = policy
        self._clock = clock
        self._is_retired = is_retired
        self._rates = rates
        self._bugs = bugs or BugReporter()
        self._is_loaded = False
        self._needs = LiveNeeds()
        self._facts: dict[str, tuple[datetime, frozenset[Did], CatalogueFacts]] = {}
        self._permissions: dict[str, StagingPermissions] = {}
        self._pin_schedule = PinSchedule()
        self._pins = PinPlan()

    def run_once(self, report: CycleReport | None, uses: Iterable[DataUse] = ()) -> StagingOverview:
        """Run one step with the facts of the last cycle's *report*; return what is to be shown.

        *uses* are the runs of jobs that ended since the last step. With the mode off, no catalogue is
        called. If the ledger cannot be read or written, no call is made.
        """
        now = self._clock()
        if not self._stagers:
            return self._show(now)
        try:
            return self._run(report, now, uses)
        except StateError as error:
            return self._show(now, {STATE_PROBLEM: str(error)})

    def _show(self, now: datetime, problems: Mapping[str, str] | None = None) -> StagingOverview:
        return build_overview(self._executor.ledger, self._policy, now, problems=problems)

    def _run(self, report: CycleReport | None, now: datetime, uses: Iterable[DataUse]) -> StagingOverview:
        if not self._is_loaded:
            # a new configuration may have cured what a catalogue refused: ask once more
            self._executor.ledger = replace(self._load_ledger(), halts={})
            self._is_loaded = True
        problems: dict[str, str] = {}
        pending = self._control.read_pending()
        if pending.problems:
            problems["commands"] = "; ".join(pending.problems)
        commands = [command for _, command in pending.commands]
        ledger, by_operator = apply_commands(self._executor.ledger, commands, now, self._policy)
        ledger, seen_names = self._read_progress(ledger, now, problems)
        self._read_needs(now, problems)
        ledger = apply_needs(
            forget_old(ledger, now, KEEP_FAILURES), self._needs, now, self._policy.times.references
        )
        self._executor.save(apply_uses(ledger, uses))
        self._control.remove_processed(pending)
        plans, situation = _Plans(), None
        if report:
            situation = self._assess(report, now)
            plans = self._plan(situation, seen_names, problems)
        self._record_joined(plans.stages)
        stop_reason = self._control.stop_reason
        if stop_reason is None:
            self._execute(plans, [*by_operator, *self._plan_upkeep(seen_names)])
        return build_overview(
            self._executor.ledger,
            self._policy,
            now,
            stages=plans.stages,
            pins=self._pins,
            not_asked=situation.candidates.not_asked if situation else (),
            problems=problems,
            stop_reason=stop_reason,
        )

    def _read_progress(
        self, ledger: Ledger, now: datetime, problems: dict[str, str]
    ) -> tuple[Ledger, list[str]]:
        """Compare *ledger* with each catalogue; return it, and the catalogues that answered."""
        names = []
        for name, stager in self._stagers.items():
            tags = frozenset(tag for tag, one in ledger.entries.items() if one.catalogue == name)
            try:
                progress = stager.look(tags, self._policy.prefix)
            except CatalogueError as error:
                problems[f"catalogue {name}"] = error.reason
            except Exception as error:  # noqa: BLE001 - a bug of one adapter
                problems[f"catalogue {name}"] = self._bugs.report(f"staging at {name}", error)
            else:
                ledger = apply_progress(ledger, name, progress, now, self._policy)
                names.append(name)
        return ledger, names

    def _read_needs(self, now: datetime, problems: dict[str, str]) -> None:
        answers: Mapping[str, Sequence[DataNeed] | Unseen] | str
        try:
            answers = self._queues.read_needs()
        except PoolError as error:
            answers = error.reason
        except Exception as error:  # noqa: BLE001 - a bug of the adapter
            answers = self._bugs.report("the query of needs", error)
        times, scope = self._policy.times, self._policy.default_scope
        self._needs = update_needs(self._needs, answers, now, times.references, scope)
        if isinstance(answers, str):
            problems["queues"] = answers
        problems.update({f"schedd {name}": reason for name, reason in self._needs.unseen.items()})

    def _assess(self, report: CycleReport, now: datetime) -> _Situation:
        dids = self._needs.by_did.keys()
        view = build_view(report, dids, self._is_retired, now, self._policy.times.fact_age)
        candidates = find_candidates(view, self._needs, self._policy, now)
        pin_needs = self._pin_schedule.choose(self._needs, view, self._executor.ledger, now)
        return _Situation(view, self._needs, candidates, pin_needs, now)

    def _plan(self, situation: _Situation, names: Sequence[str], problems: dict[str, str]) -> _Plans:
        """Plan with facts that may be some minutes old; before a request, read them again and plan again."""
        stage_dids, pin_dids = situation.stage_dids(), situation.pin_dids()
        if not stage_dids and not pin_dids:
            return self._make_plans(situation, [])
        facts, is_fresh = self._gather(stage_dids | pin_dids, names, situation, problems, FACTS_AGE)
        plans = self._make_plans(situation, facts)
        if plans.has_batches and not is_fresh:
            facts, _ = self._gather(stage_dids | pin_dids, names, situation, problems, timedelta())
            plans = self._make_plans(situation, facts)
        return plans

    def _make_plans(self, situation: _Situation, facts: Sequence[CatalogueFacts]) -> _Plans:
        view, ledger, now = situation.view, self._executor.ledger, situation.now
        candidates: Sequence[Candidate] = situation.candidates.candidates
        planner = StagePlanner(view, ledger, facts, self._policy, now, transfer_seconds(view, self._rates()))
        stages = planner.plan(candidates)
        pins = PinPlanner(view, ledger, facts, self._policy, now).plan(situation.pin_needs)
        self._pins = self._pin_schedule.merge(self._pins, pins, situation.pin_needs)
        if len(facts) == len(self._stagers):
            self._pin_schedule.record(situation.pin_needs, view, pins, now)
        return _Plans(stages, pins)

    def _gather(
        self,
        dids: frozenset[Did],
        names: Sequence[str],
        situation: _Situation,
        problems: dict[str, str],
        max_age: timedelta,
    ) -> tuple[list[CatalogueFacts], bool]:
        """Return the facts of each catalogue about *dids*, and whether all of them were read just now."""
        found: list[CatalogueFacts] = []
        is_fresh = True
        for name in names:
            at, known, facts = self._facts.get(name, (None, frozenset(), None))
            if facts and at and dids <= known and situation.now - at < max_age:
                found.append(facts)
                is_fresh = False
                continue
            try:
                facts = self._read_facts(name, dids, situation.view)
            except CatalogueError as error:
                problems[f"catalogue {name}"] = error.reason
            except Exception as error:  # noqa: BLE001 - a bug of one adapter
                problems[f"catalogue {name}"] = self._bugs.report(f"staging at {name}", error)
            else:
                self._facts[name] = situation.now, dids, facts
                found.append(facts)
        return found, is_fresh

    def _read_facts(self, name: str, dids: frozenset[Did], view: DataView) -> CatalogueFacts:
        stager, allowed = self._stagers[name], self._policy.allowed_sites(name)
        if name not in self._permissions and self._policy.mode_of_catalogue(name) is StagingMode.ASK:
            self._permissions[name] = stager.probe_permissions()
        return CatalogueFacts(
            name,
            stager.measure(dids),
            stager.find_rules(dids, allowed | view.facts.keys()),
            stager.read_space(allowed),
            self._permissions.get(name, StagingPermissions()),
        )

    def _plan_upkeep(self, names: Sequence[str]) -> list[Renewal | Cancellation]:
        ledger = self._executor.ledger
        actions = plan_upkeep(ledger, self._needs, self._policy, self._clock())
        return [one for one in actions if ledger.entries[one.tag].catalogue in names]

    def _execute(self, plans: _Plans, upkeep: Sequence[Renewal | Cancellation]) -> None:
        """Make the calls: renewals and cancellations first, because they may be urgent."""
        for action in upkeep:
            if isinstance(action, Renewal):
                self._executor.renew(action)
            else:
                self._executor.cancel(action)
        for batch in (*plans.pins.batches, *plans.stages.batches):
            self._executor.ask(batch)

    def _record_joined(self, plan: StagePlan) -> None:
        """Record which rules of others bring data for our jobs; count each once."""
        ledger = self._executor.ledger
        new = len(plan.joined.keys() - ledger.joined.keys())
        totals = replace(ledger.totals, joined=ledger.totals.joined + new)
        self._executor.save(replace(ledger, joined=dict(plan.joined), totals=totals))


def transfer_seconds(view: DataView, rates: RateLookup | None) -> ExpectedSeconds:
    """Return a function that estimates the seconds to bring datasets to a site, one after the other.

    The source of a dataset is the site with the best rate, of those that have it on disk, else on tape.
    """

    def estimate(site: Site, sizes: Mapping[Did, int]) -> float | None:
        seconds = 0.0
        for did, size in sizes.items():
            sources = view.sites_with(did, DatasetState.AVAILABLE) or view.sites_with(
                did, DatasetState.NEARLINE
            )
            known = [rates.rate(source, site) for source in sources] if rates else []
            best = max((rate.bytes_per_second for rate in known if rate), default=0.0)
            if best <= 0:
                return None
            seconds += size / best
        return seconds

    return estimate
