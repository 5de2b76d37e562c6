"""The routes of /v1/locality. Few requests at a time, since one request may be about 10,000 datasets."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hydrator.domain.model import Snapshot

from ...responses import HttpError, accepts_gzip, busy_error, json_response
from ...view import ServerState
from .request import parse_locality_body
from .rows import LocalityRows
from .stream import gather_chunks, stream_lines

MEDIA_TYPE: Final = "application/x-ndjson"
MAX_REQUESTS: Final = 4
"""Requests that the server answers at a time; the memory of each is bounded by its body and a chunk."""


class LocalityRoutes:
    """The two routes; a further request at the same time is refused with 429.

    Args:
        get_state: returns the present state.
        time_limit: the time after which a page ends. The server cuts an answer that takes longer than
            ``request_seconds``, also if the client reads slowly; so this must be well below.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        get_state: Callable[[], ServerState],
        time_limit: timedelta,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._get_state = get_state
        self._time_limit = time_limit.total_seconds()
        self._clock = clock
        self._running = 0  # only the event loop changes it

    async def post(self, request: Request) -> Response:
        """Answer about each dataset on its own, one line each."""
        started_at = self._clock()
        self._admit()
        try:
            body = await request.body()
            chunks = await run_in_threadpool(self._open_stream, request, body, started_at)
        except BaseException:
            self._release()
            raise
        return _CountedStream(request, chunks, self._release)

    async def post_set(self, request: Request) -> Response:
        """Answer about all datasets as one set."""
        self._admit()
        try:
            body = await request.body()
            return await run_in_threadpool(self._answer_set, request, body)
        finally:
            self._release()

    def _open_stream(self, request: Request, body: bytes, started_at: float) -> Iterator[bytes]:
        query = parse_locality_body(body, is_set=False)
        state, snapshot = _read_state(self._get_state)
        lines = stream_lines(
            LocalityRows(state, snapshot, query),
            query,
            is_time_over=lambda: self._clock() - started_at > self._time_limit,
        )
        return gather_chunks(lines, use_gzip=accepts_gzip(request.headers))

    def _answer_set(self, request: Request, body: bytes) -> Response:
        query = parse_locality_body(body, is_set=True)
        state, snapshot = _read_state(self._get_state)
        return json_response(request, LocalityRows(state, snapshot, query).build_set())

    def _admit(self) -> None:
        if self._running >= MAX_REQUESTS:
            raise busy_error(f"the server answers {MAX_REQUESTS} requests of this kind at a time", 1)
        self._running += 1

    def _release(self) -> None:
        self._running -= 1


def _read_state(get_state: Callable[[], ServerState]) -> tuple[ServerState, Snapshot]:
    state = get_state()
    if state.snapshot is None:
        raise HttpError(503, "not ready", state.not_ready_reason or "no catalogue has been read yet")
    return state, state.snapshot


class _CountedStream(StreamingResponse):
    """A stream that calls *on_end* once it ended, also if the client left."""

    def __init__(self, request: Request, chunks: Iterator[bytes], on_end: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
        if accepts_gzip(request.headers):
            headers["Content-Encoding"] = "gzip"
        super().__init__(chunks, headers=headers, media_type=MEDIA_TYPE)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
