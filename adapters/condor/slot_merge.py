"""Slot merges: send site ads to slots without a hook by MERGE_STARTD_AD, again after each startd update.

The functions select the slots for a merge from the slot ads of a collector.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hydrator.domain.ads import contract
from hydrator.domain.errors import ConfigError, PoolError
from hydrator.domain.model import Site, SiteAd, to_unix
from hydrator.domain.ports import MergeResult
from hydrator.domain.untrusted import MAX_UNIX_SECONDS, is_ahead, valid_integer

from .bindings.client import CondorClient
from .bindings.library import NOT_DYNAMIC_SLOT, describe_denial
from .bindings.token_advice import MERGE_ADVICE

REFRESH_SECONDS = 300
VIA_MERGE = "merge"
"""DataLocalitySource of a slot that got its attributes by a merge."""
SLOT_ATTRIBUTES = (
    "Name",
    "MyAddress",
    "LastHeardFrom",
    contract.SITE,
    contract.GENERATION,
    contract.AS_OF,
    contract.OPEN_UNTIL,
    contract.SOURCE,
)


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot's ad. ``last_heard_from`` is the startd's last update, in Unix s of the collector's clock."""

    name: str
    address: str
    last_heard_from: int
    site: Site | None
    advertised_site: str | None
    generation: object
    as_of: object
    open_until: object
    advertised_via: object

    @property
    def has_hook(self) -> bool:
        """Return True if a hook, or any source except a merge, sets the slot's DataLocality attributes."""
        return self.advertised_via not in {None, VIA_MERGE}

    def has_content_of(self, ad: SiteAd) -> bool:
        """Return True if the slot has the content of *ad*: its site, its generation and its openings."""
        open_until = to_unix(ad.open_until) if ad.open_until else None
        content = self.advertised_site, self.generation, self.open_until
        return content == (ad.site, ad.generation, open_until)


def parse_slots(ads: Iterable[Mapping[str, Any]], site_attributes: Sequence[str]) -> list[Slot]:
    """Parse the slots in *ads*; skip a slot without a name or an address, which a merge needs.

    Args:
        ads: the slot ads, with SLOT_ATTRIBUTES and *site_attributes*.
        site_attributes: names of slot attributes; the first that a slot has gives the slot's site.
    """
    slots = []
    for ad in ads:
        name, address, updated_at = ad["Name"], ad["MyAddress"], ad["LastHeardFrom"]
        if (
            isinstance(name, str)
            and isinstance(address, str)
            and valid_integer(updated_at, MAX_UNIX_SECONDS) is not None
        ):
            site = contract.first_site(ad[key] for key in site_attributes)
            advertised = (ad[key] for key in SLOT_ATTRIBUTES[3:])
            slots.append(Slot(name, address, updated_at, Site(site) if site else None, *advertised))
    return slots


def select_due_slots(slots: Iterable[Slot], ads: Mapping[Site, SiteAd]) -> list[Slot]:
    """Return slots whose content differs from the site's ad, or whose AsOf is REFRESH_SECONDS older.

    A slot with a hook is never due. Slots without content come first, ordered by their startd's last update,
    the newest first. The rate may allow merges for the first slots only. These first slots keep the merge
    longest, because their startds have the longest time until their next update.
    """
    due = []
    for slot in slots:
        ad = ads.get(slot.site) if slot.site and not slot.has_hook else None
        if ad and (_is_behind(slot.as_of, ad) or not slot.has_content_of(ad)):
            due.append(slot)
    return sorted(due, key=lambda slot: (slot.advertised_site is not None, -slot.last_heard_from, slot.name))


def _is_behind(as_of: object, ad: SiteAd) -> bool:
    """Return True if the AsOf of a slot is invalid, or older than the AsOf of *ad* by REFRESH_SECONDS."""
    at = valid_integer(as_of)
    return at is None or at <= to_unix(ad.as_of) - REFRESH_SECONDS or is_ahead(at, ad.as_of)


def select_slots_to_withdraw(
    slots: Iterable[Slot], ads: Mapping[Site, SiteAd], is_retired: Callable[[Site], bool]
) -> list[Slot]:
    """Return slots whose merge is from a retired site, or from a site that the slot no longer belongs to."""
    return [
        slot
        for slot in slots
        if slot.advertised_via == VIA_MERGE
        and slot.site not in ads
        and slot.advertised_site is not None
        and (slot.advertised_site != slot.site or is_retired(slot.site))
    ]


def split_into_batches(
    slots: Sequence[Slot], texts: Mapping[Site, str], max_slots: int, max_bytes: int
) -> list[list[Slot]]:
    """Split *slots* into batches of at most *max_slots* slots and *max_bytes* (more for a single slot)."""
    batches: list[list[Slot]] = []
    size = 0
    for slot in slots:
        weight = len(texts.get(slot.site or Site(""), ""))
        if not batches or len(batches[-1]) >= max_slots or size + weight > max_bytes:
            batches.append([])
            size = 0
        batches[-1].append(slot)
        size += weight
    return batches


SLOTS_PER_SECOND = 500
"""The largest rate of merges at one collector; a batch is at most those of one second."""
MAX_BATCH_BYTES = 8_000_000
"""Bytes of one connection: a collector accepts 1,400 ads of 95 kB a second, and a call has a time limit."""


class SlotMerger:
    """A writer of site attributes into the ads of slots without a hook, at each collector separately.

    Each update that the startd sends to the collector removes these attributes.
    A slot gets a merge if the slot has no hook, its site has an ad, and the slot's content differs from
    this ad. A collector does not acknowledge a merge, and one that denies merges may accept the ads and
    then close the connection; so each run asks it first whether it authorizes them.

    Args:
        client: a client that only this object uses; ``close`` also stops the client.
        site_attributes: names of slot attributes; the first that a slot has gives the slot's site.
        interval: the time between two runs. One run sends no more merges than SLOTS_PER_SECOND allows in
            this time.
    """

    def __init__(
        self,
        client: CondorClient,
        site_attributes: Sequence[str],
        *,
        interval: timedelta,
    ) -> None:
        self._client = client
        self._site_attributes = tuple(site_attributes)
        self._max_slots = int(SLOTS_PER_SECOND * interval.total_seconds())
        self._close_event = threading.Event()
        self._failed_collectors: set[str] = set()

    def close(self) -> None:
        """Stop the client, also during a run."""
        self._close_event.set()
        self._client.close()

    def run_once(
        self, ads: Mapping[Site, SiteAd], is_retired: Callable[[Site], bool]
    ) -> Mapping[str, MergeResult]:
        """Query every collector once, those that failed last time last, and update slots unlike their ad.

        Remove the attributes of sites for which *is_retired* is true. Return the result by collector.
        """
        results: dict[str, MergeResult] = {}
        try:
            collectors = self._client.collectors()
        except PoolError as error:
            return {"": MergeResult(error=str(error))}
        for collector in sorted(collectors, key=lambda one: (one in self._failed_collectors, one)):
            try:
                results[collector] = self._merge_at(collector, ads, is_retired)
            except (PoolError, ConfigError) as error:
                results[collector] = MergeResult(error=str(error))
            if self._close_event.is_set():
                return {}
        self._failed_collectors = {collector for collector, result in results.items() if result.error}
        return results or {"": MergeResult(error="no collector is configured (COLLECTOR_HOST)")}

    def _merge_at(
        self, collector: str, ads: Mapping[Site, SiteAd], is_retired: Callable[[Site], bool]
    ) -> MergeResult:
        answer = self._client.ping("collector", "NEGOTIATOR", collector)
        if not answer.is_allowed:
            denial = answer.reason or describe_denial(str(answer.identity), str(answer.method))
            return MergeResult(error=f"collector {collector}: {denial}; {MERGE_ADVICE}")
        rows = self._client.slots([*SLOT_ATTRIBUTES, *self._site_attributes], NOT_DYNAMIC_SLOT, collector)
        slots = parse_slots(rows, self._site_attributes)
        to_withdraw = select_slots_to_withdraw(slots, ads, is_retired)[: self._max_slots]
        due = select_due_slots(slots, ads)[: self._max_slots]
        withdrawn_count = self._send_merges(collector, slots, to_withdraw, {})
        return MergeResult(self._send_merges(collector, slots, due, ads), withdrawn_count)

    def _send_merges(
        self,
        collector: str,
        all_slots: Sequence[Slot],
        target_slots: Sequence[Slot],
        ads: Mapping[Site, SiteAd],
    ) -> int:
        """Merge *ads* into *target_slots*; withdraw the merge from slots whose site has no ad."""
        texts = {slot.site or Site(""): "" for slot in target_slots}
        texts |= {site: ads[site].text for site in texts if site in ads}
        since = max((slot.last_heard_from for slot in all_slots), default=0)
        count = 0
        for batch in split_into_batches(target_slots, texts, SLOTS_PER_SECOND, MAX_BATCH_BYTES):
            if count and self._close_event.wait(len(batch) / SLOTS_PER_SECOND):
                break
            sites = {slot.site or Site("") for slot in batch}
            batch_texts: dict[str, str | None] = {site: texts[site] or None for site in sites}
            rows = [(slot.name, slot.address, slot.site or Site(""), slot.last_heard_from) for slot in batch]
            count += len(self._client.merge(collector, batch_texts, rows, since))
        return count
