"""Time from the end of a real Rucio's rule until the slot's ad has it, and Rucio's own share."""

import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from adapters.stomp.source import StompSettings, StompSource
from testbed.demo import RucioHoldings
from testbed.pool import Pool
from testbed.rabbitmq import USER, RabbitMq
from testbed.rucio import VERSION, RucioServer

from .freshness import (
    GOALS,
    GOALS_WITH_EVENTS,
    Change,
    Key,
    Plan,
    Samples,
    dataset_names,
    site_specs,
    spread_of,
    watch_changes,
)
from .record import Figure, Result, round_samples

Command = tuple[str, Mapping[str, Any]]
"""A command of ``testbed/rucio_seed.py`` with its arguments."""

SCOPE = "bench"
TOPIC = "/topic/rucio.events"
FILES = 4
DAEMONS_SECONDS = 10.0
"""Pauses of Rucio's daemons hermes and abacus between two runs, by default."""


class Completions:
    """Rules that Rucio carries out, one dataset at one site at a time; each site waits for another one then.

    Inside this context abacus recounts at intervals and, with a broker, hermes sends its messages.
    """

    def __init__(
        self, plan: Plan, server: RucioServer, holdings: RucioHoldings, broker: RabbitMq | None, rest: float
    ) -> None:
        self._plan = plan
        self._server = server
        self._rest = rest
        self._disks = dict(holdings.disks)
        self._random = random.Random(2)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._fresh: dict[Key, Change] = {}
        self._to_come = {site: dataset_names(plan) for site in self._disks}
        self.here: dict[Key, bool] = {
            (site, did): False for site, dids in self._to_come.items() for did in dids
        }
        self.first: dict[str, dict[Key, float]] = {"slot": {}, "site": {}}
        self.done: dict[Key, float] = {}
        self._daemons: list[Command] = [("abacus", {})]
        if broker:
            where = {"port": broker.port, "username": USER, "password": broker.password}
            self._daemons.append(("tell", {**where, "destination": TOPIC}))
        for did in dataset_names(plan):
            holdings.put(did, {})
            server.seed(("replicate", {"did": did, "rse": holdings.origin}))  # its origin has it
        server.seed(*(self._promise(site) for site in self._disks), ("abacus", {}))

    def __enter__(self) -> Self:
        self._threads = ThreadPoolExecutor(2)
        self._serving = self._threads.submit(self._serve)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._threads.shutdown()
        self._serving.result()

    @contextmanager
    def run_changes(self) -> Iterator[None]:
        enough = threading.Event()
        conveying = self._threads.submit(self._convey, enough)
        try:
            yield
        finally:
            enough.set()
        conveying.result()

    def take_changes(self, busy: AbstractSet[Key]) -> Mapping[Key, Change]:  # noqa: ARG002 - a rule is done once
        with self._lock:
            fresh, self._fresh = self._fresh, {}
        return fresh

    def record_seen(self, where: str, key: Key, when: float) -> None:
        self.first[where][key] = when

    def _serve(self) -> None:
        while not self._ending.wait(self._rest):
            self._server.seed(*self._daemons)

    def _convey(self, enough: threading.Event) -> None:
        """Let the conveyor transfer a dataset that a site waits for, at random times."""
        while not enough.wait(self._plan.every * self._random.uniform(0.5, 1.5)):
            site = self._random.choice(sorted(self._disks))
            self._take(
                self._server.seed(
                    ("convey", {"rse": self._disks[site], "most": FILES}), ("completed", {"scope": SCOPE})
                )[1]
            )
            if self._to_come[site]:
                self._server.seed(self._promise(site))

    def _take(self, rules: Sequence[tuple[str, str, float]]) -> None:
        """Record the completed rules, and Rucio's own time of completion."""
        sites = {disk: site for site, disk in self._disks.items()}
        lag = time.time() - time.monotonic()
        for name, disk, when in rules:
            key = sites.get(disk, ""), f"{SCOPE}:{name}"
            if self.here.get(key) is False:  # of an element with a site, and new
                self.here[key] = True
                self.done[key] = when - lag
                with self._lock:
                    self._fresh[key] = Change(here=True, when=when - lag)

    def _promise(self, site: str) -> Command:
        """Create a rule for the next dataset there; Rucio sends an event on its completion."""
        did = self._to_come[site].pop(0)
        return "replicate", {"did": did, "rse": self._disks[site], "notify": "Y"}


class EventTimes:
    """A second listener of the broker: times of Rucio's event for each completed dataset."""

    def __init__(self, holdings: RucioHoldings) -> None:
        self.came: dict[Key, float] = {}
        self._sites = {disk: site for site, disk in holdings.disks.items()}
        self.ready = threading.Event()

    def on_event(self, source: str, body: bytes | None) -> None:  # noqa: ARG002 - there is one source
        now = time.monotonic()
        event = json.loads(body or b"{}")
        if event.get("event_type") == "datasetlock_ok":
            payload = event["payload"]
            self.came.setdefault((self._sites[payload["rse"]], f"{payload['scope']}:{payload['name']}"), now)

    def on_connect(self, source: str) -> None:  # noqa: ARG002
        self.ready.set()

    def on_disconnect(self, source: str, reason: str) -> None:
        """Do nothing: events missed meanwhile are missing in the figures, which have their number."""


@contextmanager
def listen_to_broker(folder: Path, broker: RabbitMq, event_times: EventTimes) -> Iterator[str]:
    """Let *event_times* listen to *broker*; return the configuration with which the daemon does so too."""
    password = folder / "broker-password"
    password.touch(mode=0o600)
    password.write_text(broker.password, "utf-8")
    same: dict[str, str | int] = {
        "name": "rucio", "host": "127.0.0.1", "port": broker.port, "virtual_host": "/",
        "destination": TOPIC, "username": USER, "password_file": str(password),
    }  # fmt: skip
    settings = StompSettings(
        "bench", "127.0.0.1", broker.port, TOPIC, virtual_host="/", username=USER, password_file=password,
        tls=False,
    )  # fmt: skip
    source = StompSource(settings, event_times)
    source.start()
    try:
        if not event_times.ready.wait(60):
            raise AssertionError("RabbitMQ did not let us in within 60 s")
        yield "[[events.stomp]]\ntls = false\n" + "".join(
            f"{key} = {json.dumps(value)}\n" for key, value in same.items()
        )
    finally:
        source.stop()


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of one series; ``event_times`` is None without events."""

    plan: Plan
    samples: Samples
    completions: Completions
    event_times: EventTimes | None
    version: str


def series(plan: Plan, rest: float, release: str | None = None) -> Series:
    """Run *plan* on a pool and a Rucio of its own, whose daemons pause for *rest* seconds."""
    names = [site.name for site in site_specs(plan)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(RucioServer.start(folder / "server"))
        broker = stack.enter_context(RabbitMq.start()) if plan.events else None
        pool = stack.enter_context(Pool.start(release, site_specs(plan)))
        holdings = RucioHoldings(server, pool.home, names, scope=SCOPE, files=FILES)
        event_times = EventTimes(holdings) if broker else None
        settings = ""
        if broker and event_times:
            settings = stack.enter_context(listen_to_broker(pool.home, broker, event_times))
        completions = stack.enter_context(Completions(plan, server, holdings, broker, rest))
        samples = watch_changes(plan, pool, holdings, completions, settings)
        return Series(plan, samples, completions, event_times, pool.version)


def plans(*, quick: bool) -> list[Plan]:
    if quick:
        return [Plan("url", 2, 4, 2, 4, every=1, block=6, blocks=1, patience=60, events=True)]
    alone = Plan("url", 5, 30, sites=6, datasets=24, every=1.2, block=90, blocks=3, patience=120)
    return [alone, replace(alone, events=True)]


def figures(measured: Series) -> list[Figure]:
    """Return p50 and p99 from the rule's completion and, with events, from Rucio's event of it."""
    plan, samples, event_times = measured.plan, measured.samples, measured.event_times
    whole = plan.poll == 30
    goals = GOALS if whole and not plan.events else {"p99": GOALS["p99"]} if whole else {}
    all_figures = []
    for where, seconds in (("slot ad", samples.slot), ("site ad", samples.site)):
        all_figures += _spread(f"{plan.title}, rule to {where}", seconds, goals if where == "slot ad" else {})
    if event_times:
        first, came = measured.completions.first, event_times.came
        rucio = [came[key] - when for key, when in measured.completions.done.items() if key in came]
        all_figures += _spread(f"{plan.title}, of it rule to event (Rucio's hermes)", rucio, {})
        # leave out changes that a regular poll showed before their event
        late = [key for key, when in first["site"].items() if key in came and when > came[key]]
        for where in ("slot", "site"):
            ours = [first[where][key] - came[key] for key in late if key in first[where]]
            goal = GOALS_WITH_EVENTS if whole and where == "slot" else {}
            all_figures += _spread(f"{plan.title}, event to {where} ad", ours, goal)
        times = sorted(came.values())
        heaps = sum(after - before > 0.5 for before, after in pairwise([0.0, *times]))
        note = f"{samples.early:g} polls, {heaps} runs of hermes with events of rules"
        all_figures.append(
            Figure(f"{plan.title}, polls for a turn of hermes", samples.early / heaps, "", None, note)
        )
    all_figures.append(Figure(f"{plan.title}, rules never seen", len(samples.lost), "", 0))
    return all_figures


def _spread(name: str, seconds: Sequence[float], goals: Mapping[str, float]) -> list[Figure]:
    """Return the figures of *seconds*; none if it is empty, as when regular polls preceded every event."""
    if not seconds:
        return []
    return spread_of(name, seconds, goals, "rules")


def run(quick: bool = False) -> Result:
    """Measure both series side by side: they mostly wait."""
    todo, release = plans(quick=quick), os.environ.get("HYDRATOR_TEST_HTCONDOR")
    rest = 1.0 if quick else DAEMONS_SECONDS
    with ThreadPoolExecutor(len(todo)) as pool:
        measured = list(pool.map(lambda plan: series(plan, rest, release), todo))
    raw: dict[str, object] = {}
    for each in measured:
        raw[each.plan.title] = each.samples.raw()
        if each.event_times:
            done, came = each.completions.done, each.event_times.came
            raw[f"{each.plan.title}, events"] = round_samples(
                [came[k] - done[k] for k in done if k in came], 2
            )
    all_figures = [figure for each in measured for figure in figures(each)]
    how = " ".join(HOW.split()).format(poll=todo[0].poll, sites=todo[0].sites, rest=rest)
    versions = {"HTCondor": measured[0].version, "Rucio": VERSION}
    return Result("freshness_rucio", tuple(all_figures), how, raw, versions)


HOW = """\
A rule of a real Rucio (SQLite, one thread; rules made with notify = Y) for a dataset of four files is
carried out by Rucio's own conveyor with mock transfers, at random times. It is complete when Rucio's row
of the rule says so, and visible when the collector, queried every 0.2 s, has the dataset as AVAILABLE at
that site. The catalogue is polled every {poll:g} s; {sites} startds with a hook by url and its default
jitter were restarted at random times, and the daemon between blocks of three polls. With events hermes
sends its messages every {rest:g} s to a real RabbitMQ. The daemon and the benchmark subscribe there by
STOMP, so the time that Rucio takes to send an event and the daemon's own time after it are separate
figures; rules that a regular poll showed first do not count. All daemons of Rucio run in the one thread
of its server, which answers no request meanwhile. The series run side by side, each on a pool and a Rucio
of its own."""
