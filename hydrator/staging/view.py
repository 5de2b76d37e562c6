"""View: the live jobs that need datasets, and the facts of one cycle as staging needs them. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from hydrator.domain.errors import BadDid
from hydrator.domain.model import DatasetState, Did, Fact, Site, Unseen, parse_did
from hydrator.domain.ports import DataNeed
from hydrator.domain.text import format_duration, shorten_list
from hydrator.reconcile.snapshot.memory import CatalogueMemory

if TYPE_CHECKING:  # the commands load this module, and need nothing of the cycle itself
    from hydrator.reconcile.result import CycleReport

# -- needs


@dataclass(frozen=True, slots=True)
class LiveNeed:
    """Alike jobs of one schedd, with the datasets that they need as DIDs, sorted; see :class:`DataNeed`."""

    dids: tuple[Did, ...]
    jobs: DataNeed


@dataclass(frozen=True)
class LiveNeeds:
    """The needs of the schedds that answered.

    ``unseen`` has the schedds that did not answer, with the reason; nothing is asked for on behalf of their
    jobs, and nothing is cancelled that their jobs may need. ``read_at`` is by schedd the time of its last
    answer.
    """

    needs: tuple[LiveNeed, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    read_at: Mapping[str, datetime] = field(default_factory=dict)

    @cached_property
    def by_did(self) -> Mapping[Did, Sequence[LiveNeed]]:
        """Return the needs by dataset."""
        found: dict[Did, list[LiveNeed]] = {}
        for need in self.needs:
            for did in need.dids:
                found.setdefault(did, []).append(need)
        return found

    @property
    def is_complete(self) -> bool:
        """Return whether all schedds answered, and there is one: only then a missing job is gone."""
        return bool(self.read_at) and not self.unseen


def update_needs(
    previous: LiveNeeds,
    answers: Mapping[str, Sequence[DataNeed] | Unseen] | str,
    now: datetime,
    keep_for: timedelta,
    default_scope: str | None,
) -> LiveNeeds:
    """Return the needs after the schedds' *answers*; a text says why the collector listed no schedds.

    A schedd that the collector does not list any more counts as unseen for *keep_for*. A job with a name
    that is not a DID is omitted: no site could ever satisfy it.
    """
    needs: list[LiveNeed] = []
    unseen: dict[str, str] = {}
    read_at: dict[str, datetime] = {}
    for schedd, answer in ({} if isinstance(answers, str) else answers).items():
        if isinstance(answer, Unseen):
            unseen[schedd] = answer.reason
            continue
        read_at[schedd] = now
        for one in answer:
            with suppress(BadDid):
                dids = sorted({parse_did(text, default_scope) for text in one.datasets})
                needs += [LiveNeed(tuple(dids), one)] if dids else []
    missing = answers if isinstance(answers, str) else "the collector does not list it any more"
    for schedd, at in previous.read_at.items():
        if schedd not in read_at and now - at < keep_for:
            unseen.setdefault(schedd, missing)
            read_at[schedd] = at
    return LiveNeeds(tuple(needs), unseen, read_at)


# -- data


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

    def sites_with(self, did: Did, state: DatasetState) -> tuple[Site, ...]:
        """Return the sites where *did* has *state*, sorted."""
        return tuple(site for site in sorted(self.facts) if self.state(did, site) is state)

    def is_whole(self, did: Did, site: Site) -> bool:
        """Return whether all files of *did* are on disk at *site*, also if its rules end soon."""
        usable = {DatasetState.AVAILABLE, DatasetState.PARTIAL}
        return self.fraction(did, site) >= 1 and self.state(did, site) in usable


def build_view(
    report: "CycleReport",
    dids: AbstractSet[Did],
    is_retired: Callable[[Site], bool],
    now: datetime,
    fact_age: timedelta,
) -> DataView:
    """Build the view of *dids* in the last cycle at *now*; facts older than *fact_age* count as not seen."""
    snapshot = report.evaluation.snapshot
    facts = {site: each.facts for site, each in snapshot.sites.items() if not is_retired(site)}
    problem = None
    if now - report.started_at > fact_age:
        age = format_duration((now - report.started_at).total_seconds())
        problem = f"the last cycle began {age} ago"
    elif report.rivals:
        rivals = shorten_list(sorted(report.rivals.values()), "; ")
        problem = f"another daemon publishes on this pool: {rivals}"
    colliding = {did for clash in snapshot.case_collisions for did in clash}

    def iter_reasons(did: Did) -> Iterator[str]:
        if did in snapshot.unseen_reasons:
            yield snapshot.unseen_reasons[did]
        if did in colliding:
            yield "it differs from another dataset only in letter case"
        at = [site for site in sorted(facts) if did in facts[site]]
        if unknown := [site for site in at if facts[site][did].state is DatasetState.UNKNOWN]:
            yield f"its state is UNKNOWN at {shorten_list(unknown)}"
        memories = report.evaluation.state.memories
        for name, memory in memories.items():
            if why := _missing_answer(memory, did, now - fact_age):
                yield f"catalogue {name}: {why}"
        if not memories:
            yield "no catalogue is configured"

    reasons = {
        did: f"{did} was not seen in this cycle: {reason}"
        for did in report.demand.dids & dids
        for reason in islice(iter_reasons(did), 1)
    }
    return DataView(facts, report.demand.dids, reasons, problem)


def _missing_answer(memory: CatalogueMemory, did: Did, since: datetime) -> str | None:
    """Return why the answer for *did* of the catalogue of *memory* is not of this cycle; None if it is."""
    record = memory.records.get(did)
    if reason := memory.failure or memory.unseen_reasons.get(did):
        return reason
    silent = memory.last_read_at or (record and record.reading and record.reading.unreachable_sites)
    if silent:
        return f"it could not query {shorten_list(sorted(silent))}"
    if record is None:
        return "it has not answered about it yet"
    times = (record.read_at or memory.answered_at, *(fact.as_of for fact in record.facts.values()))
    is_old = any(at is not None and at < since for at in times)
    return "its answer is too old" if is_old else None
