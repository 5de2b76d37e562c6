"""What the HTTP answers are made of: the present state, as values."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hydrator.domain.model import DaemonKnowledge, Demand, Did, Site, SiteAd, Snapshot
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.snapshot.breaker import HeldLoss


@dataclass(frozen=True, slots=True)
class ServerState:
    """What is answered from, at one moment.

    ``ads`` are served to hooks and ``heard`` is when each was last put there
    (a site without one counts as heard *now*: what is served live cannot
    expire). ``ready`` is None, or why there is no complete state yet; ``held``
    says, by site, why its ad stays as it is. Of these, ``waiting`` has what the
    breaker holds, ``withheld`` those without an ad of this daemon's yet, and
    the rest are rolled back. ``stuck`` is None, or why the daemon counts as
    hung; ``troubles`` are sentences on what failed in the last cycle, such as a
    catalogue that does not answer. Facts older than ``bound`` do not count.
    ``changes`` are the last that were decided, oldest first. ``left_out``
    has, by site, the datasets that its ad has no room for.
    """

    ads: Mapping[Site, SiteAd]
    snapshot: Snapshot | None
    demand: Demand | None
    not_ready_reason: str | None
    now: datetime
    published_at: Mapping[Site, datetime] = field(default_factory=dict)
    held_reasons: Mapping[Site, str] = field(default_factory=dict)
    hang_reason: str | None = None
    held_losses: Mapping[Site, HeldLoss] = field(default_factory=dict)
    max_age: timedelta = timedelta(hours=6)
    changes: Sequence[HistoryEntry] = ()
    omitted_dids: Mapping[Site, AbstractSet[Did]] = field(default_factory=dict)
    troubles: Sequence[str] = ()
    withheld_reasons: Mapping[Site, str] = field(default_factory=dict)

    @property
    def knowledge(self) -> DaemonKnowledge | None:
        """What a job is explained by; None before anything was read."""
        if self.snapshot is None:
            return None
        demanded = self.demand.dids if self.demand else frozenset()
        return DaemonKnowledge(
            self.now,
            self.snapshot,
            demanded,
            dids_without_room=self.omitted_dids,
            held_reasons=self.held_reasons,
        )
