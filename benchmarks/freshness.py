"""Time from a change of a catalogue until the slot's ad and the site ad in the collector have it."""

import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from testbed.installation import CatalogueSection, Installation, ListedCatalogue, Road
from testbed.pool import Pool, SiteSpec

from .record import Figure, Result, Spread, round_samples

GOALS = {"p50": 20.0, "p99": 90.0}
"""Goal in seconds, for a hook every 5 s and a poll every 30 s."""

Key = tuple[str, str]
"""A site and a dataset."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one series.

    ``every`` seconds one dataset changes at one site; after ``block`` seconds of that, and once all is
    visible, the daemon restarts (``blocks`` times), so that its polls meet the hooks in another phase.
    """

    road: Road
    period: int
    poll: float
    sites: int
    datasets: int
    every: float
    block: float
    blocks: int
    patience: float
    look: float = 0.2

    @property
    def title(self) -> str:
        return f"hook every {self.period} s by {self.road}"


@dataclass(slots=True)
class Samples:
    """Seconds from the change until it is first visible, by kind of ad."""

    slot: list[float] = field(default_factory=list)
    site: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def raw(self) -> dict[str, object]:
        """Return every sample, for the results file."""
        return {"slot": round_samples(self.slot, 2), "site": round_samples(self.site, 2), "lost": self.lost}


@dataclass(frozen=True, slots=True)
class Change:
    """A change at *when* (``time.monotonic``): a dataset is complete at a site, or no longer."""

    here: bool
    when: float


class Changes(Protocol):
    """A source of changes that records their times."""

    @property
    def here(self) -> Mapping[Key, bool]:
        """Return the current content of the catalogue; before the first change all ads must show it."""

    def run_changes(self) -> AbstractContextManager[None]:
        """Make changes at random times inside this context."""

    def take_changes(self, busy: AbstractSet[Key]) -> Mapping[Key, Change]:
        """Return the changes since the last call; none of *busy*, not visible yet."""

    def record_seen(self, where: str, key: Key, when: float) -> None:
        """Record when the last change of *key* was first visible in the ``slot`` or the ``site`` ad."""


class Jittered(Installation):
    """The hook with its default jitter, as the documentation installs it."""

    def cron_config(self) -> str:
        return super().cron_config().replace(" --jitter 0", "")


class Listed:
    """Changes of the list that the embedded catalogue reads."""

    def __init__(self, plan: Plan, sites: Sequence[str], listed: ListedCatalogue) -> None:
        self._plan = plan
        self._listed = listed
        self._random = random.Random(2)
        self._dids = dataset_names(plan)
        self._due: float | None = None
        self.here: dict[Key, bool] = {(site, did): True for site in sites for did in self._dids}
        self._list()

    @contextmanager
    def run_changes(self) -> Iterator[None]:
        self._due = time.monotonic()
        yield
        self._due = None

    def take_changes(self, busy: AbstractSet[Key]) -> dict[Key, Change]:
        """Add one dataset to a site or remove it, when that is due."""
        free = sorted(self.here.keys() - busy)
        if self._due is None or time.monotonic() < self._due or not free:
            return {}
        self._due += self._plan.every * self._random.uniform(0.5, 1.5)
        key = self._random.choice(free)
        self.here[key] = not self.here[key]
        return {key: Change(self.here[key], self._list())}

    def record_seen(self, where: str, key: Key, when: float) -> None:
        """Do nothing."""

    def _list(self) -> float:
        """Replace the list; return the time when it was in place."""
        content = {
            did: {site: "available" for (site, name), here in self.here.items() if name == did and here}
            for did in self._dids
        }
        self._listed.hold(content)
        return time.monotonic()


class Watch:
    """A watch that records when changes become visible in the collector."""

    def __init__(self, plan: Plan, pool: Pool, changes: Changes) -> None:
        self.samples = Samples()
        self._plan = plan
        self._pool = pool
        self._changes = changes
        self._dids = dataset_names(plan)
        self._changed: dict[Key, Change] = {}
        self._unseen: dict[str, set[Key]] = {"slot": set(), "site": set()}
        self._shown: dict[str, dict[Key, Change]] = {"slot": {}, "site": {}}
        self._silent: set[str] = set()

    def ready(self, where: str) -> bool:
        """Return True if all ads (``slot`` or ``site``) show the state before the first change."""
        self._look()
        shown = self._shown[where]
        return where not in self._silent and all(
            key in shown and shown[key].here is here for key, here in self._changes.here.items()
        )

    def block(self) -> None:
        """Watch changes for a while, then until all of them are visible."""
        end = time.monotonic() + self._plan.block
        with self._changes.run_changes():
            while time.monotonic() < end:
                self._turn()
        end = time.monotonic() + self._plan.patience
        self._turn()
        while any(self._unseen.values()) and time.monotonic() < end:
            self._turn()
        for where, keys in self._unseen.items():
            self.samples.lost += [f"{where} {site} {did}" for site, did in sorted(keys)]
            keys.clear()

    def _turn(self) -> None:
        """Read new changes, query the collector, and pause."""
        begun = time.monotonic()
        new_changes = self._changes.take_changes(self._unseen["slot"] | self._unseen["site"])
        self._changed.update(new_changes)
        for keys in self._unseen.values():
            keys.update(new_changes)
        self._look()
        for where, keys in self._unseen.items():
            for key in sorted(keys):
                change, shown = self._changed[key], self._shown[where].get(key)
                if shown and shown.here is change.here:
                    keys.discard(key)
                    seconds = max(0.0, shown.when - change.when)
                    (self.samples.slot if where == "slot" else self.samples.site).append(seconds)
                    self._changes.record_seen(where, key, shown.when)
        time.sleep(max(0.0, begun + self._plan.look - time.monotonic()))

    def _look(self) -> None:
        """Query the collector, and record since when it shows a change."""
        ads = self._pool.ads(
            'PartitionableSlot =?= true || MyType == "DataLocality"',
            "MyType",
            "GLIDEIN_Site",
            "DataLocalitySite",
            "DatasetStates",
        )
        now = time.monotonic()
        self._silent = set()
        for ad in ads:
            where = "site" if ad["MyType"] == "DataLocality" else "slot"
            site = ad["DataLocalitySite"] if where == "site" else ad["GLIDEIN_Site"]
            states: dict[str, str] = ad.get("DatasetStates") or {}
            if not states:  # without any dataset, as before the daemon read the demand
                self._silent.add(where)
            for did in self._dids if "DatasetStates" in ad else ():
                shown, here = self._shown[where], states.get(did) == "AVAILABLE"
                if (site, did) not in shown or shown[site, did].here is not here:
                    shown[site, did] = Change(here, now)


_UNHELD = "\n[removal_guard]\nconfirm_polls = 0\n"


def dataset_names(plan: Plan) -> list[str]:
    return [f"bench:set{number:02}" for number in range(plan.datasets)]


def series(plan: Plan, release: str | None = None) -> tuple[Samples, str]:
    """Run *plan* on a pool of its own; return also the pool's version."""
    sites = site_specs(plan)
    with Pool.start(release, sites) as pool:
        names = [site.name for site in sites]
        listed = ListedCatalogue(pool.home, names)
        changes = Listed(plan, names, listed)
        return watch_changes(plan, pool, listed, changes, _UNHELD), pool.version


def site_specs(plan: Plan) -> list[SiteSpec]:
    return [SiteSpec(f"SITE{number}", cpus=1) for number in range(plan.sites)]


def watch_changes(
    plan: Plan, pool: Pool, catalogue: CatalogueSection, changes: Changes, settings: str
) -> Samples:
    """Watch *changes* of *catalogue* in the ads of *pool* by *plan*; *settings* are the daemon's."""
    installed = Jittered(
        pool,
        catalogue,
        road=plan.road,
        period_seconds=plan.period,
        poll_seconds=plan.poll,
        settings=settings,
    )
    with installed:
        # idle jobs make the demand; this one matches nothing
        installed.submit(dataset_names(plan), mode="require", more="requirements = false\n")
        watch = Watch(plan, pool, changes)
        pool.wait(lambda: watch.ready("site"), "the first site ads")
        shift(pool, plan)
        pool.wait(lambda: watch.ready("slot"), "the first slot ads", plan.patience)
        for number in range(plan.blocks):
            if number:
                installed.stop_daemon()
                time.sleep(random.uniform(0, min(plan.period, 5)))
                installed.start_daemon()
            watch.block()
            print(f"   {plan.title}: {len(watch.samples.slot)} changes seen", file=sys.stderr)
    return watch.samples


def shift(pool: Pool, plan: Plan) -> None:
    """Restart the startds one after the other, so that their hooks do not run in step."""
    for site in pool.sites:
        time.sleep(random.uniform(0, min(plan.period, 30) / 3))
        pool.restart_daemon(f"startd:{site.name}")


def plans(*, quick: bool) -> list[Plan]:
    if quick:
        return [Plan("url", 2, 2, 2, 3, every=1, block=8, blocks=1, patience=45)]
    five = [
        Plan(road, 5, 30, sites=6, datasets=12, every=1.5, block=60, blocks=4, patience=120)
        for road in ("url", "file")
    ]
    slow = Plan("url", 300, 30, sites=6, datasets=40, every=2.4, block=600, blocks=1, patience=700, look=1.5)
    return [*five, slow]


def figures(plan: Plan, samples: Samples) -> list[Figure]:
    """Return p50 and p99 in the slots' ads and in the site ads, and the number of changes never seen."""
    goals = GOALS if (plan.period, plan.poll) == (5, 30) else {}
    all_figures = []
    for where, seconds in (("slot ad", samples.slot), ("site ad", samples.site)):
        all_figures += spread_of(
            f"{plan.title}, {where}", seconds, goals if where == "slot ad" else {}, "changes"
        )
    all_figures.append(Figure(f"{plan.title}, changes never seen", len(samples.lost), "", 0))
    return all_figures


def spread_of(name: str, seconds: Sequence[float], goals: Mapping[str, float], of: str) -> list[Figure]:
    """Return p50 and p99 of *seconds*, with the number of changes or rules."""
    spread = Spread.of(seconds)
    note = f"{spread.count} {of}, {spread.least:.1f} to {spread.most:.1f} s"
    return [
        Figure(f"{name}, {which}", value, "s", goals.get(which), note)
        for which, value in (("p50", spread.p50), ("p99", spread.p99))
    ]


def run(quick: bool = False) -> Result:
    """Measure all series side by side: they mostly wait."""
    todo = plans(quick=quick)
    release = os.environ.get("HYDRATOR_TEST_HTCONDOR")
    with ThreadPoolExecutor(len(todo)) as pool:
        measured = list(pool.map(lambda plan: series(plan, release), todo))
    found: list[Figure] = []
    raw: dict[str, object] = {}
    for plan, (samples, _) in zip(todo, measured, strict=True):
        found += figures(plan, samples)
        raw[plan.title] = samples.raw()
    how = " ".join(HOW.split()).format(poll=todo[0].poll, sites=todo[0].sites)
    return Result("freshness", tuple(found), how, raw, {"HTCondor": measured[0][1]})


HOW = """\
A change adds one dataset to one site, or removes it, in the file of the file catalogue (replaced by a
rename). It counts as visible when the collector, queried every 0.2 s (every 1.5 s for the 300 s hook),
has it. The catalogue is polled every {poll:g} s; there are {sites} startds, and the hook has its default
jitter (2 s, none for --file). Changes come at random times, one every 1.5 s (2.4 s), so they meet polls
and hooks in every phase. The startds were restarted at random times, and the daemon after each minute of
changes. The 300 s hook: changes for 600 s, two periods, at random times: many changes, but only some
three runs of each hook. The site ad needs no hook, so its figures do not depend on the period. No change is
held (confirm_polls = 0): by chance more than half of a site's few datasets may leave between two polls.
The series run side by side, each on a pool of its own."""

__all__ = ["run"]
