"""Tokens for Rucio that a command prints, such as an OIDC agent.

Tokens from a file or an OIDC provider are in :mod:`adapters.http.oauth`, the login that issues Rucio's own
token is in ``client.py``.
"""

import subprocess
from datetime import datetime, timedelta

from adapters.http.oauth import RenewedToken
from adapters.worker import kill_commands
from hydrator.domain.errors import CatalogueDenied
from hydrator.domain.ports import Clock
from hydrator.domain.redaction import SECRETS
from hydrator.domain.untrusted import expiry_of

from .settings import RucioSettings


class CommandToken(RenewedToken):
    """A token that ``token_command`` prints; it runs again shortly before its last token expires."""

    min_age = timedelta()

    def __init__(self, settings: RucioSettings, clock: Clock) -> None:
        super().__init__(clock)
        self._settings = settings

    def _request_token(self) -> tuple[str, datetime | None]:
        """Run the command.

        Raises:
            CatalogueDenied: the command prints no token; the message has the reason, never the token.
        """
        command, name = self._settings.token_command, self._settings.name
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
        return token, expiry_of(token)
