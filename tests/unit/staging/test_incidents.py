"""The incidents of other projects, replayed by name: they must not happen here.

Each test names the issue or page that reported the incident.
"""

from datetime import timedelta

from hydrator.domain.model import Did, ReplicaState
from hydrator.domain.staging_ports import RefusalKind, RequestState, SiteSpace, StagingRefused
from hydrator.staging.commands import StagingCommand
from hydrator.staging.policy import TERABYTE, StagingLimits, StagingMode
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON
from tests.memory_stager import Fault
from tests.staging_world import ANN, BOB, SCHEDD, SITES, StagingWorld, need, policy

DAY = timedelta(days=1)
HUGE = SiteSpace(10_000 * TERABYTE, 20_000 * TERABYTE, NOON)


def in_flight(world, user=None) -> int:
    return sum(
        entry.bytes
        for entry in world.ledger.entries.values()
        if entry.is_in_flight and user in {None, entry.user}
    )


def test_crabserver_8354_two_users_recall_7_petabytes_in_a_week():
    datasets = [Did(f"lofar:D{n}") for n in range(3500)]
    world, reasons = StagingWorld(), set()
    world.stager.space = dict.fromkeys(SITES, HUGE)
    for first in range(0, 3500, 500):  # a day: 250 datasets of 2 TB of each user
        kept = {entry.did for entry in world.ledger.entries.values()}
        world.stager.sizes = {did: size for did, size in world.stager.sizes.items() if did in kept}
        for did in datasets[first : first + 500]:
            world.add_dataset(did, 2)
        since = world.clock.now
        names = enumerate(datasets[first : first + 500])
        world.queue(*(need(did, user=(ANN, BOB)[n % 2], queued_since=since) for n, did in names))
        for _ in range(2):
            world.step(12 * HOUR)
            assert in_flight(world, ANN) <= 10 * TERABYTE
            assert in_flight(world, BOB) <= 10 * TERABYTE
            assert sum(entry.bytes for entry in world.ledger.entries.values()) <= 50 * TERABYTE
            reasons.update(world.reasons)
            world.arrive()
    assert 50 * TERABYTE <= world.ledger.totals.asked_bytes <= 150 * TERABYTE
    assert any("in flight for" in reason for reason in reasons)
    assert any("of all requests" in reason for reason in reasons)


def test_wmcore_10278_the_same_dataset_by_differently_spelt_destinations():
    world = StagingWorld(policy(storages={CAM: "CAM_DISK"}), L1=1)
    world.stager.add_rule(L1, CAM, storage="CAM_DISK|RAL_DISK", account="carl", state=RequestState.MOVING)
    world.queue(need(L1))
    for _ in range(5):
        world.step()
    assert world.stages == set()
    other = StagingWorld(policy(storages={CAM: "CAM_DISK"}), L1=1)
    other.queue(need(L1), need(L1, user=BOB, queued_since=NOON - 2 * HOUR))
    for _ in range(5):
        other.step()
    assert [row.rule.storage for row in other.stager.own_rules()] == ["CAM_DISK"]


def test_wmcore_10037_a_request_without_sources_is_never_satisfied():
    world = StagingWorld(L1=1)
    world.stager.faults["ask"] = [
        Fault(StagingRefused("rucio", "no source has lofar:L1", RefusalKind.NO_SOURCE))
    ]
    world.queue(need(L1))
    for _ in range(48):
        world.step(HOUR)
    assert world.stager.calls.count("ask") == 1
    assert "no source has lofar:L1" in world.reasons[0]


def test_crabserver_7900_two_of_6816_files_never_arrive():
    world = StagingWorld()
    world.add_dataset(L1, 1, files=900)
    world.queue(need(L1))
    world.step()
    world.stager.set_state("rule1", RequestState.STUCK, 898, "checksum mismatch")
    world.put(L1, CAM, ReplicaState.STUCK, 898 / 900)
    [row] = world.step(DAY + HOUR).requests
    assert "2 files left" in row.description
    world.step(HOUR)
    assert world.overview.requests[0].is_stuck is False
    world.queue(need(L1, is_data_missing=False))  # this job matches the slots of CAM without its data
    world.step()
    assert world.stages == {(L1, CAM)}
    assert world.overview.requests[0].job_count == 1


def test_crabserver_9107_a_rule_that_two_killed_tasks_share_is_never_deleted():
    world = StagingWorld(L1=1)
    world.queue(need(L1), need(L1, user=BOB))
    world.step()
    world.queue(need(L1, user=BOB))
    world.step(2 * HOUR)
    assert world.stages == {(L1, CAM)}
    world.queue()
    world.step()
    world.step(HOUR)
    world.step()
    assert world.stages == set()


def test_a_burst_of_fifty_submitters_overshoots_no_limit_by_a_byte():
    limits = StagingLimits(total_bytes=7 * TERABYTE, hour_requests=1000)
    world = StagingWorld(policy(limits=limits))
    datasets = [Did(f"lofar:D{n}") for n in range(50)]
    for n, did in enumerate(datasets):
        world.add_dataset(did, 0.3 + n / 50)
    world.queue(*(need(did, user=f"u{n}@x") for n, did in enumerate(datasets)))
    for _ in range(10):
        world.step()
        assert sum(entry.bytes for entry in world.ledger.entries.values()) <= 7 * TERABYTE
    assert len(world.stages) > 5


def test_the_three_modes_of_one_installation_step_by_step():
    world = StagingWorld(policy(StagingMode.OFF), L1=1, L2=1, L3=1)
    world.queue(need(L1), need(L2, user=BOB), need(L3))
    world.step()
    assert world.stager.calls == []
    world.policy = policy(StagingMode.PROPOSE)
    world.restart()
    assert len(world.step().planned) == 3
    assert world.stages == set()
    world.policy = policy(StagingMode.ASK)
    world.restart()
    world.step()
    assert len(world.stages) == 3
    world.policy = policy(StagingMode.OFF)
    world.restart()
    calls = len(world.stager.calls)
    for _ in range(5):
        world.step(DAY)
    assert len(world.stager.calls) == calls
    assert world.stages == set()  # all ended by themselves


def test_commands_do_nothing_to_requests_that_are_not_there():
    world = StagingWorld(L1=1)
    world.queue(need(L1))
    world.step()
    world.control.commands += [StagingCommand("cancel", "nothing"), StagingCommand("approve", "nothing")]
    world.step(MINUTE)
    assert world.stages == {(L1, CAM)}
    assert SCHEDD in world.needs.needs
