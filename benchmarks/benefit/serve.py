"""The storage server of one site: it sends as many bytes as a client asks for. Standard library only.

    python -I serve.py PORT_FILE [BYTES_PER_SECOND]

It listens on all addresses of its network namespace and writes its port into PORT_FILE. A client sends one
line with a number of bytes. With BYTES_PER_SECOND all connections together share one token bucket; without,
the kernel shapes the traffic.
"""

import contextlib
import os
import socketserver
import sys
import threading
import time
from pathlib import Path

CHUNK = 16 * 1024


class Bucket:
    """A token bucket for all readers of one link; *rate* is in bytes/s, None for no limit."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def take(self, count: int) -> None:
        """Wait until the link has sent *count* more bytes."""
        if self.rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self.rate
            pause = self._free_at - now
        time.sleep(pause)


class Reader(socketserver.StreamRequestHandler):
    """One read by one job."""

    bucket = Bucket(None)

    def handle(self) -> None:
        """Send the number of bytes that the client asks for."""
        left = int(self.rfile.readline(32) or 0)
        piece = memoryview(os.urandom(CHUNK))
        with contextlib.suppress(ConnectionError):
            while left > 0:
                part = piece[: min(left, CHUNK)]
                self.bucket.take(len(part))
                self.wfile.write(part)
                left -= len(part)


class Storage(socketserver.ThreadingTCPServer):
    """A server with one thread for each reader."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


def main(port_file: str, rate: str | None = None) -> None:
    """Serve until a signal ends the process."""
    Reader.bucket = Bucket(float(rate) if rate else None)
    with Storage(("0.0.0.0", 0), Reader) as server:
        fresh = Path(port_file + ".new")
        fresh.write_text(str(server.server_address[1]), "ascii")
        fresh.rename(port_file)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
