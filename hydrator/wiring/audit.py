"""Audit: build the auditors and storage probes from the settings."""

from collections.abc import Sequence
from datetime import timedelta

from adapters.command.probe import CommandProbe, ProbeCommand
from adapters.files.catalogue import FileCatalogue
from hydrator.config import DmapiSource, FileSource, PluginSource, RucioSource, Settings, StorageArea
from hydrator.config.safety import ProbeSettings
from hydrator.domain.model import Did, Site, to_unix
from hydrator.domain.ports import Auditor, Clock, Probe
from hydrator.domain.sites import MappedAuditor
from hydrator.reconcile.audit.runner import AuditRunner
from hydrator.submit.dataset_paths import single_folder_path

from .catalogues import rucio_settings
from .http_clients import build_site_capabilities
from .policies import site_mapping


def build_audit_runner(settings: Settings, clock: Clock) -> AuditRunner:
    """Build the audit; the audit uses its own connections, not the connections of the polls."""
    auditors: dict[str, Auditor] = {
        source.name: _build_auditor(source, settings, clock)
        for source in settings.catalogue
        if not isinstance(
            source, DmapiSource | PluginSource
        )  # DMAPI and plugins have no second way to verify a fact
    }
    if mapping := site_mapping(settings.sites):
        auditors = {name: MappedAuditor(auditor, mapping) for name, auditor in auditors.items()}
    probe = _build_probe(settings.audit.probe, settings.storage)
    return AuditRunner(auditors, probe, clock, seed=to_unix(clock()))


def _build_auditor(source: FileSource | RucioSource, settings: Settings, clock: Clock) -> Auditor:
    if isinstance(source, FileSource):
        return FileCatalogue(source.name, source.path, clock, settings.daemon.default_scope)
    from adapters.rucio.auditor import RucioAuditor

    capabilities = build_site_capabilities(source.name, settings.site_capabilities, clock)
    return RucioAuditor(rucio_settings(source, settings.daemon.state_dir), clock, capabilities)


def _build_probe(settings: Sequence[ProbeSettings], storage: Sequence[StorageArea]) -> Probe | None:
    if not settings:
        return None
    probes = [
        ProbeCommand(
            tuple(probe.command),
            tuple(probe.sites),
            tuple(probe.catalogues),
            timedelta(seconds=probe.timeout_seconds),
        )
        for probe in settings
    ]

    def path_at(site: Site, did: Did) -> str | None:
        return single_folder_path(storage, site, did)

    return CommandProbe(probes, path_at)
