"""Live updates: a stream of server-sent events [1] that says when the pages have something new.

A stream has no data of the pool: the reader's script then loads the page again, with the reader's token. A
stream ends after some seconds, before the server's time limit of a request. The browser then opens the next
one by itself, and the server checks the token again.

[1] https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hydrator.server.responses import HttpError

MEDIA_TYPE: Final = "text/event-stream"
_REOPEN_MS: Final = 100
"""The browser waits so long before it opens the next stream."""
_HEADERS: Final = {
    "Content-Type": MEDIA_TYPE,
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx passes each event on at once
}


class LiveUpdates:
    """The streams of all open pages; their number is bounded.

    Args:
        get_version: returns a value that changes with the content of the pages. It must be cheap: each
            stream calls it several times a second.
        max_streams: largest number of open streams.
        max_duration: a stream ends after this time.
        interval: time between two calls of *get_version* by one stream.
    """

    def __init__(
        self,
        get_version: Callable[[], object],
        *,
        max_streams: int = 64,
        max_duration: timedelta = timedelta(seconds=15),
        interval: timedelta = timedelta(milliseconds=250),
    ) -> None:
        self._get_version = get_version
        self._max_streams = max_streams
        self._max_duration = max_duration
        self._interval = interval
        self._lock = threading.Lock()
        self._start = secrets.token_hex(4)  # a page of an earlier process is old
        self._version: object = None
        self._number = 0
        self._stream_count = 0
        self._is_closed = False

    def current_id(self) -> str:
        """Return the id of the present version; another one after each change."""
        version = self._get_version()
        with self._lock:
            if version != self._version:
                self._version, self._number = version, self._number + 1
            return f"{self._start}-{self._number}"

    def close(self) -> None:
        """End all streams soon, because the server stops."""
        self._is_closed = True

    async def get(self, request: Request) -> Response:
        """Return a stream with an event at each change; one event for a client that reads no streams.

        The query ``have`` is the version of the reader's page: if it is old, the first event comes at once.
        """
        have = request.headers.get("Last-Event-ID") or request.query_params.get("have", "")
        if MEDIA_TYPE not in request.headers.get("Accept", "") or request.method == "HEAD":
            return Response(_encode_event(self.current_id()), headers=_HEADERS)
        if self._stream_count >= self._max_streams:
            detail = f"{self._max_streams} pages are open already: load the page again by hand"
            raise HttpError(503, "too many open pages", detail, headers={"Retry-After": "30"})
        return StreamingResponse(self._stream(have), headers=_HEADERS)

    async def _stream(self, have: str) -> AsyncIterator[bytes]:
        self._stream_count += 1
        try:
            yield f"retry: {_REOPEN_MS}\n\n".encode()
            loop = asyncio.get_running_loop()
            until = loop.time() + self._max_duration.total_seconds()
            while loop.time() < until and not self._is_closed:
                current = self.current_id()
                if current != have:
                    have = current
                    yield _encode_event(current)
                await asyncio.sleep(self._interval.total_seconds())
        finally:
            self._stream_count -= 1


def _encode_event(version_id: str) -> bytes:
    return f"id: {version_id}\nevent: change\ndata: {version_id}\n\n".encode()
