"""The simulated world: one daemon process after another, as ``hydrator run`` builds it, over parts in memory.

Every call of a part is a *step*: its latency passes, and the faults of the moment act on it.
"""

import contextlib
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import structlog

from adapters.http.publisher import ServedAds
from hydrator import startd_cron as hook
from hydrator.config import Settings
from hydrator.daemon.daemon import Daemon
from hydrator.daemon.process import ServiceManager
from hydrator.daemon.runtime import Machine
from hydrator.domain.errors import HydratorError
from hydrator.domain.model import Site, Survey, to_unix
from hydrator.domain.sites import MappedCatalogue
from hydrator.reconcile.estimates.rates import RateSource, RateTable
from hydrator.reconcile.publish import Policy, PublishTarget
from hydrator.wiring import (
    NetworkParts,
    Parts,
    estimate_policy,
    network_policy,
    reconcile_policy,
    site_mapping,
)
from hydrator.wiring.condor import PoolParts
from hydrator.wiring.staging import build_staging_parts
from tests.simulation.faults import Fault, Faults
from tests.simulation.laws import Laws
from tests.simulation.loop import Killed, Loop, Process, VirtualScheduler, VirtualThreads
from tests.simulation.parts import (
    AD_LIFETIME,
    Shelf,
    SimulatedCatalogue,
    SimulatedLoads,
    SimulatedPublisher,
    SimulatedQueues,
    SimulatedStore,
    SimulatedWebPublisher,
)
from tests.simulation.truth import Truth

EPOCH: Final = datetime.fromisoformat("2026-11-21T12:00:00+00:00")
RESTART_SECONDS: Final = 5.0
"""Seconds after which systemd starts the daemon again."""
MAX_LATENCY: Final = 0.4
"""Largest latency of a step, in seconds."""


class Server:
    """The HTTP server of one daemon process; the hooks call it without a socket."""

    def __init__(self, process: Process, get_state: Callable[[], Any]) -> None:
        self._process = process
        self._is_running = False
        self.get_state = get_state

    @property
    def url(self) -> str | None:
        return "http://daemon" if self._is_running and not self._process.is_dead else None

    def start(self) -> None:
        self._is_running = True

    def stop(self) -> None:
        self._is_running = False


class Hook:
    """The hook of one slot: it asks its source, keeps a copy, and prints blocks that the slot's ad shows."""

    def __init__(self, world: "World", site: Site, source: str, period: float) -> None:
        self.site = site
        self.source = source
        self.period = period
        self._world = world
        self._cached: dict[str, object] | None = None
        self.shown: Mapping[str, str] = {}
        """The attributes of the slot, as the last block printed them."""

    def run_forever(self) -> None:
        """Run as STARTD_CRON does."""
        while True:
            self._world.loop.sleep(self.period)
            self.run()

    def run(self) -> None:
        """Run once; without an answer print the copy, and without a copy nothing new."""
        now = to_unix(self._world.clock())
        try:
            self._cached = hook.read_ad(self._fetch(), self.site, now)
        except hook.HookError:
            if self._cached is None:
                return
        assert self._cached is not None
        block = hook.locality_block(hook.validate(dict(self._cached), self.site, now), is_update=True)
        lines = [line.partition(" = ") for line in block.decode().splitlines() if " = " in line]
        self.shown = {name: literal for name, _, literal in lines}

    def _fetch(self) -> bytes:
        text = self._world.read_source(self.source, self.site)
        if text is None:
            raise hook.SourceUnavailable(f"{self.source} does not answer")
        return text.encode()


class World:
    """One run: the truth, the parts, the process of the daemon, and the laws that watch it."""

    def __init__(
        self,
        seed: int,
        truth: Truth,
        changes: Sequence[tuple[float, str, Callable[[Truth], Truth]]],
        faults: Sequence[Fault],
        configurations: Sequence[Mapping[str, Any]],
    ) -> None:
        self._random = random.Random(seed)
        self.loop = Loop(seed)
        self.faults = Faults(faults)
        self.truth = truth
        self._truths = [(0.0, truth)]
        self._changes = sorted(changes, key=lambda change: change[0])
        self.configurations = configurations
        self.configuration = 0
        self._clock_offset = 0.0
        self.shelves: dict[str, Shelf] = {}
        self.last_surveys: dict[str, Survey] = {}
        self.laws = Laws(self)
        self.daemon: Daemon | None = None
        self._server: Server | None = None
        self._process = Process("daemon")
        self._store: SimulatedStore | None = None
        self._nature = Process("nature")
        self.steps = 0
        self.hooks: list[Hook] = []
        self.story: list[str] = []

    # ---- time

    def clock(self) -> datetime:
        """Return the wall time."""
        return self.clock_at(self.loop.now)

    def clock_at(self, now: float) -> datetime:
        """Return the wall time at the virtual time *now*, by the clock as it is set now."""
        return EPOCH + timedelta(seconds=now + self._clock_offset)

    def truth_at(self, now: float) -> Truth:
        """Return the truth at the virtual time *now*."""
        return next((truth for at, truth in reversed(self._truths) if at <= now), self._truths[0][1])

    def tell(self, event: str) -> None:
        """Add *event* to the story of this run."""
        self.story.append(f"{self.loop.now:7.1f} s  {event}")

    # ---- steps

    def step(self, process: Process, part: str, seconds: float = MAX_LATENCY) -> dict[str, Fault]:
        """Let a step of *part* take up to *seconds*; return the faults that act on it, by kind.

        Raises:
            Killed: the process was killed, perhaps at this step.
        """
        if process.is_dead:
            raise Killed
        self.steps += 1
        if self.faults.is_kill_due(part, self.loop.now):
            self.tell(f"killed at a step of {part}")
            self.laws.happened(f"a kill at a step of {part.split(maxsplit=1)[0]}")
            self._kill()
            raise Killed
        if seconds:
            self.loop.sleep(self._random.random() * seconds)
        faults = self.faults.active(part, self.loop.now)
        if "hang" in faults:
            self.loop.sleep(faults["hang"].end - self.loop.now)
            faults = self.faults.active(part, self.loop.now)
        return faults

    def read_source(self, source: str, site: Site) -> str | None:
        """Return the ad of *site* as a hook gets it from *source*; None if it does not answer."""
        if self.faults.active(f"hook {source}", self.loop.now):
            return None
        if source == "http":
            server = self._server
            ads = server.get_state().ads if server and server.url else {}
            return ads[site].text if site in ads else None
        shelf = self.shelves.get(source, Shelf())
        if site not in shelf.ads:
            return None
        ad, came = shelf.ads[site]
        is_expired = source == "collector" and self.loop.now - came >= AD_LIFETIME
        return None if is_expired else ad.text

    # ---- the process of the daemon

    def _settings(self, number: int) -> Settings:
        return Settings(**self.configurations[number])

    def _boot(self) -> None:
        """Start a process of the daemon, and watch it as its main thread does."""
        process = self._process = Process("daemon")
        settings = self._settings(self.configuration)
        try:
            store = SimulatedStore.open_to_write(self._folder)
        except HydratorError as error:
            self.tell(f"the daemon does not start: {error}")
            return self._boot_later()
        store.process, store.world = process, self
        self._store = store
        threads = VirtualThreads(self.loop, process)
        machine = Machine(
            self.clock,
            lambda: self.loop.now,
            threads,
            lambda names: VirtualScheduler(self.loop, process, self.clock, names),  # type: ignore[arg-type, return-value]
            lambda settings, clock, get_url=None: self._assemble(process, settings, clock, get_url),
            lambda _http, get_state, *_rest: self._build_server(process, get_state),
        )
        self.loop.spawn("main", process, lambda: self._run_daemon(process, settings, store, machine))
        return None

    def _run_daemon(
        self, process: Process, settings: Settings, store: SimulatedStore, machine: Machine
    ) -> None:
        try:
            self.daemon = daemon = Daemon(Path("none"), settings, store, ServiceManager({}), machine)
            daemon.start()
        except HydratorError as error:
            self.tell(f"the daemon does not start: {error}")
            self._kill()
            raise Killed from None
        self.tell("the daemon runs")
        while not daemon.has_clock_step():
            self.loop.sleep(1)
        self.tell("the daemon ends: clock step")
        daemon.stop()
        self._kill()
        raise Killed

    def _kill(self) -> None:
        """End the process of the daemon; systemd starts it again."""
        process, store = self._process, self._store
        self.loop.kill(process)
        self.daemon = self._server = None
        if store:
            store.world = None
            store.close()
        if "lost state" in self.faults.active("disk", self.loop.now):
            self.tell("the state is lost")
            for file in self._folder.glob("state.sqlite*"):
                file.unlink()
        self._boot_later()

    def _boot_later(self) -> None:
        def boot() -> None:
            self.loop.sleep(RESTART_SECONDS)
            self._boot()

        self.loop.spawn("systemd", self._nature, boot)

    def _build_server(self, process: Process, get_state: Callable[[], Any]) -> Server:
        self._server = Server(process, get_state)
        return self._server

    def _assemble(self, process: Process, settings: Settings, clock: Any, get_url: Any) -> Parts:
        mapping = site_mapping(settings.sites)
        served = ServedAds()
        always = Policy(refresh_after=timedelta(0), has_expiring_ads=False)
        expiring = Policy(refresh_after=timedelta(seconds=AD_LIFETIME / 3), has_expiring_ads=True)
        policy = network_policy(settings)
        catalogues = [SimulatedCatalogue(self, process, name) for name in sorted(self.truth.sites)]
        loads = SimulatedLoads(self, process, "loads")
        pool = PoolParts(None, {}, None, loads, None, None, None, None)  # type: ignore[arg-type]
        return Parts(
            catalogues=tuple(MappedCatalogue(one, mapping) if mapping else one for one in catalogues),
            publish_targets=(
                PublishTarget(SimulatedPublisher(self, process, "file"), always),
                PublishTarget(SimulatedWebPublisher(self, process, served, get_url, clock), always),
                PublishTarget(SimulatedPublisher(self, process, "collector", AD_LIFETIME), expiring),
            ),
            queues=SimulatedQueues(self, process, "schedds"),
            policy=reconcile_policy(settings),
            estimate_policy=estimate_policy(settings),
            pool=pool,
            served_ads=served,
            network=NetworkParts((), policy, RateSource(RateTable(now=clock(), policy=policy))),
            staging=build_staging_parts(settings, clock),
            logins={},
            recounts=(),
            closables=(),
        )

    # ---- nature

    def _let_things_happen(self) -> None:
        """Change the truth, and do what faults do once, each at its time."""
        once = [fault for fault in self.faults.all if not fault.seconds and fault.kind != "kill"]
        events: list[tuple[float, Callable[[], None]]] = [
            *((at, partial(self._change, told, change)) for at, told, change in self._changes),
            *((fault.at, partial(self._strike, fault)) for fault in once),
        ]
        for at, event in sorted(events, key=lambda one: one[0]):
            self.loop.sleep(at - self.loop.now)
            event()

    def _change(self, told: str, change: Callable[[Truth], Truth]) -> None:
        self.tell(told)
        self.truth = change(self.truth)
        self._truths.append((self.loop.now, self.truth))

    def _strike(self, fault: Fault) -> None:
        self.tell(str(fault).split("  ", 1)[1])
        if fault.kind == "clock":
            self._clock_offset += fault.number
            self.laws.note_clock_step()
        elif fault.kind == "configuration":
            self._reload(int(fault.number))
        elif fault.kind == "forget":  # a collector that restarts has no ads
            self.shelves[fault.part.removeprefix("publisher ")].ads.clear()
        else:
            raise ValueError(fault.kind)

    def _reload(self, number: int) -> None:
        """Use another configuration, as after SIGHUP: the process stops and executes itself again."""
        self.configuration = number
        self.laws.note_configuration()
        process, daemon = self._process, self.daemon
        if daemon is None:
            return

        def stop() -> None:
            daemon.stop()
            self._kill()

        self.loop.spawn("reload", process, stop)

    # ---- the run

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        memory = Path("/dev/shm")
        self._folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        for configuration in self.configurations:
            configuration["daemon"]["state_dir"] = self._folder
        try:
            yield
        finally:
            shutil.rmtree(self._folder)

    def run(self, seconds: float) -> None:
        """Run for *seconds* of virtual time; afterwards ``laws.broken`` has what was wrong."""
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
        with self._disk(), patch("hydrator.daemon.cycles.trim_heap"):
            self._boot()
            self.loop.spawn("nature", self._nature, self._let_things_happen)
            for one in self.hooks:
                self.loop.spawn(f"hook at {one.site}", self._nature, one.run_forever)
            self.loop.run(seconds)
            self.laws.check_end()
            self.loop.kill(self._process)
            self.loop.kill(self._nature)
            if self._store:
                self._store.world = None
                self._store.close()
