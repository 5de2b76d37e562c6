"""What an answer looks like: JSON with one sentence when it is a refusal, gzipped where that pays."""

import gzip
import json
import re
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

RETRY_AFTER: Final = "30"

_ERROR_HEADERS: Final[Mapping[int, dict[str, str]]] = {
    401: {"WWW-Authenticate": 'Bearer realm="classad-hydrator", Basic realm="classad-hydrator"'},
    503: {"Retry-After": RETRY_AFTER},
}


class HttpError(HTTPException):
    """An answer other than 200: what is wrong in a word, and in a sentence; *more* joins the JSON."""

    def __init__(
        self,
        status: int,
        error: str,
        detail: str,
        extra_fields: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or _ERROR_HEADERS.get(status, {})))
        self.error = error
        self.extra_fields = extra_fields or {}


def json_response(request: Request, content: Mapping[str, object], status: int = 200) -> Response:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    if not text.isprintable():  # \u... says the same, and shows what it is to whoever reads it as it came
        text = json.dumps(content, separators=(",", ":"))
    return bytes_response(request, f"{text}\n".encode(), "application/json", status)


def bytes_response(request: Request, body: bytes, media_type: str, status: int = 200) -> Response:
    """An answer made for this request alone, gzipped where that is wanted and pays."""
    headers = {"Content-Type": media_type, "Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(body) >= 1024 and accepts_gzip(request.headers):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=5, mtime=0)
    return Response(body, status, headers)


async def error_response(request: Request, exc: Exception) -> Response:
    """Every refusal, ours and the router's, as JSON."""
    if isinstance(exc, HttpError):
        answer = json_response(
            request, {"error": exc.error, "detail": exc.detail, **exc.extra_fields}, exc.status_code
        )
        answer.headers.update(exc.headers or {})
        return answer
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    if status == 405:
        told = isinstance(exc, HTTPException) and (exc.headers or {}).get("Allow") == "POST"
        detail = "this only takes events: use POST" if told else "this server only answers: use GET or HEAD"
        answer = json_response(request, {"error": "method not allowed", "detail": detail}, status)
        answer.headers["Allow"] = "POST" if told else "GET, HEAD"
        return answer
    detail = "nothing is here; try /, /v1/sites, /v1/sites/{site}/ad or /v1/datasets?did=scope:name"
    return json_response(request, {"error": "not found", "detail": detail}, status)


async def internal_error_response(request: Request, _: Exception) -> Response:
    """A bug: Starlette passes the exception on to the server's log, the client gets one sentence."""
    detail = "the daemon failed to answer this; its log says why"
    return json_response(request, {"error": "internal error", "detail": detail}, 500)


def accepts_gzip(headers: Headers) -> bool:
    """Whether Accept-Encoding names gzip (or ``*``) without forbidding it by ``q=0``."""
    wanted: dict[str, bool] = {}
    for part in headers.get("Accept-Encoding", "").lower().split(","):
        coding, _, parameters = part.partition(";")
        forbidden = re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters)
        wanted[coding.strip()] = forbidden is None
    return wanted.get("gzip", wanted.get("*", False))
