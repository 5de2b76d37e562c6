"""Runs of real pools, from benchmarks/results/benefit_runs.jsonl, and the same jobs in the model.

The file grows with each ``make benefit``, so no test may depend on the number of runs. The share of local
bytes of one run of 120 jobs has a standard deviation of some 4.5 points.
"""

import statistics
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from benchmarks.benefit.arms import ARMS
from benchmarks.benefit.pools import POLL_SECONDS, UNKNOWN_RUN
from benchmarks.benefit.runs import BenefitRun, RunKey, RunStore, outcome
from benchmarks.benefit.workload import COMPUTE_SECONDS, SITES, SLOTS, Cell, generate, link_rate
from hydrator.diagnostics.outcomes import AdHistory
from hydrator.diagnostics.replay.expressions import TurnRules
from hydrator.diagnostics.replay.history import HistoryInputs, build_history_workload
from hydrator.diagnostics.replay.model import (
    OFF,
    RECORDED,
    InputData,
    JobClass,
    PolicyChoice,
    PolicyDefaults,
    PoolRules,
    PoolSite,
    ReplayRun,
    Workload,
)
from hydrator.domain.model import Did, Site, to_unix
from hydrator.reconcile.estimates.estimate import EstimatePolicy
from hydrator.reconcile.history import HistoryEntry
from hydrator.state.slot_totals import SlotTotal
from tests.factories import NOON, ad

from .worlds import play, wait

RESULTS = Path(__file__).parents[4] / "benchmarks/results/benefit_runs.jsonl"
HOOK_SECONDS = 2
"""Time between two runs of the hook on the experiment's pools (testbed/installation.py)."""
PHASES = (3, 8)
"""Seconds from a cycle of daemon and negotiator to the submission: the pools' own are unknown."""
_SETTLE = PolicyChoice("auto", "auto", 600.0, 1.0)
POLICIES: Mapping[str, PolicyChoice] = {
    "off": OFF,
    "rank only": wait(0),
    **{f"wait {seconds}": wait(seconds) for seconds in (6, 12, 30, 60, 120)},
    "prefer": PolicyChoice("prefer", "prefer", 600.0, 1.0),
    "require": PolicyChoice("require", "require"),
    **dict.fromkeys(("auto", "auto, no times"), _SETTLE),
}
"""The policy of the model by arm of the experiment."""
NOT_MODELLED = {
    "best": "computed, not run",
    "wrong": "the catalogue lists wrong sites; the model has one truth",
    "staging": "the model does not move data",
}
"""The other arms of the experiment, with the reason why the model does not run them."""
BEFORE_TURNS = frozenset({"090f8895a9", "39fe274df2", "5d5e5ed050", "7fe9271b34", "ec02c9a1da"})
"""Commits of stored runs whose pools had no turns to read."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run: the makespan in s and the share of local bytes on the pool, and means of the model's."""

    key: RunKey
    pool: tuple[float, float]
    model: tuple[float, float]

    @property
    def share_error(self) -> float:
        return self.model[1] - self.pool[1]


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """The runs of one arm in one cell of the experiment; figures are means over the runs."""

    cell: Cell
    arm: str
    runs: Sequence[ComparedRun]

    def __str__(self) -> str:
        cell = self.cell
        name = f"{cell.layout}, {cell.mix}, {cell.submitted}, x = {cell.x:g}, {self.arm}"
        return (
            f"{name}: {self.share_error:+.1%} in {len(self.runs)} runs, makespan {self.makespan_error:+.0%}"
        )

    @property
    def share_error(self) -> float:
        return statistics.fmean(run.share_error for run in self.runs)

    @property
    def makespan_error(self) -> float:
        return self.makespans[1] / self.makespans[0] - 1

    @property
    def makespans(self) -> tuple[float, float]:
        """Return the makespan on the pool and in the model."""
        pool, model = zip(*((run.pool[0], run.model[0]) for run in self.runs), strict=True)
        return statistics.fmean(pool), statistics.fmean(model)


@cache
def load_runs() -> tuple[BenefitRun, ...]:
    """Return the last run of each key, without runs that failed."""
    return tuple({run.key: run for run in RunStore(RESULTS).load() if run.samples}.values())


def modelled_runs() -> list[BenefitRun]:
    """Return the runs of arms that the model has."""
    return [run for run in load_runs() if run.key.arm in POLICIES]


def group_runs(runs: Iterable[ComparedRun]) -> list[ComparedCell]:
    """Group *runs* by cell, arm and number of jobs."""
    groups: dict[tuple[Cell, str, int], list[ComparedRun]] = defaultdict(list)
    for run in runs:
        groups[run.key.cell, run.key.arm, run.key.count].append(run)
    return [ComparedCell(cell, arm, group) for (cell, arm, _), group in groups.items()]


@cache
def compare_all() -> tuple[ComparedRun, ...]:
    """Return all runs of arms that the model has, each with the same jobs in the model."""
    return tuple(
        ComparedRun(run.key, (found.makespan, found.bytes_local), replay(run.key, rules_of(run)))
        for run in modelled_runs()
        for found in [outcome(run)]
    )


def rules_of(run: BenefitRun) -> PoolRules:
    """Return the rules of the pool of *run*; its load made slots stand still for longer between two jobs."""
    has_turns = run.machine["commit"].rstrip("+") not in BEFORE_TURNS
    turns = TurnRules() if has_turns else None
    return replace(build_rules(run.key.cell), turns=turns, gap_seconds=run.machine["gap_seconds"])


def replay(key: RunKey, rules: PoolRules) -> tuple[float, float]:
    """Return the mean makespan in s, and the mean share of local bytes, of the jobs of *key* in the model."""
    jobs = build_workload(key)
    found = [play(delay(jobs, phase), POLICIES[key.arm], rules, phase) for phase in PHASES]
    return (
        statistics.fmean(run.makespan_seconds for run in found),
        statistics.fmean(share_of_bytes(run) for run in found),
    )


def share_of_bytes(run: ReplayRun) -> float:
    """Return the share of bytes that were read at the job's own site."""
    total = sum(run.workload.classes[one].byte_count for one in run.workload.class_of)
    return 1 - run.bytes_moved / total if total else 1.0


def delay(jobs: Workload, seconds: int) -> Workload:
    """Return *jobs* submitted *seconds* after a cycle of daemon and negotiator, at the same Unix times."""
    submitted = array("d", (seconds + at for at in jobs.submitted))
    return replace(jobs, submitted=submitted, begin_unix=jobs.begin_unix - seconds)


def build_rules(cell: Cell) -> PoolRules:
    """Return the rules of the experiment's pools on a quiet machine: 0.3 s between two jobs of a slot.

    The daemon publishes all single datasets from the start (``scope = "all"``), and learns run times anew.
    """
    return PoolRules(
        cycle_seconds=5,
        cycle_delay_seconds=2,
        publish_seconds=POLL_SECONDS,
        delivery_seconds=HOOK_SECONDS / 2,
        gap_seconds=0.3,
        is_published_beforehand=cell.mix != "two",
        has_learned_runs=False,
        estimates=EstimatePolicy(default_run=timedelta(seconds=UNKNOWN_RUN * COMPUTE_SECONDS)),
    )


def build_workload(key: RunKey) -> Workload:
    """Return the jobs that the experiment generates for *key*."""
    made = generate(key.cell, key.seed, key.count)
    expected = COMPUTE_SECONDS if key.arm == "auto" else None
    classes: dict[JobClass, int] = {}
    class_of = array("i")
    for job in made.jobs:
        found = [made.datasets[each] for each in job.datasets]
        inputs = tuple(InputData(each.bytes, frozenset(map(Site, each.sites)), each.did) for each in found)
        one = JobClass(job.user, 1, inputs, None, expected if inputs else None)
        class_of.append(classes.setdefault(one, len(classes)))
    return Workload(
        tuple(PoolSite(Site(site), 1, SLOTS, link_rate(key.cell.x)) for site in SITES),
        tuple(classes),
        array("d", (job.submitted_at for job in made.jobs)),
        array("d", (job.seconds for job in made.jobs)),
        class_of,
    )


# the history that such a run leaves


def replay_history(run: BenefitRun) -> float:
    """Return the mean share of local bytes of the history of *run*, replayed with the policy that ran."""
    jobs, rules = build_history(run), rules_of(run)
    return statistics.fmean(
        share_of_bytes(play(delay(jobs, phase), RECORDED, rules, phase)) for phase in PHASES
    )


def build_history(run: BenefitRun) -> Workload:
    """Return the workload that ``hydrator replay`` builds from the history of *run*."""
    before = NOON - timedelta(seconds=1)
    totals = [SlotTotal(NOON, Site(site), 1, SLOTS) for site in SITES]
    rates = {Site(site): link_rate(run.key.cell.x) for site in SITES}
    rows, ads = build_history_rows(run, NOON), AdHistory(build_ads([run]))
    defaults = PolicyDefaults(rounding_seconds=1)
    return build_history_workload(HistoryInputs(rows, ads, totals, {}, rates, before, defaults))


def build_history_rows(run: BenefitRun, begin_at: datetime) -> list[dict[str, object]]:
    """Return the rows of the schedds' history if *run* had begun at *begin_at*."""
    made = generate(run.key.cell, run.key.seed, run.key.count)
    begin, attributes = to_unix(begin_at), _parse_attributes(ARMS[run.key.arm].lines)
    rows: list[dict[str, object]] = []
    for job in made.jobs:
        if (sample := run.samples.get(job.number)) is None:
            continue
        datasets = [made.datasets[each] for each in job.datasets]
        row = {
            "QDate": begin + int(job.submitted_at),
            "JobStartDate": begin + int(sample.began),
            "JobCurrentStartDate": begin + int(sample.began),
            "EnteredCurrentStatus": begin + round(sample.ended),
            "Owner": job.user,
            "RequestCpus": 1,
            "site": sample.site,
            "datasets": [f"{each.did}-{run.key.seed}" for each in datasets] or None,
            "bytes": {f"{each.did}-{run.key.seed}": each.bytes for each in datasets},
            "misses": [],
        }
        rows.append(row | (attributes if datasets else {}))
    return rows


def build_ads(runs: Iterable[BenefitRun]) -> list[HistoryEntry]:
    """Return the ads of the sites with the datasets of all *runs*."""
    held: dict[str, set[Did]] = {site: set() for site in SITES}
    for run in runs:
        for each in generate(run.key.cell, run.key.seed, run.key.count).datasets:
            for site in each.sites:
                held[site].add(Did(f"{each.did}-{run.key.seed}"))
    before = NOON - timedelta(seconds=1)
    return [HistoryEntry(before, ad(*sorted(dids), site=site), ()) for site, dids in held.items()]


def _parse_attributes(lines: str) -> dict[str, object]:
    """Return the job attributes of the submit commands *lines* that a history has: ``+Name = value``."""
    found: dict[str, object] = {}
    for line in lines.splitlines():
        name, _, value = line.removeprefix("+").partition(" = ")
        if "$(" not in value:
            found[name] = value.strip('"') if value.startswith('"') else int(value)
    return found
