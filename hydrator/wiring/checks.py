"""The parts as ``hydrator check`` looks at them."""

from hydrator.config import Settings
from hydrator.diagnostics.check.findings import CheckInputs, Finding, Level
from hydrator.diagnostics.check.last_cycle import (
    check_generations,
    check_last_cycle,
    check_private_names,
    hung_after_seconds,
)
from hydrator.diagnostics.check.secrets import examine_credentials, examine_secrets
from hydrator.domain.errors import StateError, StateMissing
from hydrator.domain.model import to_unix
from hydrator.reconcile.state import ReconcileState
from hydrator.state.database import owner_of
from hydrator.state.store import Store

from .assembly import Parts, build_event_sources
from .clock import system_clock
from .credentials import read_credentials
from .privacy import build_pseudonym_store


class _NullEventHandler:
    """Ears of somebody who only tries whether there is something to hear."""

    def on_event(self, source: str, body: bytes | None) -> None:
        pass

    def on_connect(self, source: str) -> None:
        pass

    def on_disconnect(self, source: str, reason: str) -> None:
        pass


def build_check_inputs(settings: Settings, parts: Parts) -> CheckInputs:
    """The parts as ``hydrator check`` looks at them, and what a daemon that ran here left in its state."""
    state, daemon = _load_daemon_state(settings)
    return CheckInputs(
        catalogues=parts.catalogues,
        pool=parts.client,
        collectors=parts.collectors,
        queues=parts.queues,
        policy=parts.policy,
        slot_attributes=settings.sites.slot_attributes,
        ad_folder=settings.publish.file.directory if settings.publish.file.enabled else None,
        sites_file=settings.publish.sites.path if settings.publish.sites.enabled else None,
        is_advertising=settings.publish.collector.enabled,
        is_merging=settings.publish.merge.enabled,
        merge_interval_seconds=settings.publish.merge.interval_seconds,
        now=to_unix(system_clock()),
        editor=parts.editor,
        is_editing_jobs=settings.publish.desired_sites.enabled
        and settings.publish.desired_sites.token_directory is None,
        secret_findings=[
            *examine_secrets(settings, lambda given: build_pseudonym_store(given, is_owner=False)),
            *examine_credentials(read_credentials(settings, parts), system_clock()),
        ],
        held_changes={
            site: one.text(settings.breaker.confirm_polls) for site, one in state.held_losses.items()
        },
        rollbacks={site: one.text for site, one in state.rollbacks.items()},
        audit=state.audit,
        warn_below=settings.audit.warn_below,
        daemon_findings=daemon,
        brokers=build_event_sources(settings, _NullEventHandler()),
    )


def _load_daemon_state(settings: Settings) -> tuple[ReconcileState, list[Finding]]:
    """The daemon's state, an empty one where none can be read, and what there is to say of the daemon."""
    try:
        with Store.open_to_read(settings.daemon.state_dir) as store:
            silent = hung_after_seconds(settings.daemon.poll_seconds)
            state, now = store.load(), system_clock()
            runs = owner_of(settings.daemon.state_dir) is not None
            last = check_last_cycle(store.load_report("cycle"), now, silent, is_running=runs)
            lost = check_private_names(store.load_report("private").get("trouble"))
            return state, [*last, *check_generations(state.ads, now), *lost]
    except StateMissing:
        return ReconcileState(), []
    except StateError as error:
        return ReconcileState(), [Finding(Level.WARN, "daemon", str(error), "run this check as it")]
