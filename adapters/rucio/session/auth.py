"""Tokens for Rucio: from a file, a command (an OIDC agent), an OIDC provider, or issued by Rucio itself.

Rucio's own token is issued by the login of ``client.py``.
"""

import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from adapters.http.oauth import ClientCredentials, ClientSettings
from hydrator.domain.errors import CatalogueDenied
from hydrator.domain.model import from_unix
from hydrator.domain.ports import TokenValidity
from hydrator.domain.redaction import SECRETS
from hydrator.domain.untrusted import expiry_of

from .settings import RucioSettings

_RENEWAL_MARGIN = timedelta(minutes=2)
_UNKNOWN_LIFETIME = timedelta(minutes=10)


class ExternalToken:
    """A token from a file or a command.

    The file is read for each poll. The command runs again shortly before its last token expires.
    """

    def __init__(self, settings: RucioSettings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._command_token: tuple[str, datetime] | None = None
        self.token_validity: TokenValidity | None = None

    def token(self) -> str:
        """Return the token to send.

        Raises:
            CatalogueDenied: the file or command gives no token; the message has the reason, never the token.
        """
        command = self._settings.token_command
        if not command:
            return self._read_file(self._settings.token_file)
        now = from_unix(self._clock())
        if self._command_token is None or now >= self._command_token[1]:
            token = self._run_command(command)
            ends = expiry_of(token)
            self.token_validity = TokenValidity(now, ends) if ends else None
            self._command_token = (
                token,
                now + _UNKNOWN_LIFETIME if ends is None else max(now, ends - _RENEWAL_MARGIN),
            )
        return self._command_token[0]

    def forget(self) -> None:
        """Forget the token that Rucio refused, so that the next poll runs ``token_command`` again."""
        self._command_token = None

    def close(self) -> None:
        """Forget the token."""
        self._command_token = None

    def _read_file(self, file: Path | None) -> str:
        try:
            text = file.read_text(encoding="ascii") if file else ""
        except (OSError, ValueError) as exc:
            raise CatalogueDenied(self._settings.name, f"cannot read the token file {file}: {exc}") from None
        return self._check_token(text, f"the token file {file}")

    def _run_command(self, command: tuple[str, ...]) -> str:
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
            seconds = self._settings.timeout.total_seconds()
            raise CatalogueDenied(
                name, f"token_command {command[0]} took longer than {seconds:g} s"
            ) from None
        if process.returncode:
            status = f"ended with status {process.returncode}; test it as the daemon's user"
            raise CatalogueDenied(name, f"token_command {command[0]} {status}")
        return self._check_token(process.stdout.decode("ascii", "replace"), f"token_command {command[0]}")

    def _check_token(self, text: str, source: str) -> str:
        token = text.strip()
        SECRETS.keep(token, *token.split())
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise CatalogueDenied(self._settings.name, f"{source} does not contain a token")
        return token


class OidcToken:
    """A token from an OIDC provider, renewed before it expires and after Rucio refused it."""

    def __init__(self, name: str, settings: ClientSettings, clock: Callable[[], float] = time.time) -> None:
        self._credentials = ClientCredentials(name, settings, lambda: from_unix(clock()))
        self._last_token = ""
        self._is_refused = False

    def token(self) -> str:
        """Return the token to send.

        Raises:
            CatalogueError: the provider returns no token.
        """
        refused, self._is_refused = self._is_refused, False
        self._last_token = self._credentials.renew(self._last_token) if refused else self._credentials.token()
        return self._last_token

    @property
    def token_validity(self) -> TokenValidity | None:
        """The validity of the current token."""
        return self._credentials.token_validity

    def forget(self) -> None:
        """Renew the refused token in the next poll, unless it is less than 10 s old."""
        self._is_refused = bool(self._last_token)

    def close(self) -> None:
        """Close the connections, and forget the token."""
        self._credentials.close()
        self._last_token, self._is_refused = "", False
