"""Slot ads of a collector, and the selection of slots for a merge. Pure: no socket, no clock."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hydrator.domain.model import Site, SiteAd, to_unix
from hydrator.domain.untrusted import MAX_UNIX_SECONDS, is_ahead, valid_integer

VIA_MERGE = "merge"
"""DataLocalityVia of a slot that got its attributes by a merge."""
SLOT_ATTRIBUTES = (
    "Name",
    "MyAddress",
    "LastHeardFrom",
    "DataLocalitySite",
    "DataLocalityGeneration",
    "DataLocalityAsOf",
    "DataLocalityVia",
)
NOT_DYNAMIC_SLOT = "DynamicSlot =!= true"
"""Excludes dynamic slots: they are claimed and short-lived; jobs match the slot that they were cut from."""
Content = tuple[object, object, object]
"""Site, generation and AsOf in a slot's ad, by which one merge differs from another."""


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
    advertised_via: object

    @property
    def key(self) -> tuple[str, str]:
        """Return the slot's name and address; HTCondor before 23.0 uses both as the key of a slot's ad."""
        return self.name, self.address

    @property
    def has_hook(self) -> bool:
        """Return True if a hook, or any source except a merge, sets the slot's DataLocality attributes."""
        return self.advertised_via not in {None, VIA_MERGE}

    @property
    def content(self) -> Content:
        """Return site, generation and AsOf in the slot's ad. These values show whether a merge arrived."""
        return self.advertised_site, self.generation, self.as_of

    def has_content_of(self, ad: SiteAd) -> bool:
        """Return True if the slot has the content of *ad*: its site and its generation."""
        return (self.advertised_site, self.generation) == (ad.site, ad.generation)


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
            site = next((Site(str(ad[key])) for key in site_attributes if ad[key]), None)
            advertised = (ad[key] for key in SLOT_ATTRIBUTES[3:])
            slots.append(Slot(name, address, updated_at, site, *advertised))
    return slots


def select_mergeable_slots(slots: Iterable[Slot], ads: Mapping[Site, SiteAd]) -> list[Slot]:
    """Return the slots without a hook, at the sites of *ads*."""
    return [slot for slot in slots if not slot.has_hook and slot.site in ads]


def select_due_slots(slots: Iterable[Slot], ads: Mapping[Site, SiteAd], refresh: timedelta) -> list[Slot]:
    """Return slots whose content differs from the site's ad, or whose AsOf is *refresh* older than the ad's.

    Slots without content come first, ordered by their startd's last update, the newest first. The rate may
    allow merges for the first slots only. These first slots keep the merge longest, because their startds
    have the longest time until their next update.
    """
    max_lag_seconds = int(refresh.total_seconds())
    due = []
    for slot in select_mergeable_slots(slots, ads):
        ad = ads[slot.site]  # type: ignore[index]
        if _is_behind(slot.as_of, ad, max_lag_seconds) or not slot.has_content_of(ad):
            due.append(slot)
    return sorted(due, key=lambda slot: (slot.advertised_site is not None, -slot.last_heard_from, slot.name))


def _is_behind(as_of: object, ad: SiteAd, max_lag_seconds: int) -> bool:
    """Return True if the AsOf of a slot is invalid, or older than the AsOf of *ad* by *max_lag_seconds*."""
    at = valid_integer(as_of)
    return at is None or at <= to_unix(ad.as_of) - max_lag_seconds or is_ahead(at, ad.as_of)


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


def content_of(ad: SiteAd | None) -> Content:
    """Return the ``content`` of a slot after a merge of *ad*; *ad* None means that the merge is withdrawn."""
    return (ad.site, ad.generation, to_unix(ad.as_of)) if ad else (None, None, None)


def count_confirmed_merges(slots: Iterable[Slot], sent_contents: Mapping[Slot, Content]) -> tuple[int, int]:
    """Count the sent merges that *slots* have, and the missing merges.

    A merge is missing if the slot's ad does not have it, although the startd sent no update after the merge.
    """
    slots_by_key = {slot.key: slot for slot in slots}
    confirmed = missing = 0
    for previous, content in sent_contents.items():
        slot = slots_by_key.get(previous.key)
        if slot and slot.content == content:
            confirmed += 1
        elif slot and slot.last_heard_from == previous.last_heard_from:
            missing += 1
    return confirmed, missing


class SlotTime:
    """Slot-seconds with and without the site's attributes at one collector, between two queries.

    Between two queries an update of the startd may remove a merge. LastHeardFrom is the time of this update,
    since a merge does not change LastHeardFrom. If this object did not record when a merge was sent
    (another process sent it, or this daemon before a restart), the whole interval counts as time with
    attributes.
    """

    def __init__(self) -> None:
        self._last_measured_at: float | None = None
        self._covered_since: dict[tuple[str, str], float] = {}

    def measure(self, slots: Iterable[Slot], now: float) -> tuple[float, float]:
        """Return slot-seconds with and without attributes since the last call; *now* in Unix seconds."""
        last, self._last_measured_at = self._last_measured_at, now
        since, self._covered_since = self._covered_since, {}
        covered = uncovered = 0.0
        for slot in slots:
            is_covered = slot.advertised_site is not None and slot.advertised_site == slot.site
            if is_covered:
                self._covered_since[slot.key] = since.get(slot.key, now)
            if last is None or now <= last:
                continue
            start_at = max(last, since.get(slot.key, last if is_covered else now))
            end_at = now if is_covered else min(now, max(start_at, float(slot.last_heard_from)))
            covered += max(0.0, end_at - start_at)
            uncovered += (now - last) - max(0.0, end_at - start_at)
        return covered, uncovered

    def record_merge(self, slots: Iterable[Slot], now: float) -> None:
        """Record that *slots* have their site's attributes from *now* on."""
        for slot in slots:
            self._covered_since[slot.key] = now
