"""Queries for single DIDs that failed: the next poll asks them again, then polls after 1, 2, 4, … 60 minutes.

So a DID without an answer delays only the polls in which its query is due. When one of these queries is
answered, all others are due.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import Did

from .poll import NEVER, Dids
from .session.transport import NotFound

QueryKey = tuple[str, Did]
"""The kind of a query (count, name or members), and its DID."""
_FIRST_WAIT = timedelta(seconds=30)
_MAX_WAIT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _Failure:
    error: CatalogueError
    count: int
    failed_at: datetime
    retry_at: datetime


class FailedQueries:
    """The failed queries of a catalogue, each with its last error and the time of its next attempt."""

    def __init__(self) -> None:
        self._failures: dict[QueryKey, _Failure] = {}

    def add(self, key: QueryKey, error: CatalogueError, now: datetime) -> None:
        """Record that the query *key* failed; a 404 is an answer, so it needs no wait."""
        last = self._failures.get(key)
        count = 0 if isinstance(error, NotFound) else last.count + 1 if last else 1
        wait = min(_MAX_WAIT, _FIRST_WAIT * 2 ** min(count - 1, 10)) if count else timedelta()
        self._failures[key] = _Failure(error, count, now, now + wait)

    def remove(self, key: QueryKey) -> None:
        """Record that the query *key* was answered; if it had failed, all others are due."""
        if (failure := self._failures.pop(key, None)) and failure.count:
            self._failures = {
                each: replace(failure, retry_at=NEVER) for each, failure in self._failures.items()
            }

    def error_of(self, key: QueryKey, now: datetime) -> CatalogueError | None:
        """Return the last error of the query *key* if its next attempt is not due; else None."""
        failure = self._failures.get(key)
        return failure.error if failure and now < failure.retry_at else None

    def failed_at(self, key: QueryKey) -> datetime:
        """Return when the query *key* failed last; the earliest time if it did not, or was answered since."""
        failure = self._failures.get(key)
        return failure.failed_at if failure else NEVER

    def forget_all_but(self, dids: Dids) -> None:
        """Forget the failed queries for all DIDs but *dids*."""
        self._failures = {key: each for key, each in self._failures.items() if key[1] in dids}
