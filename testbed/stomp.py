"""A small STOMP broker for tests of its clients, which misbehaves on request."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

from adapters.stomp.frames import Frame, FrameParser, NotStomp, encode_frame


class FakeBroker:
    """A broker on loopback: it greets, accepts subscriptions, and sends the messages of a test.

    ``beats`` is its heart-beat header, ``refuses`` answers every login with an ERROR, and ``mute`` sends
    nothing to a client.
    """

    def __init__(self) -> None:
        self.beats = "0,0"
        self.refuses = ""
        self.mute = False
        self.logins: list[dict[str, str]] = []
        self.subscriptions: list[dict[str, str]] = []
        self.heard = 0
        """Return how many frames arrived, heartbeats included."""
        self._clients: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        self.drop()

    def send(self, body: bytes, *, whole: bool = True, **headers: str) -> None:
        """Send a MESSAGE to all subscribers; without *whole* it has no size, and ends at a NUL."""
        size = {"content-length": str(len(body))} if whole else {}
        self.raw(encode_frame(Frame("MESSAGE", {"subscription": "0", **size, **headers}, body)))

    def raw(self, data: bytes) -> None:
        for client in list(self._clients):
            try:
                client.sendall(data)
            except OSError:  # it went
                self._clients.remove(client)

    def drop(self) -> None:
        """End all connections."""
        clients, self._clients = self._clients, []
        for client in clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)  # a thread waits in recv: closing alone ends nothing

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        frames = FrameParser(1 << 20)
        with client, contextlib.suppress(OSError, NotStomp):
            while data := client.recv(4096):
                self.heard += 1
                for frame in frames.feed(data):
                    self._answer(client, frame)

    def _answer(self, client: socket.socket, frame: Frame) -> None:
        if self.mute:
            return
        if frame.command == "CONNECT" and self.refuses:
            client.sendall(encode_frame(Frame("ERROR", {"message": self.refuses})))
        elif frame.command == "CONNECT":
            self.logins.append(dict(frame.headers))
            client.sendall(encode_frame(Frame("CONNECTED", {"version": "1.2", "heart-beat": self.beats})))
        elif frame.command == "SUBSCRIBE":
            self._clients.append(client)
            self.subscriptions.append(dict(frame.headers))
            client.sendall(encode_frame(Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]})))
