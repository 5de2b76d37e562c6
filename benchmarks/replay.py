"""Replay of a million jobs: seconds on one core by policy, and the model against real pools."""

import random
import time
from array import array

from adapters.condor.expressions import ClassAdEvaluator
from hydrator.diagnostics.replay.model import (
    InputData,
    JobClass,
    PolicyChoice,
    PolicyDefaults,
    PoolRules,
    PoolSite,
    Workload,
    parse_policy,
)
from hydrator.diagnostics.replay.simulation import run_replay
from hydrator.domain.model import Site

from .record import Figure, Result

_HOW = """\
Processor time of one run of the model in this process, without the time to build the jobs. Jobs of 30 days,
at random times, by ten users, of 841 fields (LoTSS-DR2's pointings) with sizes of 5 GB (log-normal, sigma
0.3), at three sites by 62/32/6 %; computing times are log-normal (median 50 min, sigma 0.5). The cores of the
pool are busy for 89 % of the time without the project. Negotiation every 60 s, the daemon every 60 s, with
estimates of reads and queues but for off and require, which use none. An evaluation is one call of HTCondor's
ClassAd library; all other matches use a stored result of the same case.
"""
_SITES = (Site("NL"), Site("DE"), Site("PL"))
_DAYS = 30.0


def build_workload(job_count: int) -> Workload:
    """Build the jobs, and a pool that they fill to 89 %."""
    draw = random.Random(1)
    machines = max(1, job_count * 61 // 1_000_000)
    sites = tuple(PoolSite(name, machines, 8, 1.25e9) for name in _SITES)
    fields = [
        (draw.choices(_SITES, (0.62, 0.32, 0.06))[0], int(5e9 * draw.lognormvariate(0, 0.3)))
        for _ in range(841)
    ]
    classes = tuple(
        JobClass(f"user{user}", 1, (InputData(size, frozenset({home}), f"field{number}"),))
        for user in range(10)
        for number, (home, size) in enumerate(fields)
    )
    span = _DAYS * 86_400
    submitted = array("d", sorted(draw.uniform(0, span) for _ in range(job_count)))
    compute = array("d", (draw.lognormvariate(8.0, 0.5) for _ in range(job_count)))
    class_of = array("i", (draw.randrange(len(classes)) for _ in range(job_count)))
    return Workload(sites, classes, submitted, compute, class_of)


def measure_seconds(workload: Workload, policy: PolicyChoice) -> tuple[float, int]:
    """Return the processor time of one run in s, and the evaluations of expressions."""
    begin = time.process_time()
    played = run_replay(workload, policy, PoolRules(), ClassAdEvaluator(), 1)
    return time.process_time() - begin, played.evaluation_count


def run(*, quick: bool) -> Result:
    """Run the model once for each policy."""
    job_count = 4_000 if quick else 1_000_000
    workload = build_workload(job_count)
    figures: list[Figure] = []
    raw: dict[str, dict[str, float]] = {}
    for name in ("off", "prefer", "wait", "require", "auto"):
        seconds, evaluations = measure_seconds(workload, parse_policy(name, PolicyDefaults()))
        raw[name] = {"seconds": round(seconds, 3), "evaluations": evaluations}
        note = f"{evaluations} evaluations"
        figures.append(Figure(f"{job_count:,} jobs, {name}", seconds, "s", 60, note))
    return Result("replay", tuple(figures), _HOW, raw)
