"""The simulated world: one daemon process after another, as ``hydrator run`` builds it, over parts in memory.

Every call of a part is a *step*: its latency passes, and the faults of the moment act on it.
"""

import contextlib
import random
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import structlog

from hydrator import startd_cron as hook
from hydrator.config import Settings
from hydrator.daemon.daemon import Daemon
from hydrator.daemon.process import ServiceManager
from hydrator.daemon.runtime import Machine
from hydrator.domain.errors import HydratorError
from hydrator.domain.model import Did, Site, SiteAd, to_unix
from hydrator.reconcile.intake import IntakeCatalogue
from hydrator.reconcile.publish import PublishTarget
from hydrator.reconcile.rates import RateTable
from hydrator.reconcile.snapshot.removal_guard import HoldCause
from hydrator.reconcile.state import Approve
from hydrator.reconcile.view import CycleView, SiteView
from hydrator.state.command_files import CommandQueue
from hydrator.wiring.assembly import NetworkParts, Parts, build_staging_parts
from hydrator.wiring.condor import PoolParts
from tests.simulation.faults import Fault, Faults
from tests.simulation.jobs import Pool, SlotAd
from tests.simulation.laws import Laws
from tests.simulation.loop import Killed, Loop, Process, VirtualScheduler, VirtualThreads
from tests.simulation.parts import (
    AD_LIFETIME,
    Shelf,
    SimulatedCatalogue,
    SimulatedPool,
    SimulatedPublisher,
    SimulatedStore,
    SimulatedWebPublisher,
)
from tests.simulation.truth import Truth

EPOCH: Final = datetime.fromisoformat("2026-11-21T12:00:00+00:00")
RESTART_SECONDS: Final = 5.0
"""Seconds after which systemd starts the daemon again."""
CLOCK_CHECK_SECONDS: Final = 5.0
"""Seconds between two checks of the clock; the daemon takes 1, which would cost many switches."""
UPDATE_SECONDS: Final = 300.0
"""A startd sends its ads to the collector so often, and when a hook says so."""
MAX_LATENCY: Final = 0.4
"""Largest latency of a step, in seconds."""


def _matches(did: Did, patterns: Collection[str]) -> bool:
    return bool(patterns) and any(fnmatchcase(did, pattern) for pattern in patterns)


@lru_cache(10_000)
def _time_after(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


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
        self._copy = b""
        self.shown = SlotAd()
        """The slot's own ad, as the last block printed it."""
        self.collected = self.shown
        """The collector's copy of the slot's ad."""
        self._sent_at = 0.0
        self.updates: list[float] = []
        """The times at which the hook asked the startd to send the slot's ad."""
        self.is_obeyed = True
        """False for a startd of 23.9: it sends its ads at its interval alone."""

    def run_forever(self) -> None:
        """Run as STARTD_CRON does."""
        while True:
            self._world.loop.sleep(self.period)
            self.run()

    def run(self) -> None:
        """Run once; without an answer print the copy, and without a copy nothing new."""
        is_update = False
        try:
            text = self._fetch()
            if text != self._copy:
                is_update, self._copy = self._print(text), text
        except hook.HookError:
            if self._copy:
                self._world.laws.happened("a hook showed its copy")
        if is_update:
            self.updates.append(self._world.loop.now)
        if (is_update and self.is_obeyed) or self._world.loop.now - self._sent_at >= UPDATE_SECONDS:
            self.collected, self._sent_at = self.shown, self._world.loop.now

    def _print(self, text: bytes) -> bool:
        """Print the ad *text*; return True if facts or openings are new: the collector gets it at once."""
        ad = hook.read_ad(text, self.site, to_unix(self._world.clock()))
        generation, shown = "DataLocalityGeneration", self.shown
        is_new = ad[generation] != shown.values.get(generation)
        is_update = is_new or hook.openings_mark(ad) != hook.openings_mark(dict(shown.values))
        blocks = hook.openings_block(ad, is_update) + hook.locality_block(ad, is_new)
        lines = [line.partition(" = ") for line in blocks.decode().splitlines() if " = " in line]
        kept = {} if "DataLocalityOpen" in ad else dict.fromkeys(hook.OPENINGS)  # that block stays
        self.shown = SlotAd(
            {name: shown.literals[name] for name in kept if name in shown.literals}
            | {name: literal for name, _, literal in lines},
            {name: shown.values[name] for name in kept if name in shown.values} | ad,
        )
        return is_update

    def _fetch(self) -> bytes:
        text = self._world.read_source(self.source, self.site)
        if text is None:
            raise hook.SourceUnavailable(f"{self.source} does not answer")
        return text.encode()


class World:
    """One run: the truth, the parts, the process of the daemon, and the laws that watch it."""

    pool_part = SimulatedPool
    """The class of the part that queries schedds and slots."""

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
        self._settings_read: dict[int, Settings] = {}
        self.configuration = 0
        self.loaded_configuration = 0
        """The configuration of the process: it ends some seconds after a change."""
        self._clock_offset = 0.0
        self.shelves: dict[str, Shelf] = {}
        self.laws = Laws(self)
        self.daemon: Daemon | None = None
        self._server: Server | None = None
        self._process = Process("daemon")
        self._store: SimulatedStore | None = None
        self._nature = Process("nature")
        self.steps = 0
        self.hooks: list[Hook] = []
        self.pool: Pool | None = None
        self.is_daemon_gone = False
        self._appointments: list[tuple[float, Callable[[], object]]] = []
        self.story: list[str] = []
        self._wanted = truth, self.configuration, self._find_wanted(truth)

    # ---- time

    def clock(self) -> datetime:
        """Return the wall time."""
        return self.clock_at(self.loop.now)

    def clock_at(self, now: float) -> datetime:
        """Return the wall time at the virtual time *now*, by the clock as it is set now."""
        return _time_after(now + self._clock_offset)

    def truth_at(self, now: float) -> Truth:
        """Return the truth at the virtual time *now*."""
        return next((truth for at, truth in reversed(self._truths) if at <= now), self._truths[0][1])

    # ---- what the present configuration says

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a section of the present configuration."""
        found: Mapping[str, Any] = self.configurations[self.configuration].get(name, {})
        return found

    @property
    def max_age(self) -> float:
        """Return the age in seconds up to which a fact may be shown."""
        return float(self.section("daemon").get("max_age_hours", 6)) * 3600

    @property
    def confirming_polls(self) -> int:
        """Return how many polls must confirm a sudden loss."""
        return int(self.section("removal_guard")["confirm_polls"])

    def shown_as(self, site: Site, number: int | None = None) -> Site:
        """Return the name that *site* has in slots by configuration *number*; by default the present one."""
        configuration = self.configurations[self.configuration if number is None else number]
        return Site(configuration.get("sites", {}).get("aliases", {}).get(site, site))

    def is_private(self, did: Did, number: int | None = None) -> bool:
        """Return True if *did* is never published by configuration *number*; by default the present one."""
        configuration = self.configurations[self.configuration if number is None else number]
        return _matches(did, configuration["publish"].get("never", ()))

    def is_chosen(self, did: Did) -> bool:
        """Return True if a pin or a pattern names *did*, whether or not jobs do."""
        demand = self.section("demand")
        return did in demand["pins"] or _matches(did, demand["patterns"])

    def was_chosen(self, did: Did) -> bool:
        """Return True if a pin or a pattern of any configuration names *did*."""
        demands = [one["demand"] for one in self.configurations]
        return any(did in one["pins"] or _matches(did, one["patterns"]) for one in demands)

    def wanted(self) -> AbstractSet[Did]:
        """Return what jobs in a queue, pins or patterns name; a set with a private dataset is not wanted."""
        truth, configuration, wanted = self._wanted
        if truth is not self.truth or configuration != self.configuration:
            wanted = self._find_wanted(self.truth)
            self._wanted = self.truth, self.configuration, wanted
        return wanted

    def _find_wanted(self, truth: Truth) -> frozenset[Did]:
        sets = [dids for queue in truth.queues.values() for dids in queue]
        named = {did for dids in sets if not any(map(self.is_private, dids)) for did in dids}
        held = {did for shares in truth.shares.values() for did, at in shares.items() if at}
        chosen = filter(self.is_chosen, held.union(self.section("demand")["pins"]))
        return frozenset(did for did in named.union(chosen) if not self.is_private(did))

    def shown_ad(self, publisher: str, site: Site) -> SiteAd | None:
        """Return the ad of *site* that *publisher* shows now."""
        if publisher == "http":
            server = self._server
            return server.get_state().ads.get(site) if server and server.url else None
        shelf = self.shelves.get(publisher)
        ad, came = shelf.ads.get(site, (None, 0.0)) if shelf else (None, 0.0)
        is_expired = publisher == "collector" and self.loop.now - came >= AD_LIFETIME
        return None if is_expired else ad

    def unlisted_sites(self) -> frozenset[Site]:
        """Return the sites that a catalogue no longer lists: it is taken not to have looked there.

        See :class:`hydrator.domain.ports.Catalogue`. So its facts stay until they are too old.
        """
        return frozenset(
            site
            for _, before in self._truths
            for name, sites in before.sites.items()
            for site in sites - self.truth.sites[name]
        )

    @property
    def view(self) -> CycleView | None:
        """Return what the daemon shows of its last cycle."""
        shown = self.daemon._context.cycle_state if self.daemon else None
        return shown.cycle if shown else None

    def _site_views(self) -> Collection[SiteView]:
        """Return what the daemon says of the sites."""
        return self.view.sites if self.view else ()

    def held_sites(self) -> frozenset[Site]:
        """Return the sites whose ads the daemon says that it keeps as they are."""
        return frozenset(one.site for one in self._site_views() if one.held)

    def held_losses(self) -> Collection[Site]:
        """Return the sites with a loss that is not published yet."""
        return [one.site for one in self._site_views() if one.loss]

    def losses_for_a_person(self) -> Collection[Site]:
        """Return the sites with a loss from before the clock was set back, which no poll confirms."""
        return [one.site for one in self._site_views() if one.loss and one.loss.cause is HoldCause.CLOCK]

    def withheld_sites(self) -> Collection[Site]:
        """Return the sites whose ads a daemon without its state does not replace yet."""
        return [one.site for one in self._site_views() if one.withheld]

    def published_sites(self) -> list[Site]:
        """Return the sites of the catalogues that are not retired, by their names in slots."""
        retired = self.section("sites").get("retired", ())
        return sorted({self.shown_as(site) for site in self.truth.all_sites if site not in retired})

    # ---- the story

    def tell(self, event: str) -> None:
        """Add *event* to the story of this run."""
        self.story.append(f"{self.loop.now:7.1f} s  {event}")

    # ---- steps

    def step(
        self, process: Process, part: str, seconds: float = MAX_LATENCY, patience: float | None = None
    ) -> dict[str, Fault]:
        """Let a step of *part* take up to *seconds*; return the faults that act on it, by kind.

        A part that hangs goes on when the fault ends; after *patience* seconds it gives up.

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
            left = faults["hang"].end - self.loop.now
            self.loop.sleep(left if patience is None else min(left, patience))
            if patience is None or left < patience:
                faults = self.faults.active(part, self.loop.now)
        return faults

    def read_source(self, source: str, site: Site) -> str | None:
        """Return the ad of *site* as a hook gets it from *source*; None if it does not answer."""
        if self.faults.active(f"hook {source}", self.loop.now):
            return None
        ad = self.shown_ad(source, site)
        return ad.text if ad else None

    # ---- the process of the daemon

    def _settings(self, number: int) -> Settings:
        if number not in self._settings_read:
            self._settings_read[number] = Settings(**self.configurations[number])
        return self._settings_read[number]

    def _boot(self) -> None:
        """Start a process of the daemon, and watch it as its main thread does."""
        process = self._process = Process("daemon")
        self.loaded_configuration = self.configuration
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
            lambda: VirtualScheduler(self.loop, process, self.clock),  # type: ignore[arg-type, return-value]
            lambda settings, clock, get_url=None: self._assemble(process, settings, clock, get_url),
            lambda _http, sources, *_rest: self._build_server(process, sources.get_state),
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
        self.laws.note_start()
        started_at, offset = self.loop.now, self._clock_offset
        while not daemon.has_clock_step():
            self.loop.wait(lambda: self._clock_offset != offset)  # before that no check sees a step
            self.loop.sleep(CLOCK_CHECK_SECONDS - (self.loop.now - started_at) % CLOCK_CHECK_SECONDS)
        self.tell("the daemon ends: clock step")
        self.laws.happened("the daemon started again because its clock was set")
        daemon.stop()
        self._kill()
        raise Killed

    def _kill(self) -> None:
        """End the process of the daemon; systemd starts it again."""
        process, store = self._process, self._store
        if process.is_dead:
            return
        self.loop.kill(process)
        self.daemon = self._server = None
        if store:
            store.world = None
            store.close()
        if "lost state" in self.faults.active("disk", self.loop.now):
            self.tell("the state is lost")
            self.laws.saved_at = -1.0
            for file in self._folder.glob("state.sqlite*"):
                file.unlink()
        self._boot_later()

    def _boot_later(self) -> None:
        if self.is_daemon_gone:
            return

        def boot() -> None:
            self.loop.sleep(RESTART_SECONDS)
            self._boot()

        self.loop.spawn("systemd", self._nature, boot)

    def _build_server(self, process: Process, get_state: Callable[[], Any]) -> Server:
        self._server = Server(process, get_state)
        return self._server

    def _assemble(self, process: Process, settings: Settings, clock: Any, get_url: Any) -> Parts:
        mapping = settings.sites.mapping
        web_publisher = SimulatedWebPublisher(self, process, get_url, clock)
        catalogues = [SimulatedCatalogue(self, process, name) for name in sorted(self.truth.sites)]
        pool = PoolParts(None, {}, *[None] * 6)
        return Parts(
            settings=settings,
            catalogues=tuple(IntakeCatalogue(one, mapping) if mapping else one for one in catalogues),
            publish_targets=(
                PublishTarget(SimulatedPublisher(self, process, "file")),
                PublishTarget(web_publisher),
                PublishTarget(
                    SimulatedPublisher(self, process, "collector", AD_LIFETIME),
                    timedelta(seconds=AD_LIFETIME / 3),
                ),
            ),
            queues=self.pool_part(self, process),
            pool=pool,
            web_publisher=web_publisher,
            network=NetworkParts((), settings.network, RateTable((), now=clock(), network=settings.network)),
            staging=build_staging_parts(settings, pool),
            workers=(),
            closables=(),
        )

    # ---- nature

    def _let_things_happen(self) -> None:
        """Change the truth, and do what faults do once, each at its time."""
        once = [fault for fault in self.faults.all if not fault.seconds and fault.kind != "kill"]
        events: list[tuple[float, Callable[[], object]]] = [
            *((at, partial(self._change, told, change)) for at, told, change in self._changes),
            *((fault.at, partial(self._strike, fault)) for fault in once),
            *self._appointments,
        ]
        for at, event in sorted(events, key=lambda one: one[0]):
            self.loop.sleep(at - self.loop.now)
            event()

    def _watch(self) -> None:
        while True:
            self.loop.sleep(60)
            self.laws.watch()

    def _change(self, told: str, change: Callable[[Truth], Truth]) -> None:
        self.tell(told)
        self.truth = change(self.truth)
        self._truths.append((self.loop.now, self.truth))

    def _strike(self, fault: Fault) -> None:
        self.tell(str(fault).split("  ", 1)[1])
        if fault.kind == "clock":
            self._clock_offset += fault.number
            self.laws.note_clock_step(fault.number)
        elif fault.kind == "configuration":
            self._reload(int(fault.number))
        elif fault.kind == "approve":
            self._approve()
        elif fault.kind == "gone":
            self.is_daemon_gone = True
            self._kill()
        elif fault.kind == "forget":  # a collector that restarts has no ads
            self.shelves.setdefault(fault.part.removeprefix("publisher "), Shelf()).ads.clear()
            if fault.part == "publisher collector":
                self.laws.note_forgotten()
        else:
            raise ValueError(fault.kind)

    def _approve(self) -> None:
        """Let all held losses leave the ads, as ``hydrator approve`` does."""
        held = self.daemon._context.state.held_losses if self.daemon else {}
        for site, loss in held.items():
            CommandQueue(self._folder).submit(Approve(site, frozenset(loss.missing_polls)))
            self.laws.note_approval(site, loss.missing_polls)

    def _reload(self, number: int) -> None:
        """Use another configuration, as after SIGHUP: the process stops and executes itself again."""
        self.configuration = number
        self.laws.note_configuration()
        self.laws.happened(f"configuration {number} came into use")
        process, daemon = self._process, self.daemon
        if daemon is None:
            return

        def stop() -> None:
            daemon.stop()
            self._kill()

        self.loop.spawn("reload", process, stop)

    def at_times(self, appointments: Sequence[tuple[float, Callable[[], object]]]) -> None:
        """Call each function at its virtual time."""
        self._appointments += appointments

    def store_rows(self) -> dict[str, int]:
        """Return the number of rows of each table on disk."""
        assert self._store is not None
        names = self._store._db.execute("select name from sqlite_master where type = 'table'").fetchall()
        count = "select count(*) from "
        return {name: self._store._db.execute(count + name).fetchone()[0] for (name,) in names}

    # ---- the run

    @contextlib.contextmanager
    def _silence(self) -> Iterator[None]:
        before = structlog.get_config()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
        try:
            yield
        finally:  # later tests of this process read the log
            structlog.configure(**before)

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

    def run(self, seconds: float, after_loss: float = 0.0) -> None:
        """Run for *seconds* of virtual time, and at least *after_loss* seconds after the state was lost.

        Afterwards ``laws.broken`` has what was wrong.
        """
        with self._silence(), self._disk(), patch("hydrator.daemon.cycles.trim_heap", lambda: None):
            self._boot()
            self.loop.spawn("nature", self._nature, self._let_things_happen)
            self.loop.spawn("laws", self._nature, self._watch)
            for one in self.hooks:
                self.loop.spawn(f"hook at {one.site}", self._nature, one.run_forever)
            if self.pool:
                self.loop.spawn("negotiator", self._nature, self.pool.run_forever)
            self.loop.run(seconds)
            self.loop.run(max(seconds, self.laws.lost_at + after_loss))
            self.laws.check_end()
            if self.pool:
                self.pool.check_end()
            self.loop.kill(self._process)
            self.loop.kill(self._nature)
            if self._store:
                self._store.world = None
                self._store.close()
