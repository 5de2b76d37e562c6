"""Policies: convert sections of the settings to the policies of the reconciler and of the job tools.

The module also has the system's clock.
"""

from datetime import UTC, datetime, timedelta

from hydrator.config import Settings
from hydrator.config.daemon import DaemonSettings, SitesSettings
from hydrator.config.fields import build_from_section
from hydrator.domain.model import Site, parse_did
from hydrator.domain.sites import SiteMapping
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.openings import PacingPolicy
from hydrator.reconcile.rates import BYTES_PER_GBIT, NetworkPolicy
from hydrator.reconcile.snapshot.removal_guard import GuardLimits
from hydrator.submit.pool_config import PoolPolicy

_MAX_AGE_MARGIN = timedelta(minutes=15)
"""Jobs stop trusting a fact this much earlier than the daemon, before the daemon publishes UNKNOWN."""


def system_clock() -> datetime:
    """Return the aware UTC time now, from the system."""
    return datetime.now(UTC)  # noqa: TID251 - only this function reads the clock


def max_age_of(daemon: DaemonSettings) -> timedelta:
    """Return the age up to which jobs trust a fact, a little less than the daemon's max_age."""
    return daemon.max_age - _MAX_AGE_MARGIN


def reconcile_policy(settings: Settings) -> ReconcilePolicy:
    """Build the policy of the reconciler."""
    scope = settings.daemon.default_scope
    return ReconcilePolicy(
        default_scope=scope,
        pins=frozenset(parse_did(pin, scope) for pin in settings.demand.pins),
        patterns=tuple(settings.demand.patterns),
        max_age=settings.daemon.max_age,
        guard_limits=GuardLimits(
            settings.removal_guard.site_share,
            confirming_polls=settings.removal_guard.confirm_polls,
            poll_spacing=timedelta(
                seconds=settings.daemon.poll_seconds / 2
            ),  # a cycle for new demand follows sooner and must not confirm a loss
        ),
        retired=frozenset(settings.sites.retired),  # type: ignore[arg-type]
        never=settings.publish.never,
    )


def pacing_policy(settings: Settings) -> PacingPolicy:
    """Build the policy of the pacing."""
    return PacingPolicy(
        timedelta(seconds=settings.daemon.poll_seconds),
        frozenset(Site(site) for site in settings.network.excluded_sources),
    )


def pool_policy(settings: Settings) -> PoolPolicy:
    """Build the policy for the pool's configuration; jobs trust facts for a little less than max_age."""
    return build_from_section(
        PoolPolicy,
        settings.jobs,
        default_scope=settings.daemon.default_scope,
        max_age=max_age_of(settings.daemon),
        never=tuple(settings.publish.never),
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


def network_policy(settings: Settings) -> NetworkPolicy:
    """Build the operator's rates in bytes/s, from [network] and [sites.reads]."""
    network = settings.network
    default = network.default_gbit_per_second
    return NetworkPolicy(
        {
            (Site(link.source), Site(link.destination)): link.gbit_per_second * BYTES_PER_GBIT
            for link in network.links
        },
        {Site(site): uplink.gbit_per_second * BYTES_PER_GBIT for site, uplink in network.uplinks.items()},
        default * BYTES_PER_GBIT,
        site_mapping(settings.sites).read_costs,
    )
