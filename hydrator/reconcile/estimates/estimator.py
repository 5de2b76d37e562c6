"""Estimator: query the load of the pool beside the cycles, and make the estimates of each cycle."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from hydrator.domain.ads.estimates import Estimates, RateLookup
from hydrator.domain.bugs import BugReporter
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Demand, Snapshot
from hydrator.domain.pool_ports import PoolLoad, PoolLoads, ScheddLoad
from hydrator.reconcile.poll.threads import run_in_thread

from .estimate import EstimatePolicy, Estimation, estimate

_QUERY = "the query of jobs and slots"
_ESTIMATE = "the estimates"
MAX_WAIT: Final = timedelta(seconds=3)
"""The longest time that the query of the demand waits for the query of the load."""


class Estimator:
    """Estimates of each cycle, made from the last load of the pool and the last estimates.

    The query of the load has its own thread. A query that takes long delays no cycle: the cycles use the
    last complete load until it is too old. A schedd that does not answer counts with its last answer until
    then. No failure stops a cycle; the cycle has no estimates instead.

    Args:
        loads: the load of the pool; None if the daemon does not query schedds.
        get_rates: returns the transfer rates as of now; None if there are none.
        policy: the settings.
        bugs: counts and logs exceptions that no part should raise.
        last: the last estimation, of another estimator or of the daemon before its restart.
    """

    def __init__(
        self,
        loads: PoolLoads | None = None,
        get_rates: Callable[[], RateLookup | None] = lambda: None,
        policy: EstimatePolicy | None = None,
        bugs: BugReporter | None = None,
        last: Estimation | None = None,
    ) -> None:
        self._loads = loads
        self._get_rates = get_rates
        self._policy = policy or EstimatePolicy()
        self._bugs = bugs or BugReporter()
        self._lock = threading.Lock()
        self._query: Future[None] | None = None
        self._load: PoolLoad | None = None
        self._load_oldest_at: datetime | None = None
        self._failure: str | None = None
        self._answers: dict[str, tuple[datetime, ScheddLoad]] = {}
        self.last = last or Estimation()

    def begin_query(self) -> None:
        """Begin to query the load in another thread, unless the last query still runs."""
        if self._loads is None or not self._policy.is_enabled:
            return
        with self._lock:
            if self._query is None or self._query.done():
                loads = self._loads
                self._query = run_in_thread("load", lambda: self._read(loads))

    def await_query(self, timeout: timedelta = MAX_WAIT) -> None:
        """Wait for the query that runs, but not longer than *timeout*."""
        with self._lock:
            query = self._query
        if query is not None:
            wait([query], timeout.total_seconds())

    def _read(self, loads: PoolLoads) -> None:
        """Store the load, or the reason why it is not complete; any thread may call this."""
        load = None
        try:
            load = self._with_last_answers(loads.read_load())
            failure = load.unseen_reason
        except PoolError as error:
            failure = str(error)
        except BaseException as error:  # noqa: BLE001 - a bug in this query must not stop the daemon
            failure = self._bugs.report(_QUERY, error)
        else:
            self._bugs.mark_resolved(_QUERY)
        with self._lock:
            self._failure = failure
            if load is not None and failure is None:
                self._load = load
                self._load_oldest_at = min((at for at, _ in self._answers.values()), default=load.as_of)

    def _with_last_answers(self, load: PoolLoad) -> PoolLoad:
        """Return *load* with the last answer, if it is new enough, of each schedd that did not answer now."""
        oldest = load.as_of - self._policy.max_load_age
        schedds = load.schedds
        known = {name: (at, last) for name, (at, last) in self._answers.items() if at >= oldest}
        known |= {name: (load.as_of, one) for name, one in schedds.items() if isinstance(one, ScheddLoad)}
        self._answers = {name: known[name] for name in schedds if name in known}
        return replace(load, schedds={**schedds, **{name: one for name, (_, one) in self._answers.items()}})

    def make(self, snapshot: Snapshot, demand: Demand, now: datetime) -> Estimates | None:
        """Return the estimates of the cycle at *now*, else the own queues, or None; ``last`` says why."""
        try:
            load = self._find_load(now)
            made = estimate(snapshot, demand, load, self._get_rates(), self.last, now, self._policy)
            self.last = replace(made, load=load if isinstance(load, PoolLoad) else None)
            self._bugs.mark_resolved(_ESTIMATE)
        except Exception as error:  # noqa: BLE001 - a bug here must not stop the cycle
            self.last = Estimation(None, self._bugs.report(_ESTIMATE, error))
        return self.last.estimates or self.last.queues

    def _find_load(self, now: datetime) -> PoolLoad | str | None:
        """Return the last complete load if it is new enough; else the failure of the last query."""
        if self._loads is None:
            return "the daemon does not query the schedds ([demand] ask_schedds)"
        with self._lock:
            load, failure, oldest_at = self._load, self._failure, self._load_oldest_at
        is_fresh = oldest_at is not None and now - oldest_at <= self._policy.max_load_age
        if load is not None and (failure is None or is_fresh):
            return load
        return failure
