"""Small pools and workloads for the tests of the replay."""

import random
from array import array
from collections.abc import Sequence
from functools import cache

from adapters.condor.expressions import ClassAdEvaluator
from hydrator.diagnostics.replay.model import (
    InputData,
    JobClass,
    PolicyChoice,
    PoolRules,
    PoolSite,
    ReplayRun,
    Workload,
)
from hydrator.diagnostics.replay.simulation import run_replay
from hydrator.domain.model import Site

NL, DE, PL = Site("NL"), Site("DE"), Site("PL")
OFF = PolicyChoice("off", "off")
ANY = PolicyChoice("prefer:0s", "prefer", 0.0)
AUTO = PolicyChoice("auto", "auto", 0.0)
REQUIRE = PolicyChoice("require", "require")
FAST = PoolRules(cycle_seconds=10, publish_seconds=5, gap_seconds=0.0, is_published_beforehand=True)


@cache
def evaluator() -> ClassAdEvaluator:
    """Return the evaluator; it has no state but caches."""
    return ClassAdEvaluator()


def wait(seconds: float, rounding: float = 1.0) -> PolicyChoice:
    return PolicyChoice(f"wait:{seconds:g}s", "wait", seconds, rounding)


def data(*sites: str, size: int = 100) -> InputData:
    return InputData(size, frozenset(map(Site, sites)), f"lofar:{'-'.join(sites)}-{size}")


def workload(sites: Sequence[PoolSite], *jobs: tuple[float, float, JobClass]) -> Workload:
    """Build a workload of jobs (submission, computing seconds, class)."""
    rows = sorted(jobs, key=lambda job: job[0])
    classes = list(dict.fromkeys(job[2] for job in rows))
    return Workload(
        tuple(sites),
        tuple(classes),
        array("d", (job[0] for job in rows)),
        array("d", (job[1] for job in rows)),
        array("i", (classes.index(job[2]) for job in rows)),
    )


def play(what: Workload, policy: PolicyChoice, rules: PoolRules = FAST, seed: int = 0) -> ReplayRun:
    return run_replay(what, policy, rules, evaluator(), seed)


def local_share(run: ReplayRun) -> float:
    """Return the share of the jobs with data that ran at a site with all of it."""
    workload_ = run.workload
    local = [
        workload_.classes[number].is_local_at(workload_.sites[site].name)
        for number, site in zip(workload_.class_of, run.site_of, strict=True)
        if site >= 0 and workload_.classes[number].inputs
    ]
    return sum(local) / len(local)


def lofar(
    x: float,
    shares: Sequence[float] = (0.62, 0.32, 0.06),
    *,
    seed: int,
    jobs: int = 120,
    spread: float = 0.0,
    interval: float = 0.0,
    no_data: int = 0,
    two: bool = False,
) -> Workload:
    """Build the jobs of facts/benefit-measured.md: 6 s of computing, 1 MB a dataset, three sites of 4 slots.

    *x* is the time of a lone read divided by the computing time. The first *no_data* jobs read nothing and
    belong to another user. With *two*, a job reads two datasets, and one of six jobs has them at two sites.
    """
    draw = random.Random(seed)
    sites = [PoolSite(name, 1, 4, 1e6 / (x * 6.0)) for name in (NL, DE, PL)]
    rows = []
    for number in range(jobs):
        if number < no_data:
            rows.append((number * interval, 6.0, JobClass("bob")))
            continue
        home = draw.choices((NL, DE, PL), shares)[0]
        inputs = (data(home, size=10**6),)
        if two:
            other = draw.choices((NL, DE, PL), shares)[0] if draw.random() < 1 / 6 else home
            inputs = (*inputs, data(other, size=10**6))
        rows.append(
            (number * interval, 6.0 * draw.uniform(1 - spread, 1 + spread), JobClass("alice", 1, inputs))
        )
    return workload(sites, *rows)
