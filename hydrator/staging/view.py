"""View: the live jobs that need datasets, and the facts of one cycle as staging needs them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from hydrator.config import Settings
from hydrator.domain.errors import BadDid
from hydrator.domain.model import DatasetState, Did, Fact, Site, Unseen, parse_did
from hydrator.domain.ports import DataNeed
from hydrator.domain.staging_ports import ExistingRule, StagingAnswer, StagingQuery
from hydrator.domain.text import format_duration, group_pairs, shorten_list

if TYPE_CHECKING:  # the commands load this module, and need nothing of the cycle itself
    from hydrator.reconcile.result import CycleReport

KEEP_NEEDS = timedelta(days=1)
"""The demand of a schedd that does not answer counts for this long."""
_RULES_AGE = timedelta(minutes=15)
"""A plan uses the rules of data on disk up to this age; those that are not done are read in each step."""

# -- needs


Answers = Mapping[str, Sequence[DataNeed] | Unseen]
"""Needs by schedd, or why they are unknown."""


def age_order(need: DataNeed) -> tuple[datetime, tuple[Did, ...], str]:
    """Return the order of needs: the jobs that wait for longest come first."""
    return need.queued_since, need.dids, need.example


@dataclass(frozen=True)
class LiveNeeds:
    """The needs of the schedds that answered.

    ``unseen`` has the schedds that did not answer, with the reason; nothing is asked for on behalf of their
    jobs, and nothing is cancelled that their jobs may need. ``read_at`` is by schedd the time of its last
    answer.
    """

    needs: tuple[DataNeed, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    read_at: Mapping[str, datetime] = field(default_factory=dict)

    @cached_property
    def by_did(self) -> Mapping[Did, Sequence[DataNeed]]:
        """Return the needs by dataset."""
        return group_pairs((did, need) for need in self.needs for did in need.dids)

    @property
    def is_complete(self) -> bool:
        """Return whether all schedds answered, and there is one: only then a missing job is gone."""
        return bool(self.read_at) and not self.unseen

    def update(self, answers: Answers, missing: str, now: datetime, scope: str | None) -> "LiveNeeds":
        """Return the needs after the schedds' *answers*; *missing* says why one may be missing.

        A schedd that the collector does not list any more counts as unseen for KEEP_NEEDS. A job with a name
        that is not a DID, also not in the default *scope*, is omitted: no site could ever satisfy it.
        """
        needs: list[DataNeed] = []
        unseen: dict[str, str] = {}
        read_at: dict[str, datetime] = {}
        for schedd, answer in answers.items():
            if isinstance(answer, Unseen):
                unseen[schedd] = answer.reason
                continue
            read_at[schedd] = now
            for one in answer:
                with suppress(BadDid):
                    dids = {parse_did(text, scope) for text in one.datasets}
                    needs.append(replace(one, dids=tuple(sorted(dids))))
        for schedd, at in self.read_at.items():
            if schedd not in read_at and now - at < KEEP_NEEDS:
                unseen.setdefault(schedd, missing)
                read_at[schedd] = at
        return LiveNeeds(tuple(needs), unseen, read_at)


# -- data


@dataclass(frozen=True)
class DataView:
    """The state of each demanded dataset at each site that is not retired.

    ``unseen`` has the datasets of which some catalogue gave no recent or no complete answer, with the reason;
    nothing is requested for these. ``problem`` is a reason for which nothing at all is requested, such as
    another daemon on the pool.
    """

    facts: Mapping[Site, Mapping[Did, Fact]] = field(default_factory=dict)
    unseen: Mapping[Did, str] = field(default_factory=dict)
    problem: str | None = None

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

    def find_missing(self, dids: Iterable[Did], site: Site) -> list[Did]:
        """Return those of *dids* that are not whole at *site*."""
        return [did for did in dids if not self.is_whole(did, site)]

    def is_whole(self, did: Did, site: Site) -> bool:
        """Return whether all files of *did* are on disk at *site*, also if its rules end soon."""
        usable = {DatasetState.AVAILABLE, DatasetState.PARTIAL}
        return self.fraction(did, site) >= 1 and self.state(did, site) in usable


def build_view(
    report: "CycleReport | None", dids: AbstractSet[Did], settings: Settings, now: datetime
) -> DataView:
    """Build the view of *dids* in the last cycle at *now*; facts older than three polls are not seen.

    A fact that is UNKNOWN is older than the longest age of facts.
    """
    if report is None:
        return DataView(problem="no cycle has ended yet")
    snapshot = report.evaluation.snapshot
    is_retired = settings.sites.is_retired
    polls_age = max(3 * timedelta(seconds=settings.daemon.poll_seconds), timedelta(minutes=2))
    fact_age = min(polls_age, settings.daemon.max_age)
    facts = {site: each.facts for site, each in snapshot.sites.items() if not is_retired(site)}
    problem = None
    if now - report.started_at > fact_age:
        age = format_duration((now - report.started_at).total_seconds())
        problem = f"the last cycle began {age} ago"
    elif report.rivals:
        rivals = shorten_list(sorted(report.rivals.values()), "; ")
        problem = f"another daemon publishes on this pool: {rivals}"
    reasons = {did: _explain_unseen(did, report, now - fact_age) for did in dids}
    unseen = {did: f"{did} was not seen in this cycle: {why}" for did, why in reasons.items() if why}
    return DataView(facts, unseen, problem)


def _explain_unseen(did: Did, report: "CycleReport", since: datetime) -> str | None:
    """Return why the answers for *did* are incomplete, or older than *since*; None if they are not."""
    snapshot, memories = report.evaluation.snapshot, report.evaluation.state.memories
    if did in snapshot.unseen_reasons:
        return snapshot.unseen_reasons[did]
    if any(did in alike for alike in snapshot.case_collisions):
        return "it differs from another dataset only in letter case"
    for name, memory in memories.items():
        record = memory.records.get(did)
        if record is None:
            return f"catalogue {name}: it has not answered about it yet"
        if silent := memory.last_read_at or (record.reading and record.reading.unreachable_sites):
            return f"catalogue {name}: it could not query {shorten_list(sorted(silent))}"
        times = (record.read_at or memory.answered_at, *(fact.as_of for fact in record.facts.values()))
        if any(time is not None and time < since for time in times):
            return f"catalogue {name}: its answer is too old"
    return None if memories else "no catalogue is configured"


# -- rules


class Known(NamedTuple):
    """The last answer about one dataset: its rules of every account, and its size; None: not known."""

    read_at: datetime
    rules: tuple[ExistingRule, ...]
    size: int | None


@dataclass
class CatalogueFacts:
    """The last answers of one catalogue. A dataset that is not ``known`` was not read.

    The last ``answer`` may say why. ``halted`` says why nothing is asked at this catalogue at all. Jobs need
    their data for ``needed``.
    """

    name: str
    needed: timedelta
    known: dict[Did, Known] = field(default_factory=dict)
    answer: StagingAnswer = field(default_factory=StagingAnswer)
    listed_at: datetime | None = None
    halted: str = ""

    def is_due(self, did: Did, now: datetime) -> bool:
        """Return whether to read the rules of *did* again: they are too old, or one of them is not done."""
        one = self.known.get(did)
        return not one or now - one.read_at >= _RULES_AGE or not all(rule.is_whole for rule in one.rules)

    def keep(self, query: StagingQuery, answer: StagingAnswer, now: datetime) -> None:
        """Keep *answer* to *query*."""
        rules = group_pairs((rule.did, rule) for rule in answer.rules)
        for did in query.dids - answer.unread.keys():
            self.known[did] = Known(now, tuple(rules.get(did, ())), answer.sizes.get(did))
        self.answer, self.listed_at = answer, now if query.lists_all else self.listed_at

    def rules_of(self, did: Did) -> tuple[ExistingRule, ...]:
        """Return the rules of *did*; none if they were not read."""
        return self.known[did].rules if did in self.known else ()

    def last_rule(self, did: Did, site: Site) -> ExistingRule | None:
        """Return the rule of others that keeps the whole of *did* at *site* for longest."""
        rules = (one for one in self.rules_of(did) if one.site == site and one.is_whole and not one.is_ours)
        return max(rules, key=lambda rule: (rule.last_moment, rule.id), default=None)

    def sizes_of(self, dids: Iterable[Did]) -> dict[Did, int]:
        """Return the bytes of those of *dids* whose size is known."""
        return {did: size for did in dids if did in self.known and (size := self.known[did].size)}
