"""The shrink breaker: a cycle in which too much would vanish at once is held until it is confirmed.

A catalogue that answers, but too little (an emptied file, a lost page, a lost
right), looks like one that holds nothing. So when more than a share of what a
site, or all sites together, listed would be listed no longer, the facts in
question stand as they did, each with its age. No age is made younger, so a
hold never outlives the age bound: past it, what is held reads UNKNOWN.

The one evidence that counts is that a dataset is still listed at the site in
another state: then somebody looked. A list edited by hand is none, nor is the
dataset at another site, because an emptied list and a storage element that
lost its site look just so. What jobs no longer want, sites the operator
retired and catalogues taken out of the configuration are no losses.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from hydrator.domain.model import DatasetState, Did, Fact, Site
from hydrator.domain.text import format_count

from .memory import CatalogueMemory, DatasetRecord, DatasetRows

_Listings = Mapping[Site, Fact]
"""Where a dataset is listed; AVAILABLE where any catalogue says so."""
_NO_LISTINGS: _Listings = {}
_MIN_TOTAL_LOSS = 2
"""Of so many datasets, the loss of all, everywhere, is one too many for a coincidence."""


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """How much may vanish in one cycle.

    ``site_share`` and ``all_share`` (0 to 1) are of what was listed, and of
    what was AVAILABLE, at one site and at all sites. A loss of fewer than
    ``least`` datasets passes, unless nothing at all is left anywhere.
    ``polls`` further polls that say the same, each at least ``apart`` after
    the one before, end a hold; with 0 nothing is held.
    """

    site_share: float = 0.5
    all_share: float = 0.3
    min_datasets: int = 5
    confirming_polls: int = 20
    poll_spacing: timedelta = timedelta()


class HoldCause(StrEnum):
    """Why a site is held."""

    SITE = "site"  # too much of this site would go at once
    ALL = "all"  # too much of all sites would go at once
    UNNAMED = "unnamed"  # its catalogue named it before, and names it no longer


@dataclass(frozen=True, slots=True)
class HeldLoss:
    """What is held at one site.

    ``gone`` are the datasets in question, each with the number of further
    polls that said so; ``of`` is how many the site lists. ``since`` is when
    the hold began, ``told`` when a poll last counted.
    """

    started_at: datetime
    last_confirmed_at: datetime
    missing_polls: Mapping[Did, int]
    listed_count: int
    cause: HoldCause

    @property
    def confirmations(self) -> int:
        """How many further polls agree that all of it is gone."""
        return min(self.missing_polls.values(), default=0)

    def text(self, needed_polls: int) -> str:
        """One sentence with the numbers; *needed* is how many polls end the hold."""
        if self.cause is HoldCause.UNNAMED:
            return f"its catalogue no longer names it; {format_count(len(self.missing_polls), 'dataset')} stand and age"
        also = ", and more at other sites" if self.cause is HoldCause.ALL else ""
        return (
            f"{len(self.missing_polls)} of {format_count(self.listed_count, 'dataset')} would leave at once{also}; "
            f"{self.confirmations} of {format_count(needed_polls, 'further poll')} confirm it"
        )


@dataclass(frozen=True, slots=True)
class ListedCounts:
    """How many of the wanted datasets are listed at each site, and how many of them are AVAILABLE."""

    listed_by_site: Mapping[Site, int] = field(default_factory=dict)
    available_by_site: Mapping[Site, int] = field(default_factory=dict)

    def adjust(self, places: Iterable[_Listings], sign: int) -> "ListedCounts":
        """With what datasets at these *places* add, or take away."""
        listed, available = Counter(self.listed_by_site), Counter(self.available_by_site)
        for here in places:
            for site, fact in here.items():
                listed[site] += sign
                if fact.state is DatasetState.AVAILABLE:
                    available[site] += sign
        return ListedCounts(+listed, +available)


@dataclass(frozen=True, slots=True)
class BreakerResult:
    """What to remember, what is held, and what was let go though it was held, each with its reason.

    ``listed`` counts what is to be remembered; None where nobody looked.
    """

    memories: Mapping[str, CatalogueMemory]
    held_losses: Mapping[Site, HeldLoss] = field(default_factory=dict)
    released: Mapping[Site, Mapping[Did, str]] = field(default_factory=dict)
    listed_counts: ListedCounts | None = None


@dataclass(frozen=True, slots=True)
class PreviousCounts:
    """What the last judgement left: its counts, and the datasets that something else is said of since."""

    counts: ListedCounts
    changed_dids: AbstractSet[Did]


@dataclass(frozen=True, slots=True)
class _SiteLoss:
    """One site: how much it *listed*, what is *lost*, what was held and nobody was asked about.

    ``available`` are those of the datasets in question that were AVAILABLE, of so many in all.
    ``fresh``: something else there was read.
    """

    listed_count: int
    available_count: int
    available_dids: AbstractSet[Did]
    lost_dids: AbstractSet[Did]
    unread_dids: AbstractSet[Did]
    approved_dids: AbstractSet[Did]
    is_site_read: bool
    previous: HeldLoss | None

    def is_confirmation(self, now: datetime, limits: BreakerLimits) -> bool:
        """Does this poll count as one more?"""
        return bool(self.lost_dids) and (
            self.previous is None or now - self.previous.last_confirmed_at >= limits.poll_spacing
        )

    def count_confirmations(self, now: datetime, limits: BreakerLimits) -> dict[Did, int]:
        """By dataset in question, how many further polls said that it is gone."""
        last = self.previous.missing_polls if self.previous else {}
        more = int(self.is_confirmation(now, limits))
        lost = {did: last[did] + more if did in last else 0 for did in self.lost_dids}
        counts = lost | {did: last[did] for did in self.unread_dids}
        return {did: polls for did, polls in sorted(counts.items()) if did not in self.approved_dids}


@dataclass(frozen=True, slots=True)
class _DoubtfulLoss:
    """What of one site is in question, and how much of it would still be listed before that."""

    missing_polls: Mapping[Did, int]
    missing_available_count: int
    listed_count: int
    available_count: int

    @property
    def is_everything_missing(self) -> bool:
        return len(self.missing_polls) == self.listed_count


def check_loss(
    previous: Mapping[str, CatalogueMemory],
    current: Mapping[str, CatalogueMemory],
    demanded_dids: AbstractSet[Did],
    *,
    held_losses: Mapping[Site, HeldLoss],
    approved_losses: Mapping[Site, AbstractSet[Did]],
    retired: AbstractSet[Site],
    limits: BreakerLimits,
    now: datetime,
    previous_counts: PreviousCounts | None = None,
) -> BreakerResult:
    """Compare what was held true *before* with what the answers make of it *after*; hold what shrinks.

    Args:
        before: by catalogue, what was held true until this cycle.
        after: the same with the answers of this cycle in it.
        wanted: the demanded datasets; others are no loss.
        held: what the last cycle held.
        approved: by site, the held datasets that the operator lets go.
        retired: sites the operator took out.
        limits: how much may vanish.
        now: aware UTC time of this cycle.
        since: what judging *before* left, and what of it changed *after*; None: that is not known.

    Returns:
        What to remember: *after*, but what is held as it was *before*.
    """
    if not limits.confirming_polls:
        return BreakerResult(current)
    previous = {name: previous.get(name, CatalogueMemory()) for name in current}
    question = _compare(
        previous, current, demanded_dids, held_losses, approved_losses, retired, previous_counts
    )
    cases = _site_losses(previous, current, held_losses, approved_losses, question)
    polls = {site: case.count_confirmations(now, limits) for site, case in cases.items()}
    sure = {
        site: {did for did, n in told.items() if n >= limits.confirming_polls} for site, told in polls.items()
    }
    doubts = {site: _doubtful_loss(case, polls[site], sure[site]) for site, case in cases.items()}
    causes = _find_causes(doubts, limits)
    kept = {site: doubts[site].missing_polls.keys() & cases[site].lost_dids for site in causes}
    let_go = {site: case.approved_dids - case.lost_dids for site, case in cases.items() if case.approved_dids}
    unread = {site for site in causes if not cases[site].is_site_read}
    memories = {name: _apply_holds(m, previous[name], kept, let_go, unread) for name, m in current.items()}
    now_held = {
        site: HeldLoss(
            started_at=_hold_start(cases[site].previous, doubts[site].missing_polls, now),
            last_confirmed_at=now
            if cases[site].is_confirmation(now, limits)
            else _last_confirmation(cases[site].previous, now),
            missing_polls=doubts[site].missing_polls,
            listed_count=cases[site].listed_count,
            cause=cause,
        )
        for site, cause in causes.items()
    }
    listed = question.count_listed(current, memories, retired)
    for site, gone in _find_unnamed_sites(memories, demanded_dids, listed.listed_by_site.keys()).items():
        last = held_losses.get(site)
        begun = last.started_at if last and last.cause is HoldCause.UNNAMED else now
        told = HeldLoss(
            begun, begun, dict.fromkeys(sorted(gone), 0), cases[site].listed_count, HoldCause.UNNAMED
        )
        now_held.setdefault(site, told)
    return BreakerResult(
        memories, dict(sorted(now_held.items())), _release_reasons(cases, sure, limits), listed
    )


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The datasets that may have left, where each *was* and where it *is*, and the counts before."""

    previous: Mapping[Did, _Listings]
    current: Mapping[Did, _Listings]
    previous_counts: ListedCounts

    def count_listed(
        self,
        current: Mapping[str, CatalogueMemory],
        memories: Mapping[str, CatalogueMemory],
        retired: AbstractSet[Site],
    ) -> ListedCounts:
        """The counts of the *memories* to keep: those *after* the answers, but for what is held."""
        held = [
            did
            for name, memory in memories.items()
            if memory is not current[name]
            for did in {**self.previous, **self.current}
            if DatasetRows.wrap(memory.records).rows.get(did)
            is not DatasetRows.wrap(current[name].records).rows.get(did)
        ]
        kept = {**self.current, **_find_places(memories, held, retired)}
        return self.previous_counts.adjust(self.previous.values(), -1).adjust(kept.values(), 1)


def _compare(
    previous: Mapping[str, CatalogueMemory],
    current: Mapping[str, CatalogueMemory],
    demanded_dids: AbstractSet[Did],
    held_losses: Mapping[Site, HeldLoss],
    approved_losses: Mapping[Site, AbstractSet[Did]],
    retired: AbstractSet[Site],
    previous_counts: PreviousCounts | None,
) -> _Comparison:
    if previous_counts is None:
        was, now = (
            _find_places(previous, demanded_dids, retired),
            _find_places(current, demanded_dids, retired),
        )
        return _Comparison(was, now, ListedCounts().adjust(was.values(), 1))
    asked = [one.missing_polls for one in held_losses.values()]
    dids = frozenset(previous_counts.changed_dids).union(*asked, *approved_losses.values())
    unwanted = _find_places(previous, dids - demanded_dids, retired)
    was, now = (
        _find_places(previous, dids & demanded_dids, retired),
        _find_places(current, dids & demanded_dids, retired),
    )
    return _Comparison(was, now, previous_counts.counts.adjust(unwanted.values(), -1))


def _find_places(
    memories: Mapping[str, CatalogueMemory], dids: Collection[Did], retired: AbstractSet[Site]
) -> dict[Did, _Listings]:
    """Where those of *dids* are listed that are listed anywhere."""
    found: dict[Did, _Listings] = {}
    for memory in memories.values():
        rows = DatasetRows.wrap(memory.records).rows
        for did in dids if rows else ():
            if (known := rows.get(did)) is not None and known.facts:
                here = known.facts
                if retired:
                    here = {site: fact for site, fact in here.items() if site not in retired}
                found[did] = _merge_places(found[did], here) if did in found else here
    return found


def _merge_places(one: _Listings, other: _Listings) -> _Listings:
    return {
        **one,
        **{s: f for s, f in other.items() if s not in one or f.state is DatasetState.AVAILABLE},
    }


def _site_losses(
    previous: Mapping[str, CatalogueMemory],
    current: Mapping[str, CatalogueMemory],
    held_losses: Mapping[Site, HeldLoss],
    approved_losses: Mapping[Site, AbstractSet[Did]],
    comparison: _Comparison,
) -> dict[Site, _SiteLoss]:
    lost: dict[Site, set[Did]] = {}
    available: dict[Site, set[Did]] = {}
    came: Counter[Site] = Counter()
    for did, was in comparison.previous.items():
        is_now = comparison.current.get(did, _NO_LISTINGS)
        for site, fact in was.items():
            if site not in is_now:
                lost.setdefault(site, set()).add(did)
            if fact.state is DatasetState.AVAILABLE:
                available.setdefault(site, set()).add(did)
    for did, is_now in comparison.current.items() if comparison.previous else ():
        came.update(is_now.keys() - comparison.previous.get(did, _NO_LISTINGS).keys())
    cases = {}
    for site, listed in sorted(comparison.previous_counts.listed_by_site.items()):
        last = held_losses.get(site)
        asked = last.missing_polls.keys() if last else frozenset[Did]()
        here = {did for did in asked if site in comparison.current.get(did, _NO_LISTINGS)}
        stands = {did for did in here if _is_unread(previous, current, site, did)}
        silent = stands if last and last.cause is not HoldCause.UNNAMED else set()
        gone = lost.get(site, set())
        cases[site] = _SiteLoss(
            listed_count=listed,
            available_count=comparison.previous_counts.available_by_site.get(site, 0),
            available_dids=available.get(site, set()),
            lost_dids=gone,
            unread_dids=silent,
            approved_dids=approved_losses.get(site, frozenset()) & asked & (gone | stands),
            is_site_read=listed - len(gone) + came[site] > len(silent),
            previous=last if last and last.cause is not HoldCause.UNNAMED else None,
        )
    return cases


def _is_unread(
    previous: Mapping[str, CatalogueMemory], current: Mapping[str, CatalogueMemory], site: Site, did: Did
) -> bool:
    """Does all that is known of *did* at *site* stand just as it stood *before*?"""
    return all(
        _fact_at(memory, site, did) == _fact_at(previous[name], site, did) for name, memory in current.items()
    )


def _fact_at(memory: CatalogueMemory, site: Site, did: Did) -> Fact | None:
    known = memory.records.get(did)
    return known.facts.get(site) if known else None


def _doubtful_loss(
    case: _SiteLoss, confirmations: Mapping[Did, int], confirmed_dids: AbstractSet[Did]
) -> _DoubtfulLoss:
    settled = confirmed_dids | case.approved_dids
    gone = {did: n for did, n in confirmations.items() if did not in confirmed_dids}
    return _DoubtfulLoss(
        gone,
        len(gone.keys() & case.available_dids),
        case.listed_count - len(settled),
        case.available_count - len(settled & case.available_dids),
    )


def _find_causes(doubts: Mapping[Site, _DoubtfulLoss], limits: BreakerLimits) -> dict[Site, HoldCause]:
    """The sites that are held, and why; a site that is held by itself says nothing of the others."""
    losing = {site for site, doubt in doubts.items() if doubt.missing_polls}
    nothing_left = all(doubt.is_everything_missing for doubt in doubts.values())
    datasets = {did for doubt in doubts.values() for did in doubt.missing_polls}
    alone = {site for site in losing if _is_shrink([doubts[site]], limits.site_share, limits.min_datasets)}
    rest = [doubt for site, doubt in doubts.items() if site not in alone]
    together = (nothing_left and len(datasets) >= _MIN_TOTAL_LOSS) or _is_shrink(
        rest, limits.all_share, limits.min_datasets
    )
    causes = {site: HoldCause.SITE if site in alone else HoldCause.ALL for site in sorted(losing)}
    # few datasets are no shrink, but all of a site's few, when another site is held, are no coincidence
    emptied = {site for site in losing if alone and doubts[site].is_everything_missing}
    return causes if together else {s: cause for s, cause in causes.items() if s in alone | emptied}


def _is_shrink(doubts: Collection[_DoubtfulLoss], share: float, min_datasets: int) -> bool:
    """Is too much in question, of all that is listed or of what is AVAILABLE?"""
    gone = sum(len(doubt.missing_polls) for doubt in doubts)
    of = sum(doubt.listed_count for doubt in doubts)
    available_gone = sum(doubt.missing_available_count for doubt in doubts)
    available = sum(doubt.available_count for doubt in doubts)
    return _is_too_much(gone, of, share, min_datasets) or _is_too_much(
        available_gone, available, share, min_datasets
    )


def _is_too_much(missing_count: int, total_count: int, share: float, min_datasets: int) -> bool:
    return missing_count >= max(1, min_datasets) and missing_count > share * total_count


def _apply_holds(
    memory: CatalogueMemory,
    previous: CatalogueMemory,
    held_dids: Mapping[Site, AbstractSet[Did]],
    released_dids: Mapping[Site, AbstractSet[Did]],
    unread_sites: AbstractSet[Site],
) -> CatalogueMemory:
    """*memory* with what is *kept* as it was, without what is *let_go*, and *unread* sites no newer."""
    changed: dict[Did, DatasetRecord] = {}
    for site, dids in held_dids.items():
        for did in dids:
            old, new = previous.records.get(did), changed.get(did) or memory.records.get(did)
            if old and new and site in old.facts:
                changed[did] = replace(
                    new,
                    facts={**new.facts, site: old.facts[site]},
                    previous_facts={
                        **new.previous_facts,
                        **{s: f for s, f in old.previous_facts.items() if s == site},
                    },
                )
    for site, dids in released_dids.items():
        for did in dids:
            if new := changed.get(did) or memory.records.get(did):
                changed[did] = replace(
                    new,
                    facts=_drop_site(new.facts, site),
                    previous_facts=_drop_site(new.previous_facts, site),
                )
    ages = {s: age for s in sorted(unread_sites & memory.sites) if (age := previous.read_at(s)) is not None}
    if not changed and not ages:
        return memory
    known = DatasetRows.wrap(memory.records).with_records(changed)
    return replace(memory, records=known, last_read_at={**memory.last_read_at, **ages})


def _drop_site(facts: Mapping[Site, Fact], site: Site) -> dict[Site, Fact]:
    return {name: fact for name, fact in facts.items() if name != site}


def _find_unnamed_sites(
    memories: Mapping[str, CatalogueMemory], demanded_dids: AbstractSet[Did], listed_sites: AbstractSet[Site]
) -> dict[Site, set[Did]]:
    """The sites that no catalogue names any more, of those *listed*, with what stands there from before."""
    lost = listed_sites - frozenset[Site]().union(*(memory.sites for memory in memories.values()))
    unnamed: dict[Site, set[Did]] = {}
    for memory in memories.values() if lost else ():
        known = DatasetRows.wrap(memory.records)
        for did in (
            known.individually_dated & demanded_dids
        ):  # what was read with the rest is at a site that is named
            row = known.rows[did]
            for site in row.facts.keys() & lost:
                if row.facts[site].as_of < row.read_at:
                    unnamed.setdefault(site, set()).add(did)
    return dict(sorted(unnamed.items()))


def _hold_start(previous: HeldLoss | None, missing_polls: Mapping[Did, int], now: datetime) -> datetime:
    """A hold goes on as long as some of its datasets are in question."""
    return previous.started_at if previous and previous.missing_polls.keys() & missing_polls.keys() else now


def _last_confirmation(previous: HeldLoss | None, now: datetime) -> datetime:
    return previous.last_confirmed_at if previous else now


def _release_reasons(
    cases: Mapping[Site, _SiteLoss], confirmed_dids: Mapping[Site, AbstractSet[Did]], limits: BreakerLimits
) -> dict[Site, dict[Did, str]]:
    """What was let go though it had been held, and why."""
    told = f"{format_count(limits.confirming_polls, 'further poll')} said that it is gone"
    found = {
        site: dict.fromkeys(sorted(confirmed_dids[site]), told)
        | dict.fromkeys(sorted(case.approved_dids), "gone, as the operator approved")
        for site, case in cases.items()
    }
    return {site: reasons for site, reasons in found.items() if reasons}
