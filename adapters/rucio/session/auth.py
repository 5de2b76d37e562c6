"""Tokens for Rucio that a command prints, such as an OIDC agent.

Tokens from a file or an OIDC provider are in :mod:`adapters.http.oauth`, the login that issues Rucio's own
token is in ``client.py``.
"""

import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from adapters.worker import kill_commands
from hydrator.domain.errors import CatalogueDenied
from hydrator.domain.model import from_unix
from hydrator.domain.ports import TokenValidity
from hydrator.domain.redaction import SECRETS
from hydrator.domain.untrusted import expiry_of

from .settings import RucioSettings

_RENEWAL_MARGIN = timedelta(minutes=2)
_UNKNOWN_LIFETIME = timedelta(minutes=10)


class CommandToken:
    """A token that *command* prints; it runs again shortly before its last token expires."""

    def __init__(
        self, settings: RucioSettings, command: tuple[str, ...], clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._command = command
        self._clock = clock
        self._cached: tuple[str, datetime] | None = None
        self.token_validity: TokenValidity | None = None

    def token(self) -> str:
        """Return the token to send.

        Raises:
            CatalogueDenied: the command prints no token; the message has the reason, never the token.
        """
        now = from_unix(self._clock())
        if self._cached is None or now >= self._cached[1]:
            token = self._run_command()
            ends = expiry_of(token)
            self.token_validity = TokenValidity(now, ends) if ends else None
            use_until = now + _UNKNOWN_LIFETIME if ends is None else max(now, ends - _RENEWAL_MARGIN)
            self._cached = token, use_until
        return self._cached[0]

    def forget(self) -> None:
        """Forget the token that Rucio refused, so that the next poll runs ``token_command`` again."""
        self._cached = None

    def close(self) -> None:
        """Forget the token."""
        self._cached = None

    def _run_command(self) -> str:
        command = self._command
        name = self._settings.name
        try:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=self._settings.timeout.total_seconds(),
            )
        except (OSError, ValueError) as exc:
            raise CatalogueDenied(name, f"token_command {command[0]} cannot be run: {exc}") from None
        except subprocess.TimeoutExpired:
            kill_commands()  # run has killed the command, but not what it started
            seconds = self._settings.timeout.total_seconds()
            raise CatalogueDenied(
                name, f"token_command {command[0]} took longer than {seconds:g} s"
            ) from None
        if process.returncode:
            status = f"ended with status {process.returncode}; test it as the daemon's user"
            raise CatalogueDenied(name, f"token_command {command[0]} {status}")
        token = process.stdout.decode("ascii", "replace").strip()
        SECRETS.keep(token, *token.split())
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise CatalogueDenied(name, f"token_command {command[0]} does not contain a token")
        return token
