"""HTTP servers on loopback, for tests: each in a thread of its own, from the begin of ``with`` to its end."""

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class LoopbackRequest(BaseHTTPRequestHandler):
    """One request; ``sent`` is its body."""

    protocol_version = "HTTP/1.1"
    server: "LoopbackServer"
    sent = b""

    def do_GET(self) -> None:
        """Read the body, and let the server answer."""
        self.sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.reply(self)

    do_POST = do_HEAD = do_CONNECT = do_GET  # noqa: N815 - http.server's names

    def send(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Answer with *headers* and *body*, whose length is a header unless *headers* have another one."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:  # noqa: ANN401
        """Log nothing."""


class LoopbackServer(ThreadingHTTPServer):
    """A server on a free port; *reply* answers each request, unless a subclass does."""

    daemon_threads = True

    def __init__(self, reply: Callable[[LoopbackRequest], None] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), LoopbackRequest)
        self._reply = reply
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def reply(self, request: LoopbackRequest) -> None:
        """Answer *request*."""
        assert self._reply is not None
        self._reply(request)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, *_: Any) -> None:  # noqa: ANN401
        """Ignore errors: tests hang up, and let servers hang up."""
