"""The life of a request: answers, progress, renewal, cancelling, failures, and a crash at any point."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from hydrator.domain.model import Did, Unseen
from hydrator.domain.staging_ports import RefusalKind, RequestState, StagingFailed, StagingRefused
from hydrator.staging.table import MAX_CALLS, StagingCommand, Table
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, OSO, RAL
from tests.memory_stager import Fault
from tests.staging_world import DAY, SCHEDD, TERABYTE, StagingWorld, need, policy, run, world_with

LOST = StagingFailed("rucio", "timeout")


def asking_world(rules=None, **more) -> StagingWorld:
    world = StagingWorld(rules, L1=1, **more)
    world.queue(need(L1))
    return world


def asked_world(**more) -> StagingWorld:
    """A world after the step that asks."""
    world = asking_world(**more)
    world.step()
    return world


def only_request(world):
    [one] = world.table.requests
    return one


def test_nothing_is_asked_while_the_table_cannot_be_written():
    world = asking_world()
    world.store.is_broken = True
    world.step()
    assert "request" not in world.stager.calls
    assert world.overview.problems == {"state": "the state cannot be written: disk full"}
    world.store.is_broken = False
    world.step()
    assert world.stages == {(L1, CAM)}


@pytest.mark.parametrize("has_effect", [True, False])
def test_a_call_without_an_answer_is_repeated_at_the_same_site(has_effect):
    world = asking_world()
    world.stager.faults["request"] = [Fault(LOST, has_effect=has_effect)]
    world.step()
    assert (only_request(world).rule, only_request(world).problem) == ("", "timeout")
    assert "no answer yet, so it is repeated" in world.overview.requests[0].description
    world.stager.spaces[CAM] = 0  # a new request would go to OSO
    world.step()
    assert only_request(world).rule == "rule1"
    assert world.stages == {(L1, CAM)}
    assert len(world.stager.rules) == 1


def test_a_call_without_an_answer_is_repeated_at_the_same_disk_of_the_site():
    """The first call may take effect later: at another disk, its repeat would be a second copy."""
    world = asking_world()
    world.stager.faults["request"] = [Fault(LOST)]
    world.step()
    world.stager.disks[CAM] = "CAM_DISK2"
    world.step()
    assert [rule.storage for rule in world.stager.own_rules()] == ["CAM_DISK"]


def test_a_call_in_doubt_that_nobody_needs_any_more_is_dropped_or_ended():
    world = asking_world(L2=1)
    world.stager.faults["request"] = [Fault(LOST), Fault(LOST, has_effect=True)]
    world.step()
    world.step_with(need(L2, sites=[RAL]))
    assert {one.did for one in world.table.requests} == {L1, L2}
    for _ in range(8):
        world.step_with(after=10 * MINUTE)
    assert world.stages == set()
    assert world.table.requests == ()
    assert [one.reason for one in world.table.ended] == ["the call had no effect", "cancelled"]


@pytest.mark.parametrize("kind", [RefusalKind.PERMISSION, RefusalKind.ACTIVITY])
def test_a_refusal_that_concerns_all_requests_stops_the_catalogue(kind):
    world = asking_world(L2=1)
    world.queue(need(L1, user="a@x"), need(L2, user="b@x"))
    world.stager.faults["request"] = [Fault(StagingRefused("rucio", "no such activity", kind))]
    for _ in range(20):
        world.step(HOUR)
    assert world.stager.calls.count("request") == 1
    assert world.overview.problems == {"catalogue rucio": "no such activity"}
    assert "catalogue rucio refused: no such activity" in world.reasons
    world.control.commands.append(StagingCommand("resume"))
    world.step()
    assert {did for did, _ in world.stages} == {L1, L2}


@pytest.mark.parametrize("kind", [RefusalKind.QUOTA, RefusalKind.CLOSED])
def test_a_refusal_of_a_site_closes_it_for_an_hour_and_no_other(kind):
    world = asking_world(L2=1, L3=1)
    world.queue(need(L1, sites=[CAM]))
    world.stager.refusals[CAM] = (kind, "CAM_DISK is closed for writing")
    world.step()
    world.stager.refusals.clear()
    world.step_with(need(L2))
    assert world.stages == {(L2, OSO)}
    world.step_with(need(L2), need(L3, sites=[CAM]), after=58 * MINUTE)
    assert world.stages == {(L2, OSO)}
    reason = "CAM refused a request less than an hour ago: CAM_DISK is closed for writing"
    assert reason in world.reasons
    world.step(MINUTE)
    assert world.stages == {(L2, OSO), (L3, CAM)}


def test_attempts_after_refusals_have_growing_pauses_of_at_most_a_day():
    world = StagingWorld(policy(sites=[CAM]), L1=1)
    world.queue(need(L1))
    world.stager.refusals[L1] = (RefusalKind.OTHER, "the database is locked")
    times = []
    for _ in range(160):
        before = world.stager.calls.count("request")
        world.step(30 * MINUTE)
        if world.stager.calls.count("request") > before:
            times.append(world.clock.now)
    pauses = [(b - a) / HOUR for a, b in pairwise(times)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 24]
    [reason] = world.reasons
    assert reason.startswith("lofar:L1 at CAM: the database is locked; not asked again for ")
    world.stager.refusals.clear()
    world.control.commands.append(StagingCommand("resume"))
    world.step()
    assert world.stages == {(L1, CAM)}


def test_a_stuck_request_is_reported_after_a_day_with_its_reason():
    world = asked_world()
    world.stager.set("rule1", state=RequestState.STUCK, files_done=98, reason="checksum mismatch")
    [row] = world.step().requests
    assert not row.is_stuck
    [row] = world.step(25 * HOUR).requests
    assert row.is_stuck
    assert "98 of 100 files, stuck, checksum mismatch" in row.description


def test_a_request_is_renewed_at_half_its_lifetime_while_jobs_need_it():
    world = asked_world()
    world.step(7 * DAY)
    assert world.stager.calls.count("request") == 1
    world.step(DAY)
    assert world.stager.calls.count("request") == 2
    assert world.stager.rules["rule1"].expires_at == world.clock.now + 15 * DAY
    for _ in range(40):
        world.step(DAY / 2)
    assert world.stages == {(L1, CAM)}


def test_a_queue_that_does_not_answer_keeps_its_references_for_a_day():
    world = asked_world()
    world.needs[SCHEDD] = Unseen("timeout")
    for _ in range(20):
        world.step(HOUR)
    assert only_request(world).job_count == 1
    world.needs.clear()  # now the collector does not list it either
    world.step(HOUR)
    world.step(DAY)
    assert only_request(world).job_count == 0
    for _ in range(5):
        world.step(HOUR)
    assert "cancel" not in world.stager.calls


def test_a_request_without_demand_is_cancelled_after_an_hour():
    world = asked_world()
    world.step_with(after=50 * MINUTE)
    world.step_with(need(L1))  # a demand that returns begins the hour again
    world.step_with()
    world.step(59 * MINUTE)
    assert "cancel" not in world.stager.calls
    world.step(MINUTE)
    assert world.stager.calls.count("cancel") == 1
    assert only_request(world).is_in_flight  # until the catalogue lists it no more
    world.step()
    assert world.table.requests == ()
    assert world.table.ended[-1].reason == "cancelled"


@pytest.mark.parametrize(
    ("error", "calls"), [(LOST, 2), (StagingRefused("rucio", "not allowed", RefusalKind.PERMISSION), 1000)]
)
def test_a_cancelling_that_failed_is_repeated_once_an_hour(error, calls):
    world = asked_world()
    world.step_with()
    world.stager.faults["cancel"] = [Fault(error)] * (calls - 1)
    for _ in range(15 * 24 * 2):
        world.step(30 * MINUTE)
    assert world.stager.calls.count("cancel") <= min(calls, 15 * 24)
    assert world.stages == set()  # at the latest by its lifetime
    assert world.table.requests == ()


def test_complete_data_stays_four_days_after_its_last_job():
    world = asked_world()
    world.arrive()
    world.step()
    world.step_with()
    world.step(2 * HOUR)
    world.step(3 * DAY)
    assert world.stages == {(L1, CAM)}
    world.step(2 * DAY)
    assert world.stages == set()
    assert (L1, CAM) not in world.disk
    assert "cancel" not in world.stager.calls


@pytest.mark.parametrize(("site", "is_used"), [(CAM, True), (RAL, False)])
def test_data_beside_which_a_job_ran_is_used(site, is_used):
    world = asked_world()
    world.arrive()
    world.step()
    world.step_with(run(L1, site=site))
    world.step_with(after=20 * DAY)
    assert [(one.is_complete, one.is_used) for one in world.step().ended] == [(True, is_used)]


def test_the_switch_stops_all_asking_and_renewing_and_deletes_nothing():
    world = asked_world(L2=1)
    world.control.stop_reason = "stopped by the operator"
    world.queue(need(L1), need(L2))
    calls = len(world.stager.calls)
    world.step(9 * DAY)
    assert set(world.stager.calls[calls:]) == {"list"}
    assert world.overview.stop_reason == "stopped by the operator"
    world.step_with(after=4 * HOUR)
    assert "cancel" not in world.stager.calls
    assert world.stages == {(L1, CAM)}


def test_a_stop_while_a_step_runs_prevents_its_next_call():
    world = asking_world(L2=1)
    world.queue(need(L1), need(L2, user="b@x"))
    request = world.stager.request

    def stop_after(order):
        world.control.stop_reason = "stopped by the operator"
        return request(order)

    world.stager.request = stop_after
    world.step()
    assert len(world.stages) == len(world.table.requests) == 1


def test_no_call_is_made_when_the_daemon_ends_after_the_write():
    world = asking_world()
    world.store.on_save = lambda: setattr(world, "is_ending", True)
    world.step()
    assert "request" not in world.stager.calls
    assert world.store.table == Table()


def test_the_operator_cancels_a_request_and_it_is_not_asked_again_before_he_resumes():
    world = asked_world()
    world.control.commands.append(StagingCommand("cancel", (only_request(world).batch,)))
    for _ in range(20):
        world.step(8 * HOUR)
    assert world.stages == set()
    assert world.stager.calls.count("request") == 1
    assert "cancelled by the operator" in world.reasons[0]
    world.control.commands.append(StagingCommand("resume"))
    world.step()
    assert world.stages == {(L1, CAM)}


def test_a_second_cancellation_is_made_in_the_next_step_after_a_call_that_failed():
    world = asked_world()
    world.stager.faults["cancel"] = [Fault(LOST)]
    for _ in range(2):
        world.control.commands.append(StagingCommand("cancel", ("rule1",)))
        world.step()
    assert world.stager.calls.count("cancel") == 2


@pytest.mark.parametrize("stopped_steps", [0, 3])
def test_cancellation_that_was_given_before_the_operator_resumes_is_made(stopped_steps):
    world = asked_world()
    world.control.stop_reason = "stopped by the operator" if stopped_steps else ""
    world.control.commands.append(StagingCommand("cancel", (only_request(world).batch,)))
    for _ in range(stopped_steps):
        world.step(HOUR)
    world.control.stop_reason = ""
    world.control.commands.append(StagingCommand("resume"))
    for _ in range(20):
        world.step(8 * HOUR)
    assert "cancel" in world.stager.calls
    assert world.stages == {(L1, CAM)}, "asked again"


def test_each_call_is_audited_with_its_result():
    world = asking_world()
    world.stager.faults["request"] = [Fault(LOST)]
    world.step()
    world.step()
    world.step(8 * DAY)
    world.step_with()
    world.step(HOUR)
    assert [(verb, one.rule, error) for verb, one, error in world.audit] == [
        ("ask", "", LOST),
        ("ask", "rule1", None),
        ("renew", "rule1", None),
        ("cancel", "rule1", None),
    ]


def test_a_bug_of_the_adapter_counts_as_a_call_in_doubt(caplog):
    world = asking_world()
    world.stager.faults["request"] = [Fault(KeyError("rule"), has_effect=True)]
    world.step()
    assert only_request(world).rule == ""
    world.step()
    assert only_request(world).rule == "rule1"
    world.stager.faults["list"] = [Fault(KeyError("rule"))]
    world.step()
    assert list(world.overview.problems) == ["catalogue rucio"]
    assert world.stages == {(L1, CAM)}


def test_a_rule_of_ours_without_an_end_gets_one():
    world = StagingWorld(L1=1)
    world.stager.add_rule(L1, CAM, "hydrator", is_ours=True, state=RequestState.MOVING)
    world.step()
    [rule] = world.stager.own_rules()
    assert rule.expires_at == world.clock.now + DAY
    for _ in range(5):
        world.step()
    assert world.stager.calls.count("request") == 1


def test_a_held_job_keeps_its_request():
    world = asked_world()
    world.queue(need(L1, is_data_missing=False, matching_sites=None))
    for _ in range(5):
        world.step(HOUR)
    assert world.stages == {(L1, CAM)}


def test_two_catalogues_do_not_touch_each_others_requests():
    """A rule that one catalogue does not list has not ended in another."""
    world = asked_world()
    world.store.table = replace(
        world.table, rows=(*world.table.rows, replace(only_request(world), did=L2, catalogue="other"))
    )
    world.restart()
    world.step(20 * MINUTE)
    assert [one.did for one in world.table.requests if one.catalogue == "other"] == [L2]


def test_a_dataset_that_fails_alone_stops_no_other():
    world = StagingWorld(L1=1, L2=1)
    world.stager.unread[L1] = "an odd row"
    world.step_with(need(L1), need(L2))
    assert world.stages == {(L2, CAM)}
    assert world.reasons == ["an odd row"]


def test_after_a_call_without_an_answer_others_go_on_in_the_next_step():
    world = StagingWorld(L1=1, L2=1, L3=1)
    request = world.stager.request

    def answer_all_but_one(order):
        if order.did == L1:
            raise LOST
        return request(order)

    world.stager.request = answer_all_but_one
    world.step_with(need(L1), need(L2, user="b@x"), need(L3))
    assert [one.did for one in world.table.requests] == [L1]
    for _ in range(30):
        world.step_with(need(L1), need(L2), need(L3))
    assert {did for did, _ in world.stages} == {L2, L3}
    assert sum(verb == "ask" and one.did == L1 for verb, one, _ in world.audit) < 10


def test_the_longest_lifetime_is_the_operators():
    world = world_with(need(L3), rules=policy(max_lifetime_days=3), L3=1)
    [rule] = world.stager.own_rules()
    assert rule.expires_at == world.clock.now + 3 * DAY


def test_a_clock_that_was_ahead_for_a_while_delays_no_call():
    """After a step of the clock the daemon restarts, with times of the future in its table."""
    world = asked_world(rules=policy(sites=[CAM], limits={"hour_requests": 1}), L2=1, L3=1)
    for ahead in (30 * DAY, timedelta()):
        world.stager._clock = lambda ahead=ahead: world.clock.now - ahead
        world.restart()
        world.step_with(need(L1), need(L2), after=ahead or -30 * DAY)
        world.step()
    assert world.stages == {(L1, CAM), (L2, CAM)}
    for _ in range(16):
        world.step_with(need(L1), need(L3), after=HOUR / 2)
    assert world.stages == {(L1, CAM), (L3, CAM)}
    for _ in range(20):
        world.step(DAY)
    assert world.stages == {(L1, CAM), (L3, CAM)}


@pytest.mark.parametrize("back", [HOUR / 2, 3 * HOUR, 400 * DAY])
def test_a_clock_that_was_set_back_neither_lifts_the_hourly_limit_nor_keeps_it(back):
    world = asked_world(rules=policy(sites=[CAM], limits={"hour_requests": 1}), L2=1)
    world.restart()
    world.step_with(need(L1), need(L2), after=-back)
    world.step(50 * MINUTE)
    assert world.stages == {(L1, CAM)}
    world.step(15 * MINUTE)
    assert world.stages == {(L1, CAM), (L2, CAM)}


@pytest.mark.parametrize("back", [3 * HOUR, 400 * DAY])
def test_a_failure_before_the_clock_was_set_back_closes_its_dataset_for_a_day_at_most(back):
    world = asking_world(rules=policy(sites=[CAM]))
    refused = StagingRefused("rucio", "files of it are there without any rule", RefusalKind.NOT_OURS)
    world.stager.faults["request"] = [Fault(refused)]
    world.step()
    assert world.stages == set()
    world.restart()
    world.step(-back)
    for _ in range(30):
        world.step(HOUR)
    assert world.stages == {(L1, CAM)}


def test_a_request_of_which_no_file_arrives_for_a_day_is_stuck_whatever_its_state():
    world = asked_world()
    world.step(2 * HOUR)
    world.stager.set("rule1", files_done=1)
    [row] = world.step(23 * HOUR).requests
    assert not row.is_stuck
    [row] = world.step(25 * HOUR).requests
    assert row.is_stuck
    assert "no file has arrived for 1 d" in row.description
    world.stager.set("rule1", files=None)  # a command need not count them
    [row] = world.step(25 * HOUR).requests
    assert not row.is_stuck
    world.stager.set("rule1", files=100)
    world.arrive()
    [row] = world.step(25 * HOUR).requests
    assert not row.is_stuck


def test_files_or_a_rule_that_are_not_ours_close_a_dataset_at_their_site_only():
    world = asking_world()
    refused = StagingRefused("rucio", "files of it are there without any rule", RefusalKind.NOT_OURS)
    world.stager.faults["request"] = [Fault(refused)]
    world.step()
    world.step()
    assert world.stages == {(L1, OSO)}


def test_a_rule_that_rucio_omits_for_a_while_counts_again():
    world = asked_world()
    rule = world.stager.rules.pop("rule1")
    world.step()
    assert world.overview.in_flight_bytes == {}
    world.stager.rules["rule1"] = rule
    world.step()
    assert world.overview.in_flight_bytes == {CAM: TERABYTE}
    assert only_request(world).closed_until is None


def test_renewals_that_may_not_be_made_now_delay_no_other():
    """Those of a catalogue that does not answer, or of a site in the mode propose."""
    world = StagingWorld(policy(sites={RAL: {"mode": "propose"}, CAM: {}}))
    ours = {"is_ours": True, "state": RequestState.MOVING, "bytes": 10**9}
    dids = [Did(f"lofar:D{n}") for n in range(MAX_CALLS + 1)]
    for did in dids:
        world.stager.add_rule(did, RAL, "hydrator", expires_at=NOON + HOUR, **ours)
    rule = world.stager.add_rule(L1, CAM, "hydrator", expires_at=NOON + 2 * HOUR, **ours)
    for _ in range(2):
        world.step_with(need(L1, *dids))
    assert world.stager.rules[rule].expires_at == world.clock.now + DAY
