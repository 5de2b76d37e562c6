"""In-memory Stager with faults, for tests of the staging part.

It behaves like Rucio: one rule for each dataset, account and storage element; rules end after their lifetime.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from hydrator.domain.errors import CatalogueUnreachable
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
    StagingKind,
    StagingOrder,
    StagingPermissions,
    StagingRefused,
    StagingSize,
    StagingUnavailable,
)

OUR_ACCOUNT = "hydrator"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """One rule in memory: its public values, and how much of it is done."""

    rule: ExistingRule
    kind: StagingKind
    size: StagingSize
    files_done: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of one call. The call raises *error*; if *has_effect*, only after it had its effect."""

    error: Exception
    has_effect: bool = False


class MemoryStager:
    """A stager in memory. ``rules`` has all rules by handle; a test may change it at any time.

    Args:
        clock: the time at which rules begin and end.
        sizes: the size of each dataset; other datasets are unknown.
        space: the space of each site; the space of other sites is unknown.
        name: the catalogue's name in the configuration.

    Attributes:
        calls: the names of all calls so far, in order: a spy.
        faults: by name of a call, the failures of its next calls, first to last.
        refusals: by DID or site, the reason for which ``ask`` refuses an order.
        is_broken: whether all calls fail as if the server were down.
        permissions: the answer of ``probe_permissions``.
    """

    def __init__(
        self,
        clock: Clock,
        sizes: Mapping[Did, StagingSize] | None = None,
        space: Mapping[Site, SiteSpace] | None = None,
        *,
        name: str = "memory",
    ) -> None:
        self.name = name
        self.sizes = dict(sizes or {})
        self.space = dict(space or {})
        self.rules: dict[str, MemoryRule] = {}
        self.calls: list[str] = []
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.refusals: dict[Did | Site, tuple[RefusalKind, str]] = {}
        self.is_broken = False
        self.permissions = StagingPermissions(True, True, True)
        self._clock = clock
        self._number = 0

    # for tests

    def add_rule(
        self,
        did: Did,
        site: Site,
        *,
        account: str = "someone",
        state: RequestState = RequestState.DONE,
        expires_at: datetime | None = None,
        storage: str = "",
        tag: str = "",
        kind: StagingKind = StagingKind.STAGE,
    ) -> str:
        """Add a rule of any account; return its handle."""
        self._number += 1
        handle = f"rule{self._number}"
        rule = ExistingRule(did, site, storage or f"{site}_DISK", state, account, handle, tag, expires_at)
        self.rules[handle] = MemoryRule(rule, kind, self.sizes.get(did, StagingSize(1, 1)))
        return handle

    def set_state(self, handle: str, state: RequestState, files_done: int = 0, reason: str = "") -> None:
        """Change the state and the progress of the rule *handle*."""
        row = self.rules[handle]
        rule = replace(row.rule, state=state)
        self.rules[handle] = replace(row, rule=rule, files_done=files_done, reason=reason)

    def own_rules(self) -> list[MemoryRule]:
        """Return the rules of our account that have not ended, in the order of their making."""
        _remove_expired(self.rules, self._clock())
        return [row for row in self.rules.values() if row.rule.account == OUR_ACCOUNT]

    # the port

    def ask(self, orders: Sequence[StagingOrder]) -> Mapping[str, OwnRequest | StagingError]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        return _call(self, "ask", lambda: {order.tag: self._make(order) for order in orders})

    def _make(self, order: StagingOrder) -> OwnRequest | StagingError:
        refusal = self.refusals.get(order.did) or self.refusals.get(order.site)
        if refusal:
            return StagingRefused(self.name, refusal[1], refusal[0])
        if order.lifetime <= timedelta():
            return StagingRefused(self.name, "a lifetime must be positive")
        storage = order.storage or f"{order.site}_DISK"
        for row in self.own_rules():
            if (row.rule.did, row.rule.storage) == (order.did, storage):
                if row.rule.tag != order.tag:
                    return StagingRefused(self.name, f"the rule {row.rule.handle} of ours exists already")
                return _own_request(row)
        is_pin = order.kind is StagingKind.PIN
        handle = self.add_rule(
            order.did,
            order.site,
            account=OUR_ACCOUNT,
            state=RequestState.DONE if is_pin else RequestState.MOVING,
            expires_at=self._clock() + order.lifetime,
            storage=storage,
            tag=order.tag,
            kind=order.kind,
        )
        return _own_request(self.rules[handle])

    def renew(self, request: OwnRequest, lifetime: timedelta) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        _call(self, "renew", lambda: self._set_end(request, self._clock() + lifetime))

    def cancel(self, request: OwnRequest) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""

        def end() -> None:
            if request.handle in self.rules:
                self._set_end(request, self._clock() + timedelta(seconds=5))

        _call(self, "cancel", end)

    def _set_end(self, request: OwnRequest, end: datetime) -> None:
        _remove_expired(self.rules, self._clock())
        row = self.rules.get(request.handle)
        if row is None or row.rule.account != OUR_ACCOUNT or row.rule.tag != request.tag:
            reason = f"the rule {request.handle} does not exist or is not ours"
            raise StagingRefused(self.name, reason, RefusalKind.NOT_OURS)
        self.rules[request.handle] = replace(row, rule=replace(row.rule, expires_at=end))

    def look(self, tags: AbstractSet[str], prefix: str) -> Mapping[str, RequestProgress]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        return _call(
            self,
            "look",
            lambda: {
                row.rule.tag: _progress(row)
                for row in self.own_rules()
                if row.rule.tag in tags or row.rule.tag.startswith(prefix)
            },
        )

    def find_rules(self, dids: AbstractSet[Did], sites: AbstractSet[Site]) -> Sequence[ExistingRule]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""

        def find() -> list[ExistingRule]:
            _remove_expired(self.rules, self._clock())
            rules = (row.rule for row in self.rules.values())
            return [rule for rule in rules if rule.did in dids and rule.site in sites]

        return _call(self, "find_rules", find)

    def measure(self, dids: AbstractSet[Did]) -> Mapping[Did, StagingSize]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        return _call(self, "measure", lambda: {did: self.sizes[did] for did in dids & self.sizes.keys()})

    def read_space(self, sites: AbstractSet[Site]) -> Mapping[Site, SiteSpace]:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        return _call(
            self, "read_space", lambda: {site: self.space[site] for site in sites & self.space.keys()}
        )

    def probe_permissions(self) -> StagingPermissions:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        return _call(self, "probe_permissions", lambda: self.permissions)

    def close(self) -> None:
        """Do nothing: no connection is open."""


def _call(stager: MemoryStager, name: str, work: Callable[[], _T]) -> _T:
    """Record the call *name* and make it, unless a fault prevents it."""
    stager.calls.append(name)
    if stager.is_broken:
        reason = "it is set to fail (is_broken)"
        if name in {"ask", "renew", "cancel"}:
            raise StagingUnavailable(stager.name, reason)
        raise CatalogueUnreachable(stager.name, reason)
    fault = stager.faults[name].pop(0) if stager.faults[name] else None
    if fault and not fault.has_effect:
        raise fault.error
    result = work()
    if fault:
        raise fault.error
    return result


def _remove_expired(rules: dict[str, MemoryRule], now: datetime) -> None:
    for handle, row in list(rules.items()):
        if row.rule.expires_at is not None and row.rule.expires_at <= now:
            del rules[handle]


def _own_request(row: MemoryRule) -> OwnRequest:
    return OwnRequest(row.rule.tag, row.rule.handle, row.kind, row.rule.site, row.rule.did)


def _progress(row: MemoryRule) -> RequestProgress:
    is_done, files = row.rule.state is RequestState.DONE, row.size.files
    return RequestProgress(
        _own_request(row),
        row.rule.state,
        files or 0 if is_done else row.files_done,
        files,
        row.size.bytes if is_done else row.size.bytes * row.files_done // (files or 1),
        row.size.bytes,
        row.rule.expires_at,
        row.rule.ready_at,
        row.reason,
    )
