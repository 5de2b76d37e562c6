"""HTTP clients of SKA services: build them from the settings, with their tokens and limits."""

from adapters.http.client import HttpLimits as WebLimits
from adapters.http.client import JsonClient
from adapters.http.oauth import ClientCredentials, ClientSettings, TokenFile
from adapters.ska.site_capabilities import SiteCapabilities
from hydrator.config import (
    DmapiSource,
    RucioSource,
    SiteCapabilitiesSettings,
)
from hydrator.domain.ports import Clock


def build_site_capabilities(
    catalogue_name: str, settings: SiteCapabilitiesSettings, clock: Clock
) -> SiteCapabilities | None:
    """Build the client of SKA's Site Capabilities for one catalogue; None if the service is not configured.

    Raises:
        ConfigError: a file with a secret or a certificate cannot be read.
    """
    if not settings.url:
        return None
    return SiteCapabilities(build_json_client(catalogue_name, settings.url, settings, clock))


def oauth_client_settings(
    source: RucioSource | DmapiSource | SiteCapabilitiesSettings,
) -> ClientSettings | None:
    """Return the daemon's account at the identity provider of *source*; None if a value is missing."""
    if not (source.token_url and source.client_id and source.client_secret_file):
        return None
    return ClientSettings(
        source.token_url,
        source.client_id,
        source.client_secret_file,
        source.audience,
        "openid" if isinstance(source, RucioSource) else source.scope,
        source.ca_cert,
    )


def build_json_client(
    catalogue_name: str, url: str, source: DmapiSource | SiteCapabilitiesSettings, clock: Clock
) -> JsonClient:
    """Build the client of the server at *url*, with the limits and the token of *source*.

    Raises:
        ConfigError: a file with a secret or a certificate cannot be read.
    """
    limits = WebLimits(calls_per_second=source.calls_per_second)
    bearer: TokenFile | ClientCredentials | None = None
    if source.token_file:
        bearer = TokenFile(catalogue_name, source.token_file)
    elif account := oauth_client_settings(source):
        bearer = ClientCredentials(catalogue_name, account, clock, limits=limits)
    return JsonClient(catalogue_name, url, token_source=bearer, limits=limits, ca_cert=source.ca_cert)
