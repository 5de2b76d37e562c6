"""State that one cycle leaves to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hydrator.domain.model import Did, Site, SiteAd
from hydrator.reconcile.audit.ledger import Audit
from hydrator.reconcile.demand import DemandMemory
from hydrator.reconcile.overrides import Rollback
from hydrator.reconcile.snapshot.breaker import HeldLoss
from hydrator.reconcile.snapshot.memory import CatalogueMemory


@dataclass(frozen=True, slots=True)
class ReconcileState:
    """Everything the daemon remembers between two cycles."""

    memories: Mapping[str, CatalogueMemory] = field(default_factory=dict)
    demand: DemandMemory = field(default_factory=DemandMemory)
    pattern_matches: Mapping[str, frozenset[Did]] = field(default_factory=dict)
    ads: Mapping[Site, SiteAd] = field(default_factory=dict)
    held_losses: Mapping[Site, HeldLoss] = field(default_factory=dict)
    audit: Audit = field(default_factory=Audit)
    rollbacks: Mapping[Site, Rollback] = field(default_factory=dict)
