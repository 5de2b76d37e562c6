"""Slots as a collector shows them, and which of them a merge is for; reads no clock and asks nobody."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hydrator.domain.model import Site, SiteAd, unix
from hydrator.domain.numbers import LATEST, is_ahead, whole

OURS = "merge"
"""DataLocalityVia of a slot that got its attributes from us."""
OF_A_SLOT = (
    "Name",
    "MyAddress",
    "LastHeardFrom",
    "DataLocalitySite",
    "DataLocalityGeneration",
    "DataLocalityAsOf",
    "DataLocalityVia",
)
NO_PART_OF_ANOTHER = "DynamicSlot =!= true"
"""Dynamic slots are claimed, and gone soon: what is matched is the slot that they were cut from."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot's ad: ``heard`` is when its startd was, in Unix seconds of the collector's clock."""

    name: str
    address: str
    heard: int
    site: Site | None
    told: str | None
    generation: object
    as_of: object
    via: object

    @property
    def key(self) -> tuple[str, str]:
        """What a collector keeps its ad by; those before 23.0 look at the address too."""
        return self.name, self.address

    @property
    def hooked(self) -> bool:
        """Somebody else says something of data there: a hook."""
        return self.via not in {None, OURS}

    @property
    def content(self) -> tuple[object, object, object]:
        """What tells whether a merge arrived."""
        return self.told, self.generation, self.as_of

    def says(self, ad: SiteAd) -> bool:
        """Whether it carries the content of *ad*; two sites may have one generation."""
        return (self.told, self.generation) == (ad.site, ad.generation)


def slots_of(ads: Iterable[Mapping[str, Any]], site_attributes: Sequence[str]) -> list[Slot]:
    """The slots in *ads*; one without a name or an address cannot be merged into, and is left out.

    Args:
        ads: OF_A_SLOT and *site_attributes* of each.
        site_attributes: where a slot says its site; the first that it has counts.
    """
    found = []
    for ad in ads:
        name, address, heard = ad["Name"], ad["MyAddress"], ad["LastHeardFrom"]
        if isinstance(name, str) and isinstance(address, str) and whole(heard, LATEST) is not None:
            site = next((Site(str(ad[key])) for key in site_attributes if ad[key]), None)
            rest = (ad[key] for key in OF_A_SLOT[3:])
            told, generation, as_of, via = rest
            found.append(Slot(name, address, heard, site, told, generation, as_of, via))
    return found


def eligible(slots: Iterable[Slot], ads: Mapping[Site, SiteAd]) -> list[Slot]:
    """Slots without a hook at sites that we speak for."""
    return [slot for slot in slots if not slot.hooked and slot.site in ads]


def due(slots: Iterable[Slot], ads: Mapping[Site, SiteAd], refresh: timedelta) -> list[Slot]:
    """Those whose content differs, or whose age is *refresh* behind.

    Those that say nothing come first, and of them those whose startds were heard last: where there are more
    than the pace allows, they have it the longest before the next update.
    """
    behind = int(refresh.total_seconds())
    found = []
    for slot in eligible(slots, ads):
        ad = ads[slot.site]  # type: ignore[index]
        if _is_behind(slot.as_of, ad, behind) or not slot.says(ad):
            found.append(slot)
    return sorted(found, key=lambda slot: (slot.told is not None, -slot.heard, slot.name))


def _is_behind(as_of: object, ad: SiteAd, behind: int) -> bool:
    """Is the age on a slot so far behind that of *ad*, or one that nobody can have read?"""
    at = whole(as_of)
    return at is None or at <= unix(ad.as_of) - behind or is_ahead(at, ad.as_of)


def left_over(
    slots: Iterable[Slot], ads: Mapping[Site, SiteAd], retires: Callable[[Site], bool]
) -> list[Slot]:
    """Slots that carry what we merged for a site that the operator *retires*, or that they left."""
    return [
        slot
        for slot in slots
        if slot.via == OURS
        and slot.site not in ads
        and slot.told is not None
        and (slot.told != slot.site or retires(slot.site))
    ]


def batches(slots: Sequence[Slot], texts: Mapping[Site, str], most: int, most_bytes: int) -> list[list[Slot]]:
    """*slots* in order, so many at a time at most, and not more than *most_bytes* of ads unless it is one."""
    found: list[list[Slot]] = []
    size = 0
    for slot in slots:
        weight = len(texts.get(slot.site or Site(""), ""))
        if not found or len(found[-1]) >= most or size + weight > most_bytes:
            found.append([])
            size = 0
        found[-1].append(slot)
        size += weight
    return found


def expected(ad: SiteAd | None) -> tuple[object, object, object]:
    """The ``content`` of a slot into which *ad* was merged, or from which all was taken back."""
    return (ad.site, ad.generation, unix(ad.as_of)) if ad else (None, None, None)


def arrived(slots: Iterable[Slot], sent: Mapping[Slot, tuple[object, object, object]]) -> tuple[int, int]:
    """Of merges that were *sent*, how many show, and how many do not though nobody renewed their slots."""
    now = {slot.key: slot for slot in slots}
    shown = missing = 0
    for before, content in sent.items():
        slot = now.get(before.key)
        if slot and slot.content == content:
            shown += 1
        elif slot and slot.heard == before.heard:
            missing += 1
    return shown, missing


class SlotTime:
    """How long slots at one collector carried their site's attributes, from one look at them to the next.

    Between two looks a startd's update wipes what was merged: LastHeardFrom, which a merge leaves as it is,
    says when. What was merged by somebody else, or before we started, counts as there all the time.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._since: dict[tuple[str, str], float] = {}

    def looked(self, slots: Iterable[Slot], now: float) -> tuple[float, float]:
        """Slot-seconds covered and not covered since the last look; *now* in Unix seconds."""
        last, self._last = self._last, now
        since, self._since = self._since, {}
        covered = missed = 0.0
        for slot in slots:
            there = slot.told is not None and slot.told == slot.site
            if there:
                self._since[slot.key] = since.get(slot.key, now)
            if last is None or now <= last:
                continue
            begun = max(last, since.get(slot.key, last if there else now))
            ended = now if there else min(now, max(begun, float(slot.heard)))
            covered += max(0.0, ended - begun)
            missed += (now - last) - max(0.0, ended - begun)
        return covered, missed

    def merged(self, slots: Iterable[Slot], now: float) -> None:
        """*slots* carry them from *now* on."""
        for slot in slots:
            self._since[slot.key] = now
