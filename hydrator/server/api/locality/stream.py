"""The answer of /v1/locality as a stream: JSON objects, one a line, in bounded memory and time."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from .models import LocalityEnd
from .request import LocalityRequest
from .rows import LocalityRows

CHUNK_BYTES: Final = 64 * 1024
"""The stream gathers so many bytes before it sends them."""


def stream_lines(
    rows: LocalityRows, request: LocalityRequest, *, is_time_over: Callable[[], bool]
) -> Iterator[bytes]:
    """Yield the lines of one page: the head, one line for each dataset, and the end.

    A page ends early if *is_time_over*, so that the server does not cut the answer. Its last line then says
    where the next page begins. A page has at least one dataset, so that the pages come to an end.
    """
    yield encode_line(rows.build_head())
    dids = request.dids_of_page
    last_did = None
    for did in dids[: request.limit]:
        yield encode_line(rows.build_row(did))
        last_did = did
        if is_time_over():
            break
    end: LocalityEnd = {"next": last_did if dids and last_did != dids[-1] else None}
    yield encode_line(end)


def encode_line(content: Mapping[str, object]) -> bytes:
    """Return *content* as one line of JSON. Escape all characters if some of them are not printable."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    if not text.isprintable():
        text = json.dumps(content, separators=(",", ":"))
    return f"{text}\n".encode()


def gather_chunks(lines: Iterator[bytes], *, use_gzip: bool) -> Iterator[bytes]:
    """Yield *lines* in chunks of about 64 KiB, or gzipped."""
    packer = zlib.compressobj(5, zlib.DEFLATED, zlib.MAX_WBITS | 16) if use_gzip else None
    chunk = bytearray()
    for line in lines:
        chunk += line
        if len(chunk) >= CHUNK_BYTES:
            packed = packer.compress(chunk) if packer else bytes(chunk)
            if packed:
                yield packed
            chunk.clear()
    yield packer.compress(chunk) + packer.flush() if packer else bytes(chunk)
