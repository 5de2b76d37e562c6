"""Login to Rucio: rucio-clients with a private token file, an empty configuration and bounded answers.

rucio-clients 41.5.1 has properties that do not suit a daemon; this module changes these properties:

* rucio-clients stores its token in a shared file named after the account only. The daemon's token file is
  private, and a new login never reuses it;
* rucio-clients reads the first ``rucio.cfg`` that it finds. The daemon gives it an empty configuration, and
  not through the environment: other threads read that at the same time;
* rucio-clients searches every text of every record for dates. The daemon decodes the records itself;
* rucio-clients shortens ``sys.argv[0]`` and writes red log lines. The daemon gives it a copy of ``sys.argv``
  and silences the logger.
"""

import configparser
import logging
import os
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests
from rucio.client import baseclient
from rucio.client.didclient import DIDClient
from rucio.client.lockclient import LockClient
from rucio.client.replicaclient import ReplicaClient
from rucio.client.requestclient import RequestClient
from rucio.client.rseclient import RSEClient
from rucio.client.ruleclient import RuleClient
from rucio.client.scopeclient import ScopeClient
from rucio.common import config as rucio_config

from adapters.bounded_json import decode
from hydrator.domain.errors import CatalogueDenied
from hydrator.domain.redaction import SECRETS, read_secret

from .bodies import JSON_STREAM, iter_rows
from .settings import RucioSettings
from .transport import Transport

_SILENT_LOGGER = logging.getLogger("adapters.rucio.catalogue.client")
_SILENT_LOGGER.addHandler(logging.NullHandler())
_SILENT_LOGGER.propagate = False

_CLIENTS = (DIDClient, LockClient, ReplicaClient, RequestClient, RSEClient, RuleClient, ScopeClient)


class _EmptyConfig:
    """The configuration for rucio-clients; the section ``client`` says that this process is not a server."""

    def __init__(self) -> None:
        self.parser = configparser.ConfigParser()
        self.parser.add_section("client")


rucio_config.Config = _EmptyConfig
rucio_config.clean_cached_config()
baseclient.sys = SimpleNamespace(argv=list(sys.argv))


class RucioClient(*_CLIENTS):  # type: ignore[misc]
    """The parts of Rucio's client that the daemon uses, with the daemon's transport and token file."""

    def __init__(self, transport: Transport, token_file: Path, **kwargs: Any) -> None:  # noqa: ANN401
        self._transport = transport
        self._private_token_file = token_file
        super().__init__(**kwargs)

    @property
    def session(self) -> requests.Session:
        """The current session; rucio-clients creates a new one after a 401."""
        return self._session

    @session.setter
    def session(self, session: requests.Session) -> None:
        for scheme in ("http://", "https://"):
            session.mount(scheme, self._transport)
        self._session = session

    def _load_json_data(self, response: requests.Response) -> Iterator[Any]:
        """Yield the records of an answer; the transport limits its size. See :func:`iter_rows`."""
        if response.headers.get("Content-Type") == JSON_STREAM:
            yield from iter_rows(response)
        elif response.headers.get("Content-Type") == "application/json":
            yield decode(response.content, self._transport.bounds.quarter())
        else:
            yield from super()._load_json_data(response)

    def _get_auth_tokens(self) -> tuple[None, str, str, str]:
        file = self._private_token_file
        return None, f"{file}.exp", str(file), str(file.parent)


class RucioLogin:
    """The login of one connection; *number* gives each connection a token file of its own."""

    def __init__(self, settings: RucioSettings, number: int) -> None:
        self._settings = settings
        self._number = number
        self._password = settings.password

    @property
    def has_external_token(self) -> bool:
        """Return True if Rucio did not issue the token; rucio-clients then does not log in."""
        return self._settings.auth_type in {"token", "oidc"}

    def has_new_password(self) -> bool:
        """Return whether the password in the file differs from the password of the last login.

        Raises:
            CatalogueDenied: the file cannot be read.
        """
        return self._settings.password_file is not None and self._read_password() != self._password

    def connect(self, transport: Transport) -> RucioClient:
        """Create a client that logs in with the current password, certificate or token.

        Raises:
            CatalogueDenied: the password file cannot be read, or is empty.
        """
        settings = self._settings
        self._password = self._read_password()
        token_file = self._token_file()
        token_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        token_file.unlink(missing_ok=True)  # with an older token, a wrong password would not be noticed
        if self.has_external_token:
            token_file.touch(mode=0o600)
            token_file.write_text("a placeholder: the transport sends the token")
        ca_cert = str(settings.ca_cert) if settings.ca_cert else os.environ.get("X509_CERT_DIR") or True
        return RucioClient(
            transport,
            token_file,
            rucio_host=settings.url.rstrip("/"),
            auth_host=(settings.auth_url or settings.url).rstrip("/"),
            account=settings.account,
            ca_cert=ca_cert,
            auth_type="oidc" if self.has_external_token else settings.auth_type,
            creds=_login_credentials(settings, self._password),
            timeout=settings.timeout.total_seconds(),
            user_agent="classad-hydrator",
            vo=settings.vo or "def",
            logger=_SILENT_LOGGER,
        )

    def delete_token_file(self) -> None:
        """Delete the token file; ignore an error."""
        try:
            self._token_file().unlink(missing_ok=True)
        except OSError:
            return

    def _read_password(self) -> str | None:
        file, name = self._settings.password_file, self._settings.name
        if file is None:
            return self._settings.password
        try:
            password = read_secret(file.read_text("utf-8"))
        except OSError as error:
            raise CatalogueDenied(name, f"password_file {file}: {error.strerror}") from None
        except UnicodeDecodeError:
            password = ""
        except ValueError as error:
            raise CatalogueDenied(name, f"password_file {file}: {error}") from None
        if not password:
            raise CatalogueDenied(name, f"password_file {file}: the file does not contain a password")
        return password

    def _token_file(self) -> Path:
        settings = self._settings
        key = "\0".join([settings.url, settings.account, settings.vo or "", settings.name])
        suffix = f"-{self._number}" if self._number else ""
        return settings.token_dir / f"rucio-{sha256(key.encode()).hexdigest()[:16]}{suffix}"


def _login_credentials(settings: RucioSettings, password: str | None) -> dict[str, str]:
    """Return the credentials for rucio-clients."""
    if settings.auth_type == "x509" and settings.client_cert:
        return {
            "client_cert": str(settings.client_cert),
            "client_key": str(settings.client_key or settings.client_cert),
        }
    SECRETS.keep(password)
    return {"username": settings.username or "", "password": password or ""}
