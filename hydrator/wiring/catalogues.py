"""Catalogues: build each configured catalogue, by its type."""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

from adapters.command_stager import CommandStager
from adapters.files import directory
from adapters.files.catalogue import FileCatalogue
from adapters.ska.dmapi import DmapiCatalogue, DmapiSettings
from hydrator.config import plugins
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.estimates import Estimates
from hydrator.domain.errors import CatalogueError, ConfigError, StateError
from hydrator.domain.model import DaemonKnowledge, Did, ReplicaState, Site, Snapshot
from hydrator.domain.ports import Catalogue, Clock, FileLister, StepReporter, TokenValidity
from hydrator.domain.sites import MappedCatalogue
from hydrator.domain.staging_ports import Stager
from hydrator.reconcile.estimates.report import REPORT_NAME, parse_estimates
from hydrator.reconcile.intake import CheckedCatalogue, CleanCatalogue
from hydrator.state.store import Store
from hydrator.wiring.http import build_json_client, build_site_capabilities, oauth_client_settings
from hydrator.wiring.secrets import register_secrets

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
from ..config.fields import build_from_section
from ..config.staging import StagingCatalogueSettings
from .policies import site_mapping

if TYPE_CHECKING:
    from adapters.daemon_catalogue import DaemonCatalogue
    from adapters.rucio.catalogue import RucioCatalogue, RucioSettings


def daemon_catalogues(settings: Settings) -> tuple[Catalogue, ...]:
    """Build the catalogue that queries the daemon at [submit] daemon_url; it has no search by pattern.

    Return no catalogue if daemon_url is not set.

    Raises:
        ConfigError: a secret would be sent unencrypted, or the file of a secret cannot be read.
    """
    daemon = _build_daemon_catalogue(settings)
    return (daemon,) if daemon else ()


def fetch_daemon_knowledge(
    settings: Settings, dids: AbstractSet[Did], now: datetime
) -> DaemonKnowledge | None:
    """Fetch the states of *dids* from the daemon at [submit] daemon_url.

    If the daemon does not answer, all *dids* count as unseen. Return None if daemon_url is not set.

    Raises:
        ConfigError: a secret would be sent unencrypted, or the file of a secret cannot be read.
    """
    daemon = _build_daemon_catalogue(settings)
    if daemon is None:
        return None
    try:
        return daemon.read_knowledge(dids, now)
    except CatalogueError as error:
        return DaemonKnowledge(now, Snapshot({}, dict.fromkeys(dids, f"{daemon.name}: {error.reason}")))
    finally:
        daemon.close()


def fetch_storage(settings: Settings, dids: AbstractSet[Did]) -> list[StorageArea]:
    """Fetch the paths of *dids* from the daemon at [submit] daemon_url, as one area for each site.

    Return none if daemon_url is not set.

    Raises:
        ConfigError: a secret would be sent unencrypted, or the file of a secret cannot be read.
        CatalogueError: the daemon did not answer.
    """
    daemon = _build_daemon_catalogue(settings)
    if daemon is None or not dids:
        return []
    try:
        paths = daemon.read_paths(dids)
    finally:
        daemon.close()
    return [
        StorageArea(site=site, prefix="/", rule="table", table={**by_did}) for site, by_did in paths.items()
    ]


def fetch_staging(settings: Settings, dids: Collection[Did]) -> tuple[str, ...]:
    """Fetch the sentences about requests for a job with *dids* from the daemon at [submit] daemon_url.

    Return none if daemon_url is not set, if the daemon does not answer, or if it has an older version.

    Raises:
        ConfigError: a secret would be sent unencrypted, or the file of a secret cannot be read.
    """
    daemon = _build_daemon_catalogue(settings)
    if daemon is None or not dids:
        return ()
    try:
        return daemon.read_staging(dids)
    except CatalogueError:
        return ()
    finally:
        daemon.close()


def fetch_estimates(settings: Settings, sets: Collection[Collection[Did]], now: datetime) -> Estimates | None:
    """Return the daemon's estimates for those of *sets* that queued jobs need, from its saved state or HTTP.

    Return None without an answer: a submission never fails for want of estimates.

    Args:
        settings: the configuration, with the state and the address of the daemon.
        sets: the datasets of each set, by the names that jobs use.
        now: aware UTC time.

    Raises:
        ConfigError: a secret would be sent unencrypted, or the file of a secret cannot be read.
    """
    keys = {set_key(dids) for dids in sets}
    saved = _load_saved_estimates(settings, now)
    if saved and any(not keys.isdisjoint(site.by_key) for site in saved.sites.values()):
        return saved
    daemon = _build_daemon_catalogue(settings)
    if daemon is None or not keys:
        return saved
    try:
        return daemon.read_estimates(keys)
    except CatalogueError:
        return None
    finally:
        daemon.close()


def _load_saved_estimates(settings: Settings, now: datetime) -> Estimates | None:
    with suppress(StateError), Store.open_to_read(settings.daemon.state_dir) as store:
        saved = parse_estimates(store.load_report(REPORT_NAME))
        estimates = saved.estimates if saved else None
        return estimates if estimates and now < estimates.valid_until else None
    return None


def _build_daemon_catalogue(settings: Settings) -> "DaemonCatalogue | None":
    submit = settings.submit
    if not submit.daemon_url:
        return None
    from adapters.daemon_catalogue import DaemonCatalogue

    return DaemonCatalogue(submit.daemon_url, token_file=submit.token_file, ca_cert=submit.ca_cert)


def build_file_listers(settings: Settings, reporter: StepReporter | None = None) -> tuple[FileLister, ...]:
    """Build the catalogues that can list the files of a dataset (only Rucio can), with new connections.

    *reporter* gets each dataset as a step.
    """
    listers: list[FileLister] = []
    for source in settings.catalogue:
        if isinstance(source, RucioSource):
            from adapters.rucio.file_lists import RucioFileLister  # rucio-clients is slow to import

            listers.append(RucioFileLister(rucio_settings(source, settings.daemon.state_dir), reporter))
    return tuple(listers)


def build_catalogues(
    settings: Settings, clock: Clock
) -> tuple[
    tuple[Catalogue, ...],
    dict[str, Callable[[], TokenValidity | None]],
    tuple[Callable[[frozenset[Did]], None], ...],
]:
    """Build the catalogues.

    Returns:
        The catalogues; for each catalogue a function that returns how long its login is valid; and a function
        for each catalogue that can count the files of some datasets again in its next poll (only Rucio can:
        the others read all in each poll).
    """
    problems: list[str] = []
    catalogues: list[Catalogue] = []
    mapping = site_mapping(settings.sites)
    logins: dict[str, Callable[[], TokenValidity | None]] = {}
    recounts: list[Callable[[frozenset[Did]], None]] = []
    for source in settings.catalogue:
        try:
            bare = _build_catalogue(source, settings, clock)
            logins[f"catalogue {source.name}"] = lambda bare=bare: getattr(bare, "token_validity", None)  # type: ignore[misc]
            if isinstance(source, RucioSource):
                recounts.append(cast("RucioCatalogue", bare).recount)
            is_foreign = isinstance(source, PluginSource) and source.type != DIRECTORY
            catalogue = _redact_secrets(CheckedCatalogue(bare) if is_foreign else bare, source)
            catalogues.append(MappedCatalogue(catalogue, mapping) if mapping else catalogue)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return tuple(catalogues), logins, tuple(recounts)


def _redact_secrets(catalogue: Catalogue, source: Source) -> Catalogue:
    """Remove secrets from a catalogue's answers; a plugin's secret files are read again before each query."""
    if isinstance(source, PluginSource):
        return CleanCatalogue(catalogue, lambda: register_secrets(source.options))
    return CleanCatalogue(catalogue)


def _build_catalogue(source: Source, settings: Settings, clock: Clock) -> Catalogue:
    if isinstance(source, FileSource):
        return FileCatalogue(source.name, source.path, clock, settings.daemon.default_scope)
    if isinstance(source, DmapiSource):
        return _build_dmapi(source, settings.site_capabilities, clock)
    if isinstance(source, PluginSource):
        factory = directory.catalogue if source.type == DIRECTORY else plugins.load_factory(source.type)
        return plugins.create_catalogue(factory, source.type, source.name, source.options, clock)
    return _build_rucio(source, settings, clock)


def _build_dmapi(source: DmapiSource, site_capabilities: SiteCapabilitiesSettings, clock: Clock) -> Catalogue:
    storage_sites = {
        key: (sites,) if isinstance(sites, str) else tuple(sites)
        for key, sites in source.storage_sites.items()
    }
    states = {"partial": ReplicaState.PARTIAL, "complete": ReplicaState.COMPLETE, "unseen": None}
    dmapi = build_from_section(
        DmapiSettings,
        source,
        storage_sites=storage_sites,
        bare_location=states[source.bare_location],
    )
    server = build_json_client(source.name, source.url, source, clock)
    capabilities = build_site_capabilities(source.name, site_capabilities, clock)
    return DmapiCatalogue(dmapi, server, clock, capabilities=capabilities)


def _build_rucio(source: RucioSource, settings: Settings, clock: Clock) -> Catalogue:
    from adapters.rucio.catalogue import RucioCatalogue  # rucio-clients is slow to import

    capabilities = build_site_capabilities(source.name, settings.site_capabilities, clock)
    return RucioCatalogue(
        rucio_settings(source, settings.daemon.state_dir),
        clock,
        capabilities=capabilities,
        group_sites=site_mapping(settings.sites).shared_storage_groups,
    )


def build_stagers(settings: Settings, clock: Clock) -> Mapping[str, Stager]:
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
                stagers[name] = _build_stager(sources[name], one, settings, clock)
            except ConfigError as error:
                problems += error.problems
    if problems:
        raise ConfigError(problems)
    return stagers


def _build_stager(source: Source, one: StagingCatalogueSettings, settings: Settings, clock: Clock) -> Stager:
    staging = settings.staging
    if one.command:
        return CommandStager(source.name, one.command, clock)
    storages = {name: site.storage for name, site in staging.sites.items() if site.storage}
    spaces = {
        Site(name): round(site.space_tb * 1e12) for name, site in staging.sites.items() if site.space_tb
    }
    if isinstance(source, RucioSource):
        from adapters.rucio.staging.destinations import RuleOptions  # rucio-clients is slow to import
        from adapters.rucio.staging.stager import RucioStager

        aliases = site_mapping(settings.sites).aliases
        options = RuleOptions(one.activity, storages, aliases, spaces=spaces)
        return RucioStager(rucio_settings(source, settings.daemon.state_dir), options, clock)
    reason = f"a catalogue of type {source.type} makes no requests by itself; set command"
    raise ConfigError([f"staging.catalogues.{source.name}: {reason}"])


def rucio_settings(source: RucioSource, state_dir: Path) -> "RucioSettings":
    """Return the settings of one Rucio server."""
    from adapters.rucio.catalogue import RucioSettings

    return build_from_section(
        RucioSettings,
        source,
        auth_url=source.auth_url or source.url,
        auth_type=source.auth,
        token_command=tuple(source.token_command),
        oidc=oauth_client_settings(source) if source.auth == "oidc" else None,
        deadline=4 * timedelta(seconds=source.timeout_seconds),
        expiry_margin=timedelta(hours=source.expiry_margin_hours),
        sites=source.rse_sites,
        token_dir=state_dir / "rucio" / source.name,
    )
