"""The comparison of an experiment's blocks: cases computed by hand, and laws over random pools."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydrator.diagnostics.outcomes import AdHistory, parse_ended_job
from hydrator.diagnostics.switchback import MEASURES, MIN_PAIRS, LeftOut, compare_blocks
from hydrator.domain.model import SiteAd, to_unix
from hydrator.reconcile.ads.drafts import Draft
from hydrator.reconcile.history import HistoryEntry
from hydrator.reconcile.publish.experiment import Experiment, mark_observed
from tests.factories import CAM, HOUR, L1, MINUTE, NOON, RAL, ad

pytestmark = pytest.mark.outside

SIZES = {L1: 100}


def plan(pairs: int = 2, seed: int = 0, drop: timedelta = HOUR) -> Experiment:
    return Experiment(seed, NOON, 6 * HOUR, 2 * pairs, drop)


def marked(one: SiteAd) -> SiteAd:
    """Return *one* as an observe-only block publishes it."""
    draft = mark_observed({one.site: Draft(one.site, one.as_of, one.content)})[one.site]
    return replace(one, content=draft.content)


def history(experiment: Experiment, extra: tuple[HistoryEntry, ...] = ()) -> AdHistory:
    """CAM has L1 and RAL has nothing; the ads follow the plan."""
    times = [NOON + number * experiment.block_time for number in range(experiment.block_count)]
    entries = [
        HistoryEntry(at, marked(one) if experiment.is_observing(at) else one, ())
        for at in times
        for one in (ad(L1, site=CAM), ad(site=RAL))
    ]
    return AdHistory([*entries, *extra])


def job(start, site=CAM, wait=10, datasets=(L1,), **more):
    times = {"QDate": to_unix(start) - wait, "JobStartDate": to_unix(start)}
    return parse_ended_job({**times, "site": site, "datasets": list(datasets) or None, **more})


def start_of(experiment: Experiment, pair: int, *, is_observing: bool):
    """Return the first time that counts in the block of this arm."""
    first = NOON + 2 * pair * experiment.block_time
    begin = first if experiment.is_observing(first) is is_observing else first + experiment.block_time
    return begin + experiment.drop_time


def test_arms_and_differences_are_as_computed_by_hand():
    experiment = plan()
    jobs = []
    for pair in range(2):
        active, observed = (start_of(experiment, pair, is_observing=one) for one in (False, True))
        jobs += [job(active, wait=40), job(active, wait=60), job(active, RAL, wait=80)]
        jobs += [job(observed, wait=10), job(observed, RAL, wait=30)]
    result = compare_blocks(jobs, history(experiment), SIZES, experiment)
    assert (result.active.jobs, result.observed.jobs, result.pair_count) == (6, 4, 2)
    assert result.active.measures() == {
        "share_of_jobs": pytest.approx(2 / 3),
        "share_of_bytes": pytest.approx(2 / 3),
        "bytes_moved_per_job": pytest.approx(100 / 3),
        "mean_wait": 60,
        "p95_wait": 80,
    }
    values = {name: one.value for name, one in result.differences.items()}
    assert values == pytest.approx(
        {
            "share_of_jobs": 1 / 6,
            "share_of_bytes": 1 / 6,
            "bytes_moved_per_job": 100 / 3 - 50,
            "mean_wait": 40,
            "p95_wait": 50,
        }
    )
    assert all(one.low is None is one.high for one in result.differences.values()), "2 pairs only"
    assert set(result.left_out.values()) == {0}


def test_jobs_whose_ad_was_deleted_are_counted_apart_from_sites_without_an_ad():
    experiment = plan()
    active = start_of(experiment, 0, is_observing=False)
    later = experiment.ends_at - MINUTE
    deleted = AdHistory([HistoryEntry(later, ad(L1, site=CAM), ())], {CAM: later})
    jobs = [job(active), job(active, RAL), job(active, site=None)]
    result = compare_blocks(jobs, deleted, SIZES, experiment)
    assert (result.left_out[LeftOut.LOST_AD], result.left_out[LeftOut.NO_AD]) == (1, 2)


def test_jobs_that_the_plan_says_nothing_about_are_left_out_with_the_reason():
    experiment = plan()
    active, observed = (start_of(experiment, 0, is_observing=one) for one in (False, True))
    lone = start_of(experiment, 1, is_observing=False)
    wrong = HistoryEntry(active + HOUR, marked(ad(site=RAL)), ())
    jobs = [
        job(active),
        job(observed),
        job(NOON - MINUTE),
        job(experiment.ends_at),
        job(active - MINUTE),
        job(active + HOUR, RAL),
        job(active, site=None),
        job(active, site="ELSEWHERE"),
        job(lone),
        job(active, datasets=()),
        parse_ended_job({"QDate": to_unix(NOON), "site": CAM, "datasets": [L1]}),
    ]
    result = compare_blocks(jobs, history(experiment, (wrong,)), SIZES, experiment)
    assert result.left_out == {
        LeftOut.OUTSIDE: 2,
        LeftOut.DROPPED: 1,
        LeftOut.OTHER_AD: 1,
        LeftOut.LOST_AD: 0,
        LeftOut.NO_AD: 2,
        LeftOut.NO_PAIR: 1,
    }
    assert (result.active.jobs, result.observed.jobs) == (1, 1)


def test_job_belongs_to_the_block_of_its_last_start_and_then_has_no_wait():
    experiment = plan(drop=timedelta())
    active, observed = (start_of(experiment, 0, is_observing=one) for one in (False, True))
    again = job(active, JobCurrentStartDate=to_unix(observed))
    result = compare_blocks([job(active), job(observed), again], history(experiment), SIZES, experiment)
    assert (result.active.jobs, result.observed.jobs) == (1, 2)
    assert (len(result.active.waits), len(result.observed.waits)) == (1, 1)


def random_jobs(experiment: Experiment, seed: int, share_active: float = 0.5, wait_active: float = 100):
    """Jobs over all blocks. The load and the shares drift over the days, and each block has its own share."""
    generator = random.Random(seed)
    jobs = []
    for number in range(experiment.block_count):
        begin = NOON + number * experiment.block_time
        is_active = not experiment.is_observing(begin)
        share = (share_active if is_active else 0.5) + generator.uniform(-0.1, 0.1)
        wait = (wait_active if is_active else 100) * (1 + number / experiment.block_count)
        for _ in range(generator.randint(5, 30)):
            site = CAM if generator.random() < share else RAL
            begin_at = begin + generator.uniform(1, 5.9) * HOUR
            jobs.append(job(begin_at, site, wait=round(generator.expovariate(1 / wait))))
    return jobs


def result_of(seed: int, **arms: float):
    experiment = plan(pairs=20, seed=seed)
    return compare_blocks(random_jobs(experiment, seed, **arms), history(experiment), SIZES, experiment)


def test_two_equal_arms_have_intervals_around_0():
    """5 % of the intervals should miss 0. Of 200 pools at most 24 may; 12 to 14 did at first."""
    misses = dict.fromkeys(MEASURES, 0)
    for seed in range(200):
        for name, one in result_of(seed).differences.items():
            assert one.low is not None
            assert one.high is not None
            assert one.low <= one.value <= one.high or name == "p95_wait"
            misses[name] += not one.low <= 0 <= one.high
    assert max(misses.values()) <= 24, misses
    assert min(misses.values()) >= 1, "intervals that never miss are too wide"


@pytest.mark.parametrize("seed", range(5))
def test_a_real_difference_is_found_with_its_sign(seed):
    found = result_of(seed, share_active=0.9, wait_active=300).differences
    for name, sign in [
        ("share_of_jobs", 1),
        ("share_of_bytes", 1),
        ("bytes_moved_per_job", -1),
        ("mean_wait", 1),
    ]:
        low, high = found[name].low, found[name].high
        assert low * sign > 0, name
        assert high * sign > 0, name
    assert found["share_of_jobs"].value == pytest.approx(0.4, abs=0.15)


@given(st.integers(0, 2**32), st.integers(1, MIN_PAIRS + 2))
@settings(deadline=None, max_examples=25)
def test_each_job_is_in_one_arm_or_left_out_and_the_order_does_not_matter(seed, pairs):
    experiment = plan(pairs=pairs, seed=seed, drop=3 * HOUR)
    jobs = random_jobs(experiment, seed)
    ads = history(experiment)
    result = compare_blocks(jobs, ads, SIZES, experiment)
    assert result.active.jobs + result.observed.jobs + sum(result.left_out.values()) == len(jobs)
    shuffled = random.Random(seed).sample(jobs, len(jobs))
    assert compare_blocks(shuffled, ads, SIZES, experiment).left_out == result.left_out
    has_interval = all(one.low is not None for one in result.differences.values())
    assert has_interval is (result.pair_count >= MIN_PAIRS) or not result.differences
