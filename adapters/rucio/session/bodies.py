"""Bodies of Rucio's answers, limited in size: read streams of rows in pieces, any other body as one document.

rucio-clients itself reads and decompresses each answer to its end, with no limit.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import requests

from adapters.bounded_json import Bounds, TooLarge, decode, decode_row
from hydrator.domain.errors import CatalogueGarbled

JSON_STREAM = "application/x-json-stream"
_CHUNK_BYTES = 65_536
_MAX_ROW_BYTES = 1_000_000
_CONTENT_ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})


class _SizeLimitedBody:
    """A raw urllib3 response that raises an error if its body exceeds *bounds*."""

    def __init__(self, raw: Any, name: str, bounds: Bounds) -> None:  # noqa: ANN401 - urllib3's
        self._raw, self._name, self.bounds = raw, name, bounds

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - urllib3's
        return getattr(self._raw, attribute)

    def stream(self, _amount: int = _CHUNK_BYTES, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield the decompressed body; raise CatalogueGarbled if it is too large."""
        size = values = 0
        for piece in self._raw.stream(_CHUNK_BYTES, decode_content=decode_content):
            size += len(piece)
            values += piece.count(b",") + piece.count(b"\n")
            if size > self.bounds.max_bytes:
                raise CatalogueGarbled(self._name, str(self.bounds.too_many_bytes_error("its answer")))
            if values > self.bounds.max_values:
                raise CatalogueGarbled(self._name, str(self.bounds.too_many_values_error("its answer")))
            yield piece


class _StreamedResponse(requests.Response):
    """A streamed response: the library ``requests`` leaves its body unread for :func:`iter_rows`."""

    @property
    def content(self) -> bytes:
        """Return an empty body; :func:`iter_rows` reads the real body."""
        return b""

    @property
    def text(self) -> str:
        """Return the whole body, for a caller that expects one document, not rows."""
        self.raw.bounds = self.raw.bounds.quarter()
        return b"".join(self.iter_content(_CHUNK_BYTES)).decode("utf-8", "replace")


def is_login(request: requests.PreparedRequest) -> bool:
    """Return whether *request* asks Rucio for a token."""
    return "/auth/" in str(request.url)


def limit_response(response: requests.Response, name: str, bounds: Bounds) -> None:
    """Limit *response* to *bounds*; if it is one document and not a stream of rows, to a quarter of *bounds*.

    Raises:
        CatalogueGarbled: the response is too large, or has an encoding that the request did not accept.
    """
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in _CONTENT_ENCODINGS:
        raise CatalogueGarbled(
            name, f"its answer has a Content-Encoding that was not asked for: {encoding[:80]!a}"
        )
    if response.status_code == 200 and response.headers.get("Content-Type") == JSON_STREAM:
        response.raw = _SizeLimitedBody(response.raw, name, bounds)
        response.__class__ = _StreamedResponse
        return
    small = bounds.quarter()
    response.raw = _SizeLimitedBody(response.raw, name, small)
    # without an encoding, the library ``requests`` would try encodings for minutes
    response.encoding = response.encoding or "utf-8"
    if response.status_code != 200 or is_login(response.request):  # these are not decoded
        return
    try:
        decode(response.content, small)
    except TooLarge as error:
        raise CatalogueGarbled(name, f"its answer: {error}") from None
    except ValueError:
        return  # the body is not JSON: the caller reports this


def iter_rows(response: requests.Response) -> Iterator[Any]:
    """Yield the records of an answer, one per line; leave dates as texts.

    rucio-clients itself would search every text of every record for a date. This search takes five times
    as long as all other steps of reading an answer.

    Raises:
        ValueError: a line is not JSON, or too long.
    """
    try:
        for line in _iter_lines(response.iter_content(_CHUNK_BYTES)):
            if line:
                yield decode_row(line)
    finally:
        response.close()  # a caller may stop at an unreadable row


def _iter_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _MAX_ROW_BYTES:
            raise ValueError(f"a row is longer than {_MAX_ROW_BYTES} bytes")
        yield from lines
    yield rest
