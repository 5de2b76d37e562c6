"""Scenarios: a world, what happens in it, and what goes wrong; all of it from one seed."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hydrator.domain.ads.expressions import Mode
from hydrator.domain.model import Did, Site
from tests.simulation.faults import FAULT_SECONDS, Fault
from tests.simulation.jobs import Job
from tests.simulation.truth import Truth

SETTLE_SECONDS: Final = 420.0
"""Within this time after the last fault the ads must say the truth: two minutes for an answer that was
dropped, a poll that sees a loss and those that confirm it; or the time until a new set is shown."""
WITHHOLD_SECONDS: Final = 780.0
"""The same after the state was lost, since the daemon may withhold ads for ten minutes; and, after the last
fault, for jobs, which start some minutes after the ads say the truth."""
RARE_EVERY: Final = 8
"""In so many seeds each of ``_make_rare`` happens once."""
JOBS_EVERY: Final = 4
"""Every so many seeds have jobs; in a quarter of those the daemon ends for good."""
POLL_SECONDS: Final = 40
CONFIRM_POLLS: Final = 4
MAX_AGE_SECONDS: Final = 910.0

Change = Callable[[Truth], Truth]
_FAULTS: Final = {
    "catalogue": 3,
    "loss": 3,
    "schedd": 1,
    "publisher": 2,
    "kill": 2,
    "news": 2,
    "lost state": 2,
    "disk": 1,
    "clock": 1,
    "configuration": 2,
}
"""The kinds of faults, with their weights."""
_SICK: Final = ("fail", "hang", "drop", "slow", "garble", "cut", "repeat", "stale", "blind", "no search")
"""What may be wrong with a catalogue."""
_SILENT: Final = ("fail", "drop", "cut", "no search", "no search")
"""What keeps a catalogue from saying all that a daemon without its state must know."""


@dataclass(frozen=True)
class Scenario:
    """A run before it begins.

    Attributes:
        changes: what changes in the world, each with its time and a sentence.
        configurations: the settings; number 0 is in use at the start, and mostly at the end.
        hooks: the site, the source and the period in seconds of each slot's hook.
        jobs: the jobs of the pool; none in most scenarios.
    """

    seed: int
    truth: Truth
    changes: Sequence[tuple[float, str, Change]]
    faults: Sequence[Fault]
    configurations: Sequence[Mapping[str, Any]]
    hooks: Sequence[tuple[Site, str, float]]
    jobs: Sequence[Job] = ()

    @property
    def seconds(self) -> float:
        """Return how long the run takes, in virtual time, if the state is not lost late."""
        return FAULT_SECONDS + (WITHHOLD_SECONDS if self.jobs else SETTLE_SECONDS)

    def without_fault(self, fault: Fault) -> "Scenario":
        """Return the same scenario without *fault*."""
        return replace(self, faults=tuple(one for one in self.faults if one is not fault))

    def without_change(self, number: int) -> "Scenario":
        """Return the same scenario without the change *number*."""
        return replace(self, changes=(*self.changes[:number], *self.changes[number + 1 :]))


def make(seed: int) -> Scenario:
    """Return the scenario of *seed*."""
    return _Maker(seed).make()


class _Maker:
    """The choices for one scenario, with random numbers of their own for each kind."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = self._numbers("world")
        chance = self._random
        self.sites = [Site(name) for name in ("UK", "DE", "PL", "AU")[: chance.randint(2, 4)]]
        self.catalogues = ["rucio", "dmapi", "archive"][: chance.choice((1, 1, 2, 2, 3))]
        self.schedds = ["ap1", "ap2", "ap3"][: chance.randint(1, 3)]
        self.dids = [Did(f"lofar:L{number}") for number in range(chance.randint(5, 14))]
        self.news: list[tuple[float, str, Change]] = []

    def _numbers(self, purpose: str) -> random.Random:
        return random.Random(f"{self._seed} {purpose}")

    def make(self) -> Scenario:
        truth, faults = self._make_truth(), self._make_faults()
        return Scenario(
            self._seed,
            truth,
            tuple(sorted([*self._make_changes(truth), *self.news], key=lambda one: one[0])),
            tuple(sorted(faults, key=lambda one: one.at)),
            self._make_configurations(),
            [
                (site, ("file", "http", "collector")[number % 3], 60.0 + 60 * (number % 2))
                for number, site in enumerate(self.sites)
            ],
            self._make_jobs(truth) if self._seed % JOBS_EVERY == 0 else (),
        )

    def _make_jobs(self, truth: Truth) -> list[Job]:
        chance = self._numbers("jobs")
        sets = sorted({dids for queue in truth.queues.values() for dids in queue})
        modes: list[Mode] = ["require", "require", "wait", "auto"]
        return [
            Job(
                chance.choice((*sets, ())),
                chance.choice(modes),
                chance.uniform(0, FAULT_SECONDS),
                chance.choice((0, 120, 400)),
                chance.choice((50.0, 200.0)),
            )
            for _ in range(12)
        ]

    def _make_truth(self) -> Truth:
        chance = self._random
        sites = {
            name: frozenset(chance.sample(self.sites, chance.randint(1, len(self.sites))))
            for name in self.catalogues
        }
        truth = Truth(
            sites,
            {did: chance.randint(1, 900) * 10**9 for did in self.dids},
            {name: {} for name in self.catalogues},
        )
        for name in self.catalogues:
            for did in self.dids:
                for site in sorted(sites[name]):
                    share = chance.choice((0, 0, 1.0, 1.0, 1.0, 0.25))
                    truth = truth.with_share(name, did, site, share)
        for schedd in self.schedds:
            truth = replace(truth, queues={**truth.queues, schedd: {}})
            for _ in range(chance.randint(1, 4)):
                truth = truth.with_jobs(schedd, self._choose_set(chance), chance.randint(1, 90))
        return truth

    def _choose_set(self, chance: random.Random) -> tuple[Did, ...]:
        return tuple(sorted(chance.sample(self.dids, min(len(self.dids), chance.choice((1, 1, 2, 3, 5))))))

    def _make_changes(self, truth: Truth) -> list[tuple[float, str, Change]]:
        chance = self._numbers("changes")
        return [
            (chance.uniform(30, FAULT_SECONDS), *self._make_change(chance, truth))
            for _ in range(chance.randint(2, 10))
        ]

    def _make_change(self, chance: random.Random, truth: Truth) -> tuple[str, Change]:
        name, did = chance.choice(self.catalogues), chance.choice(self.dids)
        site, schedd = chance.choice(sorted(truth.sites[name])), chance.choice(self.schedds)
        kind = chance.choice(("share", "share", "share", "jobs", "jobs", "loss", "site", "no site", "schedd"))
        if kind == "share":
            share = chance.choice((0.0, 0.5, 1.0))
            return f"{share:.0%} of {did} at {site} ({name})", lambda now: _share(now, name, did, site, share)
        if kind == "jobs":
            dids, count = self._choose_set(chance), chance.choice((0, 1, 40))
            return f"{count} jobs of {schedd} need {' '.join(dids)}", lambda now: now.with_jobs(
                schedd, dids, count
            )
        if kind == "loss":
            return f"{site} loses all ({name})", lambda now: _lose_all(now, name, site)
        if kind == "schedd":
            return f"{schedd} has no jobs", lambda now: replace(now, queues={**now.queues, schedd: {}})
        if kind == "no site":
            return f"{name} does not list {site} any more", lambda now: _unlist(now, name, site)
        new = chance.choice(self.sites)
        return f"{name} lists {new}", lambda now: replace(
            now, sites={**now.sites, name: now.sites[name] | {new}}
        )

    def _make_faults(self) -> list[Fault]:
        chance = self._numbers("faults")
        faults = [fault for _ in range(chance.randint(1, 7)) for fault in self._make_fault(chance)]
        if self._seed % (4 * JOBS_EVERY) == 0:
            faults.append(Fault("gone", "", round(chance.uniform(0, FAULT_SECONDS), 1)))
        return [*faults, *self._make_rare()]

    def _make_rare(self) -> list[Fault]:
        """Return a situation that random faults meet too seldom; some seeds have none.

        The collector restarts; a sudden loss is approved; a publisher can be read and takes long for what is
        sent; a daemon without its state cannot search for patterns, or can neither read what is published nor
        ask a schedd.
        """
        chance, turn = self._numbers("rare"), self._seed % RARE_EVERY
        at, late = round(chance.uniform(60, 200), 1), round(chance.uniform(0, FAULT_SECONDS), 1)
        lost = Fault("lost state", "disk", 0, 20.0)
        if turn == 1:
            return [Fault("stall", f"publisher {chance.choice(('file', 'collector'))}", at, 500.0)]
        if turn == 2:
            lose = Fault("lose", f"catalogue {chance.choice(self.catalogues)}", at, 450.0)
            return [lose, Fault("approve", "", round(at + 2.5 * POLL_SECONDS, 1))]
        if turn == 3:
            unread = [Fault("fail", f"publisher {name}", 0, 60.0) for name in ("file", "collector")]
            silent = Fault("fail", f"schedd {chance.choice(self.schedds)}", 0, 150.0)
            return [Fault("kill", "", at, then=(lost, *unread, silent))]
        if turn == 5:
            return [Fault("forget", "publisher collector", late)]
        if turn == 7:
            unsearched = [Fault("no search", f"catalogue {name}", 0, 800.0) for name in self.catalogues]
            return [Fault("kill", "", at, then=(lost, *unsearched))]
        return []

    def _make_fault(self, chance: random.Random) -> list[Fault]:
        at = round(chance.uniform(0, FAULT_SECONDS - 100), 1)
        seconds = round(min(chance.choice((40.0, 150.0, 400.0, 800.0)), FAULT_SECONDS - at), 1)
        catalogue = f"catalogue {chance.choice(self.catalogues)}"
        schedd = f"schedd {chance.choice(self.schedds)}"
        kind = chance.choices(*zip(*_FAULTS.items(), strict=True))[0]
        if kind == "catalogue":
            sick = chance.choice(_SICK)
            site = chance.choice(self.sites) if sick == "blind" else ""
            number = {"stale": chance.choice((60.0, 300.0)), "slow": 8.0}.get(sick, 0.0)
            return [Fault(sick, catalogue, at, seconds, number, site)]
        if kind == "schedd":
            part = chance.choice(("schedds", schedd))
            sick = chance.choice(("fail", "hang") if part == "schedds" else ("fail", "hang", "gone"))
            return [Fault(sick, part, at, seconds)]
        if kind == "publisher":
            publisher = f"publisher {chance.choice(('file', 'collector', 'collector', 'http'))}"
            sick = chance.choice(("fail", "hang", "drop", "lose", "forget"))
            return [Fault(sick, publisher, at, 0 if sick == "forget" else seconds)]
        if kind == "loss":
            return self._make_loss(chance, at, catalogue, seconds)
        if kind == "kill":
            part = chance.choice(("", "disk", "save", "publisher", "catalogue", "news"))
            then = chance.choice(
                ((), (Fault("fail", chance.choice((schedd, "schedds", catalogue)), 0, seconds),))
            )
            return [Fault("kill", part, at, number=chance.randint(0, 12), then=then)]
        if kind == "news":
            return self._make_news(chance, at, schedd.removeprefix("schedd "), seconds)
        if kind == "lost state":
            part = chance.choice(("", "disk", "save", "publisher", "catalogue"))
            then = (
                Fault("lost state", "disk", 0, 20.0),
                *self._make_silence(chance, catalogue, schedd, seconds),
            )
            return [Fault("kill", part, at, number=chance.randint(0, 12), then=then)]
        if kind == "disk":
            return [Fault("full", "disk", at, seconds)]
        if kind == "clock":
            step = Fault("clock", "", at, number=chance.choice((-3600.0, -3600.0, -5.0, 5.0, 120.0, 3600.0)))
            return [step, *chance.choice(([], [Fault("fail", catalogue, max(0.0, at - 60), seconds)]))]
        return self._make_configuration_faults(chance, at, catalogue, seconds)

    def _make_loss(self, chance: random.Random, at: float, catalogue: str, seconds: float) -> list[Fault]:
        """Lose datasets for a while; approve it, or kill the daemon before polls have confirmed it.

        Or set the clock back meanwhile, after which the daemon does not use its state.
        """
        site = chance.choice(("", *self.sites))
        how = chance.choice(("", "approve", "kill", "kill", "clock", "clock"))
        if how in {"", "approve"}:
            lost = Fault("lose", catalogue, at, seconds, site=site)
            return [lost, *([Fault("approve", "", round(at + 50, 1))] if how else [])]
        lost = Fault("lose", catalogue, at / 2, 450.0)  # at all sites: that is surely held
        if how == "clock":
            return [lost, Fault("clock", "", round(at / 2 + chance.uniform(60, 150), 1), number=-3600.0)]
        return [lost, Fault("kill", "", round(at / 2 + chance.uniform(130, 180), 1))]

    def _make_news(self, chance: random.Random, at: float, schedd: str, seconds: float) -> list[Fault]:
        """Let jobs name a new dataset; kill the daemon while it publishes it; then silence the schedds."""
        name = chance.choice(self.catalogues)
        did = Did(f"lofar:N{len(self.news)}")

        def change(now: Truth) -> Truth:
            site = min(now.sites[name], default=None)
            now = replace(now, sizes={**now.sizes, did: 10**9}).with_jobs(schedd, (did,), 9)
            return now.with_share(name, did, site, 1.0) if site else now

        self.news.append((at, f"{schedd} has jobs for {did}, which is new in {name}", change))
        silent = (Fault("fail", chance.choice((f"schedd {schedd}", "schedds")), 0, seconds),)
        return [Fault("kill", "news", at + 1, number=chance.choice((0, 0, 1, 3)), then=silent)]

    @staticmethod
    def _make_silence(
        chance: random.Random, catalogue: str, schedd: str, seconds: float
    ) -> tuple[Fault, ...]:
        """Return what a daemon that lost its state does not get to know."""
        return chance.choice(
            (
                (),
                (Fault(chance.choice(_SILENT), catalogue, 0, seconds),),
                (Fault("cut", catalogue, 0, 45.0), Fault("fail", catalogue, 45.0, seconds)),
                (Fault("fail", schedd, 0, seconds),),
                (Fault("fail", schedd, 0, 60.0), Fault("gone", schedd, 60.0, seconds)),
                (Fault("fail", "schedds", 0, seconds),),
            )
        )

    def _make_configuration_faults(
        self, chance: random.Random, at: float, catalogue: str, seconds: float
    ) -> list[Fault]:
        faults = [Fault("configuration", "", at, number=1)]
        later = round(chance.uniform(at, FAULT_SECONDS), 1)
        if chance.random() < 0.7:
            faults.append(Fault("configuration", "", later, number=0))
            sick = chance.choice(("no search", "fail", "lose"))
            faults.append(
                Fault(sick, catalogue, max(0.0, later - 30), min(seconds, FAULT_SECONDS - later + 30))
            )
        return faults

    def _make_configurations(self) -> list[dict[str, Any]]:
        chance = self._numbers("configurations")
        first: dict[str, Any] = {
            "daemon": {"poll_seconds": POLL_SECONDS, "max_age_hours": MAX_AGE_SECONDS / 3600},
            "removal_guard": {"confirm_polls": CONFIRM_POLLS},
            "publish": {"http": {"enabled": True}},
            "demand": {
                "pins": chance.choice(([], [self.dids[0]])),
                "patterns": chance.choice(([], ["lofar:L1*"])),
            },
        }
        second = {
            **first,
            **chance.choice(
                (
                    {"demand": {**first["demand"], "pins": [self.dids[1]], "patterns": ["*"]}},
                    {"publish": {**first["publish"], "never": ["lofar:L1*"]}},
                    {"sites": {"retired": [self.sites[0]]}},
                    {"sites": {"retired": [self.sites[-1]]}},
                    {"sites": {"aliases": {self.sites[0]: "ELSEWHERE"}}},
                )
            ),
        }
        return [first, second]


def _share(truth: Truth, catalogue: str, did: Did, site: Site, share: float) -> Truth:
    return truth.with_share(catalogue, did, site, share) if site in truth.sites[catalogue] else truth


def _unlist(truth: Truth, catalogue: str, site: Site) -> Truth:
    sites = {**truth.sites, catalogue: truth.sites[catalogue] - {site}}
    return replace(_lose_all(truth, catalogue, site), sites=sites)


def _lose_all(truth: Truth, catalogue: str, site: Site) -> Truth:
    for did in list(truth.shares[catalogue]):
        truth = truth.with_share(catalogue, did, site, 0)
    return truth
