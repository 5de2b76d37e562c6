"""Rucio stager: pin and stage datasets by replication rules of ours; see the port ``Stager``.

A rule of ours is on one RSE, has one copy and a finite lifetime, is never locked and never purges. Its
comment names us and has the tag (:mod:`.own_rules`). The stager relies on these properties of Rucio:

* Rucio has one rule for each DID, account, RSE and number of copies: a repeated write adds no second rule;
* at the end of a rule Rucio may delete files that no other rule keeps, also files that were there before the
  rule. So no rule is added where files have no rule and never had one (:mod:`.rule_search`);
* a rule that is set to SUSPENDED goes on moving files, unless its transfers are cancelled. This would cancel
  them for the rules of other accounts, too. So a rule of ours ends only by its lifetime, or by a deletion.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import datetime, timedelta

from adapters.rucio.conclusions import Sample, estimate_completion
from adapters.rucio.poll import Dids
from adapters.rucio.session.client import RucioConnection
from adapters.rucio.session.queries import QueryRunner
from adapters.rucio.session.settings import RucioSettings
from adapters.rucio.session.transport import WriteRefused
from hydrator.domain.errors import CatalogueDenied, CatalogueError, CatalogueUnreachable
from hydrator.domain.model import Did, Site
from hydrator.domain.ports import Clock
from hydrator.domain.staging_ports import (
    ExistingRule,
    OwnRequest,
    RefusalKind,
    RequestProgress,
    RequestState,
    SiteSpace,
    StagingError,
    StagingOrder,
    StagingPermissions,
    StagingRefused,
    StagingSize,
    StagingUnavailable,
)

from .destinations import DatasetSizes, Destinations, RuleOptions, StorageSpace, remaining_spaces
from .own_rules import AccountRules, OwnRule
from .rule_search import RuleSearch
from .rule_writer import PermissionProbe, RuleWriter

_TRUST_LOOK = timedelta(minutes=10)
"""A rule that was ours in an answer this young is renewed without another query."""
_NO_AGE = timedelta()
_MAX_SAMPLES = 60
_LEAST_SHARE = 0.25
"""An order is sent only while at least this share of the call's time is left."""
_STOPPING_KINDS = frozenset({RefusalKind.PERMISSION, RefusalKind.ACTIVITY})
"""Refusals that every further order would get, too."""


class RucioStager:
    """A Stager for the Rucio server in *settings*, with a connection of its own."""

    def __init__(self, settings: RucioSettings, options: RuleOptions, clock: Clock) -> None:
        self.name = settings.name
        self.options = options
        own = settings
        self._clock = clock
        self._write_seconds = options.call_limit.total_seconds()
        self._read_seconds = own.deadline.total_seconds()
        self._queries = queries = QueryRunner(own, RucioConnection(own))
        self._destinations = Destinations(queries, options)
        self._account_rules = AccountRules(queries, clock)
        self._writer = RuleWriter(queries, self._destinations, self._account_rules, options.activity)
        self._search = RuleSearch(queries, self._destinations)
        self._sizes = DatasetSizes(queries)
        self._space = StorageSpace(queries, self._destinations)
        self._probe = PermissionProbe(
            self.name, own.account, options.activity, self._writer, self._destinations
        )
        self._samples: dict[str, deque[Sample]] = {}
        self._one_at_a_time = threading.Lock()

    def close(self) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        self._queries.connection.deadline.expire_now()
        self._queries.close()

    @contextmanager
    def _start_call(self, seconds: float) -> Iterator[datetime]:
        """Let one call at a time use the connection, for at most *seconds*; yield the time of its start."""
        started_at = time.monotonic()
        if not self._one_at_a_time.acquire(timeout=seconds):
            raise CatalogueUnreachable(self.name, f"another call to Rucio took more than {seconds:g} s")
        try:
            remaining = max(0.01, seconds - (time.monotonic() - started_at))
            with self._queries.connection.start_poll(remaining):
                yield self._clock()
        finally:
            self._one_at_a_time.release()

    # -- calls that change rules

    def ask(self, orders: Sequence[StagingOrder]) -> Mapping[str, OwnRequest | StagingError]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        try:
            with self._start_call(self._write_seconds) as now:
                return self._ask_all(orders, now)
        except CatalogueError as error:  # nothing was sent
            raise self._writer.translate(error, "add", "a dataset") from None

    def _ask_all(self, orders: Sequence[StagingOrder], now: datetime) -> dict[str, OwnRequest | StagingError]:
        """Check all *orders*, then send them one by one until one fails.

        Raises:
            CatalogueError: no order was sent.
        """
        results: dict[str, OwnRequest | StagingError] = {}
        storages: dict[str, str] = {}
        self._destinations.refresh(now)
        for order in orders:
            try:
                storages[order.tag] = self._destinations.choose(order)
            except StagingRefused as error:
                results[order.tag] = error
        chosen = [order for order in orders if order.tag in storages]
        checks = self._search.find_files_without_rule(
            {order.did: storages[order.tag] for order in chosen}, now
        )
        stop: StagingError | None = None
        for order in chosen:
            refusal = stop or self._refusal_of(order, storages[order.tag], checks[order.did])
            results[order.tag] = refusal or self._writer.add(order, storages[order.tag])
            if stop is None and not isinstance(refusal, StagingUnavailable):
                stop = self._reason_to_stop(results[order.tag])
        return results

    def _refusal_of(
        self, order: StagingOrder, storage: str, check: bool | CatalogueError
    ) -> StagingError | None:
        """Return the error of an order that must not be sent; see :meth:`find_files_without_rule`."""
        if isinstance(check, CatalogueDenied):
            return self._writer.translate(check, "add", order.did)
        if isinstance(check, CatalogueError):
            return StagingUnavailable(self.name, check.reason)
        if not check:
            return None
        reason = (
            f"files of {order.did} are at {storage} without any rule, now or in the past; after a"
            " rule of ours Rucio may delete them: ask the data manager for a rule that keeps them"
        )
        return StagingRefused(self.name, reason)

    def _reason_to_stop(self, result: OwnRequest | StagingError) -> StagingError | None:
        """Return the result of all further orders after *result*; None if they should be sent."""
        if isinstance(result, StagingRefused):
            return result if result.kind in _STOPPING_KINDS else None
        if isinstance(result, StagingError):
            reason = f"not sent, because an order before it failed: {result.reason}"
            return StagingUnavailable(self.name, reason)
        if self._queries.connection.deadline.remaining_seconds < _LEAST_SHARE * self._write_seconds:
            return StagingUnavailable(self.name, "not sent: no time was left")
        return None

    def renew(self, request: OwnRequest, lifetime: timedelta) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        ended = StagingRefused(self.name, f"the rule {request.handle} has ended")
        try:
            with self._start_call(self._write_seconds):
                rule = self._account_rules.find(request, _TRUST_LOOK)
                if rule is None:
                    raise ended
                self._writer.renew(rule.id, lifetime)
        except CatalogueError as error:
            if isinstance(error, WriteRefused) and error.kind == "RuleNotFound":
                raise ended from None
            raise self._writer.translate(error, "renew", request.handle) from None
        finally:
            self._account_rules.forget(request.handle)

    def cancel(self, request: OwnRequest) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        try:
            with self._start_call(self._write_seconds):
                rule = self._account_rules.find(request, _NO_AGE)
                if rule is not None:
                    self._writer.end(rule.id)
        except CatalogueError as error:
            if isinstance(error, WriteRefused) and error.kind == "RuleNotFound":
                return
            raise self._writer.translate(error, "cancel", request.handle) from None
        finally:
            self._account_rules.forget(request.handle)

    # -- calls that read

    def look(self, tags: AbstractSet[str], prefix: str) -> Mapping[str, RequestProgress]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        with self._start_call(self._read_seconds) as now:
            rules = self._account_rules.list_active()
            if tags and not rules:  # is the answer empty because Rucio, or something before it, fails?
                self._destinations.refresh(now, is_forced=True)
        active = {rule.id for rule in rules}
        self._samples = {key: each for key, each in self._samples.items() if key in active}
        return {
            rule.mark.tag: rule.progress(self._estimate_end(rule, now))
            for rule in rules
            if rule.mark.tag in tags or rule.mark.tag.startswith(prefix)
        }

    def _estimate_end(self, rule: OwnRule, now: datetime) -> datetime | None:
        if rule.state is not RequestState.MOVING or not rule.files_total:
            self._samples.pop(rule.id, None)
            return None
        samples = self._samples.setdefault(rule.id, deque(maxlen=_MAX_SAMPLES))
        samples.append((now, rule.files_done / rule.files_total))
        estimate = estimate_completion(tuple(samples))
        return estimate[0] if estimate else None

    def find_rules(self, dids: Dids, sites: AbstractSet[Site]) -> Sequence[ExistingRule]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        if not dids or not sites:
            return ()
        with self._start_call(self._read_seconds) as now:
            self._destinations.refresh(now)
            own = {rule.id: rule for rule in self._account_rules.list_all()}
            return self._search.find(dids, sites, own, self._account_rules.earlier_time)

    def measure(self, dids: Dids) -> Mapping[Did, StagingSize]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        if not dids:
            return {}
        with self._start_call(self._read_seconds):
            return self._sizes.measure(dids)

    def read_space(self, sites: AbstractSet[Site]) -> Mapping[Site, SiteSpace]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        if not sites:
            return {}
        with self._start_call(self._read_seconds) as now:
            self._destinations.refresh(now)
            spaces = self._space.read(sites, now)
            unknown = sites & self.options.spaces.keys() - spaces.keys()
            rules = self._account_rules.list_active() if unknown else []
            storages = {self._destinations.disk_of(site) for site in unknown}
        known = {site: self.options.spaces[site] for site in unknown}
        progress = [rule.progress() for rule in rules if rule.storage in storages]
        return spaces | remaining_spaces(known, progress, now)

    def probe_permissions(self) -> StagingPermissions:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        with self._start_call(self._read_seconds) as now:
            self._destinations.refresh(now)
            return self._probe.probe()
