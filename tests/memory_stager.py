"""In-memory Rucio behind the port Stager, with its recorded refusals, for tests of the staging part.

It has one rule for each dataset, account and storage element; a second request renews it. A rule stays listed
after its end until Rucio's cleaner runs (:meth:`MemoryStager.clean`), and for ever if it is locked. A deleted
rule (:meth:`MemoryStager.delete`) stays for up to an hour, as one by a data manager does.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

from hydrator.domain.errors import CatalogueUnreachable
from hydrator.domain.model import Did, Site
from hydrator.domain.ports import Clock
from hydrator.domain.staging_ports import (
    ExistingRule,
    RefusalKind,
    RequestState,
    StagingAnswer,
    StagingFailed,
    StagingKind,
    StagingOrder,
    StagingPermissions,
    StagingQuery,
    StagingRefused,
)

T = TypeVar("T")
OUR_ACCOUNT = "hydrator"
FILES = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of one call. The call raises *error*; if *has_effect*, only after it had its effect."""

    error: BaseException
    has_effect: bool = False


class MemoryStager:
    """A stager in memory. ``rules`` has all rules by id; a test may change it at any time.

    Args:
        clock: the time at which rules begin and end.
        sizes: the size of each dataset; other datasets are unknown.
        spaces: the free bytes of each site.
        name: the catalogue's name in the configuration.

    Attributes:
        calls: the names of all calls so far, in order: a spy.
        queries: the queries of ``list`` so far.
        faults: by name of a call, the failures of its next calls, first to last.
        refusals: by DID or site, the reason for which ``request`` refuses an order.
        is_broken: whether all calls fail as if the server were down.
        longest: the longest lifetime that a policy gives to a rule.
        unread: the datasets and rules that cannot be read, with the reason.
        disks: the disk to which requests to a site go now; by default the one with its name.
    """

    def __init__(
        self,
        clock: Clock,
        sizes: Mapping[Did, int] | None = None,
        spaces: Mapping[Site, int | str] | None = None,
        *,
        name: str = "memory",
    ) -> None:
        self.name = name
        self.sizes = dict(sizes or {})
        self.spaces = dict(spaces or {})
        self.rules: dict[str, ExistingRule] = {}
        self.calls: list[str] = []
        self.queries: list[StagingQuery] = []
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.refusals: dict[Did | Site, tuple[RefusalKind, str]] = {}
        self.is_broken = False
        self.permissions = StagingPermissions(True, True, True)
        self.longest = timedelta.max
        self.unread: dict[str, str] = {}
        self.disks: dict[Site, str] = {}
        self._clock = clock
        self._number = 0

    # for tests

    def add_rule(self, did: Did, site: Site, account: str = "someone", **values) -> str:
        """Add a rule of any account; return its id."""
        self._number += 1
        rule = f"rule{self._number}"
        known = {"state": RequestState.DONE, "storage": f"{site}_DISK", "files": FILES} | values
        known.setdefault("is_whole", known["state"] is RequestState.DONE)
        self.rules[rule] = ExistingRule(rule, did, site, account=account, **known)
        return rule

    def set(self, rule: str, **values) -> None:
        """Change *rule*; one that is done is whole."""
        if values.get("state") is RequestState.DONE:
            values = {"is_whole": True, "files_done": FILES} | values
        self.rules[rule] = replace(self.rules[rule], **values)

    def own_rules(self) -> list[ExistingRule]:
        """Return the rules of ours that Rucio lists, in the order of their making."""
        return [rule for rule in self.rules.values() if rule.is_ours]

    def delete(self, rule: str) -> None:
        """Delete *rule* as a data manager does: it ends in an hour at the latest."""
        end = self._clock() + timedelta(hours=1)
        self.set(rule, expires_at=min(self.rules[rule].expires_at or end, end))

    def clean(self) -> list[ExistingRule]:
        """Let the cleaner remove the rules that have ended; return them."""
        now = self._clock()
        ended = [
            rule
            for rule in self.rules.values()
            if rule.expires_at is not None and rule.expires_at <= now and not rule.blocked
        ]
        for rule in ended:
            del self.rules[rule.id]
        return ended

    # the port

    def list(self, query: StagingQuery) -> StagingAnswer:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        self.queries.append(query)
        return self._run("list", lambda: self._list(query))

    def _list(self, query: StagingQuery) -> StagingAnswer:
        found = tuple(
            rule
            for rule in self.rules.values()
            if self.unread.keys().isdisjoint({rule.id, rule.did})
            and (
                rule.id in query.rules
                or (query.lists_all and rule.is_ours)
                or (rule.did in query.dids and rule.site in query.sites)
            )
        )
        sizes = {did: self.sizes[did] for did in query.dids & self.sizes.keys() - self.unread.keys()}
        spaces = {site: self.spaces[site] for site in query.spaces & self.spaces.keys()}
        unread = {key: self.unread[key] for key in self.unread.keys() & (query.dids | query.rules)}
        storages = {site: self._find_disk(site) for site in spaces}
        return StagingAnswer(found, sizes, spaces, unread, storages)

    def _find_disk(self, site: Site) -> str:
        return self.disks.get(site, f"{site}_DISK")

    def request(self, order: StagingOrder) -> str:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        return self._run("request", lambda: self._request(order))

    def _request(self, order: StagingOrder) -> str:
        refusal = self.refusals.get(order.did) or self.refusals.get(order.site)
        if refusal and not order.rule:
            raise StagingRefused(self.name, refusal[1], refusal[0])
        end = self._clock() + min(order.lifetime, self.longest)
        storage = order.storage or self._find_disk(order.site)
        if order.rule and order.rule not in self.rules:
            raise StagingRefused(self.name, f"the rule {order.rule} does not exist")
        for rule in self.own_rules():
            if rule.id == order.rule or (not order.rule and (rule.did, rule.storage) == (order.did, storage)):
                self.set(rule.id, expires_at=end)
                return rule.id
        is_pin = order.kind is StagingKind.PIN
        return self.add_rule(
            order.did,
            order.site,
            OUR_ACCOUNT,
            is_ours=True,
            kind=order.kind,
            state=RequestState.DONE if is_pin else RequestState.MOVING,
            storage=storage,
            expires_at=end,
            bytes=order.bytes,
        )

    def cancel(self, rule: str) -> None:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        self._run("cancel", lambda: self._cancel(rule))

    def _cancel(self, rule: str) -> None:
        if rule in self.rules:
            if not self.rules[rule].is_ours:
                raise StagingRefused(self.name, f"the rule {rule} is not ours", RefusalKind.NOT_OURS)
            self.set(rule, expires_at=self._clock() + timedelta(seconds=5))

    def probe_permissions(self) -> StagingPermissions:
        """See :class:`hydrator.domain.staging_ports.Stager`."""
        return self._run("probe_permissions", lambda: self.permissions)

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _run(self, name: str, call: Callable[[], T]) -> T:
        """Record the call *name*, and make it, unless its fault has no effect; raise its fault."""
        self.calls.append(name)
        fault = self.faults[name].pop(0) if self.faults[name] else None
        if self.is_broken:
            kind = StagingFailed if name in {"request", "cancel"} else CatalogueUnreachable
            fault = Fault(kind(self.name, "it is set to fail (is_broken)"))
        result = call() if not fault or fault.has_effect else None
        if fault:
            raise fault.error
        return result
