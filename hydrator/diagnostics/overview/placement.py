"""Counts of datasets by site and state: a cycle makes them once, for all readers of the pages. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from itertools import compress, repeat
from operator import attrgetter, is_

from hydrator.domain.model import DatasetState, Demand, Did, Fact, Site, SiteFacts, Snapshot
from hydrator.reconcile.snapshot.memory import AT_LAST_POLL
from hydrator.reconcile.snapshot.merge import FactRows

_STATE_OF = attrgetter("state")
_TIME_OF = attrgetter("as_of")


@dataclass(frozen=True, slots=True)
class SiteCounts:
    """The facts of one site by state, and the time of the oldest fact; None without facts."""

    as_of: datetime
    by_state: Mapping[DatasetState, int]
    oldest_at: datetime | None

    @property
    def total(self) -> int:
        return sum(self.by_state.values())

    @property
    def complete(self) -> int:
        return self.by_state.get(DatasetState.AVAILABLE, 0)


@dataclass(frozen=True, slots=True)
class Placement:
    """The datasets of one snapshot: those that are complete at each site, and the counts of each site.

    ``complete_by_site`` is in the order of the site's names; ``complete`` has the datasets of all of them.
    """

    snapshot: Snapshot
    sites: Mapping[Site, SiteCounts]
    dids: frozenset[Did]
    complete_by_site: Sequence[AbstractSet[Did]]
    complete: frozenset[Did]

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Placement":
        """Count the facts of *snapshot*."""
        sites = {site: snapshot.sites[site] for site in sorted(snapshot.sites)}
        rows = {site: _stored_rows(each.facts) for site, each in sites.items()}
        states = {site: list(map(_STATE_OF, each.values())) for site, each in rows.items()}
        counts = {site: _count(each, rows[site], states[site]) for site, each in sites.items()}
        complete_by_site = [
            set(compress(each, map(is_, states[site], repeat(DatasetState.AVAILABLE))))
            for site, each in rows.items()
        ]
        dids = frozenset(snapshot.unseen_reasons).union(*(each.facts for each in snapshot.sites.values()))
        return cls(snapshot, counts, dids, complete_by_site, frozenset().union(*complete_by_site))

    def is_complete_somewhere(self, dids: Sequence[Did]) -> bool:
        """Return whether one site has all *dids* complete."""
        if len(dids) == 1:
            return dids[0] in self.complete
        wanted = frozenset(dids)
        return wanted <= self.complete and any(wanted <= complete for complete in self.complete_by_site)

    def count_jobs_with_site(self, demand: Demand) -> int:
        """Count the jobs whose datasets are all complete at one site."""
        return sum(entry.job_count for entry in demand.entries if self.is_complete_somewhere(entry.dids))


def _stored_rows(facts: Mapping[Did, Fact]) -> Mapping[Did, Fact]:
    """Return *facts* as they are stored: :class:`FactRows` build a new fact for each look-up."""
    return facts.rows if isinstance(facts, FactRows) else facts


def _count(site: SiteFacts, rows: Mapping[Did, Fact], states: Sequence[DatasetState]) -> SiteCounts:
    """Count *states*, which are those of the stored *rows* of *site*."""
    times = set(map(_TIME_OF, rows.values()))
    if isinstance(site.facts, FactRows) and AT_LAST_POLL in times:
        times = times - {AT_LAST_POLL} | {site.facts.now}
    return SiteCounts(site.as_of, Counter(states), min(times, default=None))
