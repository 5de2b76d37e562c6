"""Servers that are asked over HTTP, and who we are to them."""

from datetime import timedelta
from typing import Any

from adapters.http.client import HttpLimits as WebLimits
from adapters.http.client import JsonClient
from adapters.http.oauth import ClientCredentials, ClientSettings, TokenFile
from adapters.ska.site_capabilities import SiteCapabilities
from hydrator.config import (
    DmapiSource,
    RucioSource,
    Settings,
    SiteCapabilitiesSettings,
)
from hydrator.domain.errors import ConfigError
from hydrator.domain.ports import Clock


def build_site_capabilities(catalogue_name: str, settings: Settings, clock: Clock) -> SiteCapabilities | None:
    """SKA's Site Capabilities on behalf of the catalogue *name*; None where none is configured.

    Raises:
        ConfigError: a file that it needs cannot be read.
    """
    chosen = settings.site_capabilities
    if not chosen.url:
        return None
    refresh = timedelta(minutes=chosen.refresh_minutes)
    return SiteCapabilities(build_json_client(catalogue_name, chosen.url, chosen, clock), refresh)


def fetch_openapi(url: str, settings: Settings | None) -> tuple[Any, str]:
    """What the DMAPI at *url* says of itself in ``openapi.json``, and the ``list_path`` configured for it.

    It stands at the application's root, so above ``/api/v1``, and needs no token: none is sent.
    Where *settings* have a DMAPI at *url*, its ``ca_cert`` counts.

    Raises:
        ConfigError: *url* is none, or there is no such document.
        CatalogueError: it cannot be asked.
    """
    if not url.startswith(("https://", "http://")):
        raise ConfigError([f"--dmapi {url}: give an address that starts with https://"])
    url = url.rstrip("/")
    sources = settings.catalogue if settings else []
    source = next((s for s in sources if isinstance(s, DmapiSource) and s.url.rstrip("/") == url), None)
    versionless = url.rpartition("/")[0] if url.rpartition("/")[2].startswith("v") else url
    roots = dict.fromkeys([versionless.removesuffix("/api"), versionless, url])
    for root in roots:
        server = JsonClient("dmapi", root, ca_cert=source.ca_cert if source else None)
        try:
            answer = server.get("/openapi.json")
        finally:
            server.close()
        if answer.status == 200:
            return answer.body, source.list_path if source else ""
    raise ConfigError(
        [f"--dmapi {url}: no openapi.json at {', '.join(roots)}; is it the address of a DMAPI?"]
    )


def oauth_client_settings(
    source: RucioSource | DmapiSource | SiteCapabilitiesSettings,
) -> ClientSettings | None:
    """Who we are to the identity provider of *source*, where all that this takes is given."""
    if not (source.token_url and source.client_id and source.client_secret_file):
        return None
    return ClientSettings(
        source.token_url,
        source.client_id,
        source.client_secret_file,
        source.audience,
        source.scope,
        source.ca_cert,
    )


def build_json_client(
    catalogue_name: str, url: str, source: DmapiSource | SiteCapabilitiesSettings, clock: Clock
) -> JsonClient:
    """The server at *url*, asked as *source* says and with the token that it names.

    Raises:
        ConfigError: a file that it needs cannot be read.
    """
    limits = WebLimits(
        timeout=timedelta(seconds=source.timeout_seconds),
        calls_per_second=source.calls_per_second,
        max_bytes=round(source.max_answer_mb * 1e6),
        max_values=source.max_answer_values,
    )
    bearer: TokenFile | ClientCredentials | None = None
    if source.token_file:
        bearer = TokenFile(catalogue_name, source.token_file)
    elif who := oauth_client_settings(source):
        bearer = ClientCredentials(catalogue_name, who, clock, limits=limits)
    return JsonClient(catalogue_name, url, token_source=bearer, limits=limits, ca_cert=source.ca_cert)
