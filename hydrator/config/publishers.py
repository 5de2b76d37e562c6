"""The section [publish] of the configuration: the destinations of site ads."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from hydrator.domain.untrusted import is_loopback

from .fields import DidPattern, HostName, Section


class CollectorSettings(Section):
    """Publication of site ads in the collector."""

    enabled: bool = True


class AdFileSettings(Section):
    """Publication of site ads as files, one for each site."""

    enabled: bool = True
    directory: Path = Path("/var/lib/classad-hydrator/ads")


class HttpServerSettings(Section):
    """The HTTP server of the daemon, for hooks, people and programs."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = Field(8471, ge=0, le=65535)
    tokens_file: Path | None = Field(
        None,
        description="file with the hashes of the valid tokens, written by `hydrator token`; without this"
        " file everyone may read",
    )
    behind_proxy: bool = Field(
        False, description="true: an HTTPS proxy is in front of the server and encrypts the tokens"
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        (),
        description="further host names of the server; *.example.org allows all names below example.org;"
        " if this is empty, a server behind a proxy or with tokens_file allows all names",
    )
    tls_certificate: Path | None = Field(
        None,
        description="PEM file for HTTPS: the server's certificate, then its chain; the server reads the"
        " file again when it changes",
    )
    tls_key: Path | None = Field(
        None, description="PEM file with the key of tls_certificate, without a passphrase"
    )

    @model_validator(mode="after")
    def _check_encryption(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("set both tls_certificate and tls_key, or none of them")
        hidden = self.behind_proxy or self.tls_certificate or is_loopback(self.host)
        if self.enabled and self.tokens_file and not hidden:
            raise ValueError(
                f"tokens would be sent unencrypted to {self.host}: set tls_certificate and tls_key, "
                "listen on 127.0.0.1, or set behind_proxy = true if an HTTPS proxy is in front of the server"
            )
        return self


class PublishSettings(Section):
    """The destinations of site ads, and the names that go to none of them."""

    never: tuple[DidPattern, ...] = Field(
        (),
        description="patterns with * and ?, case-sensitive; a dataset whose DID matches a pattern is in no ad"
        " and on no page, and jobs that name it run as in a pool without this daemon",
    )
    collector: CollectorSettings = CollectorSettings.model_construct()
    file: AdFileSettings = AdFileSettings.model_construct()
    http: HttpServerSettings = HttpServerSettings.model_construct()
    sites_file: Path | None = Field(
        None,
        description="a file with the sites of each dataset, for programs that start pilots:"
        " docs/operators/pilots.md",
    )
    slot_merge: bool = Field(
        False,
        description="merge the attributes into slots without a hook; needs the authorization NEGOTIATOR:"
        " docs/operators/other-pools.md",
    )
