"""Publishers: build every target of site ads, with the rules for when to send unchanged ads again."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from adapters.condor import CondorClient
from adapters.condor.collector import CollectorPublisher
from adapters.files.ad_files import AdFilePublisher
from adapters.files.sites_file import SitesFilePublisher
from adapters.http.publisher import ServedAds, WebPublisher
from hydrator.config import Settings
from hydrator.domain.ports import Clock
from hydrator.reconcile.publish import Policy, PublishTarget

_AD_LIFETIME = timedelta(minutes=15)
"""A collector forgets the site ads this long after the daemon ended; the hooks keep theirs."""
_SITES_FILE_VALID = timedelta(hours=1)
"""Pilots start as if there were no file when it is older."""


def build_publish_targets(
    settings: Settings,
    clock: Clock,
    collectors: Mapping[str, CondorClient],
    served_ads: ServedAds | None,
    get_url: Callable[[], str | None] | None,
) -> Sequence[PublishTarget]:
    """Build every target to which *settings* publish.

    *collectors* has one client for each collector, by the name of the publisher. The HTTP server is a
    target only if *served_ads* and *get_url* are given.
    """
    targets = []
    publish = settings.publish
    always = Policy(refresh_after=timedelta(0), has_expiring_ads=False)
    if publish.file.enabled:
        targets.append(PublishTarget(AdFilePublisher(publish.file.directory, clock), always))
    if publish.sites_file:
        policy = Policy(refresh_after=timedelta(minutes=5), has_expiring_ads=True)
        max_age = settings.daemon.job_max_age
        sites = SitesFilePublisher(
            publish.sites_file, valid_for=_SITES_FILE_VALID, max_age=max_age, clock=clock
        )
        targets.append(PublishTarget(sites, policy))
    if served_ads is not None and get_url is not None:
        targets.append(PublishTarget(WebPublisher(served_ads, get_url, clock), always))
    policy = Policy(refresh_after=_AD_LIFETIME / 3, has_expiring_ads=True)
    for name, client in collectors.items():
        publisher = CollectorPublisher(client, name=name, lifetime=_AD_LIFETIME, clock=clock)
        targets.append(PublishTarget(publisher, policy))
    return targets
