"""Policies: convert sections of the settings to the policies of the reconciler and of the job tools."""

from collections.abc import Callable, Collection
from datetime import timedelta

from hydrator.config import PrivateSettings, Settings
from hydrator.config.daemon import DaemonSettings, SitesSettings
from hydrator.config.fields import build_from_section
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.sites import SiteMapping
from hydrator.privacy.pseudonyms import Privacy, Pseudonymizer
from hydrator.reconcile.ads.site_ads import Budget
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.snapshot.breaker import BreakerLimits
from hydrator.submit.pool_config import PoolPolicy

_MAX_AGE_MARGIN = timedelta(minutes=15)
"""Jobs stop trusting a fact this much earlier than the daemon, before the daemon publishes UNKNOWN."""


def max_age_of(daemon: DaemonSettings) -> timedelta:
    """Return the age up to which jobs trust a fact, a little less than the daemon's max_age."""
    return daemon.max_age - _MAX_AGE_MARGIN


def reconcile_policy(settings: Settings, pseudonymizer: Pseudonymizer | None = None) -> ReconcilePolicy:
    """Build the policy of the reconciler; without a *pseudonymizer*, the policy leaves out private pins."""
    scope = settings.daemon.default_scope
    is_private = privacy(settings.private).is_private
    pins = [parse_did(pin, scope) for pin in settings.demand.pins]
    everything = ("*",) if settings.demand.scope == "all" else ()
    return ReconcilePolicy(
        default_scope=scope,
        pins=frozenset(
            pseudonymizer.pseudonym(pin) if pseudonymizer else pin
            for pin in pins
            if pseudonymizer or not is_private(pin)
        ),
        patterns=(*settings.demand.patterns, *everything),
        keep_demand=timedelta(hours=settings.demand.keep_hours),
        max_age=settings.daemon.max_age,
        budget=Budget(settings.budget.line_bytes, settings.budget.ad_bytes),
        breaker_limits=BreakerLimits(
            settings.breaker.site_share,
            settings.breaker.all_share,
            settings.breaker.min_datasets,
            settings.breaker.confirm_polls,
            poll_spacing=timedelta(
                seconds=settings.daemon.poll_seconds / 2
            ),  # a cycle for new demand follows sooner and must not confirm a loss
        ),
        audit_window=timedelta(hours=settings.audit.window_hours),
        include_sites=tuple(settings.sites.include),
        retired=frozenset(settings.sites.retired),  # type: ignore[arg-type]
    )


def pool_policy(settings: Settings) -> PoolPolicy:
    """Build the policy for the pool's configuration; jobs trust facts for a little less than max_age."""
    return build_from_section(
        PoolPolicy,
        settings.jobs,
        default_scope=settings.daemon.default_scope,
        max_age=max_age_of(settings.daemon),
        rounding_floor=timedelta(seconds=settings.jobs.rounding_seconds),
    )


def site_mapping(sites: SitesSettings) -> SiteMapping:
    """Build the mapping of sites from [sites.aliases] and [sites.reads]."""
    return SiteMapping(
        {Site(name): Site(site) for name, site in sites.aliases.items()},
        {
            Site(site): {Site(other): cost for other, cost in others.items()}
            for site, others in sites.reads.items()
        },
    )


def privacy(private: PrivateSettings) -> Privacy:
    """Build the object that decides if a dataset is private; this object needs no key."""
    return Privacy(tuple(private.patterns))


def job_name_lookup(pseudonymizer: Pseudonymizer | None) -> Callable[[Did], Collection[Did]]:
    """Return a function that returns the names of a dataset in jobs; a private dataset has pseudonyms."""

    def names(did: Did) -> Collection[Did]:
        return (
            pseudonymizer.pseudonyms(did)
            if pseudonymizer and pseudonymizer.privacy.is_private(did)
            else (did,)
        )

    return names
