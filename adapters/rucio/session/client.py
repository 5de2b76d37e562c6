"""rucio-clients made fit for a daemon: private tokens, a deadline that holds, failures by our names.

What it does of its own accord, and what is done about it here (41.5.1):

* it keeps its token in a shared file named after the account only: ours is private and never reused;
* it reads the first ``rucio.cfg`` it finds: it is given one with nothing in it;
* its timeout is one per read, so a dripping answer never ends: at the deadline the sockets are shut;
* after a 401 with a token it asks for input on the terminal: a 401 ends it before that;
* it takes a web page for an answer, and one without a length that breaks off for a whole one: refused;
* it looks for dates in every text of every record: records are read by us;
* it shortens ``sys.argv[0]`` and writes red lines: put back, kept quiet.
"""

import configparser
import http.client
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import requests
import requests.adapters
import urllib3
import urllib3.connection
import urllib3.connectionpool
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
from adapters.rucio.responses import BadRow
from adapters.rucio.session.transport import (
    Deadline,
    Forbidden,
    InvalidRequest,
    NotFound,
    SharedSession,
    Transport,
)
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
from .bodies import JSON_STREAM, iter_rows
from .rate_limiter import RucioRateLimiter
from .settings import RucioSettings as RucioSettings  # noqa: PLC0414 - others have it from here

T = TypeVar("T")

_SILENT_LOGGER = logging.getLogger("adapters.rucio.catalogue.client")
_SILENT_LOGGER.addHandler(logging.NullHandler())
_SILENT_LOGGER.propagate = False

_EMPTY_CONFIG = "[client]\n"
_ENVIRONMENT_LOCK = threading.Lock()

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
    RuntimeError,  # a generator that meets StopIteration
)


class UnreadableAnswer(CatalogueGarbled):
    """A row that cannot be read, of which nobody can tell whose it is; asked DID by DID, it is one's."""


_CLIENTS = (DIDClient, LockClient, ReplicaClient, RequestClient, RSEClient, RuleClient, ScopeClient)


class RucioClient(*_CLIENTS):  # type: ignore[misc]
    """The parts of Rucio's client we use, on our transport, with tokens where we say."""

    def __init__(self, transport: Transport, token_file: Path, **kwargs: Any) -> None:  # noqa: ANN401
        self._transport = transport
        self._private_token_file = token_file
        super().__init__(**kwargs)

    @property
    def session(self) -> requests.Session:
        """The session in use; rucio-clients takes a new one after a 401."""
        return self._session

    @session.setter
    def session(self, session: requests.Session) -> None:
        for scheme in ("http://", "https://"):
            session.mount(scheme, self._transport)
        self._session = session

    def _load_json_data(self, response: requests.Response) -> Iterator[Any]:
        """The records of an answer, which the transport has bounded; see :func:`rows`."""
        if response.headers.get("Content-Type") == JSON_STREAM:
            yield from iter_rows(response)
        elif response.headers.get("Content-Type") == "application/json":
            yield decode(response.content, self._transport.bounds.quarter())
        else:
            yield from super()._load_json_data(response)

    def _get_auth_tokens(self) -> tuple[None, str, str, str]:
        file = self._private_token_file
        return None, f"{file}.exp", str(file), str(file.parent)


class RucioConnection:
    """A logged-in client that names every failure by our names. One thread at a time.

    Its *pace* is by default one of its own, on the machine's clock.
    """

    def __init__(
        self,
        settings: RucioSettings,
        rate_limiter: RucioRateLimiter | None = None,
        *,
        shared: SharedSession | None = None,
        number: int = 0,
    ) -> None:
        self._settings = settings
        self._shared = shared or SharedSession(
            rate_limiter or RucioRateLimiter(settings.calls_per_second),
            OidcToken(settings.name, settings.oidc) if settings.oidc else ExternalToken(settings),
        )
        self._number = number
        self._transport = Transport(settings, self._shared)
        self._client: RucioClient | None = None
        self._password = settings.password

    def with_shared_deadline(self, number: int) -> "RucioConnection":
        """A further line to the same server, for a thread of its own, with our pace, deadline and token.

        Args:
            number: from 1, another for each. Where we log in, each line does, and keeps a token of its own.
        """
        return RucioConnection(self._settings, shared=self._shared, number=number)

    def with_own_deadline(self, number: int) -> "RucioConnection":
        """The same as :meth:`beside` with a deadline of its own, for what is asked beside polls."""
        common = SharedSession(self._shared.rate_limiter, self._shared.token_source)
        return RucioConnection(self._settings, shared=common, number=number)

    @property
    def deadline(self) -> Deadline:
        return self._transport.deadline

    @property
    def pause_seconds(self) -> float:
        """Seconds for which the server still wants to be let alone."""
        return self._shared.rate_limiter.pause_seconds

    @property
    def _has_external_token(self) -> bool:
        """Whether the token is made elsewhere, so that nobody logs in."""
        return self._settings.auth_type in {"token", "oidc"}

    @property
    def server_time(self) -> datetime | None:
        """The server's clock at its last answer, where it told: Rucio compares its rules' times with that."""
        return self._transport.server_time

    @property
    def token_validity(self) -> TokenValidity | None:
        """How long the token is good that we were given; None for one in a file."""
        return (
            self._shared.token_source.token_validity
            if self._has_external_token
            else self._transport.token_validity
        )

    @contextmanager
    def start_poll(self, seconds: float) -> Iterator[None]:
        """One poll: at most *seconds* for all that is asked inside."""
        if self._has_external_token:
            self._shared.token = self._shared.token_source.token()
        try:
            with self.deadline.start(seconds):
                yield
        except CatalogueDenied:
            self._shared.token_source.forget()
            raise

    def ask(self, call: Callable[[RucioClient], T]) -> T:
        """What *call* returns; it must read all it wants inside.

        Where Rucio does not know us any more and our secret has changed since, *call* is made once more.

        Raises:
            CatalogueError: by class what went wrong, without secrets.
        """
        try:
            return self._ask_once(call)
        except CatalogueDenied:
            if not self._has_another_secret():
                raise
        return self._ask_once(call)

    def _has_another_secret(self) -> bool:
        """Was the secret renewed that Rucio has just refused (401)? The renewed one is used from now on."""
        if self._transport.status != 401:
            return False
        try:
            if self._has_external_token:
                self._shared.token = self._shared.token_source.token()
                return self._shared.token != self._transport.sent_token
            changed = self._settings.password_file is not None and self._read_password() != self._password
        except CatalogueError:
            return False
        if changed:
            self._client = None  # it would log in with the old password for ever
        return changed

    def _read_password(self) -> str | None:
        """The password for a login now.

        Raises:
            CatalogueDenied: its file holds none.
        """
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
            raise CatalogueDenied(name, f"password_file {file}: it holds no password")
        return password

    def _ask_once(self, call: Callable[[RucioClient], T]) -> T:
        try:
            if self._client is None:
                self._client = self._connect()
            answer = call(self._client)
        except Forbidden:
            raise  # the token is good
        except CatalogueDenied:
            self._shared.token_source.forget()
            raise
        except BadRow as exc:
            raise UnreadableAnswer(self._settings.name, str(exc)) from exc
        except _CLIENT_ERRORS as exc:
            raise self._translate_error(exc) from None
        if self.deadline.has_passed():
            raise self._transport.deadline_error()
        return answer

    def deadline_error(self) -> CatalogueUnreachable:
        """What to say of a question that this poll had no time for."""
        return self._transport.deadline_error()

    def close(self) -> None:
        """Close the connections and forget the token."""
        self._client = None
        self._shared.token_source.close()
        self._transport.close()
        try:
            self._token_file().unlink(missing_ok=True)
        except OSError:
            return

    def _translate_error(self, exc: Exception) -> CatalogueError:
        name, status = self._settings.name, self._transport.status
        reason = self._describe_error(exc)
        if self.deadline.has_passed():
            return self._transport.deadline_error()
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

    def _describe_error(self, exc: Exception) -> str:
        """One line on *exc*: Rucio's name for it, its words without secrets, no more than people read."""
        trouble, said = self._transport.last_failure, reason_of(exc)
        words = " ".join(f"{said} {trouble if trouble not in said else ''}".split())
        if self._transport.status not in {0, 200} and "http status code" not in words:
            words = f"HTTP {self._transport.status} {words}"
        kind = f"{type(exc).__name__}: " if isinstance(exc, rucio_errors.RucioException) else ""
        return f"{kind}{sanitize(words, 300)}"

    def _token_file(self) -> Path:
        settings = self._settings
        key = "\0".join([settings.url, settings.account, settings.vo or "", settings.name])
        which = f"-{self._number}" if self._number else ""
        return settings.token_dir / f"rucio-{sha256(key.encode()).hexdigest()[:16]}{which}"

    def _connect(self) -> RucioClient:
        settings = self._settings
        self._password = self._read_password()
        token_file = self._token_file()
        token_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        token_file.unlink(missing_ok=True)  # a token from before would hide that the password is wrong
        if self._has_external_token:
            token_file.touch(mode=0o600)
            token_file.write_text("the transport knows it")
        with _rucio_environment():
            return RucioClient(
                self._transport,
                token_file,
                rucio_host=settings.url.rstrip("/"),
                auth_host=(settings.auth_url or settings.url).rstrip("/"),
                account=settings.account,
                ca_cert=str(settings.ca_cert)
                if settings.ca_cert
                else os.environ.get("X509_CERT_DIR") or True,
                auth_type="oidc" if self._has_external_token else settings.auth_type,
                creds=_login_credentials(settings, self._password),
                timeout=settings.timeout.total_seconds(),
                user_agent="classad-hydrator",
                vo=settings.vo or "def",
                logger=_SILENT_LOGGER,
            )


def _login_credentials(settings: RucioSettings, password: str | None) -> dict[str, str]:
    """What rucio-clients logs in with."""
    if settings.auth_type == "x509" and settings.client_cert:
        return {
            "client_cert": str(settings.client_cert),
            "client_key": str(settings.client_key or settings.client_cert),
        }
    SECRETS.keep(password)
    return {"username": settings.username or "", "password": password or ""}


@contextmanager
def _rucio_environment() -> Iterator[None]:
    """An environment for rucio-clients to start in, undone afterwards; its empty configuration stays."""
    with _ENVIRONMENT_LOCK, tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "rucio.cfg"
        empty.write_text(_EMPTY_CONFIG)
        before, argv0 = os.environ.get("RUCIO_CONFIG"), sys.argv[0]
        os.environ["RUCIO_CONFIG"] = str(empty)
        os.environ.setdefault("RUCIO_CLIENT_MODE", "1")
        rucio_config.clean_cached_config()
        try:
            yield
        finally:
            sys.argv[0] = argv0
            if before is None:
                del os.environ["RUCIO_CONFIG"]
            else:
                os.environ["RUCIO_CONFIG"] = before
