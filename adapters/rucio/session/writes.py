"""Errors of writes to Rucio: which answers refuse a write, and which leave open whether Rucio executed it."""

import requests
import urllib3

from hydrator.domain.errors import CatalogueError, CatalogueUnreachable
from hydrator.domain.redaction import sanitize

_NO_REFUSALS = frozenset({"CannotAuthenticate", "DatabaseException"})


class WriteRefused(CatalogueError):
    """Rucio refused a write and changed nothing; *kind* is its name of the reason."""

    def __init__(self, catalogue: str, kind: str, reason: str) -> None:
        super().__init__(catalogue, reason)
        self.kind = kind


class WriteUnconfirmed(CatalogueUnreachable):
    """A write without a usable answer: the server may or may not have executed it."""


def unanswered_write_error(name: str, exc: requests.RequestException, reason: str) -> CatalogueUnreachable:
    """Return the error for a write that failed with *exc*.

    A write was certainly not sent if there was no connection to the server; otherwise its outcome is unknown.
    """
    cause = exc.args[0] if exc.args else None
    is_unsent = isinstance(exc, requests.ConnectTimeout | requests.exceptions.SSLError) or isinstance(
        getattr(cause, "reason", None), urllib3.exceptions.NewConnectionError
    )
    return (CatalogueUnreachable if is_unsent else WriteUnconfirmed)(name, reason)


def write_error(
    name: str, response: requests.Response, unusable: CatalogueError | None
) -> CatalogueError | None:
    """Return the error of a write that Rucio refused, or whose outcome is unknown; None for other answers.

    Rucio rolls its transaction back before it names an exception, whatever the status: a closed RSE has the
    status 500. Without such a name, a status from 500 on may come from a proxy that waited in vain.

    Args:
        unusable: the reason why an answer with status 200 is not one of Rucio.
    """
    status = response.status_code
    if status == 201 or (status == 200 and unusable is None):
        return None  # Rucio calls the JSON of a 201 text/html, too
    if status == 200 and unusable:
        return WriteUnconfirmed(name, unusable.reason)
    kind = sanitize(response.headers.get("ExceptionClass", ""), 100)
    message = " ".join(sanitize(response.headers.get("ExceptionMessage", ""), 300).split())
    if status >= 400 and kind and kind not in _NO_REFUSALS:
        return WriteRefused(name, kind, message or kind)
    if status not in range(400, 500):
        return WriteUnconfirmed(name, f"HTTP {status} {kind} {message}".strip())
    return None
