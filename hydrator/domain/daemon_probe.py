"""Port to HTCondor daemons: their settings, and the permissions that they grant this client."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

DaemonKind = Literal["collector", "negotiator", "schedd", "startd"]


@dataclass(frozen=True, slots=True)
class Authorization:
    """A daemon's answer about one authorization level; ``reason`` is empty if the daemon allows the level."""

    is_allowed: bool
    identity: str | None = None
    method: str | None = None
    reason: str = ""
    token_limit_advice: str = ""
    """The advice if the token itself does not allow the level, whatever its identity."""


class DaemonProbe(Protocol):
    """Queries to a single HTCondor daemon.

    *daemon* is the kind of daemon. Without *name*, a query goes to the first daemon of this kind.
    """

    def config_of(
        self, daemon: DaemonKind, names: Iterable[str], name: str | None = None
    ) -> dict[str, str | None]: ...
    def ping(self, daemon: DaemonKind, level: str, name: str | None = None) -> Authorization: ...
