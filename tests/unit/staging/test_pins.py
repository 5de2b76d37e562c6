"""Pins: data that queued and running jobs need does not leave before they have run."""

import pytest

from hydrator.domain.model import DatasetState, Did
from hydrator.domain.staging_ports import RequestState
from hydrator.staging.table import MAX_CALLS
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, OSO, RAL
from tests.staging_world import DAY, StagingWorld, need, policy, run


def holding_world(rules=None, *, ends_in=20 * HOUR, site=CAM, **sizes) -> StagingWorld:
    """A world in which another account's rule keeps L1 at CAM for some hours."""
    world = StagingWorld(rules, **(sizes or {"L1": 1}))
    world.hold(L1, site, expires_at=None if ends_in is None else NOON + ends_in)
    return world


@pytest.mark.parametrize("jobs", [need(L1, is_data_missing=False), run(L1)])
def test_data_that_would_leave_before_its_jobs_ran_is_pinned(jobs):
    world = holding_world()
    world.step_with(jobs)
    assert world.pins == {(L1, CAM)}
    [rule] = world.stager.own_rules()
    assert (rule.storage, rule.expires_at) == ("CAM_DISK", world.clock.now + 2 * DAY)
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
    world.step_with(run(L1))
    assert world.pins == set()


def test_the_site_that_needs_the_fewest_pins_is_named_when_none_can_be_set():
    world = StagingWorld(policy(limits={"total_tb": 0.5}), L1=1, L2=1)
    for did, site in [(L1, CAM), (L1, OSO), (L2, OSO)]:
        world.hold(did, site, expires_at=NOON + 20 * HOUR)
    world.hold(L2, CAM)
    world.step_with(need(L1, L2, is_data_missing=False))
    [reason] = world.reasons
    assert "not pinned: 1 TB at CAM would exceed the limit" in reason


def test_data_without_any_rule_is_never_pinned():
    world = StagingWorld(L1=1)
    world.put(L1, CAM)
    world.step_with(run(L1))
    assert world.pins == set()
    assert world.reasons == [
        "not pinned: no rule keeps lofar:L1 at CAM, so a pin that ends would make it deletable"
    ]


@pytest.mark.parametrize(
    ("rules", "jobs"),
    [(None, need(L1, sites=[OSO], is_data_missing=False)), (policy(sites=[OSO]), run(L1))],
)
def test_a_site_that_does_not_match_or_is_excluded_is_not_pinned(rules, jobs):
    world = holding_world(rules)
    world.step_with(jobs)
    assert world.pins == set()


def test_a_pin_without_room_does_not_keep_smaller_requests_from_its_site():
    world = holding_world(policy(limits={"total_tb": 2}), L1=1.5, L2=0.4)
    world.hold(L1, RAL, expires_at=NOON + 20 * HOUR)
    world.step_with(run(L1, site=CAM), run(L1, site=RAL), need(L2, sites=[RAL]))
    assert world.pins == {(L1, CAM)}
    assert world.stages == {(L2, RAL)}


def test_only_the_datasets_that_would_leave_are_pinned():
    world = holding_world(L1=1, L2=1)
    world.hold(L2, CAM)
    world.step_with(run(L1, L2))
    assert world.pins == {(L1, CAM)}


def test_data_that_was_not_seen_for_a_moment_is_pinned_as_soon_as_it_is_seen():
    world = holding_world()
    world.catalogue.unseen_reasons = {L1: "timeout"}
    world.step_with(run(L1))
    assert world.pins == set()
    world.catalogue.unseen_reasons = {}
    world.step()
    assert world.pins == {(L1, CAM)}


def test_a_rule_that_still_moves_the_dataset_keeps_nothing():
    world = holding_world()
    world.stager.add_rule(L1, CAM, state=RequestState.STUCK, is_whole=False)
    world.step_with(run(L1))
    assert world.pins == {(L1, CAM)}


def test_data_that_has_just_arrived_is_kept_by_its_rule():
    world = StagingWorld(L1=1)
    rule = world.stager.add_rule(L1, CAM, "carl", state=RequestState.MOVING)
    world.put(L1, CAM, DatasetState.STUCK, 0.5)
    world.step_with(need(L1, sites=[CAM]))
    world.stager.set(rule, state=RequestState.DONE)
    world.put(L1, CAM)
    world.step()
    assert world.pins == set()
    assert world.reasons == ["the data is complete at CAM"]


def test_a_dataset_is_pinned_once_for_many_jobs():
    world = holding_world()
    world.queue(*(run(L1, user=f"u{n}@x") for n in range(50)))
    for _ in range(5):
        world.step(20 * MINUTE)
    assert world.stager.calls.count("request") == 1


def test_staged_data_is_not_pinned_again():
    world = StagingWorld(L1=1)
    world.step_with(need(L1))
    world.arrive()
    world.queue(run(L1))
    for _ in range(12):
        world.step(DAY)
    assert world.pins == set()
    assert world.stages == {(L1, CAM)}


@pytest.mark.parametrize("ends_in", [12, 25, 40, 20 * 60])
def test_one_site_that_keeps_the_data_is_enough_until_a_job_starts_elsewhere(ends_in):
    world = holding_world(ends_in=ends_in * MINUTE)
    world.hold(L1, RAL)
    world.step_with(need(L1, is_data_missing=False))  # the rule at RAL is enough for an idle job
    assert world.pins == set()
    world.step_with(run(L1, site=CAM))
    assert world.pins == {(L1, CAM)}


def test_rules_of_data_that_is_kept_are_read_every_quarter_of_an_hour():
    world = holding_world(ends_in=40 * HOUR, L1=1, L2=1)
    world.hold(L2, CAM)
    world.step_with(run(L1))
    world.queue(run(L1), run(L2))
    for _ in range(15):
        world.step()
    read = [query.dids for query in world.stager.queries if query.dids]
    assert read == [{L1}, {L2}, {L1}]
    world.step_with()
    assert world.controller._catalogues["rucio"].known == {}


def test_many_pins_are_set_in_several_steps():
    """A step that pins thousands of datasets would delay the renewals that follow."""
    dids = [Did(f"lofar:D{n}") for n in range(MAX_CALLS + 10)]
    world = StagingWorld(**{did.removeprefix("lofar:"): 0.001 for did in dids})
    for did in dids:
        world.hold(did, CAM, expires_at=NOON + 20 * HOUR)
    world.step_with(*map(run, dids))
    assert len(world.pins) == MAX_CALLS
    world.step()
    assert world.pins == {(did, CAM) for did in dids}
    assert world.stager.calls.count("request") == len(dids)
