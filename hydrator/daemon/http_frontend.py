"""HTTP front end: the daemon's HTTP server, and the values that it serves."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from hydrator.config import Settings
from hydrator.daemon.runtime import MACHINE, DaemonContext, Machine
from hydrator.diagnostics.why.nowhere import add_similar_names
from hydrator.diagnostics.why.query import WhyQuery, WhyResult, ask_job
from hydrator.diagnostics.why.render import RenderedAnswer, render_result
from hydrator.domain.bugs import BugReporter, WorkerBug
from hydrator.domain.errors import CatalogueError, ConfigError, HydratorError, PoolError, StateError
from hydrator.domain.model import Did, Site, Unseen
from hydrator.domain.ports import ClusterJobs
from hydrator.domain.redaction import escape_unprintable, redact
from hydrator.domain.text import matches_any, mentions_any
from hydrator.reconcile.state import DatasetChange
from hydrator.server.handlers import Sources
from hydrator.server.http_server import HttpServer
from hydrator.server.view import ServerState
from hydrator.staging.overview import explain_for_job
from hydrator.state.store import Store
from hydrator.wiring import system_clock
from hydrator.wiring.catalogues import build_idle_catalogues
from hydrator.wiring.condor import build_cluster_queues, build_condor_client

_log = structlog.get_logger("hydrator")


@dataclass(eq=False)
class HttpFrontend:
    """The HTTP server of the daemon, and the functions that give the server its values.

    Attributes:
        context: the values that the daemon's parts share.
        registry: the metrics that the server exports.
        get_hang_reason: returns why the daemon hangs, or None.
        machine: has the clock, and builds the server.
    """

    context: DaemonContext
    registry: CollectorRegistry
    get_hang_reason: Callable[[], str | None]
    machine: Machine = MACHINE
    server: HttpServer | None = None

    def get_url(self) -> str | None:
        """Return the address of the HTTP server; None while it does not run."""
        return self.server.url if self.server else None

    def start(self) -> None:
        """Start the server.

        Raises:
            ConfigError: the tokens, the certificate or the address cannot be used.
        """
        self.server = self._build_server(self.context.settings, self.registry)
        self.server.start()

    def check(self, settings: Settings) -> None:
        """Check that a server with *settings* could start: its files, and an address other than the present.

        Raises:
            ConfigError: the tokens, the certificate or the address cannot be used.
        """
        http, current = settings.publish.http, self.context.settings.publish.http
        if not http.enabled:
            return
        server = self._build_server(settings, CollectorRegistry())
        if http.port != current.port or not current.enabled:
            server.check_address()

    def _build_server(self, settings: Settings, registry: CollectorRegistry) -> HttpServer:
        sources = Sources(
            self.build_state,
            self.get_version,
            partial(explain_job, self.context),
            partial(read_changes, self.context.store),
            partial(read_cluster, self.context.settings) if settings.demand.ask_schedds else None,
            partial(find_datasets, settings),
        )
        return self.machine.build_http_server(settings.publish.http, sources, registry)

    def get_version(self) -> object:
        """Return a value that changes with the content of the pages, without the work of building it."""
        context = self.context
        return (
            context.report.started_at if context.report else None,
            context.staging.as_of if context.staging else None,
            context.locality.last_day,
            context.reload,
            context.credentials,
            self.get_hang_reason(),
        )

    def build_state(self) -> ServerState:
        """Return the state now: that of the last cycle, with what has changed since the cycle.

        Each request calls this, in the event loop. So the work must not grow with the number of datasets.
        """
        context, now = self.context, self.machine.clock()
        report = context.report
        publisher = context.parts.web_publisher if context.parts else None
        has_ads = report or context.state.ads
        return replace(
            context.cycle_state or ServerState(now=now),
            ads=publisher.ads() if publisher else {},
            not_ready_reason=None if has_ads else "the first cycle has not ended yet",
            now=now,
            published_at=publisher.publish_times() if publisher else {},
            hang_reason=self.get_hang_reason(),
            max_age=context.settings.daemon.max_age,
            changes=context.recent_changes,
            staging=context.staging,
            locality=context.locality,
            reload=context.reload,
            credentials=context.credentials,
            storage=context.settings.storage,
        )


def read_changes(store: Store, site: Site) -> Sequence[DatasetChange]:
    """Return the last changes of the ad of *site*; nothing if the state cannot be read."""
    with suppress(StateError):
        return store.load_changes(site)
    return ()


def read_cluster(settings: Settings, cluster: int, schedd: str | None) -> Mapping[str, ClusterJobs | Unseen]:
    """Return the schedds with jobs of *cluster*, and the silent ones; called by threads of the HTTP server.

    The queries run in a new child process, so that no cycle waits.

    Raises:
        PoolError: the collector did not list the schedds.
    """
    with _hidden_errors(), closing(build_cluster_queues(settings, system_clock)) as queues:
        answers = queues.read_cluster(cluster, schedd)
    return {
        name: Unseen(_hide(each.reason)) if isinstance(each, Unseen) else each
        for name, each in answers.items()
    }


SEARCH_SECONDS = 20.0
"""After so long a search ends: Rucio may list all of a scope, and a request may take 30 s."""
_LATE = f"the search took more than {SEARCH_SECONDS:g} s: set default_scope, or write longer names"


def _start_timer(seconds: float, work: Callable[[], None]) -> Callable[[], None]:
    """Start *work* after *seconds* in a thread; return the function that cancels it."""
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()
    return timer.cancel


def find_datasets(
    settings: Settings,
    patterns: Collection[str],
    start_timer: Callable[[float, Callable[[], None]], Callable[[], None]] = _start_timer,
) -> frozenset[Did]:
    """Return the public datasets in the catalogues that match; called by threads of the HTTP server.

    The search runs in new workers, one after another, so that no poll waits; after SEARCH_SECONDS they end.
    No catalogue is asked for a name that is never published. If there are such names, the error does not
    have the catalogue's reason, which may name one.

    Raises:
        CatalogueError: a catalogue could not be searched, or not in time.
    """
    never = settings.publish.never
    public = [pattern for pattern in patterns if not matches_any(pattern, never)]
    found: set[Did] = set()
    is_late = threading.Event()
    catalogues = build_idle_catalogues(settings) if public else ()

    def end() -> None:
        is_late.set()
        for catalogue in catalogues:
            catalogue.close()

    cancel = start_timer(SEARCH_SECONDS, end)
    try:
        for catalogue in catalogues:
            with closing(catalogue):
                try:
                    found |= catalogue.find(public)
                except HydratorError as error:
                    reason = _LATE if is_late.is_set() else _search_failure(catalogue.name, error, never)
                    raise CatalogueError(catalogue.name, reason) from None
    finally:
        cancel()
    return frozenset(did for did in found if not matches_any(did, never))


def _search_failure(catalogue: str, error: Exception, never: Collection[str]) -> str:
    """Return for the client why the search of *catalogue* failed; the log has the whole reason."""
    if isinstance(error, WorkerBug):
        return BugReporter().report("the search", error)
    reason = _hide(error.reason if isinstance(error, CatalogueError) else str(error))
    _log.warning("search failed", catalogue=catalogue, reason=reason)
    return "the search failed; the daemon's log has the reason" if never else reason


def _hide(text: str) -> str:
    """Make a text of the pool fit for a page: without secrets and unprintable characters."""
    return escape_unprintable(redact(text))


@contextmanager
def _hidden_errors() -> Iterator[None]:
    """Make the texts of an error of the ``with`` block fit for a page; see :func:`_hide`."""
    try:
        yield
    except PoolError as error:
        raise type(error)(error.daemon, _hide(error.reason)) from None
    except ConfigError as error:
        raise ConfigError([_hide(problem) for problem in error.problems]) from None


def explain_job(
    context: DaemonContext, cluster: int, proc: int | None, schedd: str | None
) -> list[RenderedAnswer]:
    """Explain why a job is idle, with the facts of the last cycle; called by threads of the HTTP server.

    The queries run in a new child process with the rights of the daemon, so that no cycle waits.

    Raises:
        ConfigError: several schedds have the job, or a dataset of the job is never published.
        PoolError: no schedd has the job, or the pool does not answer.
    """
    settings, staging = context.settings, context.staging
    knowledge = context.cycle_state.knowledge if context.cycle_state else None
    now = system_clock()
    with _hidden_errors(), closing(build_condor_client(settings.htcondor)) as client:
        query = WhyQuery(
            client,
            settings.sites.slot_attributes,
            lambda dids, _: add_similar_names(knowledge, dids) if knowledge else None,
            settings.daemon.default_scope,
            now,
            explain_staging=(lambda dids, _: explain_for_job(staging, dids, now)) if staging else None,
        )
        result = ask_job(query, cluster, proc, schedd)
        failures = [RenderedAnswer(tuple(map(_hide, result.failures)))] if result.failures else []
        answers = [*render_result(result, _hide), *failures]
        _check_names(result, answers, settings)
        return answers


def _check_names(result: WhyResult, shown: Sequence[RenderedAnswer], settings: Settings) -> None:
    """Raise ConfigError if a job in *result*, or a text of the page, names a dataset that is never published.

    Many can read the page. A name may also be in the job's requirements, or in a list that is no list.
    """
    never, jobs = settings.publish.never, [answer.job for answer in result.answers]
    bad_lists = " ".join(name for job in jobs for name in job.invalid_names)
    if (
        any(matches_any(did, never) for job in jobs for did in job.datasets)
        or mentions_any(bad_lists, never, settings.daemon.default_scope)
        or mentions_any(str(shown), never)
    ):
        raise ConfigError(["the job names a dataset that is never published: run hydrator why as its owner"])
