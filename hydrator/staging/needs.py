"""Needs: the live jobs that need datasets, also of schedds that do not answer now. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from hydrator.domain.errors import BadDid
from hydrator.domain.model import Did, Site, Unseen, parse_did
from hydrator.domain.ports import DataNeed

from .ledger import Ledger, LedgerEntry
from .policy import StagingPolicy


@dataclass(frozen=True, slots=True)
class LiveNeed:
    """Alike jobs of one schedd, with the datasets that they need as DIDs, sorted; see :class:`DataNeed`."""

    schedd: str
    dids: tuple[Did, ...]
    jobs: DataNeed

    @property
    def user(self) -> str:
        return self.jobs.user


@dataclass(frozen=True)
class LiveNeeds:
    """The needs of all schedds: of this query, or of the last one if a schedd does not answer.

    ``unseen`` has the schedds that did not answer, with the reason; nothing is asked for on behalf of their
    jobs, and nothing is cancelled that their jobs need. ``read_at`` is by schedd the time of the answer.
    """

    needs: tuple[LiveNeed, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    read_at: Mapping[str, datetime] = field(default_factory=dict)

    @cached_property
    def by_did(self) -> Mapping[Did, tuple[LiveNeed, ...]]:
        """Return the needs by dataset."""
        found: dict[Did, list[LiveNeed]] = {}
        for need in self.needs:
            for did in need.dids:
                found.setdefault(did, []).append(need)
        return {did: tuple(needs) for did, needs in found.items()}

    @property
    def current_needs(self) -> tuple[LiveNeed, ...]:
        """Return the needs of the schedds that answered."""
        return tuple(need for need in self.needs if need.schedd not in self.unseen)


def update_needs(
    previous: LiveNeeds,
    answers: Mapping[str, Sequence[DataNeed] | Unseen] | str,
    now: datetime,
    keep_for: timedelta,
    default_scope: str | None,
) -> LiveNeeds:
    """Return the needs after the schedds' *answers*; a text says why the collector listed no schedds.

    A schedd that did not answer, or that the collector does not list any more, keeps its last needs for
    *keep_for*.
    """
    listed = {} if isinstance(answers, str) else answers
    needs: list[LiveNeed] = []
    unseen: dict[str, str] = {}
    read_at: dict[str, datetime] = {}
    for schedd, answer in listed.items():
        if isinstance(answer, Unseen):
            unseen[schedd] = answer.reason
        else:
            needs += _parse_needs(schedd, answer, default_scope)
            read_at[schedd] = now
    missing = answers if isinstance(answers, str) else "the collector does not list it any more"
    for schedd, at in previous.read_at.items():
        if schedd in read_at or now - at >= keep_for:
            continue
        unseen.setdefault(schedd, missing)
        read_at[schedd] = at
        needs += [need for need in previous.needs if need.schedd == schedd]
    return LiveNeeds(tuple(needs), unseen, read_at)


def _parse_needs(schedd: str, jobs: Iterable[DataNeed], default_scope: str | None) -> list[LiveNeed]:
    """Return *jobs* with DIDs; omit jobs with a name that is not a DID: no site could ever satisfy them."""
    needs = []
    for one in jobs:
        try:
            dids = tuple(sorted({parse_did(text, default_scope) for text in one.datasets}))
        except BadDid:
            continue
        if dids:
            needs.append(LiveNeed(schedd, dids, one))
    return needs


def apply_needs(ledger: Ledger, needs: LiveNeeds, now: datetime, keep_for: timedelta) -> Ledger:
    """Return *ledger* with the live demand of each entry, recomputed from *needs*.

    The demand is only seen to be gone if all schedds answered whose jobs needed the dataset. Otherwise the
    last demand counts for *keep_for* longer.
    """
    return ledger.with_entries(
        _count_demand(entry, needs, now, keep_for) for entry in ledger.entries.values()
    )


def _count_demand(entry: LedgerEntry, needs: LiveNeeds, now: datetime, keep_for: timedelta) -> LedgerEntry:
    wanting = needs.by_did.get(entry.did, ())
    if not wanting:
        if _has_seen_all(entry, needs):
            return replace(entry, job_count=0, unwanted_since=entry.unwanted_since or now)
        is_kept = now - (entry.demanded_at or entry.asked_at) < keep_for
        return entry if is_kept else replace(entry, job_count=0)
    ran = any(need.jobs.is_running and need.jobs.running_site == entry.site for need in wanting)
    return replace(
        entry,
        job_count=sum(need.jobs.job_count for need in wanting),
        schedds=entry.schedds | {need.schedd for need in wanting},
        demanded_at=max(needs.read_at[need.schedd] for need in wanting),
        unwanted_since=None,
        is_used=entry.is_used or (ran and entry.is_complete),
    )


@dataclass(frozen=True, slots=True)
class DataUse:
    """A run of a job that needs *did*, at *site*, that began at *started_at* and has ended."""

    did: Did
    site: Site
    started_at: datetime


def apply_uses(ledger: Ledger, uses: Iterable[DataUse]) -> Ledger:
    """Return *ledger* with complete entries marked as used if a job of *uses* ran beside their data.

    The queues do not show a job that began and ended between two queries; the history of jobs does.
    """
    last_starts: dict[tuple[Did, Site], datetime] = {}
    for use in uses:
        key = use.did, use.site
        last_starts[key] = max(use.started_at, last_starts.get(key, use.started_at))
    return ledger.with_entries(
        replace(entry, is_used=True)
        for entry in ledger.entries.values()
        if entry.is_complete and last_starts.get((entry.did, entry.site), entry.asked_at) > entry.asked_at
    )


def _has_seen_all(entry: LedgerEntry, needs: LiveNeeds) -> bool:
    """Return whether all schedds answered now whose jobs needed the dataset of *entry*.

    An entry that was found in the catalogue has no such schedds, so all schedds of the pool must answer.
    """
    concerned = entry.schedds or (needs.read_at.keys() | needs.unseen.keys())
    return bool(concerned) and concerned <= needs.read_at.keys() - needs.unseen.keys()


def is_demand_gone(entry: LedgerEntry, needs: LiveNeeds, now: datetime, policy: StagingPolicy) -> bool:
    """Return whether the demand of *entry* is seen to be gone, and was seen to be gone long enough ago."""
    if entry.job_count or entry.unwanted_since is None:
        return False
    return _has_seen_all(entry, needs) and now - entry.unwanted_since >= policy.times.gone
