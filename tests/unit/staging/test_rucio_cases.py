"""Cases of a real Rucio with the field's oddities, each by its kind: pins and requests."""

from datetime import timedelta

import pytest

from hydrator.domain.model import DatasetState, Site
from hydrator.domain.staging_ports import RequestState, StagingFailed
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, OSO, RAL
from tests.memory_stager import Fault
from tests.staging_world import DAY, StagingWorld, need, run

# R11: an odd number of one site


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ("CAM-DISK reports free = -1", "the free space of CAM is unknown: CAM-DISK reports free = -1"),
        (0, "free at CAM: 0 B are free"),
        (None, "the free space of CAM is unknown"),
    ],
)
def test_an_odd_free_space_closes_its_own_site_and_no_other(odd, words):
    world = StagingWorld(L1=1, L2=1, L3=1)
    world.stager.spaces.pop(CAM)
    world.stager.spaces |= {} if odd is None else {CAM: odd}
    world.hold(L2, RAL, expires_at=NOON + HOUR)
    world.step_with(need(L1, sites=[CAM, RAL]), run(L2, site=RAL), need(L3, sites=[CAM]))
    assert world.stages == {(L1, RAL)}
    assert world.pins == {(L2, RAL)}
    assert world.overview.problems == {}
    [reason] = world.reasons
    assert words in reason


def test_rule_of_ours_that_cannot_be_read_counts_as_before_and_is_told():
    world = StagingWorld(L1=1, L2=1)
    world.step_with(need(L1))
    world.stager.unread["rule1"] = "HTTP 500"
    for _ in range(3):
        world.step_with(need(L1), need(L2, sites=[CAM]))
    assert world.stages == {(L1, CAM), (L2, CAM)}
    assert world.overview.problems == {"rule rule1": "HTTP 500"}
    assert world.overview.in_flight_bytes == {CAM: 2 * 10**12}
    assert world.stager.calls.count("request") == 2


def test_unreadable_storage_closes_its_own_site_and_no_other():
    """It is in a downtime, or its RSE is switched off; the rule there is as ever."""
    world = StagingWorld(L1=1, L2=1)
    for did in (L1, L2):
        world.put(did, CAM, DatasetState.UNAVAILABLE, 1.0)
        world.stager.add_rule(did, CAM, "carl")
        world.put(did, Site("ARCHIVE"), DatasetState.NEARLINE)
    world.step_with(need(L1), need(L2, sites=[CAM]))
    assert world.stages == {(L1, OSO)}
    assert world.reasons == ["lofar:L2 is at CAM, whose storage cannot be read now"]


# R12: Rucio keeps a rule after its end


@pytest.mark.parametrize("blocked", ["it is locked", "it has the child rule abc"])
def test_a_rule_that_rucio_keeps_counts_until_it_is_not_listed(blocked):
    world = StagingWorld(L1=1)
    world.step_with(need(L1))
    world.stager.set("rule1", blocked=blocked)
    world.step_with()
    for _ in range(30):
        world.step(10 * MINUTE)
    [one] = world.table.requests
    assert one.is_in_flight
    assert world.stager.calls.count("cancel") == 1  # it has ended: there is nothing to repeat
    assert f"the catalogue keeps it after its end: {blocked}" in world.overview.requests[0].description
    assert {row.name: row.used for row in world.overview.limits if row.used} == {
        "total_tb": 10**12, "site_tb": 10**12
    }  # fmt: skip
    world.stager.set("rule1", blocked="")
    world.step()
    assert world.table.requests == ()


# R13: locks say what is there, the state only what moves


@pytest.mark.parametrize("state", [RequestState.SUSPENDED, RequestState.MOVING, RequestState.STUCK])
@pytest.mark.parametrize(("ends_in", "is_pinned"), [(8 * HOUR, True), (None, False)])
def test_data_whose_locks_are_ok_is_pinned_whatever_the_state_of_the_rule(state, ends_in, is_pinned):
    world = StagingWorld(L1=1)
    end = None if ends_in is None else NOON + ends_in
    world.put(L1, CAM)
    world.stager.add_rule(L1, CAM, state=state, is_whole=True, expires_at=end)
    world.step_with(run(L1))
    assert world.pins == ({(L1, CAM)} if is_pinned else set())
    assert world.reasons == []


# R14: data that is whole is not on its way


def test_whole_data_under_a_moving_rule_binds_no_other_dataset_to_its_site():
    world = StagingWorld(L1=1, L2=1)
    world.put(L1, CAM)
    world.stager.add_rule(L1, CAM, state=RequestState.MOVING, is_whole=True)
    world.step_with(need(L1, L2, sites=[RAL]))
    assert world.stages == {(L1, RAL), (L2, RAL)}


def test_data_on_its_way_to_a_site_that_the_jobs_do_not_match_is_named():
    world = StagingWorld(L1=1, L2=1)
    world.stager.add_rule(L1, CAM, "carl", state=RequestState.MOVING)
    world.step_with(need(L1, L2, sites=[RAL]))
    assert world.stages == set()
    text = "lofar:L1 is on its way to CAM, which does not match the rest of the jobs' requirements"
    assert world.reasons == [text]


# R15: a rule that will never move


@pytest.mark.parametrize(("age", "is_asked"), [(HOUR, False), (30 * DAY, True)])
@pytest.mark.parametrize("state", [RequestState.STUCK, RequestState.UNAPPROVED])
def test_a_rule_of_others_that_does_not_move_is_joined_for_a_day_only_and_its_state_told(
    state, age, is_asked
):
    world = StagingWorld(L1=1)
    world.stager.add_rule(L1, CAM, "carl", state=state, stuck_since=NOON - age, reason="no route")
    world.put(L1, CAM, DatasetState.STUCK, 0.0)
    world.step_with(need(L1, sites=[CAM]))
    assert world.stages == ({(L1, CAM)} if is_asked else set())
    text = f"the data is on its way to CAM by the rule rule1 of carl, which is {state.value} (no route)"
    assert world.reasons == ([] if is_asked else [text])


def test_the_time_since_which_a_rule_is_stuck_may_be_odd():
    world = StagingWorld(L1=1)
    world.stager.add_rule(L1, CAM, "carl", state=RequestState.STUCK, stuck_since=NOON + 900 * DAY)
    world.put(L1, CAM, DatasetState.STUCK, 0.0)
    world.step_with(need(L1, sites=[CAM]))
    assert world.stages == {(L1, CAM)}


def test_a_rule_of_ours_that_rucio_does_not_take_up_for_a_day_is_stuck():
    """The state INJECT, without locks."""
    world = StagingWorld(L1=1)
    world.step_with(need(L1))
    world.stager.set("rule1", state=RequestState.QUEUED, files=None)
    [row] = world.step(HOUR).requests
    assert not row.is_stuck
    [row] = world.step(DAY).requests
    assert row.is_stuck
    assert "no file has arrived for 1 d" in row.description


# R16: a pin's race


def test_a_pin_whose_files_left_closes_only_that_pin():
    world = StagingWorld(L1=1)
    theirs = world.hold(L1, RAL, expires_at=NOON + HOUR)
    world.step_with(run(L1, site=RAL))
    assert world.pins == {(L1, RAL)}
    del world.stager.rules[theirs]
    world.put(L1, RAL, DatasetState.PARTIAL, 0.5)
    world.stager.set("rule2", state=RequestState.FAILED, is_whole=False, reason="no storage has the files")
    world.step_with(need(L1))
    assert world.stages == {(L1, CAM)}
    ends = [row.description for row in world.overview.requests if row.site == RAL]
    assert "files left RAL before the pin was set" in ends[0]
    world.step(11 * MINUTE)
    world.step()
    assert world.pins == set()


# R17: what Rucio gave is read back


def test_a_policy_that_cuts_lifetimes_is_told_and_not_called_all_the_time():
    world = StagingWorld(L1=1, L2=1)
    world.stager.longest = HOUR
    world.step_with(need(L1, sites=[CAM]))
    world.arrive()
    world.disk[L1, CAM] = (DatasetState.PARTIAL, 1.0)  # whole, but no rule holds it for long enough
    for _ in range(70):
        world.step_with(need(L1, sites=[CAM]), need(L2, sites=[CAM]))
    text = "the catalogue gives a rule at CAM 1 h, and jobs need the data for 6 h"
    assert text in world.overview.requests[0].description
    assert world.reasons[-1] == text  # nothing more is brought to where it cannot stay
    assert world.stages == {(L1, CAM)}
    assert world.stager.calls.count("request") == 3  # renewed at half of what Rucio gives


def test_data_whose_rules_end_too_soon_for_jobs_is_pinned():
    world = StagingWorld(L1=1)
    world.put(L1, CAM, DatasetState.PARTIAL, 1.0)
    world.stager.add_rule(L1, CAM, expires_at=NOON + 3 * HOUR)
    world.step_with(need(L1, sites=[CAM]))
    assert world.pins == {(L1, CAM)}
    assert world.stages == set()


# R18: from Rucio's source


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda stager: stager.rules.clear(), "it was denied, or deleted before its end"),
        (lambda stager: stager.set("rule1", state=RequestState.FAILED, reason="no source"), "no source"),
    ],
)
def test_a_rule_that_was_denied_or_deleted_or_failed_is_not_asked_again_for_a_day(end, reason):
    world = StagingWorld(L1=1)
    world.step_with(need(L1))
    world.step()
    end(world.stager)
    for _ in range(23):
        world.step(HOUR)
    assert world.stages == set()
    assert reason in world.reasons[0]
    for _ in range(3):
        world.step(HOUR)
    assert world.stages == {(L1, CAM)}


@pytest.mark.parametrize("has_effect", [True, False])
def test_a_lifetime_that_we_shortened_ourselves_by_a_call_without_an_answer_is_ours(has_effect):
    world = StagingWorld(L1=1)
    world.step_with(need(L1))
    world.arrive()
    world.step_with(after=HOUR)
    failed = StagingFailed("rucio", "timeout")
    world.stager.faults["request"].append(Fault(failed, has_effect=has_effect))
    world.step_with(after=2 * HOUR)  # no job needs it: four days are enough
    assert not world.stager.faults["request"]
    world.step()
    assert world.overview.requests[0].closed_until is None
    world.step_with(need(L1), after=3 * DAY)
    assert world.stager.rules["rule1"].expires_at > world.clock.now + 3 * DAY  # renewed for the job


def test_a_rule_that_we_cancelled_by_a_call_without_an_answer_is_not_called_shortened():
    world = StagingWorld(L1=1)
    world.has_cleaner = False
    world.step_with(need(L1))
    world.step_with()
    world.stager.faults["cancel"].append(Fault(StagingFailed("rucio", "timeout"), has_effect=True))
    world.step(2 * HOUR)
    assert not world.stager.faults["cancel"]
    world.step()
    assert world.overview.requests[0].closed_until is None
    world.stager.rules.clear()
    world.step_with(need(L1))
    assert world.stages == {(L1, CAM)}


@pytest.mark.parametrize(("early", "is_asked"), [(timedelta(minutes=8), True), (HOUR, False)])
def test_a_rule_that_ends_by_a_clock_that_is_ahead_was_not_deleted(early, is_asked):
    world = StagingWorld(L1=1)
    world.step_with(need(L1))
    world.arrive()
    for _ in range(3):
        world.step_with(after=2 * HOUR)
    end = world.stager.rules["rule1"].expires_at
    world.step(end - early - world.clock.now - MINUTE)
    world.stager.rules.clear()
    world.disk.clear()
    world.step()
    world.step_with(need(L1))
    assert world.stages == ({(L1, CAM)} if is_asked else set())


def test_a_rule_that_an_admin_deletes_is_not_renewed_until_rucio_has_removed_it():
    world = StagingWorld(L1=1)
    world.step_with(need(L1))
    world.step()
    world.stager.delete("rule1")
    for _ in range(12):
        world.step(10 * MINUTE)
    assert world.stager.calls.count("request") == 1
    assert world.stages == set()
    assert "another user has shortened its lifetime in the catalogue" in world.reasons[0]
    for _ in range(25):
        world.step(HOUR)
    assert world.stages == {(L1, CAM)}


def test_a_rule_that_blocks_its_successor_is_renewed_in_place():
    """Rucio keeps the ended rule until its cleaner runs, and refuses a second one."""
    world = StagingWorld(L1=1)
    world.has_cleaner = False
    world.step_with(need(L1))
    world.step_with()
    for _ in range(8):
        world.step(10 * MINUTE)  # cancelled, but still listed
    world.step_with(need(L1), after=10 * MINUTE)
    assert [rule.id for rule in world.stager.own_rules()] == ["rule1"]
    assert world.stager.rules["rule1"].expires_at == world.clock.now + 15 * DAY


@pytest.mark.parametrize("steps", [0, 3])
def test_a_cleaner_that_removes_a_renewed_rule_is_not_a_refusal_by_a_person(steps):
    """The cleaner does not look at a renewed end again, and it may be slow."""
    world = StagingWorld(L1=1)
    world.has_cleaner = False
    world.step_with(need(L1))
    world.step()
    world.step(16 * DAY)  # ended while the daemon was away, and renewed now
    for _ in range(steps):
        world.step()
    del world.stager.rules["rule1"]
    world.step()
    world.step()
    assert world.stages == {(L1, CAM)}


def test_a_rule_that_rucio_moved_to_an_archive_is_followed_by_its_id_with_its_whole_size():
    world = StagingWorld(L1=1)
    world.step_with(need(L1))
    # it is on the archive that has the file, and has no locks yet (INJECT, 0/0/0)
    world.stager.set("rule1", did=L2, state=RequestState.QUEUED, files=None, bytes=None)
    for _ in range(5):
        world.step()
    [one] = world.table.requests
    assert (one.did, one.rule, one.state) == (L1, "rule1", RequestState.QUEUED)
    assert world.overview.in_flight_bytes == {CAM: 10**12}
    assert world.stager.calls.count("request") == 1


def test_a_rule_on_an_archive_is_one_request_also_after_the_table_was_lost():
    world = StagingWorld(L1=1)
    zipped = {"is_ours": True, "state": RequestState.MOVING, "expires_at": NOON + 10 * DAY, "bytes": 10**12}
    rule = world.stager.add_rule(L2, CAM, "hydrator", **zipped)
    world.step()
    world.stager.request = lambda order: rule  # the duplicate of the rule for L1 is on the archive
    for _ in range(15):
        world.step_with(need(L1, sites=[CAM]), after=10 * MINUTE)
    assert "cancel" not in world.stager.calls
    assert [(one.did, one.rule) for one in world.table.requests] == [(L1, rule)]
    assert world.overview.in_flight_bytes == {CAM: 10**12}


def test_a_dataset_that_was_opened_again_counts_with_what_rucio_moves_now():
    world = StagingWorld(L1=1, L2=1)
    world.step_with(need(L1))
    del world.stager.sizes[L1]  # it is open
    world.stager.set("rule1", bytes=20 * 10**12)
    world.step_with(need(L1), need(L2, sites=[CAM]))
    assert world.stages == {(L1, CAM)}
    assert world.reasons[-1].startswith("1 TB at CAM would exceed the limit of 20 TB on the way to CAM")


def test_a_rule_of_ours_that_another_user_shortened_and_then_left_without_an_end_is_ended():
    world = StagingWorld(L1=1)
    world.step_with(need(L1))
    world.step()
    world.stager.delete("rule1")
    world.step()
    world.stager.set("rule1", expires_at=None)
    for _ in range(2):
        world.step(11 * MINUTE)
    assert world.stages == set()


def test_a_container_of_unknown_size_counts_as_too_much():
    world = StagingWorld(L1=1)
    world.stager.add_rule(L2, CAM, "hydrator", is_ours=True, state=RequestState.MOVING, expires_at=NOON + DAY)
    world.step_with(need(L2))
    assert world.overview.in_flight_bytes == {CAM: 5 * 10**12}  # the largest request
    other = StagingWorld()
    other.step_with(need(L2))
    assert other.reasons == ["the size of lofar:L2 is unknown"]
