"""The sections [[catalogue]] and [site_capabilities] of the configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from hydrator.domain.untrusted import keeps_secrets

from .fields import Name, Seconds, Section, SiteName, Url

EXPIRY_MARGIN_HOURS: Final = 6
"""Jobs need their data for so long after their start, unless a catalogue has its own number."""


class _Named(BaseModel):
    """A catalogue with a name."""

    name: Name = Field("", description="name in logs, metrics and output; default: the type")

    @model_validator(mode="before")
    @classmethod
    def _name_by_type(cls, data: Any) -> Any:  # noqa: ANN401 - TOML
        return {"name": data.get("type")} | data if isinstance(data, dict) else data


class FileSource(_Named, Section):
    """A file with a list of datasets, in TOML or JSON. The daemon reads the file again when it changes."""

    type: Literal["file"]
    path: Path


class IdentityAccount(Section):
    """The daemon's account at a service and at its identity provider."""

    token_url: Url | None = Field(
        None, description="token endpoint of the identity provider, for client credentials"
    )
    client_id: str | None = None
    client_secret_file: Path | None = None
    token_file: Path | None = None
    ca_cert: Path | None = None


class RucioSource(_Named, IdentityAccount):
    """A Rucio server as a catalogue."""

    type: Literal["rucio"]
    url: Url
    auth_url: Url | None = None
    account: str
    auth: Literal["userpass", "token", "oidc", "x509"] = "userpass"
    username: str | None = None
    password_file: Path | None = None
    token_command: list[str] = Field(
        default_factory=list,
        description="a command that prints a token, run without a shell; the daemon runs the command"
        " again before the token expires",
    )
    audience: str = Field("rucio", description="audience of the requested token")
    client_cert: Path | None = Field(None, description='a certificate or a proxy, for auth = "x509"')
    client_key: Path | None = Field(
        None, description="file with the key of client_cert; default: client_cert contains the key too"
    )
    vo: str | None = None
    timeout_seconds: Seconds = Field(30, description="time limit of one read from the connection")
    calls_per_second: float = Field(
        50,
        gt=0,
        le=10_000,
        description="maximum rate of calls; the daemon lowers the rate after an answer 429 or 503",
    )
    expiry_margin_hours: float = Field(
        EXPIRY_MARGIN_HOURS,
        ge=0,
        le=8760,
        description="a dataset whose Rucio rule expires within this time is not AVAILABLE",
    )
    trust_caches: bool = Field(
        False, description="true: a dataset that is complete in a volatile RSE (a cache) is AVAILABLE too"
    )
    site_attribute: str | None = Field(
        "site", description="the RSE attribute with the name of the RSE's site"
    )
    rse_sites: dict[str, SiteName] = Field(
        default_factory=dict,
        description="the sites of RSEs, as RSE = site; an entry has priority over site_attribute",
    )

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        if self.auth == "userpass" and not (self.username and self.password_file):
            raise ValueError('auth = "userpass" needs username and password_file')
        if self.auth == "token" and bool(self.token_file) == bool(self.token_command):
            raise ValueError('auth = "token" needs either token_file or token_command')
        if self.auth == "oidc" and not (self.token_url and self.client_id and self.client_secret_file):
            raise ValueError('auth = "oidc" needs token_url, client_id and client_secret_file')
        if self.auth == "x509" and not self.client_cert:
            raise ValueError('auth = "x509" needs client_cert')
        self._require_https()
        return self

    def _require_https(self) -> None:
        """Raise ValueError if auth = "oidc" or "x509" has an address without https.

        With "oidc", a server on this host may use http.
        """
        addresses = {"oidc": (self.url, self.token_url or ""), "x509": (self.auth_url or self.url,)}
        for address in addresses.get(self.auth, ()):
            if not address.startswith("https:") and (self.auth == "x509" or not keeps_secrets(address)):
                raise ValueError(f'auth = "{self.auth}" needs an https address, not {address}')


class _ServiceSettings(IdentityAccount):
    """An SKA service: its address, and the credentials for its token."""

    url: Url | None = None

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        client = (self.token_url, self.client_id, self.client_secret_file)
        if self.url and not self.token_file and any(client) and not all(client):
            raise ValueError("set all three of token_url, client_id and client_secret_file, or none of them")
        for address in (self.url, self.token_url) if self.url else ():
            if address and not keeps_secrets(address):
                raise ValueError(f"the token would be sent unencrypted to {address}: use https")
        return self


class DmapiSource(_Named, _ServiceSettings):
    """SKA's data management API (DMAPI) as a catalogue.

    docs/operators/catalogue-dmapi.md lists the parts of the API that this project infers.
    """

    type: Literal["dmapi"]
    url: Url
    bare_location: Literal["partial", "complete", "unseen"] = Field(
        "partial", description="dataset state at a location whose files the daemon cannot count"
    )
    list_path: str = Field(
        "",
        pattern=r"^(/[^\s?#]*\{namespace\}[^\s?#]*)?$",
        description="path that lists a namespace, needed for demand.patterns; no default, because this"
        " project only infers the path",
    )
    storage_sites: dict[str, SiteName | list[SiteName]] = Field(
        default_factory=dict,
        description="the sites of storages, as RSE or storage area id = site or list of sites; an entry"
        " has priority over [site_capabilities]",
    )


class SiteCapabilitiesSettings(_ServiceSettings):
    """SKA's Site Capabilities: the sites of each storage, and their downtimes."""


class PluginSource(_Named):
    """A catalogue from a plugin, such as ``directory``; the plugin checks the section's other keys."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str
    memory_mb: int = Field(
        500, ge=100, le=100_000, description="memory limit of the process in which a plugin runs, in MB"
    )

    @model_validator(mode="before")
    @classmethod
    def _read_paths(cls, data: Any) -> Any:  # noqa: ANN401 - TOML
        if not isinstance(data, dict):
            return data
        # as Paths: the loader makes these names absolute, and the log hides the secrets in these files
        files = {
            key: Path(given)
            for key, given in data.items()
            if str(key).endswith("_file") and isinstance(given, str)
        }
        return data | files

    @property
    def options(self) -> Mapping[str, Any]:
        return self.model_extra or {}


BUILT_IN = ("file", "rucio", "dmapi")
DIRECTORY = "directory"
"""The type of the bundled catalogue that is built as a plugin is."""


def _kind(table: Any) -> str | None:  # noqa: ANN401 - TOML
    kind = table.get("type") if isinstance(table, dict) else getattr(table, "type", None)
    if kind in BUILT_IN:
        return str(kind)
    from hydrator.config.plugins import installed_types

    return "plugin" if isinstance(kind, str) and kind in {DIRECTORY, *installed_types()} else None


Source = Annotated[
    Annotated[FileSource, Tag("file")]
    | Annotated[RucioSource, Tag("rucio")]
    | Annotated[DmapiSource, Tag("dmapi")]
    | Annotated[PluginSource, Tag("plugin")],
    Discriminator(
        _kind,
        custom_error_type="catalogue_type",
        custom_error_message="type must be 'file', 'rucio', 'dmapi', 'directory' or an installed plugin",
    ),
]
