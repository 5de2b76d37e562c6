"""Pins: data that queued and running jobs need does not leave before they have run."""

from datetime import timedelta

import pytest

from hydrator.domain.staging_ports import RequestState, StagingKind, StagingUnavailable
from hydrator.staging.policy import TERABYTE, StagingLimits, StagingMode, StagingTimes
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, OSO, RAL
from tests.memory_stager import Fault
from tests.staging_world import SITES, StagingWorld, need, policy, run
from tests.unit.staging.steps import step_with

DAY = timedelta(days=1)


def holding_world(rules=None, *, ends_in=20 * HOUR, site=CAM, **sizes) -> StagingWorld:
    """A world in which another account's rule keeps L1 at CAM for some hours."""
    world = StagingWorld(rules, **(sizes or {"L1": 1}))
    world.stager.add_rule(L1, site, expires_at=None if ends_in is None else NOON + ends_in)
    world.put(L1, site)
    return world


@pytest.mark.parametrize("jobs", [need(L1, is_data_missing=False), run(L1)])
def test_data_that_would_leave_before_its_jobs_ran_is_pinned(jobs):
    world = holding_world()
    step_with(world, jobs)
    assert world.pins == {(L1, CAM)}
    [row] = world.stager.own_rules()
    assert row.rule.storage == "CAM_DISK"
    assert row.rule.expires_at == world.clock.now + 2 * DAY
    assert world.overview.requests[0].description.startswith("pinned 12:01 UTC at CAM")


def test_a_pin_lives_as_long_as_its_jobs_and_then_ends():
    world = holding_world()
    world.queue(run(L1))
    for _ in range(20):
        world.step(DAY / 2)
    assert (L1, CAM) in world.disk
    world.queue()
    for _ in range(5):
        world.step(DAY / 2)
    assert world.pins == set()
    assert (L1, CAM) not in world.disk
    assert "cancel" not in world.stager.calls


@pytest.mark.parametrize("ends_in", [None, 25 * HOUR])
def test_data_that_a_rule_keeps_long_enough_is_not_pinned(ends_in):
    world = holding_world(ends_in=ends_in)
    step_with(world, run(L1))
    assert world.pins == set()


def test_data_without_any_rule_is_never_pinned():
    world = StagingWorld(L1=1)
    world.put(L1, CAM)
    step_with(world, run(L1))
    assert world.pins == set()
    assert world.reasons == [
        "not pinned: no rule keeps lofar:L1 at CAM, so a pin that ends would make it deletable"
    ]


def test_one_site_that_keeps_the_data_is_enough_for_idle_jobs():
    world = holding_world()
    world.stager.add_rule(L1, RAL, expires_at=None)
    world.put(L1, RAL)
    step_with(world, need(L1, is_data_missing=False))
    assert world.pins == set()
    step_with(world, run(L1, site=CAM), after=16 * timedelta(minutes=1))
    assert world.pins == {(L1, CAM)}


def test_a_site_that_does_not_match_the_jobs_is_not_pinned():
    world = holding_world()
    step_with(world, need(L1, sites=[OSO], is_data_missing=False))
    assert world.pins == set()


def test_a_site_can_be_excluded_from_pins():
    world = holding_world(policy(unpinned_sites=frozenset({CAM})))
    step_with(world, run(L1))
    assert world.pins == set()


def test_only_the_datasets_that_would_leave_are_pinned():
    world = holding_world(L1=1, L2=1)
    world.stager.add_rule(L2, CAM, expires_at=None)
    world.put(L2, CAM)
    step_with(world, run(L1, L2))
    assert world.pins == {(L1, CAM)}


def test_the_datasets_of_one_job_count_singly_against_the_limit_of_pins():
    world = holding_world(policy(limits=StagingLimits(pin_bytes=TERABYTE)), L1=1, L2=1)
    world.stager.add_rule(L2, CAM, expires_at=NOON + 20 * HOUR)
    world.put(L2, CAM)
    step_with(world, run(L1, L2))
    assert world.pins == set()
    assert world.reasons == ["not pinned: 2 TB would exceed the limit of 1 TB for pins: 0 B are taken"]


def test_pins_do_not_take_from_the_limits_of_requests():
    world = holding_world(policy(limits=StagingLimits(total_bytes=TERABYTE)), L1=1, L2=1)
    step_with(world, run(L1), need(L2))
    assert world.pins == {(L1, CAM)}
    assert world.stages == {(L2, CAM)}


def test_propose_shows_pins_and_sets_none():
    world = holding_world(policy(site_modes=dict.fromkeys(SITES, StagingMode.PROPOSE)))
    step_with(world, run(L1))
    assert world.pins == set()
    [row] = world.overview.planned
    assert row.kind is StagingKind.PIN
    assert row.description == "would pin 1 TB in 1 dataset at CAM; the mode is propose"


def test_data_that_was_not_seen_for_a_moment_is_pinned_as_soon_as_it_is_seen():
    world = holding_world()
    step_with(world, need(L1, is_data_missing=False, sites=[OSO]))
    world.queue(run(L1))
    world.catalogue.unseen_reasons = {L1: "timeout"}
    world.step()
    assert world.pins == set()
    world.catalogue.unseen_reasons = {}
    world.step()
    assert world.pins == {(L1, CAM)}


def test_a_rule_that_still_moves_keeps_nothing():
    world = holding_world()
    world.stager.add_rule(L1, CAM, state=RequestState.STUCK, expires_at=None)
    step_with(world, run(L1))
    assert world.pins == {(L1, CAM)}


def test_a_dataset_is_pinned_once_for_many_jobs():
    world = holding_world()
    world.queue(*(run(L1, user=f"u{n}@x") for n in range(50)))
    for _ in range(5):
        world.step(timedelta(minutes=20))
    assert len(world.stager.own_rules()) == 1
    assert world.stager.calls.count("ask") == 1


def test_staged_data_is_not_pinned_again():
    world = StagingWorld(L1=1)
    step_with(world, need(L1))
    world.arrive()
    world.queue(run(L1))
    for _ in range(12):
        world.step(DAY)
    assert world.pins == set()
    assert world.stages == {(L1, CAM)}


def test_data_that_leaves_before_the_next_search_is_pinned_at_once():
    world = holding_world(ends_in=25 * HOUR, L1=1, L2=1)
    step_with(world, run(L1))  # a search: the next one is in 15 min
    world.stager.add_rule(L2, CAM, expires_at=world.clock.now + 10 * MINUTE)
    world.put(L2, CAM)
    step_with(world, run(L1), need(L2, is_data_missing=False))
    assert world.pins == {(L2, CAM)}


def test_a_job_that_starts_where_the_rule_ends_soon_is_searched_at_once():
    world = holding_world(ends_in=12 * MINUTE)
    world.stager.add_rule(L1, RAL, expires_at=None)
    world.put(L1, RAL)
    step_with(world, need(L1, is_data_missing=False))  # the rule at RAL is enough for an idle job
    assert world.pins == set()
    step_with(world, run(L1, site=CAM))
    assert world.pins == {(L1, CAM)}


def test_a_pin_that_failed_is_tried_again_before_the_data_leaves():
    world = holding_world(ends_in=12 * MINUTE)
    world.stager.faults["ask"] = [Fault(StagingUnavailable("rucio", "connection refused"))] * 2
    world.queue(run(L1))
    for _ in range(10):
        world.step()
    assert world.pins == {(L1, CAM)}
    assert world.stager.calls.count("ask") == 3


@pytest.mark.parametrize("offset", range(0, 16, 5))
def test_a_short_lifetime_of_pins_leaves_no_gap_between_two_searches(offset):
    world = holding_world(
        policy(times=StagingTimes(pin_lifetime=20 * MINUTE)), ends_in=(20 + offset) * MINUTE
    )
    world.queue(run(L1))
    for _ in range(40):
        world.step()
    assert world.pins == {(L1, CAM)}
    assert (L1, CAM) in world.disk


def test_data_that_our_requests_keep_costs_no_search():
    world = StagingWorld(
        policy(limits=StagingLimits(hour_requests=1000)), **{f"D{n}": 0.01 for n in range(50)}
    )
    names = [f"lofar:D{n}" for n in range(50)]
    step_with(world, *(need(name) for name in names))
    world.arrive()
    step_with(world, *(run(name) for name in names))
    world.stager.calls.clear()
    for _ in range(40):
        world.step()
    assert set(world.stager.calls) == {"look"}
    assert len(world.stager.calls) == 40


def test_between_two_searches_only_new_data_is_searched():
    world = holding_world(ends_in=40 * HOUR, L1=1, L2=1)
    world.stager.add_rule(L2, CAM, expires_at=None)
    world.put(L2, CAM)
    asked = []
    find = world.stager.find_rules
    world.stager.find_rules = lambda dids, sites: asked.append(set(dids)) or find(dids, sites)
    step_with(world, run(L1))
    step_with(world, run(L1), run(L2))
    for _ in range(10):
        world.step()
    assert asked == [{L1}, {L2}]
    world.step(5 * MINUTE)
    assert asked[2] == {L1, L2}
