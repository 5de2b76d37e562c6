"""The parts as ``hydrator check`` looks at them."""

from hydrator.config import Settings
from hydrator.diagnostics.check.examine import Examined, Finding, Level
from hydrator.diagnostics.check.last_cycle import last_cycle, names_lost, refused_generations, silent_after
from hydrator.diagnostics.check.secrets import examine_credentials, examine_secrets
from hydrator.domain.errors import StateError, StateMissing
from hydrator.domain.model import unix
from hydrator.state.store import State, Store, owner_of

from .assembly import Parts, brokers
from .clock import system_clock
from .credentials import credentials
from .privacy import register_of


class _Deaf:
    """Ears of somebody who only tries whether there is something to hear."""

    def hear(self, source: str, body: bytes | None) -> None:
        pass

    def connected(self, source: str) -> None:
        pass

    def unconnected(self, source: str, why: str) -> None:
        pass


def examined(settings: Settings, parts: Parts) -> Examined:
    """The parts as ``hydrator check`` looks at them, and what a daemon that ran here left in its state."""
    state, daemon = _left(settings)
    return Examined(
        catalogues=parts.catalogues,
        pool=parts.client,
        collectors=parts.collectors,
        queues=parts.queues,
        rules=parts.rules,
        slot_attributes=settings.sites.slot_attributes,
        ad_folder=settings.publish.file.directory if settings.publish.file.enabled else None,
        sites_file=settings.publish.sites.path if settings.publish.sites.enabled else None,
        advertises=settings.publish.collector.enabled,
        merges=settings.publish.merge.enabled,
        merge_seconds=settings.publish.merge.interval_seconds,
        now=unix(system_clock()),
        editor=parts.editor,
        edits=settings.publish.desired_sites.enabled
        and settings.publish.desired_sites.token_directory is None,
        secrets=[
            *examine_secrets(settings, lambda given: register_of(given, owned=False)),
            *examine_credentials(credentials(settings, parts), system_clock()),
        ],
        held={site: one.text(settings.breaker.confirm_polls) for site, one in state.held.items()},
        rolled_back={site: one.text for site, one in state.rollbacks.items()},
        audit=state.audit,
        warn_below=settings.audit.warn_below,
        daemon=daemon,
        brokers=brokers(settings, _Deaf()),
    )


def _left(settings: Settings) -> tuple[State, list[Finding]]:
    """The daemon's state, an empty one where none can be read, and what there is to say of the daemon."""
    try:
        with Store.open_to_read(settings.daemon.state_dir) as store:
            silent = silent_after(settings.daemon.poll_seconds)
            state, now = store.load(), system_clock()
            runs = owner_of(settings.daemon.state_dir) is not None
            last = last_cycle(store.report("cycle"), now, silent, runs=runs)
            lost = names_lost(store.report("private").get("trouble"))
            return state, [*last, *refused_generations(state.ads, now), *lost]
    except StateMissing:
        return State(), []
    except StateError as error:
        return State(), [Finding(Level.WARN, "daemon", str(error), "run this check as it")]
