"""Who is asked a second time, to find out who lies."""

from datetime import timedelta

from adapters.command_probe import CommandProbe, ProbeCommand
from adapters.files.catalogue import FileCatalogue
from hydrator.config import (
    DmapiSource,
    FileSource,
    PluginSource,
    RucioSource,
    Settings,
)
from hydrator.domain.model import Did, Site, to_unix
from hydrator.domain.ports import Auditor, Clock, Probe
from hydrator.domain.sites import MappedAuditor
from hydrator.privacy.pseudonym_store import PseudonymStore
from hydrator.privacy.wrappers import PseudonymizedAuditor, PseudonymizedProbe
from hydrator.reconcile.audit.runner import AuditRunner
from hydrator.submit.dataset_paths import single_folder_path

from .catalogues import rucio_settings
from .http_clients import build_site_capabilities
from .policies import site_mapping


def build_audit_runner(
    settings: Settings, clock: Clock, pseudonym_store: PseudonymStore | None
) -> AuditRunner:
    """The audit, on connections of its own."""
    plain: dict[str, Auditor] = {
        source.name: _build_auditor(source, settings, clock)
        for source in settings.catalogue
        if not isinstance(source, DmapiSource | PluginSource)  # one answer, and no second way to it
    }
    if chosen := site_mapping(settings):
        plain = {name: MappedAuditor(one, chosen) for name, one in plain.items()}
    auditors = {
        name: PseudonymizedAuditor(one, pseudonym_store) if pseudonym_store else one
        for name, one in plain.items()
    }
    probe = _build_probe(settings)
    veiled = PseudonymizedProbe(probe, pseudonym_store) if probe and pseudonym_store else probe
    return AuditRunner(auditors, veiled, clock, seed=to_unix(clock()))


def _build_auditor(source: FileSource | RucioSource, settings: Settings, clock: Clock) -> Auditor:
    if isinstance(source, FileSource):
        return FileCatalogue(source.name, source.path, clock, settings.daemon.default_scope)
    from adapters.rucio.auditor import RucioAuditor

    capabilities = build_site_capabilities(source.name, settings, clock)
    return RucioAuditor(rucio_settings(source, settings), clock, capabilities)


def _build_probe(settings: Settings) -> Probe | None:
    if not settings.audit.probe:
        return None
    probes = [
        ProbeCommand(
            tuple(probe.command),
            tuple(probe.sites),
            tuple(probe.catalogues),
            timedelta(seconds=probe.timeout_seconds),
        )
        for probe in settings.audit.probe
    ]

    def path_at(site: Site, did: Did) -> str | None:
        return single_folder_path(settings.storage, site, did)

    return CommandProbe(probes, path_at)
