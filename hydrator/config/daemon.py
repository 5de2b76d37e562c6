"""The daemon's other tables."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hydrator.domain.untrusted import is_loopback

from .fields import Name, Seconds, Section, SiteName


class DaemonSettings(Section):
    """How the daemon itself runs."""

    state_dir: Path = Field(Path("/var/lib/classad-hydrator"), description="what must survive a restart")
    poll_seconds: Seconds = Field(30, description="how often catalogues are asked")
    hang_seconds: Seconds = Field(
        600, description="no progress for poll_seconds and this is a hang: the watchdog may end us"
    )
    default_scope: str | None = Field(None, description="the scope of a dataset that a job names without one")
    max_age_hours: Annotated[float, Field(gt=0.25, le=168)] = Field(
        6, description="a fact older than this reads UNKNOWN"
    )

    @property
    def max_age(self) -> timedelta:
        return timedelta(hours=self.max_age_hours)


class HTCondorSettings(Section):
    """How the pool is reached."""

    collector: str | None = Field(
        None, description="host or host:port; default: what HTCondor's configuration says"
    )
    config_file: Path | None = Field(None, description="an HTCondor configuration (CONDOR_CONFIG) of our own")
    token_directory: Path | None = Field(None, description="a folder with our IDTOKEN, and nothing else")
    timeout_seconds: Seconds = Field(20, description="how long one question to a daemon of the pool may take")


class PrivateSettings(Section):
    """Which datasets the pool must not read the names of, and the keys of their opaque names."""

    patterns: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="DIDs with * and ?: all that match, in any letter case, are private"
    )
    key_file: Path | None = Field(None, description="the HMAC key, 32 bytes or more; the daemon needs it")
    old_key_files: list[Path] = Field(
        default_factory=list, description="keys before this one, while jobs with their names are queued"
    )


class SitesSettings(Section):
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


class BudgetSettings(Section):
    """How large an ad may grow."""

    line_bytes: Annotated[int, Field(ge=1_000, le=60_000)] = 60_000
    ad_bytes: Annotated[int, Field(ge=1_000, le=240_000)] = 240_000


class StandbySettings(Section):
    """Two daemons on one pool, of which one publishes: docs/stand-by.md."""

    enabled: bool = False
    name: Name | None = Field(None, description="of this daemon, another on each; default: the host's")
    after_seconds: Annotated[float, Field(ge=3, le=3600)] = Field(
        90, description="how long the one that publishes may be silent until the other does"
    )
    identities: tuple[Name, ...] = Field(
        (),
        description="of the other daemon at the collector, where it has another than this one, such as"
        " hydrator2@YOUR.DOMAIN: its ads are believed too",
    )


class ReportSettings(Section):
    """What became of jobs, from the schedds' histories: docs/report.md."""

    count_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        300, description="how often ended jobs are counted for the metrics; 0: never"
    )
    slots_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        60, description="how often slots are asked whether they carry our attributes; 0: never"
    )


class StompBrokerSettings(Section):
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
    def _check_secrets(self) -> Self:
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


class EventsSettings(Section):
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
    stomp: list[StompBrokerSettings] = Field(default_factory=list, description="brokers that are listened to")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [broker.name for broker in self.stomp] + ["webhook"]
        if len(set(names)) < len(names):
            raise ValueError("each of events.stomp needs a name of its own, and none is called webhook")
        return self


class LogSettings(Section):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
