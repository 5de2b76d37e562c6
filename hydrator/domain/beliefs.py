"""Beliefs: the conclusions of the daemon that `hydrator why` and the page explain a job by. Pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from .model import Did, Site, Snapshot


@dataclass(frozen=True, slots=True)
class DaemonKnowledge:
    """What the daemon holds true, and what it could not do.

    ``demanded`` datasets are published; ``asked`` ones were asked about besides, for this answer alone.
    ``left_out`` has, by site, the datasets that its ad has no room for; ``held``, by site, the change that
    the daemon holds back; ``near`` has, by a name that exists nowhere, those that look like it.
    """

    now: datetime
    snapshot: Snapshot
    demanded_dids: frozenset[Did] = frozenset()
    queried_dids: frozenset[Did] = frozenset()
    dids_without_room: Mapping[Site, AbstractSet[Did]] = field(default_factory=dict)
    held_reasons: Mapping[Site, str] = field(default_factory=dict)
    similar_names: Mapping[Did, tuple[Did, ...]] = field(default_factory=dict)

    @property
    def collisions_by_lower_name(self) -> dict[str, tuple[Did, ...]]:
        return {did.lower(): clash for clash in self.snapshot.case_collisions for did in clash}
