"""Wiring: build the daemon's objects from the settings. Only this package imports adapters."""

from .assembly import Parts, assemble, build_event_sources
from .catalogues import build_file_listers, daemon_catalogues, fetch_daemon_knowledge
from .checks import build_check_inputs
from .clock import system_clock
from .condor import build_condor_client, build_editing_client, build_job_history, fetch_config_values
from .credentials import read_credentials
from .http_clients import fetch_openapi
from .policies import job_name_lookup, pool_policy, privacy, reconcile_policy, site_mapping
from .privacy import build_pseudonym_store, build_redactor
from .secrets import find_unreadable_secrets

__all__ = [
    "Parts",
    "assemble",
    "build_check_inputs",
    "build_condor_client",
    "build_editing_client",
    "build_event_sources",
    "build_file_listers",
    "build_job_history",
    "build_pseudonym_store",
    "build_redactor",
    "daemon_catalogues",
    "fetch_config_values",
    "fetch_daemon_knowledge",
    "fetch_openapi",
    "find_unreadable_secrets",
    "job_name_lookup",
    "pool_policy",
    "privacy",
    "read_credentials",
    "reconcile_policy",
    "site_mapping",
    "system_clock",
]  # fmt: skip
