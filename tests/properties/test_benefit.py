"""Laws of the benefit experiment: workloads, schedules and intervals."""

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@given(cells, seeds, st.integers(6, 60))
def test_workload_has_the_mean_job_of_its_definition(cell, seed, count):
    workload = generate(cell, seed, count)
    readers = [job for job in workload.jobs if job.datasets]
    assert statistics.fmean(job.seconds for job in workload.jobs) == pytest.approx(COMPUTE_SECONDS)
    read = statistics.fmean(workload.bytes_of(job) for job in readers)
    assert read == pytest.approx(JOB_BYTES, rel=0.001)
    replicas = LAYOUTS[cell.layout][1]
    assert {len(dataset.sites) for dataset in workload.datasets} == {replicas}


@settings(max_examples=25, deadline=None)
@given(cells, seeds)
def test_best_schedule_is_a_schedule_and_not_below_the_bound(cell, seed):
    workload = generate(cell, seed, 24)
    schedule = best_found(workload, cell.read_seconds)
    assert schedule.sites.keys() == schedule.ends.keys() == {job.number for job in workload.jobs}
    assert lower_bound(workload, cell.read_seconds) <= schedule.makespan + 1e-6
    for job in workload.jobs:
        assert schedule.ends[job.number] >= job.submitted_at + job.seconds - 1e-6
    busy = dict.fromkeys(SITES, 0.0)
    for job in workload.jobs:
        busy[schedule.sites[job.number]] += job.seconds
    assert all(seconds <= SLOTS * schedule.makespan + 1e-6 for seconds in busy.values())
