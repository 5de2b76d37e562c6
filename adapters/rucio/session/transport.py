"""Responses of a Rucio server: which error a response is, for queries and for writes."""

import requests
import urllib3

from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueGarbled, CatalogueUnreachable
from hydrator.domain.redaction import sanitize


class InvalidRequest(CatalogueGarbled):
    """HTTP 400: Rucio rejects this query, because of one of its DIDs."""


class ServerFault(CatalogueUnreachable):
    """HTTP 500: Rucio failed on this query, perhaps because of one of its DIDs."""


class Forbidden(CatalogueDenied):
    """HTTP 403: Rucio does not allow this query, perhaps because of one of its DIDs."""


class NotFound(CatalogueGarbled):
    """HTTP 404: Rucio does not have the DID, RSE or rule of the query. This may be a valid answer."""


FAILURES_ALONE = (CatalogueGarbled, ServerFault, Forbidden)
"""Failures of one query: they say nothing about the queries for other datasets, rules and storages."""


class WriteRefused(CatalogueError):
    """Rucio refused a write and changed nothing; *kind* is its name of the reason."""

    def __init__(self, catalogue: str, kind: str, reason: str) -> None:
        super().__init__(catalogue, reason)
        self.kind = kind


class WriteUnconfirmed(CatalogueUnreachable):
    """A write without a usable answer: the server may or may not have executed it."""


_NO_REFUSALS = frozenset({"CannotAuthenticate", "DatabaseException"})


def is_login(response: requests.Response) -> bool:
    """Return whether *response* is to a request for a token."""
    return "/auth/" in str(response.request.url)


def query_error(name: str, response: requests.Response, *, can_log_in: bool) -> CatalogueError | None:
    """Return the error of a response that rucio-clients would handle wrongly, or whose kind it would hide.

    rucio-clients itself repeats a query after 502, 503 and 504, and if it *can_log_in*, after a 401.
    """
    status = response.status_code
    reason = f"HTTP {status}{_error_text(response)}"
    if status == 503 and "Retry-After" in response.headers:
        return CatalogueUnreachable(name, reason)
    if status in {502, 503, 504} or (status == 401 and can_log_in and not is_login(response)):
        return None
    if status in {401, 403}:
        forbidden = status == 403 or response.headers.get("ExceptionClass") == "AccessDenied"
        return (Forbidden if forbidden and not is_login(response) else CatalogueDenied)(name, reason)
    if response.headers.get("ExceptionClass") == "InvalidObject":
        return InvalidRequest(name, reason)  # the status is 400, but 500 from get_metadata_bulk
    if status == 404 and "ExceptionClass" not in response.headers:
        return CatalogueGarbled(name, "HTTP 404, and not from Rucio; is url its address?")
    if status == 500:
        return ServerFault(name, reason)
    if status == 429 or status > 500:
        return CatalogueUnreachable(name, reason)
    if 300 <= status < 400:
        target = sanitize(response.headers.get("Location", "nowhere"), 200)
        return CatalogueGarbled(name, f"HTTP {status}: a redirect to {target}; set url to that address")
    return _unusable_response_error(name, response) if status == 200 else None


def write_error(name: str, response: requests.Response) -> CatalogueError | None:
    """Return the error of a write that Rucio refused, or whose outcome is unknown; None for other answers.

    Rucio rolls its transaction back before it names an exception, whatever the status: a closed RSE has the
    status 500. Without such a name, a status from 500 on may come from a proxy that waited in vain.
    """
    status = response.status_code
    if status == 201:
        return None  # Rucio calls the JSON of a 201 text/html, too
    if status == 200:
        unusable = _unusable_response_error(name, response)
        return WriteUnconfirmed(name, unusable.reason) if unusable else None
    kind = sanitize(response.headers.get("ExceptionClass", ""), 100)
    message = " ".join(sanitize(response.headers.get("ExceptionMessage", ""), 300).split())
    if status >= 400 and kind and kind not in _NO_REFUSALS:
        return WriteRefused(name, kind, message or kind)
    if status not in range(400, 500):
        return WriteUnconfirmed(name, f"HTTP {status} {kind} {message}".strip())
    return query_error(name, response, can_log_in=True)


def unanswered_write_error(name: str, exc: requests.RequestException, reason: str) -> CatalogueUnreachable:
    """Return the error for a write that failed with *exc*.

    A write was certainly not sent if there was no connection to the server; otherwise its outcome is unknown.
    """
    cause = exc.args[0] if exc.args else None
    is_unsent = isinstance(exc, requests.ConnectTimeout | requests.exceptions.SSLError) or isinstance(
        getattr(cause, "reason", None), urllib3.exceptions.NewConnectionError
    )
    return (CatalogueUnreachable if is_unsent else WriteUnconfirmed)(name, reason)


def _unusable_response_error(name: str, response: requests.Response) -> CatalogueError | None:
    kind = response.headers.get("Content-Type", "")
    if "html" in kind and response.headers.get("Content-Length") != "0":  # Rucio confirms a write so
        return CatalogueGarbled(name, f"the answer is a web page ({kind}), not data")
    if is_login(response) and "X-Rucio-Auth-Token" not in response.headers:
        return CatalogueGarbled(name, "the answer to the login has no token")
    chunked = "chunked" in response.headers.get("Transfer-Encoding", "")
    if not chunked and "Content-Length" not in response.headers:
        return CatalogueGarbled(name, "the answer has no length, so it may be incomplete")
    return None


def _error_text(response: requests.Response) -> str:
    """Return Rucio's own error text from the headers, on one line."""
    parts = [sanitize(response.headers.get(key, ""), 150) for key in ("ExceptionClass", "ExceptionMessage")]
    return "".join(f" {word}" for part in parts for word in part.split())
