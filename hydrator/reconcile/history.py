"""Changes of a site's ad: the datasets that each generation added, removed or changed, and the reasons.

``result.py`` finds the changes of a cycle, and ``state/store`` keeps the last of them.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hydrator.domain.model import Did, Site
from hydrator.domain.units import UnixTime

MAX_CHANGES_PER_SITE: Final = 200
"""The last changes of a site's ad that are kept: with 10,000 datasets a cycle may change 2,000 of each ad."""


@dataclass(frozen=True, slots=True)
class DatasetChange:
    """One change of a dataset in a site's ad.

    Attributes:
        at: time of the decision.
        did: the dataset.
        before: its state before; null: not listed.
        after: its state after; null: not listed.
        why: one sentence.
    """

    at: UnixTime
    did: Did
    before: str | None
    after: str | None
    why: str


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The changes that made a new generation of the ad of ``site``.

    ``decided_at`` is the time of the cycle. ``changes`` are at most MAX_CHANGES_PER_SITE; ``further_count``
    is the number of the others.
    """

    decided_at: datetime
    site: Site
    changes: tuple[DatasetChange, ...]
    further_count: int = 0

    @property
    def text(self) -> str:
        """Return a text with the numbers of added, removed and changed datasets: ``2 came, 1 left``."""
        came = sum(change.before is None for change in self.changes)
        left = sum(change.after is None for change in self.changes)
        other = len(self.changes) - came - left
        parts = [(came, "came"), (left, "left"), (other, "changed"), (self.further_count, "more")]
        counts = [f"{number} {word}" for number, word in parts if number]
        return ", ".join(counts) or "only ages or fractions changed"
