"""Connections to Rucio: each is one logged-in client with a strict deadline; it raises CatalogueErrors.

rucio-clients 41.5.1 has properties that do not suit a daemon. This module changes these properties:

* rucio-clients stores its token in a shared file named after the account only. The daemon's token file is
  private, and a new login never reuses it;
* rucio-clients reads the first ``rucio.cfg`` that it finds. The daemon gives it an empty configuration, and
  not through the environment: other threads read that at the same time;
* rucio-clients searches every text of every record for dates. The daemon decodes the records itself;
* rucio-clients shortens ``sys.argv[0]`` and writes red log lines. The daemon gives it a copy of ``sys.argv``
  and silences the logger.

The transport changes these properties:

* the timeout of rucio-clients is for one read, so a slow answer may never end. The transport shuts the
  sockets at the deadline;
* after a 401 with a token, rucio-clients asks for input on the terminal. The transport raises an error
  instead;
* rucio-clients accepts a web page as an answer, and an answer without a length even if its end is missing.
  The transport rejects both.
"""

import configparser
import http.client
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import requests
import urllib3
from rucio.client import baseclient
from rucio.client.didclient import DIDClient
from rucio.client.lockclient import LockClient
from rucio.client.replicaclient import ReplicaClient
from rucio.client.requestclient import RequestClient
from rucio.client.rseclient import RSEClient
from rucio.client.ruleclient import RuleClient
from rucio.client.scopeclient import ScopeClient
from rucio.common import config as rucio_config
from rucio.common import exception as rucio_errors

from adapters.bounded_json import decode
from adapters.http.rate_limiter import HttpRateLimiter
from adapters.rucio.responses import BadRow
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
)
from hydrator.domain.ports import TokenValidity
from hydrator.domain.redaction import SECRETS, read_secret, sanitize
from hydrator.domain.text import reason_of

from .auth import ExternalToken, OidcToken
from .settings import RucioSettings
from .transport import (
    JSON_STREAM,
    Forbidden,
    InvalidRequest,
    NotFound,
    SharedSession,
    Transport,
    WriteRefused,
    WriteUnconfirmed,
    iter_rows,
)

T = TypeVar("T")

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


_UNREACHABLE_ERRORS = (
    requests.Timeout,
    requests.ConnectionError,
    requests.exceptions.ChunkedEncodingError,
    rucio_errors.ServerConnectionException,
    http.client.HTTPException,
)
_DENIED_ERRORS = (
    rucio_errors.CannotAuthenticate,
    rucio_errors.AccessDenied,
    rucio_errors.NoAuthInformation,
)
_CLIENT_ERRORS = (
    rucio_errors.RucioException,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    configparser.Error,
    http.client.HTTPException,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,  # Python raises this error for a StopIteration inside a generator
)


class UnreadableAnswer(CatalogueGarbled):
    """The DID of an unreadable row is unknown; queries for single DIDs then show which DID it is."""


class RucioConnection:
    """A logged-in client that raises CatalogueErrors; only one thread at a time may use it.

    If *rate_limiter* is None, the connection makes its own, with the rate in *settings*.
    """

    def __init__(
        self,
        settings: RucioSettings,
        rate_limiter: HttpRateLimiter | None = None,
        *,
        shared: SharedSession | None = None,
        number: int = 0,
    ) -> None:
        self._settings = settings
        self._shared = shared or SharedSession(
            rate_limiter or HttpRateLimiter(settings.calls_per_second),
            OidcToken(settings.name, settings.oidc) if settings.oidc else ExternalToken(settings),
        )
        self.deadline = self._shared.deadline
        self._transport = Transport(settings, self._shared)
        self._login = RucioLogin(settings, number)
        self._client: RucioClient | None = None

    def with_shared_deadline(self, number: int) -> "RucioConnection":
        """Return a connection for another thread; it shares rate limit, deadline and external token.

        Args:
            number: 1 or more, different for each connection. A connection that logs in has its own token
                file; all connections of one login send its newest token.
        """
        return RucioConnection(self._settings, shared=self._shared, number=number)

    def with_own_deadline(self, number: int) -> "RucioConnection":
        """Return a connection for queries between polls, with its own deadline, but shared rate and token."""
        common = SharedSession(self._shared.rate_limiter, self._shared.token_source)
        return RucioConnection(self._settings, shared=common, number=number)

    @property
    def pause_seconds(self) -> float:
        """Return the remaining seconds of the pause that the server asked for."""
        return self._shared.rate_limiter.pause_seconds

    @property
    def server_time(self) -> datetime | None:
        """Return the ``Date`` of the last answer: the server's clock, which also sets the times of rules."""
        return self._transport.server_time

    @property
    def token_validity(self) -> TokenValidity | None:
        """Return the validity of the current token; None if the token is from a file."""
        if self._login.has_external_token:
            return self._shared.token_source.token_validity
        return self._transport.token_validity

    @contextmanager
    def start_poll(self, seconds: float) -> Iterator[None]:
        """Limit all queries of the ``with`` block to *seconds*; use the current token for them."""
        if self._login.has_external_token:
            self._shared.token = self._shared.token_source.token()
        try:
            with self.deadline.start(seconds):
                yield
        except CatalogueDenied:
            self._shared.token_source.forget()
            raise

    def ask(self, call: Callable[[RucioClient], T]) -> T:
        """Return the result of *call*; *call* must read its whole answer before it returns.

        After a 401, repeat *call* once if the password or token was renewed meanwhile.

        Raises:
            CatalogueError: the query failed. The class depends on the failure; the message has no secrets.
        """
        try:
            return self._ask_once(call)
        except CatalogueDenied:
            if not self._has_new_secret():
                raise
        return self._ask_once(call)

    def write(self, call: Callable[[RucioClient], T]) -> T:
        """Return the result of *call*, whose requests change something in Rucio; send each at most once.

        Raises:
            WriteRefused: Rucio changed nothing, and says why.
            WriteUnconfirmed: Rucio may or may not have executed the write.
            CatalogueError: the write was not sent.
        """
        if self._client is None:
            self.ask(lambda client: client.account)  # log in first: a login may be repeated
        with self._transport.write():
            try:
                return self.ask(call)
            except (CatalogueDenied, WriteRefused, WriteUnconfirmed):
                raise
            except CatalogueError as error:
                if self._transport.status in {200, 201} or self.deadline.has_passed():
                    raise WriteUnconfirmed(error.catalogue, error.reason) from None
                raise

    def deadline_error(self) -> CatalogueUnreachable:
        """Return the error for a query that did not end before the deadline of this poll."""
        return self._transport.deadline_error()

    def close(self) -> None:
        """Close the connections and forget the token."""
        self._client = None
        self._shared.token_source.close()
        self._transport.close()
        self._login.delete_token_file()

    def _has_new_secret(self) -> bool:
        """Return whether the secret that Rucio refused (401) was renewed; if so, use the new secret."""
        if self._transport.status != 401:
            return False
        try:
            if self._login.has_external_token:
                self._shared.token = self._shared.token_source.token()
                return self._shared.token != self._transport.sent_token
            is_new = self._login.has_new_password()
        except CatalogueError:
            return False
        if is_new:
            self._client = None  # the old client would log in with the old password again
        return is_new

    def _ask_once(self, call: Callable[[RucioClient], T]) -> T:
        try:
            if self._client is None:
                self._client = self._login.connect(self._transport)
            answer = call(self._client)
        except Forbidden:
            raise  # the token is valid
        except CatalogueDenied:
            self._shared.token_source.forget()
            raise
        except BadRow as exc:
            raise UnreadableAnswer(self._settings.name, str(exc)) from exc
        except _CLIENT_ERRORS as exc:
            raise self._translate_error(exc) from None
        finally:
            self._transport.close_responses()
        if self.deadline.has_passed():
            raise self.deadline_error()
        return answer

    def _translate_error(self, exc: Exception) -> CatalogueError:
        name, status = self._settings.name, self._transport.status
        reason = _describe_error(exc, status, self._transport.last_failure)
        if self.deadline.has_passed():
            return self.deadline_error()
        if status == 429 or status >= 500 or isinstance(exc, _UNREACHABLE_ERRORS):
            return CatalogueUnreachable(name, reason)
        if status == 403 or isinstance(exc, rucio_errors.AccessDenied):
            return Forbidden(name, reason)
        if status == 401 or isinstance(exc, _DENIED_ERRORS):
            return CatalogueDenied(name, reason)
        if status == 404:
            return NotFound(name, reason)
        if status == 400:
            return InvalidRequest(name, reason)
        return CatalogueGarbled(name, reason)


def _describe_error(exc: Exception, status: int, failure: str) -> str:
    """Describe *exc* on one line of 300 characters, without secrets; begin with Rucio's exception name."""
    text = reason_of(exc)
    words = " ".join(f"{text} {failure if failure not in text else ''}".split())
    if status not in {0, 200} and "http status code" not in words:
        words = f"HTTP {status} {words}"
    kind = f"{type(exc).__name__}: " if isinstance(exc, rucio_errors.RucioException) else ""
    return f"{kind}{sanitize(words, 300)}"
