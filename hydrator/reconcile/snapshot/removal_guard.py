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

from collections import Counter
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from itertools import chain

from hydrator.config.daemon import RemovalGuardSettings
from hydrator.domain.model import DatasetState, Did, Fact, Site
from hydrator.domain.text import format_count, group_pairs
from hydrator.reconcile.snapshot.merge import CatalogueMemory, DatasetRecord

Listings = Mapping[Site, Fact]
"""The sites that list a dataset, each with its fact; the fact is AVAILABLE if any catalogue says so."""
NO_LISTINGS: Listings = {}


def find_listings(
    memories: Mapping[str, CatalogueMemory], dids: Collection[Did], retired: AbstractSet[Site]
) -> dict[Did, Listings]:
    """Return the listings of each of *dids* that at least one site lists."""
    listings: dict[Did, Listings] = {}
    for memory in memories.values():
        for did in dids if memory.records else ():
            if (record := memory.records.get(did)) is not None and record.facts:
                facts = record.facts
                if retired and not retired.isdisjoint(facts):
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
    CLOCK = "clock"  # the clock was set back during a hold, so the facts that were held are gone


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
    def can_be_confirmed(self) -> bool:
        """Return True if further polls end the hold."""
        return self.cause in {HoldCause.SITE, HoldCause.ALL}

    @property
    def confirmations(self) -> int:
        """Return the number of further polls that confirmed the loss of every missing dataset."""
        return min(self.missing_polls.values(), default=0)

    def text(self, needed_polls: int) -> str:
        """Return a sentence with the numbers of the loss; *needed_polls* further polls end the hold."""
        if self.cause is HoldCause.CLOCK:
            return "a loss was held when the clock was set back; the published ad is unchanged"
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
class _Loss:
    """The datasets that are missing at one site, before the guard decides whether to hold the loss.

    The loss of ``missing_polls`` is doubtful: each of these datasets has the number of further polls that
    confirmed its loss. The loss of ``settled_dids`` is final: enough polls confirmed it, or the operator
    approved it. ``lost_dids`` are those of both that the site listed until this cycle. ``is_confirmed``: the
    poll of this cycle is one more confirmation. ``is_site_read``: the site lists a dataset that is neither
    lost nor held without a new answer. ``previous`` is the hold of the last cycle, if any.

    A site that listed A, B and C lists only C now. A and B are lost and have 0 polls. In the next poll they
    have 1. If the operator then approves B, B is settled.
    """

    missing_polls: Mapping[Did, int]
    settled_dids: AbstractSet[Did]
    approved_dids: AbstractSet[Did]
    lost_dids: AbstractSet[Did]
    is_confirmed: bool
    is_site_read: bool
    previous: HeldLoss | None

    def hold(self, listed_count: int, cause: HoldCause, now: datetime) -> HeldLoss:
        """Return the held loss. The previous hold continues if one of its datasets is still missing."""
        last = self.previous
        is_same_hold = last is not None and not last.missing_polls.keys().isdisjoint(self.missing_polls)
        return HeldLoss(
            started_at=last.started_at if last and is_same_hold else now,
            last_confirmed_at=last.last_confirmed_at if last and not self.is_confirmed else now,
            missing_polls=self.missing_polls,
            listed_count=listed_count,
            cause=cause,
        )


@dataclass(frozen=True)
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

    @cached_property
    def listings_before(self) -> Mapping[Did, Listings]:
        """The listings of the demanded datasets before the answers."""
        return find_listings(self.previous, self.demanded_dids, self.retired)

    @cached_property
    def listings(self) -> Mapping[Did, Listings]:
        """The listings of the demanded datasets after the answers."""
        return find_listings(self.current, self.demanded_dids, self.retired)

    @cached_property
    def listed(self) -> Counter[Site]:
        """The number of datasets that each site listed before the answers."""
        return Counter(chain.from_iterable(self.listings_before.values()))

    @cached_property
    def available(self) -> Mapping[Site, AbstractSet[Did]]:
        """The datasets that were AVAILABLE at each site before the answers."""
        pairs = (
            (site, did)
            for did, listings in self.listings_before.items()
            for site, fact in listings.items()
            if fact.state is DatasetState.AVAILABLE
        )
        return {site: frozenset(dids) for site, dids in group_pairs(pairs).items()}

    @cached_property
    def listed_now(self) -> Counter[Site]:
        """The number of datasets that each site lists after the answers."""
        return Counter(chain.from_iterable(self.listings.values()))

    def find_lost(self) -> dict[Site, set[Did]]:
        """Return, by site, the datasets that it listed before the answers and does not list now."""
        lost: dict[Site, set[Did]] = {}
        for did, listings in self.listings_before.items():
            current = self.listings.get(did, NO_LISTINGS)
            if current is not listings:  # most records do not change
                for site in listings.keys() - current.keys():
                    lost.setdefault(site, set()).add(did)
        return lost

    def run(self) -> GuardResult:
        """Hold a loss that is too large: the returned memories keep the facts of the missing datasets."""
        if not self.settings.confirm_polls:
            return GuardResult(self.current)
        listed, lost_dids = self.listed, self.find_lost()
        losses = {
            site: self._judge(site, lost_dids.get(site, set()))
            for site in sorted(lost_dids.keys() | (self.held_losses.keys() & listed.keys()))
        }
        causes = self._find_causes(losses)
        memories = self._hold_facts(losses, causes)
        unnamed_sites = find_unnamed_sites(memories, self.demanded_dids, listed.keys())
        holds = self._hold_unnamed(unnamed_sites) | {
            site: losses[site].hold(listed[site], cause, self.now) for site, cause in causes.items()
        }
        return GuardResult(memories, dict(sorted(holds.items())), self._release_reasons(losses))

    def _judge(self, site: Site, lost_dids: AbstractSet[Did]) -> _Loss:
        """Return the loss of *lost_dids* at *site*, and of the datasets held there that were not read again.

        Polls confirm only a loss at a site that a catalogue lists, and whose facts are held. A further loss
        starts the count for the whole site again.
        """
        held = self.held_losses.get(site)
        held_dids = held.missing_polls.keys() if held else frozenset[Did]()
        previous = held if held and held.can_be_confirmed else None
        last_polls = previous.missing_polls if previous else {}
        unread = {did for did in held_dids if self._is_unread(site, did)}
        approved = self.approved_losses.get(site, frozenset()) & held_dids & (lost_dids | unread)
        is_confirmed = bool(lost_dids) and (
            previous is None or self.now - previous.last_confirmed_at >= self.poll_spacing
        )
        if lost_dids <= last_polls.keys():
            polls = {did: last_polls[did] + is_confirmed for did in lost_dids}
            polls |= {did: last_polls[did] for did in unread & last_polls.keys()}
        else:  # a further loss: what vanishes bit by bit may come back
            polls, is_confirmed = dict.fromkeys(lost_dids | (unread & last_polls.keys()), 0), True
        settled = {did for did, count in polls.items() if count >= self.settings.confirm_polls} | approved
        return _Loss(
            missing_polls={did: polls[did] for did in sorted(polls.keys() - settled)},
            settled_dids=settled,
            approved_dids=approved,
            lost_dids=lost_dids,
            is_confirmed=is_confirmed,
            is_site_read=self.listed_now[site] > len(unread & last_polls.keys()),
            previous=previous,
        )

    def _is_unread(self, site: Site, did: Did) -> bool:
        """Return True if *did* is listed at *site*, by the same facts before and after the answers."""
        return site in self.listings.get(did, NO_LISTINGS) and all(
            memory.find_fact(did, site) == self.previous[name].find_fact(did, site)
            for name, memory in self.current.items()
        )

    def _find_causes(self, losses: Mapping[Site, _Loss]) -> dict[Site, HoldCause]:
        """Return the sites whose loss the guard holds, each with the cause.

        A site that alone loses too many datasets is not part of the sum for all sites.
        """
        losing = {site: loss for site, loss in losses.items() if loss.missing_polls}
        if not losing:
            return {}
        alone = {site for site in losing if self._is_shrink([site], losses, self.settings.site_share)}
        missing_dids = {did for loss in losing.values() for did in loss.missing_polls}
        sites = self.listed.keys()
        is_total_shrink = (
            len(missing_dids) >= _MIN_TOTAL_LOSS and all(self._is_emptied(site, losses) for site in sites)
        ) or self._is_shrink(sites - alone, losses, _ALL_SHARE)
        causes = {site: HoldCause.SITE if site in alone else HoldCause.ALL for site in losing}
        # If the guard holds the loss of another site, it also holds the loss of a site that lost all its
        # datasets, even if these are few.
        emptied = {site for site in losing if alone and self._is_emptied(site, losses)}
        return (
            causes if is_total_shrink else {s: cause for s, cause in causes.items() if s in alone | emptied}
        )

    def _is_emptied(self, site: Site, losses: Mapping[Site, _Loss]) -> bool:
        """Return True if all datasets of *site* whose loss is not final are missing."""
        loss = losses.get(site)
        return loss is not None and len(loss.missing_polls) == self.listed[site] - len(loss.settled_dids)

    def _is_shrink(self, sites: Collection[Site], losses: Mapping[Site, _Loss], share: float) -> bool:
        """Return True if *sites* miss more than *share* of the listed, or of the AVAILABLE, datasets."""
        listed = sum(self.listed[site] for site in sites)
        available = sum(len(self.available.get(site, ())) for site in sites)
        missing = missing_available = 0
        for site in losses.keys() & sites:
            loss = losses[site]
            listed -= len(loss.settled_dids)
            were_here = self.available.get(site, frozenset())
            available -= len(were_here & loss.settled_dids)
            missing += len(loss.missing_polls)
            missing_available += len(were_here & loss.missing_polls.keys())
        return _is_too_much(missing, listed, share) or _is_too_much(missing_available, available, share)

    def _hold_facts(
        self, losses: Mapping[Site, _Loss], causes: Mapping[Site, HoldCause]
    ) -> dict[str, CatalogueMemory]:
        """Return the current memories with the facts of held datasets and without the approved losses."""
        held_dids = {site: losses[site].missing_polls.keys() & losses[site].lost_dids for site in causes}
        released_dids = {site: loss.approved_dids - loss.lost_dids for site, loss in losses.items()}
        unread_sites = {site for site in causes if not losses[site].is_site_read}
        return {
            name: _apply_holds(memory, self.previous[name], held_dids, released_dids, unread_sites)
            for name, memory in self.current.items()
        }

    def _hold_unnamed(self, unnamed_sites: Mapping[Site, Collection[Did]]) -> dict[Site, HeldLoss]:
        """Return a hold for each site that no catalogue lists any more. Polls cannot confirm this loss."""
        holds = {}
        for site, dids in unnamed_sites.items():
            held = self.held_losses.get(site)
            start = held.started_at if held and held.cause is HoldCause.UNNAMED else self.now
            polls = dict.fromkeys(sorted(dids), 0)
            holds[site] = HeldLoss(start, start, polls, self.listed[site], HoldCause.UNNAMED)
        return holds

    def _release_reasons(self, losses: Mapping[Site, _Loss]) -> dict[Site, dict[Did, str]]:
        """Return the datasets whose hold ended, and why. Do not reword: the history stores the reasons."""
        polled = f"{format_count(self.settings.confirm_polls, 'further poll')} said that it is gone"
        return {
            site: {
                did: "gone, as the operator approved" if did in loss.approved_dids else polled
                for did in sorted(loss.settled_dids)
            }
            for site, loss in losses.items()
            if loss.settled_dids
        }


def _is_too_much(missing_count: int, total_count: int, share: float) -> bool:
    return missing_count >= _MIN_DATASETS and missing_count > share * total_count


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
