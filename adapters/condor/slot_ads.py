"""Slots as a collector shows them, and which of them a merge is for; reads no clock and asks nobody."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hydrator.domain.model import Site, SiteAd, to_unix
from hydrator.domain.untrusted import MAX_UNIX_SECONDS, is_ahead, valid_integer

VIA_MERGE = "merge"
"""DataLocalityVia of a slot that got its attributes from us."""
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
"""Dynamic slots are claimed, and gone soon: what is matched is the slot that they were cut from."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot's ad: ``heard`` is when its startd was, in Unix seconds of the collector's clock."""

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
        """What a collector keeps its ad by; those before 23.0 look at the address too."""
        return self.name, self.address

    @property
    def has_hook(self) -> bool:
        """Somebody else says something of data there: a hook."""
        return self.advertised_via not in {None, VIA_MERGE}

    @property
    def content(self) -> tuple[object, object, object]:
        """What tells whether a merge arrived."""
        return self.advertised_site, self.generation, self.as_of

    def has_content_of(self, ad: SiteAd) -> bool:
        """Whether it carries the content of *ad*; two sites may have one generation."""
        return (self.advertised_site, self.generation) == (ad.site, ad.generation)


def parse_slots(ads: Iterable[Mapping[str, Any]], site_attributes: Sequence[str]) -> list[Slot]:
    """The slots in *ads*; one without a name or an address cannot be merged into, and is left out.

    Args:
        ads: OF_A_SLOT and *site_attributes* of each.
        site_attributes: where a slot says its site; the first that it has counts.
    """
    found = []
    for ad in ads:
        name, address, heard = ad["Name"], ad["MyAddress"], ad["LastHeardFrom"]
        if (
            isinstance(name, str)
            and isinstance(address, str)
            and valid_integer(heard, MAX_UNIX_SECONDS) is not None
        ):
            site = next((Site(str(ad[key])) for key in site_attributes if ad[key]), None)
            rest = (ad[key] for key in SLOT_ATTRIBUTES[3:])
            told, generation, as_of, via = rest
            found.append(Slot(name, address, heard, site, told, generation, as_of, via))
    return found


def select_mergeable_slots(slots: Iterable[Slot], ads: Mapping[Site, SiteAd]) -> list[Slot]:
    """Slots without a hook at sites that we speak for."""
    return [slot for slot in slots if not slot.has_hook and slot.site in ads]


def select_due_slots(slots: Iterable[Slot], ads: Mapping[Site, SiteAd], refresh: timedelta) -> list[Slot]:
    """Those whose content differs, or whose age is *refresh* behind.

    Those that say nothing come first, and of them those whose startds were heard last: where there are more
    than the pace allows, they have it the longest before the next update.
    """
    behind = int(refresh.total_seconds())
    found = []
    for slot in select_mergeable_slots(slots, ads):
        ad = ads[slot.site]  # type: ignore[index]
        if _is_behind(slot.as_of, ad, behind) or not slot.has_content_of(ad):
            found.append(slot)
    return sorted(
        found, key=lambda slot: (slot.advertised_site is not None, -slot.last_heard_from, slot.name)
    )


def _is_behind(as_of: object, ad: SiteAd, max_lag_seconds: int) -> bool:
    """Is the age on a slot so far behind that of *ad*, or one that nobody can have read?"""
    at = valid_integer(as_of)
    return at is None or at <= to_unix(ad.as_of) - max_lag_seconds or is_ahead(at, ad.as_of)


def select_slots_to_withdraw(
    slots: Iterable[Slot], ads: Mapping[Site, SiteAd], is_retired: Callable[[Site], bool]
) -> list[Slot]:
    """Slots that carry what we merged for a site that the operator *retires*, or that they left."""
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
    """*slots* in order, so many at a time at most, and not more than *most_bytes* of ads unless it is one."""
    found: list[list[Slot]] = []
    size = 0
    for slot in slots:
        weight = len(texts.get(slot.site or Site(""), ""))
        if not found or len(found[-1]) >= max_slots or size + weight > max_bytes:
            found.append([])
            size = 0
        found[-1].append(slot)
        size += weight
    return found


def content_of(ad: SiteAd | None) -> tuple[object, object, object]:
    """The ``content`` of a slot into which *ad* was merged, or from which all was taken back."""
    return (ad.site, ad.generation, to_unix(ad.as_of)) if ad else (None, None, None)


def count_confirmed_merges(
    slots: Iterable[Slot], sent_contents: Mapping[Slot, tuple[object, object, object]]
) -> tuple[int, int]:
    """Of merges that were *sent*, how many show, and how many do not though nobody renewed their slots."""
    now = {slot.key: slot for slot in slots}
    shown = missing = 0
    for before, content in sent_contents.items():
        slot = now.get(before.key)
        if slot and slot.content == content:
            shown += 1
        elif slot and slot.last_heard_from == before.last_heard_from:
            missing += 1
    return shown, missing


class SlotTime:
    """How long slots at one collector carried their site's attributes, from one look at them to the next.

    Between two looks a startd's update wipes what was merged: LastHeardFrom, which a merge leaves as it is,
    says when. What was merged by somebody else, or before we started, counts as there all the time.
    """

    def __init__(self) -> None:
        self._last_measured_at: float | None = None
        self._covered_since: dict[tuple[str, str], float] = {}

    def measure(self, slots: Iterable[Slot], now: float) -> tuple[float, float]:
        """Slot-seconds covered and not covered since the last look; *now* in Unix seconds."""
        last, self._last_measured_at = self._last_measured_at, now
        since, self._covered_since = self._covered_since, {}
        covered = missed = 0.0
        for slot in slots:
            there = slot.advertised_site is not None and slot.advertised_site == slot.site
            if there:
                self._covered_since[slot.key] = since.get(slot.key, now)
            if last is None or now <= last:
                continue
            begun = max(last, since.get(slot.key, last if there else now))
            ended = now if there else min(now, max(begun, float(slot.last_heard_from)))
            covered += max(0.0, ended - begun)
            missed += (now - last) - max(0.0, ended - begun)
        return covered, missed

    def record_merge(self, slots: Iterable[Slot], now: float) -> None:
        """*slots* carry them from *now* on."""
        for slot in slots:
            self._covered_since[slot.key] = now
