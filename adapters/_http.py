"""JSON over HTTP, once for all: limits of time, size and rate, retries, and failures as our errors."""

import json
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

from hydrator.errors import (
    CatalogueDenied,
    CatalogueError,
    CatalogueGarbled,
    CatalogueUnreachable,
    ConfigError,
)
from hydrator.ports import Login

from ._headers import LONGEST_PAUSE, http_date, retry_after

_SECRETS = re.compile(r"(?i)((?:access_|refresh_)?token=)[^&\s\"']+|eyJ[\w-]{8,}(?:\.[\w-]*){0,2}")
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_BUSY = frozenset({429, 503})
_WORDS = 400


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server may cost us, and we it.

    ``timeout`` is for one read of a socket, ``deadline`` for one question with
    all its attempts; ``pause`` is how long the first of ``attempts`` waits for the second.
    """

    timeout: timedelta = timedelta(seconds=15)
    deadline: timedelta = timedelta(seconds=60)
    attempts: int = 3
    pause: timedelta = timedelta(seconds=0.5)
    max_bytes: int = 50_000_000
    calls_per_second: float = 20.0


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
    """What a server said: ``body`` is its JSON, None where it was none; ``more``: it named a next page."""

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
        self._client = httpx.Client(
            headers={"Accept": "application/json"},
            verify=_trusted(name, ca_cert) if ca_cert else True,
            timeout=limits.timeout.total_seconds(),
            follow_redirects=False,  # our token is for this server
            transport=transport,
        )

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> Answer:
        """Ask for *path*; the answer is 200, with JSON, or 404, which the caller must judge.

        Raises:
            CatalogueError: anything else, after the attempts that make sense.
        """
        return self._asked("GET", path, params=dict(params or {}))

    def post(self, path: str, data: Mapping[str, str], basic: tuple[str, str]) -> Answer:
        """Send a form with a name and a password; see :meth:`get`."""
        return self._asked("POST", path, data=dict(data), auth=basic)

    @property
    def login(self) -> Login | None:
        """How long the token is good that we were given; None without one that we renew."""
        return self._bearer.login if self._bearer else None

    def close(self) -> None:
        """Let go of connections and of the token."""
        self._client.close()
        if self._bearer:
            self._bearer.close()

    def _asked(self, method: str, path: str, **how: Any) -> Answer:  # noqa: ANN401 - httpx's own arguments
        until = self._monotonic() + self._limits.deadline.total_seconds()
        try:
            for attempt in stamina.retry_context(
                on=_when,
                attempts=self._limits.attempts,
                timeout=self._limits.deadline,
                wait_initial=self._limits.pause,
                wait_max=10.0,
            ):
                with attempt:
                    return self._once(method, path, until, how)
        except _Again as last:
            raise last.error from None
        raise AssertionError("stamina ends by an answer or an error")

    def _once(self, method: str, path: str, until: float, how: dict[str, Any]) -> Answer:
        token = self._bearer.token() if self._bearer else None
        status, headers, content = self._exchange(method, path, until, how, token)
        if status == 401 and self._bearer and token:
            # a service behind this one may have said so, which looks the same: one renewal, no more
            status, headers, content = self._exchange(method, path, until, how, self._bearer.renewed(token))
        return self._judged(status, headers, content, until)

    def _exchange(
        self, method: str, path: str, until: float, how: dict[str, Any], token: str | None
    ) -> tuple[int, httpx.Headers, bytes]:
        if not self._pace.wait(until - self._monotonic()):
            raise CatalogueUnreachable(self.name, "it asked us to slow down, and our time for it is over")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        content = bytearray()
        try:
            with self._client.stream(method, self._url + path, headers=headers, **how) as response:
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > self._limits.max_bytes:
                        raise CatalogueGarbled(
                            self.name, f"its answer is larger than {self._limits.max_bytes} bytes"
                        )
                    if self._monotonic() > until:
                        raise CatalogueUnreachable(self.name, "its answer did not end in time")
                return response.status_code, response.headers, bytes(content)
        except httpx.DecodingError as error:
            raise CatalogueGarbled(self.name, f"its answer cannot be unpacked: {error}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            words = str(error) or type(error).__name__
            raise _Again(CatalogueUnreachable(self.name, scrubbed(words))) from None

    def _judged(self, status: int, headers: httpx.Headers, content: bytes, until: float) -> Answer:
        words = _words(content)
        text = f"{words} (status {status})"
        if status == 404:
            return Answer(404, _parsed(content), words)
        if status == 200:
            body = _parsed(content)
            if body is None:
                raise CatalogueGarbled(self.name, f"it answers no JSON: {words[:80] or 'nothing'!r}")
            return Answer(200, body, words, more='rel="next"' in headers.get("link", ""))
        if status in (401, 403):
            raise CatalogueDenied(self.name, text)
        if status in _TRANSIENT:
            after = retry_after(headers.get("retry-after"), http_date(headers.get("date")))
            if status in _BUSY:
                self._pace.hold(after if after is not None else 1.0)
            if after is not None and after > until - self._monotonic():
                raise CatalogueUnreachable(self.name, text)  # later than it could help this question
            raise _Again(CatalogueUnreachable(self.name, text), after)
        raise CatalogueUnreachable(self.name, text)


def _when(error: Exception) -> bool | float:
    """What stamina is to do about *error*: nothing, wait as it does, or so many seconds."""
    if not isinstance(error, _Again):
        return False
    return True if error.after is None else error.after


def scrubbed(text: str) -> str:
    """*text* without tokens: some services repeat our URLs, and tokens travel in those."""
    return _SECRETS.sub(lambda found: f"{found[1] or ''}[secret]", text)


def _words(content: bytes) -> str:
    """What an answer says for people, on one line."""
    body = _parsed(content[:100_000])
    detail = body.get("detail", body) if isinstance(body, dict) else content.decode("utf-8", "replace")
    return " ".join(scrubbed(str(detail)).split())[:_WORDS]


def _parsed(content: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _trusted(name: str, file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(file))
    except OSError as error:  # SSLError among them
        raise ConfigError([f"catalogue {name}: ca_cert {file}: {error.strerror or error}"]) from error
