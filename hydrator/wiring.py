"""From names in the configuration to the adapters that keep the promises; nobody else imports adapters."""

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adapters import directory
from adapters._http import Limits as WebLimits
from adapters._http import Server
from adapters._oidc import ClientCredentials, ClientSettings, TokenFile
from adapters.adfile import AdFilePublisher
from adapters.collector import CollectorPublisher
from adapters.condor import CondorClient, CondorSettings
from adapters.dmapi import DmapiCatalogue, DmapiSettings
from adapters.file import FileCatalogue
from adapters.jobsites import ScheddJobSites
from adapters.peers import CollectorPeers
from adapters.probe import CommandProbe, ProbeSettings
from adapters.schedds import ScheddHistory, ScheddMisses, ScheddQueues
from adapters.site_capabilities import SiteCapabilities
from adapters.sitesfile import SitesFilePublisher
from adapters.slotmerge import SlotMerger
from adapters.slots import PoolSlots
from adapters.stomp import StompSettings, StompSource, tls_context
from adapters.web import Board, WebPublisher

from . import plugins
from .ads import Budget
from .auditing import Auditing
from .breaker import Limits
from .check import Examined, Finding, Level
from .config import (
    DmapiSource,
    FileSource,
    PluginSource,
    RucioSource,
    Settings,
    SiteCapabilitiesSettings,
    Source,
)
from .credentials import Credential, of_certificates, of_idtokens, of_login, of_token
from .cycle import Cycle, Outlet, Rules
from .desiring import Desiring
from .errors import ConfigError, PoolError, StateError, StateMissing
from .events import MAX_EVENT_BYTES
from .exchange import Exchanging
from .keeping import examine_credentials, examine_secrets
from .lastcycle import last_cycle
from .model import Did, ReplicaState, Site, parse_did, unix
from .orders import Orders
from .paths import local_paths
from .places import PlacedAuditor, PlacedCatalogue, Places
from .plan import Policy
from .poolconfig import NEGOTIATOR_PRESENT, SCHEDD_PRESENT, STARTD_PRESENT, PoolPolicy
from .ports import (
    Auditor,
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
    Probe,
    Queues,
    Slots,
)
from .private import Privacy, Veil
from .redact import Redactor
from .register import FILE_NAME, Register, read_key
from .store import State, Store
from .veiled import VeiledAuditor, VeiledCatalogue, VeiledProbe, VeiledQueues

if TYPE_CHECKING:
    from adapters.rucio import RucioSettings

_MARGIN = timedelta(minutes=15)
"""How much sooner jobs stop trusting a fact than the daemon does: they never meet an UNKNOWN first."""


_LARGEST = 1 << 20
"""Bytes of a file with a credential that are read."""

OUR_PLUGINS: Mapping[str, plugins.Factory] = {"directory": directory.catalogue}


def system_clock() -> datetime:
    """The aware UTC time now, from the system."""
    return datetime.now(UTC)  # noqa: TID251 - the one place where the clock is read


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

    def cycle(self, state: State, store: Store | None, clock: Clock, orders: Orders | None = None) -> Cycle:
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
            verdicts=self.auditing.verdicts if self.auditing else tuple,
        )

    def close(self) -> None:
        for catalogue in self.catalogues:
            catalogue.close()
        if self.auditing:
            self.auditing.close()
        if self.misses:
            self.misses.close()
        if self.history:
            self.history.close()
        if self.merger:
            self.merger.close()
        if self.slots:
            self.slots.close()
        if self.desiring:
            self.desiring.close()
        if self.editor:
            self.editor.close()
        if self.client:
            self.client.close()


def witnesses(settings: Settings) -> tuple[Catalogue, ...]:
    """The daemon, where [submit] says where it answers: it can be read like a catalogue, not searched.

    Raises:
        ConfigError: a secret would be sent in the clear, or a file of it cannot be read.
    """
    submit = settings.submit
    if not submit.daemon_url:
        return ()
    from adapters.daemon import DaemonCatalogue

    secret = bool(submit.token_file or settings.private.patterns)
    daemon = DaemonCatalogue(
        submit.daemon_url, token_file=submit.token_file, ca_cert=submit.ca_cert, secret=secret
    )
    return (Exchanging(daemon, settings),) if settings.private.patterns else (daemon,)


def condor_client(settings: Settings, tokens: Path | None = None) -> CondorClient:
    """The supervised child that holds the HTCondor bindings; it starts at the first question.

    With *tokens* it has the credentials of that folder, and no others.
    """
    pool = settings.htcondor
    only = {"SEC_TOKEN_SYSTEM_DIRECTORY": str(tokens)} if tokens else {}
    return CondorClient(
        CondorSettings(
            collector=pool.collector,
            config_file=pool.config_file,
            token_directory=tokens or pool.token_directory,
            params=only,
            timeout=timedelta(seconds=pool.timeout_seconds),
        )
    )


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
    publish = settings.publish
    needs_pool = settings.demand.ask_schedds or publish.collector.enabled or publish.merge.enabled
    client = condor_client(settings) if needs_pool else None
    board = (board or Board()) if door and publish.http.enabled else None
    catalogues, logins = _catalogues(settings, clock)
    queues: Queues | None = None
    if client and settings.demand.ask_schedds:
        queues = ScheddQueues(client, clock)
    if register:
        catalogues = tuple(VeiledCatalogue(catalogue, register, clock) for catalogue in catalogues)
        queues = queues and VeiledQueues(queues, register.veil, settings.daemon.default_scope)
    audited = _auditing(settings, clock, register) if settings.audit.enabled else None
    patient = condor_client(settings) if settings.demand.ask_schedds else None  # that no cycle waits for
    editor = editing_client(settings) if publish.desired_sites.enabled else None
    return Parts(
        catalogues=catalogues,
        client=client,
        outlets=tuple(_outlets(settings, clock, client, board, door)),
        queues=queues,
        rules=rules(settings, register.veil if register else None),
        board=board,
        register=register,
        auditing=audited,
        misses=ScheddMisses(patient, clock)
        if patient and audited and settings.audit.misses_seconds
        else None,
        logins=logins,
        peers=CollectorPeers(client, 2 * timedelta(seconds=max(60, settings.standby.after_seconds)))
        if client and settings.standby.enabled
        else None,
        history=_history(settings, patient, clock) if patient and settings.report.count_seconds else None,
        merger=slot_merger(settings, clock) if settings.publish.merge.enabled else None,
        desiring=_desiring(settings, editor, clock) if editor else None,
        editor=editor,
        slots=PoolSlots(patient or condor_client(settings), settings.sites.slot_attributes)
        if needs_pool and settings.report.slots_seconds
        else None,
    )


def slot_merger(settings: Settings, clock: Clock) -> SlotMerger:
    """The merges, in a child process of their own: a collector that hangs holds up no cycle."""
    merge = settings.publish.merge
    return SlotMerger(
        condor_client(settings),
        settings.sites.slot_attributes,
        pace=merge.slots_per_second,
        interval=timedelta(seconds=merge.interval_seconds),
        clock=clock,
    )


def editing_client(settings: Settings) -> CondorClient:
    """A child process of its own for edits of queued jobs, as whoever may."""
    return condor_client(settings, settings.publish.desired_sites.token_directory)


def _desiring(settings: Settings, client: CondorClient, clock: Clock) -> Desiring:
    chosen = settings.publish.desired_sites
    return Desiring(
        ScheddJobSites(client),
        clock,
        max_age=settings.daemon.bound - _MARGIN,
        default_scope=settings.daemon.default_scope,
        pace=chosen.jobs_per_second,
        interval=timedelta(seconds=chosen.interval_seconds),
    )


def credentials(settings: Settings, parts: Parts) -> list[Credential]:
    """What we show to others, and when it ends; what cannot be read, or has no end, is not listed."""
    found: list[Credential | None] = []
    for source in settings.catalogue:
        key = f"catalogue {source.name}: "
        if isinstance(source, RucioSource | DmapiSource):
            found.append(of_token(f"{key}token_file", "token-files", _text(source.token_file)))
        if isinstance(source, RucioSource) and source.auth == "x509":
            found.append(of_certificates(f"{key}client_cert", "x509", _text(source.client_cert)))
    token = settings.site_capabilities.token_file
    found.append(of_token("site_capabilities.token_file", "token-files", _text(token)))
    for broker in settings.events.stomp:
        key = f"events.stomp {broker.name}: client_cert"
        found.append(of_certificates(key, "x509", _text(broker.client_cert)))
    tls = settings.publish.http.tls_certificate
    found.append(of_certificates("publish.http.tls_certificate", "tls", _text(tls)))
    found += [of_login(f"{name}: login", login()) for name, login in parts.logins.items()]
    found += _idtokens(parts.client) if parts.client else []
    if parts.editor and settings.publish.desired_sites.token_directory:
        found += [replace(one, name=f"{one.name}, for edits") for one in _idtokens(parts.editor)]
    return [one for one in found if one]


def _idtokens(client: CondorClient) -> list[Credential]:
    texts = []
    with contextlib.suppress(PoolError):
        for folder in client.token_folders():
            with contextlib.suppress(OSError):
                texts += [_text(file) for file in sorted(folder.iterdir()) if file.is_file()]
    return of_idtokens(texts)


def _text(file: Path | None) -> str:
    """The text of a small *file*; empty where it cannot be read, which who needs it says."""
    if file is None:
        return ""
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""


def history_of(settings: Settings, clock: Clock) -> History:
    """What became of jobs, asked through a child process of its own."""
    return _history(settings, condor_client(settings), clock)


def _history(settings: Settings, client: CondorClient, clock: Clock) -> History:
    recorded = dict.fromkeys(("DataLocalitySite", *settings.sites.slot_attributes))
    return ScheddHistory(client, clock, tuple(recorded))


def _auditing(settings: Settings, clock: Clock, register: Register | None) -> Auditing:
    """The audit, on connections of its own."""
    plain: dict[str, Auditor] = {
        source.name: _auditor(source, settings, clock)
        for source in settings.catalogue
        if not isinstance(source, DmapiSource | PluginSource)  # one answer, and no second way to it
    }
    if chosen := places(settings):
        plain = {name: PlacedAuditor(one, chosen) for name, one in plain.items()}
    auditors = {name: VeiledAuditor(one, register) if register else one for name, one in plain.items()}
    probe = _probe(settings)
    veiled = VeiledProbe(probe, register) if probe and register else probe
    return Auditing(auditors, veiled, clock, seed=unix(clock()))


def _auditor(source: FileSource | RucioSource, settings: Settings, clock: Clock) -> Auditor:
    if isinstance(source, FileSource):
        return FileCatalogue(source.name, source.path, clock, settings.daemon.default_scope)
    from adapters._rucio_audit import RucioAuditor

    capabilities = site_capabilities(source.name, settings, clock)
    return RucioAuditor(_rucio_settings(source, settings), clock, capabilities)


def _probe(settings: Settings) -> Probe | None:
    if not settings.audit.probe:
        return None
    probes = [
        ProbeSettings(
            tuple(probe.command),
            tuple(probe.sites),
            tuple(probe.catalogues),
            timedelta(seconds=probe.timeout_seconds),
        )
        for probe in settings.audit.probe
    ]

    def path_at(site: Site, did: Did) -> str | None:
        return local_paths(settings.storage, [did]).get(site, {}).get(did)

    return CommandProbe(probes, path_at)


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


def called(veil: Veil | None) -> Callable[[Did], Collection[Did]]:
    """What jobs may call a dataset: itself, or where it is private its opaque names alone."""

    def names(did: Did) -> Collection[Did]:
        return veil.names(did) if veil and veil.privacy.hides(did) else (did,)

    return names


def privacy(settings: Settings) -> Privacy:
    """Which datasets are private; needs no key."""
    return Privacy(tuple(settings.private.patterns))


def register_of(settings: Settings, *, owned: bool = True) -> Register | None:
    """The opaque names of private datasets; None where none are private.

    *owned* is False for who only looks: the file of names may be out of reach then.

    Raises:
        ConfigError: with every key that cannot be used.
    """
    if not settings.private.patterns:
        return None
    if settings.private.key_file is None:
        raise ConfigError(["private.key_file: the daemon needs it: 32 random bytes or more, mode 600"])
    files = [("private.key_file", settings.private.key_file)]
    files += [("private.old_key_files", file) for file in settings.private.old_key_files]
    keys: list[bytes] = []
    problems: list[str] = []
    for name, file in files:
        try:
            keys.append(read_key(file, name))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    names = settings.daemon.state_dir / FILE_NAME
    readable = owned or os.access(names, os.R_OK)
    register = Register(Veil(privacy(settings), tuple(keys)), names if readable else None)
    register.learn(parse_did(pin, settings.daemon.default_scope) for pin in settings.demand.pins)
    return register


def redactor(settings: Settings) -> Redactor:
    """What looks through every line of the log: for the secrets of *settings*, and for private datasets.

    A secret that cannot be read now is none that could be logged.
    """
    files = [settings.private.key_file, *settings.private.old_key_files, settings.submit.token_file]
    for source in settings.catalogue:
        names = ("password_file", "token_file", "client_secret_file")
        files += [getattr(source, name, None) for name in names]
    files += [broker.password_file for broker in settings.events.stomp]
    files += [settings.site_capabilities.token_file, settings.site_capabilities.client_secret_file]
    secrets = []
    for file in filter(None, files):
        with contextlib.suppress(OSError):
            secrets.append(file.read_bytes().decode("utf-8", "replace").strip())
    try:
        register = register_of(settings, owned=False)
    except ConfigError:  # told by who needs the key
        register = None
    return Redactor(secrets, register.veil.scrubbed if register else privacy(settings).scrubbed)


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
        queues=parts.queues,
        rules=parts.rules,
        slot_attributes=settings.sites.slot_attributes,
        ad_folder=settings.publish.file.directory if settings.publish.file.enabled else None,
        sites_file=settings.publish.sites.path if settings.publish.sites.enabled else None,
        advertises=settings.publish.collector.enabled,
        merges=settings.publish.merge.enabled,
        editor=parts.editor,
        edits=settings.publish.desired_sites.enabled
        and settings.publish.desired_sites.token_directory is None,
        secrets=[
            *examine_secrets(settings, lambda given: register_of(given, owned=False)),
            *examine_credentials(credentials(settings, parts), system_clock()),
        ],
        held={site: one.text(settings.breaker.confirm_polls) for site, one in state.held.items()}
        | {site: one.text for site, one in state.rollbacks.items()},
        audit=state.audit,
        warn_below=settings.audit.warn_below,
        daemon=daemon,
        brokers=brokers(settings, _Deaf()),
    )


def _left(settings: Settings) -> tuple[State, list[Finding]]:
    """The daemon's state, an empty one where none can be read, and what there is to say of the daemon."""
    try:
        with Store.open_to_read(settings.daemon.state_dir) as store:
            silent = settings.daemon.poll_seconds + settings.daemon.hang_seconds
            return store.load(), list(last_cycle(store.report("cycle"), system_clock(), silent))
    except StateMissing:
        return State(), []
    except StateError as error:
        return State(), [Finding(Level.WARN, "daemon", str(error), "run this check as it")]


def pool_policy(settings: Settings) -> PoolPolicy:
    """What the pool's configuration says of jobs; facts count a little less long than they are published."""
    jobs = settings.jobs
    return PoolPolicy(
        default_mode=jobs.default_mode,
        default_scope=settings.daemon.default_scope,
        max_age=settings.daemon.bound - _MARGIN,
        wait=timedelta(seconds=jobs.wait_seconds),
        settle=timedelta(seconds=jobs.settle_seconds),
        rounding_floor=timedelta(seconds=jobs.rounding_seconds),
        rank_weight=jobs.rank_weight,
        staging_credit=jobs.staging_credit,
    )


def present_values(
    settings: Settings, roles: Sequence[str], name: str | None
) -> tuple[dict[str, dict[str, str | None]], list[str]]:
    """What the pool's daemons are configured with now, by role, and why some could not be asked."""
    wanted = {"schedd": SCHEDD_PRESENT, "startd": STARTD_PRESENT, "negotiator": NEGOTIATOR_PRESENT}
    present: dict[str, dict[str, str | None]] = {role: {} for role in wanted}
    unread = []
    client = condor_client(settings)
    try:
        for role in roles:
            try:
                present[role] = client.config_of(role, wanted[role], name)  # type: ignore[arg-type]
            except PoolError as error:
                unread.append(
                    f"the present values of the {role} are not known, the text extends them: {error}"
                )
    finally:
        client.close()
    return present, unread


def rules(settings: Settings, veil: Veil | None = None) -> Rules:
    """The part of *settings* that the core works by; without a *veil*, private pins are left out."""
    scope = settings.daemon.default_scope
    hides = privacy(settings).hides
    pins = [parse_did(pin, scope) for pin in settings.demand.pins]
    everything = ("*",) if settings.demand.scope == "all" else ()
    return Rules(
        default_scope=scope,
        pins=frozenset(veil.opaque(pin) if veil else pin for pin in pins if veil or not hides(pin)),
        patterns=(*settings.demand.patterns, *everything),
        keep_demand=timedelta(hours=settings.demand.keep_hours),
        bound=settings.daemon.bound,
        budget=Budget(settings.budget.line_bytes, settings.budget.ad_bytes),
        limits=Limits(
            settings.breaker.site_share,
            settings.breaker.all_share,
            settings.breaker.min_datasets,
            settings.breaker.confirm_polls,
            apart=timedelta(seconds=settings.daemon.poll_seconds / 2),  # a cycle for new demand is no poll
        ),
        audit_window=timedelta(hours=settings.audit.window_hours),
        include_sites=tuple(settings.sites.include),
        retired=frozenset(settings.sites.retired),  # type: ignore[arg-type]
    )


def _catalogues(
    settings: Settings, clock: Clock
) -> tuple[tuple[Catalogue, ...], dict[str, Callable[[], Login | None]]]:
    """The catalogues, and how long their logins last."""
    problems: list[str] = []
    found: list[Catalogue] = []
    logins: dict[str, Callable[[], Login | None]] = {}
    for source in settings.catalogue:
        try:
            bare = _catalogue(source, settings, clock)
            logins[f"catalogue {source.name}"] = lambda bare=bare: getattr(bare, "login", None)  # type: ignore[misc]
            found.append(_placed(bare, settings))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return tuple(found), logins


def places(settings: Settings) -> Places:
    """What the operator says of sites: other names, and whose storage they read."""
    return Places(
        {Site(name): Site(site) for name, site in settings.sites.aliases.items()},
        {
            Site(site): {Site(other): cost for other, cost in others.items()}
            for site, others in settings.sites.reads.items()
        },
    )


def _placed(catalogue: Catalogue, settings: Settings) -> Catalogue:
    chosen = places(settings)
    return PlacedCatalogue(catalogue, chosen) if chosen else catalogue


def _catalogue(source: Source, settings: Settings, clock: Clock) -> Catalogue:
    if isinstance(source, FileSource):
        return FileCatalogue(source.name, source.path, clock, settings.daemon.default_scope)
    if isinstance(source, DmapiSource):
        return _dmapi(source, settings, clock)
    if isinstance(source, PluginSource):
        factory = OUR_PLUGINS.get(source.type) or plugins.factory_of(source.type)
        return plugins.made(factory, source.type, source.name, source.options, clock)
    return _rucio(source, settings, clock)


def _dmapi(source: DmapiSource, settings: Settings, clock: Clock) -> Catalogue:
    storage_sites = {
        key: (sites,) if isinstance(sites, str) else tuple(sites)
        for key, sites in source.storage_sites.items()
    }
    bare = {"partial": ReplicaState.PARTIAL, "complete": ReplicaState.COMPLETE, "unseen": None}
    known = DmapiSettings(
        source.name,
        storage_sites=storage_sites,
        bare_location=bare[source.bare_location],
        count_files=source.count_files,
        limit=source.limit,
        parallel=source.parallel,
        deadline=timedelta(seconds=source.deadline_seconds),
        list_path=source.list_path,
    )
    server = _server(source.name, source.url, source, clock)
    return DmapiCatalogue(known, server, clock, capabilities=site_capabilities(source.name, settings, clock))


def site_capabilities(name: str, settings: Settings, clock: Clock) -> SiteCapabilities | None:
    """SKA's Site Capabilities on behalf of the catalogue *name*; None where none is configured.

    Raises:
        ConfigError: a file that it needs cannot be read.
    """
    chosen = settings.site_capabilities
    if not chosen.url:
        return None
    refresh = timedelta(minutes=chosen.refresh_minutes)
    return SiteCapabilities(_server(name, chosen.url, chosen, clock), refresh)


def described(url: str, settings: Settings | None) -> tuple[Any, str]:
    """What the DMAPI at *url* says of itself in ``openapi.json``, and the ``list_path`` configured for it.

    It stands at the application's root, so above ``/api/v1``, and needs no token: none is sent.
    Where *settings* have a DMAPI at *url*, its ``ca_cert`` counts.

    Raises:
        ConfigError: *url* is none, or there is no such document.
        CatalogueError: it cannot be asked.
    """
    if not url.startswith(("https://", "http://")):
        raise ConfigError([f"--dmapi {url}: give an address that starts with https://"])
    url = url.rstrip("/")
    sources = settings.catalogue if settings else []
    source = next((s for s in sources if isinstance(s, DmapiSource) and s.url.rstrip("/") == url), None)
    versionless = url.rpartition("/")[0] if url.rpartition("/")[2].startswith("v") else url
    roots = dict.fromkeys([versionless.removesuffix("/api"), versionless, url])
    for root in roots:
        server = Server("dmapi", root, ca_cert=source.ca_cert if source else None)
        try:
            answer = server.get("/openapi.json")
        finally:
            server.close()
        if answer.status == 200:
            return answer.body, source.list_path if source else ""
    raise ConfigError(
        [f"--dmapi {url}: no openapi.json at {', '.join(roots)}; is it the address of a DMAPI?"]
    )


def _server(name: str, url: str, source: DmapiSource | SiteCapabilitiesSettings, clock: Clock) -> Server:
    limits = WebLimits(
        timeout=timedelta(seconds=source.timeout_seconds), calls_per_second=source.calls_per_second
    )
    bearer: TokenFile | ClientCredentials | None = None
    if source.token_file:
        bearer = TokenFile(name, source.token_file)
    elif source.token_url and source.client_id and source.client_secret_file:
        who = ClientSettings(
            source.token_url,
            source.client_id,
            source.client_secret_file,
            source.audience,
            source.scope,
            source.ca_cert,
        )
        bearer = ClientCredentials(name, who, clock, limits=limits)
    return Server(name, url, bearer=bearer, limits=limits, ca_cert=source.ca_cert)


def _rucio(source: RucioSource, settings: Settings, clock: Clock) -> Catalogue:
    from adapters.rucio import RucioCatalogue  # rucio-clients is slow to import

    capabilities = site_capabilities(source.name, settings, clock)
    return RucioCatalogue(_rucio_settings(source, settings), clock, capabilities=capabilities)


def _rucio_settings(source: RucioSource, settings: Settings) -> "RucioSettings":
    from adapters.rucio import RucioSettings

    oidc = None
    if source.auth == "oidc" and source.token_url and source.client_id and source.client_secret_file:
        oidc = ClientSettings(
            source.token_url,
            source.client_id,
            source.client_secret_file,
            source.audience,
            source.scope,
            source.ca_cert,
        )
    fields: dict[str, Any] = {
        "name": source.name,
        "url": source.url,
        "auth_url": source.auth_url or source.url,
        "account": source.account,
        "auth_type": source.auth,
        "username": source.username,
        "password": _secret(source.name, source.password_file) if source.password_file else None,
        "token_file": source.token_file,
        "token_command": tuple(source.token_command),
        "oidc": oidc,
        "client_cert": source.client_cert,
        "client_key": source.client_key,
        "ca_cert": source.ca_cert,
        "timeout": timedelta(seconds=source.timeout_seconds),
        "deadline": timedelta(seconds=source.deadline_seconds),
        "verify_every": timedelta(minutes=source.verify_minutes),
        "deep_calls": source.deep_calls,
        "count_first": source.count_first,
        "calls_per_second": source.calls_per_second,
        "concurrent_calls": source.concurrent_calls,
        "expiry_margin": timedelta(hours=source.expiry_margin_hours),
        "trust_caches": source.trust_caches,
        "vo": source.vo,
        "site_attribute": source.site_attribute,
        "sites": source.rse_sites,
        "token_dir": settings.daemon.state_dir / "rucio" / source.name,
    }
    return RucioSettings(**fields)


def _secret(catalogue: str, path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ConfigError([f"catalogue {catalogue}: password_file {path}: {error.strerror}"]) from error


def _outlets(
    settings: Settings,
    clock: Clock,
    client: CondorClient | None,
    board: Board | None,
    door: Callable[[], Door | None] | None,
) -> Sequence[Outlet]:
    outlets = []
    publish = settings.publish
    always = Policy(refresh_after=timedelta(0), expires=False)
    if publish.file.enabled:
        outlets.append(Outlet(AdFilePublisher(publish.file.directory, clock), always))
    if publish.sites.enabled:
        valid = timedelta(minutes=publish.sites.valid_minutes)
        policy = Policy(refresh_after=min(valid / 3, timedelta(minutes=5)), expires=True)
        max_age = settings.daemon.bound - _MARGIN
        sites = SitesFilePublisher(publish.sites.path, valid=valid, max_age=max_age, clock=clock)
        outlets.append(Outlet(sites, policy))
    if board is not None and door is not None:
        outlets.append(Outlet(WebPublisher(board, door, clock), always))
    if publish.collector.enabled and client:
        lifetime = timedelta(seconds=publish.collector.lifetime_seconds)
        policy = Policy(refresh_after=min(lifetime / 3, timedelta(minutes=5)), expires=True)
        outlets.append(Outlet(CollectorPublisher(client, lifetime=lifetime, clock=clock), policy))
    return outlets
