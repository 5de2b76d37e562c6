"""HTTP front end: the daemon's HTTP server, and the values that it serves."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from hydrator.config import Settings
from hydrator.diagnostics.why.query import WhyQuery, ask_job, datasets_over_budget
from hydrator.diagnostics.why.render import RenderedAnswer, render_result
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.events import RejectReason
from hydrator.domain.model import DaemonKnowledge, Did
from hydrator.domain.ports import ServerEndpoint
from hydrator.domain.redaction import escape_unprintable
from hydrator.reconcile.ads.site_ads import dids_without_room
from hydrator.reconcile.result import CycleReport
from hydrator.server.handlers import TokenServices
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from hydrator.staging.overview import StagingOverview, explain_for_job
from hydrator.submit.nearest_names import add_similar_names
from hydrator.wiring import build_condor_client, build_redactor, privacy, reconcile_policy, system_clock
from hydrator.wiring.http_server import build_http_server

from .runtime import DaemonContext

_log = structlog.get_logger("hydrator")


@dataclass(eq=False)
class HttpFrontend:
    """The HTTP server of the daemon, and the functions that give the server its values.

    Attributes:
        context: the values that the daemon's parts share.
        registry: the metrics that the server exports.
        get_hang_reason: returns why the daemon hangs, or None.
        get_standby_reason: returns why this daemon publishes nothing, or None if it publishes.
    """

    context: DaemonContext
    registry: CollectorRegistry
    get_hang_reason: Callable[[], str | None]
    get_standby_reason: Callable[[], str | None]
    server: HttpServer | None = None

    @property
    def url(self) -> str | None:
        return self.server.url if self.server else None

    def get_endpoint(self) -> ServerEndpoint | None:
        """Return the address of the present HTTP server."""
        return self.server.endpoint if self.server else None

    def server_for(self, settings: Settings) -> HttpServer | None:
        """Return the server for *settings*: the present server, or a new server that already listens.

        Raises:
            ConfigError: the tokens, the certificate or the address cannot be used.
        """
        http, current = settings.publish.http, self.context.settings
        if not http.enabled:
            return None
        if self.server and (http, settings.events.webhook) == (current.publish.http, current.events.webhook):
            return self.server
        server = build_http_server(
            http,
            self.build_state,
            self.registry,
            TokenServices(
                self._look_up_pseudonyms,
                self._on_webhook_event if settings.events.webhook else None,
                self._explain_job,
            ),
        )
        server.start(predecessor=self.server)
        return server

    def build_state(self) -> ServerState:
        """Build the values from which the HTTP server answers a request now."""
        context = self.context
        report, standby_reason = context.report, self.get_standby_reason()
        served_ads = context.parts.served_ads if context.parts else None
        evaluation = report.evaluation if report else None
        experiment, now = context.state.experiment, system_clock()
        if evaluation:
            experiment = evaluation.state.experiment
        has_ads = report or context.state.ads
        return ServerState(
            ads=served_ads.ads() if served_ads and not standby_reason else {},
            snapshot=evaluation.snapshot if evaluation else None,
            demand=report.demand if report else None,
            not_ready_reason=standby_reason or (None if has_ads else "the first cycle has not ended yet"),
            now=now,
            published_at=served_ads.publish_times() if served_ads else {},
            held_reasons=report.held_reasons if report else {},
            hang_reason=self.get_hang_reason(),
            held_losses=evaluation.state.held_losses if evaluation else {},
            max_age=context.settings.daemon.max_age,
            changes=context.recent_changes,
            omitted_dids=dids_without_room(evaluation.drafts) if evaluation else {},
            troubles=report.failures if report else (),
            locality=context.locality,
            experiment=experiment.describe(now) if experiment else None,
            withheld_reasons=evaluation.withheld_reasons if evaluation else {},
            estimates=report.estimates if report else None,
            no_estimates_reason=report.estimation.none_reason if report else None,
            set_estimator=report.estimation.set_estimator if report else None,
            staging=context.staging,
        )

    def _on_webhook_event(self, body: bytes) -> RejectReason | None:
        """Handle an event from the webhook; the server has checked the sender's token."""
        listener = self.context.event_listener
        return listener.on_event("webhook", body) if listener else None

    def _look_up_pseudonyms(self, dids: Iterable[Did]) -> Mapping[Did, Did]:
        """Return the name that jobs use for each of *dids*; see :class:`PseudonymStore`.

        If no dataset is private, each name is unchanged.
        """
        pseudonym_store = self.context.parts.pseudonym_store if self.context.parts else None
        if pseudonym_store is None:
            return {did: did for did in dids}
        previous_problem = pseudonym_store.problem
        names = pseudonym_store.exchange(dids)
        if pseudonym_store.problem not in {None, previous_problem}:
            _log.error("cannot save private dataset names", why=pseudonym_store.problem)
        return names

    def _explain_job(self, cluster: int, proc: int | None, schedd: str | None) -> list[RenderedAnswer]:
        """Explain a job; called by threads of the HTTP server."""
        context = self.context
        return explain_job(context.settings, context.report, context.staging, cluster, proc, schedd)


def explain_job(
    settings: Settings,
    report: CycleReport | None,
    staging: StagingOverview | None,
    cluster: int,
    proc: int | None,
    schedd: str | None,
) -> list[RenderedAnswer]:
    """Explain why a job is idle, without names of private datasets; *staging* has the requests of data.

    The queries run in a new child process with the rights of the daemon, so that no cycle waits.

    Raises:
        ConfigError: several schedds have the job.
        PoolError: no schedd has the job, or the pool does not answer.
    """
    client, now = build_condor_client(settings.htcondor), system_clock()
    redact = build_redactor(settings)

    def hide(text: str) -> str:
        return escape_unprintable(redact(text))

    try:
        query = WhyQuery(
            client,
            settings.sites.slot_attributes,
            _knowledge_from_report(settings, report) if report else None,
            settings.daemon.default_scope,
            now,
            privacy=privacy(settings.private),
            add_similar_names=add_similar_names,
            explain_staging=partial(explain_for_job, staging, now=now) if staging else None,
        )
        return render_result(ask_job(query, cluster, proc, schedd), hide)
    except PoolError as error:
        raise type(error)(error.daemon, hide(error.reason)) from None
    except ConfigError as error:
        raise ConfigError([hide(problem) for problem in error.problems]) from None
    finally:
        client.close()


def _knowledge_from_report(settings: Settings, report: CycleReport) -> DaemonKnowledge:
    """Return the dataset states of the last cycle."""
    snapshot, demand = report.evaluation.snapshot, report.demand
    budget = reconcile_policy(settings).budget
    return DaemonKnowledge(
        report.started_at,
        snapshot,
        demand.dids,
        dids_without_room=datasets_over_budget(snapshot, demand, budget),
        held_reasons=report.held_reasons,
        estimates=report.estimates,
        no_estimates_reason=report.estimation.none_reason,
    )
