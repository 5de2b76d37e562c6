"""Results of a replay: shares, waits and intervals; and the policies that --policy names."""

from dataclasses import replace

import pytest

from hydrator.diagnostics.replay.model import (
    OFF,
    RECORDED,
    JobClass,
    PolicyDefaults,
    PoolSite,
    parse_policy,
)
from hydrator.diagnostics.replay.statistics import choose_units, summarize
from hydrator.domain.errors import ConfigError

from .worlds import DE, NL, data, lofar, play, workload

DAY = 86_400


def test_point_values_are_exact():
    jobs = workload((PoolSite(NL, 1, 1), PoolSite(DE, 0, 1)), *[(0, 10, JobClass("a", 1, (data(NL),)))] * 3)
    result = summarize([play(jobs, OFF)], "seeds")
    assert (result.share_of_jobs.value, result.share_of_bytes.value, result.bytes_moved.value) == (
        1.0,
        1.0,
        0,
    )
    assert (result.makespan_seconds.value, result.wait_mean_seconds.value) == (30, 10)
    assert (result.wait_p95_seconds.value, result.never_started) == (20, 0)
    assert result.share_of_jobs.low is None  # one run has no interval


def test_jobs_without_data_have_waits_but_no_share():
    jobs = workload((PoolSite(NL, 1, 1),), (0, 10, JobClass("a")), (0, 10, JobClass("a")))
    result = summarize([play(jobs, OFF)], "seeds")
    assert (result.share_of_jobs.value, result.share_of_bytes.value) == (None, None)
    assert result.wait_mean_seconds.value == 5


def test_intervals_contain_the_value_and_shrink_with_more_seeds():
    def width(count: int) -> float:
        runs = [play(lofar(0.5, seed=seed), OFF, seed=seed) for seed in range(count)]
        share, makespan = summarize(runs, "seeds").share_of_jobs, summarize(runs, "seeds").makespan_seconds
        assert share.low <= share.value <= share.high
        assert makespan.low <= makespan.value <= makespan.high
        return share.high - share.low

    assert width(24) < width(6)


def test_units_of_a_history_are_days_or_users():
    site = (PoolSite(NL, 1, 9),)
    days = workload(site, *[(n * DAY, 1, JobClass("a")) for n in range(5)])
    users = workload(site, *[(n, 1, JobClass(f"user{n}")) for n in range(5)])
    few = workload(site, *[(n, 1, JobClass("a")) for n in range(5)])
    assert [choose_units(one, is_generated=False) for one in (days, users, few)] == ["days", "users", "none"]
    assert choose_units(days, is_generated=True) == "seeds"


def test_one_day_that_differs_widens_the_interval():
    def run_of(odd_day: bool):
        one = (PoolSite(NL, 1, 4, 1.0), PoolSite(DE, 1, 4, 1.0))
        at_nl, at_de = JobClass("a", 1, (data(NL),)), JobClass("a", 1, (data(DE),))
        rows = [(n * DAY, 1, at_nl if n or not odd_day else at_de) for n in range(9)]
        return play(workload((one[0], PoolSite(DE, 0, 4, 1.0)), *rows), OFF)

    assert summarize([run_of(False)], "days").share_of_jobs.low == 1.0
    mixed = summarize([run_of(True)], "days").share_of_jobs
    assert mixed.value == pytest.approx(8 / 9)
    assert mixed.low < mixed.value < mixed.high


def test_draws_for_the_same_jobs_are_no_interval():
    """Runs of a history with other seeds draw machines; the jobs are the same each time."""
    runs = [play(lofar(0.5, seed=1), OFF, seed=seed) for seed in range(8)]
    few = summarize(runs, "none")
    assert (few.share_of_jobs.low, few.wait_p95_seconds.high, few.makespan_seconds.low) == (None, None, None)
    assert few.share_of_jobs.value == pytest.approx(summarize(runs, "seeds").share_of_jobs.value)
    assert summarize(runs, "users").makespan_seconds.low is None
    assert summarize(runs, "seeds").makespan_seconds.low is not None


@pytest.mark.parametrize("count", [3, 4, 5])
def test_interval_needs_5_units(count):
    runs = [play(lofar(0.5, seed=seed, jobs=20), OFF, seed=seed) for seed in range(count)]
    assert (summarize(runs, "seeds").share_of_jobs.low is not None) is (count == 5)


@pytest.mark.parametrize(
    ("text", "mode", "seconds"),
    [
        ("prefer", "prefer", 600),
        ("prefer:0s", "prefer", 0),
        ("wait", "wait", 3600),
        ("wait:1h", "wait", 3600),
        ("wait:90", "wait", 90),
        ("wait:90m", "wait", 5400),
        ("auto", "auto", 600),
        ("auto:2d", "auto", 172_800),
        ("require", "require", 600),
    ],
)
def test_policy_is_a_mode_and_a_time(text, mode, seconds):
    got = parse_policy(text, PolicyDefaults())
    assert (got.name, got.mode, got.wait_seconds, got.rounding_seconds) == (text, mode, seconds, 300)


def test_policies_without_a_mode():
    assert parse_policy("off", PolicyDefaults()) is OFF
    assert parse_policy("recorded", PolicyDefaults()) is RECORDED
    assert replace(OFF, name="x") != OFF


@pytest.mark.parametrize(
    "text", ["", "soon", "wait:", "wait:x", "require:1h", "off:1h", "wait:1y", "wait:-1h"]
)
def test_other_policies_are_rejected(text):
    with pytest.raises(ConfigError, match="--policy"):
        parse_policy(text, PolicyDefaults())
