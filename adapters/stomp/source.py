"""STOMP subscription to a message broker: pass the broker's events to a handler.

Rucio's daemon hermes sends such events. A separate thread reads the events. When the connection ends, the
thread connects again, with backoff. An invalid frame is ignored or ends the connection, never the thread.
This project has its own STOMP client, because the library stomp.py reads frames of any size into memory
(docs/explanation/decisions.md).
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
"""Seconds between two checks for a stop and for a heartbeat to send."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 60.0
_STEADY_SECONDS: Final = 60.0
"""Seconds that a connection must last to reset the backoff."""
_MAX_MISSED_HEARTBEATS: Final = 2.5
"""Heartbeat intervals without data after which the connection counts as lost."""


@dataclass(frozen=True, slots=True)
class StompSettings:
    """Address of a broker, credentials and subscription; files with secrets are read again for each login."""

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
    """The connection to the broker failed or ended; the message is the reason."""


class StompSource:
    """A listener for the events of one broker; it runs in its own thread until :meth:`stop`.

    Args:
        settings: the broker and the subscription.
        handler: an object whose methods this class calls for each event, connect and disconnect, in its
            own thread.
    """

    def __init__(self, settings: StompSettings, handler: EventHandler) -> None:
        self.name = settings.name
        self._settings = settings
        self._handler = handler
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events-{settings.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: timedelta = timedelta(seconds=2)) -> None:
        """Stop the thread. A thread that hangs in a connection ends only when the process ends."""
        self._stop_event.set()
        if self._thread.is_alive():
            self._thread.join(timeout.total_seconds())

    def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stop_event.is_set():
            started_at = time.monotonic()
            try:
                self._listen()
                reason = "it was stopped"
            except (_ConnectionLost, NotStomp, ConfigError) as error:
                reason = str(error)
            except OSError as error:
                reason = reason_of(error)
            except Exception as error:  # noqa: BLE001 - a bug must not end the thread
                reason = f"a bug in the daemon: {type(error).__name__}: {error}"
            if self._stop_event.is_set():
                return
            self._handler.on_disconnect(self._settings.name, reason)
            if time.monotonic() - started_at > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            self._stop_event.wait(pause * random.uniform(0.5, 1))  # noqa: S311 - a random pause, not a secret
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    def _listen(self) -> None:
        """Connect, subscribe and pass frames to the handler until :meth:`stop`."""
        with self._open_session() as connection:
            early = self._subscribe(connection)
            self._handler.on_connect(self._settings.name)
            for frame in early:
                self._handle_frame(frame)
            for frame in connection.frames():
                self._handle_frame(frame)

    @contextmanager
    def _open_session(self) -> "Iterator[_StompConnection]":
        """Log in to the broker; send DISCONNECT at the end."""
        settings = self._settings
        with self._open_socket() as stream:
            connection = _StompConnection(stream, settings.max_bytes, self._stop_event.is_set)
            connection.send(Frame("CONNECT", self._connect_headers()))
            headers = connection.expect("CONNECTED", settings.timeout).headers
            connection.negotiate_heartbeat(settings.heartbeat, headers.get("heart-beat", "0,0"))
            yield connection
            connection.send(Frame("DISCONNECT"))

    def _subscribe(self, connection: "_StompConnection") -> list[Frame]:
        """Subscribe; return the frames that arrived before the broker's RECEIPT for the subscription."""
        headers = {"id": "0", "destination": self._settings.destination, "ack": "auto", "receipt": "0"}
        connection.send(Frame("SUBSCRIBE", headers))
        early: list[Frame] = []
        connection.expect("RECEIPT", self._settings.timeout, early)
        return early

    def test_connection(self) -> str:
        """Log in; subscribe if the destination is a topic. See :class:`hydrator.domain.ports.EventSource`.

        Do not subscribe to a queue: the test would consume events that the daemon needs.
        """
        try:
            with self._open_session() as connection:
                if not self._settings.destination.startswith("/topic/"):
                    return "accepts the login"
                self._subscribe(connection)
                return f"accepts the login and the subscription to {self._settings.destination}"
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
        heartbeat_ms = round(settings.heartbeat.total_seconds() * 1000)
        headers = {
            "accept-version": "1.2",
            "host": settings.virtual_host or settings.host,
            "heart-beat": f"{heartbeat_ms},{heartbeat_ms}",
        }
        if settings.username:
            headers |= {"login": settings.username, "passcode": self._read_password()}
        return headers

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
    """Build the TLS context; return None if TLS is off.

    Raises:
        ConfigError: a certificate or its key cannot be loaded.
    """
    if not settings.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=str(settings.ca_cert) if settings.ca_cert else None)
        if settings.client_cert:
            context.load_cert_chain(settings.client_cert, settings.client_key, password="")
    except (OSError, ValueError) as error:
        raise ConfigError([f"events.stomp {settings.name}: cannot load its certificates: {error}"]) from error
    return context


class _StompConnection:
    """One connection to the broker: it sends and receives frames and heartbeats."""

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
        """Set the intervals of the heartbeats, as STOMP 1.2 defines them.

        The client offers *interval* for both directions. *broker_heartbeat* is the broker's header
        ``can send,wants`` in ms; 0 means no heartbeats.
        """
        can_send, _, wants = broker_heartbeat.partition(",")
        if not (can_send.isdigit() and wants.isdigit() and len(broker_heartbeat) < 30):
            raise NotStomp("the broker's heart-beat header is not two numbers")
        own_seconds = interval.total_seconds()
        self._send_interval_seconds = max(own_seconds, int(wants) / 1000) if int(wants) else None
        self._receive_interval_seconds = max(own_seconds, int(can_send) / 1000) if int(can_send) else None

    def send(self, frame: Frame) -> None:
        self._connection.sendall(encode_frame(frame))
        self._last_sent_at = time.monotonic()

    def expect(self, command: str, timeout: timedelta, other_frames: list[Frame] | None = None) -> Frame:
        """Return the next frame with *command*; append earlier frames to *other_frames*, if this is given.

        Raises:
            _ConnectionLost: the broker sent an error or a wrong frame, or no frame with *command* arrived
                in time.
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
        raise _ConnectionLost(f"the broker sent no {command} within {timeout.total_seconds():.0f} s")

    def frames(self) -> Iterator[Frame]:
        """Yield frames until the daemon stops; send heartbeats, and check the broker's heartbeats."""
        while not self._is_stopping():
            ready, self._ready_frames = self._ready_frames, []
            yield from ready
            self._receive()
            self._keep_alive(time.monotonic())

    def _keep_alive(self, now: float) -> None:
        send_interval, receive_interval = self._send_interval_seconds, self._receive_interval_seconds
        if send_interval is not None and now - self._last_sent_at >= send_interval / 2:
            self._connection.sendall(b"\n")
            self._last_sent_at = now
        silence = now - self._last_received_at
        if receive_interval is not None and silence > _MAX_MISSED_HEARTBEATS * receive_interval:
            raise _ConnectionLost(f"the broker sent no heartbeat for {silence:.0f} s")

    def _receive(self) -> None:
        """Read the data that arrives within _TICK_SECONDS."""
        try:
            data = self._connection.recv(64 * 1024)
        except TimeoutError:
            return
        if not data:
            raise _ConnectionLost("the broker closed the connection")
        self._last_received_at = time.monotonic()
        self._ready_frames += self._frames.feed(data)


def _describe_frame(frame: Frame) -> str:
    """Describe an unexpected frame on one line."""
    if frame.command != "ERROR":
        return f"the broker sent an unexpected {frame.command}"
    message = sanitize(frame.headers.get("message", ""), 200)
    return f"the broker sent an error: {message}" if message else "the broker sent an error without a reason"
