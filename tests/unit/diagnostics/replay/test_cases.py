"""Small pools whose schedules were computed by hand."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydrator.diagnostics.replay.expressions import TurnRules
from hydrator.diagnostics.replay.links import SharedLink
from hydrator.diagnostics.replay.model import JobClass, PolicyChoice, PoolRules, PoolSite
from hydrator.reconcile.estimates.estimate import EstimatePolicy
from tests.transform_oracle import compute_any_after

from .worlds import ANY, AUTO, DE, FAST, NL, OFF, PL, REQUIRE, data, local_share, play, wait, workload

TWO = (PoolSite(NL, 1, 1, 10.0), PoolSite(DE, 1, 1, 10.0))
AT_NL = JobClass("alice", 1, (data(NL),))


def test_jobs_without_the_project_read_from_elsewhere():
    # two slots: the job at DE reads 100 bytes at 10 B/s for 10 s, then both compute for 50 s
    run = play(workload(TWO, (0, 50, AT_NL), (0, 50, AT_NL)), OFF)
    assert sorted(run.ended) == [50, 60]
    assert run.bytes_moved == 100
    assert local_share(run) == 0.5


def test_require_queues_at_the_data():
    run = play(workload(TWO, (0, 50, AT_NL), (0, 50, AT_NL)), REQUIRE)
    assert list(run.started) == [0, 50]
    assert (run.makespan_seconds, run.bytes_moved, local_share(run)) == (100, 0, 1.0)


def test_wait_ends_at_the_first_cycle_after_its_time():
    # submitted at 0, waits 25 s: cycles are at 0, 10, 20, 30
    run = play(workload(TWO, (0, 50, AT_NL), (0, 50, AT_NL)), wait(25))
    assert list(run.started) == [0, 30]
    assert list(run.ended) == [50, 30 + 10 + 50]


def test_end_of_a_wait_is_rounded_up():
    # the end is a multiple of 300 s, but at most of half the wait: 700 s end at 900 s, 25 s at 36 s
    jobs = workload(TWO, (0, 5000, AT_NL), (0, 50, AT_NL))
    assert play(jobs, wait(700, rounding=300)).started[1] == 900
    assert play(jobs, wait(25, rounding=300)).started[1] == 40


@settings(max_examples=200)
@given(st.integers(0, 10**9), st.integers(0, 100_000), st.integers(1, 3600))
def test_end_of_a_wait_is_that_of_the_pools_transform(now, seconds, rounding):
    assert wait(seconds, rounding).wait_end(now + 0.7) == compute_any_after(now, seconds, rounding)


def test_auto_reads_from_elsewhere_only_if_that_ends_sooner():
    # reading takes 10 s; a slot beside the data comes free after some 50 s, or after some 4 s
    long = play(workload(TWO, (0, 50, AT_NL), (0, 50, AT_NL)), AUTO)
    short = play(workload(TWO, (0, 4, AT_NL), (0, 4, AT_NL)), AUTO)
    assert (local_share(long), local_share(short)) == (0.5, 1.0)


def test_readers_share_their_link():
    # PL and DE read at the same time from NL, 100 bytes each at 5 B/s, then compute for 7 s
    sites = (PoolSite(NL, 0, 1, 10.0), PoolSite(DE, 1, 1, 10.0), PoolSite(PL, 1, 1, 10.0))
    run = play(workload(sites, (0, 7, AT_NL), (0, 7, AT_NL)), OFF)
    assert list(run.ended) == [27, 27]
    assert run.links_busy_seconds == {NL: 20, DE: 0, PL: 0}


def test_second_reader_slows_the_first_down():
    link = SharedLink(10.0)
    link.add_reader(1, 100, 0.0)
    link.add_reader(2, 100, 5.0)  # job 1 has 50 bytes left, at 5 B/s
    assert link.next_end() == 15.0
    assert link.end_read(15.0) == 1
    assert link.next_end() == 20.0  # job 2 has 50 bytes left, at 10 B/s
    assert link.end_read(20.0) == 2
    assert (link.bytes_read, link.busy_seconds, link.next_end()) == (200, 20.0, None)


def test_read_from_an_unknown_rate_takes_no_time():
    sites = (PoolSite(NL, 0, 1), PoolSite(DE, 1, 1))
    run = play(workload(sites, (0, 7, AT_NL)), OFF)
    assert (run.ended[0], run.bytes_moved) == (7, 100)


def test_claim_takes_the_next_job_without_a_cycle():
    run = play(workload(TWO[:1], *[(0, 3, AT_NL)] * 3), OFF)
    assert list(run.started) == [0, 3, 6]


def test_claim_ends_after_its_worklife():
    rules = PoolRules(cycle_seconds=10, gap_seconds=0, claim_worklife_seconds=5)
    run = play(workload(TWO[:1], *[(0, 3, AT_NL)] * 3), OFF, rules)
    assert list(run.started) == [0, 3, 10]  # the second job ends at 6, after the claim's 5 s


def test_schedd_uses_the_leftovers_of_a_matched_machine():
    sites, jobs = (PoolSite(NL, 1, 3),), [(0, 50, AT_NL)] * 3
    assert list(play(workload(sites, *jobs), OFF).started) == [0, 0, 0]
    rules = PoolRules(cycle_seconds=10, has_leftovers=False)
    assert list(play(workload(sites, *jobs), OFF, rules).started) == [0, 10, 20]


def test_leftovers_obey_requirements_but_not_the_rank():
    # the first job of the queue matches at its data; the leftovers take the next, wherever its data is
    sites = (PoolSite(NL, 1, 2), PoolSite(DE, 1, 1))
    jobs = [(0, 50, AT_NL), (0, 50, JobClass("alice", 1, (data(PL),)))]
    sites = (*sites, PoolSite(PL, 0, 1))
    assert sites[play(workload(sites, *jobs), ANY).site_of[0]].name == NL
    assert list(play(workload(sites, *jobs), REQUIRE).site_of) == [0, -1]


def test_job_with_several_cores_needs_one_machine():
    big = JobClass("alice", 2)
    sites = (PoolSite(NL, 2, 1), PoolSite(DE, 1, 2))
    run = play(workload(sites, (0, 5, big), (0, 5, big)), OFF)
    assert list(run.site_of) == [1, 1]
    assert list(run.started) == [0, 5]


def test_require_without_a_holder_never_starts():
    run = play(
        workload((PoolSite(NL, 1, 1), PoolSite(PL, 0, 1)), (0, 5, JobClass("a", 1, (data(PL),)))), REQUIRE
    )
    assert (run.never_started_count, run.makespan_seconds) == (1, 0)


def test_new_sets_wait_for_the_first_ads():
    rules = PoolRules(cycle_seconds=10, publish_seconds=60, gap_seconds=0, is_published_beforehand=False)
    jobs = workload(TWO, (0, 5, AT_NL), (1, 5, JobClass("alice", 1, (data(DE),))))
    run = play(jobs, REQUIRE, rules)
    assert list(run.started) == [60, 60]  # also the ads of second 0 have the state before the first job


def test_slots_have_the_ads_of_a_daemon_cycle_after_the_delivery():
    # the daemon publishes the set at 10, and the slots have it at 25
    rules = PoolRules(cycle_seconds=10, publish_seconds=10, delivery_seconds=15, gap_seconds=0)
    assert list(play(workload(TWO, (1, 5, AT_NL)), REQUIRE, rules).started) == [30]


def test_first_cycle_has_the_queues_of_before_the_submission():
    # at 0 the ads say that nobody waits at NL, so DE takes the second job when they show the queue
    jobs = workload(TWO, (0, 500, AT_NL), (0, 500, AT_NL))
    run = play(jobs, AUTO, FAST)
    assert list(zip(run.started, run.site_of, strict=True)) == [(0, 0), (10, 1)]
    later = play(jobs, AUTO, replace(FAST, delivery_seconds=12))
    assert list(zip(later.started, later.site_of, strict=True)) == [(0, 0), (20, 1)]


def test_queue_of_finished_jobs_has_left_the_ads_before_the_next_submission():
    # while the first three jobs wait, NL's queue is long; at 1000 nobody has waited for a long time
    jobs = workload(TWO, *[(0, 50, AT_NL)] * 3, (1000, 50, AT_NL), (1000, 50, AT_NL))
    run = play(jobs, AUTO, FAST)
    assert (run.started[3], run.site_of[3], run.started[4], run.site_of[4]) == (1000, 0, 1010, 1)


def test_submission_starts_a_cycle_but_not_soon_after_the_last_one():
    rules = PoolRules(cycle_seconds=60, cycle_delay_seconds=20, gap_seconds=0)
    jobs = workload((PoolSite(NL, 1, 4),), *[(at, 500, JobClass("alice")) for at in (25, 27, 100, 115)])
    assert list(play(jobs, OFF, replace(rules, has_leftovers=False)).started) == [25, 45, 100, 120]


def test_auto_job_of_an_unpublished_set_waits_for_its_settle_time():
    # the next ads come after 1000 s, so the job runs anywhere at the first cycle after its 25 s
    sites = (PoolSite(NL, 0, 1, 10.0), PoolSite(DE, 1, 1, 10.0))
    rules = PoolRules(cycle_seconds=10, publish_seconds=1000, is_published_beforehand=False)
    jobs = workload(sites, (0, 5, JobClass("alice")), (1, 5, AT_NL))
    run = play(jobs, PolicyChoice("auto:25s", "auto", 25.0, 1.0), rules)
    assert run.started[1] == 30


NO_RATES = (PoolSite(NL, 1, 1), PoolSite(DE, 1, 1))


def test_auto_without_rates_waits_until_its_set_is_settled():
    # NL has one slot. DE does not show the new set for 40 s; then both jobs could run there
    rules = PoolRules(cycle_seconds=10, publish_seconds=10, gap_seconds=0, settle_seconds=40)
    jobs = workload(NO_RATES, (0, 500, AT_NL), (0, 500, AT_NL))
    late = PolicyChoice("auto:600s", "auto", 600.0, 1.0)
    assert list(play(jobs, late, rules).started) == [10, 50]
    # the wait of the job ends before that
    assert list(play(jobs, PolicyChoice("auto:15s", "auto", 15.0, 1.0), rules).started) == [10, 20]


def test_set_of_an_earlier_job_is_settled_for_the_next_one():
    rules = PoolRules(cycle_seconds=10, publish_seconds=10, gap_seconds=0, settle_seconds=40)
    late = PolicyChoice("auto:600s", "auto", 600.0, 1.0)
    jobs = workload(NO_RATES, (0, 5000, AT_NL), (100, 50, AT_NL))
    assert play(jobs, late, rules).started[1] == 100


def test_estimates_decide_before_the_set_is_settled():
    # reading takes 10 s alone; beside the data a slot comes free after 500 s
    rules = PoolRules(cycle_seconds=10, publish_seconds=10, gap_seconds=0)
    jobs = workload(TWO, (0, 500, AT_NL), (0, 500, AT_NL), (0, 500, AT_NL))
    late = PolicyChoice("auto:600s", "auto", 600.0, 1.0)
    assert sorted(play(jobs, late, rules).started)[:2] == [10, 10]


def test_site_without_a_known_rate_has_no_estimates():
    # the rate to DE is unknown, so DE takes the third job only when the set is settled there, after 600 s
    rules = PoolRules(cycle_seconds=10, publish_seconds=10, gap_seconds=0)
    sites = (PoolSite(NL, 1, 1, None, {PL: 10.0}), PoolSite(DE, 5, 1), PoolSite(PL, 1, 1))
    late = PolicyChoice("auto:9999s", "auto", 9999.0, 1.0)
    run = play(workload(sites, *[(0, 5000, AT_NL)] * 3), late, rules)
    assert sorted(zip(run.started, run.site_of, strict=True)) == [(10, 0), (10, 2), (610, 1)]


def test_jobs_without_data_leave_the_slots_of_a_queue_to_it():
    # four jobs wait for NL's slot; of the free slots, bob's job takes the one at DE
    rules = replace(FAST, cycle_seconds=10)
    bob = JobClass("bob")
    sites = (PoolSite(NL, 2, 1, 0.01), PoolSite(DE, 2, 1, 0.01))
    jobs = workload(sites, *[(0, 5, AT_NL)] * 6, (0, 5, bob), (0, 5, bob))
    for seed in range(5):
        run = play(jobs, AUTO, rules, seed)
        theirs = [run.site_of[job] for job, one in enumerate(jobs.class_of) if jobs.classes[one] == bob]
        assert theirs == [1, 1]
    stock = [play(jobs, OFF, rules, seed).site_of for seed in range(5)]
    assert any(list(each)[-2:] != [1, 1] for each in stock)


def test_rates_of_pairs_share_one_link():
    # alone, DE reads 100 bytes for 10 s and PL for 20 s; together each has half of its rate: DE ends at 20,
    # PL has 50 bytes left then and ends at 30
    sites = (PoolSite(NL, 0, 1, None, {DE: 10.0, PL: 5.0}), PoolSite(DE, 1, 1), PoolSite(PL, 1, 1))
    run = play(workload(sites, (0, 7, AT_NL), (0, 7, AT_NL)), OFF)
    assert sorted(run.ended) == [27, 37]
    assert run.links_busy_seconds == {NL: 30}


def test_users_share_the_pool():
    # alice has the pool first; bob, with less use, gets the slots that become free
    rules = PoolRules(cycle_seconds=10, claim_worklife_seconds=1, gap_seconds=0)
    alice, bob = JobClass("alice"), JobClass("bob")
    jobs = workload((PoolSite(NL, 4, 1),), *[(0, 9, alice)] * 40, *[(1, 9, bob)] * 4)
    run = play(jobs, OFF, rules)
    starts = [run.started[job] for job, one in enumerate(jobs.class_of) if jobs.classes[one] == bob]
    assert max(starts) <= 20


def test_claims_of_contract_1_stay_with_local_jobs():
    # AT_NL's claim at NL has rank 0 (local): it does not take the job without data, which was queued before
    rules = replace(FAST, cycle_seconds=100, cycle_delay_seconds=100, is_claim_kept_by_rank=True)
    far = JobClass("alice", 1, (data(DE),))
    sites = (PoolSite(NL, 1, 1, 10.0), PoolSite(DE, 0, 1, 10.0))
    jobs = workload(sites, (0, 5, AT_NL), (1, 5, far), (2, 5, AT_NL))
    assert list(play(jobs, ANY, rules).started) == pytest.approx([0, 100, 5])
    assert list(play(jobs, ANY, FAST).started) == pytest.approx([0, 5, 20])


def test_claim_is_reused_on_the_ad_of_its_match():
    # the set of the second job is in the ads from 15 on, and the claim has the ads of its match at 10
    rules = PoolRules(cycle_seconds=10, publish_seconds=5, gap_seconds=0)
    new = JobClass("alice", 1, (data(NL, size=7),))
    run = play(workload(TWO[:1], (1, 13, AT_NL), (12, 5, new)), REQUIRE, rules)
    assert list(run.started) == [10, 30]
    known = play(workload(TWO[:1], (1, 13, AT_NL), (12, 5, AT_NL)), REQUIRE, rules)
    assert list(known.started) == [10, 23]


def test_start_refuses_a_job_that_only_the_old_ad_matches():
    # two jobs read from NL from 10 on: 100 bytes until 30, 10,000 bytes until 1020. The first ends at 80. Its
    # claim has an ad that says that the source is open, and the present ad says that it is closed
    rules = replace(FAST, estimates=EstimatePolicy(max_readers_per_source=1))
    sites = (PoolSite(NL, 1, 1, 10.0), PoolSite(DE, 1, 1, 10.0), PoolSite(PL, 1, 1, 10.0))
    large = JobClass("alice", 1, (data(NL, size=10_000),))
    jobs = workload(sites, (0, 50_000, AT_NL), (0, 50, AT_NL), (0, 50, large), (0, 50, AT_NL))
    run = play(jobs, AUTO, rules)
    assert list(run.started) == [0, 10, 10, 1030]
    assert run.ended[1] == 80


# turns to read

TURNS = replace(FAST, turns=TurnRules(readers=4, least_seconds=8))
"""With reads of 16 s, the class of a lone read of 8 s, one job begins in each turn of 8 s."""
SOURCE = PoolSite(NL, 0, 1, 12.5)
FAR = (0, 500, AT_NL)


def test_jobs_begin_to_read_one_in_each_turn():
    jobs = workload((SOURCE, PoolSite(DE, 30, 1)), *[FAR] * 5)
    assert list(play(jobs, AUTO, TURNS).started) == [0, 10, 20, 30, 40]
    assert list(play(jobs, AUTO, replace(TURNS, turns=None)).started) == [0] * 5


def test_turn_has_room_for_more_jobs_if_their_reads_are_short():
    # a lone read takes 4 s, so the class is 8: in a turn of 8 s each job counts half
    jobs = workload((replace(SOURCE, bytes_per_second=25.0), PoolSite(DE, 30, 1)), *[FAR] * 5)
    assert list(play(jobs, AUTO, TURNS).started) == [0, 0, 10, 10, 20]


def test_reads_without_a_class_have_no_turns():
    jobs = workload((replace(SOURCE, bytes_per_second=60.0), PoolSite(DE, 30, 1)), *[FAR] * 5)
    assert list(play(jobs, AUTO, TURNS).started) == [0] * 5


def test_only_auto_jobs_have_turns():
    jobs = workload((SOURCE, PoolSite(DE, 30, 1)), *[FAR] * 5)
    assert list(play(jobs, ANY, TURNS).started) == [0] * 5


def test_turns_of_two_sources_do_not_count_together():
    other = JobClass("alice", 1, (data(PL),))
    sites = (SOURCE, PoolSite(PL, 0, 1, 12.5), PoolSite(DE, 30, 1))
    jobs = workload(sites, FAR, (0, 500, other), FAR, (0, 500, other))
    assert sorted(play(jobs, AUTO, TURNS).started) == [0, 0, 10, 10]


def test_machine_takes_no_reader_soon_after_another_start():
    # there is room for 12 jobs in a turn, but the machine takes one reader in each negotiation, 10 s apart
    rules = replace(TURNS, cycle_seconds=5, cycle_delay_seconds=5, turns=TurnRules(4, 64))
    jobs = workload((replace(SOURCE, bytes_per_second=25.0), PoolSite(DE, 1, 8)), *[FAR] * 4)
    assert list(play(jobs, AUTO, rules).started) == [0, 10, 20, 30]
    beside = workload((PoolSite(NL, 1, 8, 25.0), PoolSite(DE, 1, 8)), *[FAR] * 4)
    assert list(play(beside, AUTO, rules).started) == [0] * 4


def test_claim_takes_another_reader_in_the_same_turn_only():
    # DE has one slot: a job reads for 8 s and computes for 5 s. The turns are of 32 s
    rules = replace(TURNS, cycle_seconds=100, cycle_delay_seconds=100, turns=TurnRules(16, 32))
    jobs = workload((SOURCE, PoolSite(DE, 1, 1)), *[(0, 5, AT_NL)] * 4)
    assert list(play(jobs, AUTO, rules).started) == [0, 13, 26, 100]


def test_end_of_a_claim_makes_room_in_its_turn():
    # two jobs may begin in the turn of 64 s. They share the link for 16 s and end at 21
    rules = replace(TURNS, claim_worklife_seconds=1, turns=TurnRules(1, 64))
    jobs = workload((SOURCE, PoolSite(DE, 30, 1)), *[(0, 5, AT_NL)] * 3)
    assert list(play(jobs, AUTO, rules).started) == [0, 0, 30]
