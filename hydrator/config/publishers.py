"""[publish]: the destinations of site ads."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from hydrator.domain.untrusted import is_loopback

from .fields import HostName, Section


class CollectorSettings(Section):
    """Site ads in the collector."""

    enabled: bool = True
    lifetime_seconds: float = Field(900, ge=60, le=86_400)


class AdFileSettings(Section):
    """Ad files, one for each site."""

    enabled: bool = True
    directory: Path = Path("/var/lib/classad-hydrator/ads")


class HttpServerSettings(Section):
    """HTTP server for hooks, people and programs."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = Field(8471, ge=0, le=65535)
    max_age_seconds: float = Field(10, ge=0, le=86_400, description="Cache-Control of an ad")
    tokens_file: Path | None = Field(
        None, description="hashes of the valid tokens, by hydrator token; without it everyone may read"
    )
    behind_proxy: bool = Field(
        False, description="an HTTPS proxy is in front of the server, so that tokens are encrypted"
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        (),
        description="host names of the server in addition to its own and localhost; *.example.org for all "
        "below; checked without tokens_file and proxy, or if set",
    )
    tls_certificate: Path | None = Field(
        None,
        description="serve HTTPS with it: PEM, the server's certificate first; read again when it changes",
    )
    tls_key: Path | None = Field(None, description="its key, PEM without a passphrase")
    socket: Path | None = Field(None, description="a Unix socket, for a proxy, instead of host and port")
    socket_mode: int = Field(0o660, ge=0, le=0o777, description="who may connect to it")

    requests_per_second: float = Field(
        500, gt=0, le=1e6, description="average of one address, and of one token"
    )
    requests_burst: int = Field(2000, ge=1, le=10_000_000, description="at once, before that average applies")
    names_per_minute: float = Field(
        60, gt=0, le=1e6, description="names of private datasets that one token may exchange, on average"
    )
    names_burst: int = Field(
        5000,
        ge=2000,
        le=10_000_000,
        description="names at once, before that average applies: those of a large submission",
    )
    max_connections: int = Field(
        500, ge=2, le=100_000, description="at one time; half of them from one address"
    )
    request_seconds: float = Field(
        30,
        ge=1,
        le=3600,
        description="for a whole request, until its answer is sent; then the connection is closed",
    )

    @model_validator(mode="after")
    def _check_tls_pair(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: give both")
        return self

    @model_validator(mode="after")
    def _require_encrypted_tokens(self) -> Self:
        hidden = self.behind_proxy or self.tls_certificate or self.socket or is_loopback(self.host)
        if self.enabled and self.tokens_file and not hidden:
            raise ValueError(
                f"tokens would be sent unencrypted to {self.host}: set tls_certificate and tls_key, "
                "listen on 127.0.0.1, or set behind_proxy = true if an HTTPS proxy is in front of the server"
            )
        return self


class SitesFileSettings(Section):
    """A file with the sites of each dataset, for programs that start pilots.

    See docs/how-to/operate/pilots.md.
    """

    enabled: bool = False
    path: Path = Path("/var/lib/classad-hydrator/sites_by_dataset.json")
    valid_minutes: float = Field(
        60, ge=5, le=1440, description="how long the file is valid; after that pilots start as without it"
    )


class SlotMergeSettings(Section):
    """Attributes merged into slots without a hook, repeatedly: docs/explanation/slot-merge.md."""

    enabled: bool = False
    interval_seconds: float = Field(
        60,
        ge=1,
        le=3600,
        description="interval between queries of the slots; an update of a startd removes merged attributes",
    )
    slots_per_second: float = Field(500, ge=1, le=100_000, description="maximum rate at one collector")


class DesiredSitesSettings(Section):
    """``DESIRED_Sites`` of queued jobs that request it: docs/explanation/desired-sites.md."""

    enabled: bool = False
    interval_seconds: float = Field(60, ge=1, le=3600, description="interval between queries of the queues")
    jobs_per_second: float = Field(100, ge=1, le=10_000, description="maximum rate of edits at one schedd")
    token_directory: Path | None = Field(
        None, description="folder of the IDTOKEN for edits; default: the daemon's"
    )


class PublishSettings(Section):
    """The publishers of site ads."""

    collector: CollectorSettings = CollectorSettings()
    file: AdFileSettings = AdFileSettings()
    http: HttpServerSettings = HttpServerSettings()
    sites: SitesFileSettings = SitesFileSettings()
    merge: SlotMergeSettings = SlotMergeSettings()
    desired_sites: DesiredSitesSettings = DesiredSitesSettings()
