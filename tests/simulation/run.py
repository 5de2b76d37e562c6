"""Run scenarios: one seed, its story, and the shortest form of it that still breaks the same law."""

import contextlib
import gc
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hydrator.domain.model import Did, Site
from tests.simulation.faults import FAULT_SECONDS
from tests.simulation.jobs import Pool, Slot
from tests.simulation.scenario import WITHHOLD_SECONDS, Scenario, make
from tests.simulation.truth import Truth
from tests.simulation.world import Hook, World

MAX_TRIES = 60
"""Runs that shrinking a scenario may take."""


@dataclass(frozen=True)
class Outcome:
    """What a run showed: the broken laws, each with a sentence, and the events that occurred."""

    broken: tuple[tuple[str, str], ...]
    events: Counter[str]
    story: tuple[str, ...]

    @property
    def laws(self) -> frozenset[str]:
        """Return the names of the broken laws."""
        return frozenset(law for law, _ in self.broken)


@contextlib.contextmanager
def _collect_later() -> Iterator[None]:
    """Collect no garbage in the ``with`` block: that takes a tenth of the time, and a run is short."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_collect_later()
def run(scenario: Scenario) -> Outcome:
    """Run *scenario* in a new world."""
    world = World(
        scenario.seed,
        scenario.truth,
        [(at, told, change) for at, told, change in scenario.changes],
        scenario.faults,
        [{**one, "daemon": dict(one["daemon"])} for one in scenario.configurations],
    )
    world.hooks = [Hook(world, *one) for one in scenario.hooks]
    if scenario.jobs:
        slots = [Slot(one.site, one) for one in world.hooks for _ in range(2)]
        slots += [Slot(one.site, None) for one in world.hooks[:2]]
        world.pool = Pool(world, [replace(job) for job in scenario.jobs], slots)
    world.run(scenario.seconds, after_loss=WITHHOLD_SECONDS)
    if any(fault.kind == "configuration" for fault in scenario.faults) and not world.is_daemon_gone:
        world.laws.check_from_nothing(_run_from_nothing(world))
    failures = [("threads", f"{type(error).__name__}: {error}") for error in world.loop.failures]
    return Outcome((*world.laws.broken, *failures), world.laws.events, tuple(world.story))


def _run_from_nothing(world: World) -> World:
    """Return the world after a daemon without any memory has run in the truth that *world* ended with."""
    fresh = World(0, world.truth, (), (), [dict(world.configurations[world.configuration])])
    fresh.run(50.0)  # a poll, and one that follows
    return fresh


def run_hour() -> World:
    """Run one quiet hour of 5 sites, 200 datasets and 3 schedds; return its world."""
    chance = random.Random(1)
    sites = [Site(name) for name in ("UK", "DE", "PL", "AU", "ZA")]
    dids = [Did(f"lofar:L{number}") for number in range(200)]
    truth = Truth(
        {"rucio": frozenset(sites)},
        {did: chance.randint(1, 900) * 10**9 for did in dids},
        {"rucio": {did: {site: 1.0 for site in sites if chance.random() < 0.5} for did in dids}},
        {
            schedd: {tuple(sorted(chance.sample(dids, 5))): 20 for _ in range(20)}
            for schedd in ("ap1", "ap2", "ap3")
        },
    )
    settings = {
        "daemon": {"poll_seconds": 60},
        "removal_guard": {},
        "publish": {"http": {"enabled": True}},
        "demand": {"pins": [], "patterns": ["*"]},
    }
    world = World(1, truth, (), (), [settings])
    world.hooks = [Hook(world, site, "file", 300.0) for site in sites]
    world.run(3600.0)
    return world


def shrink(scenario: Scenario) -> Scenario:
    """Return *scenario* with as few faults and changes as still break one of the laws that it breaks."""
    laws = run(scenario).laws
    tries = 0

    def is_broken(smaller: Scenario) -> bool:
        nonlocal tries
        tries += 1
        return tries <= MAX_TRIES and bool(run(smaller).laws & laws)

    for fault in scenario.faults:
        if is_broken(smaller := scenario.without_fault(fault)):
            scenario = smaller
    for number in reversed(range(len(scenario.changes))):
        if is_broken(smaller := scenario.without_change(number)):
            scenario = smaller
    return scenario


def tell(seed: int) -> str:
    """Return the whole story of *seed*: what went wrong in its world, and which laws broke."""
    scenario = make(seed)
    outcome = run(scenario)
    if outcome.broken:
        scenario = shrink(scenario)
        outcome = run(scenario)
    truth = scenario.truth
    lines = [
        f"seed {seed}: {len(outcome.broken)} broken laws",
        *(f"  catalogue {name} lists {', '.join(sorted(sites))}" for name, sites in truth.sites.items()),
        *(f"  configuration {number}: {one}" for number, one in enumerate(scenario.configurations)),
        "faults:",
        *(f"  {fault}" for fault in scenario.faults),
        f"  {FAULT_SECONDS:7.1f} s  all faults end",
        "changes:",
        *(f"  {at:7.1f} s  {told}" for at, told, _ in scenario.changes),
        "what happened:",
        *(f"  {one}" for one in outcome.story),
        "broken:",
        *(f"  {law}: {sentence}" for law, sentence in outcome.broken),
        f"again: python -m tests.simulation {seed}",
    ]
    return "\n".join(lines)
