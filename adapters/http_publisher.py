"""A Publisher: ads on a board that the daemon's own HTTP server shows, read back over loopback."""

import ssl
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import httpx

from hydrator.domain.errors import PublishError
from hydrator.domain.model import PublishedAd, Site, SiteAd
from hydrator.domain.ports import Clock, ServerEndpoint
from hydrator.domain.text import reason_of

from .readback import ReadBackAds, parse_published_ad

READ_BACK_SECONDS: Final = 5.0


class ServedAds:
    """Holds the ads being served, with when each was put up; safe between threads.

    Readers get one immutable state; a change replaces it, so nobody sees half of one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: Mapping[Site, tuple[SiteAd, datetime]] = MappingProxyType({})

    def ads(self) -> Mapping[Site, SiteAd]:
        """What is served now."""
        return {site: ad for site, (ad, _) in self._entries.items()}

    def publish_times(self) -> Mapping[Site, datetime]:
        """When each of them was last put up."""
        return {site: at for site, (_, at) in self._entries.items()}

    def put(self, ads: Collection[SiteAd], now: datetime) -> None:
        """Show *ads*, each in place of what stood there for its site."""
        with self._lock:
            self._entries = MappingProxyType({**self._entries, **{ad.site: (ad, now) for ad in ads}})

    def remove(self, sites: AbstractSet[Site]) -> None:
        """Show nothing for *sites* any more."""
        with self._lock:
            kept = {site: shown for site, shown in self._entries.items() if site not in sites}
            self._entries = MappingProxyType(kept)


class WebPublisher:
    """Publishes by the daemon's own server; nothing counts until that server says so.

    Args:
        board: what the server shows.
        door: how the server is reached; None while it does not run.
        clock: stamps when an ad was put up.
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
        """What the server shows now; see :class:`hydrator.domain.ports.Publisher`."""
        door = self._require_endpoint()
        url = door.url
        headers = {"Authorization": f"Bearer {door.token}"} if door.token else None
        try:
            with _build_client(door) as client:
                answer = client.get(f"{url.rstrip('/')}/v1/sites", headers=headers)
            answer.raise_for_status()
            rows = [_parse_row(row) for row in answer.json()["sites"]]
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as exc:
            raise PublishError(self.name, f"cannot read back from {url}: {reason_of(exc)}") from exc
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            OSError,
        ) as exc:
            raise PublishError(self.name, f"{url} is not our server, or garbled: {reason_of(exc)}") from exc
        found, now = ReadBackAds(), self._clock()
        for site, generation, as_of, heard in rows:
            found.add(site, partial(parse_published_ad, site, generation, as_of, heard, now))
        self.rejected = found.rejected
        return found.adopted_ads

    def publish(self, ads: Sequence[SiteAd]) -> None:
        """Put *ads* on the board, unless no server shows it."""
        self._require_endpoint()
        self._served_ads.put(ads, self._clock())

    def withdraw(self, sites: AbstractSet[Site]) -> None:
        """Take the ads of *sites* off the board, unless no server shows it."""
        self._require_endpoint()
        self._served_ads.remove(sites)

    def _require_endpoint(self) -> ServerEndpoint:
        door = self._endpoint()
        if door is None:
            raise PublishError(self.name, "our HTTP server does not run, so nothing can be read back")
        return door


def _build_client(endpoint: ServerEndpoint) -> httpx.Client:
    """No proxy of the environment stands between us and ourselves; no idle connection is kept."""
    verify = _trust_only(endpoint.certificate) if endpoint.certificate else True
    transport = httpx.HTTPTransport(verify=verify, uds=endpoint.socket)
    return httpx.Client(transport=transport, trust_env=False, timeout=READ_BACK_SECONDS)


def _trust_only(certificate: str) -> ssl.SSLContext:
    """Trust in *certificate* and no other, under whatever name: it is our own, asked for by address."""
    context = ssl.create_default_context(cadata=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def _parse_row(row: Mapping[str, Any]) -> tuple[str, int, int, float]:
    """Read one row of ``GET /v1/sites``; raises ValueError, KeyError or TypeError where it is not one."""
    return str(row["site"]), int(row["generation"]), int(row["as_of"]), float(row["published_at"])
