"""View: the facts of one cycle as staging needs them, and why a dataset was not seen in it. Pure."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hydrator.domain.model import DatasetState, Did, Fact, Site
from hydrator.domain.text import format_duration, shorten_list
from hydrator.reconcile.result import CycleReport
from hydrator.reconcile.snapshot.memory import CatalogueMemory


@dataclass(frozen=True)
class DataView:
    """The state of each demanded dataset at each site that is not retired.

    ``unseen_reasons`` has the datasets of which some catalogue gave no recent or no complete answer; nothing
    is requested for these. ``known_dids`` are the datasets that the catalogues were asked about.
    ``problem`` is a reason for which nothing at all is requested, such as another daemon on the pool.
    """

    facts: Mapping[Site, Mapping[Did, Fact]]
    known_dids: frozenset[Did]
    unseen_reasons: Mapping[Did, str] = field(default_factory=dict)
    problem: str | None = None

    def unseen_reason(self, did: Did) -> str | None:
        """Return why *did* was not seen in this cycle; None if it was."""
        if did not in self.known_dids:
            return f"no catalogue was asked about {did} yet"
        return self.unseen_reasons.get(did)

    def state(self, did: Did, site: Site) -> DatasetState | None:
        """Return the state of *did* at *site*; None if it is not there."""
        fact = self.facts.get(site, {}).get(did)
        return fact.state if fact else None

    def fraction(self, did: Did, site: Site) -> float:
        """Return the share of *did* on disk at *site*, 0 to 1; 0 if it is unknown."""
        fact = self.facts.get(site, {}).get(did)
        if fact is None:
            return 0.0
        return 1.0 if fact.state is DatasetState.AVAILABLE else (fact.fraction or 0.0)

    def sites_with(self, did: Did, *states: DatasetState) -> tuple[Site, ...]:
        """Return the sites where *did* has one of *states*, sorted."""
        return tuple(site for site in sorted(self.facts) if self.state(did, site) in states)

    def is_whole(self, did: Did, site: Site) -> bool:
        """Return whether all files of *did* are on disk at *site*, also if its rules end soon."""
        fact = self.facts.get(site, {}).get(did)
        if fact is None:
            return False
        is_ending = fact.state is DatasetState.PARTIAL and (fact.fraction or 0) >= 1
        return fact.state is DatasetState.AVAILABLE or is_ending


def build_view(
    report: CycleReport,
    dids: AbstractSet[Did],
    is_retired: Callable[[Site], bool],
    now: datetime,
    fact_age: timedelta,
) -> DataView:
    """Build the view of *dids* in the last cycle at *now*; facts older than *fact_age* count as not seen."""
    snapshot = report.evaluation.snapshot
    memories = report.evaluation.state.memories
    facts = {site: each.facts for site, each in snapshot.sites.items() if not is_retired(site)}
    problem = None
    if now - report.started_at > fact_age:
        age = format_duration((now - report.started_at).total_seconds())
        problem = f"the last cycle began {age} ago"
    elif report.rivals:
        problem = (
            f"another daemon publishes on this pool: {shorten_list(sorted(report.rivals.values()), '; ')}"
        )
    colliding = {did for clash in snapshot.case_collisions for did in clash}
    reasons: dict[Did, str] = {}
    for did in report.demand.dids & dids:
        reason = (
            snapshot.unseen_reasons.get(did)
            or ("it differs from another dataset only in letter case" if did in colliding else None)
            or _unknown_state(did, facts)
            or next(
                (
                    why
                    for name, each in memories.items()
                    if (why := _missing_answer(name, each, did, now - fact_age))
                ),
                None,
            )
            or ("no catalogue is configured" if not memories else None)
        )
        if reason:
            reasons[did] = f"{did} was not seen in this cycle: {reason}"
    return DataView(facts, report.demand.dids, reasons, problem)


def _unknown_state(did: Did, facts: Mapping[Site, Mapping[Did, Fact]]) -> str | None:
    unknown = [
        site
        for site in sorted(facts)
        if (fact := facts[site].get(did)) and fact.state is DatasetState.UNKNOWN
    ]
    return f"its state is UNKNOWN at {shorten_list(unknown)}" if unknown else None


def _missing_answer(name: str, memory: CatalogueMemory, did: Did, since: datetime) -> str | None:
    """Return why the answer of the catalogue *name* for *did* is not of this cycle; None if it is."""
    if memory.failure:
        return f"catalogue {name}: {memory.failure}"
    if did in memory.unseen_reasons:
        return f"catalogue {name}: {memory.unseen_reasons[did]}"
    if memory.last_read_at:
        return f"catalogue {name} could not query {shorten_list(sorted(memory.last_read_at))}"
    record = memory.records.get(did)
    if record is None:
        return f"catalogue {name} has not answered about it yet"
    if record.read_at < since or any(fact.as_of < since for fact in record.facts.values()):
        return f"the answer of catalogue {name} is too old"
    if record.reading and record.reading.unreachable_sites:
        return f"catalogue {name} could not query {shorten_list(sorted(record.reading.unreachable_sites))}"
    return None
