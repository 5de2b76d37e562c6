"""The model against real pools: shares, makespans, and the order of policies.

measured.py has the figures of the former policy, benefit_cells.py the runs of ``make benefit``. Those grow,
so tests judge means over the runs, by what the number of runs allows, and shares of cells.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest

from benchmarks.benefit.runs import RunKey
from benchmarks.benefit.workload import Cell as BenefitCell
from hydrator.diagnostics.replay.model import PoolRules
from hydrator.reconcile.estimates.estimate import EstimatePolicy

from . import benefit_cells
from .benefit_cells import NOT_MODELLED, POLICIES, ComparedCell, ComparedRun, compare_all, group_runs
from .measured import CELLS, MAKESPAN_MISSES, SHARE_MISSES, Cell
from .worlds import ANY, OFF, REQUIRE, lofar, play, wait

pytestmark = pytest.mark.outside

ARMS = {"off": OFF, "any": ANY, "w30": wait(30), "require": REQUIRE}
RULES = PoolRules(
    cycle_seconds=5,
    publish_seconds=1,
    gap_seconds=0.3,
    is_claim_kept_by_rank=True,
    is_published_beforehand=True,
    estimates=EstimatePolicy(is_enabled=False),
)
"""The pools' own settings, and jobs of contract 1: without estimates, and claims by the job's Rank.

A slot stood still for 0.3 s between two jobs.
"""
SEEDS = range(10)
CLEAR = 1.1
"""Two arms have an order if one took this much longer in the pool; one run differs by some 10 %."""
SHARE_ERROR, MAKESPAN_ERROR = 0.05, 0.15


@cache
def model(number: int, arm: str) -> tuple[float, float]:
    """Return the mean makespan in s and the mean share of local bytes in the model."""
    cell = CELLS[number]
    runs = [play(lofar(cell.x, seed=seed, **cell.workload), ARMS[arm], RULES, seed) for seed in SEEDS]
    shares = [
        1 - run.bytes_moved / sum(run.workload.classes[one].byte_count for one in run.workload.class_of)
        for run in runs
    ]
    return statistics.mean(run.makespan_seconds for run in runs), statistics.mean(shares)


def each_arm() -> list[tuple[int, Cell, str]]:
    return [(number, cell, arm) for number, cell in enumerate(CELLS) for arm in cell.arms]


def test_share_of_local_bytes_is_within_5_points_of_the_pool():
    misses = {
        (cell.name, cell.x, arm)
        for number, cell, arm in each_arm()
        if abs(model(number, arm)[1] - cell.arms[arm][1]) > SHARE_ERROR
    }
    assert misses == SHARE_MISSES
    assert len(misses) / len(each_arm()) < 0.15


def test_makespan_is_within_15_percent_of_the_pool():
    misses = {
        (cell.name, cell.x, arm)
        for number, cell, arm in each_arm()
        if abs(model(number, arm)[0] / cell.arms[arm][0] - 1) > MAKESPAN_ERROR
    }
    assert misses == MAKESPAN_MISSES
    assert len(misses) / len(each_arm()) < 0.1


def test_order_of_policies_is_that_of_the_pool_in_9_of_10_cells():
    wrong = []
    for number, cell in enumerate(CELLS):
        for one, other in combinations(cell.arms, 2):
            ratio = cell.arms[one][0] / cell.arms[other][0]
            if max(ratio, 1 / ratio) > CLEAR and (ratio > 1) != (
                model(number, one)[0] > model(number, other)[0]
            ):
                wrong.append((str(cell), one, other))
    assert len({name for name, _, _ in wrong}) <= len(CELLS) / 10, wrong


# the runs of make benefit

CONTROL_ERROR = 0.02
RUN_DEVIATION = 0.045
"""Standard deviation of the share of local bytes of one run of 120 jobs."""
MOST_CELLS = 0.9


def share_limit(least: float, count: int) -> float:
    """Return *least*, or two standard errors of the mean of *count* runs if these are more."""
    return max(least, 2 * RUN_DEVIATION / count**0.5)


def find_share_misses(cells: Iterable[ComparedCell]) -> list[str]:
    limit = SHARE_ERROR
    return [str(each) for each in cells if abs(each.share_error) > share_limit(limit, len(each.runs))]


def find_makespan_misses(cells: Iterable[ComparedCell]) -> list[str]:
    return [str(each) for each in cells if abs(each.makespan_error) > MAKESPAN_ERROR]


def find_wrong_orders(group: Iterable[ComparedCell]) -> list[tuple[str, str]]:
    """Return the pairs of arms of one cell whose order in the model is not the pool's.

    Two arms are compared over the seeds that both have.
    """
    wrong = []
    for one, other in combinations(group, 2):
        seeds = {run.key.seed for run in one.runs} & {run.key.seed for run in other.runs}
        if not seeds:
            continue
        (pool, model), (pool_other, model_other) = (_mean_makespans(each, seeds) for each in (one, other))
        ratio = pool / pool_other
        if max(ratio, 1 / ratio) > CLEAR and (ratio > 1) != (model > model_other):
            wrong.append((str(one), str(other)))
    return wrong


def _mean_makespans(cell: ComparedCell, seeds: set[int]) -> tuple[float, float]:
    runs = [run for run in cell.runs if run.key.seed in seeds]
    return ComparedCell(cell.cell, cell.arm, runs).makespans


def test_every_arm_of_the_experiment_is_in_the_model_or_has_a_reason():
    arms = {run.key.arm for run in benefit_cells.load_runs()}
    assert arms <= POLICIES.keys() | NOT_MODELLED.keys()
    assert {"off", "require", "auto", "wait 6", "wait 30"} <= arms
    assert all(NOT_MODELLED.values())


def test_replay_of_the_policy_that_ran_has_its_local_share_within_2_points():
    """Negative control: ``hydrator replay`` of the history that each run of an experiment leaves."""
    errors: dict[str, list[float]] = defaultdict(list)
    for run, compared in zip(benefit_cells.modelled_runs(), compare_all(), strict=True):
        errors[run.key.arm].append(benefit_cells.replay_history(run) - compared.pool[1])
    means = {arm: statistics.fmean(each) for arm, each in errors.items()}
    limits = {arm: share_limit(CONTROL_ERROR, len(each)) for arm, each in errors.items()}
    assert {arm for arm in means if abs(means[arm]) > limits[arm]} == set(), (means, limits)


def test_model_of_each_arm_has_its_local_share_within_2_points():
    errors: dict[str, list[float]] = defaultdict(list)
    for run in compare_all():
        errors[run.key.arm].append(run.share_error)
    means = {arm: statistics.fmean(each) for arm, each in errors.items()}
    wrong = {arm for arm, each in errors.items() if abs(means[arm]) > share_limit(CONTROL_ERROR, len(each))}
    assert not wrong, means


def test_share_of_local_bytes_in_cells_is_within_5_points_of_the_pool():
    cells = group_runs(compare_all())
    misses = find_share_misses(cells)
    assert len(misses) <= (1 - MOST_CELLS) * len(cells), misses


def test_makespan_in_cells_is_within_15_percent_of_the_pool():
    cells = group_runs(compare_all())
    misses = find_makespan_misses(cells)
    assert len(misses) <= (1 - MOST_CELLS) * len(cells), misses


def test_order_of_arms_in_cells_is_that_of_the_pool_in_9_of_10_cells():
    groups: dict[object, list[ComparedCell]] = defaultdict(list)
    for each in group_runs(compare_all()):
        groups[each.cell].append(each)
    wrong = {str(cell): found for cell, group in groups.items() if (found := find_wrong_orders(group))}
    assert len(wrong) <= (1 - MOST_CELLS) * len(groups), wrong


EXAMPLE = BenefitCell("62/32/6", "one", "batch", 1.0)


def compare(arm: str, model: tuple[float, float], pool: tuple[float, float], count: int = 4) -> ComparedCell:
    """Build a cell of *count* equal runs: makespan and share in the model and on the pool."""
    runs = [ComparedRun(RunKey(EXAMPLE, arm, seed, 60), pool, model) for seed in range(count)]
    return ComparedCell(EXAMPLE, arm, runs)


def test_cell_that_is_away_from_the_model_is_noticed():
    off, auto = compare("off", (200, 0.4), (190, 0.42)), compare("auto", (100, 0.9), (114, 0.851))
    assert find_share_misses([off, auto]) == find_makespan_misses([off, auto]) == []
    assert find_wrong_orders([off, auto]) == []
    away = compare("auto", (100, 0.9), (220, 0.84))
    assert find_share_misses([off, away]) == find_makespan_misses([off, away]) == [str(away)]
    assert find_wrong_orders([off, away]) == [(str(off), str(away))]
    assert (
        find_share_misses([compare("auto", (100, 0.9), (100, 0.84), count=1)]) == []
    )  # one run differs by chance


def test_run_times_that_jobs_state_reach_the_model():
    """Without stated times the daemon begins with a wrong run time, so the two arms differ without turns."""
    cell = BenefitCell("62/32/6", "two", "batch", 1.0)
    stated, learned = (RunKey(cell, arm, 1, 120) for arm in ("auto", "auto, no times"))
    rules = replace(benefit_cells.build_rules(cell), turns=None)
    assert benefit_cells.replay(stated, rules) != benefit_cells.replay(learned, rules)
