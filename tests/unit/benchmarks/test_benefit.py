"""The benefit experiment's figures, goals, map and command line, on runs made by hand."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.benefit import figures
from benchmarks.benefit import map as benefit_map
from benchmarks.benefit.__main__ import choose, parser
from benchmarks.benefit.arms import ARMS
from benchmarks.benefit.cells import CellFigures, summarize
from benchmarks.benefit.goals import judge
from benchmarks.benefit.picture import draw
from benchmarks.benefit.plan import SETS
from benchmarks.benefit.runs import BenefitRun, JobSample, RunKey, RunStore, outcome
from benchmarks.benefit.schedule import best_found, least_remote_bytes, lower_bound
from benchmarks.benefit.workload import (
    BenefitJob,
    Cell,
    StoredDataset,
    Workload,
    generate,
)
from benchmarks.record import update_readme

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


def figures_of(arm: str, speedup: float, **more: object) -> CellFigures:
    usual: dict[str, object] = {
        "turnaround_mean_ratio": 0.8,
        "turnaround_p95_ratio": 0.8,
        "bytes_local": 0.95,
        "remote_bytes_ratio": 0.1,
        "slots_idle": 0.1,
        "slots_reading": 0.1,
        "load": 1.0,
        "speedups": {1: speedup, 2: speedup},
        "commits": ("abc",),
    }
    cell = more.pop("cell", HERE)
    return CellFigures(
        cell, arm, (1, 2), 120, 100 / speedup, speedup, (speedup, speedup), **{**usual, **more}
    )


# --- schedules, by hand -------------------------------------------------------------------------------


def test_bound_of_twelve_jobs_at_one_site_is_the_one_computed_by_hand():
    # m jobs leave: m reads of 6 s one after the other in T, and (12 - m) jobs of 6 s on four slots in T;
    # with m = T / 6 that is 18 - T / 4 = T, so T = 14.4
    assert lower_bound(at_one_site(12), 1.0) == pytest.approx(14.4, abs=0.01)


def test_best_schedule_of_twelve_jobs_at_one_site_is_three_waves():
    schedule = best_found(at_one_site(12), 1.0)
    assert schedule.makespan == pytest.approx(18)


def test_best_schedule_leaves_when_links_are_fast():
    schedule = best_found(at_one_site(12), 0.01)
    assert schedule.makespan < 7
    assert set(schedule.sites.values()) == {"DE", "NL", "PL"}


def test_best_schedule_stays_when_links_are_slow():
    assert set(best_found(at_one_site(12), 4.0).sites.values()) == {"DE"}


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


def test_jobs_that_never_ran_are_counted_and_left_out():
    run = run_of("require", 1, 24.0)
    fewer = {number: each for number, each in run.samples.items() if number < 9}
    found = outcome(BenefitRun(run.key, fewer, MACHINE))
    assert found.never_ran == 3
    assert found.makespan == 18.0


def test_speedups_are_of_paired_seeds():
    runs = [run_of("off", 1, 20), run_of("off", 2, 60), run_of("require", 1, 10), run_of("require", 2, 20)]
    runs += [run_of("require", 3, 1)]  # its stock run is missing
    by_arm = {each.arm: each for each in summarize(runs)}
    assert by_arm["require"].seeds == (1, 2)
    assert by_arm["require"].speedup == pytest.approx(2.5)  # of 2 and 3
    assert by_arm["require"].interval == (2.0, 3.0)
    assert by_arm["off"].speedup == 1.0
    assert by_arm["best"].bound_s <= by_arm["best"].makespan_s


def test_arm_is_compared_with_the_stock_run_that_ran_beside_it():
    runs = [run_of("off", 1, 100), run_of("require", 1, 50), run_of("off", 1, 300), run_of("auto", 1, 50)]
    times = (10, 11, 9000, 9001)
    later = [replace(run, machine={**MACHINE, "at": at}) for run, at in zip(runs, times, strict=True)]
    found = {each.arm: each.speedup for each in summarize(later)}
    assert (found["require"], found["auto"], found["off"]) == (2.0, 6.0, 1.0)


def test_repeated_run_counts_once_by_its_last_time():
    runs = [run_of("off", 1, 20), run_of("require", 1, 20), run_of("require", 1, 10)]
    assert next(each for each in summarize(runs) if each.arm == "require").speedup == 2.0


# --- goals --------------------------------------------------------------------------------------------


def verdicts(*found: CellFigures) -> dict[str, bool]:
    return {each.goal: each.is_met for each in judge([figures_of("off", 1.0), *found])}


def test_good_auto_meets_every_goal():
    found = verdicts(figures_of("auto", 1.7, no_data_ratio=1.0), figures_of("wait 30", 1.8))
    assert all(found.values())
    assert set(found) == {
        "auto against the stock pool",
        "auto against the best fixed wait (wait 30), 2 seeds of both",
        "headline speed-up of auto",
        "p95 turnaround of auto",
        "jobs without data under auto",
        "remote bytes under auto",
    }


@pytest.mark.parametrize(
    ("goal", "speedup", "more"),
    [
        ("auto against the stock pool", 0.96, {}),
        ("auto against the best fixed wait (wait 30), 2 seeds of both", 1.61, {}),
        ("headline speed-up of auto", 1.59, {}),
        ("p95 turnaround of auto", 1.7, {"turnaround_p95_ratio": 1.11}),
        ("jobs without data under auto", 1.7, {"no_data_ratio": 1.06}),
        ("remote bytes under auto", 1.7, {"remote_bytes_ratio": 0.21}),
    ],
)
def test_missed_goal_is_reported_with_a_reason(goal, speedup, more):
    auto, wait = figures_of("auto", speedup, **more), figures_of("wait 30", 1.8)
    missed = [each for each in judge([figures_of("off", 1.0), auto, wait]) if not each.is_met]
    assert goal in [each.goal for each in missed]
    assert all(each.reason for each in missed)


def test_goals_of_other_cells_have_their_own_limits():
    cheap = Cell("even", "one", "batch", 0.05)
    found = judge(
        [
            figures_of("off", 1.0, cell=cheap),
            figures_of("auto", 0.98, cell=cheap, remote_bytes_ratio=0.9, turnaround_p95_ratio=1.0),
        ]
    )
    assert {each.goal for each in found} == {"auto against the stock pool", "p95 turnaround of auto"}
    assert all(each.is_met for each in found)


def test_require_with_jobs_that_never_ran_is_not_the_best_fixed_wait():
    found = verdicts(figures_of("auto", 1.7), figures_of("require", 3.0, never_ran=12))
    assert not any("fixed" in goal for goal in found)


def test_auto_and_the_best_fixed_wait_are_compared_over_their_common_seeds():
    """Other seeds are other jobs, and ran at another time under another load."""
    auto = figures_of("auto", 1.0, speedups={1: 1.0, 2: 2.0, 3: 0.5, 4: 0.5})
    wait = figures_of("wait 30", 1.6, speedups={1: 1.25, 2: 2.0, 9: 9.0}, commits=("def",))
    faster_elsewhere = figures_of("wait 6", 5.0, speedups={8: 5.0})
    found = judge([figures_of("off", 1.0), auto, wait, faster_elsewhere])
    (verdict,) = [each for each in found if "fixed" in each.goal]
    assert verdict.goal == "auto against the best fixed wait (wait 30), 2 seeds of both"
    assert verdict.value == pytest.approx(0.9)  # of 0.8 and 1
    slow = figures_of("auto", 1.0, speedups={1: 0.5})
    (missed,) = [each for each in judge([figures_of("off", 1.0), slow, wait]) if "fixed" in each.goal]
    assert (missed.value, missed.is_met) == (0.4, False)
    assert missed.goal.endswith(", 1 seed of both")
    assert missed.reason.endswith("different commits")


def test_reason_names_a_high_load():
    wait = figures_of("wait 6", 1.5, load=9.0)
    for load, is_named in ((36.0, True), (9.0, False)):
        first = next(iter(judge([figures_of("off", 1.0), figures_of("auto", 0.9, load=load), wait])))
        assert ("load average was 36, and 9 under wait 6" in first.reason) is is_named


def test_reason_names_what_slots_did_otherwise():
    idle = figures_of("auto", 0.9, slots_idle=0.4)
    reading = figures_of("auto", 0.9, slots_reading=0.5)
    wait = figures_of("wait 6", 1.5)
    for auto, text in ((idle, "were idle 40%"), (reading, "read from other sites 50%")):
        first = next(iter(judge([figures_of("off", 1.0), auto, wait])))
        assert text in first.reason


@pytest.mark.parametrize(("of_best", "is_named"), [(0.28, True), (0.2, False), (None, False)])
def test_reason_for_remote_bytes_names_the_fastest_schedule_if_that_misses_the_goal_too(of_best, is_named):
    auto = figures_of("auto", 1.7, remote_bytes_ratio=0.3)
    best = figures_of("best", 2.0, remote_bytes_ratio=of_best)
    (missed,) = [each for each in judge([figures_of("off", 1.0), auto, best]) if "remote" in each.goal]
    assert not missed.is_met
    assert ("the fastest schedule found reads 28% of" in missed.reason) is is_named
    assert missed.reason


def reason_for_remote_bytes(*more: CellFigures, least: float, best: float = 0.28) -> str:
    auto = figures_of("auto", 1.7, remote_bytes_ratio=0.3, least_remote_ratio=least)
    fastest = figures_of("best", 2.0, remote_bytes_ratio=best)
    found = judge([figures_of("off", 1.0), auto, fastest, *more])
    (missed,) = [each for each in found if "remote" in each.goal]
    return missed.reason


def test_reason_for_remote_bytes_names_the_bound_at_the_speed_of_auto():
    assert "any schedule as fast as auto reads 7% or more" in reason_for_remote_bytes(least=0.07)
    assert "any schedule as fast as auto reads 22% or more" in reason_for_remote_bytes(least=0.22, best=0.1)
    assert "any schedule" not in reason_for_remote_bytes(least=0.07, best=0.1)


def test_reason_for_remote_bytes_names_the_price_of_the_goal():
    require = figures_of("require", 1.2, remote_bytes_ratio=0.0, never_ran=2)
    far = figures_of("wait 6", 1.9, remote_bytes_ratio=0.6)
    reason = reason_for_remote_bytes(require, far, least=0.07)
    assert "require reads 0% and is 1.20 times as fast as the stock pool, but 2 jobs never ran" in reason
    assert "(auto: 1.70)" in reason


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


def test_control_fails_if_wrong_sites_do_not_slow_the_pool():
    assert verdicts(figures_of("wrong", 0.5))["control: wrong sites"]
    assert not verdicts(figures_of("wrong", 1.0))["control: wrong sites"]


def test_cells_without_auto_have_no_verdict_of_auto():
    assert verdicts(figures_of("require", 2.0)) == {}


# --- the files ----------------------------------------------------------------------------------------


def test_result_file_has_a_cell_for_each_arm(tmp_path):
    runs = [run_of("off", 1, 20), run_of("require", 1, 10)]
    file = figures.write(runs, tmp_path)
    document = json.loads(file.read_text("utf-8"))
    assert [cell["arm"] for cell in document["cells"]] == ["off", "best", "require"]
    for cell in document["cells"]:
        assert {
            *("layout", "mix", "submitted", "x", "arm", "seeds", "makespan_s", "speedup", "interval"),
            *("turnaround_p95_ratio", "bytes_local"),
        } <= set(cell)
    assert document["commit"] == "abc"
    assert document["links"] == "token bucket"
    assert (
        document["arms"]["staging"] == "every dataset is at a site with slots, so the daemon stages nothing"
    )


def test_no_result_file_without_a_run(tmp_path):
    assert figures.write([], tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_store_keeps_ended_runs_past_a_torn_line(tmp_path):
    store = RunStore(tmp_path / "runs" / "runs.jsonl")
    first, second = run_of("off", 1, 20), run_of("require", 1, 10)
    store.append(first)
    with (tmp_path / "runs" / "runs.jsonl").open("a") as file:
        file.write('{"layout": "62/')
    assert [run.key for run in store.load()] == [first.key]
    store.append(second)
    keys = [run.key for run in store.load()]
    assert keys == [first.key, second.key]


def test_map_names_cells_whose_arms_are_of_different_commits():
    runs = [run_of("off", 1, 20, count=120), run_of("auto", 1, 10, count=120)]
    assert "different commits" not in benefit_map.page_text(figures.document(runs, summarize(runs), []))
    runs[1] = replace(runs[1], machine={**MACHINE, "commit": "def"})
    page = benefit_map.page_text(figures.document(runs, summarize(runs), []))
    assert "different commits" in page
    assert "- 62/32/6, one dataset a job, batch: x = 1\n" in page


def test_date_of_the_map_is_that_of_the_last_run():
    runs = [replace(run_of("off", seed, 20), machine={**MACHINE, "at": 86400 * seed}) for seed in (2, 1)]
    assert figures.document(runs, summarize(runs), [])["date"] == "1970-01-03 00:00 UTC"


def test_failed_run_is_kept_counted_and_repeated(tmp_path):
    key = RunKey(HERE, "auto", 1, 120)
    runs = [run_of("off", 1, 20, count=120), BenefitRun(key, {}, MACHINE, "jobs did not end")]
    store = RunStore(tmp_path / "runs.jsonl")
    for run in runs:
        store.append(run)
    assert [run.failure for run in store.load()] == ["", "jobs did not end"]
    document = json.loads(figures.write(store.load(), tmp_path).read_text("utf-8"))
    assert [(each["arm"], each["reason"]) for each in document["failed_runs"]] == [
        ("auto", "jobs did not end")
    ]
    assert "1 run failed and was repeated (auto at x = 1)." in benefit_map.page_text(document)
    assert {each["arm"] for each in document["cells"]} == {"off", "best"}


@pytest.mark.parametrize(("later", "is_met"), [(1.02, True), (1.06, False), (1.2, False), (0.9, False)])
def test_second_half_of_the_seeds_repeats_the_first(later, is_met):
    again = [2.0 * later + spread for spread in (-0.3, -0.1, 0, 0.1, 0.3)]  # overlaps the first half
    speedups = [2.0, 2.1, 1.9, 2.0, 2.1, *again]
    runs = [run_of("off", seed, 20) for seed in range(1, 11)]
    runs += [run_of("auto", seed, 20 / speedup) for seed, speedup in enumerate(speedups, 1)]
    cells = summarize(reversed(runs))  # in any order
    (auto,) = [each for each in cells if each.arm == "auto"]
    assert auto.halves[0][0] == pytest.approx(2.0)
    assert auto.halves[1][0] == pytest.approx(2.0 * later)
    (verdict,) = [each for each in judge(cells) if each.goal.startswith("seeds repeated")]
    assert verdict.is_met is is_met
    if not is_met:
        assert verdict.reason.startswith("first half 2.00 (1.90 to 2.10), second half")
    whole = [replace(each, jobs=120) for each in cells]
    page = benefit_map.page_text(figures.document(runs, whole, []))
    assert f"| auto | 2.00 (1.90 to 2.10) | {2 * later:.2f} (" in page
    assert not [each for each in judge(summarize(runs[:9] + runs[10:19])) if each.goal.startswith("seeds")]


def test_jobs_that_waited_longer_than_in_the_stock_pool_are_counted():
    stock, ours = run_of("off", 1, 12), run_of("auto", 1, 12)
    later = {
        number: JobSample(each.site, each.began, each.read, each.ended * (1.5 if number < 3 else 1.05))
        for number, each in ours.samples.items()
    }
    found = summarize([stock, BenefitRun(ours.key, later, MACHINE)])
    assert {each.arm: each.longer_share for each in found if each.arm != "best"} == {"off": 0.0, "auto": 0.25}


def test_errors_of_the_estimates_are_judged_by_their_medians():
    none = {"samples": 0, "median": None, "p90": None}
    errors = {"queue": {"samples": 9, "median": 1.5, "p90": 5.0}, "read": none}
    run = run_of("auto", 1, 10)
    measured = BenefitRun(run.key, run.samples, {**MACHINE, "estimate_errors": errors})
    found = [each for each in judge(summarize([run_of("off", 1, 20), measured])) if "real" in each.goal]
    assert [(each.value, each.is_met) for each in found] == [(1.5, True), (5.0, False)]


def test_runs_that_are_set_aside_run_again(tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    store.set_aside()
    store.append(run_of("off", 1, 20))
    store.set_aside()
    assert store.load() == []
    assert (tmp_path / "runs.old").exists()


def test_readme_of_the_benchmarks_leaves_the_experiment_out(tmp_path):
    figures.write([run_of("off", 1, 20)], tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("<!-- figures: written by python -m benchmarks -->\n<!-- end of figures -->\n", "utf-8")
    update_readme(tmp_path, readme)
    assert "benefit" not in readme.read_text("utf-8")


def test_map_fills_page_readme_and_picture(tmp_path):
    runs = [
        run_of(arm, seed, seconds, count=120, cell=Cell("62/32/6", mix, "batch", x))
        for mix in ("one", "quarter without data")
        for x in (0.5, 1.0)
        for seed in (1, 2)
        for arm, seconds in (("off", 20), ("require", 10), ("wrong", 30))
    ]
    document = json.loads(figures.write(runs, tmp_path).read_text("utf-8"))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{benefit_map.BEGIN}\nold\n{benefit_map.END}\nafter\n", "utf-8")
    benefit_map.fill(page, benefit_map.page_text(document))
    text = page.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| 0.5 | 20 s | 2.00 (2.00 to 2.00; 2 seeds) |" in text
    assert "### Jobs without datasets" in text
    assert "4 of 4 are met." in text
    assert "| 0.5 | 20 s | 2.00 (2.00 to 2.00; 2 seeds) |" in benefit_map.readme_text(document)


def test_map_leaves_out_runs_of_fewer_jobs(tmp_path):
    cells = [run_of(arm, 1, 20, count=24) for arm in ("off", "require")]
    document = json.loads(figures.write(cells, tmp_path).read_text("utf-8"))
    assert len(document["cells"]) == 3
    assert "require" not in benefit_map.page_text(document)
    assert benefit_map.readme_text(document) == "Not measured yet."


def test_map_reports_a_missed_goal_as_missed():
    runs = [run_of(arm, 1, seconds, count=120) for arm, seconds in (("off", 20), ("wrong", 10))]
    cells = summarize(runs)
    document = figures.document(runs, cells, judge(cells))
    assert "| control: wrong sites | 62/32/6, one dataset a job, batch, x = 1 | 2.00 | ≤ 0.99 |" in (
        benefit_map.page_text(document)
    )


def test_file_without_marks_is_an_error(tmp_path):
    (tmp_path / "x.md").write_text("no marks", "utf-8")
    with pytest.raises(ValueError, match=r"x\.md has no marks"):
        benefit_map.fill(tmp_path / "x.md", "")


def test_picture_is_svg_for_light_and_dark_pages():
    cells = [
        figures_of(arm, speedup, cell=Cell(layout, "one", "batch", x)).to_json()
        for layout in ("62/32/6", "even")
        for x in (0.05, 1.0, 4.0)
        for arm, speedup in (("off", 1.0), ("require", x + 0.5), ("wrong", 0.3))
    ]
    picture = draw(cells)
    root = ET.fromstring(picture)
    assert root.tag.endswith("svg")
    assert "prefers-color-scheme: dark" in picture
    colours = re.findall(r"var\((--[a-z]+)\)", picture)
    assert all(picture.count(f"{colour}: #") == 2 for colour in colours), "one for light, one for dark"
    assert {"62/32/6", "even", "require", "wrong"} <= {text.text for text in root.iter() if text.text}
    assert "nan" not in picture


def test_committed_page_and_readme_have_the_figures_of_the_result_file():
    file = Path(figures.__file__).parents[1] / "results" / figures.NAME
    if file.exists():
        document = json.loads(file.read_text("utf-8"))
        assert benefit_map.page_text(document) in benefit_map.PAGE.read_text("utf-8")
        assert benefit_map.readme_text(document) in benefit_map.README.read_text("utf-8")
        assert benefit_map.PICTURE.read_text("utf-8") == benefit_map.picture_text(document)


# --- the command line ---------------------------------------------------------------------------------


def test_options_choose_cells_seeds_and_jobs():
    options = parser().parse_args(["--x", "0.5,1", "--arm", "off;require", "--seeds", "2", "--jobs", "60"])
    (chosen,) = choose(options)
    assert chosen.xs == (0.5, 1.0)
    assert (chosen.arms, chosen.seeds, chosen.count) == (("off", "require"), 2, 60)


def test_without_options_all_sets_are_chosen():
    assert choose(parser().parse_args([])) == list(SETS.values())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nonsense"], "no set 'nonsense'"),
        (["--arm", "of"], "no arm 'of'"),
        (["--layout", "odd"], "no layout 'odd'"),
        (["--mix", "odd"], "no mix 'odd'"),
        (["--x", "0"], "x above 0"),
    ],
)
def test_unknown_choice_is_an_error_that_names_it(words, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        choose(parser().parse_args(words))


def test_arms_that_cannot_run_yet_have_a_reason():
    assert ARMS["staging"].missing == "every dataset is at a site with slots, so the daemon stages nothing"
    assert [arm.name for arm in ARMS.values() if arm.is_stock and not arm.missing] == ["off"]
