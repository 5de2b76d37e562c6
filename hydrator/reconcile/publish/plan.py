"""Plan of one publisher: one action for each site, and the reason.

*due* means that the publisher received the ad at least ``refresh_after`` ago. An ad without a newer as_of is
due only if the publisher drops ads after some time. An ad with estimates is due after half of the time for
which they are valid, so that jobs always find valid estimates.

desired  published           newer as_of  due   action
-------  ------------------  -----------  ----  ----------------------------------------
yes      no                  -            -     Publish
yes      another generation  -            -     Publish
yes      same generation     yes          yes   Refresh
yes      same generation     no           yes   Hold: send the ad again, with its age
yes      same generation     -            no    NoOp
no       yes                 -            -     Hold
retired  yes                 -            -     Withdraw
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from hydrator.domain.model import (
    Action,
    Hold,
    NoOp,
    Plan,
    Publish,
    PublishedAd,
    Refresh,
    Site,
    SiteAd,
    Withdraw,
    to_unix,
)


@dataclass(frozen=True, slots=True)
class Policy:
    """The rule of one publisher for sending an unchanged ad again.

    ``refresh_after`` is the maximum time since the publisher received the ad. ``has_expiring_ads`` means
    that the publisher drops ads after some time, so the daemon sends ads again even without newer facts.
    """

    refresh_after: timedelta
    has_expiring_ads: bool


def plan(
    published: Mapping[Site, PublishedAd],
    desired: Mapping[Site, SiteAd],
    *,
    retired: AbstractSet[Site],
    now: datetime,
    policy: Policy,
    withheld_reasons: Mapping[Site, str] | None = None,
) -> Plan:
    """Choose the fewest actions that turn *published* into *desired*.

    A collector forgets an ad after ``ClassAdLifetime`` seconds [1]. So send an unchanged ad again when it is
    ``policy.refresh_after`` old. Withdraw only the ads of *retired* sites: a site that is neither desired nor
    retired keeps its ad.

    Args:
        published: the ads that were read back from the publisher, by site.
        desired: the ads that the publisher should have, by site.
        retired: sites that the operator removed.
        now: aware UTC time of this cycle, read once by the caller.
        policy: the rule for sending an unchanged ad again.
        withheld_reasons: sites whose published ads must not be replaced yet, each with the reason.

    Returns:
        One action per site, ordered by site: equal inputs, equal plan.

    [1] HTCondor manual, admin-manual/configuration/collector, CLASSAD_LIFETIME.
    """
    sites = sorted(published.keys() | (desired.keys() - retired))
    return tuple(
        _action(site, published.get(site), desired.get(site), retired, now, policy, withheld_reasons or {})
        for site in sites
    )


def _action(
    site: Site,
    published_ad: PublishedAd | None,
    ad: SiteAd | None,
    retired: AbstractSet[Site],
    now: datetime,
    policy: Policy,
    withheld_reasons: Mapping[Site, str],
) -> Action:
    if site in retired:
        return Withdraw(site, "the site is retired in the configuration")
    if ad is None:
        return Hold(
            site,
            withheld_reasons.get(
                site, "the daemon has no facts about the site; retire the site to remove its ad"
            ),
        )
    if published_ad is None:
        return Publish(ad, "not published")
    if published_ad.generation != ad.generation:
        return Publish(ad, f"replaces generation {published_ad.generation}")
    is_newer = to_unix(ad.as_of) != to_unix(published_ad.as_of)
    # If the clock was set back, the published as_of may be in the future. Jobs would take that ad for
    # fresh until then, so the ad is due at once.
    is_ahead = to_unix(published_ad.as_of) > to_unix(now)
    # received_at may then be in the future too; without abs() the ad's age would be negative
    age, until = abs(now - published_ad.received_at), ad.estimates_until
    is_due = (is_ahead or age >= policy.refresh_after) and (is_newer or policy.has_expiring_ads)
    if until is not None and now < until:
        is_due = is_due or age >= (until - now) / 2
    if not is_due:
        return NoOp(site)
    if to_unix(ad.as_of) > to_unix(published_ad.as_of):
        return Refresh(ad)
    return Hold(site, f"no newer facts since {ad.as_of:%Y-%m-%d %H:%M:%S} UTC", ad)
