"""The daemon's answer to why a job is idle: its own beliefs, and a pool asked by a child of its own."""

from hydrator.config import Settings
from hydrator.diagnostics.why.query import Asked, Telling, ask_job, left_out, tellings
from hydrator.domain.beliefs import Beliefs
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.redaction import printable
from hydrator.reconcile.reconciler import Report
from hydrator.submit.nearest_names import with_near
from hydrator.wiring import condor_client, privacy, redactor, rules, system_clock


def explained(
    settings: Settings, report: Report | None, cluster: int, proc: int | None, schedd: str | None
) -> list[Telling]:
    """Why a job is idle, in words without names of private datasets.

    The child is another than the one that cycles use, so that none waits for it; it has the same rights.

    Raises:
        ConfigError: several schedds have the job.
        PoolError: none has it, or the pool could not be asked.
    """
    now = system_clock()
    client = condor_client(settings)
    redact = redactor(settings)

    def hide(text: str) -> str:
        return printable(redact(text))

    try:
        asked = Asked(
            client,
            settings.sites.slot_attributes,
            _beliefs(settings, report) if report else None,
            settings.daemon.default_scope,
            now,
            privacy=privacy(settings),
            near=with_near,
        )
        return tellings(ask_job(asked, cluster, proc, schedd), hide)
    except PoolError as error:
        raise type(error)(error.daemon, hide(error.reason)) from None
    except ConfigError as error:
        raise ConfigError([hide(problem) for problem in error.problems]) from None
    finally:
        client.close()


def _beliefs(settings: Settings, report: Report) -> Beliefs:
    """What the last cycle concluded."""
    snapshot, demand = report.thought.snapshot, report.demand
    no_room = left_out(snapshot, demand, rules(settings).budget)
    return Beliefs(report.at, snapshot, demand.dids, left_out=no_room, held=report.held)
