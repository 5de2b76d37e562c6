"""A broker's STOMP subscription, such as Rucio's daemon hermes fills: events to whoever listens.

It reads from a thread of its own, connects again whenever the connection ends,
later each time, and believes nothing: a frame is passed on or passed over.
STOMP is so small that a library would bring more than it saves; the usual one
reads frames of any size into memory.
"""

import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from hydrator.domain.errors import ConfigError, EventsError
from hydrator.domain.ports import EventHandler
from hydrator.domain.redaction import read_secret, sanitize
from hydrator.domain.text import reason_of

from .frames import Frame, FrameParser, NotStomp, encode_frame

_TICK_SECONDS: Final = 0.5
"""Seconds between two looks at whether we are to stop or to give a sign of life."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 60.0
_STEADY_SECONDS: Final = 60.0
"""Seconds that a connection must last before the next failure counts as the first one again."""
_MAX_MISSED_HEARTBEATS: Final = 2.5
"""A broker that was silent for so many of the beats it promised is gone."""


@dataclass(frozen=True, slots=True)
class StompSettings:
    """Where a broker is, who we are to it, and what we want; secrets are files, read for each login."""

    name: str
    host: str
    port: int
    destination: str
    virtual_host: str | None = None
    username: str | None = None
    password_file: Path | None = None
    tls: bool = True
    ca_cert: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    timeout: timedelta = timedelta(seconds=10)
    heartbeat: timedelta = timedelta(seconds=10)
    max_bytes: int = 64 * 1024


class _ConnectionLost(Exception):
    """There is no connection, or no longer; the text says why."""


class StompSource:
    """Listens to one broker until it is stopped.

    Args:
        settings: where and what.
        ears: who is told of events, and of connections that come and go; called from our thread.
    """

    def __init__(self, settings: StompSettings, handler: EventHandler) -> None:
        self._settings = settings
        self._handler = handler
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events-{settings.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: timedelta = timedelta(seconds=2)) -> None:
        """End it; a connection that hangs is left to the end of the process."""
        self._stop_event.set()
        if self._thread.is_alive():
            self._thread.join(timeout.total_seconds())

    def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stop_event.is_set():
            begun = time.monotonic()
            try:
                self._listen()
                why = "we stop"
            except (_ConnectionLost, NotStomp, ConfigError) as error:
                why = str(error)
            except OSError as error:
                why = reason_of(error)
            except Exception as error:  # noqa: BLE001 - a bug must not end what brings events
                why = f"a bug: {type(error).__name__}: {error}"
            if self._stop_event.is_set():
                return
            self._handler.on_disconnect(self._settings.name, why)
            if time.monotonic() - begun > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            self._stop_event.wait(pause * random.uniform(0.5, 1))  # noqa: S311 - not to come all at once
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    def _listen(self) -> None:
        """Connect, subscribe and pass on what comes; returns when we are to stop."""
        with self._open_session() as line:
            early = self._subscribe(line)
            self._handler.on_connect(self._settings.name)
            for frame in early:
                self._handle_frame(frame)
            for frame in line.frames():
                self._handle_frame(frame)

    @contextmanager
    def _open_session(self) -> "Iterator[_StompConnection]":
        """A connection on which the broker knows us, left in peace."""
        settings = self._settings
        with self._open_socket() as connection:
            line = _StompConnection(connection, settings.max_bytes, self._stop_event.is_set)
            line.send(Frame("CONNECT", self._connect_headers()))
            beats = line.expect("CONNECTED", settings.timeout).headers.get("heart-beat", "0,0")
            line.negotiate_heartbeat(settings.heartbeat, beats)
            yield line
            line.send(Frame("DISCONNECT"))

    def _subscribe(self, connection: "_StompConnection") -> list[Frame]:
        """Ask for the events; what came before the answer."""
        wanted = {"id": "0", "destination": self._settings.destination, "ack": "auto", "receipt": "0"}
        connection.send(Frame("SUBSCRIBE", wanted))
        early: list[Frame] = []
        connection.expect("RECEIPT", self._settings.timeout, early)
        return early

    @property
    def name(self) -> str:
        return self._settings.name

    def test_connection(self) -> str:
        """See the port. Only topics are subscribed to: of a queue we would take the daemon's events."""
        try:
            with self._open_session() as line:
                if not self._settings.destination.startswith("/topic/"):
                    return "lets us in"
                self._subscribe(line)
                return f"lets us in, and to {self._settings.destination}"
        except (_ConnectionLost, NotStomp, ConfigError) as error:
            raise EventsError(self.name, str(error)) from error
        except OSError as error:
            raise EventsError(self.name, reason_of(error)) from error

    def _handle_frame(self, frame: Frame) -> None:
        if frame.command == "ERROR":
            raise _ConnectionLost(_describe_frame(frame))
        if frame.command == "MESSAGE":
            self._handler.on_event(self._settings.name, frame.body)

    def _connect_headers(self) -> dict[str, str]:
        settings = self._settings
        beat = round(settings.heartbeat.total_seconds() * 1000)
        greeting = {
            "accept-version": "1.2",
            "host": settings.virtual_host or settings.host,
            "heart-beat": f"{beat},{beat}",
        }
        if settings.username:
            greeting |= {"login": settings.username, "passcode": self._read_password()}
        return greeting

    def _read_password(self) -> str:
        file = self._settings.password_file
        try:
            return read_secret(file.read_text("utf-8")) if file else ""
        except (OSError, ValueError) as error:
            raise _ConnectionLost(f"password_file {file} cannot be read: {error}") from error

    def _open_socket(self) -> socket.socket:
        settings = self._settings
        plain = socket.create_connection((settings.host, settings.port), settings.timeout.total_seconds())
        try:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
            context = build_tls_context(settings)
            return context.wrap_socket(plain, server_hostname=settings.host) if context else plain
        except BaseException:
            plain.close()
            raise


def build_tls_context(settings: StompSettings) -> ssl.SSLContext | None:
    """How we speak TLS; None where we do not.

    Raises:
        ConfigError: a certificate cannot be used.
    """
    if not settings.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=str(settings.ca_cert) if settings.ca_cert else None)
        if settings.client_cert:
            context.load_cert_chain(settings.client_cert, settings.client_key, password="")
    except (OSError, ValueError) as error:
        raise ConfigError([f"events.stomp {settings.name}: its certificates: {error}"]) from error
    return context


class _StompConnection:
    """Frames over one connection, with signs of life both ways."""

    def __init__(
        self, connection: socket.socket, max_body_bytes: int, is_stopping: Callable[[], bool]
    ) -> None:
        connection.settimeout(_TICK_SECONDS)
        self._connection = connection
        self._is_stopping = is_stopping
        self._frames = FrameParser(max_body_bytes)
        self._ready_frames: list[Frame] = []
        self._last_sent_at = self._last_received_at = time.monotonic()
        self._send_interval_seconds: float | None = None
        self._receive_interval_seconds: float | None = None

    def negotiate_heartbeat(self, interval: timedelta, broker_heartbeat: str) -> None:
        """Agree on heart-beats: we offer one each way every *ours*; they say ``can,want`` in milliseconds."""
        can, _, want = broker_heartbeat.partition(",")
        if not (can.isdigit() and want.isdigit() and len(broker_heartbeat) < 30):
            raise NotStomp("its heart-beat is not two numbers")
        least = interval.total_seconds()
        self._send_interval_seconds = max(least, int(want) / 1000) if int(want) else None
        self._receive_interval_seconds = max(least, int(can) / 1000) if int(can) else None

    def send(self, frame: Frame) -> None:
        self._connection.sendall(encode_frame(frame))
        self._last_sent_at = time.monotonic()

    def expect(self, command: str, timeout: timedelta, other_frames: list[Frame] | None = None) -> Frame:
        """The next frame, which must be a *command*; where *others* may come first, they are kept there.

        Raises:
            _Lost: it was refused, or did not come in time.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        while time.monotonic() < deadline and not self._is_stopping():
            self._receive()
            while self._ready_frames:
                frame = self._ready_frames.pop(0)
                if frame.command == command:
                    return frame
                if frame.command == "ERROR" or other_frames is None or len(other_frames) >= 1000:
                    raise _ConnectionLost(_describe_frame(frame))
                other_frames.append(frame)
        raise _ConnectionLost(f"it sent no {command} within {timeout.total_seconds():.0f} s")

    def frames(self) -> Iterator[Frame]:
        """What comes, until we are to stop."""
        while not self._is_stopping():
            ready, self._ready_frames = self._ready_frames, []
            yield from ready
            self._receive()
            now = time.monotonic()
            if (
                self._send_interval_seconds is not None
                and now - self._last_sent_at >= self._send_interval_seconds / 2
            ):
                self._connection.sendall(b"\n")
                self._last_sent_at = now
            if (
                self._receive_interval_seconds is not None
                and now - self._last_received_at > _MAX_MISSED_HEARTBEATS * self._receive_interval_seconds
            ):
                raise _ConnectionLost(f"no sign of life for {now - self._last_received_at:.0f} s")

    def _receive(self) -> None:
        """Wait a moment for more."""
        try:
            data = self._connection.recv(64 * 1024)
        except TimeoutError:
            return
        if not data:
            raise _ConnectionLost("it closed the connection")
        self._last_received_at = time.monotonic()
        self._ready_frames += self._frames.feed(data)


def _describe_frame(frame: Frame) -> str:
    """What a frame that we did not want says, on one line."""
    if frame.command != "ERROR":
        return f"it sent {frame.command} out of turn"
    said = sanitize(frame.headers.get("message", ""), 200)
    return f"it says: {said}" if said else "it refused us and does not say why"
