"""Catalogues that tests can break in every way in which such a catalogue can fail."""

import errno
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from adapters.files.catalogue import FileCatalogue, read_descriptor
from adapters.files.directory import catalogue as directory
from adapters.http.client import HttpLimits, JsonClient
from adapters.http.oauth import ClientCredentials, ClientSettings
from adapters.http.rate_limiter import HttpRateLimiter
from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from adapters.ska.dmapi import DmapiCatalogue, DmapiSettings
from hydrator.domain.model import Did, Site
from hydrator.domain.ports import Catalogue, Clock
from testbed.dmapi_standin import CLIENT, DM_AUDIENCE, SECRET, DmapiStandIn, Held
from testbed.faults import FAULTS, REPLICAS, Answer, Fault, FaultProxy
from testbed.rucio_standin import RucioStandIn

LONGEST_REST = timedelta(minutes=15)
"""How long a server is let alone at most, however much longer it asks for."""
Truth = Mapping[Did, Mapping[Site, str]]
"""By dataset and site, ``available`` or ``partial``."""


class Source(ABC):
    """A catalogue with the content of the last :meth:`hold`, which can be broken.

    ``faults`` are the names of its faults; ``harmless`` ones change no answer; ``believable`` ones are
    answers that a healthy server could give, too.
    """

    faults: tuple[str, ...]
    harmless: frozenset[str] = frozenset()
    believable: frozenset[str] = frozenset()
    rests: Mapping[str, timedelta] = {}
    """By fault: for how long the server, which asked for it, is let alone from its first refusal on."""

    @abstractmethod
    def catalogue(self, clock: Clock) -> Catalogue: ...

    @abstractmethod
    def hold(self, truth: Truth) -> None:
        """Record exactly this content, even if no reader can read it now."""

    @abstractmethod
    def break_with(self, fault: str) -> None: ...

    @abstractmethod
    def heal(self) -> None: ...

    @property
    def asked(self) -> int:
        """Return the number of queries that reached the server."""
        return 0


class TurnedTime:
    """A clock of seconds; it advances when a test or a waiting call advances it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slept = 0.0

    def monotonic(self) -> float:
        return self._clock().timestamp() + self._slept

    def sleep(self, seconds: float) -> None:
        self._slept += seconds


class ListedSource(Source):
    """The file catalogue with the faults of a file.

    Root may read everything and has no bad disks, so a seam injects these two faults.
    """

    FAULTS: Mapping[str, Callable[["ListedSource"], None]]
    harmless = frozenset({"reordered", "clock a little ahead"})

    def __init__(self, folder: Path, sites: tuple[Site, ...]) -> None:
        self.path = folder / "catalogue.json"
        self._folder = folder
        self._sites = sites
        self._reading: Callable[[int], bytes] = read_descriptor
        self._spoil: Callable[[], None] | None = None
        self._truth: Truth = {}
        self._now: Clock | None = None

    def catalogue(self, clock: Clock) -> Catalogue:
        self._now = clock
        return FileCatalogue("faulty", self.path, clock, read_all=self._read)

    def _read(self, descriptor: int) -> bytes:
        return self._reading(descriptor)

    def hold(self, truth: Truth) -> None:
        self._truth = truth
        if self._spoil:
            self._spoil()
        else:
            self._write(self.text())

    def break_with(self, fault: str) -> None:
        self._spoil = lambda: self.FAULTS[fault](self)
        self._spoil()

    def heal(self) -> None:
        self._spoil, self._reading = None, read_descriptor
        self._remove()
        self._write(self.text())

    # what it says

    def document(self) -> dict:
        datasets = {did: {"sites": dict(where)} for did, where in self._truth.items()}
        return {"sites": list(self._sites), "count": len(datasets), "datasets": datasets}

    def text(self) -> bytes:
        return json.dumps(self.document()).encode()

    def _write(self, data: bytes) -> None:
        fresh = self._folder / "fresh"
        fresh.write_bytes(data)
        fresh.rename(self.path)

    def _remove(self) -> None:
        if self.path.is_dir():
            self.path.rmdir()
        else:
            self.path.unlink(missing_ok=True)

    # what goes wrong

    def missing(self) -> None:
        self._remove()

    def pipe(self) -> None:
        self._remove()
        os.mkfifo(self.path)

    def folder(self) -> None:
        self._remove()
        self.path.mkdir()

    def unreadable(self) -> None:
        self._reading = _raising(PermissionError(errno.EACCES, "Permission denied"))

    def bad_disk(self) -> None:
        self._reading = _raising(OSError(errno.EIO, "Input/output error"))

    def changing(self) -> None:
        def read(descriptor: int) -> bytes:
            data = read_descriptor(descriptor)
            with self.path.open("ab") as file:
                file.write(b" ")
            return data

        self._reading = read

    def empty(self) -> None:
        self._write(b"")

    def torn(self) -> None:
        text = self.text()
        self._write(text[: len(text) // 2])

    def garbage(self) -> None:
        self._write(bytes(range(256)) * 10)

    def other_shape(self) -> None:
        self._write(b'{"datasets": ["lofar:L0"]}')

    def wrong_count(self) -> None:
        document = self.document()
        document["datasets"].popitem()
        self._write(json.dumps(document).encode())

    def duplicates(self) -> None:
        text = self.text().decode()
        self._write(text.replace('"datasets":', '"datasets": {}, "datasets":').encode())

    def reordered(self) -> None:
        document = self.document()
        document["datasets"] = dict(reversed(document["datasets"].items()))
        self._write(json.dumps(dict(reversed(document.items()))).encode())

    def made_in_the_future(self) -> None:
        self._dated(timedelta(hours=1))

    def made_a_little_ahead(self) -> None:
        self._dated(timedelta(minutes=4))

    def _dated(self, ahead: timedelta) -> None:
        assert self._now
        self._write(json.dumps({**self.document(), "as_of": (self._now() + ahead).isoformat()}).encode())

    def nested_too_deeply(self) -> None:
        self._write(b'{"datasets":' + b"[" * 200_000)

    def garbled_row(self) -> None:
        document = self.document()
        first = min(document["datasets"])
        document["datasets"][first] = {"sites": {"\ud800": 10**400}}
        self._write(json.dumps(document).encode())

    def element_bomb(self) -> None:
        self._write(b'{"datasets": [' + b"[]," * 1_000_001 + b"[]]}")


ListedSource.FAULTS = {
    "missing": ListedSource.missing,
    "a pipe that nobody writes to": ListedSource.pipe,
    "a folder": ListedSource.folder,
    "not readable": ListedSource.unreadable,
    "a bad disk": ListedSource.bad_disk,
    "rewritten all the time": ListedSource.changing,
    "empty": ListedSource.empty,
    "torn": ListedSource.torn,
    "garbage": ListedSource.garbage,
    "of another shape": ListedSource.other_shape,
    "torn, yet JSON": ListedSource.wrong_count,
    "duplicates": ListedSource.duplicates,
    "reordered": ListedSource.reordered,
    "clock ahead": ListedSource.made_in_the_future,
    "clock a little ahead": ListedSource.made_a_little_ahead,
    "huge": ListedSource.nested_too_deeply,
    "garbled row": ListedSource.garbled_row,
    "element bomb": ListedSource.element_bomb,
}
ListedSource.faults = tuple(ListedSource.FAULTS)


def _raising(error: OSError) -> Callable[[int], bytes]:
    def read(_descriptor: int) -> bytes:
        raise error

    return read


class DirectorySource(Source):
    """The directory catalogue with the faults of a site's mount."""

    FAULTS: Mapping[str, Callable[[Path], None]] = {
        "not there": lambda root: None,
        "not mounted": lambda root: root.mkdir(),
        "a plain file": lambda root: root.touch(),
        "a link to nowhere": lambda root: root.symlink_to(root.parent / "nowhere"),
        "a link to itself": lambda root: root.symlink_to(root),
    }
    faults = tuple(FAULTS)
    MARKER = "complete"

    def __init__(self, folder: Path, sites: tuple[Site, ...]) -> None:
        self._roots = {site: folder / "mounted" / site for site in sites}
        self._away = folder / "away"
        for root in self._roots.values():
            (root / "other").mkdir(parents=True)

    def catalogue(self, clock: Clock) -> Catalogue:
        roots = {site: str(root) for site, root in self._roots.items()}
        options = {"roots": roots, "scope": "lofar", "patterns": ["*"], "marker": self.MARKER}
        return directory("faulty", {**options, "settled_minutes": 0}, clock)

    def hold(self, truth: Truth) -> None:
        for site, root in self._roots.items():
            real = self._away / site if self._away.exists() else root
            for left in set(real.iterdir()) - {real / "other"}:
                shutil.rmtree(left)
            for did, where in truth.items():
                if site in where:
                    self._put(real / did.partition(":")[2], whole=where[site] == "available")

    def _put(self, path: Path, *, whole: bool) -> None:
        path.mkdir()
        if whole:
            (path / self.MARKER).touch()
        os.utime(path, (0, 0))

    def break_with(self, fault: str) -> None:
        self._away.mkdir()
        for site, root in self._roots.items():
            root.rename(self._away / site)
            self.FAULTS[fault](root)

    def heal(self) -> None:
        for site, root in self._roots.items():
            if root.is_symlink() or root.is_file():
                root.unlink()
            elif root.exists():
                root.rmdir()
            (self._away / site).rename(root)
        self._away.rmdir()


class HttpSource(Source):
    """A catalogue behind a fault proxy."""

    faults = tuple(FAULTS)
    harmless = frozenset({"duplicates", "reordered", "clock ahead", "clock behind"})
    believable = frozenset({"empty 200 in mid-poll"})

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.patience = 1
        """Factor on the usual time limits of a question and of a poll."""

    def break_with(self, fault: str) -> None:
        self.proxy.fault = FAULTS[fault]

    def heal(self) -> None:
        self.proxy.fault = None

    @property
    def asked(self) -> int:
        return len(self.proxy.asked)


class RucioSource(HttpSource):
    """The Rucio adapter, through the proxy, on a stand-in for Rucio."""

    rests = dict.fromkeys(("429 with Retry-After", "429 in mid-poll"), LONGEST_REST)

    def __init__(self, proxy: FaultProxy, server: RucioStandIn, folder: Path) -> None:
        super().__init__(proxy)
        self._server = server
        self._folder = folder

    def catalogue(self, clock: Callable[[], datetime]) -> Catalogue:
        usual = rucio_settings(self.proxy.url, self._folder)
        longer = replace(
            usual, timeout=usual.timeout * self.patience, deadline=usual.deadline * self.patience
        )
        return rucio_catalogue(longer, clock)

    def hold(self, truth: Truth) -> None:
        self._server.holdings = {
            did: {f"{site}-DISK": state for site, state in where.items()} for did, where in truth.items()
        }


class DmapiSource(HttpSource):
    """The DMAPI adapter, through the proxy, on a stand-in for DMAPI."""

    FAULTS: Mapping[str, Fault] = {
        **FAULTS,
        "an empty list in mid-poll": Fault(
            "an empty list", lambda answer: Answer(200, answer.headers, b"[]"), only=REPLICAS
        ),
    }
    faults = tuple(FAULTS)
    harmless = HttpSource.harmless | {"wrong scope in mid-poll"}  # a location repeats no scope
    believable = frozenset({"an empty list in mid-poll"})
    rests = RucioSource.rests
    FILES = 4

    def __init__(self, proxy: FaultProxy, server: DmapiStandIn, folder: Path) -> None:
        super().__init__(proxy)
        self._server = server
        self._secret = folder / "secret"
        self._secret.write_text(SECRET)

    def catalogue(self, clock: Clock) -> Catalogue:
        who = ClientSettings(self._server.token_url, CLIENT, self._secret, DM_AUDIENCE, "openid")
        limits = HttpLimits(
            timeout=timedelta(seconds=0.5) * self.patience,
            deadline=timedelta(seconds=1.5) * self.patience,
            attempts=2,
            pause=timedelta(milliseconds=1),
            max_bytes=1_000_000,
            max_values=10_000,
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

    def break_with(self, fault: str) -> None:
        self.proxy.fault = self.FAULTS[fault]


def rucio_catalogue(settings: RucioSettings, clock: Clock) -> RucioCatalogue:
    """Build a Rucio catalogue that waits for its turns on *clock*, too."""
    time = TurnedTime(clock)
    return RucioCatalogue(
        settings, clock, HttpRateLimiter(settings.calls_per_second, time.monotonic, time.sleep)
    )


def rucio_settings(url: str, folder: Path, **more: object) -> RucioSettings:
    """Build settings with short timeouts that count all datasets in each poll."""
    login = {
        "name": "faulty",
        "url": url,
        "account": "hydrator",
        "username": "somebody",
        "password": "a-secret-word",
        "token_dir": folder / "tokens",
        "timeout": timedelta(seconds=1),
        "deadline": timedelta(seconds=4),
        "verify_every": timedelta(0),
        "concurrent_calls": 2,
        "max_bytes": 4_000_000,
        "max_values": 40_000,
        **more,
    }
    return RucioSettings(**login)
