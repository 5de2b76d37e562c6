"""Generations of site ads: a new number if, and only if, the content of an ad changes."""

from collections.abc import Mapping
from datetime import datetime

from hydrator.domain.ads.contract import ESTIMATE_ATTRIBUTES
from hydrator.domain.model import Site, SiteAd, to_unix
from hydrator.domain.untrusted import is_ahead

from .drafts import Draft


def assign_generations(
    drafts: Mapping[Site, Draft],
    previous_ads: Mapping[Site, SiteAd],
    *,
    published_generations: Mapping[Site, int],
    now: datetime,
) -> dict[Site, SiteAd]:
    """Return the ad of every draft, with a new generation only if the content changed.

    A generation is a Unix time. If a generation is ``MAX_AHEAD`` or more ahead of *now*, the
    generation was forged or the clock was wrong. Hooks reject an ad with this generation, so the ad gets
    a new generation, which starts from *now*.

    Args:
        drafts: by site, the content to advertise.
        previous_ads: by site, the last ad that got a generation.
        published_generations: by site, the highest generation read back from any publisher, so that a
            daemon that lost its state does not send a lower generation.
        now: aware UTC time of this cycle.
    """
    ads = {}
    for site, draft in drafts.items():
        old = previous_ads.get(site)
        published_generation = _plausible_generation(published_generations.get(site, 0), now)
        if (
            old
            and old.content == draft.content
            and old.generation >= published_generation
            and not is_ahead(old.generation, now)
        ):
            generation = old.generation
        else:
            highest = max(_plausible_generation(old.generation, now) if old else 0, published_generation)
            generation = max(highest + 1, to_unix(now))
        ads[site] = SiteAd(site, min(draft.as_of, now), generation, draft.content, draft.estimates_until)
    return ads


def find_estimate_rewrites(
    previous_ads: Mapping[Site, SiteAd], ads: Mapping[Site, SiteAd]
) -> frozenset[Site]:
    """Return the sites of *ads* that have another content than in *previous_ads* for estimates alone."""
    changed = ((site, previous_ads[site], ad) for site, ad in ads.items() if site in previous_ads)
    return frozenset(
        site
        for site, old, ad in changed
        if ad.content != old.content and _without_estimates(ad) == _without_estimates(old)
    )


def _without_estimates(ad: SiteAd) -> list[tuple[str, str]]:
    return [line for line in ad.content if line[0] not in ESTIMATE_ATTRIBUTES]


def _plausible_generation(generation: int, now: datetime) -> int:
    """Return *generation*, or 0 if it is so far ahead of *now* that hooks reject it."""
    return 0 if is_ahead(generation, now) else generation
