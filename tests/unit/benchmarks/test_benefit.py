"""The benefit experiment's figures, goals and map, on runs made by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.benefit import figures
from benchmarks.benefit import map as benefit_map
from benchmarks.benefit.cells import summarize
from benchmarks.benefit.runs import BenefitRun, JobSample, RunKey, outcome
from benchmarks.benefit.schedule import best_found, least_remote_bytes, lower_bound
from benchmarks.benefit.workload import (
    BenefitJob,
    Cell,
    StoredDataset,
    Workload,
    generate,
)

HERE = Cell("62/32/6", "one", "batch", 1.0)
MACHINE = {"load": [1.0, 1.5, 2.0], "commit": "abc", "links": "token bucket", "release": "25.14.1"}


def at_one_site(count: int) -> Workload:
    """Return *count* jobs of 6 s, each with a dataset of its own at DE."""
    datasets = tuple(StoredDataset(f"benefit:d{n:03}", ("DE",), 4_000_000) for n in range(count))
    return Workload(datasets, tuple(BenefitJob(n, 0.0, "alice", 6.0, (n,)) for n in range(count)))


def run_of(arm: str, seed: int, seconds: float, *, count: int = 12, cell: Cell = HERE) -> BenefitRun:
    """Return a run of *count* jobs beside their data that end one after the other in *seconds*."""
    workload = generate(cell, seed, count)
    samples = {}
    for job in workload.jobs:
        end = seconds * (job.number + 1) / count
        begun = end - seconds / count
        samples[job.number] = JobSample(workload.homes(job)[0], begun, (begun + end) / 2, end)
    return BenefitRun(RunKey(cell, arm, seed, count), samples, MACHINE)


# --- schedules, by hand -------------------------------------------------------------------------------


def test_bound_of_twelve_jobs_at_one_site_is_the_one_computed_by_hand():
    # m jobs leave: m reads of 6 s one after the other in T, and (12 - m) jobs of 6 s on four slots in T;
    # with m = T / 6 that is 18 - T / 4 = T, so T = 14.4
    assert lower_bound(at_one_site(12), 6.0) == pytest.approx(14.4, abs=0.01)


def test_best_schedule_of_twelve_jobs_at_one_site_is_three_waves():
    schedule = best_found(at_one_site(12), 6.0)
    assert schedule.makespan == pytest.approx(18)


# --- figures ------------------------------------------------------------------------------------------


def test_outcome_of_a_run_that_read_everything_elsewhere():
    run = run_of("off", 1, 24.0)
    workload = generate(HERE, 1, 12)
    elsewhere = {
        number: JobSample("PL" if workload.homes(job) != ("PL",) else "DE", 0.0, 3.0, 6.0)
        for number, job in enumerate(workload.jobs)
    }
    found = outcome(BenefitRun(run.key, elsewhere, MACHINE))
    assert found.bytes_local == 0
    assert found.remote_bytes == 12 * 4_000_000
    assert (found.makespan, found.turnaround_mean, found.turnaround_p95) == (6.0, 6.0, 6.0)
    assert found.slots_idle == 0
    assert found.slots_reading == pytest.approx(0.5)
    assert (found.no_data_mean, found.never_ran) == (None, 0)


def test_speedups_are_of_paired_seeds():
    runs = [run_of("off", 1, 20), run_of("off", 2, 60), run_of("require", 1, 10), run_of("require", 2, 20)]
    runs += [run_of("require", 3, 1)]  # its stock run is missing
    by_arm = {each.arm: each for each in summarize(runs)}
    assert by_arm["require"].seeds == (1, 2)
    assert by_arm["require"].speedup == pytest.approx(2.5)  # of 2 and 3
    assert by_arm["require"].interval == (2.0, 3.0)
    assert by_arm["off"].speedup == 1.0
    assert by_arm["best"].bound_s <= by_arm["best"].makespan_s


# --- goals --------------------------------------------------------------------------------------------


def pool_job(number: int, seconds: float, *datasets: int) -> BenefitJob:
    return BenefitJob(number, 0.0, "alice", seconds, datasets)


def test_least_remote_bytes_are_those_of_jobs_without_a_slot_beside_their_data():
    # ten jobs of 6 s have their data at DE, whose four slots have 24 s until second 6
    datasets = tuple(StoredDataset(f"t:{number}", ("DE",), 100) for number in range(10))
    workload = Workload(datasets, tuple(pool_job(number, 6.0, number) for number in range(10)))
    assert least_remote_bytes(workload, 6.0) == pytest.approx(600)
    assert least_remote_bytes(workload, 15.0) == 0
    both = replace(workload.jobs[0], datasets=(0, 10))  # at no site together
    apart = Workload((*datasets, StoredDataset("t:10", ("NL",), 70)), (both, *workload.jobs[1:]))
    assert least_remote_bytes(apart, 15.0) == 70


# --- the files ----------------------------------------------------------------------------------------


def test_committed_page_and_readme_have_the_figures_of_the_result_file():
    file = Path(figures.__file__).parents[1] / "results" / figures.NAME
    if file.exists():
        document = json.loads(file.read_text("utf-8"))
        assert benefit_map.page_text(document) in benefit_map.PAGE.read_text("utf-8")
        assert benefit_map.PICTURE.read_text("utf-8") == benefit_map.picture_text(document)
