"""Who is asked a second time, to find out who lies."""

from datetime import timedelta

from adapters.command_probe import CommandProbe, ProbeSettings
from adapters.files.catalogue import FileCatalogue
from hydrator.config import (
    DmapiSource,
    FileSource,
    PluginSource,
    RucioSource,
    Settings,
)
from hydrator.domain.model import Did, Site, unix
from hydrator.domain.ports import Auditor, Clock, Probe
from hydrator.domain.sites import PlacedAuditor
from hydrator.privacy.pseudonym_store import Register
from hydrator.privacy.wrappers import VeiledAuditor, VeiledProbe
from hydrator.reconcile.audit.runner import Auditing
from hydrator.submit.dataset_paths import whole_path

from .catalogues import rucio_settings
from .http_clients import site_capabilities
from .policies import places


def auditing_of(settings: Settings, clock: Clock, register: Register | None) -> Auditing:
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
    from adapters.rucio.auditor import RucioAuditor

    capabilities = site_capabilities(source.name, settings, clock)
    return RucioAuditor(rucio_settings(source, settings), clock, capabilities)


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
        return whole_path(settings.storage, site, did)

    return CommandProbe(probes, path_at)
