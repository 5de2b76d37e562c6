"""What the core works by, from the settings; nothing is opened for it."""

from collections.abc import Callable, Collection
from datetime import timedelta

from hydrator.config import Settings
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.sites import SiteMapping
from hydrator.privacy.pseudonyms import Privacy, Pseudonymizer
from hydrator.reconcile.ads.site_ads import Budget
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.snapshot.breaker import BreakerLimits
from hydrator.submit.pool_config import PoolPolicy

_MAX_AGE_MARGIN = timedelta(minutes=15)
"""How much sooner jobs stop trusting a fact than the daemon does: they never meet an UNKNOWN first."""


def max_age_of(settings: Settings) -> timedelta:
    """How long jobs trust a fact."""
    return settings.daemon.max_age - _MAX_AGE_MARGIN


def reconcile_policy(settings: Settings, pseudonymizer: Pseudonymizer | None = None) -> ReconcilePolicy:
    """The part of *settings* that the core works by; without a *veil*, private pins are left out."""
    scope = settings.daemon.default_scope
    hides = privacy(settings).is_private
    pins = [parse_did(pin, scope) for pin in settings.demand.pins]
    everything = ("*",) if settings.demand.scope == "all" else ()
    return ReconcilePolicy(
        default_scope=scope,
        pins=frozenset(
            pseudonymizer.pseudonym(pin) if pseudonymizer else pin
            for pin in pins
            if pseudonymizer or not hides(pin)
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
            ),  # a cycle for new demand is no poll
        ),
        audit_window=timedelta(hours=settings.audit.window_hours),
        include_sites=tuple(settings.sites.include),
        retired=frozenset(settings.sites.retired),  # type: ignore[arg-type]
    )


def pool_policy(settings: Settings) -> PoolPolicy:
    """What the pool's configuration says of jobs; facts count a little less long than they are published."""
    jobs = settings.jobs
    return PoolPolicy(
        default_mode=jobs.default_mode,
        default_scope=settings.daemon.default_scope,
        max_age=max_age_of(settings),
        wait=timedelta(seconds=jobs.wait_seconds),
        settle=timedelta(seconds=jobs.settle_seconds),
        rounding_floor=timedelta(seconds=jobs.rounding_seconds),
        rank_weight=jobs.rank_weight,
        staging_credit=jobs.staging_credit,
    )


def site_mapping(settings: Settings) -> SiteMapping:
    """What the operator says of sites: other names, and whose storage they read."""
    return SiteMapping(
        {Site(name): Site(site) for name, site in settings.sites.aliases.items()},
        {
            Site(site): {Site(other): cost for other, cost in others.items()}
            for site, others in settings.sites.reads.items()
        },
    )


def privacy(settings: Settings) -> Privacy:
    """Which datasets are private; needs no key."""
    return Privacy(tuple(settings.private.patterns))


def job_name_lookup(pseudonymizer: Pseudonymizer | None) -> Callable[[Did], Collection[Did]]:
    """What jobs may call a dataset: itself, or where it is private its opaque names alone."""

    def names(did: Did) -> Collection[Did]:
        return (
            pseudonymizer.pseudonyms(did)
            if pseudonymizer and pseudonymizer.privacy.is_private(did)
            else (did,)
        )

    return names
