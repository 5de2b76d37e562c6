"""JSON over HTTP, once for all: limits of time, size and rate, retries, and failures as our errors."""

import math
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import httpx
import stamina

from adapters.bounded_json import Bounds, TooLarge, decode
from hydrator.domain.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    ConfigError,
)
from hydrator.domain.ports import Login
from hydrator.domain.redaction import SECRETS
from hydrator.domain.text import reason_of

from .bounded_exchange import Received, Wire
from .headers import LONGEST_PAUSE, http_date, retry_after

_SECRETS = re.compile(r"(?i)((?:access_|refresh_)?token=)[^&\s\"']+|eyJ[\w-]{8,}(?:\.[\w-]*){0,2}")
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_BUSY = frozenset({429, 503})
_WORDS = 400
_LOOKED_AT = 100_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server may cost us, and we it.

    ``timeout`` is for one read of a socket, ``deadline`` for one question with all its attempts;
    ``pause`` is how long the first of ``attempts`` waits for the second. An answer has at most
    ``max_bytes``, packed or not, and ``max_values`` JSON values.
    """

    timeout: timedelta = timedelta(seconds=15)
    deadline: timedelta = timedelta(seconds=60)
    attempts: int = 3
    pause: timedelta = timedelta(seconds=0.5)
    max_bytes: int = 16_000_000
    max_values: int = 500_000
    calls_per_second: float = 20.0

    @property
    def bounds(self) -> Bounds:
        """The bounds of one answer."""
        return Bounds(self.max_bytes, self.max_values)


class Bearer(Protocol):
    """Where a token comes from."""

    @property
    def login(self) -> Login | None:
        """How long the one is good that we have; None where it is not ours to renew."""

    def token(self) -> str:
        """One that is good now. Raises CatalogueError."""

    def renewed(self, refused: str) -> str:
        """Another than *refused*. Raises CatalogueError where there is none."""

    def close(self) -> None:
        """Let go of connections, and forget it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said: ``body`` is its JSON where the status is 200; ``more``: it named a next page."""

    status: int
    body: Any
    words: str = ""
    more: bool = False


class _Again(Exception):
    def __init__(self, error: CatalogueError, after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after = after


class Pace:
    """So many calls a second in the long run; all wait together when the server asks for a pause."""

    def __init__(
        self,
        calls_per_second: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._every = 1.0 / calls_per_second
        self._next = 0.0
        self._lock = threading.Lock()
        self._monotonic, self._sleep = monotonic, sleep

    def wait(self, within: float) -> bool:
        """Wait for our turn; False at once where it would not come *within* so many seconds."""
        with self._lock:
            now = self._monotonic()
            turn = max(self._next, now)
            if turn > now + within:
                return False
            self._next = turn + self._every
        if turn > now:
            self._sleep(turn - now)
        return True

    def hold(self, seconds: float) -> None:
        """Nobody calls for *seconds*."""
        with self._lock:
            self._next = max(self._next, self._monotonic() + min(seconds, LONGEST_PAUSE))


class Server:
    """One server under *url*; safe to use from several threads.

    Args:
        name: the catalogue's, for errors.
        url: what stands before every path.
        bearer: where our token comes from; None: none is sent.
        ca_cert: who signed its certificate; None: whom the system trusts.
        transport, monotonic, pace: for tests.

    Raises:
        ConfigError: *ca_cert* cannot be read.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        bearer: Bearer | None = None,
        limits: Limits = Limits(),
        ca_cert: Path | None = None,
        transport: httpx.BaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        pace: Pace | None = None,
    ) -> None:
        self.name = name
        self._url = url.rstrip("/")
        self._bearer = bearer
        self._limits = limits
        self._monotonic = monotonic
        self._pace = pace or Pace(limits.calls_per_second, monotonic)
        self._wire = Wire(
            name,
            limits.bounds,
            monotonic,
            headers={"Accept": "application/json"},
            verify=_trusted(name, ca_cert) if ca_cert else True,
            timeout=limits.timeout.total_seconds(),
            transport=transport,
        )

    def get(
        self,
        path: str,
        params: Mapping[str, str | int] | None = None,
        *,
        within: float = math.inf,
        read: Callable[[Any], Any] = lambda body: body,
    ) -> Answer:
        """Ask for *path*; the answer is 200, with JSON, or 404, which the caller must judge.

        Args:
            path: what is asked for.
            params: of its query.
            within: seconds to give up after, where that is sooner than our own deadline.
            read: makes the answer's ``body`` of the JSON of a 200; of a large one it should keep little.

        Raises:
            CatalogueError: anything else, after the attempts that make sense.
        """
        return self._asked("GET", path, within, read, params=dict(params or {}))

    def post(self, path: str, data: Mapping[str, str], basic: tuple[str, str]) -> Answer:
        """Send a form with a name and a password; see :meth:`get`."""
        return self._asked("POST", path, math.inf, lambda body: body, data=dict(data), auth=basic)

    @property
    def login(self) -> Login | None:
        """How long the token is good that we were given; None without one that we renew."""
        return self._bearer.login if self._bearer else None

    def close(self) -> None:
        """Let go of connections and of the token."""
        self._wire.close()
        if self._bearer:
            self._bearer.close()

    def _asked(
        self,
        method: str,
        path: str,
        within: float,
        read: Callable[[Any], Any],
        **how: Any,  # noqa: ANN401 - httpx's own arguments
    ) -> Answer:
        within = max(0.0, min(within, self._limits.deadline.total_seconds()))
        until = self._monotonic() + within
        try:
            for attempt in stamina.retry_context(
                on=_when,
                attempts=self._limits.attempts,
                timeout=max(within, 0.001),
                wait_initial=self._limits.pause,
                wait_max=10.0,
            ):
                with attempt:
                    return self._once(method, path, until, read, how)
        except _Again as last:
            raise last.error from None
        raise AssertionError("stamina ends by an answer or an error")

    def _once(
        self, method: str, path: str, until: float, read: Callable[[Any], Any], how: dict[str, Any]
    ) -> Answer:
        token = self._bearer.token() if self._bearer else None
        answer = self._exchange(method, path, until, read, how, token)
        if answer.status == 401 and self._bearer and token:
            # a service behind this one may have said so, which looks the same: one renewal, no more
            answer = self._exchange(method, path, until, read, how, self._bearer.renewed(token))
        if answer.status == 401:
            raise CatalogueDenied(self.name, answer.words)
        return answer

    def _exchange(
        self,
        method: str,
        path: str,
        until: float,
        read: Callable[[Any], Any],
        how: dict[str, Any],
        token: str | None,
    ) -> Answer:
        if not self._pace.wait(until - self._monotonic()):
            raise CatalogueUnreachable(self.name, "it asked us to slow down, and our time for it is over")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            return self._wire.exchange(
                method,
                self._url + path,
                until,
                lambda received: self._judged(received, until, read),
                headers=headers,
                **how,
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            words = reason_of(error)
            raise _Again(CatalogueUnreachable(self.name, scrubbed(words))) from None

    def _judged(self, received: Received, until: float, read: Callable[[Any], Any]) -> Answer:
        status, headers = received.status, received.headers
        if status == 200:
            return Answer(
                200, self._body(received.content, read), more='rel="next"' in headers.get("link", "")
            )
        words = _words(received.content)
        text = f"{words} (status {status})"
        if status == 404:
            return Answer(404, None, words)
        if status == 401:
            return Answer(401, None, text)
        if status == 403:
            raise CatalogueDenied(self.name, text)
        if status in _TRANSIENT:
            after = retry_after(headers.get("retry-after"), http_date(headers.get("date")))
            if status in _BUSY:
                self._pace.hold(after if after is not None else 1.0)
            if after is not None and after > until - self._monotonic():
                raise CatalogueUnreachable(self.name, text)  # later than it could help this question
            raise _Again(CatalogueUnreachable(self.name, text), after)
        raise CatalogueUnreachable(self.name, text)

    def _body(self, content: bytearray, read: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - JSON
        begin = bytes(content[:200])
        try:
            body = decode(content, self._limits.bounds)
        except TooLarge as wrong:
            raise CatalogueGarbled(self.name, f"its answer: {wrong}") from None
        except ValueError:
            body = None
        if body is None:
            said = _words(begin)[:80] or "nothing"
            raise CatalogueGarbled(self.name, f"it answers no JSON: {said!r}")
        return read(body)


def _when(error: Exception) -> bool | float:
    """What stamina is to do about *error*: nothing, wait as it does, or so many seconds."""
    if not isinstance(error, _Again):
        return False
    return True if error.after is None else error.after


def scrubbed(text: str) -> str:
    """*text* without secrets: some services repeat our URLs, our headers or what we posted."""
    return _SECRETS.sub(lambda found: f"{found[1] or ''}[secret]", SECRETS.hide(text))


def _words(content: bytes | bytearray) -> str:
    """What an answer says for people, on one line."""
    begin = bytes(content[:_LOOKED_AT])
    try:
        body = decode(begin, Bounds(max_values=1000))
    except ValueError:
        body = None
    detail = body.get("detail", body) if isinstance(body, dict) else begin.decode("utf-8", "replace")
    return " ".join(scrubbed(str(detail)).split())[:_WORDS]


def _trusted(name: str, file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(file))
    except OSError as error:  # SSLError among them
        raise ConfigError([f"catalogue {name}: ca_cert {file}: {error.strerror or error}"]) from error
