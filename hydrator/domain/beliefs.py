"""Beliefs: the conclusions of the daemon that `hydrator why` and the page explain a job by. Pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from .model import Did, Site, Snapshot


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What the daemon holds true, and what it could not do.

    ``demanded`` datasets are published; ``asked`` ones were asked about besides, for this answer alone.
    ``left_out`` has, by site, the datasets that its ad has no room for; ``held``, by site, the change that
    the daemon holds back; ``near`` has, by a name that exists nowhere, those that look like it.
    """

    now: datetime
    snapshot: Snapshot
    demanded: frozenset[Did] = frozenset()
    asked: frozenset[Did] = frozenset()
    left_out: Mapping[Site, AbstractSet[Did]] = field(default_factory=dict)
    held: Mapping[Site, str] = field(default_factory=dict)
    near: Mapping[Did, tuple[Did, ...]] = field(default_factory=dict)

    @property
    def clashing(self) -> dict[str, tuple[Did, ...]]:
        return {did.lower(): clash for clash in self.snapshot.clashes for did in clash}
