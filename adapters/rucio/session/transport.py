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
    """Return the error that a response is; None for an answer, and for what rucio-clients handles itself.

    =================================  ===========================================================
    200, unusable                      garbled: a web page, no token, or an answer without a length
    3xx                                garbled: the reason has the new address; nothing is sent there
    400, InvalidObject (500 in bulk)   the query is refused because of one of its DIDs
    401, where a login is possible     rucio-clients logs in again
    401, 403                           the login is refused; AccessDenied: this query is forbidden
    404                                Rucio does not have it; without Rucio's headers: garbled
    429, 503 with Retry-After, > 504   unreachable
    500                                a fault, perhaps because of one of the query's DIDs
    502, 503, 504                      rucio-clients repeats the query
    =================================  ===========================================================
    """
    status, exception = response.status_code, response.headers.get("ExceptionClass")
    reason = f"HTTP {status}{_error_text(response)}"
    if status < 300:
        return _unusable_response_error(name, response) if status == 200 else None
    if status < 400:
        target = sanitize(response.headers.get("Location", "nowhere"), 200)
        return CatalogueGarbled(name, f"HTTP {status}: a redirect to {target}; set url to that address")
    if status == 401 and can_log_in and not is_login(response):
        return None
    if status in {401, 403}:
        is_forbidden = (status == 403 or exception == "AccessDenied") and not is_login(response)
        return (Forbidden if is_forbidden else CatalogueDenied)(name, reason)
    if status == 400 or exception == "InvalidObject":
        return InvalidRequest(name, reason)
    if status == 404 and not exception:
        return CatalogueGarbled(name, "HTTP 404, and not from Rucio; is url its address?")
    if status in {502, 504} or (status == 503 and "Retry-After" not in response.headers):
        return None
    kinds = {404: NotFound, 429: CatalogueUnreachable, 500: ServerFault}
    return kinds.get(status, CatalogueUnreachable if status > 500 else CatalogueGarbled)(name, reason)


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
