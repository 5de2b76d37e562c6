"""TOML into frozen Settings; every problem in one report, each with its key.

Secrets are never written here, only the files that hold them. A value may be
overridden by the environment: ``HYDRATOR_DAEMON__POLL_SECONDS=10``.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from .errors import BadDid, ConfigError
from .model import parse_did
from .plugins import installed

Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


def _no_newline(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("must be a name of printable characters")
    return text


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches *host*, an address or a name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


SiteName = Annotated[str, AfterValidator(_no_newline)]
Url = Annotated[str, Field(pattern=r"^https?://[^\s]+$")]

_SECRET_KEY = re.compile(r"(?i)(password|token|key|secret|client_secret|private_key|tls_key|passphrase)")
_NO_SECRETS = "a secret never stands here: put it into a file that only we may read, and name that as {}_file"
_SECRET_FILES = ("_file", "_files", "tls_key", "tls_certificate", "client_key", "client_cert")
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The variable by which systemd names the folder of a unit's credentials; see systemd.exec(5)."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Daemon(_Section):
    """How the daemon itself runs."""

    state_dir: Path = Field(Path("/var/lib/classad-hydrator"), description="what must survive a restart")
    poll_seconds: Seconds = Field(30, description="how often catalogues are asked")
    hang_seconds: Seconds = Field(
        600, description="a cycle this much slower than a catalogue's deadline hangs: the watchdog may end us"
    )
    default_scope: str | None = Field(None, description="the scope of a dataset that a job names without one")
    max_age_hours: Annotated[float, Field(gt=0.25, le=168)] = Field(
        6, description="a fact older than this reads UNKNOWN"
    )

    @property
    def bound(self) -> timedelta:
        return timedelta(hours=self.max_age_hours)


class HTCondor(_Section):
    """How the pool is reached."""

    collector: str | None = Field(
        None, description="host or host:port; default: what HTCondor's configuration says"
    )
    config_file: Path | None = Field(None, description="an HTCondor configuration (CONDOR_CONFIG) of our own")
    token_directory: Path | None = Field(None, description="a folder with our IDTOKEN, and nothing else")
    timeout_seconds: Seconds = Field(20, description="how long one question to a daemon of the pool may take")


class FileSource(_Section):
    """A list of datasets in TOML or JSON, read again when it changes."""

    type: Literal["file"]
    name: Name = "file"
    path: Path


class RucioSource(_Section):
    """A Rucio server."""

    type: Literal["rucio"]
    name: Name = "rucio"
    url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")]
    auth_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] | None = None
    account: str
    auth: Literal["userpass", "token", "oidc", "x509"] = "userpass"
    username: str | None = None
    password_file: Path | None = None
    token_file: Path | None = None
    token_command: list[str] = Field(
        default_factory=list, description="prints a token, run anew before that ends; no shell"
    )
    token_url: Url | None = Field(None, description='of the identity provider, for auth = "oidc"')
    client_id: str | None = None
    client_secret_file: Path | None = None
    audience: str = Field("rucio", description="that the token is asked for")
    scope: str = Field("openid", description="that the token is asked for")
    client_cert: Path | None = Field(None, description='a certificate or a proxy, for auth = "x509"')
    client_key: Path | None = Field(None, description="its key, where that is in another file")
    ca_cert: Path | None = None
    vo: str | None = None
    timeout_seconds: Seconds = Field(30, description="for one read of a socket")
    deadline_seconds: Seconds = Field(
        120, description="for a whole poll; what is not answered by then is unseen"
    )
    verify_minutes: Annotated[float, Field(ge=0, le=1440)] = Field(
        10, description="how long a dataset whose cheap row did not change is believed without being counted"
    )
    deep_calls: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        2000, description="how many datasets one poll may count file by file; the rest wait their turn"
    )
    count_first: bool = Field(
        True, description="a dataset is seen once it was counted; false: at once where its cheap row is whole"
    )
    calls_per_second: Annotated[float, Field(gt=0, le=10_000)] = Field(
        50, description="the most it is asked; less when it answers 429 or 503"
    )
    concurrent_calls: Annotated[int, Field(ge=1, le=16)] = Field(
        2, description="calls at a time, each on a connection of its own"
    )
    expiry_margin_hours: Annotated[float, Field(ge=0, le=8760)] = Field(
        6, description="data that no rule holds for so long is not AVAILABLE"
    )
    trust_caches: bool = Field(
        False, description="what is whole in a volatile RSE, a cache, is AVAILABLE too"
    )
    site_attribute: str | None = Field("site", description="the RSE attribute that names its site")
    rse_sites: dict[str, SiteName] = Field(
        default_factory=dict, description="RSE = site, wins over the attribute"
    )

    @model_validator(mode="after")
    def _credentials(self) -> Self:
        if self.auth == "userpass" and not (self.username and self.password_file):
            raise ValueError('auth = "userpass" needs username and password_file')
        if self.auth == "token" and bool(self.token_file) == bool(self.token_command):
            raise ValueError('auth = "token" needs token_file or token_command, one of them')
        if self.auth == "oidc" and not (self.token_url and self.client_id and self.client_secret_file):
            raise ValueError('auth = "oidc" needs token_url, client_id and client_secret_file')
        if self.auth == "x509" and not self.client_cert:
            raise ValueError('auth = "x509" needs client_cert')
        self._sent_in_clear()
        return self

    def _sent_in_clear(self) -> None:
        """Secrets that are not Rucio's own travel encrypted."""
        addresses = {"oidc": (self.url, self.token_url), "x509": (self.auth_url or self.url,)}
        for address in addresses.get(self.auth, ()):
            parts = urlsplit(address or "")
            if parts.scheme != "https" and (self.auth == "x509" or not is_loopback(parts.hostname or "")):
                raise ValueError(f'auth = "{self.auth}" needs https, not {address}')


class _Service(_Section):
    """A service of SKA's: where it is, and how we get a token for it."""

    token_url: Url | None = Field(None, description="of the identity provider, for client credentials")
    client_id: str | None = None
    client_secret_file: Path | None = None
    token_file: Path | None = Field(None, description="a token that somebody renews; wins over these three")
    ca_cert: Path | None = Field(None, description="who signed its certificate")
    timeout_seconds: Seconds = Field(15, description="for one read of a socket")
    calls_per_second: Annotated[float, Field(gt=0, le=10_000)] = Field(
        20, description="that we make at most; 429 and 503 slow us down further"
    )

    def _whole(self, url: str) -> None:
        client = (self.token_url, self.client_id, self.client_secret_file)
        if not self.token_file and any(client) and not all(client):
            raise ValueError("token_url, client_id and client_secret_file belong together: give all three")
        for address in (url, self.token_url):
            parts = urlsplit(address or "")
            if address and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
                raise ValueError(f"our token would travel in clear to {address}: use https")


class DmapiSource(_Service):
    """SKA's data management API; docs/catalogue-dmapi.md says what of it is inferred."""

    type: Literal["dmapi"]
    name: Name = "dmapi"
    url: Url
    audience: str = "data-management-api"
    scope: str = "openid profile data-management-api-service"
    deadline_seconds: Seconds = Field(
        120, description="for a whole poll; what is not answered by then is unseen"
    )
    parallel: Annotated[int, Field(ge=1, le=64)] = Field(8, description="questions at a time")
    limit: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        100_000, description="sent with each question; an answer that reaches it counts as cut"
    )
    count_files: bool = Field(True, description="ask for metadata, to count a dataset's files")
    bare_location: Literal["partial", "complete", "unseen"] = Field(
        "partial", description="what a location is whose files cannot be counted"
    )
    list_path: Annotated[str, Field(pattern=r"^(/[^\s?#]*\{namespace\}[^\s?#]*)?$")] = Field(
        "", description="where a namespace is listed: inferred, so not asked unless it is set"
    )
    storage_sites: dict[str, SiteName | list[SiteName]] = Field(
        default_factory=dict,
        description="RSE or storage area id = site or sites; wins over Site Capabilities",
    )

    @model_validator(mode="after")
    def _credentials(self) -> Self:
        self._whole(self.url)
        return self


class SiteCapabilitiesSettings(_Service):
    """SKA's Site Capabilities: which storage is at which sites, and their downtimes."""

    url: Url | None = None
    audience: str = "site-capabilities-api"
    scope: str = "openid profile site-capabilities-api-service"
    refresh_minutes: Annotated[float, Field(gt=0, le=1440)] = Field(10, description="how often it is asked")

    @model_validator(mode="after")
    def _credentials(self) -> Self:
        if self.url:
            self._whole(self.url)
        return self


class PluginSource(BaseModel):
    """A catalogue that comes as a plugin, ``directory`` among them; what it needs is its own affair."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str
    name: Name

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:  # noqa: ANN401 - as it stands in the file
        if not isinstance(data, dict):
            return data
        files = {  # as the secrets of our own: counted from the configuration's folder, kept out of logs
            key: Path(given)
            for key, given in data.items()
            if str(key).endswith("_file") and isinstance(given, str)
        }
        return {"name": data.get("type")} | data | files

    @property
    def options(self) -> Mapping[str, Any]:
        return self.model_extra or {}


BUILT_IN = ("file", "rucio", "dmapi")
OURS_AS_PLUGINS = frozenset({"directory"})


def _kind(table: Any) -> str | None:  # noqa: ANN401 - as it stands in the file
    kind = table.get("type") if isinstance(table, dict) else getattr(table, "type", None)
    if kind in BUILT_IN:
        return str(kind)
    return "plugin" if isinstance(kind, str) and kind in OURS_AS_PLUGINS | installed() else None


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


class DemandSettings(_Section):
    """Which datasets are published."""

    scope: Literal["jobs", "all"] = Field(
        "jobs", description="what jobs name, or all that the catalogues hold"
    )
    ask_schedds: bool = Field(True, description="ask the schedds that the collector knows")
    ask_seconds: Seconds = Field(30, description="how often schedds are asked")
    keep_hours: Annotated[float, Field(ge=0, le=720)] = Field(
        24, description="how long a dataset outlives its last job"
    )
    pins: list[str] = Field(default_factory=list, description="DIDs that are always published")
    patterns: list[str] = Field(
        default_factory=list, description="DIDs with * and ?: all that match are published"
    )


class JobsSettings(_Section):
    """What `hydrator submit pool-config` tells the schedds to make of a bare RequiredDatasets."""

    default_mode: Literal["require", "wait", "prefer"] = Field("wait", description="of a job that names none")
    wait_seconds: Annotated[float, Field(ge=0, le=31_536_000)] = Field(
        3600, description="how long wait holds out"
    )
    settle_seconds: Annotated[float, Field(ge=0, le=31_536_000)] = Field(
        600, description="how long prefer settles, so that a first job does not race its publication"
    )
    rounding_seconds: Annotated[float, Field(ge=1, le=3600)] = Field(
        300, description="deadlines are rounded up to this at least, so that jobs share an autocluster"
    )
    rank_weight: Annotated[float, Field(ge=0, le=1e12)] = Field(
        1000, description="of locality in the job's own Rank"
    )
    staging_credit: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.5, description="what STAGING counts in the rank"
    )


class NamePattern(_Section):
    """How the names of measurement sets become DIDs: a regular expression, and what it makes of a name."""

    match: str = Field(
        description="a regular expression that must match the whole name, without a trailing /"
    )
    did: str = Field(description="the DID, with \\1 or \\g<name> for what the groups matched")


class SubmitSettings(_Section):
    """What `hydrator submit` knows of measurement sets and of the jobs it writes."""

    names: dict[str, str] = Field(
        default_factory=dict, description="name of a measurement set = DID; comes first"
    )
    patterns: list[NamePattern] = Field(default_factory=list, description="tried in order, after names")
    stage_in: str | None = Field(
        None, description="a command that fetches {did} to {path}, for wait and prefer"
    )
    cpus: Annotated[int, Field(ge=1, le=4096)] = 16
    memory_gb: Annotated[float, Field(gt=0, le=65_536)] = 64
    disk_gb: Annotated[float, Field(gt=0, le=1_000_000)] = 100
    container: str | None = Field(None, description="an image for the job, as container_image")
    gpu: Literal["no", "prefer", "require"] = Field(
        "no", description="a GPU slot first, else the cores and memory above; or GPU slots only"
    )
    gpus: Annotated[int, Field(ge=1, le=64)] = Field(1, description="how many of them")
    gpu_cpus: Annotated[int, Field(ge=1, le=4096)] = Field(4, description="cores beside a GPU")
    gpu_memory_gb: Annotated[float, Field(gt=0, le=65_536)] = Field(16, description="memory beside a GPU")
    require_gpus: str | None = Field(None, description="what the GPU must have, as in require_gpus")
    gpu_rank: Annotated[float, Field(ge=0, le=1e12)] = Field(
        100, description="of a GPU in the job's own Rank; all data adds jobs.rank_weight"
    )
    gpu_steps: list[str] = Field(
        default=["*image*"], description="Toil's steps or Rapthor's operations that gpu is for, with * and ?"
    )
    daemon_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] | None = Field(
        None, description="where the daemon answers, for hosts that cannot read its state"
    )
    token_file: Path | None = Field(None, description="a file with our bearer token for the daemon")
    ca_cert: Path | None = Field(None, description="who signed the daemon's certificate")


class StorageArea(_Section):
    """Where jobs at one site find datasets as local paths."""

    site: SiteName
    prefix: str = Field(description="the folder, as jobs at the site see it")
    rule: Literal["hash", "name", "table"] = Field(
        "hash", description="below it: Rucio's scope/xx/yy/name, or scope/name, or by the table"
    )
    table: dict[str, str] = Field(default_factory=dict, description="DID = path below the prefix")


class PrivateSettings(_Section):
    """Which datasets the pool must not read the names of, and the keys of their opaque names."""

    patterns: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="DIDs with * and ?: all that match, in any letter case, are private"
    )
    key_file: Path | None = Field(None, description="the HMAC key, 32 bytes or more; the daemon needs it")
    old_key_files: list[Path] = Field(
        default_factory=list, description="keys before this one, while jobs with their names are queued"
    )


class SitesSettings(_Section):
    """Which sites are published."""

    include: list[str] = Field(
        default=["*"], description="names with * and ?; a site that none matches is withdrawn"
    )
    retired: list[SiteName] = Field(default_factory=list, description="sites to withdraw")
    slot_attributes: list[str] = Field(
        default=[
            "GLIDEIN_ResourceName",
            "GLIDEIN_CMSSite",
            "GLIDEIN_Site",
            "GLIDEIN_SiteResource",
            "SiteLocation",
        ],
        description="where a slot says its site, the first that it has; as the hook looks",
    )
    aliases: dict[str, SiteName] = Field(
        default_factory=dict, description="a site's name in catalogues = its name in slots"
    )
    reads: dict[SiteName, dict[SiteName, Annotated[float, Field(ge=0, le=1)]]] = Field(
        default_factory=dict,
        description="by site, whose storage its jobs read, with its cost: 0 (as if here) to 1 (no use)",
    )


class CollectorOutlet(_Section):
    """The site ads in the collector."""

    enabled: bool = True
    lifetime_seconds: Annotated[float, Field(ge=60, le=86_400)] = 900


class FileOutlet(_Section):
    """The ad files, one a site."""

    enabled: bool = True
    directory: Path = Path("/var/lib/classad-hydrator/ads")


class HttpOutlet(_Section):
    """The answers to hooks, people and programs."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8471
    max_age_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        10, description="Cache-Control of an ad"
    )
    tokens_file: Path | None = Field(
        None, description="hashes of the tokens that may read, by hydrator token; without it all may"
    )
    behind_proxy: bool = Field(
        False, description="a proxy with HTTPS stands in front, so that no token travels in clear"
    )
    tls_certificate: Path | None = Field(
        None, description="serve HTTPS with it: PEM, our own certificate first; read again when it changes"
    )
    tls_key: Path | None = Field(None, description="its key, PEM without a passphrase")
    socket: Path | None = Field(None, description="a Unix socket, for a proxy, instead of host and port")
    socket_mode: Annotated[int, Field(ge=0, le=0o777)] = Field(0o660, description="who may connect to it")

    requests_per_second: Annotated[float, Field(gt=0, le=1e6)] = Field(
        500, description="that one address, and one token, may go on with"
    )
    requests_burst: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        2000, description="that may come at once before that"
    )
    max_connections: Annotated[int, Field(ge=2, le=100_000)] = Field(
        500, description="at one time; half of them from one address"
    )
    request_seconds: Annotated[float, Field(ge=1, le=3600)] = Field(
        30, description="for a whole request, until its answer is taken; then it is cut"
    )

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: give both")
        return self

    @model_validator(mode="after")
    def _no_token_in_clear(self) -> Self:
        hidden = self.behind_proxy or self.tls_certificate or self.socket or is_loopback(self.host)
        if self.enabled and self.tokens_file and not hidden:
            raise ValueError(
                f"tokens would travel in clear to {self.host}: set tls_certificate and tls_key, listen on "
                "127.0.0.1, or set behind_proxy = true where a proxy with HTTPS stands in front"
            )
        return self


class SitesOutlet(_Section):
    """One file that says where each dataset is, for who starts pilots: docs/pilots.md."""

    enabled: bool = False
    path: Path = Path("/var/lib/classad-hydrator/sites_by_dataset.json")
    valid_minutes: Annotated[float, Field(ge=5, le=1440)] = Field(
        60, description="how long it tells something after it was written; then pilots start as without us"
    )


class MergeOutlet(_Section):
    """The attributes on slots without a hook, again and again: docs/slot-merge.md."""

    enabled: bool = False
    interval_seconds: Annotated[float, Field(ge=1, le=3600)] = Field(
        60, description="how often the slots are looked at; a startd's update wipes what was merged"
    )
    slots_per_second: Annotated[float, Field(ge=1, le=100_000)] = Field(
        500, description="at most, into one collector"
    )


class DesiredSites(_Section):
    """``DESIRED_Sites`` on queued jobs that ask for it: docs/desired-sites.md."""

    enabled: bool = False
    interval_seconds: Annotated[float, Field(ge=1, le=3600)] = Field(
        60, description="how often queues are looked at"
    )
    jobs_per_second: Annotated[float, Field(ge=1, le=10_000)] = Field(
        100, description="edited at most, at one schedd"
    )
    token_directory: Path | None = Field(
        None, description="the IDTOKEN that may edit, where it is another one; default: the daemon's"
    )


class PublishSettings(_Section):
    """Where site ads go."""

    collector: CollectorOutlet = CollectorOutlet()
    file: FileOutlet = FileOutlet()
    http: HttpOutlet = HttpOutlet()
    sites: SitesOutlet = SitesOutlet()
    merge: MergeOutlet = MergeOutlet()
    desired_sites: DesiredSites = DesiredSites()


class BudgetSettings(_Section):
    """How large an ad may grow."""

    line_bytes: Annotated[int, Field(ge=1_000, le=60_000)] = 60_000
    ad_bytes: Annotated[int, Field(ge=1_000, le=240_000)] = 240_000


class BreakerSettings(_Section):
    """When a change is held because too much would vanish at once."""

    site_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="of what a site lists: more than this at once is held"
    )
    all_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.3, description="of what all sites together list: more than this at once is held"
    )
    min_datasets: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        5, description="a loss of fewer passes, unless nothing is left anywhere"
    )
    confirm_polls: Annotated[int, Field(ge=0, le=100_000)] = Field(
        20, description="how many further polls must say the same to end a hold; 0: nothing is held"
    )


class ProbeSettings(_Section):
    """A command that looks whether a dataset is in the storage: exit 0 it is, 1 it is not, else unknown."""

    command: Annotated[list[str], Field(min_length=1)] = Field(
        description="words, run without a shell; {did}, {site} and {path} are filled in"
    )
    sites: list[str] = Field(default=["*"], description="the sites it can look at, with * and ?")
    catalogues: list[str] = Field(default=["*"], description="the catalogues it checks, with * and ?")
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30


class AuditSettings(_Section):
    """How facts are checked by expensive questions, one at a time: docs/trust.md."""

    enabled: bool = True
    calls_per_second: Annotated[float, Field(gt=0, le=100)] = Field(
        1, description="how many datasets are verified file by file"
    )
    window_hours: Annotated[float, Field(ge=1, le=720)] = Field(
        24, description="what was found longer ago counts no more: trust heals"
    )
    warn_below: Annotated[float, Field(ge=0, le=1)] = Field(
        1, description="hydrator check warns of a site that is trusted less"
    )
    misses_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        60, description="how often schedds are asked what jobs did not find; 0: never"
    )
    probes_per_minute: Annotated[float, Field(gt=0, le=600)] = Field(
        6, description="how often a probe looks at the storage"
    )
    probe: list[ProbeSettings] = Field(default_factory=list, description="the first that fits looks")


class StandbySettings(_Section):
    """Two daemons on one pool, of which one publishes: docs/stand-by.md."""

    enabled: bool = False
    name: Name | None = Field(None, description="of this daemon, another on each; default: the host's")
    after_seconds: Annotated[float, Field(ge=3, le=3600)] = Field(
        90, description="how long the one that publishes may be silent until the other does"
    )


class ReportSettings(_Section):
    """What became of jobs, from the schedds' histories: docs/report.md."""

    count_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        300, description="how often ended jobs are counted for the metrics; 0: never"
    )
    slots_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        60, description="how often slots are asked whether they carry our attributes; 0: never"
    )


class StompSettings(_Section):
    """A broker that speaks STOMP and gets a catalogue's events, as Rucio's daemon hermes sends them."""

    name: Name
    host: Annotated[str, Field(pattern=r"^[^\s/:]+$|^[0-9a-fA-F:]+$")]
    port: Annotated[int, Field(ge=1, le=65535)] = 61614
    destination: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        description="what is subscribed to, in the broker's own words: /topic/rucio.events"
    )
    virtual_host: str | None = Field(None, description="of the broker; default: host")
    username: str | None = None
    password_file: Path | None = None
    tls: bool = True
    ca_cert: Path | None = Field(None, description="who signed its certificate")
    client_cert: Path | None = Field(None, description="ours, where it asks for one")
    client_key: Path | None = Field(None, description="its key, where that is in another file")
    timeout_seconds: Seconds = Field(10, description="for a connection and each answer while it is made")
    heartbeat_seconds: Annotated[float, Field(ge=0.1, le=3600)] = Field(
        10, description="between signs of life; a broker silent for two and a half of them is gone"
    )

    @model_validator(mode="after")
    def _secrets(self) -> Self:
        if (self.username is None) != (self.password_file is None):
            raise ValueError("username and password_file belong together: give both")
        if not self.tls and self.client_cert:
            raise ValueError("client_cert needs tls = true")
        if not self.tls and self.password_file and not is_loopback(self.host):
            raise ValueError(f"our password would travel in clear to {self.host}: set tls = true")
        for key in ("destination", "virtual_host", "username"):
            if not (getattr(self, key) or "").isprintable():
                raise ValueError(f"{key} must be of printable characters")
        return self


class EventsSettings(_Section):
    """What may tell us that a dataset changed, so that it is looked at before its time: docs/events.md."""

    webhook: bool = Field(False, description="take events at POST /v1/events; needs publish.http.tokens_file")
    catalogues: list[str] = Field(
        default=["*"], description="whose changes events tell of, with * and ?; one that none tells is a gap"
    )
    spacing_seconds: Seconds = Field(
        1, description="after a poll before events bring another; at least as long as that took"
    )
    late_seconds: Seconds = Field(60, description="how long after a poll saw a change its event may come")
    per_second: Annotated[float, Field(gt=0, le=1e6)] = Field(
        1000, description="events of one source that are read in the long run; others are dropped"
    )
    stomp: list[StompSettings] = Field(default_factory=list, description="brokers that are listened to")

    @model_validator(mode="after")
    def _names(self) -> Self:
        names = [broker.name for broker in self.stomp] + ["webhook"]
        if len(set(names)) < len(names):
            raise ValueError("each of events.stomp needs a name of its own, and none is called webhook")
        return self


class LogSettings(_Section):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class Settings(BaseSettings):
    """The whole configuration."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="HYDRATOR_", env_nested_delimiter="__", env_ignore_empty=True
    )

    daemon: Daemon = Daemon()
    htcondor: HTCondor = HTCondor()
    catalogue: list[Source] = Field(default_factory=list)
    site_capabilities: SiteCapabilitiesSettings = SiteCapabilitiesSettings()
    demand: DemandSettings = DemandSettings()
    jobs: JobsSettings = JobsSettings()
    submit: SubmitSettings = SubmitSettings()
    storage: list[StorageArea] = Field(default_factory=list)
    private: PrivateSettings = PrivateSettings()
    sites: SitesSettings = SitesSettings()
    publish: PublishSettings = PublishSettings()
    budget: BudgetSettings = BudgetSettings()
    breaker: BreakerSettings = BreakerSettings()
    audit: AuditSettings = AuditSettings()
    standby: StandbySettings = StandbySettings()
    report: ReportSettings = ReportSettings()
    events: EventsSettings = EventsSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings


def load(path: Path) -> Settings:
    """Read the configuration at *path*; relative paths in it count from its folder.

    Raises:
        ConfigError: with every problem that was found, each beginning with its key.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        data = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(
            [f"{path}: {error.strerror}; name it with --config, or `hydrator init` makes one"]
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8 text (byte {error.start})"]) from error
    except RecursionError as error:
        raise ConfigError(
            [f"{path}: not TOML that can be read: its lists or tables stand too deep"]
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from error
    return parse(data, folder=path.parent.absolute(), origin=str(path))


def parse(data: Mapping[str, Any], *, folder: Path, origin: str) -> Settings:
    """Check *data*, the parsed TOML; see :func:`load`."""
    try:
        settings = Settings(**data)
    except ValidationError as error:
        problems = [_problem(detail) for detail in error.errors()]
        problems += _cross_checks(data)
        raise ConfigError([f"{origin}: {_one_line(problem)}" for problem in problems]) from error
    except SettingsError as error:
        raise ConfigError([_bad_variable(error)]) from error
    problems = _cross_checks(settings.model_dump())
    if problems:
        raise ConfigError([f"{origin}: {_one_line(problem)}" for problem in problems])
    return _absolute(settings, folder)


def _one_line(text: str) -> str:
    """*text* with its line breaks and control characters written out: keys may hold any."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def _bad_variable(error: SettingsError) -> str:
    """One sentence on a variable of the environment that names a list or a section and is no JSON."""
    key = re.search(r'field "([^"]+)"', str(error))
    names = [
        name
        for name in os.environ
        if key and re.fullmatch(rf"HYDRATOR_(\w+__)?{key[1]}(__\w+)?", name, re.IGNORECASE)
    ]
    return f'environment: {" or ".join(sorted(names)) or error}: must be JSON, as in ["a", "b"]'


def _problem(detail: ErrorDetails) -> str:
    loc = list(detail["loc"])
    # pydantic names the type of a catalogue behind its number; the operator's file does not
    place = loc[:2] + loc[3:] if loc[0] == "catalogue" and len(loc) > 2 else loc
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    if detail["type"] == "extra_forbidden":
        secret = _SECRET_KEY.fullmatch(str(loc[-1]))
        return f"{key}: {_NO_SECRETS.format(secret[1])}" if secret else f"{key}: unknown key{_nearest(loc)}"
    if key == "catalogue" and isinstance(detail["input"], dict):
        return "catalogue: is one table; write [[catalogue]] with two brackets, since there may be several"
    message = detail["msg"].removeprefix("Value error, ")
    given = detail.get("input")
    if detail["type"] == "catalogue_type" and isinstance(given, dict):
        given = given.get("type")
    shown = f" (it is {given!r})" if isinstance(given, str | int | float | bool) else ""
    return f"{key}: {message[0].lower()}{message[1:]}{shown}"


def _nearest(place: list[str | int]) -> str:
    model: Any = Settings
    if place[0] == "catalogue":
        model, place = (
            {"file": FileSource, "rucio": RucioSource, "dmapi": DmapiSource}.get(str(place[2])),
            place[3:],
        )
    for part in place[:-1]:
        if isinstance(part, str) and isinstance(model, type) and issubclass(model, BaseModel):
            field = model.model_fields.get(part)
            model = field.annotation if field else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return ""
    near = difflib.get_close_matches(str(place[-1]), model.model_fields, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(model.model_fields)}"


def _cross_checks(data: Mapping[str, Any]) -> list[str]:
    """What one key alone cannot show; *data* may be wrong in any other way."""
    problems: list[str] = []
    catalogues = data.get("catalogue")
    submit = data.get("submit")
    if not catalogues and not (isinstance(submit, dict) and submit.get("daemon_url")):
        problems.append('catalogue: there is none; add [[catalogue]] with type = "file" or "rucio"')
    elif isinstance(catalogues, list):
        names = [c.get("name", c.get("type")) for c in catalogues if isinstance(c, dict)]
        problems += [
            f"catalogue: the name {name!r} stands {names.count(name)} times; give each its own name"
            for name in sorted({str(n) for n in names if names.count(n) > 1})
        ]
    problems += _bad_pins(data)
    publish = data.get("publish")
    if isinstance(publish, dict) and not any(
        _publishes(publish, outlet) for outlet in PublishSettings.model_fields
    ):
        problems.append("publish: every publisher is switched off; enable collector, file or http")
    return problems + _bad_events(data) + _bad_standby(data)


def _bad_standby(data: Mapping[str, Any]) -> list[str]:
    """Two daemons meet in the collector."""
    standby, publish = data.get("standby"), data.get("publish")
    if not isinstance(standby, dict) or standby.get("enabled") is not True or not isinstance(publish, dict):
        return []
    if _publishes(publish, "collector"):
        return []
    return ["standby.enabled: two daemons meet in the collector: set publish.collector.enabled too"]


def _bad_events(data: Mapping[str, Any]) -> list[str]:
    """Whoever reaches us could send events to a webhook without tokens."""
    events, publish = data.get("events"), data.get("publish")
    http = publish.get("http") if isinstance(publish, dict) else None
    guarded = isinstance(http, dict) and http.get("enabled", True) and http.get("tokens_file")
    if not isinstance(events, dict) or events.get("webhook") is not True or guarded:
        return []
    how = "hydrator token new --role event"
    return [f"events.webhook: needs publish.http with a tokens_file; who sends events gets a token by {how}"]


def _publishes(publish: Mapping[str, Any], outlet: str) -> bool:
    given = publish.get(outlet, {})
    default = PublishSettings.model_fields[outlet].default.enabled
    return not isinstance(given, dict) or bool(given.get("enabled", default))


def _bad_pins(data: Mapping[str, Any]) -> list[str]:
    wanted = data.get("demand")
    daemon = data.get("daemon")
    pins = wanted.get("pins") if isinstance(wanted, dict) else None
    scope = daemon.get("default_scope") if isinstance(daemon, dict) else None
    problems = []
    for number, pin in enumerate(pins if isinstance(pins, list) else []):
        try:
            parse_did(str(pin), scope if isinstance(scope, str) else None)
        except BadDid as bad:
            problems.append(f"demand.pins[{number}]: {bad}")
    return problems


def _absolute(settings: Settings, folder: Path) -> Settings:
    """The same settings with every path counted from *folder*."""

    def fixed(value: Any, key: str = "") -> Any:  # noqa: ANN401
        if isinstance(value, Path):
            return _credential(value, key) or folder / value.expanduser()
        if isinstance(value, BaseModel):
            return value.model_copy(
                update={key: fixed(getattr(value, key), key) for key in type(value).model_fields}
            )
        if isinstance(value, list):
            return [fixed(item, key) for item in value]
        return value

    result: Settings = fixed(settings)
    return result


def _credential(name: Path, key: str) -> Path | None:
    """Where systemd has put the secret that *key* calls by a bare *name*, if it has."""
    given = os.environ.get(CREDENTIALS)
    if not given or len(name.parts) != 1 or not key.endswith(_SECRET_FILES):
        return None
    found = Path(given) / name
    return found if found.is_file() else None
