"""From names in the configuration to the adapters that keep the promises; nobody else imports adapters."""

from .assembly import Parts, assemble, brokers
from .catalogues import daemon_beliefs, file_listers, witnesses
from .checks import examined
from .clock import system_clock
from .condor import condor_client, editing_client, history_of, present_values
from .credentials import credentials
from .http_clients import described
from .policies import called, places, pool_policy, privacy, rules
from .privacy import redactor, register_of
from .secrets import unreadable_secrets

__all__ = [
    "Parts",
    "assemble",
    "brokers",
    "called",
    "condor_client",
    "credentials",
    "daemon_beliefs",
    "described",
    "editing_client",
    "examined",
    "file_listers",
    "history_of",
    "places",
    "pool_policy",
    "present_values",
    "privacy",
    "redactor",
    "register_of",
    "rules",
    "system_clock",
    "unreadable_secrets",
    "witnesses",
]  # fmt: skip
