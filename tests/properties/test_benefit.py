"""Laws of the benefit experiment: workloads, schedules, stored runs and intervals."""

import statistics
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.benefit.arms import ARMS, listed_sites
from benchmarks.benefit.intervals import bootstrap_interval
from benchmarks.benefit.jobs import submissions
from benchmarks.benefit.plan import CellSet, order
from benchmarks.benefit.runs import BenefitRun, JobSample, RunKey
from benchmarks.benefit.schedule import best_found, lower_bound
from benchmarks.benefit.workload import (
    COMPUTE_SECONDS,
    JOB_BYTES,
    LAYOUTS,
    MIXES,
    SITES,
    SLOTS,
    SUBMISSIONS,
    Cell,
    generate,
)

cells = st.builds(
    Cell,
    st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from(sorted(MIXES)),
    st.sampled_from(sorted(SUBMISSIONS)),
    st.sampled_from([0.05, 0.5, 1.0, 4.0]),
)
seeds = st.integers(1, 50)
values = st.lists(st.floats(0.01, 100), min_size=1, max_size=12)


@given(values, seeds)
def test_interval_contains_the_median_and_stays_inside_the_values(found, seed):
    low, high = bootstrap_interval(found, seed=seed, rounds=200)
    assert min(found) <= low <= statistics.median(found) <= high <= max(found)


@pytest.mark.parametrize("found", [[], [1.0, float("nan")], [float("inf")]])
def test_interval_of_no_figures_or_of_infinite_ones_is_an_error(found):
    with pytest.raises(ValueError, match="finite values"):
        bootstrap_interval(found)


@given(cells, seeds, st.integers(6, 60))
def test_workload_has_the_mean_job_of_its_definition(cell, seed, count):
    workload = generate(cell, seed, count)
    readers = [job for job in workload.jobs if job.datasets]
    assert statistics.fmean(job.seconds for job in workload.jobs) == pytest.approx(COMPUTE_SECONDS)
    read = statistics.fmean(workload.bytes_of(job) for job in readers)
    assert read == pytest.approx(JOB_BYTES, rel=0.001)
    replicas = LAYOUTS[cell.layout][1]
    assert {len(dataset.sites) for dataset in workload.datasets} == {replicas}


@given(cells, seeds)
def test_cells_that_differ_in_x_only_have_the_same_jobs(cell, seed):
    other = Cell(cell.layout, cell.mix, cell.submitted, 2.0)
    assert generate(cell, seed, 30) == generate(other, seed, 30)


@given(cells, seeds)
def test_every_job_is_submitted_once_and_in_the_order_of_the_queue(cell, seed):
    workload = generate(cell, seed, 40)
    for arm in ("off", "require"):
        by_user = submissions(workload, Path("/x"), ARMS[arm].lines)
        for user, orders in by_user.items():
            numbers = [int(item["number"]) for order_ in orders for item in order_["items"]]
            assert numbers == [job.number for job in workload.jobs if job.user == user]
            assert [order_["at"] for order_ in orders] == sorted(order_["at"] for order_ in orders)


@given(cells, seeds)
def test_wrong_catalogue_lists_no_dataset_of_one_replica_where_it_is(cell, seed):
    for dataset in generate(cell, seed, 20).datasets:
        listed = listed_sites(ARMS["wrong"], dataset.sites)
        assert set(listed) != set(dataset.sites)
        assert len(dataset.sites) > 1 or not set(listed) & set(dataset.sites)
        assert listed_sites(ARMS["require"], dataset.sites) == dataset.sites


@settings(max_examples=25, deadline=None)
@given(cells, seeds)
def test_best_schedule_is_a_schedule_and_not_below_the_bound(cell, seed):
    workload = generate(cell, seed, 24)
    schedule = best_found(workload, cell.x)
    assert schedule.sites.keys() == schedule.ends.keys() == {job.number for job in workload.jobs}
    assert lower_bound(workload, cell.x) <= schedule.makespan + 1e-6
    for job in workload.jobs:
        assert schedule.ends[job.number] >= job.submitted_at + job.seconds - 1e-6
    busy = dict.fromkeys(SITES, 0.0)
    for job in workload.jobs:
        busy[schedule.sites[job.number]] += job.seconds
    assert all(seconds <= SLOTS * schedule.makespan + 1e-6 for seconds in busy.values())


@given(cells, st.dictionaries(st.integers(0, 200), st.tuples(*[st.integers(0, 9999)] * 3)), st.text())
def test_stored_run_is_read_back(cell, times, failure):
    samples = {number: JobSample("NL", *(each / 10 for each in three)) for number, three in times.items()}
    run = BenefitRun(RunKey(cell, "off", 3, 24), samples, {"load": [1.0, 2.0, 3.0]}, failure)
    assert BenefitRun.parse(run.to_line()) == run
    assert "\n" not in run.to_line()


@given(st.integers(1, 4), st.sets(st.integers(0, 30)))
def test_interrupted_plan_goes_on_with_exactly_the_runs_that_are_left(count, done):
    chosen = [CellSet(("off", "require"), count, xs=(1.0, 2.0)), CellSet(("off", "wrong"), 2, xs=(1.0,))]
    everything = list(order(chosen, []))
    assert len(set(everything)) == len(everything)
    finished = [key for number, key in enumerate(everything) if number in done]
    assert list(order(chosen, finished)) == [key for key in everything if key not in finished]
