"""Controller of staging: each step reads the rules, plans, and makes the calls that are missing.

The plan is a pure function of the live demand, the rules as read, the table, the limits and the time. The
loop reads the catalogues, saves the table once before the calls and once after them, and makes the calls.
With the mode off no catalogue is ever called.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime

from hydrator.config import Settings
from hydrator.config.staging import to_bytes
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import CatalogueError, PoolError, StateError
from hydrator.domain.model import Site, Unseen
from hydrator.domain.network import FindRate
from hydrator.domain.ports import Clock
from hydrator.domain.staging_ports import (
    RefusalKind,
    Stager,
    StagingError,
    StagingFailed,
    StagingQuery,
    StagingRefused,
)
from hydrator.reconcile.result import CycleReport

from .overview import StagingOverview, build_overview
from .plan import Plan, Planner
from .table import (
    DAY,
    Request,
    StagingControl,
    Table,
    Write,
    apply_commands,
    apply_needs,
    follow_rules,
)
from .view import Answers, CatalogueFacts, DataView, LiveNeeds, build_view

_HALTING_KINDS = frozenset({RefusalKind.PERMISSION, RefusalKind.ACTIVITY})
"""Refusals that every other request at this catalogue would get, too."""
AuditLog = Callable[[Write, Request, StagingError | None], None]
"""A log for the operator and the data manager: the call, the request after it, and its error."""


@dataclass(frozen=True)
class StagingParts:
    """The parts that *settings* need; without a stager, the mode is off and no catalogue is called.

    Args:
        stagers: the catalogues by name, in the order of the configuration.
        read_needs: returns the data that the jobs in the queues need, by schedd; may raise PoolError.
        control: the operator's switch and commands.
    """

    settings: Settings
    stagers: Mapping[str, Stager]
    read_needs: Callable[[], Answers] | None
    control: StagingControl


@dataclass
class StagingController:
    """The loop over *parts*, with the table in memory and on disk.

    Args:
        load: reads the table; may raise StateError.
        save: writes the table; when it returns, the table is on disk. It may raise StateError.
        is_ending: whether the daemon ends, so that no call may begin.
        audit: the log of the calls.
        find_rate: returns the present rates between sites.
    """

    parts: StagingParts
    load: Callable[[], Table]
    save: Callable[[Table], None]
    clock: Clock
    _: KW_ONLY
    is_ending: Callable[[], bool] = lambda: False
    audit: AuditLog = lambda _write, _request, _error: None
    find_rate: FindRate = lambda _source, _destination: 0.0
    bugs: BugReporter = field(default_factory=BugReporter)

    def __post_init__(self) -> None:
        settings, self._settings = self.parts.settings, self.parts.settings.staging
        asked = (name for name in self.parts.stagers if self._settings.mode_at(name) != "off")
        self._catalogues = {name: CatalogueFacts(name, settings.expiry_margin(name)) for name in asked}
        self._saved: Table | None = None
        self._needs = LiveNeeds()
        self._problems: dict[str, str] = {}
        self._view = DataView()
        self.table = Table()

    def run_once(self, report: CycleReport | None) -> StagingOverview:
        """Run one step with the facts of the last cycle's *report*; return what is to be shown.

        If the table cannot be read or written, no call is made.
        """
        now, plan = self.clock(), Plan()
        self._problems, self._view = {}, DataView()
        try:
            if self._saved is None:
                self.table = self._saved = self.load().without_future(now)
            if self._catalogues:
                plan = self._run(report, now)
        except StateError as error:
            self._problems = {"state": str(error)}
        halts = {f"catalogue {name}": one.halted for name, one in self._catalogues.items() if one.halted}
        overview = build_overview(self.table, self.parts.settings, now, plan, self._view)
        stop_reason = self.parts.control.stop_reason if self._catalogues else None
        return replace(overview, problems={**self._problems, **halts}, stop_reason=stop_reason)

    def _run(self, report: CycleReport | None, now: datetime) -> Plan:
        control = self.parts.control
        control.prepare()
        pending = control.read_pending()
        if pending.problems:
            self._problems["commands"] = "; ".join(pending.problems)
        commands = [command for _, command in pending.commands]
        if any(one.name == "resume" for one in commands):
            for facts in self._catalogues.values():
                facts.halted = ""
        table = apply_commands(self.table.forget_old(now, self._catalogues), commands, now)
        self._read_needs(now)
        table = apply_needs(table, self._needs, now)
        self._view = build_view(report, self._needs.by_did.keys(), self.parts.settings, now)
        planner = Planner(self._view, self._needs, self._settings, now, self.find_rate)
        table, answered = self._read_catalogues(planner, table, now)
        plan = planner.plan(table, answered)
        if control.stop_reason:
            plan = replace(plan, writes=())
        new = [write.request for write in plan.writes if write.verb == "ask" and not write.request.called_at]
        self._save(table.put(*(replace(one, called_at=now) for one in new)))
        control.remove_processed(pending)
        self._make_calls(plan.writes)
        return plan

    # -- reading

    def _read_needs(self, now: datetime) -> None:
        answers: Answers | Unseen = {}
        if self.parts.read_needs:
            answers = self.bugs.attempt("the query of needs", self.parts.read_needs, PoolError)
        if isinstance(answers, Unseen):
            self._problems["queues"], answers = answers.reason, {}
        missing = self._problems.get("queues", "the collector does not list it any more")
        scope = self.parts.settings.daemon.default_scope
        self._needs = self._needs.update(answers, missing, now, scope)
        self._problems.update({f"schedd {name}": reason for name, reason in self._needs.unseen.items()})

    def _read_catalogues(
        self, planner: Planner, table: Table, now: datetime
    ) -> tuple[Table, list[CatalogueFacts]]:
        """Read the rules of what jobs need and of what was asked; return the facts of those that answered."""
        wanted = frozenset(did for one in planner.candidates for did in one.dids)
        present = planner.find_present()
        answered = []
        for name, facts in self._catalogues.items():
            due = {did for did in present if facts.is_due(did, now)}
            allowed = frozenset(map(Site, self._settings.allowed_sites(name)))
            query = StagingQuery(
                wanted | due | {one.did for one in table.requests if one.catalogue == name and not one.rule},
                allowed.union(self._view.facts),
                allowed if wanted else frozenset(),
                table.rules_at(name),
                lists_all=facts.listed_at is None or now - facts.listed_at >= DAY,
            )
            still_known = facts.known.keys() & present - query.dids
            facts.known = {did: facts.known[did] for did in still_known}
            try:
                if query.dids or query.rules or query.lists_all:
                    answer = self.parts.stagers[name].list(query)
                    odd = answer.unread.keys() & query.rules
                    self._problems.update((f"rule {rule}", answer.unread[rule]) for rule in odd)
                    facts.keep(query, answer, now)
                    table = follow_rules(table, facts, query, to_bytes(self._settings.limits.request_tb), now)
                answered.append(facts)
            except CatalogueError as error:
                self._problems[f"catalogue {name}"] = error.reason
            except Exception as error:  # noqa: BLE001 - a bug of one adapter
                self._problems[f"catalogue {name}"] = self.bugs.report(f"staging at {name}", error)
        return table, answered

    # -- calls

    def _save(self, table: Table) -> None:
        """Make *table* the present one, and write it to disk if it changed.

        Raises:
            StateError: the table cannot be written, so no call may be made.
        """
        if table != self._saved:
            self.save(table)
            self._saved = table
        self.table = table

    def _make_calls(self, writes: Iterable[Write]) -> None:
        """Make the calls of *writes*; after a call without an answer, none at this catalogue in this step.

        Raises:
            StateError: the table cannot be written after the calls; then they are in doubt.
        """
        silent: set[str] = set()
        for write in writes:
            name = write.request.catalogue
            is_stopped = self.is_ending() or self.parts.control.stop_reason or self._catalogues[name].halted
            if not is_stopped and name not in silent:
                if isinstance(self._call(write), StagingFailed):
                    silent.add(name)
            elif write.verb == "ask" and not write.request.called_at:
                self.table = self.table.drop(write.request)
        self._save(self.table)

    def _call(self, write: Write) -> StagingError | None:
        """Make the call of *write*, and put its result into the table."""
        one, stager, error = write.request, self.parts.stagers[write.request.catalogue], None
        try:
            if write.verb == "cancel":
                stager.cancel(one.rule)
            else:
                one = replace(one, rule=stager.request(one.order))
        except StagingError as raised:
            error = raised
        except Exception as raised:  # noqa: BLE001 - a bug of one adapter; the call may have had an effect
            error = StagingFailed(one.catalogue, self.bugs.report(f"staging at {one.catalogue}", raised))
        now = self.clock()
        one = replace(one, called_at=now, problem=error.reason if error else "")
        if write.verb == "renew" and one.expires_at and one.expires_at <= now:
            one = replace(one, renewed_late_at=now)
        if error is None:
            one = replace(one, granted_seconds=None, cancelled_at=now if write.verb == "cancel" else None)
        elif isinstance(error, StagingRefused) and write.verb == "ask":
            one = replace(self.table.close(one, now, error.kind, error.reason), ended_at=now)
            if error.kind in _HALTING_KINDS:
                self._catalogues[one.catalogue].halted = error.reason
        self.table = self.table.put(one)
        if error is None:
            self.table = self.table.use_up(one.approval)
        self.audit(write, one, error)
        return error
