"""The first jobs of a batch in the stored runs of the benefit experiment: how many ran beside their data."""

from benchmarks.benefit.runs import BenefitRun, RunStore
from benchmarks.benefit.workload import SITES, SLOTS, generate
from benchmarks.record import RESULTS

FIRST = SLOTS * len(SITES)
"""As many jobs as the pool has slots."""


def is_plain_batch(run: BenefitRun) -> bool:
    cell = run.key.cell
    return bool(run.samples) and (cell.layout, cell.mix, cell.submitted) == ("62/32/6", "one", "batch")


def count_local(run: BenefitRun) -> int:
    workload = generate(run.key.cell, run.key.seed, run.key.count)
    first = sorted(run.samples, key=lambda number: run.samples[number].began)[:FIRST]
    return sum(not workload.missing_bytes(workload.jobs[each], run.samples[each].site) for each in first)


def test_first_jobs_of_auto_ran_beside_their_data_in_the_stored_runs():
    """A stock pool finds the data by chance."""
    runs = [run for run in RunStore(RESULTS / "benefit_runs.jsonl").load() if is_plain_batch(run)]
    auto, stock = ([count_local(run) for run in runs if run.key.arm == arm] for arm in ("auto", "off"))
    assert len(auto) >= 10 <= len(stock)
    assert sorted(auto)[len(auto) // 10] == FIRST, "in 9 of 10 runs all of them"
    assert sum(auto) / len(auto) > FIRST - 1
    assert sum(stock) / len(stock) < FIRST / 2
