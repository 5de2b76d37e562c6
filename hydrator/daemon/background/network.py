"""Network tasks: read transfers between sites, and give the cycles new rates."""

from datetime import timedelta

import structlog

from hydrator.daemon.runtime import DaemonContext, Runtime
from hydrator.domain.bugs import OngoingFailures
from hydrator.domain.errors import PoolError, StateError
from hydrator.domain.model import Site
from hydrator.domain.network import TransferLog, TransferSample
from hydrator.reconcile.rates import select_samples
from hydrator.state.network_rows import NETWORK_REPORT, NetworkRecord, SourceStatus
from hydrator.wiring.network import NetworkParts, build_rate_table

from .worker import BackgroundWorker

_log = structlog.get_logger("hydrator")
_FIRST_READ = timedelta(seconds=15)
"""Time from the start to the first query; a first cycle has usually found the sites by then."""


class NetworkTasks(BackgroundWorker):
    """Queries of the sources of rates; a source that fails does not affect the other sources or a cycle."""

    EXECUTOR_NAMES = ("network",)

    def __init__(self, context: DaemonContext) -> None:
        super().__init__(context)
        self._problems = OngoingFailures()

    def schedule(self, runtime: Runtime) -> None:
        """Schedule the queries of the sources."""
        interval = runtime.settings.daemon.history_seconds
        first = self._clock() + min(_FIRST_READ, timedelta(seconds=interval))
        work, network = self._update, runtime.parts.network
        self._schedule_every(runtime, "network", interval, work, network, first_run_at=first)

    def _update(self, network: NetworkParts) -> None:
        """Read all sources; save the samples, replace the table of rates, and report failures once."""
        sites = frozenset(self._context.state.ads) | network.settings.network.sites
        statuses: list[SourceStatus] = []
        samples = [sample for log in network.logs for sample in self._read_log(log, statuses)]
        self._apply(network, sites, samples, tuple(statuses))

    def _read_log(self, log: TransferLog, statuses: list[SourceStatus]) -> list[TransferSample]:
        try:
            answer = log.read_samples()
        except PoolError as error:
            statuses.append(SourceStatus(log.origin, self._clock(), {"pool": error.reason}))
            return []
        except Exception as error:  # noqa: BLE001 - a bug affects this source only
            self._report_bug(f"the query of the {log.origin}")
            statuses.append(SourceStatus(log.origin, self._clock(), {"bug": type(error).__name__}))
            return []
        statuses.append(SourceStatus(log.origin, self._clock(), answer.failures))
        return list(answer.samples)

    def _apply(
        self,
        network: NetworkParts,
        sites: frozenset[Site],
        new_samples: list[TransferSample],
        statuses: tuple[SourceStatus, ...],
    ) -> None:
        now = self._clock()
        try:
            stored = self._context.store.load_report(NETWORK_REPORT, NetworkRecord) or NetworkRecord()
            samples = select_samples((*stored.samples, *new_samples), sites, now)
            self._context.store.save_report(NETWORK_REPORT, NetworkRecord(samples, statuses))
        except StateError as error:
            self._log_problems({"state": str(error)})
            return
        table = build_rate_table(samples, network.settings, now)
        network.rates.replace(table)
        self._metrics.set_transfer_samples(samples)
        self._log_problems(
            {f"{each.name} {part}": why for each in statuses for part, why in each.failures.items()}
        )

    def _log_problems(self, problems: dict[str, str]) -> None:
        """Log each problem of a source once, and once that it has ended."""
        new, ended = self._problems.replace(problems)
        for source in sorted(new):
            _log.info("source of rates gives no answer", source=source, why=problems[source])
        for source in ended:
            _log.info("source of rates answers again", source=source)
