"""Configuration: read a TOML file into frozen Settings, and report all problems at once, each with its key.

The configuration contains no secrets, only the paths of files with secrets. An environment variable
can override a value: ``HYDRATOR_DAEMON__POLL_SECONDS=10``.
"""

from .catalogues import DmapiSource, FileSource, PluginSource, RucioSource, SiteCapabilitiesSettings, Source
from .jobs import NamePattern, StorageArea, SubmitSettings
from .loader import load, parse
from .publishers import HttpServerSettings
from .settings import Settings

__all__ = [
    "DmapiSource", "FileSource", "HttpServerSettings", "NamePattern", "PluginSource", "RucioSource",
    "Settings", "SiteCapabilitiesSettings", "Source", "StorageArea", "SubmitSettings", "load", "parse",
]  # fmt: skip
