"""Slot coverage: counts of the pool's slots with current, outdated, or no DataLocality attributes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from hydrator.domain.model import Site, SiteAd
from hydrator.domain.ports import SlotAdVersion


class Coverage(StrEnum):
    """The version of the site's ad that a slot has: the current version, another one, or none."""

    CURRENT = "current"  # the generation that the daemon publishes
    OUTDATED = "outdated"  # another generation; the hook's next run brings the current one
    NONE = "none"  # no DataLocality attributes: neither a hook nor a merge has set them


UNKNOWN_SITE = Site("unknown")
"""The name for slots that have no site, or a site that no catalogue covers."""


def count_coverage(
    slots: Iterable[SlotAdVersion], ads: Mapping[Site, SiteAd]
) -> Mapping[Site, Mapping[Coverage, int]]:
    """Count slots by site and coverage.

    Args:
        slots: the slots in the collector.
        ads: the published ads, by site.

    Returns:
        For each site of *ads* and :data:`UNKNOWN_SITE`, the count of every :class:`Coverage`, even if 0.
    """
    counts: dict[Site, Counter[Coverage]] = {site: Counter() for site in (*ads, UNKNOWN_SITE)}
    for slot in slots:
        site = Site(slot.site or "")
        counts[site if site in ads else UNKNOWN_SITE][_slot_coverage(slot, ads.get(site))] += 1
    return {site: {kind: kinds[kind] for kind in Coverage} for site, kinds in counts.items()}


def _slot_coverage(slot: SlotAdVersion, ad: SiteAd | None) -> Coverage:
    if slot.generation is None:
        return Coverage.NONE
    return Coverage.CURRENT if ad and slot.generation == ad.generation else Coverage.OUTDATED
