"""HTTP responses: JSON answers, errors with one sentence, and compression with gzip."""

import gzip
import math
import re
from collections.abc import Mapping
from typing import Final

from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from hydrator.domain.redaction import escape_unprintable

_ERROR_HEADERS: Final[Mapping[int, dict[str, str]]] = {
    401: {"WWW-Authenticate": 'Bearer realm="classad-hydrator", Basic realm="classad-hydrator"'},
    503: {"Retry-After": "30"},
}


class HttpError(HTTPException):
    """An error response: a kind in a few words, and one sentence."""

    def __init__(
        self,
        status: int,
        error: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or _ERROR_HEADERS.get(status, {})))
        self.error = error


def busy_error(detail: str, wait_seconds: float) -> HttpError:
    """Return the error for a client that must wait; *detail* says why, *wait_seconds* is above 0."""
    seconds = str(math.ceil(wait_seconds))
    text, headers = f"{detail}: ask again in {seconds} s", {"Retry-After": seconds}
    return HttpError(429, "too many requests", text, headers=headers)


def json_response(request: Request, content: Mapping[str, object], status: int = 200) -> Response:
    """Build the response with *content*, which may have dataclasses; control characters become visible."""
    text = to_json(content).decode()
    if not text.isprintable():  # \u… means the same in JSON
        text = to_json(content, ensure_ascii=True).decode()
    return bytes_response(request, f"{text}\n".encode(), "application/json", status)


def bytes_response(request: Request, body: bytes, media_type: str, status: int = 200) -> Response:
    """Build a response that caches must not store; gzip 1024 bytes or more if the client accepts gzip."""
    headers = {"Content-Type": media_type, "Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(body) >= 1024 and accepts_gzip(request.headers):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=5, mtime=0)
    return Response(body, status, headers)


def html_response(request: Request, text: str, status: int = 200) -> Response:
    """Build the response with a page; characters that browsers do not show become visible."""
    body = escape_unprintable(text, "\n").encode()
    return bytes_response(request, body, "text/html; charset=utf-8", status)


async def error_response(request: Request, exc: Exception) -> Response:
    """Build the JSON answer to an error of a handler or of the router."""
    error = exc if isinstance(exc, HttpError) else _find_http_error(exc)
    content = {"error": error.error, "detail": error.detail}
    answer = json_response(request, content, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


def _find_http_error(exc: Exception) -> HttpError:
    """Return the answer to an error of the router, or to a bug, whose traceback is also logged."""
    if not isinstance(exc, HTTPException):
        detail = "the request failed because of a bug in the daemon; the daemon's log has the traceback"
        return HttpError(500, "internal error", detail)
    if exc.status_code == 405:
        detail = "this server is read-only: use GET or HEAD"
        return HttpError(405, "method not allowed", detail, headers={"Allow": "GET, HEAD"})
    detail = "no such path; try /, /v1/sites, /v1/sites/{site}/ad, /v1/datasets?did=scope:name"
    return HttpError(exc.status_code, "not found", detail)


def accepts_gzip(headers: Headers) -> bool:
    """Return whether Accept-Encoding names gzip (or ``*``) without forbidding it by ``q=0``."""
    is_accepted: dict[str, bool] = {}
    for part in headers.get("Accept-Encoding", "").lower().split(","):
        coding, _, parameters = part.partition(";")
        forbidden = re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters)
        is_accepted[coding.strip()] = forbidden is None
    return is_accepted.get("gzip", is_accepted.get("*", False))
