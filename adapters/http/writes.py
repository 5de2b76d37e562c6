"""Errors of requests that change something on a server: refused, or with an unknown outcome."""

from hydrator.domain.errors import CatalogueError, CatalogueUnreachable


class WriteRefused(CatalogueError):
    """A server refused a write and changed nothing; *kind* is its name of the reason, or the HTTP status."""

    def __init__(self, catalogue: str, kind: str, reason: str) -> None:
        super().__init__(catalogue, reason)
        self.kind = kind


class WriteUnconfirmed(CatalogueUnreachable):
    """A write without a usable answer: the server may or may not have executed it."""
