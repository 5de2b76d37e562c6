"""[daemon], [htcondor], [private], [sites], [budget], [standby], [report], [events] and [log]."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hydrator.domain.untrusted import is_loopback

from .fields import Name, Seconds, Section, SiteName


class DaemonSettings(Section):
    """State, intervals and defaults of the daemon."""

    state_dir: Path = Field(
        Path("/var/lib/classad-hydrator"), description="the state that a restart needs; one daemon owns it"
    )
    poll_seconds: Seconds = Field(30, description="interval between polls of the catalogues")
    hang_seconds: Seconds = Field(
        600, description="no progress for poll_seconds plus this is a hang: the watchdog may end the daemon"
    )
    default_scope: str | None = Field(None, description="the scope of a dataset that a job names without one")
    max_age_hours: float = Field(6, gt=0.25, le=168, description="an older fact counts as UNKNOWN")

    @property
    def max_age(self) -> timedelta:
        return timedelta(hours=self.max_age_hours)


class HTCondorSettings(Section):
    """Address of the pool and credentials for it."""

    collector: str | None = Field(
        None, description="host or host:port; default: from HTCondor's configuration"
    )
    config_file: Path | None = Field(
        None, description="an HTCondor configuration (CONDOR_CONFIG) for the daemon"
    )
    token_directory: Path | None = Field(
        None, description="a folder with the IDTOKEN of the daemon, and nothing else"
    )
    timeout_seconds: Seconds = Field(20, description="limit of one query to a daemon of the pool")


class PrivateSettings(Section):
    """Datasets whose names the pool must not read, and the keys of their pseudonyms."""

    patterns: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="DIDs with * and ?: all that match, in any letter case, are private"
    )
    key_file: Path | None = Field(None, description="the HMAC key, 32 bytes or more; the daemon needs it")
    old_key_files: list[Path] = Field(
        default_factory=list,
        description="keys before this one, needed while jobs with their pseudonyms are queued",
    )


class SitesSettings(Section):
    """Sites to publish, their names in catalogues, and sites that read each other's storage."""

    include: list[str] = Field(
        default=["*"], description="names with * and ?; a site without a match is withdrawn"
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
        description="attributes with the site of a slot, the first one counts, as in the hook",
    )
    aliases: dict[str, SiteName] = Field(
        default_factory=dict, description="a site's name in catalogues = its name in slots"
    )
    reads: dict[SiteName, dict[SiteName, Annotated[float, Field(ge=0, le=1)]]] = Field(
        default_factory=dict,
        description="by site, the sites whose storage its jobs read = cost: 0 (as if local) to 1 (useless)",
    )


class BudgetSettings(Section):
    """Maximum size of an ad."""

    line_bytes: int = Field(60_000, ge=1_000, le=60_000)
    ad_bytes: int = Field(240_000, ge=1_000, le=240_000)


class StandbySettings(Section):
    """Leader election between two daemons on one pool: docs/how-to/operate/stand-by.md."""

    enabled: bool = False
    name: Name | None = Field(None, description="name of this daemon, unique; default: the host's")
    after_seconds: float = Field(
        90,
        ge=3,
        le=3600,
        description="seconds without a heartbeat of the leader until the standby takes over",
    )
    identities: tuple[Name, ...] = Field(
        (),
        description="of the other daemon at the collector, if it differs from this one's, such as"
        " hydrator2@YOUR.DOMAIN: its ads are accepted too",
    )


class ReportSettings(Section):
    """Statistics of ended jobs, from the schedds' histories: docs/reference/report.md."""

    count_seconds: float = Field(
        300, ge=0, le=86_400, description="interval between counts of ended jobs for the metrics; 0: never"
    )
    slots_seconds: float = Field(
        60, ge=0, le=86_400, description="interval between checks that slots have the attributes; 0: never"
    )


class StompBrokerSettings(Section):
    """A STOMP broker with a catalogue's events, as Rucio's daemon hermes sends them."""

    name: Name
    host: str = Field(pattern=r"^[^\s/:]+$|^[0-9a-fA-F:]+$")
    port: int = Field(61614, ge=1, le=65535)
    destination: str = Field(
        min_length=1,
        max_length=500,
        description="the topic or queue to subscribe to, such as /topic/rucio.events",
    )
    virtual_host: str | None = Field(None, description="of the broker; default: host")
    username: str | None = None
    password_file: Path | None = None
    tls: bool = True
    ca_cert: Path | None = Field(None, description="the CA of its certificate")
    client_cert: Path | None = Field(None, description="client certificate, if the broker requires one")
    client_key: Path | None = Field(None, description="its key, if it is in another file")
    timeout_seconds: Seconds = Field(10, description="for a connection and each answer of the login")
    heartbeat_seconds: float = Field(
        10,
        ge=0.1,
        le=3600,
        description="between heartbeats; without any for two and a half of them the connection is lost",
    )

    @model_validator(mode="after")
    def _check_secrets(self) -> Self:
        if (self.username is None) != (self.password_file is None):
            raise ValueError("username and password_file belong together: give both")
        if not self.tls and self.client_cert:
            raise ValueError("client_cert needs tls = true")
        if not self.tls and self.password_file and not is_loopback(self.host):
            raise ValueError(f"the password would be sent unencrypted to {self.host}: set tls = true")
        for key in ("destination", "virtual_host", "username"):
            if not (getattr(self, key) or "").isprintable():
                raise ValueError(f"{key} must be of printable characters")
        return self


class EventsSettings(Section):
    """Events about changed datasets, which trigger an early poll: docs/reference/events.md."""

    webhook: bool = Field(
        False, description="accept events at POST /v1/events; needs publish.http.tokens_file"
    )
    catalogues: list[str] = Field(
        default=["*"], description="catalogues with events, with * and ?; a change without an event is a gap"
    )
    spacing_seconds: Seconds = Field(
        1, description="minimum between a poll and one that events trigger; at least the duration of a poll"
    )
    late_seconds: Seconds = Field(60, description="how long after a poll found a change its event may arrive")
    per_second: float = Field(
        1000, gt=0, le=1e6, description="maximum average rate of events from one source; others are dropped"
    )
    stomp: list[StompBrokerSettings] = Field(default_factory=list, description="brokers to subscribe to")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [broker.name for broker in self.stomp] + ["webhook"]
        if len(set(names)) < len(names):
            raise ValueError("each of events.stomp needs a unique name other than webhook")
        return self


class LogSettings(Section):
    """Level and format of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
