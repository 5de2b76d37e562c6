"""All that one configuration calls for."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from adapters.condor import CondorClient
from adapters.condor.peers import CollectorPeers
from adapters.condor.schedds import ScheddMisses, ScheddQueues
from adapters.condor.slots import PoolSlots
from adapters.http_publisher import Board
from adapters.stomp.source import StompSettings, StompSource, tls_context
from hydrator.daemon.event_queue import MAX_EVENT_BYTES
from hydrator.domain.bugs import Bugs
from hydrator.domain.errors import ConfigError
from hydrator.domain.ports import (
    Catalogue,
    Clock,
    Door,
    Ears,
    EventSource,
    History,
    Login,
    Merger,
    Misses,
    Peers,
    Queues,
    Slots,
)
from hydrator.privacy.pseudonym_store import Register
from hydrator.privacy.wrappers import VeiledCatalogue, VeiledQueues
from hydrator.reconcile.audit.runner import Auditing
from hydrator.reconcile.desired_sites.controller import Desiring
from hydrator.reconcile.publish.fence import Fence
from hydrator.reconcile.reconciler import Cycle, Outlet, Patience, Rules
from hydrator.state.command_files import Orders
from hydrator.state.store import State, Store

from ..config import Settings
from .audit import auditing_of
from .catalogues import catalogues_and_logins
from .condor import (
    collector_clients,
    condor_client,
    desiring_by,
    editing_client,
    history_by,
    slot_merger,
)
from .policies import rules
from .privacy import keep_secrets
from .publishers import outlets_of


@dataclass(frozen=True)
class Parts:
    """Everything that one configuration calls for."""

    catalogues: tuple[Catalogue, ...]
    client: CondorClient | None
    outlets: tuple[Outlet, ...]
    queues: Queues | None
    rules: Rules
    board: Board | None
    register: Register | None = None
    auditing: Auditing | None = None
    misses: Misses | None = None
    history: History | None = None
    logins: Mapping[str, Callable[[], Login | None]] = field(default_factory=dict)
    merger: Merger | None = None
    peers: Peers | None = None
    slots: Slots | None = None
    desiring: Desiring | None = None
    editor: CondorClient | None = None
    schedds: ScheddQueues | None = None
    collectors: Mapping[str, CondorClient] = field(default_factory=dict)
    """Clients that publish to one collector each, by the publisher's name, where there are several."""

    @property
    def child_restarts(self) -> int:
        """How often the HTCondor child processes that cycles use were started again."""
        return sum(one.restarts for one in (self.client, *self.collectors.values()) if one)

    def cycle(
        self,
        state: State,
        store: Store | None,
        clock: Clock,
        orders: Orders | None = None,
        fence: Fence | None = None,
        *,
        patience: Patience | None = None,
        bugs: Bugs | None = None,
        answered: Callable[[], None] = lambda: None,
    ) -> Cycle:
        """Build what runs cycles over these parts; see :class:`hydrator.reconcile.reconciler.Cycle`."""
        if not self.catalogues:  # such a configuration is for hosts that only submit
            raise ConfigError(['catalogue: there is none; add [[catalogue]] with type = "file" or "rucio"'])
        return Cycle(
            catalogues=self.catalogues,
            queues=self.queues,
            outlets=self.outlets,
            rules=self.rules,
            clock=clock,
            state=state,
            store=store,
            orders=orders,
            fence=fence,
            verdicts=self.auditing.verdicts if self.auditing else tuple,
            patience=patience or Patience(),
            bugs=bugs,
            answered=answered,
        )

    def close(self) -> None:
        """Close every part, first those that change what others own; one that fails keeps no other open."""
        others = (self.merger, self.desiring, self.editor, self.client, *self.collectors.values())
        asking = (self.auditing, self.misses, self.history, self.slots, self.schedds)
        with contextlib.ExitStack() as closing:
            for part in reversed([*others, *asking, *self.catalogues]):
                if part:
                    closing.callback(part.close)


def assemble(
    settings: Settings,
    clock: Clock,
    *,
    board: Board | None = None,
    door: Callable[[], Door | None] | None = None,
    register: Register | None = None,
) -> Parts:
    """Build all that *settings* name.

    *door* tells how our HTTP server is reached; without it there is none, and
    nothing is published to it. *board* is what it served before a reload.
    With a *register* (see :func:`register_of`) the parts know private
    datasets by opaque names; without one the catalogues answer in plain.

    Raises:
        ConfigError: with every problem of files that the configuration names.
    """
    keep_secrets(settings)
    publish = settings.publish
    needs_pool = settings.demand.ask_schedds or publish.collector.enabled or publish.merge.enabled
    client = condor_client(settings) if needs_pool else None
    board = (board or Board()) if door and publish.http.enabled else None
    catalogues, logins = catalogues_and_logins(settings, clock)
    schedds: ScheddQueues | None = None
    if client and settings.demand.ask_schedds:  # through clients of their own: no cycle waits for a schedd
        schedds = ScheddQueues(condor_client(settings), clock, lambda: condor_client(settings))
    queues: Queues | None = schedds
    if register:
        catalogues = tuple(VeiledCatalogue(catalogue, register, clock) for catalogue in catalogues)
        queues = queues and VeiledQueues(queues, register.veil, settings.daemon.default_scope)
    audited = auditing_of(settings, clock, register) if settings.audit.enabled else None
    patient = condor_client(settings) if settings.demand.ask_schedds else None  # that no cycle waits for
    into = collector_clients(settings, client) if client and publish.collector.enabled else {}
    editor = editing_client(settings) if publish.desired_sites.enabled else None
    return Parts(
        catalogues=catalogues,
        client=client,
        outlets=tuple(outlets_of(settings, clock, into, board, door)),
        queues=queues,
        rules=rules(settings, register.veil if register else None),
        board=board,
        register=register,
        auditing=audited,
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
        history=history_by(settings, patient, clock) if patient and settings.report.count_seconds else None,
        merger=slot_merger(settings, clock) if settings.publish.merge.enabled else None,
        desiring=desiring_by(settings, editor, clock) if editor else None,
        editor=editor,
        schedds=schedds,
        collectors={name: one for name, one in into.items() if one is not client},
        slots=PoolSlots(patient or condor_client(settings), settings.sites.slot_attributes)
        if needs_pool and settings.report.slots_seconds
        else None,
    )


def brokers(settings: Settings, ears: Ears) -> Sequence[EventSource]:
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
        tls_context(one)  # told now rather than at every connection
    return [StompSource(one, ears) for one in chosen]
