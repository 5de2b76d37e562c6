"""All that one configuration calls for."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from adapters.condor import CondorClient
from adapters.condor.collector import PoolSlots
from adapters.condor.peers import CollectorPeers
from adapters.condor.schedds import ScheddMisses, ScheddQueues
from adapters.http_publisher import ServedAds
from adapters.stomp.source import StompSettings, StompSource, build_tls_context
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import ConfigError
from hydrator.domain.events import MAX_EVENT_BYTES
from hydrator.domain.ports import (
    Catalogue,
    Clock,
    EventHandler,
    EventSource,
    JobHistory,
    Merger,
    MissReports,
    Peers,
    Queues,
    ServerEndpoint,
    Slots,
    TokenValidity,
)
from hydrator.privacy.pseudonym_store import PseudonymStore
from hydrator.privacy.wrappers import PseudonymizedCatalogue, PseudonymizedQueues
from hydrator.reconcile.audit.runner import AuditRunner
from hydrator.reconcile.desired_sites.controller import DesiredSitesController
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.publish.targets import PublishTarget
from hydrator.reconcile.reconciler import CycleTimeouts, Reconciler
from hydrator.reconcile.state import ReconcileState
from hydrator.state.command_files import CommandQueue
from hydrator.state.store import Store

from ..config import Settings
from .audit import build_audit_runner
from .catalogues import build_catalogues
from .condor import (
    build_client_job_history,
    build_collector_clients,
    build_condor_client,
    build_desired_sites_controller,
    build_editing_client,
    build_slot_merger,
)
from .policies import reconcile_policy
from .privacy import register_secrets
from .publishers import build_publish_targets


@dataclass(frozen=True)
class Parts:
    """Everything that one configuration calls for."""

    catalogues: tuple[Catalogue, ...]
    client: CondorClient | None
    publish_targets: tuple[PublishTarget, ...]
    queues: Queues | None
    policy: ReconcilePolicy
    served_ads: ServedAds | None
    pseudonym_store: PseudonymStore | None = None
    audit_runner: AuditRunner | None = None
    misses: MissReports | None = None
    history: JobHistory | None = None
    logins: Mapping[str, Callable[[], TokenValidity | None]] = field(default_factory=dict)
    merger: Merger | None = None
    peers: Peers | None = None
    slots: Slots | None = None
    desired_sites: DesiredSitesController | None = None
    editor: CondorClient | None = None
    schedds: ScheddQueues | None = None
    collectors: Mapping[str, CondorClient] = field(default_factory=dict)
    """Clients that publish to one collector each, by the publisher's name, where there are several."""

    @property
    def child_restarts(self) -> int:
        """How often the HTCondor child processes that cycles use were started again."""
        return sum(one.restart_count for one in (self.client, *self.collectors.values()) if one)

    def build_reconciler(
        self,
        state: ReconcileState,
        store: Store | None,
        clock: Clock,
        orders: CommandQueue | None = None,
        fence: Fence | None = None,
        *,
        timeouts: CycleTimeouts | None = None,
        bugs: BugReporter | None = None,
        on_late_answer: Callable[[], None] = lambda: None,
    ) -> Reconciler:
        """Build what runs cycles over these parts; see :class:`hydrator.reconcile.reconciler.Reconciler`."""
        if not self.catalogues:  # such a configuration is for hosts that only submit
            raise ConfigError(['catalogue: there is none; add [[catalogue]] with type = "file" or "rucio"'])
        return Reconciler(
            catalogues=self.catalogues,
            queues=self.queues,
            targets=self.publish_targets,
            policy=self.policy,
            clock=clock,
            state=state,
            store=store,
            commands=orders,
            fence=fence,
            take_verdicts=self.audit_runner.take_verdicts if self.audit_runner else tuple,
            timeouts=timeouts or CycleTimeouts(),
            bugs=bugs,
            on_late_answer=on_late_answer,
        )

    def close(self) -> None:
        """Close every part, first those that change what others own; one that fails keeps no other open."""
        others = (self.merger, self.desired_sites, self.editor, self.client, *self.collectors.values())
        asking = (self.audit_runner, self.misses, self.history, self.slots, self.schedds)
        with contextlib.ExitStack() as closing:
            for part in reversed([*others, *asking, *self.catalogues]):
                if part:
                    closing.callback(part.close)


def assemble(
    settings: Settings,
    clock: Clock,
    *,
    served_ads: ServedAds | None = None,
    get_endpoint: Callable[[], ServerEndpoint | None] | None = None,
    pseudonym_store: PseudonymStore | None = None,
) -> Parts:
    """Build all that *settings* name.

    *door* tells how our HTTP server is reached; without it there is none, and
    nothing is published to it. *board* is what it served before a reload.
    With a *register* (see :func:`build_pseudonym_store`) the parts know private
    datasets by opaque names; without one the catalogues answer in plain.

    Raises:
        ConfigError: with every problem of files that the configuration names.
    """
    register_secrets(settings)
    publish = settings.publish
    needs_pool = settings.demand.ask_schedds or publish.collector.enabled or publish.merge.enabled
    client = build_condor_client(settings) if needs_pool else None
    served_ads = (served_ads or ServedAds()) if get_endpoint and publish.http.enabled else None
    catalogues, logins = build_catalogues(settings, clock)
    schedds: ScheddQueues | None = None
    if client and settings.demand.ask_schedds:  # through clients of their own: no cycle waits for a schedd
        schedds = ScheddQueues(build_condor_client(settings), clock, lambda: build_condor_client(settings))
    queues: Queues | None = schedds
    if pseudonym_store:
        catalogues = tuple(
            PseudonymizedCatalogue(catalogue, pseudonym_store, clock) for catalogue in catalogues
        )
        queues = queues and PseudonymizedQueues(
            queues, pseudonym_store.pseudonymizer, settings.daemon.default_scope
        )
    audited = build_audit_runner(settings, clock, pseudonym_store) if settings.audit.enabled else None
    patient = (
        build_condor_client(settings) if settings.demand.ask_schedds else None
    )  # that no cycle waits for
    into = build_collector_clients(settings, client) if client and publish.collector.enabled else {}
    editor = build_editing_client(settings) if publish.desired_sites.enabled else None
    return Parts(
        catalogues=catalogues,
        client=client,
        publish_targets=tuple(build_publish_targets(settings, clock, into, served_ads, get_endpoint)),
        queues=queues,
        policy=reconcile_policy(settings, pseudonym_store.pseudonymizer if pseudonym_store else None),
        served_ads=served_ads,
        pseudonym_store=pseudonym_store,
        audit_runner=audited,
        misses=ScheddMisses(patient, clock)
        if patient and audited and settings.audit.misses_seconds
        else None,
        logins=logins,
        peers=CollectorPeers(
            client,
            2 * timedelta(seconds=max(60, settings.standby.after_seconds)),
            clock,
            settings.standby.identities,
        )
        if client and settings.standby.enabled
        else None,
        history=build_client_job_history(settings, patient, clock)
        if patient and settings.report.count_seconds
        else None,
        merger=build_slot_merger(settings, clock) if settings.publish.merge.enabled else None,
        desired_sites=build_desired_sites_controller(settings, editor, clock) if editor else None,
        editor=editor,
        schedds=schedds,
        collectors={name: one for name, one in into.items() if one is not client},
        slots=PoolSlots(patient or build_condor_client(settings), settings.sites.slot_attributes)
        if needs_pool and settings.report.slots_seconds
        else None,
    )


def build_event_sources(settings: Settings, handler: EventHandler) -> Sequence[EventSource]:
    """Those that send us events, not listened to yet.

    Raises:
        ConfigError: a certificate cannot be used.
    """
    chosen = [
        StompSettings(
            name=one.name,
            host=one.host,
            port=one.port,
            destination=one.destination,
            virtual_host=one.virtual_host,
            username=one.username,
            password_file=one.password_file,
            tls=one.tls,
            ca_cert=one.ca_cert,
            client_cert=one.client_cert,
            client_key=one.client_key,
            timeout=timedelta(seconds=one.timeout_seconds),
            heartbeat=timedelta(seconds=one.heartbeat_seconds),
            max_bytes=MAX_EVENT_BYTES,
        )
        for one in settings.events.stomp
    ]
    for one in chosen:
        build_tls_context(one)  # told now rather than at every connection
    return [StompSource(one, handler) for one in chosen]
