"""Publisher over HTTP: the daemon's own HTTP server serves the ads."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from types import MappingProxyType

from hydrator.domain.errors import PublishError
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.domain.ports import Clock


class ServedAds:
    """The ads that the daemon's HTTP server serves, each with its time of publication; thread-safe.

    All ads are in one immutable mapping. A change replaces the mapping, so a reader never sees half a
    change.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: Mapping[Site, tuple[SiteAd, datetime]] = MappingProxyType({})

    def ads(self) -> Mapping[Site, SiteAd]:
        """Return the served ads."""
        return {site: ad for site, (ad, _) in self._entries.items()}

    def publish_times(self) -> Mapping[Site, datetime]:
        """Return the time of the last publication of each served ad."""
        return {site: at for site, (_, at) in self._entries.items()}

    def put(self, ads: Collection[SiteAd], now: datetime) -> None:
        """Serve *ads*; each ad replaces the earlier ad of its site."""
        with self._lock:
            self._entries = MappingProxyType({**self._entries, **{ad.site: (ad, now) for ad in ads}})

    def remove(self, sites: AbstractSet[Site]) -> None:
        """Stop serving the ads of *sites*."""
        with self._lock:
            entries = {site: entry for site, entry in self._entries.items() if site not in sites}
            self._entries = MappingProxyType(entries)


class WebPublisher:
    """A publisher by the daemon's own HTTP server. An ad is published while this server runs and serves it.

    The publisher reads the ads back from the mapping that the server's answers are made of.

    Args:
        served_ads: the ads that the server serves.
        get_url: a function that returns the address of the server; None while the server does not run.
        clock: a function that returns the present time, the time of publication.
    """

    name = "http"
    rejected: Mapping[str, str] = MappingProxyType({})

    def __init__(self, served_ads: ServedAds, get_url: Callable[[], str | None], clock: Clock) -> None:
        self._served_ads = served_ads
        self._get_url = get_url
        self._clock = clock

    def published(self) -> Mapping[Site, PublishedAd]:
        """Read back the served ads; see :class:`hydrator.domain.ports.Publisher`."""
        self._require_server()
        times = self._served_ads.publish_times()
        return {
            site: PublishedAd(site, ad.generation, ad.as_of, times[site], ad.open_until)
            for site, ad in self._served_ads.ads().items()
        }

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Serve *ads*; raise PublishError if the server does not run."""
        self._require_server()
        self._served_ads.put(ads, self._clock())

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Stop serving the ads of *sites*; raise PublishError if the server does not run."""
        self._require_server()
        self._served_ads.remove(sites)

    def _require_server(self) -> None:
        if self._get_url() is None:
            raise PublishError(self.name, "the daemon's HTTP server does not run, so it serves no ads")
