"""Catalogues: build each configured catalogue, by its type, with its client in a worker."""

import atexit
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from adapters.catalogue_client import WorkerCatalogue
from adapters.command_stager import CommandStager
from adapters.condor.bindings.process import LIMIT_BYTES as BINDINGS_BYTES
from adapters.remote import MAX_ANSWER_BYTES, RemoteObject
from adapters.worker import Worker
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.openings import OPENINGS_REPORT, Openings, PacedCycle
from hydrator.domain.errors import (
    CatalogueError,
    CatalogueUnreachable,
    ConfigError,
    HydratorError,
    StateError,
)
from hydrator.domain.model import DaemonKnowledge, DatasetState, Did, Snapshot, to_unix
from hydrator.domain.ports import FileLister, StepReporter
from hydrator.domain.sites import SiteMapping
from hydrator.domain.staging_ports import Stager, StagingFailed
from hydrator.state.store import Store

from ..config import (
    DmapiSource,
    FileSource,
    PluginSource,
    RucioSource,
    Settings,
    SiteCapabilitiesSettings,
    Source,
    StorageArea,
)
from ..config.catalogues import DIRECTORY
from ..config.plugins import find_maker
from ..config.staging import StagingCatalogueSettings
from .catalogue_worker import (
    Recipe,
    Service,
    build_directory,
    build_dmapi,
    build_file,
    build_plugin,
    build_rucio,
    build_rucio_lister,
    build_rucio_stager,
    connect,
    encode_recipe,
)
from .condor import count_condor_clients

if TYPE_CHECKING:
    from adapters.daemon_catalogue import DaemonCatalogue
    from adapters.http.oauth import ClientSettings
    from adapters.rucio.session.settings import RucioSettings
    from adapters.ska.dmapi import DmapiSettings


def daemon_catalogues(settings: Settings) -> "tuple[DaemonCatalogue, ...]":
    """Build the catalogue that queries the daemon at [submit] daemon_url; none if daemon_url is not set.

    Raises:
        ConfigError: a secret would be sent unencrypted, or the file of a secret cannot be read.
    """
    submit = settings.submit
    if not submit.daemon_url:
        return ()
    from adapters.daemon_catalogue import DaemonCatalogue

    return (DaemonCatalogue(submit.daemon_url, token_file=submit.token_file, ca_cert=submit.ca_cert),)


@contextmanager
def _open_daemon(settings: Settings) -> Iterator["DaemonCatalogue | None"]:
    """Yield the catalogue of :func:`daemon_catalogues`, and close it; None if daemon_url is not set."""
    with ExitStack() as stack:
        yield next((stack.enter_context(closing(one)) for one in daemon_catalogues(settings)), None)


def fetch_daemon_knowledge(
    settings: Settings, dids: AbstractSet[Did], now: datetime, keys: Collection[str] = ()
) -> DaemonKnowledge | None:
    """Fetch the states of *dids*, and the openings of *keys*, from the daemon at [submit] daemon_url.

    If the daemon does not answer, all *dids* count as unseen. Return None if daemon_url is not set. For the
    errors of this and of the functions below see :func:`daemon_catalogues`.
    """
    with _open_daemon(settings) as daemon:
        try:
            return daemon.read_knowledge(dids, now, keys) if daemon else None
        except CatalogueError as error:
            return DaemonKnowledge(
                now, Snapshot({}, dict.fromkeys(dids, f"{error.catalogue}: {error.reason}"))
            )


def fetch_storage(settings: Settings, dids: AbstractSet[Did]) -> list[StorageArea]:
    """Fetch the paths of *dids* from the daemon at [submit] daemon_url, as one area for each site.

    Return none if daemon_url is not set.

    Raises:
        CatalogueError: the daemon did not answer.
    """
    with _open_daemon(settings) as daemon:
        paths = daemon.read_paths(dids) if daemon and dids else {}
    return [
        StorageArea(site=site, prefix="/", rule="table", table={**by_did}) for site, by_did in paths.items()
    ]


def fetch_staging(settings: Settings, key: str) -> tuple[str, ...]:
    """Fetch the sentences about requests for jobs with *key* from the daemon at [submit] daemon_url.

    Return none if daemon_url is not set, if the daemon does not answer, or if it has an older version.
    """
    with _open_daemon(settings) as daemon, suppress(CatalogueError):
        return daemon.read_staging(key) if daemon else ()
    return ()


def fetch_openings(settings: Settings, sets: Collection[Collection[Did]], now: datetime) -> Openings | None:
    """Return the daemon's openings, from its saved state; else over HTTP those of *sets*.

    Return None without an answer: a submission never fails for want of them.

    Args:
        settings: the configuration, with the state and the address of the daemon.
        sets: the datasets of each set, by the names that jobs use.
        now: aware UTC time.
    """
    with suppress(StateError), Store.open_to_read(settings.daemon.state_dir) as store:
        saved = store.load_report(OPENINGS_REPORT, PacedCycle)
        if saved and saved.openings and to_unix(now) < saved.openings.open_until:
            return saved.openings
    keys = {set_key(dids) for dids in sets}
    with _open_daemon(settings) as daemon, suppress(CatalogueError):
        return daemon.read_knowledge(frozenset(), now, keys).openings if daemon and keys else None
    return None


def build_file_listers(settings: Settings, reporter: StepReporter | None = None) -> tuple[FileLister, ...]:
    """Build the catalogues that can list the files of a dataset (only Rucio can), with new connections.

    *reporter* gets each dataset as a step.
    """
    listers = []
    for source in settings.catalogue:
        if isinstance(source, RucioSource):
            own = _settings_in_folder(source, settings, "files")
            listers.append(_build_remote(source, own, partial(build_rucio_lister, own), reporter))
    return tuple(cast("list[FileLister]", listers))


def _settings_in_folder(source: RucioSource, settings: Settings, folder: str) -> "RucioSettings":
    """Return the settings of a server for one more process, whose token is in *folder*."""
    own = rucio_settings(source, settings.daemon.state_dir)
    return replace(own, token_dir=own.token_dir / folder)


def rucio_environment(folder: Path) -> Mapping[str, str]:
    """Return the environment of a worker, whose rucio-clients keeps its token in *folder*.

    A user who submits jobs may not write into the daemon's state; then a temporary folder has the token.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "rucio.cfg").touch(mode=0o600)
    except OSError:
        temporary = tempfile.TemporaryDirectory(prefix="hydrator-rucio-")
        atexit.register(temporary.cleanup)
        folder = Path(temporary.name)
    config = folder / "rucio.cfg"
    config.write_text(f"[client]\nauth_token_file_path = {folder / 'token'}\n")
    return {**os.environ, "RUCIO_CONFIG": str(config)}


def _build_remote(
    source: RucioSource,
    own: "RucioSettings",
    recipe: Callable[[], object],
    reporter: StepReporter | None = None,
) -> RemoteObject:
    worker = Worker(
        CATALOGUE_WORKER,
        limit_bytes=_limit_bytes(source),
        env=partial(rucio_environment, own.token_dir),
        setup=encode_recipe(recipe),
        max_line_bytes=MAX_ANSWER_BYTES,
    )
    fail = partial(_worker_error, source.name)
    return RemoteObject(source.name, worker, 4 * source.timeout_seconds, fail, reporter)


CATALOGUE_WORKER = (sys.executable, "-P", "-m", "hydrator.wiring.catalogue_worker")
_MEMORY_MB = {"rucio": 1000, "dmapi": 500, "file": 500}
"""The largest size of a worker by the type of its catalogue: 1,000,000 replicas in Rucio need some 900 MB."""
_DMAPI_SECONDS = 120.0
"""Two times the limit of one question to a DMAPI server."""
_COMMAND_BYTES = 500_000_000
"""The largest size of the worker that runs a command of [staging], and of the command; its output counts."""
_COMMAND_SECONDS = 60.0
"""The longest time of one run of this command."""
_QUIET_SECONDS = 600.0
"""The longest time in which a file, a directory or a plugin reports nothing; an answer of Rucio has less."""


def build_idle_catalogues(settings: Settings) -> tuple[WorkerCatalogue, ...]:
    """Build the catalogues, each with a worker of its own; its first question starts it."""
    mapping = settings.sites.mapping
    return tuple(_build_worker_catalogue(source, settings, mapping) for source in settings.catalogue)


def build_catalogues(settings: Settings) -> tuple[WorkerCatalogue, ...]:
    """Build the catalogues, each with a worker of its own, and start the workers.

    Raises:
        ConfigError: lists the problems of all catalogues that cannot be built.
    """
    catalogues = build_idle_catalogues(settings)
    problems: list[str] = []
    with ThreadPoolExecutor(max(1, len(catalogues)), thread_name_prefix="catalogue start") as threads:
        for started in [threads.submit(catalogue.start) for catalogue in catalogues]:
            try:
                started.result()
            except ConfigError as error:
                problems += error.problems
    if problems:
        for catalogue in catalogues:
            catalogue.close()
        raise ConfigError(problems)
    return catalogues


_DAEMON_BYTES = 300_000_000


def needed_memory(settings: Settings, collectors: int = 0) -> int:
    """Return the bytes that the daemon and its workers may use at most.

    *collectors* is the number of collectors that have a worker of their own. The workers that a schedd
    without an answer, or a question on the page, adds for a short time do not count.
    """
    bindings = count_condor_clients(settings, collectors) * BINDINGS_BYTES
    catalogues = 2 * sum(map(_limit_bytes, settings.catalogue))  # a second process asks what ends the first
    stagers = sum(_stager_bytes(source, settings) for source in settings.catalogue)
    return _DAEMON_BYTES + bindings + catalogues + stagers


def _stager_bytes(source: Source, settings: Settings) -> int:
    """Return the largest size of the worker that makes requests at *source*; 0 if none does."""
    one = settings.staging.catalogues.get(source.name)
    if one is None or settings.staging.mode == "off":
        return 0
    return _COMMAND_BYTES if one.command else _limit_bytes(source)


def _limit_bytes(source: Source) -> int:
    """Return the largest size of the worker of *source*."""
    megabytes = source.memory_mb if isinstance(source, PluginSource) else _MEMORY_MB[source.type]
    return megabytes * 1_000_000


def _build_worker_catalogue(source: Source, settings: Settings, mapping: SiteMapping) -> WorkerCatalogue:
    worker = Worker(
        CATALOGUE_WORKER,
        limit_bytes=_limit_bytes(source),
        env=partial(_environment, source, settings.daemon.state_dir),
        setup=encode_recipe(_choose_recipe(source, settings, mapping), mapping),
    )
    quiet_seconds = {"rucio": 4 * getattr(source, "timeout_seconds", 0.0), "dmapi": _DMAPI_SECONDS}
    return WorkerCatalogue(
        source.name,
        worker,
        quiet_seconds.get(source.type, _QUIET_SECONDS),
        is_slow_at_first=source.type == "rucio",
        maker=find_maker(source.type) if isinstance(source, PluginSource) else None,
    )


def _environment(source: Source, state_dir: Path) -> Mapping[str, str] | None:
    """Return the environment of the worker of *source*; None for that of this process."""
    if isinstance(source, RucioSource):
        return rucio_environment(rucio_settings(source, state_dir).token_dir)
    return None


def _choose_recipe(source: Source, settings: Settings, mapping: SiteMapping) -> Recipe:
    """Return what the worker of *source* builds; a client is imported there, not here."""
    if isinstance(source, FileSource):
        return partial(build_file, source.name, source.path, settings.daemon.default_scope)
    if isinstance(source, PluginSource) and source.type == DIRECTORY:
        return partial(build_directory, source.name, dict(source.options))
    if isinstance(source, PluginSource):
        return partial(build_plugin, source.type, source.name, dict(source.options), mapping)
    capabilities = settings.site_capabilities
    service = _service(source.name, capabilities.url, capabilities) if capabilities.url else None
    if isinstance(source, RucioSource):
        return partial(build_rucio, rucio_settings(source, settings.daemon.state_dir), mapping, service)
    return partial(build_dmapi, _dmapi_settings(source), _service(source.name, source.url, source), service)


def _service(name: str, url: str, source: DmapiSource | SiteCapabilitiesSettings) -> Service:
    return partial(
        connect,
        name,
        url,
        source.token_file,
        _oauth_client_settings(source),
        source.ca_cert,
    )


def _oauth_client_settings(
    source: RucioSource | DmapiSource | SiteCapabilitiesSettings,
) -> "ClientSettings | None":
    """Return the daemon's account at the identity provider of *source*; None if a value is missing.

    The audiences and scopes of the SKA services are those of SKA's identity provider, the only one there is.
    """
    if not (source.token_url and source.client_id and source.client_secret_file):
        return None
    from adapters.http.oauth import ClientSettings

    if isinstance(source, RucioSource):
        audience, scope = source.audience, "openid"
    else:
        audience = "data-management-api" if isinstance(source, DmapiSource) else "site-capabilities-api"
        scope = f"openid profile {audience}-service"
    return ClientSettings(
        source.token_url, source.client_id, source.client_secret_file, audience, scope, source.ca_cert
    )


_BARE_LOCATIONS = {"partial": DatasetState.PARTIAL, "complete": DatasetState.AVAILABLE, "unseen": None}
"""By the word in the configuration, the state of a location whose files the daemon cannot count."""


def _dmapi_settings(source: DmapiSource) -> "DmapiSettings":
    from adapters.ska.dmapi import DmapiSettings

    storage_sites = {
        key: (sites,) if isinstance(sites, str) else tuple(sites)
        for key, sites in source.storage_sites.items()
    }
    bare_location = _BARE_LOCATIONS[source.bare_location]
    return DmapiSettings(source.name, storage_sites, bare_location, list_path=source.list_path)


def build_stagers(settings: Settings) -> Mapping[str, Stager]:
    """Build the stager of each catalogue at which requests may be made, by the name of the catalogue.

    Raises:
        ConfigError: a catalogue cannot make requests, or its credentials cannot be read.
    """
    sources = {source.name: source for source in settings.catalogue}
    stagers: dict[str, Stager] = {}
    problems: list[str] = []
    for name, one in settings.staging.catalogues.items():
        if settings.staging.mode != "off":
            try:
                stagers[name] = _build_stager(sources[name], one, settings)
            except ConfigError as error:
                problems += error.problems
    if problems:
        raise ConfigError(problems)
    return stagers


def _build_stager(source: Source, one: StagingCatalogueSettings, settings: Settings) -> Stager:
    staging = settings.staging
    if one.command:
        worker = Worker(
            CATALOGUE_WORKER,
            limit_bytes=_COMMAND_BYTES,
            setup=encode_recipe(partial(CommandStager, source.name, one.command)),
            max_line_bytes=MAX_ANSWER_BYTES,
        )
        fail = partial(_worker_error, source.name)
        return cast("Stager", RemoteObject(source.name, worker, _COMMAND_SECONDS, fail))
    if isinstance(source, RucioSource):
        options = {
            "pool": staging.name,
            "activity": one.activity,
            "storages": {name: site.storage for name, site in staging.sites.items()},
            "aliases": dict(settings.sites.mapping.aliases),
        }
        own = _settings_in_folder(source, settings, "staging")
        recipe = partial(build_rucio_stager, own, options)
        return cast("Stager", _build_remote(source, own, recipe))
    reason = f"a catalogue of type {source.type} makes no requests by itself; set command"
    raise ConfigError([f"staging.catalogues.{source.name}: {reason}"])


def _worker_error(name: str, method: str, reason: str) -> HydratorError:
    """Return the error of a call whose worker ended: what a request has written is not known."""
    writes = method in {"request", "cancel"}
    return (StagingFailed if writes else CatalogueUnreachable)(name, reason)


def rucio_settings(source: RucioSource, state_dir: Path) -> "RucioSettings":
    """Return the settings of one Rucio server."""
    from adapters.rucio.session.settings import RucioSettings

    return RucioSettings(
        source.name,
        source.url,
        source.account,
        state_dir / "rucio" / source.name,
        auth_url=source.auth_url or source.url,
        auth_type=source.auth,
        username=source.username,
        password_file=source.password_file,
        token_file=source.token_file,
        token_command=tuple(source.token_command),
        oidc=_oauth_client_settings(source) if source.auth == "oidc" else None,
        client_cert=source.client_cert,
        client_key=source.client_key,
        ca_cert=source.ca_cert,
        vo=source.vo,
        timeout=timedelta(seconds=source.timeout_seconds),
        deadline=4 * timedelta(seconds=source.timeout_seconds),
        site_attribute=source.site_attribute,
        sites=source.rse_sites,
        expiry_margin=timedelta(hours=source.expiry_margin_hours),
        trust_caches=source.trust_caches,
        calls_per_second=source.calls_per_second,
    )
