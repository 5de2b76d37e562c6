"""Port to HTCondor daemons: their settings, and the permissions that they grant this client."""

from collections.abc import Iterable
from typing import Literal, Protocol

DaemonKind = Literal["collector", "negotiator", "schedd", "startd"]


class AuthorizationResult(Protocol):
    """An HTCondor daemon's answer about one authorization level, with the reason of a refusal."""

    @property
    def is_allowed(self) -> bool: ...
    @property
    def identity(self) -> str | None: ...
    @property
    def method(self) -> str | None: ...
    @property
    def reason(self) -> str: ...
    @property
    def token_limit_advice(self) -> str: ...


class DaemonProbe(Protocol):
    """Queries to a single HTCondor daemon.

    *daemon* is the kind of daemon. Without *name*, a query goes to the first daemon of this kind.
    """

    def config_of(
        self, daemon: DaemonKind, names: Iterable[str], name: str | None = None
    ) -> dict[str, str | None]: ...
    def ping(self, daemon: DaemonKind, level: str, name: str | None = None) -> AuthorizationResult: ...
