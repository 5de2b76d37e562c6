"""Connections to Rucio: each is one logged-in client of rucio-clients; it raises CatalogueErrors.

rucio-clients is used as it is, in a process of its own (:mod:`hydrator.wiring.catalogue_worker`): the kernel
limits its memory, and the daemon ends the process if an answer takes too long. Its environment has
RUCIO_CONFIG: without a configuration, rucio-clients would keep its token in a file that all processes share.
A hook of ``requests`` sees each response before rucio-clients does: after a 401 with a token that Rucio did
not issue, rucio-clients would ask for input on the terminal.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import requests
from rucio.client.didclient import DIDClient
from rucio.client.lockclient import LockClient
from rucio.client.replicaclient import ReplicaClient
from rucio.client.rseclient import RSEClient
from rucio.client.ruleclient import RuleClient
from rucio.client.scopeclient import ScopeClient
from rucio.common import exception as rucio_errors
from rucio.common.config import config_get

from adapters.http.client import TokenSource
from adapters.http.oauth import ClientCredentials, TokenFile, read_secret_file
from adapters.http.rate_limiter import HttpRateLimiter, http_date
from hydrator.domain.bugs import is_from
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
)
from hydrator.domain.model import from_unix
from hydrator.domain.redaction import SECRETS, sanitize
from hydrator.domain.text import format_address, reason_of

from .auth import CommandToken
from .settings import RucioSettings
from .transport import (
    Forbidden,
    ServerFault,
    WriteRefused,
    WriteUnconfirmed,
    is_login,
    query_error,
    unanswered_write_error,
    write_error,
)

T = TypeVar("T")


class _LastError(logging.Handler):
    """The last error that rucio-clients logged; its exceptions do not say why a connection failed."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


_LAST_ERROR = _LastError(logging.ERROR)
_NO_CONNECTION = re.compile(r"host='([^']+)', port=(\d+).*\[Errno -?\d+\] ([\w ]+)")
"""Host, port and the operating system's reason, within the representations of objects around them."""
_LOGGER = logging.getLogger("adapters.rucio.catalogue.client")
_LOGGER.addHandler(_LAST_ERROR)
_LOGGER.propagate = False
_MAX_PAUSE_SECONDS = 10.0
"""If the server asks for a longer pause, queries fail without a wait."""
_FAULTS_BEFORE_LOGIN = 3
"""After so many 500s in a row, log in again once: some servers answer so to an old token (rucio#5986)."""


_CLIENTS = (DIDClient, LockClient, ReplicaClient, RSEClient, RuleClient, ScopeClient)


class RucioClient(*_CLIENTS):  # type: ignore[misc]
    """The parts of Rucio's client that the daemon uses; *receive* gets each response."""

    def __init__(self, receive: Callable[..., None], **kwargs: Any) -> None:  # noqa: ANN401
        self._receive = receive
        super().__init__(**kwargs)

    @property
    def session(self) -> requests.Session:
        """The current session; rucio-clients creates a new one after a 401."""
        return self._session

    @session.setter
    def session(self, session: requests.Session) -> None:
        session.hooks["response"].append(self._receive)
        self._session = session


class RucioLogin:
    """The login of one connection."""

    def __init__(self, settings: RucioSettings) -> None:
        self._settings = settings
        self._password = settings.password

    def has_new_password(self) -> bool:
        """Return whether the password in the file differs from the password of the last login.

        Raises:
            CatalogueDenied: the file cannot be read.
        """
        return self._settings.password_file is not None and self._read_password() != self._password

    def connect(self, receive: Callable[..., None]) -> RucioClient:
        """Create a client that logs in with the current password, certificate or token.

        Raises:
            CatalogueDenied: the password file cannot be read, or is empty.
        """
        settings = self._settings
        self._password = self._read_password()
        self.delete_token_file()  # with an older token, a wrong password would not be noticed
        if settings.has_external_token:
            token_file = _token_file()
            token_file.touch(mode=0o600)
            token_file.write_text("a placeholder: each query sends the current token")
        ca_cert = str(settings.ca_cert) if settings.ca_cert else os.environ.get("X509_CERT_DIR") or True
        return RucioClient(
            receive,
            rucio_host=settings.url.rstrip("/"),
            auth_host=(settings.auth_url or settings.url).rstrip("/"),
            account=settings.account,
            ca_cert=ca_cert,
            auth_type="oidc" if settings.has_external_token else settings.auth_type,
            creds=_login_credentials(settings, self._password),
            timeout=settings.timeout.total_seconds(),
            user_agent="classad-hydrator",
            vo=settings.vo or "def",
            logger=_LOGGER,
        )

    def delete_token_file(self) -> None:
        """Delete the token file; ignore an error."""
        try:
            _token_file().unlink(missing_ok=True)
        except OSError:
            return

    def _read_password(self) -> str | None:
        file = self._settings.password_file
        if file is None:
            return self._settings.password
        return read_secret_file(self._settings.name, file, "password_file", "utf-8")


def _token_file() -> Path:
    return Path(config_get("client", "auth_token_file_path"))


def _login_credentials(settings: RucioSettings, password: str | None) -> dict[str, str]:
    """Return the credentials for rucio-clients."""
    if settings.auth_type == "x509" and settings.client_cert:
        return {
            "client_cert": str(settings.client_cert),
            "client_key": str(settings.client_key or settings.client_cert),
        }
    SECRETS.keep(password)
    return {"username": settings.username or "", "password": password or ""}


_CLIENT_ERRORS = (
    *(rucio_errors.RucioException, OSError, EOFError, ValueError, LookupError),
    *(TypeError, AttributeError, RuntimeError, StopIteration),
)
"""Errors of rucio-clients that become a CatalogueError. A MemoryError does not: it must end the worker."""
_UNREACHABLE_ERRORS = (
    requests.Timeout,
    requests.ConnectionError,
    requests.exceptions.ChunkedEncodingError,
    rucio_errors.ServerConnectionException,
)
_DENIED_ERRORS = (
    rucio_errors.CannotAuthenticate,
    rucio_errors.NoAuthInformation,
    rucio_errors.MissingClientParameter,  # the certificate is not there, or others can read its key
)


class UnreadableAnswer(CatalogueGarbled):
    """The DID of an unreadable row is unknown; queries for single DIDs then show which DID it is."""


class _Paused(CatalogueUnreachable):
    """The server asked for a pause that is short enough to wait."""


class RucioConnection:
    """A logged-in client that raises CatalogueErrors; only one thread at a time may use it.

    If *rate_limiter* is None, the connection makes its own, with the rate in *settings*.
    """

    def __init__(self, settings: RucioSettings, rate_limiter: HttpRateLimiter | None = None) -> None:
        self._settings = settings
        self._rate_limiter = rate_limiter or HttpRateLimiter(settings.calls_per_second)
        self._token_source = _build_token_source(settings)
        self._poll_seconds = 0.0
        self._poll_ends_at = float("inf")
        self._login = RucioLogin(settings)
        self._client: RucioClient | None = None
        self._response: requests.Response | None = None
        self._token: str | None = None
        self._status = 0
        self._is_writing = False
        self._faults_in_row = 0
        self.answer_seconds = settings.timeout.total_seconds()
        """The longest time without a byte of an answer."""
        self.server_time: datetime | None = None
        """The ``Date`` of the last answer: the server's clock, which also sets the times of rules."""

    @contextmanager
    def start_poll(self, seconds: float) -> Iterator[None]:
        """Begin no query of the ``with`` block after *seconds*; use the current token for all."""
        if self._token_source:
            self._token = self._token_source.token()
        self._poll_seconds, self._poll_ends_at = seconds, time.monotonic() + seconds
        try:
            yield
        except CatalogueDenied:
            if self._token_source:
                self._token_source.forget()
            raise
        finally:
            self._poll_ends_at = float("inf")

    @property
    def remaining_seconds(self) -> float:
        """Return the seconds until the end of the poll, after which no query begins; never negative."""
        return max(0.0, self._poll_ends_at - time.monotonic())

    def ask(self, call: Callable[[RucioClient], T]) -> T:
        """Return the result of *call*; *call* must read its whole answer before it returns.

        Repeat *call* once after a 401, if the password or token was renewed meanwhile, and after a pause that
        the server asked for.

        Raises:
            CatalogueError: the query failed. The class depends on the failure; the message has no secrets.
        """
        try:
            return self._ask_once(call)
        except _Paused:
            if self._is_writing:
                raise
        except CatalogueDenied:
            if not self._has_new_secret():
                raise
        return self._ask_once(call)

    def write(self, call: Callable[[RucioClient], T]) -> T:
        """Return the result of *call*, whose requests change something in Rucio; send each at most once.

        rucio-clients sends a request again after a lost connection or a 502, 503 or 504. A server may close
        an idle connection at any time, so a write uses a new one.

        Raises:
            WriteRefused: Rucio changed nothing, and says why.
            WriteUnconfirmed: Rucio may or may not have executed the write.
            CatalogueError: the write was not sent.
        """
        client = self._client or self.ask(lambda client: client)  # log in first: a login may be repeated
        retries, client.request_retries = client.request_retries, -1
        client.session.close()
        self._is_writing = True
        try:
            return self.ask(call)
        except (CatalogueDenied, WriteRefused, WriteUnconfirmed):
            raise
        except CatalogueError as error:
            if self._status in {200, 201}:
                raise WriteUnconfirmed(error.catalogue, error.reason) from None
            raise
        finally:
            self._is_writing = False
            client.request_retries = retries

    def deadline_error(self) -> CatalogueUnreachable:
        """Return the error for a query that did not begin before the deadline of this poll."""
        reason = f"no complete answer within {self._poll_seconds:g} s"
        return CatalogueUnreachable(self._settings.name, reason)

    def end_poll(self) -> None:
        """Let no further query begin."""
        self._poll_ends_at = 0.0

    def close(self) -> None:
        """Close the connections and forget the token."""
        if self._client:
            self._client.session.close()
            self._login.delete_token_file()
        self._client = None
        if self._token_source:
            self._token_source.close()

    def _has_new_secret(self) -> bool:
        """Return whether the secret that Rucio refused (401) was renewed; if so, use the new secret."""
        if self._status != 401:
            return False
        try:
            if self._token_source:
                refused, self._token = self._token, self._token_source.token()
                return self._token != refused
            is_new = self._login.has_new_password()
        except CatalogueError:
            return False
        if is_new:
            self._client = None  # the old client would log in with the old password again
        return is_new

    def _ask_once(self, call: Callable[[RucioClient], T]) -> T:
        self._wait_for_turn()
        self._status = 0
        try:
            if self._client is None:
                self._client = self._login.connect(self._receive)
            if self._token is not None:
                self._client.auth_token = self._token
            self._client.timeout = self.answer_seconds
            answer = call(self._client)
        except CatalogueError as error:
            self._drop_answer()
            self._note_failure(error)
            raise
        except _CLIENT_ERRORS as exc:
            self._drop_answer()
            if is_from(exc, "adapters", "hydrator"):
                raise  # a bug of ours
            raise self._translate_error(exc) from None
        self._faults_in_row = 0
        return answer

    def _drop_answer(self) -> None:
        """Close the connection of an answer that was not read to its end, as rucio-clients does not."""
        if self._response is not None:
            self._response.close()
            self._response = None

    def _note_failure(self, error: CatalogueError) -> None:
        """Forget a token that Rucio refused, or that may be the reason of some 500s in a row."""
        if isinstance(error, ServerFault):
            self._faults_in_row += 1
            if self._faults_in_row == _FAULTS_BEFORE_LOGIN:
                self._client = None
                if self._token_source:
                    self._token_source.forget()
        elif self._token_source and isinstance(error, CatalogueDenied) and not isinstance(error, Forbidden):
            self._token_source.forget()

    def _wait_for_turn(self) -> None:
        """Wait until the rate limiter allows a query.

        Raises:
            CatalogueUnreachable: the deadline has passed, or a pause is too long for this poll.
        """
        if not self.remaining_seconds:
            raise self.deadline_error()
        pause_seconds = self._rate_limiter.pause_seconds
        if pause_seconds > min(_MAX_PAUSE_SECONDS, self.remaining_seconds):
            raise CatalogueUnreachable(
                self._settings.name, f"the server asked for a pause; {pause_seconds:.0f} s are left"
            )
        self._rate_limiter.wait_for_turn()

    def _receive(self, response: requests.Response, **_: object) -> None:
        """Look at a response before rucio-clients does; raise the error that it is."""
        self._response, self._status = response, response.status_code
        SECRETS.keep(response.headers.get("X-Rucio-Auth-Token"))
        self.server_time = http_date(response.headers.get("Date")) or self.server_time
        after = response.headers.get("Retry-After")
        is_refusal = self._rate_limiter.record_response(self._status, after)
        if self._is_writing and not is_login(response):
            error = write_error(self._settings.name, response)
        else:
            error = query_error(self._settings.name, response, can_log_in=self._token_source is None)
        if error is None:
            return
        response.close()
        longest = min(_MAX_PAUSE_SECONDS, self.remaining_seconds)
        if is_refusal and after is not None and self._rate_limiter.pause_seconds <= longest:
            error = _Paused(error.catalogue, error.reason)
        raise error

    def _translate_error(self, exc: Exception) -> CatalogueError:
        name, status = self._settings.name, self._status
        reason = _describe_error(exc, status)
        if self._is_writing and isinstance(exc, requests.RequestException) and not status:
            return unanswered_write_error(name, exc, reason)
        if status >= 500 or isinstance(exc, _UNREACHABLE_ERRORS):
            return CatalogueUnreachable(name, reason)
        if status == 401 or isinstance(exc, _DENIED_ERRORS):
            return CatalogueDenied(name, reason)
        return CatalogueGarbled(name, reason)


def _now() -> datetime:
    return from_unix(time.time())


def _build_token_source(settings: RucioSettings) -> TokenSource | None:
    """Build the source of tokens that Rucio does not issue; None if a login issues them."""
    if not settings.has_external_token:
        return None
    if settings.oidc:
        return ClientCredentials(settings.name, settings.oidc, _now)
    if settings.token_command:
        return CommandToken(settings, _now)
    return TokenFile(settings.name, settings.token_file or Path())


def _describe_error(exc: Exception, status: int) -> str:
    """Describe *exc* on one line of 300 characters, without secrets; begin with Rucio's exception name."""
    failure = _LAST_ERROR.text if isinstance(exc, rucio_errors.ServerConnectionException) else ""
    if found := _NO_CONNECTION.search(failure):
        failure = f"{format_address(found[1], found[2])}: {found[3]}"
    words = " ".join(f"{reason_of(exc)} {failure}".split())
    if status not in {0, 200} and "http status code" not in words:
        words = f"HTTP {status} {words}"
    kind = f"{type(exc).__name__}: " if isinstance(exc, rucio_errors.RucioException) else ""
    return f"{kind}{sanitize(words, 300)}"
