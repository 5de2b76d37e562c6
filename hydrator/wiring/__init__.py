"""Wiring: build the daemon's objects from the settings. Only this package imports adapters.

A module is imported when one of its names is first needed: all of them, with the HTTP clients that they
import, cost a command such as ``hydrator status`` half of its time.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hydrator.wiring.secrets import find_unreadable_secrets, read_credentials, register_secrets

    from .assembly import Parts, assemble
    from .catalogues import (
        build_file_listers,
        daemon_catalogues,
        fetch_daemon_knowledge,
        fetch_openings,
        fetch_staging,
        fetch_storage,
    )
    from .checks import build_check_inputs
    from .condor import (
        build_cluster_queues,
        build_condor_client,
        build_job_history,
    )
    from .network import NetworkParts, build_rate_table
    from .policies import (
        network_policy,
        pacing_policy,
        pool_policy,
        reconcile_policy,
        site_mapping,
        system_clock,
    )
    from .staging import StagingParts

__all__ = [
    "NetworkParts",
    "Parts",
    "StagingParts",
    "assemble",
    "build_check_inputs",
    "build_cluster_queues",
    "build_condor_client",
    "build_file_listers",
    "build_job_history",
    "build_rate_table",
    "daemon_catalogues",
    "fetch_daemon_knowledge",
    "fetch_openings",
    "fetch_staging",
    "fetch_storage",
    "find_unreadable_secrets",
    "network_policy",
    "pacing_policy",
    "pool_policy",
    "read_credentials",
    "reconcile_policy",
    "register_secrets",
    "site_mapping",
    "system_clock",
]  # fmt: skip

_MODULES = {
    "assembly": "Parts assemble",
    "catalogues": "build_file_listers daemon_catalogues fetch_daemon_knowledge fetch_openings fetch_staging"
    " fetch_storage",
    "checks": "build_check_inputs",
    "condor": ("build_cluster_queues build_condor_client build_job_history"),
    "network": "NetworkParts build_rate_table",
    "policies": ("pacing_policy network_policy pool_policy reconcile_policy site_mapping system_clock"),
    "secrets": "find_unreadable_secrets read_credentials register_secrets",
    "staging": "StagingParts",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Return *name* from its module."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value
