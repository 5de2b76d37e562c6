"""Changes of a site's ad: the datasets that each generation added, removed or changed, and the reasons.

``result.py`` finds the changes of a cycle, and ``state/store`` keeps the last of them.
"""

from dataclasses import dataclass
from datetime import datetime

from hydrator.domain.model import Did, SiteAd
from hydrator.domain.units import UnixTime


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
    """One generation of a site's ad, with its changes.

    ``decided_at`` is the time of the cycle.
    """

    decided_at: datetime
    ad: SiteAd
    changes: tuple[DatasetChange, ...]

    @property
    def text(self) -> str:
        """Return a text with the numbers of added, removed and changed datasets: ``2 came, 1 left``."""
        came = sum(change.before is None for change in self.changes)
        left = sum(change.after is None for change in self.changes)
        other = len(self.changes) - came - left
        parts = [(came, "came"), (left, "left"), (other, "changed")]
        counts = [f"{number} {word}" for number, word in parts if number]
        return ", ".join(counts) or "only ages or fractions changed"
