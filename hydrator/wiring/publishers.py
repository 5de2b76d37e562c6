"""Where site ads go, and how often."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from adapters.condor import CondorClient
from adapters.condor.collector import CollectorPublisher
from adapters.files.ad_files import AdFilePublisher
from adapters.files.sites_file import SitesFilePublisher
from adapters.http_publisher import Board, WebPublisher
from hydrator.config import Settings
from hydrator.domain.ports import Clock, Door
from hydrator.reconcile.plan import Policy
from hydrator.reconcile.reconciler import Outlet

from .policies import max_age_of


def outlets_of(
    settings: Settings,
    clock: Clock,
    collectors: Mapping[str, CondorClient],
    board: Board | None,
    door: Callable[[], Door | None] | None,
) -> Sequence[Outlet]:
    """Every place that *settings* publish to; nothing is served without a *board* and a *door* to it.

    *collectors* are the clients that publish to collectors, by the name of the publisher.
    """
    outlets = []
    publish = settings.publish
    always = Policy(refresh_after=timedelta(0), expires=False)
    if publish.file.enabled:
        outlets.append(Outlet(AdFilePublisher(publish.file.directory, clock), always))
    if publish.sites.enabled:
        valid = timedelta(minutes=publish.sites.valid_minutes)
        policy = Policy(refresh_after=min(valid / 3, timedelta(minutes=5)), expires=True)
        max_age = max_age_of(settings)
        sites = SitesFilePublisher(publish.sites.path, valid=valid, max_age=max_age, clock=clock)
        outlets.append(Outlet(sites, policy))
    if board is not None and door is not None:
        outlets.append(Outlet(WebPublisher(board, door, clock), always))
    lifetime = timedelta(seconds=publish.collector.lifetime_seconds)
    policy = Policy(refresh_after=min(lifetime / 3, timedelta(minutes=5)), expires=True)
    for name, client in collectors.items():
        others = settings.standby.identities
        publisher = CollectorPublisher(client, name=name, lifetime=lifetime, clock=clock, identities=others)
        outlets.append(Outlet(publisher, policy))
    return outlets
