"""The life of a request: answers, progress, renewal, cancelling, failures, and a crash at any point."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.domain.model import Did, Unseen
from hydrator.domain.staging_ports import (
    RefusalKind,
    RequestState,
    StagingKind,
    StagingOutcomeUnknown,
    StagingPermissions,
    StagingRefused,
    StagingUnavailable,
)
from hydrator.staging.commands import StagingCommand
from hydrator.staging.ledger import EntryState, make_tag
from hydrator.staging.needs import DataUse
from hydrator.staging.policy import TERABYTE
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, OSO, RAL
from tests.memory_stager import Fault
from tests.staging_world import SCHEDD, StagingWorld, need, policy, run
from tests.unit.staging.steps import step_with

DAY = timedelta(days=1)
LOST = StagingOutcomeUnknown("rucio", "timeout")


def asking_world(**more) -> StagingWorld:
    world = StagingWorld(L1=1, **more)
    world.queue(need(L1))
    return world


def asked_world(**more) -> StagingWorld:
    """A world after the step that asks."""
    world = asking_world(**more)
    world.step()
    return world


def only_entry(world):
    [entry] = world.ledger.entries.values()
    return entry


def test_nothing_is_asked_while_the_ledger_cannot_be_written():
    world = asking_world()
    world.store.is_broken = True
    world.step()
    assert "ask" not in world.stager.calls
    assert world.overview.problems == {"state": "the state cannot be written: disk full"}
    world.store.is_broken = False
    world.step()
    assert world.stages == {(L1, CAM)}


def test_a_request_whose_answer_was_lost_is_adopted_and_not_repeated():
    world = asking_world()
    world.stager.faults["ask"] = [Fault(LOST, has_effect=True)]
    world.step()
    assert only_entry(world).state is EntryState.ASKING
    world.step()
    assert (only_entry(world).state, only_entry(world).handle) == (EntryState.OPEN, "rule1")
    assert world.stager.calls.count("ask") == 1
    assert len(world.stager.rules) == 1


def test_a_lost_call_without_effect_frees_its_bytes_only_after_the_grace_time():
    world = asking_world()
    world.stager.faults["ask"] = [Fault(LOST)]
    world.step()
    for _ in range(9):
        world.step()
        assert only_entry(world).bytes == TERABYTE
    world.step()
    assert world.ledger.entries == {}
    assert "lofar:L1: 1 attempt failed" in world.reasons[0]
    assert world.stager.calls.count("ask") == 1
    world.step(2 * HOUR)
    assert world.stages == {(L1, CAM)}


def test_a_call_that_certainly_had_no_effect_is_repeated_after_a_pause():
    world = asking_world()
    world.stager.faults["ask"] = [Fault(StagingUnavailable("rucio", "connection refused"))]
    world.step()
    assert world.ledger.entries == {}
    world.step()
    assert world.stager.calls.count("ask") == 1
    world.step(10 * MINUTE)
    assert world.stages == {(L1, CAM)}


@pytest.mark.parametrize("kind", [RefusalKind.PERMISSION, RefusalKind.ACTIVITY])
def test_a_refusal_that_concerns_all_requests_stops_the_catalogue(kind):
    world = asking_world(L2=1)
    world.queue(need(L1, user="a@x"), need(L2, user="b@x"))
    world.stager.faults["ask"] = [Fault(StagingRefused("rucio", "no such activity: Stagging", kind))]
    for _ in range(20):
        world.step(HOUR)
    assert world.stager.calls.count("ask") == 1
    assert world.overview.problems == {"catalogue rucio": "no such activity: Stagging"}
    assert "catalogue rucio refused: no such activity: Stagging" in world.reasons
    world.restart()  # a new configuration may have cured it
    step_with(world, need(L2))
    assert {did for did, _ in world.stages} == {L2}


@pytest.mark.parametrize("kind", [RefusalKind.QUOTA, RefusalKind.CLOSED])
def test_a_refusal_of_a_site_opens_its_breaker(kind):
    world = asking_world(L2=1, L3=1)
    world.queue(need(L1, sites=[CAM]))
    world.stager.refusals[CAM] = (kind, "CAM_DISK is closed for writing")
    world.step()
    assert world.ledger.totals.refused == {kind: 1}
    world.stager.refusals.clear()
    step_with(world, need(L2))
    assert world.stages == {(L2, OSO)}
    step_with(world, need(L2), need(L3, sites=[CAM]), after=58 * MINUTE)
    assert world.stages == {(L2, OSO)}
    assert "requests to CAM failed lately; nothing is asked for there for 1 min" in world.reasons
    world.step(MINUTE)
    assert world.stages == {(L2, OSO), (L3, CAM)}


@pytest.mark.parametrize(
    ("failures", "accepted", "is_asked"),
    [(2, 0, True), (3, 0, False), (3, 11, False), (3, 12, True), (4, 16, True), (5, 21, False)],
)
def test_many_failures_of_a_site_in_an_hour_open_its_breaker(failures, accepted, is_asked):
    """Five failures are many, and so are three that are more than a fifth of the requests of this hour."""
    names = [Did(f"lofar:D{n}") for n in range(failures + accepted)]
    world = StagingWorld(L1=0.1, **{name.removeprefix("lofar:"): 0.1 for name in names})
    world.policy = policy(limits=replace(world.policy.limits, hour_requests=100))
    world.restart()
    bad, good = names[:failures], names[failures:]
    world.stager.refusals.update(dict.fromkeys(bad, (RefusalKind.OTHER, "the database is locked")))
    for name in (*good, *bad):
        step_with(world, need(name, sites=[CAM]))
    assert {did for did, _ in world.stages} == set(good)
    assert world.ledger.totals.failed == failures
    step_with(world, need(L1, sites=[CAM]))
    assert ((L1, CAM) in world.stages) == is_asked
    world.step(HOUR)
    assert (L1, CAM) in world.stages


def test_attempts_end_after_three_failures_with_growing_pauses():
    world = asking_world()
    world.policy = policy(site_modes={CAM: world.policy.site_modes[CAM]})
    world.restart()
    world.stager.refusals[L1] = (RefusalKind.OTHER, "the database is locked")
    times = []
    for _ in range(100):
        before = world.stager.calls.count("ask")
        world.step(10 * MINUTE)
        if world.stager.calls.count("ask") > before:
            times.append(world.clock.now)
    assert len(times) == 3
    first, second = times[1] - times[0], times[2] - times[1]
    assert HOUR <= first < 1.5 * HOUR
    assert 2 * HOUR <= second < 3 * HOUR
    [reason] = world.reasons
    assert reason.startswith("lofar:L1: 3 attempts failed (the database is locked); no further attempt")
    world.stager.refusals.clear()
    world.control.commands.append(StagingCommand("resume"))
    world.step()
    assert world.stages == {(L1, CAM)}


def test_progress_is_told_in_files():
    world = asked_world()
    world.stager.set_state("rule1", RequestState.MOVING, 81)
    world.step()
    [row] = world.overview.requests
    assert "81 of 100 files" in row.description
    assert row.bytes_done == 0.81 * TERABYTE
    world.arrive()
    [row] = world.step().requests
    assert row.is_complete
    assert "complete" in row.description


def test_a_stuck_request_is_reported_after_a_day_with_the_files_left():
    world = asked_world()
    world.stager.set_state("rule1", RequestState.STUCK, 98, "checksum mismatch")
    [row] = world.step().requests
    assert not row.is_stuck
    [row] = world.step(25 * HOUR).requests
    assert row.is_stuck
    assert "stuck, 2 files left (checksum mismatch)" in row.description


def test_a_request_is_renewed_while_jobs_need_it():
    world = asked_world()
    world.step(DAY)
    assert "renew" not in world.stager.calls
    world.step(1.1 * DAY)
    assert world.stager.calls.count("renew") == 1
    assert only_entry(world).expires_at == world.clock.now + 3 * DAY
    assert world.stager.rules["rule1"].rule.expires_at == world.clock.now + 3 * DAY
    for _ in range(40):
        world.step(DAY / 2)
    assert world.stages == {(L1, CAM)}


def test_a_queue_that_does_not_answer_keeps_its_references():
    world = asked_world()
    world.needs.needs[SCHEDD] = Unseen("timeout")
    for _ in range(20):
        world.step(HOUR)
    assert "cancel" not in world.stager.calls
    assert only_entry(world).job_count == 1
    world.needs.needs.clear()  # now the collector does not list it either
    world.step(HOUR)
    assert "cancel" not in world.stager.calls
    world.step(DAY)
    assert only_entry(world).job_count == 0
    for _ in range(5):
        world.step(HOUR)
    assert "cancel" not in world.stager.calls


def test_a_request_without_demand_is_cancelled_after_an_hour():
    world = asked_world()
    step_with(world)
    world.step(59 * MINUTE)
    assert "cancel" not in world.stager.calls
    world.step(MINUTE)
    assert world.stager.calls.count("cancel") == 1
    assert only_entry(world).state is EntryState.CANCELLING
    assert only_entry(world).is_in_flight  # until the catalogue is seen without it
    world.step()
    assert world.ledger.entries == {}
    assert world.ledger.ended[-1].reason == "cancelled"
    assert world.ledger.totals.cancelled == 1


def test_demand_that_returns_stops_the_cancelling():
    world = asked_world()
    step_with(world)
    world.step(50 * MINUTE)
    step_with(world, need(L1))
    step_with(world)
    world.step(50 * MINUTE)
    assert "cancel" not in world.stager.calls


def test_a_cancelling_that_had_no_effect_is_repeated():
    world = asked_world()
    step_with(world)
    world.stager.faults["cancel"] = [Fault(LOST)]
    world.step(HOUR)
    assert len(world.stager.rules) == 1
    world.step(HOUR)
    world.step()
    assert world.stages == set()
    assert world.stager.calls.count("cancel") == 2


def test_an_account_that_may_not_cancel_leaves_the_clean_up_to_the_lifetime():
    world = asked_world()
    step_with(world)
    refusal = StagingRefused("rucio", "not allowed", RefusalKind.PERMISSION)
    world.stager.faults["cancel"] = [Fault(refusal)] * 1000
    for _ in range(3 * 24 * 6):
        world.step(10 * MINUTE)
    assert world.stager.calls.count("cancel") <= 72  # once an hour, no storm
    assert world.stages == set()
    assert world.ledger.entries == {}


def test_complete_data_stays_some_days_after_its_last_job():
    world = asked_world()
    world.arrive()
    world.step()
    step_with(world)
    world.step(2 * HOUR)
    assert "cancel" not in world.stager.calls
    assert world.stages == {(L1, CAM)}
    world.step(5 * DAY)
    assert world.stages == set()
    assert (L1, CAM) not in world.disk


def test_data_that_no_job_used_is_counted_as_unused():
    world = asked_world()
    world.arrive()
    world.step()
    step_with(world)
    world.step(5 * DAY)
    assert world.overview.unused_share == 1.0
    used = asked_world()
    used.arrive()
    used.step()
    step_with(used, run(L1, site=CAM))
    step_with(used)
    used.step(5 * DAY)
    assert used.ledger.totals.staged_bytes == TERABYTE
    assert used.overview.unused_share == 0.0


@pytest.mark.parametrize(
    ("site", "starts_in", "share"),
    [(CAM, MINUTE, 0.0), (RAL, MINUTE, 1.0), (CAM, -MINUTE, 1.0)],
    ids=["beside the data", "elsewhere", "before the request"],
)
def test_data_of_a_job_that_no_query_saw_run_is_used(site, starts_in, share):
    world = asked_world()
    asked_at = only_entry(world).asked_at
    world.arrive()
    world.uses = [DataUse(L1, site, asked_at + starts_in)]
    world.queue()  # the job was idle at the last query, and has run since then
    world.step()
    world.step(5 * DAY)
    assert world.stages == set()
    assert world.overview.unused_share == share


def test_a_job_that_ran_before_its_data_was_complete_did_not_use_the_request():
    world = asked_world()
    world.uses = [DataUse(L1, CAM, world.clock.now + MINUTE)]
    world.step()
    world.arrive()
    world.step()
    step_with(world)
    world.step(5 * DAY)
    assert world.overview.unused_share == 1.0


def test_the_switch_stops_all_asking_and_renewing_and_deletes_nothing():
    world = asked_world(L2=1)
    world.control.stop_reason = "stopped by the operator"
    world.queue(need(L1), need(L2))
    calls = len(world.stager.calls)
    world.step(2.5 * DAY)
    assert set(world.stager.calls[calls:]) <= {"look", "measure", "find_rules", "read_space"}
    assert world.overview.stop_reason == "stopped by the operator"
    assert world.stages == {(L1, CAM)}
    step_with(world, after=4 * HOUR)
    assert "cancel" not in world.stager.calls


def test_a_stop_while_a_step_runs_prevents_its_next_call():
    world = asking_world(L2=1)
    world.queue(need(L1), need(L2, user="b@x"))
    ask = world.stager.ask

    def stop_after(orders):
        world.control.stop_reason = "stopped by the operator"
        return ask(orders)

    world.stager.ask = stop_after
    world.step()
    assert len(world.stages) == 1


def test_no_call_is_made_when_the_daemon_ends_after_the_write():
    world = asking_world()
    world.store.on_save = lambda: setattr(world, "guard_reason", "the daemon ends")
    world.step()
    assert "ask" not in world.stager.calls
    assert world.store.ledger.entries == {}


def test_a_daemon_without_the_ledger_adopts_all_requests_of_the_pool():
    world = asked_world(L2=1)
    world.store.ledger = type(world.store.ledger)()
    world.restart()
    world.step()
    entry = only_entry(world)
    assert (entry.did, entry.site, entry.bytes, entry.handle) == (L1, CAM, TERABYTE, "rule1")
    assert world.stager.calls.count("ask") == 1


def test_a_request_that_others_removed_counts_as_a_failure():
    world = asked_world()
    del world.stager.rules["rule1"]
    world.step()
    assert world.ledger.ended[-1].reason == "removed by others before its lifetime ended"
    assert world.stager.calls.count("ask") == 1
    assert world.ledger.failures[L1, CAM].attempts == 1


def test_the_operator_cancels_a_request_and_it_is_not_asked_again():
    world = asked_world()
    world.control.commands.append(StagingCommand("cancel", only_entry(world).batch))
    for _ in range(10):
        world.step()
    assert world.stages == set()
    assert world.stager.calls.count("ask") == 1
    assert "cancelled by the operator" in world.reasons[0]


def test_each_call_has_a_line_in_the_audit_log():
    world = asked_world()
    world.step(2.2 * DAY)
    step_with(world)
    world.step(HOUR)
    assert [event for event, _ in world.audit] == ["asked", "renewed", "cancelled"]
    fields = world.audit[0][1]
    assert fields["dataset"] == L1
    assert fields["bytes"] == TERABYTE
    assert fields["request"] == "rule1"
    assert fields["outcome"] == "done"
    assert fields["tag"].startswith("hydrator:pool:stage:")


def test_a_failed_call_has_its_reason_in_the_audit_log():
    world = asking_world()
    world.stager.faults["ask"] = [Fault(LOST)]
    world.step()
    assert world.audit[0][1]["outcome"] == "outcome unknown: timeout"


def test_a_bug_of_the_adapter_counts_as_an_unknown_outcome(caplog):
    world = asking_world()
    world.stager.faults["ask"] = [Fault(KeyError("rule"), has_effect=True)]
    world.step()
    assert only_entry(world).state is EntryState.ASKING
    world.step()
    assert only_entry(world).state is EntryState.OPEN
    world.stager.faults["look"] = [Fault(KeyError("rule"))]
    world.step()
    assert "bug in staging at rucio: KeyError" in world.overview.problems["catalogue rucio"]


def test_permissions_are_probed_once():
    world = asking_world()
    world.stager.permissions = StagingPermissions(None, None, None)
    for _ in range(3):
        world.step()
    assert world.stager.calls.count("probe_permissions") == 1


def test_a_failed_request_is_final_and_is_cancelled():
    world = asked_world()
    world.stager.set_state("rule1", RequestState.FAILED, 0, "no source has the file")
    world.step()
    world.step(HOUR)
    world.step()
    assert world.stages == set()
    for _ in range(10):
        world.step(HOUR)
    assert world.stager.calls.count("ask") == 1
    assert "no source has the file" in world.reasons[0]


def test_a_request_of_ours_without_an_end_gets_one():
    world = StagingWorld(L1=1)
    tag = make_tag("hydrator:pool:", StagingKind.STAGE, L1, CAM)
    world.stager.add_rule(L1, CAM, account="hydrator", tag=tag, state=RequestState.MOVING)
    world.step()
    [row] = world.stager.own_rules()
    assert row.rule.expires_at == world.clock.now + 3 * DAY
    for _ in range(5):
        world.step()
    assert world.stager.calls.count("renew") == 1


def test_a_catalogue_that_reports_no_end_is_not_asked_to_renew_all_the_time():
    world = asked_world()
    row = world.stager.rules["rule1"]
    world.stager.rules["rule1"] = replace(row, rule=replace(row.rule, expires_at=None))
    for _ in range(20):
        world.step(HOUR)
    assert "renew" not in world.stager.calls
    assert only_entry(world).expires_at == only_entry(world).asked_at + 3 * DAY


def test_a_held_job_keeps_its_request():
    world = asked_world()
    world.queue(need(L1, is_data_missing=False, matching_sites=None))
    for _ in range(5):
        world.step(HOUR)
    assert world.stages == {(L1, CAM)}
