"""Publisher over HTTP: the daemon's own HTTP server serves the ads."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from types import MappingProxyType

from hydrator.domain.errors import PublishError
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.domain.ports import Clock


class WebPublisher:
    """A publisher by the daemon's own HTTP server. An ad is published while this server runs and serves it.

    The server's answers are made of the ads here. All ads are in one immutable mapping. A change replaces the
    mapping, so a reader in another thread never sees half a change.

    Args:
        get_url: a function that returns the address of the server; None while the server does not run.
        clock: a function that returns the present time, the time of publication.
    """

    name = "http"
    rejected: Mapping[str, str] = MappingProxyType({})

    def __init__(self, get_url: Callable[[], str | None], clock: Clock) -> None:
        self._get_url = get_url
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: Mapping[Site, tuple[SiteAd, datetime]] = MappingProxyType({})

    def ads(self) -> Mapping[Site, SiteAd]:
        """Return the served ads."""
        return {site: ad for site, (ad, _) in self._entries.items()}

    def publish_times(self) -> Mapping[Site, datetime]:
        """Return the time of the last publication of each served ad."""
        return {site: at for site, (_, at) in self._entries.items()}

    def put(self, ads: Collection[SiteAd]) -> None:
        """Serve *ads*, also before the server runs; each ad replaces the earlier ad of its site."""
        now = self._clock()
        with self._lock:
            self._entries = MappingProxyType({**self._entries, **{ad.site: (ad, now) for ad in ads}})

    def published(self) -> Mapping[Site, PublishedAd]:
        """Read back the served ads; see :class:`hydrator.domain.ports.Publisher`."""
        self._require_server()
        return {
            site: PublishedAd(site, ad.generation, ad.as_of, at, ad.open_until)
            for site, (ad, at) in self._entries.items()
        }

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Serve *ads*; raise PublishError if the server does not run."""
        self._require_server()
        self.put(ads)

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Stop serving the ads of *sites*; raise PublishError if the server does not run."""
        self._require_server()
        with self._lock:
            entries = {site: entry for site, entry in self._entries.items() if site not in sites}
            self._entries = MappingProxyType(entries)

    def _require_server(self) -> None:
        if self._get_url() is None:
            raise PublishError(self.name, "the daemon's HTTP server does not run, so it serves no ads")
