"""Catalogues behind a proxy that can break them, and a reader that knows the truth at every moment."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from adapters.http.client import HttpLimits, JsonClient
from adapters.http.oauth import ClientCredentials, ClientSettings
from adapters.http.rate_limiter import HttpRateLimiter
from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from adapters.ska.dmapi import DmapiCatalogue, DmapiSettings
from hydrator.domain.errors import CatalogueError
from hydrator.domain.model import DatasetState, Did, Seen, Site, Survey
from hydrator.domain.ports import Catalogue, Clock
from testbed.dmapi_standin import CLIENT, DM_AUDIENCE, SECRET, Held
from testbed.faults import FAULTS, REPLICAS, Answer, Fault, FaultProxy
from tests.factories import MINUTE, NOON

CAM, RAL = Site("CAM"), Site("RAL")
DIDS = tuple(Did(f"lofar:L{number}") for number in range(8))
Truth = Mapping[Did, Mapping[Site, str]]
"""By dataset and site, ``available`` or ``partial``."""
FULL: Truth = {
    did: {CAM: "available", RAL: "partial"} if number % 2 else {CAM: "available"}
    for number, did in enumerate(DIDS)
}
SHRUNK: Truth = {did: where if number < 2 else {} for number, (did, where) in enumerate(FULL.items())}
"""Most of it has left."""
WORDS = {DatasetState.AVAILABLE: "available", DatasetState.PARTIAL: "partial"}
LONGEST_REST = timedelta(minutes=2)
"""How long a server is let alone at most, however much longer it asks for."""


class Source:
    """A catalogue behind a fault proxy.

    ``harmless`` are the names of faults that change no answer; ``believable`` ones are answers that a
    healthy server could give, too. In ``pauses`` the server asks to be let alone.
    """

    # an answer that drips ends a worker: test_worker_faults
    faults: Mapping[str, Fault] = {name: fault for name, fault in FAULTS.items() if "drip" not in name}
    harmless = frozenset(
        {"duplicates", "reordered", "clock ahead", "clock behind", "a key given twice in mid-poll"}
    )
    believable = frozenset({"empty 200 in mid-poll"})
    pauses = frozenset({"429 with Retry-After", "429 in mid-poll"})

    def __init__(self, proxy: FaultProxy, server: Any, folder: Path) -> None:
        self.proxy = proxy
        self._server = server
        self._folder = folder

    def catalogue(self, clock: Clock) -> Catalogue:
        """Build the catalogue, with short time limits."""
        raise NotImplementedError

    def hold(self, truth: Truth) -> None:
        """Let the server have exactly this content."""


class Asked:
    """A catalogue that is asked once a minute, and the truth by time; each reading is compared with it."""

    def __init__(self, source: Source) -> None:
        self.now = NOON
        self.source = source
        self.catalogue = source.catalogue(lambda: self.now)
        self.fault = ""
        self._truths: list[tuple[datetime, Truth]] = []

    def hold(self, truth: Truth) -> None:
        """Make this the truth from now on, a second after everything before."""
        self.now += timedelta(seconds=1)
        self._truths.append((self.now, truth))
        self.source.hold(truth)

    def break_with(self, fault: str) -> None:
        """Break all answers, until this is called with an empty text."""
        if self.fault in self.source.pauses:
            self.now += LONGEST_REST
        self.fault, self.source.proxy.fault = fault, self.source.faults.get(fault)

    def read(self) -> frozenset[Did]:
        """Ask about all datasets; return those that were seen. Fail if a reading was never true."""
        self.now += MINUTE
        try:
            survey = self.catalogue.read(frozenset(DIDS))
        except CatalogueError:
            return frozenset()
        seen = {did: reading for did, reading in survey.readings.items() if isinstance(reading, Seen)}
        if self.fault not in self.source.believable:
            for did, reading in seen.items():
                assert says(reading, survey) == self._truth(reading.as_of)[did], did
        return frozenset(seen)

    def until_well(self) -> None:
        """Ask until all datasets are seen as they are now; on a busy machine a poll may reach its limit."""
        assert any(self.read() == set(DIDS) for _ in range(15)), self.fault

    def _truth(self, at: datetime) -> Truth:
        return next(truth for since, truth in reversed(self._truths) if since <= at)


def says(reading: Seen, survey: Survey) -> Mapping[Site, str]:
    """Return what *reading* reports of each site; both sites must have been looked at."""
    assert survey.sites >= {CAM, RAL}
    assert not reading.unreachable_sites
    return {replica.site: WORDS[replica.state] for replica in reading.replicas}


class RucioSource(Source):
    """The Rucio adapter, through the proxy, on a stand-in for Rucio."""

    def catalogue(self, clock: Callable[[], datetime]) -> Catalogue:
        settings = RucioSettings(
            "faulty",
            self.proxy.url,
            account="hydrator",
            username="somebody",
            password="a-secret-word",
            token_dir=self._folder / "tokens",
            timeout=timedelta(seconds=1),
            deadline=timedelta(seconds=4),
            verify_every=timedelta(0),
        )
        time = TurnedTime(clock)
        limiter = HttpRateLimiter(settings.calls_per_second, time.monotonic, time.sleep)
        return RucioCatalogue(settings, clock, limiter)

    def hold(self, truth: Truth) -> None:
        self._server.holdings = {
            did: {f"{site}-DISK": state for site, state in where.items()} for did, where in truth.items()
        }


class DmapiSource(Source):
    """The DMAPI adapter, through the proxy, on a stand-in for DMAPI."""

    faults: Mapping[str, Fault] = {
        **Source.faults,
        "an empty list in mid-poll": Fault(
            "an empty list", lambda answer: Answer(200, answer.headers, b"[]"), only=REPLICAS
        ),
    }
    harmless = Source.harmless | {"wrong scope in mid-poll"}  # a location repeats no scope
    believable = frozenset({"an empty list in mid-poll"})
    FILES = 4

    def catalogue(self, clock: Clock) -> Catalogue:
        secret = self._folder / "secret"
        secret.write_text(SECRET)
        who = ClientSettings(self._server.token_url, CLIENT, secret, DM_AUDIENCE, "openid")
        limits = HttpLimits(
            timeout=timedelta(seconds=0.5),
            deadline=timedelta(seconds=1.5),
            attempts=2,
            pause=timedelta(milliseconds=1),
        )
        time = TurnedTime(clock)
        server = JsonClient(
            "faulty",
            self.proxy.url + self._server.url.removeprefix(self._server.root),
            token_source=ClientCredentials("faulty", who, clock, limits=limits),
            limits=limits,
            rate_limiter=HttpRateLimiter(limits.calls_per_second, time.monotonic, time.sleep),
        )
        settings = DmapiSettings(
            "faulty",
            storage_sites={"CAM-DISK": ("CAM",), "RAL-DISK": ("RAL",)},
            deadline=limits.deadline,
            size_every=timedelta(0),
        )
        return DmapiCatalogue(settings, server, clock)

    def hold(self, truth: Truth) -> None:
        counts = {"available": self.FILES, "partial": self.FILES // 2}
        self._server.held = {
            did: Held(self.FILES, {f"{site}-DISK": counts[state] for site, state in where.items()})
            for did, where in truth.items()
        }


class TurnedTime:
    """A clock of seconds; it advances when a test or a waiting call advances it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slept = 0.0

    def monotonic(self) -> float:
        return self._clock().timestamp() + self._slept

    def sleep(self, seconds: float) -> None:
        self._slept += seconds
