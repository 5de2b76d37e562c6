"""Removal guard: if too many datasets vanish at once, keep their facts until further polls confirm the loss.

A broken catalogue (an emptied file, a missing page, a lost permission) looks like a catalogue without data.
So if more than a share of the datasets at one site, or at all sites together, would vanish, the daemon
holds the loss: it keeps the facts of these datasets in the ads, each with its age. The ages still grow, so
a held dataset becomes UNKNOWN at the age limit.

The guard cannot distinguish a fault from a real loss by the answers: an emptied list, and a storage
element that belongs to no site any more, look like deleted data. But if the
site still lists a dataset, in another state, this is not a loss. Datasets that are no longer demanded,
retired sites and removed catalogues are not losses either. An answer that is missing is no loss: it is
Unseen, and ``merge.py`` keeps the older facts.

The *listings* below are the sites that have a dataset according to the catalogues, before and after a cycle's
answers.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from hydrator.config.safety import RemovalGuardSettings
from hydrator.domain.model import DatasetState, Did, Fact, Site
from hydrator.domain.text import format_count

from .memory import CatalogueMemory, DatasetRecord

Listings = Mapping[Site, Fact]
"""The sites that list a dataset, each with its fact; the fact is AVAILABLE if any catalogue says so."""
NO_LISTINGS: Listings = {}


@dataclass(frozen=True, slots=True)
class ListingChange:
    """The listings of the demanded datasets, before and after the answers of a cycle."""

    previous: Mapping[Did, Listings]
    current: Mapping[Did, Listings]

    def lists_now(self, did: Did, site: Site) -> bool:
        """Return True if a catalogue lists *did* at *site* after the answers of this cycle."""
        return site in self.current.get(did, NO_LISTINGS)

    def group_by_site(self) -> Mapping[Site, "_Listed"]:
        """Return, by site, the datasets that it listed before the answers."""
        listed: defaultdict[Site, _Listed] = defaultdict(_Listed)
        for did, listings in self.previous.items():
            current = self.current.get(did, NO_LISTINGS)
            for site, fact in listings.items():
                one = listed[site]
                one.count += 1
                if site not in current:
                    one.lost_dids.add(did)
                if fact.state is DatasetState.AVAILABLE:
                    one.available_dids.add(did)
        return listed

    def new_counts(self) -> Counter[Site]:
        """Return, by site, the number of newly listed datasets; empty in the first cycle."""
        counts: Counter[Site] = Counter()
        for did, listings in self.current.items() if self.previous else ():
            counts.update(listings.keys() - self.previous.get(did, NO_LISTINGS).keys())
        return counts


@dataclass(slots=True)
class _Listed:
    """The number of datasets that a site listed, those of them that it no longer lists, and the AVAILABLE."""

    count: int = 0
    lost_dids: set[Did] = field(default_factory=set)
    available_dids: set[Did] = field(default_factory=set)


def find_listings(
    memories: Mapping[str, CatalogueMemory], dids: Collection[Did], retired: AbstractSet[Site]
) -> dict[Did, Listings]:
    """Return the listings of each of *dids* that at least one site lists."""
    listings: dict[Did, Listings] = {}
    for memory in memories.values():
        for did in dids if memory.records else ():
            if (record := memory.records.get(did)) is not None and record.facts:
                facts = record.facts
                if retired:
                    facts = {site: fact for site, fact in facts.items() if site not in retired}
                listings[did] = _merge_listings(listings[did], facts) if did in listings else facts
    return listings


def _merge_listings(one: Listings, other: Listings) -> Listings:
    return {
        **one,
        **{s: f for s, f in other.items() if s not in one or f.state is DatasetState.AVAILABLE},
    }


def find_unnamed_sites(
    memories: Mapping[str, CatalogueMemory], demanded_dids: AbstractSet[Did], listed_sites: AbstractSet[Site]
) -> dict[Site, set[Did]]:
    """Return the sites that still have facts but that no catalogue lists any more, with their datasets."""
    lost_sites = listed_sites - frozenset[Site]().union(*(memory.sites for memory in memories.values()))
    unnamed: dict[Site, set[Did]] = {}
    for memory in memories.values() if lost_sites else ():
        # A record of the last answer has only sites that the catalogue lists, so skip it.
        dated = ((did, record) for did, record in memory.records.items() if record.read_at)
        for did, record in dated:
            for site in record.facts.keys() & lost_sites if did in demanded_dids else ():
                if (at := record.facts[site].as_of) and record.read_at and at < record.read_at:
                    unnamed.setdefault(site, set()).add(did)
    return dict(sorted(unnamed.items()))


_MIN_TOTAL_LOSS = 2
"""If all datasets at all sites vanish, hold a loss of at least this many; a smaller loss may be real."""
_ALL_SHARE = 0.3
"""The share of the datasets of all sites together; lower than that of a site, which may really be emptied."""
_MIN_DATASETS = 5
"""The guard does not hold a smaller loss at a site, unless no dataset is left there: users delete a few."""


class HoldCause(StrEnum):
    """The reason why the guard holds the loss at a site."""

    SITE = "site"  # too many datasets of this site would vanish at once
    ALL = "all"  # too many datasets of all sites together would vanish at once
    UNNAMED = "unnamed"  # no catalogue lists this site any more


@dataclass(frozen=True, slots=True)
class HeldLoss:
    """Datasets that are missing at one site and that the daemon still publishes.

    ``missing_polls`` has these datasets, each with the number of further polls that confirmed the loss.
    ``listed_count`` is the number of datasets that the site lists. ``started_at`` is the time when the hold
    began, ``last_confirmed_at`` the time of the last poll that counted as a confirmation.
    """

    started_at: datetime
    last_confirmed_at: datetime
    missing_polls: Mapping[Did, int]
    listed_count: int
    cause: HoldCause

    @property
    def confirmations(self) -> int:
        """Return the number of further polls that confirmed the loss of every missing dataset."""
        return min(self.missing_polls.values(), default=0)

    def text(self, needed_polls: int) -> str:
        """Return a sentence with the numbers of the loss; *needed_polls* further polls end the hold."""
        if self.cause is HoldCause.UNNAMED:
            datasets = format_count(len(self.missing_polls), "dataset")
            return f"no catalogue lists this site any more; the site's ad keeps {datasets}, each with its age"
        also = ", and more at other sites" if self.cause is HoldCause.ALL else ""
        return (
            f"{len(self.missing_polls)} of {format_count(self.listed_count, 'dataset')}"
            f" would leave the ad at once{also}; {self.confirmations} of"
            f" {format_count(needed_polls, 'further poll')} confirm the loss"
        )


@dataclass(frozen=True, slots=True)
class GuardResult:
    """The result of the guard: the memories with the facts of held datasets, and the held losses.

    ``released`` has, by site, the datasets whose hold ended, each with the reason.
    """

    memories: Mapping[str, CatalogueMemory]
    held_losses: Mapping[Site, HeldLoss] = field(default_factory=dict)
    released: Mapping[Site, Mapping[Did, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _SiteLoss:
    """The loss at one site before the guard decides.

    ``listed_count`` is the number of datasets at the site before this cycle, ``available_dids`` the AVAILABLE
    ones of them. ``lost_dids`` are missing in this cycle. ``unread_dids`` were held before, and this cycle
    has no new answer about them.
    ``is_site_read`` means that the site also lists a dataset that is neither lost nor unread.
    """

    listed_count: int
    available_dids: AbstractSet[Did]
    lost_dids: AbstractSet[Did]
    unread_dids: AbstractSet[Did]
    approved_dids: AbstractSet[Did]
    is_site_read: bool
    previous: HeldLoss | None

    def is_confirmation(self, now: datetime, poll_spacing: timedelta) -> bool:
        """Return True if the poll of this cycle counts as one more confirmation of the loss."""
        return bool(self.lost_dids) and (
            self.previous is None or now - self.previous.last_confirmed_at >= poll_spacing
        )

    def count_confirmations(self, now: datetime, poll_spacing: timedelta) -> dict[Did, int]:
        """Return, by missing dataset, the number of further polls that confirmed its loss."""
        last = self.previous.missing_polls if self.previous else {}
        more = int(self.is_confirmation(now, poll_spacing))
        lost = {did: last[did] + more if did in last else 0 for did in self.lost_dids}
        counts = lost | {did: last[did] for did in self.unread_dids}
        return {did: polls for did, polls in sorted(counts.items()) if did not in self.approved_dids}

    def hold(
        self, missing_polls: Mapping[Did, int], cause: HoldCause, now: datetime, poll_spacing: timedelta
    ) -> HeldLoss:
        """Return the held loss. The previous hold continues if one of its datasets is still missing."""
        last = self.previous
        is_same_hold = last is not None and not last.missing_polls.keys().isdisjoint(missing_polls)
        return HeldLoss(
            started_at=last.started_at if last and is_same_hold else now,
            last_confirmed_at=last.last_confirmed_at
            if last and not self.is_confirmation(now, poll_spacing)
            else now,
            missing_polls=missing_polls,
            listed_count=self.listed_count,
            cause=cause,
        )


@dataclass(frozen=True, slots=True)
class _DoubtfulLoss:
    """The missing datasets of one site.

    The loss of ``confirmed_dids`` is certain, the loss of ``missing_polls`` is doubtful.
    """

    loss: _SiteLoss
    missing_polls: Mapping[Did, int]
    confirmed_dids: AbstractSet[Did]

    @property
    def missing_available_count(self) -> int:
        return len(self.missing_polls.keys() & self.loss.available_dids)

    @property
    def settled_dids(self) -> AbstractSet[Did]:
        """Return the datasets whose loss is final, after enough polls or by the operator's approval."""
        return self.confirmed_dids | self.loss.approved_dids

    @property
    def listed_count(self) -> int:
        return self.loss.listed_count - len(self.settled_dids)

    @property
    def available_count(self) -> int:
        return len(self.loss.available_dids - self.settled_dids)

    @property
    def is_everything_missing(self) -> bool:
        return len(self.missing_polls) == self.listed_count


@dataclass(frozen=True, slots=True)
class LossCheck:
    """One check for lost datasets between the memories before and after this cycle's answers.

    Call :meth:`run` once.

    Args:
        previous: the memories before this cycle's answers, by catalogue.
        current: the memories after these answers, by catalogue.
        demanded_dids: the demanded datasets; only these count as losses.
        held_losses: the losses that the last cycle held.
        approved_losses: by site, the held datasets whose loss the operator approved.
        retired: sites that the operator removed.
        settings: the share of a site above which the guard holds a loss, and the polls that confirm it.
        poll_spacing: the shortest time between two polls that count as confirmations.
        now: aware UTC time of this cycle.
    """

    previous: Mapping[str, CatalogueMemory]
    current: Mapping[str, CatalogueMemory]
    demanded_dids: AbstractSet[Did]
    held_losses: Mapping[Site, HeldLoss]
    approved_losses: Mapping[Site, AbstractSet[Did]]
    retired: AbstractSet[Site]
    settings: RemovalGuardSettings
    poll_spacing: timedelta
    now: datetime

    def run(self) -> GuardResult:
        """Hold a loss that is too large: the returned memories keep the facts of the missing datasets."""
        if not self.settings.confirm_polls:
            return GuardResult(self.current)
        change = ListingChange(
            find_listings(self.previous, self.demanded_dids, self.retired),
            find_listings(self.current, self.demanded_dids, self.retired),
        )
        doubts = {site: self._doubt(loss) for site, loss in self._find_losses(change).items()}
        causes = _find_causes(doubts, self.settings.site_share)
        memories = self._hold_facts(doubts, causes)
        unnamed_sites = find_unnamed_sites(memories, self.demanded_dids, doubts.keys())
        holds = self._hold_unnamed(unnamed_sites, doubts) | {
            site: doubts[site].loss.hold(doubts[site].missing_polls, cause, self.now, self.poll_spacing)
            for site, cause in causes.items()
        }
        return GuardResult(memories, dict(sorted(holds.items())), self._release_reasons(doubts))

    def _find_losses(self, change: ListingChange) -> dict[Site, _SiteLoss]:
        new_counts = change.new_counts()
        losses = {}
        for site, listed in sorted(change.group_by_site().items()):
            held = self.held_losses.get(site)
            held_dids = held.missing_polls.keys() if held else frozenset[Did]()
            previous = held if held and held.cause is not HoldCause.UNNAMED else None
            lost = listed.lost_dids
            same = {did for did in held_dids if change.lists_now(did, site) and self._is_unread(site, did)}
            unread = same if previous else set()
            losses[site] = _SiteLoss(
                listed_count=listed.count,
                available_dids=listed.available_dids,
                lost_dids=lost,
                unread_dids=unread,
                approved_dids=self.approved_losses.get(site, frozenset()) & held_dids & (lost | same),
                is_site_read=listed.count - len(lost) + new_counts[site] > len(unread),
                previous=previous,
            )
        return losses

    def _is_unread(self, site: Site, did: Did) -> bool:
        """Return True if all facts of *did* at *site* are the same before and after the answers."""
        return all(
            memory.find_fact(did, site) == self.previous[name].find_fact(did, site)
            for name, memory in self.current.items()
        )

    def _doubt(self, loss: _SiteLoss) -> _DoubtfulLoss:
        confirmations = loss.count_confirmations(self.now, self.poll_spacing)
        confirmed = {did for did, polls in confirmations.items() if polls >= self.settings.confirm_polls}
        missing_polls = {did: polls for did, polls in confirmations.items() if did not in confirmed}
        return _DoubtfulLoss(loss, missing_polls, confirmed)

    def _hold_facts(
        self, doubts: Mapping[Site, _DoubtfulLoss], causes: Mapping[Site, HoldCause]
    ) -> dict[str, CatalogueMemory]:
        """Return the current memories with the facts of held datasets and without the approved losses."""
        held_dids = {site: doubts[site].missing_polls.keys() & doubts[site].loss.lost_dids for site in causes}
        released_dids = {
            site: doubt.loss.approved_dids - doubt.loss.lost_dids
            for site, doubt in doubts.items()
            if doubt.loss.approved_dids
        }
        unread_sites = {site for site in causes if not doubts[site].loss.is_site_read}
        return {
            name: _apply_holds(memory, self.previous[name], held_dids, released_dids, unread_sites)
            for name, memory in self.current.items()
        }

    def _hold_unnamed(
        self, unnamed_sites: Mapping[Site, Collection[Did]], doubts: Mapping[Site, _DoubtfulLoss]
    ) -> dict[Site, HeldLoss]:
        """Return a hold for each site that no catalogue lists any more. Polls cannot confirm this loss."""
        holds = {}
        for site, dids in unnamed_sites.items():
            held = self.held_losses.get(site)
            start = held.started_at if held and held.cause is HoldCause.UNNAMED else self.now
            polls, listed_count = dict.fromkeys(sorted(dids), 0), doubts[site].loss.listed_count
            holds[site] = HeldLoss(start, start, polls, listed_count, HoldCause.UNNAMED)
        return holds

    def _release_reasons(self, doubts: Mapping[Site, _DoubtfulLoss]) -> dict[Site, dict[Did, str]]:
        """Return the datasets whose hold ended, and why. Do not reword: the history stores the reasons."""
        reason = f"{format_count(self.settings.confirm_polls, 'further poll')} said that it is gone"
        reasons = {
            site: dict.fromkeys(sorted(doubt.confirmed_dids), reason)
            | dict.fromkeys(sorted(doubt.loss.approved_dids), "gone, as the operator approved")
            for site, doubt in doubts.items()
        }
        return {site: reasons_by_did for site, reasons_by_did in reasons.items() if reasons_by_did}


def _find_causes(doubts: Mapping[Site, _DoubtfulLoss], site_share: float) -> dict[Site, HoldCause]:
    """Return the sites whose loss the guard holds, each with the cause.

    A site that alone loses too many datasets is not part of the sum for all sites.
    """
    losing = {site for site, doubt in doubts.items() if doubt.missing_polls}
    is_nothing_left = all(doubt.is_everything_missing for doubt in doubts.values())
    missing_dids = {did for doubt in doubts.values() for did in doubt.missing_polls}
    alone = {site for site in losing if _is_shrink([doubts[site]], site_share, _MIN_DATASETS)}
    others = [doubt for site, doubt in doubts.items() if site not in alone]
    is_total_shrink = (is_nothing_left and len(missing_dids) >= _MIN_TOTAL_LOSS) or _is_shrink(
        others, _ALL_SHARE, _MIN_DATASETS
    )
    causes = {site: HoldCause.SITE if site in alone else HoldCause.ALL for site in sorted(losing)}
    # If the guard holds the loss of another site, it also holds the loss of a site that lost all its
    # datasets, even if these are few.
    emptied = {site for site in losing if alone and doubts[site].is_everything_missing}
    return causes if is_total_shrink else {s: cause for s, cause in causes.items() if s in alone | emptied}


def _is_shrink(doubts: Collection[_DoubtfulLoss], share: float, min_datasets: int) -> bool:
    """Return True if more than *share* of the listed, or of the AVAILABLE, datasets are missing."""
    missing = sum(len(doubt.missing_polls) for doubt in doubts)
    listed = sum(doubt.listed_count for doubt in doubts)
    missing_available = sum(doubt.missing_available_count for doubt in doubts)
    available = sum(doubt.available_count for doubt in doubts)
    return _is_too_much(missing, listed, share, min_datasets) or _is_too_much(
        missing_available, available, share, min_datasets
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
    """Return *memory* with the previous facts of *held_dids*, and without *released_dids*.

    The sites in *unread_sites* keep the time of their previous reading.
    """
    changed: dict[Did, DatasetRecord] = {}
    for site, dids in held_dids.items():
        for did in dids:
            old, new = previous.records.get(did), changed.get(did) or memory.records.get(did)
            if old and new and (fact := previous.find_fact(did, site)):
                changed[did] = replace(
                    new.with_time(memory.answered_at),
                    facts={**new.facts, site: fact},
                    previous_facts={
                        **new.previous_facts,
                        **{s: f for s, f in old.previous_facts.items() if s == site},
                    },
                )
    for site, dids in released_dids.items():
        for did in dids:
            if new := changed.get(did) or memory.records.get(did):
                changed[did] = replace(
                    new.with_time(memory.answered_at),
                    facts=_drop_site(new.facts, site),
                    previous_facts=_drop_site(new.previous_facts, site),
                )
    ages = {s: age for s in sorted(unread_sites & memory.sites) if (age := previous.read_at(s)) is not None}
    if not changed and not ages:
        return memory
    records = {**memory.records, **changed}
    return replace(memory, records=records, last_read_at={**memory.last_read_at, **ages})


def _drop_site(facts: Mapping[Site, Fact], site: Site) -> dict[Site, Fact]:
    return {name: fact for name, fact in facts.items() if name != site}
