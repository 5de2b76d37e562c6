"""[publish]: where ads go."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from hydrator.domain.untrusted import is_loopback

from .fields import HostName, Section


class CollectorSettings(Section):
    """The site ads in the collector."""

    enabled: bool = True
    lifetime_seconds: Annotated[float, Field(ge=60, le=86_400)] = 900


class AdFileSettings(Section):
    """The ad files, one a site."""

    enabled: bool = True
    directory: Path = Path("/var/lib/classad-hydrator/ads")


class HttpServerSettings(Section):
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
    allowed_hosts: tuple[HostName, ...] = Field(
        (),
        description="names, besides its own and localhost, that the server answers to; *.example.org for all "
        "below; checked where no tokens are asked for and no proxy stands in front, or where it is set",
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
    names_per_minute: Annotated[float, Field(gt=0, le=1e6)] = Field(
        60, description="names of private datasets that one token may go on exchanging"
    )
    names_burst: Annotated[int, Field(ge=2000, le=10_000_000)] = Field(
        5000, description="that it may exchange at once before that: those of a large submission"
    )
    max_connections: Annotated[int, Field(ge=2, le=100_000)] = Field(
        500, description="at one time; half of them from one address"
    )
    request_seconds: Annotated[float, Field(ge=1, le=3600)] = Field(
        30, description="for a whole request, until its answer is taken; then it is cut"
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
                f"tokens would travel in clear to {self.host}: set tls_certificate and tls_key, listen on "
                "127.0.0.1, or set behind_proxy = true where a proxy with HTTPS stands in front"
            )
        return self


class SitesFileSettings(Section):
    """One file that says where each dataset is, for who starts pilots: docs/pilots.md."""

    enabled: bool = False
    path: Path = Path("/var/lib/classad-hydrator/sites_by_dataset.json")
    valid_minutes: Annotated[float, Field(ge=5, le=1440)] = Field(
        60, description="how long it tells something after it was written; then pilots start as without us"
    )


class SlotMergeSettings(Section):
    """The attributes on slots without a hook, again and again: docs/slot-merge.md."""

    enabled: bool = False
    interval_seconds: Annotated[float, Field(ge=1, le=3600)] = Field(
        60, description="how often the slots are looked at; a startd's update wipes what was merged"
    )
    slots_per_second: Annotated[float, Field(ge=1, le=100_000)] = Field(
        500, description="at most, into one collector"
    )


class DesiredSitesSettings(Section):
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


class PublishSettings(Section):
    """Where site ads go."""

    collector: CollectorSettings = CollectorSettings()
    file: AdFileSettings = AdFileSettings()
    http: HttpServerSettings = HttpServerSettings()
    sites: SitesFileSettings = SitesFileSettings()
    merge: SlotMergeSettings = SlotMergeSettings()
    desired_sites: DesiredSitesSettings = DesiredSitesSettings()
