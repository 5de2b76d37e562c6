"""The daemon's answer to why a job is idle: its own beliefs, and a pool asked by a child of its own."""

from hydrator.config import Settings
from hydrator.diagnostics.why.query import WhyQuery, ask_job, datasets_over_budget
from hydrator.diagnostics.why.render import RenderedAnswer, render_result
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.model import DaemonKnowledge
from hydrator.domain.redaction import escape_unprintable
from hydrator.reconcile.result import CycleReport
from hydrator.submit.nearest_names import add_similar_names
from hydrator.wiring import build_condor_client, build_redactor, privacy, reconcile_policy, system_clock


def explain_job(
    settings: Settings, report: CycleReport | None, cluster: int, proc: int | None, schedd: str | None
) -> list[RenderedAnswer]:
    """Why a job is idle, in words without names of private datasets.

    The child is another than the one that cycles use, so that none waits for it; it has the same rights.

    Raises:
        ConfigError: several schedds have the job.
        PoolError: none has it, or the pool could not be asked.
    """
    now = system_clock()
    client = build_condor_client(settings)
    redact = build_redactor(settings)

    def hide(text: str) -> str:
        return escape_unprintable(redact(text))

    try:
        asked = WhyQuery(
            client,
            settings.sites.slot_attributes,
            _knowledge_from_report(settings, report) if report else None,
            settings.daemon.default_scope,
            now,
            privacy=privacy(settings),
            add_similar_names=add_similar_names,
        )
        return render_result(ask_job(asked, cluster, proc, schedd), hide)
    except PoolError as error:
        raise type(error)(error.daemon, hide(error.reason)) from None
    except ConfigError as error:
        raise ConfigError([hide(problem) for problem in error.problems]) from None
    finally:
        client.close()


def _knowledge_from_report(settings: Settings, report: CycleReport) -> DaemonKnowledge:
    """What the last cycle concluded."""
    snapshot, demand = report.evaluation.snapshot, report.demand
    no_room = datasets_over_budget(snapshot, demand, reconcile_policy(settings).budget)
    return DaemonKnowledge(
        report.started_at, snapshot, demand.dids, dids_without_room=no_room, held_reasons=report.held_reasons
    )
