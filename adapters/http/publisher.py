"""Publisher over HTTP: the daemon's own HTTP server serves the ads; the publisher reads them back from it."""

import ssl
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import httpx

from adapters.readback import ReadBackAds, parse_published_ad
from hydrator.domain.errors import PublishError
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.domain.ports import Clock, ServerEndpoint
from hydrator.domain.text import reason_of

READ_BACK_SECONDS: Final = 5.0


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
    """A publisher by the daemon's own HTTP server. An ad is published when this server returns the ad.

    Args:
        served_ads: the ads that the server serves.
        endpoint: a function that returns the address of the server; None while the server does not run.
        clock: a function that returns the present time, the time of publication.
    """

    name = "http"

    def __init__(
        self, served_ads: ServedAds, endpoint: Callable[[], ServerEndpoint | None], clock: Clock
    ) -> None:
        self._served_ads = served_ads
        self._endpoint = endpoint
        self._clock = clock
        self.rejected: Mapping[str, str] = {}

    def published(self) -> Mapping[Site, PublishedAd]:
        """Read back the served ads; see :class:`hydrator.domain.ports.Publisher`."""
        endpoint = self._require_endpoint()
        url = endpoint.url
        headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else None
        try:
            with _build_client(endpoint) as client:
                response = client.get(f"{url.rstrip('/')}/v1/sites", headers=headers)
            response.raise_for_status()
            rows = [_parse_row(row) for row in response.json()["sites"]]
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as exc:
            raise PublishError(self.name, f"cannot read the ads back from {url}: {reason_of(exc)}") from exc
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            OSError,
        ) as exc:
            raise PublishError(
                self.name, f"{url} is not the daemon's server, or its answer is garbled: {reason_of(exc)}"
            ) from exc
        ads, now = ReadBackAds(), self._clock()
        for site, generation, as_of, published_at in rows:
            ads.add(site, partial(parse_published_ad, site, generation, as_of, published_at, now))
        self.rejected = ads.rejected
        return ads.adopted_ads

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Serve *ads*; raise PublishError if the server does not run."""
        self._require_endpoint()
        self._served_ads.put(ads, self._clock())

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Stop serving the ads of *sites*; raise PublishError if the server does not run."""
        self._require_endpoint()
        self._served_ads.remove(sites)

    def _require_endpoint(self) -> ServerEndpoint:
        endpoint = self._endpoint()
        if endpoint is None:
            raise PublishError(self.name, "the daemon's HTTP server does not run, so ads cannot be read back")
        return endpoint


def _build_client(endpoint: ServerEndpoint) -> httpx.Client:
    """Build a client for one request to this daemon's own server; ignore the proxies of the environment."""
    verify = _trust_only(endpoint.certificate) if endpoint.certificate else _trust_none()
    transport = httpx.HTTPTransport(verify=verify, uds=endpoint.socket)
    return httpx.Client(transport=transport, trust_env=False, timeout=READ_BACK_SECONDS)


def _trust_none() -> ssl.SSLContext:
    """Build a TLS context that trusts no certificate, for plain HTTP.

    With httpx's default each read-back would parse the machine's whole bundle of authorities: a third to a
    half of the CPU time of a daemon that polls each second.
    """
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _trust_only(certificate: str) -> ssl.SSLContext:
    """Build a TLS context that trusts *certificate* only.

    Do not check the name in the certificate, because the client connects to an address, not to a name.
    """
    context = ssl.create_default_context(cadata=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def _parse_row(row: Mapping[str, Any]) -> tuple[str, int, int, float]:
    """Parse one row of ``GET /v1/sites``; raise ValueError, KeyError or TypeError if the row is wrong."""
    return str(row["site"]), int(row["generation"]), int(row["as_of"]), float(row["published_at"])
