"""What the core works by, from the settings; nothing is opened for it."""

from collections.abc import Callable, Collection
from datetime import timedelta

from hydrator.config import Settings
from hydrator.domain.model import Did, Site, parse_did
from hydrator.domain.sites import Places
from hydrator.privacy.pseudonyms import Privacy, Veil
from hydrator.reconcile.ads.site_ads import Budget
from hydrator.reconcile.reconciler import Rules
from hydrator.reconcile.snapshot.breaker import Limits
from hydrator.submit.pool_config import PoolPolicy

_MARGIN = timedelta(minutes=15)
"""How much sooner jobs stop trusting a fact than the daemon does: they never meet an UNKNOWN first."""


def max_age_of(settings: Settings) -> timedelta:
    """How long jobs trust a fact."""
    return settings.daemon.bound - _MARGIN


def rules(settings: Settings, veil: Veil | None = None) -> Rules:
    """The part of *settings* that the core works by; without a *veil*, private pins are left out."""
    scope = settings.daemon.default_scope
    hides = privacy(settings).hides
    pins = [parse_did(pin, scope) for pin in settings.demand.pins]
    everything = ("*",) if settings.demand.scope == "all" else ()
    return Rules(
        default_scope=scope,
        pins=frozenset(veil.opaque(pin) if veil else pin for pin in pins if veil or not hides(pin)),
        patterns=(*settings.demand.patterns, *everything),
        keep_demand=timedelta(hours=settings.demand.keep_hours),
        bound=settings.daemon.bound,
        budget=Budget(settings.budget.line_bytes, settings.budget.ad_bytes),
        limits=Limits(
            settings.breaker.site_share,
            settings.breaker.all_share,
            settings.breaker.min_datasets,
            settings.breaker.confirm_polls,
            apart=timedelta(seconds=settings.daemon.poll_seconds / 2),  # a cycle for new demand is no poll
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


def places(settings: Settings) -> Places:
    """What the operator says of sites: other names, and whose storage they read."""
    return Places(
        {Site(name): Site(site) for name, site in settings.sites.aliases.items()},
        {
            Site(site): {Site(other): cost for other, cost in others.items()}
            for site, others in settings.sites.reads.items()
        },
    )


def privacy(settings: Settings) -> Privacy:
    """Which datasets are private; needs no key."""
    return Privacy(tuple(settings.private.patterns))


def called(veil: Veil | None) -> Callable[[Did], Collection[Did]]:
    """What jobs may call a dataset: itself, or where it is private its opaque names alone."""

    def names(did: Did) -> Collection[Did]:
        return veil.names(did) if veil and veil.privacy.hides(did) else (did,)

    return names
