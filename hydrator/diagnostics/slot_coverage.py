"""How much of the pool carries our attributes: the share of slots that a job can be matched by."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from hydrator.domain.model import Site, SiteAd
from hydrator.domain.ports import SlotAdVersion


class Coverage(StrEnum):
    """What a slot carries of its site's ad."""

    CURRENT = "current"  # the generation that we publish
    OUTDATED = "outdated"  # another generation, until the next run of the hook
    NONE = "none"  # no ad: neither a hook nor a merge has reached the slot


UNKNOWN_SITE = Site("unknown")
"""Where slots are counted that say no site, or one that no catalogue speaks for."""


def count_coverage(
    slots: Iterable[SlotAdVersion], ads: Mapping[Site, SiteAd]
) -> Mapping[Site, Mapping[Coverage, int]]:
    """Slots by site and by what they carry.

    Args:
        slots: the pool's, as the collector has them.
        ads: what we publish, by site.

    Returns:
        Every site of *ads*, and :data:`UNKNOWN_SITE`, each with every kind, also those of no slot.
    """
    counted: dict[Site, Counter[Coverage]] = {site: Counter() for site in (*ads, UNKNOWN_SITE)}
    for slot in slots:
        site = Site(slot.site or "")
        counted[site if site in ads else UNKNOWN_SITE][_slot_coverage(slot, ads.get(site))] += 1
    return {site: {kind: kinds[kind] for kind in Coverage} for site, kinds in counted.items()}


def _slot_coverage(slot: SlotAdVersion, ad: SiteAd | None) -> Coverage:
    if slot.generation is None:
        return Coverage.NONE
    return Coverage.CURRENT if ad and slot.generation == ad.generation else Coverage.OUTDATED
