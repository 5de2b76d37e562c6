"""Shrink breaker: hold a cycle in which too much would vanish at once, until further polls confirm it.

A catalogue that answers with too little (an emptied file, a lost page, a lost right) looks like one that
holds nothing. So if more than a share of the datasets listed at one site, or at all sites together, would
vanish, their facts are kept, each with its age. No age is made younger, so a hold never outlives the age
bound: past it, a held dataset reads UNKNOWN.

Only one thing is evidence against a fault: the dataset is still listed at the site in another state. A
list edited by hand is not evidence, nor is the dataset at another site: an emptied list and a storage
element without its site look the same. Datasets that are no longer demanded, retired sites and removed
catalogues are not losses.
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
"""The sites that list a dataset; AVAILABLE if any catalogue says so."""
_NO_LISTINGS: _Listings = {}
_MIN_TOTAL_LOSS = 2
"""The loss of all datasets everywhere is held from this many on; of fewer it may be a coincidence."""


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """The loss that one cycle may bring.

    ``site_share`` and ``all_share`` (0 to 1) are of the listed and of the AVAILABLE datasets, at one site
    and at all sites. A loss of fewer than ``min_datasets`` passes, unless nothing is left anywhere.
    ``confirming_polls`` further polls with the same loss, each at least ``poll_spacing`` after the one
    before, end a hold; with 0 nothing is held.
    """

    site_share: float = 0.5
    all_share: float = 0.3
    min_datasets: int = 5
    confirming_polls: int = 20
    poll_spacing: timedelta = timedelta()


class HoldCause(StrEnum):
    """The reason for which a site is held."""

    SITE = "site"  # too much of this site would go at once
    ALL = "all"  # too much of all sites would go at once
    UNNAMED = "unnamed"  # its catalogue named it before, and names it no longer


@dataclass(frozen=True, slots=True)
class HeldLoss:
    """The loss that is held at one site.

    ``missing_polls`` has the missing datasets, each with the number of further polls that confirmed it;
    ``listed_count`` is how many datasets the site lists. ``started_at`` is when the hold began,
    ``last_confirmed_at`` when a poll last counted.
    """

    started_at: datetime
    last_confirmed_at: datetime
    missing_polls: Mapping[Did, int]
    listed_count: int
    cause: HoldCause

    @property
    def confirmations(self) -> int:
        """Return the number of further polls that confirm the whole loss."""
        return min(self.missing_polls.values(), default=0)

    def text(self, needed_polls: int) -> str:
        """Return one sentence with the numbers; *needed_polls* further polls end the hold."""
        if self.cause is HoldCause.UNNAMED:
            datasets = format_count(len(self.missing_polls), "dataset")
            return f"its catalogue no longer names it; {datasets} listed from before, with their age"
        also = ", and more at other sites" if self.cause is HoldCause.ALL else ""
        return (
            f"{len(self.missing_polls)} of {format_count(self.listed_count, 'dataset')}"
            f" would leave at once{also}; {self.confirmations} of"
            f" {format_count(needed_polls, 'further poll')} confirm it"
        )


@dataclass(frozen=True, slots=True)
class ListedCounts:
    """The numbers of demanded datasets that are listed, and that are AVAILABLE, by site."""

    listed_by_site: Mapping[Site, int] = field(default_factory=dict)
    available_by_site: Mapping[Site, int] = field(default_factory=dict)

    def adjust(self, places: Iterable[_Listings], sign: int) -> "ListedCounts":
        """Return the counts with the datasets at *places* added (sign 1) or subtracted (sign -1)."""
        listed, available = Counter(self.listed_by_site), Counter(self.available_by_site)
        for here in places:
            for site, fact in here.items():
                listed[site] += sign
                if fact.state is DatasetState.AVAILABLE:
                    available[site] += sign
        return ListedCounts(+listed, +available)


@dataclass(frozen=True, slots=True)
class BreakerResult:
    """The memories to keep, the held losses, and the datasets released after a hold, each with the reason.

    ``listed_counts`` counts the datasets of the memories to keep; None if the breaker is off.
    """

    memories: Mapping[str, CatalogueMemory]
    held_losses: Mapping[Site, HeldLoss] = field(default_factory=dict)
    released: Mapping[Site, Mapping[Did, str]] = field(default_factory=dict)
    listed_counts: ListedCounts | None = None


@dataclass(frozen=True, slots=True)
class PreviousCounts:
    """The counts of the last check, and the datasets whose records changed since."""

    counts: ListedCounts
    changed_dids: AbstractSet[Did]


@dataclass(frozen=True, slots=True)
class _SiteLoss:
    """The loss at one site: of how many listed datasets which are missing, and which were not read.

    ``available_dids`` are the compared datasets that were AVAILABLE, ``available_count`` is their number
    at the whole site. ``is_site_read``: something else at the site was read.
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
        """Return True if this poll counts as one more confirmation."""
        return bool(self.lost_dids) and (
            self.previous is None or now - self.previous.last_confirmed_at >= limits.poll_spacing
        )

    def count_confirmations(self, now: datetime, limits: BreakerLimits) -> dict[Did, int]:
        """Return by missing dataset the number of further polls that confirmed it."""
        last = self.previous.missing_polls if self.previous else {}
        more = int(self.is_confirmation(now, limits))
        lost = {did: last[did] + more if did in last else 0 for did in self.lost_dids}
        counts = lost | {did: last[did] for did in self.unread_dids}
        return {did: polls for did, polls in sorted(counts.items()) if did not in self.approved_dids}


@dataclass(frozen=True, slots=True)
class _DoubtfulLoss:
    """The part of a site's loss that is not yet confirmed, and the number of datasets listed before it."""

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
    """Compare the memories before and after this cycle's answers, and hold a loss that is too large.

    Args:
        previous: the memories before this cycle's answers, by catalogue.
        current: the same with the answers in them.
        demanded_dids: the demanded datasets; others are not a loss.
        held_losses: the losses that the last cycle held.
        approved_losses: by site, the held datasets that the operator lets go.
        retired: sites that the operator removed.
        limits: the loss that may pass.
        now: aware UTC time of this cycle.
        previous_counts: the counts of the *previous* memories, and the datasets changed since; None: unknown.

    Returns:
        The memories to keep: *current*, except that held facts are as in *previous*.
    """
    if not limits.confirming_polls:
        return BreakerResult(current)
    previous = {name: previous.get(name, CatalogueMemory()) for name in current}
    comparison = _compare(
        previous, current, demanded_dids, held_losses, approved_losses, retired, previous_counts
    )
    losses = _site_losses(previous, current, held_losses, approved_losses, comparison)
    confirmations = {site: loss.count_confirmations(now, limits) for site, loss in losses.items()}
    confirmed_dids = {
        site: {did for did, polls in polls_by_did.items() if polls >= limits.confirming_polls}
        for site, polls_by_did in confirmations.items()
    }
    doubts = {
        site: _doubtful_loss(loss, confirmations[site], confirmed_dids[site]) for site, loss in losses.items()
    }
    causes = _find_causes(doubts, limits)
    memories = _hold_facts(previous, current, losses, doubts, causes)
    new_holds = _build_holds(losses, doubts, causes, now, limits)
    listed_counts = comparison.count_listed(current, memories, retired)
    unnamed_sites = _find_unnamed_sites(memories, demanded_dids, listed_counts.listed_by_site.keys())
    for site, dids in unnamed_sites.items():
        new_holds.setdefault(site, _hold_unnamed(held_losses.get(site), dids, losses[site], now))
    return BreakerResult(
        memories,
        dict(sorted(new_holds.items())),
        _release_reasons(losses, confirmed_dids, limits),
        listed_counts,
    )


def _hold_facts(
    previous: Mapping[str, CatalogueMemory],
    current: Mapping[str, CatalogueMemory],
    losses: Mapping[Site, _SiteLoss],
    doubts: Mapping[Site, _DoubtfulLoss],
    causes: Mapping[Site, HoldCause],
) -> dict[str, CatalogueMemory]:
    """Return *current* with the facts of held datasets as they were, and without approved ones."""
    held_dids = {site: doubts[site].missing_polls.keys() & losses[site].lost_dids for site in causes}
    released_dids = {
        site: loss.approved_dids - loss.lost_dids for site, loss in losses.items() if loss.approved_dids
    }
    unread_sites = {site for site in causes if not losses[site].is_site_read}
    return {
        name: _apply_holds(memory, previous[name], held_dids, released_dids, unread_sites)
        for name, memory in current.items()
    }


def _build_holds(
    losses: Mapping[Site, _SiteLoss],
    doubts: Mapping[Site, _DoubtfulLoss],
    causes: Mapping[Site, HoldCause],
    now: datetime,
    limits: BreakerLimits,
) -> dict[Site, HeldLoss]:
    return {
        site: HeldLoss(
            started_at=_hold_start(losses[site].previous, doubts[site].missing_polls, now),
            last_confirmed_at=now
            if losses[site].is_confirmation(now, limits)
            else _last_confirmation(losses[site].previous, now),
            missing_polls=doubts[site].missing_polls,
            listed_count=losses[site].listed_count,
            cause=cause,
        )
        for site, cause in causes.items()
    }


def _hold_unnamed(
    previous: HeldLoss | None, dids: Collection[Did], loss: _SiteLoss, now: datetime
) -> HeldLoss:
    start = previous.started_at if previous and previous.cause is HoldCause.UNNAMED else now
    return HeldLoss(start, start, dict.fromkeys(sorted(dids), 0), loss.listed_count, HoldCause.UNNAMED)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The datasets that may have left, with their places before and after, and the counts before."""

    previous: Mapping[Did, _Listings]
    current: Mapping[Did, _Listings]
    previous_counts: ListedCounts

    def count_listed(
        self,
        current: Mapping[str, CatalogueMemory],
        memories: Mapping[str, CatalogueMemory],
        retired: AbstractSet[Site],
    ) -> ListedCounts:
        """Return the counts of *memories*, which differ from *current* by the held datasets."""
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
    """Return the places of those of *dids* that are listed anywhere."""
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
        unread_dids = {did for did in here if _is_unread(previous, current, site, did)}
        silent = unread_dids if last and last.cause is not HoldCause.UNNAMED else set()
        gone = lost.get(site, set())
        cases[site] = _SiteLoss(
            listed_count=listed,
            available_count=comparison.previous_counts.available_by_site.get(site, 0),
            available_dids=available.get(site, set()),
            lost_dids=gone,
            unread_dids=silent,
            approved_dids=approved_losses.get(site, frozenset()) & asked & (gone | unread_dids),
            is_site_read=listed - len(gone) + came[site] > len(silent),
            previous=last if last and last.cause is not HoldCause.UNNAMED else None,
        )
    return cases


def _is_unread(
    previous: Mapping[str, CatalogueMemory], current: Mapping[str, CatalogueMemory], site: Site, did: Did
) -> bool:
    """Return True if all facts of *did* at *site* are the same before and after the answers."""
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
    """Return the sites to hold, and why; a site that is held by itself does not count for the others."""
    losing = {site for site, doubt in doubts.items() if doubt.missing_polls}
    nothing_left = all(doubt.is_everything_missing for doubt in doubts.values())
    datasets = {did for doubt in doubts.values() for did in doubt.missing_polls}
    alone = {site for site in losing if _is_shrink([doubts[site]], limits.site_share, limits.min_datasets)}
    rest = [doubt for site, doubt in doubts.items() if site not in alone]
    together = (nothing_left and len(datasets) >= _MIN_TOTAL_LOSS) or _is_shrink(
        rest, limits.all_share, limits.min_datasets
    )
    causes = {site: HoldCause.SITE if site in alone else HoldCause.ALL for site in sorted(losing)}
    # all of a site's few datasets are too few to hold, but not a coincidence when another site is held
    emptied = {site for site in losing if alone and doubts[site].is_everything_missing}
    return causes if together else {s: cause for s, cause in causes.items() if s in alone | emptied}


def _is_shrink(doubts: Collection[_DoubtfulLoss], share: float, min_datasets: int) -> bool:
    """Return True if too much is missing, of all listed datasets or of the AVAILABLE ones."""
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
    """Return *memory* with held datasets as they were, without released ones, and unread sites no newer."""
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
    """Return the listed sites that no catalogue names any more, with the datasets kept there from before."""
    lost = listed_sites - frozenset[Site]().union(*(memory.sites for memory in memories.values()))
    unnamed: dict[Site, set[Did]] = {}
    for memory in memories.values() if lost else ():
        known = DatasetRows.wrap(memory.records)
        for did in (
            known.individually_dated & demanded_dids
        ):  # datasets read with the rest are at a site that is named
            row = known.rows[did]
            for site in row.facts.keys() & lost:
                if row.facts[site].as_of < row.read_at:
                    unnamed.setdefault(site, set()).add(did)
    return dict(sorted(unnamed.items()))


def _hold_start(previous: HeldLoss | None, missing_polls: Mapping[Did, int], now: datetime) -> datetime:
    """Return the start of the hold, which lasts as long as some of its datasets are missing."""
    return previous.started_at if previous and previous.missing_polls.keys() & missing_polls.keys() else now


def _last_confirmation(previous: HeldLoss | None, now: datetime) -> datetime:
    return previous.last_confirmed_at if previous else now


def _release_reasons(
    cases: Mapping[Site, _SiteLoss], confirmed_dids: Mapping[Site, AbstractSet[Did]], limits: BreakerLimits
) -> dict[Site, dict[Did, str]]:
    """Return the datasets that were released after a hold, and why, in words that the history stores."""
    reason = f"{format_count(limits.confirming_polls, 'further poll')} said that it is gone"
    found = {
        site: dict.fromkeys(sorted(confirmed_dids[site]), reason)
        | dict.fromkeys(sorted(case.approved_dids), "gone, as the operator approved")
        for site, case in cases.items()
    }
    return {site: reasons for site, reasons in found.items() if reasons}
