"""Stage requests: which data is asked for, where, in which order, and why not."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.domain.model import Did, ReplicaState, Site, Unseen
from hydrator.domain.network import Rate
from hydrator.domain.staging_ports import RequestState, SiteSpace, StagingPermissions, StagingSize
from hydrator.staging.commands import StagingCommand
from hydrator.staging.policy import TERABYTE, StagingLimits, StagingMode, StagingTimes
from hydrator.staging.stage_plan import choose_lifetime
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, OSO, RAL
from tests.staging_world import BOB, SCHEDD, StagingWorld, need, policy, run
from tests.unit.staging.steps import step_with, world_with


def test_data_that_no_site_has_is_asked_for_at_one_site():
    world = world_with(need(L1, L2), L1=0.5, L2=1)
    assert world.stages == {(L1, CAM), (L2, CAM)}
    [row, _] = world.overview.requests
    assert row.description.startswith("asked 12:01 UTC at CAM, request rule1, ")
    assert row.description.endswith("1 job needs it")


def test_a_job_must_wait_before_its_data_is_asked_for():
    world = world_with(need(L1, queued_since=NOON), L1=1)
    assert world.stages == set()
    assert world.reasons == ["the jobs have waited for 1 min; asked in 9 min"]
    world.step(9 * MINUTE)
    assert world.stages == {(L1, CAM)}


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (False, None),
        (None, "it is unknown whether the jobs wait for anything but data"),
    ],
)
def test_only_jobs_that_wait_for_nothing_but_data_count(missing, reason):
    world = world_with(need(L1, is_data_missing=missing), L1=1)
    assert world.stages == set()
    assert world.reasons == ([reason] if reason else [])
    assert set(world.stager.calls) <= {"look"}


def test_data_that_is_complete_at_one_site_is_never_asked_for():
    world = StagingWorld(L1=1)
    world.put(L1, RAL)
    step_with(world, need(L1, sites=[CAM]))
    assert world.stages == set()
    assert world.reasons == ["the data is complete at RAL"]


def test_data_on_its_way_to_a_site_is_not_asked_for_again():
    world = StagingWorld(L1=1)
    world.stager.add_rule(L1, OSO, state=RequestState.MOVING)
    step_with(world, need(L1))
    assert world.stages == set()
    assert world.reasons == ["the data is on its way to OSO"]


@pytest.mark.parametrize(
    "break_it",
    [
        lambda world: setattr(world.catalogue, "is_broken", True),
        lambda world: setattr(world.catalogue, "unseen_reasons", {L1: "timeout"}),
        lambda world: setattr(world.catalogue, "unreachable_sites", frozenset({RAL})),
        lambda world: setattr(world.stager, "is_broken", True),
        lambda world: world.stager.sizes.clear(),
        lambda world: world.stager.space.clear(),
        lambda world: world.needs.needs.update({SCHEDD: Unseen("timeout")}),
    ],
    ids=["catalogue", "dataset", "site", "stager", "size", "space", "schedd"],
)
def test_nothing_is_asked_on_what_was_not_seen(break_it):
    world = StagingWorld(L1=1)
    world.queue(need(L1))
    break_it(world)
    world.step()
    world.step()
    assert "ask" not in world.stager.calls
    assert world.overview.not_asked or world.overview.problems


def test_a_site_that_is_not_listed_is_not_chosen():
    world = StagingWorld(policy(site_modes={RAL: StagingMode.ASK}), L1=1)
    world.queue(need(L1), need(L2, sites=[CAM]))
    world.add_dataset(L2)
    world.step()
    assert world.stages == {(L1, RAL)}
    assert world.reasons == ["RAL does not match the rest of the jobs' requirements"]


def test_the_site_with_the_fewest_missing_bytes_is_chosen():
    world = StagingWorld(L1=1, L2=4, L3=1)
    world.put(L2, RAL)
    world.put(L1, CAM)
    world.put(L3, OSO, ReplicaState.PARTIAL, 0.9)
    step_with(world, need(L1, L2, L3))
    assert world.stages == {(L1, RAL), (L3, RAL)}


def test_of_equal_sites_the_one_with_the_fastest_transfer_is_chosen_then_the_free_space():
    class Rates:
        def rate(self, source, destination):
            return Rate(1e9 if destination == OSO else 1e8, "test")

    world = StagingWorld(L1=1)
    world.put(L1, Site("ARCHIVE"), ReplicaState.ON_TAPE)
    world.restart(rates=Rates)
    step_with(world, need(L1))
    assert world.stages == {(L1, OSO)}
    [row] = world.ledger.entries.values()
    assert row.lifetime == timedelta(days=3)  # three times 1,000 s, but not below the shortest lifetime
    other = StagingWorld(L1=1)
    other.stager.space[RAL] = SiteSpace(150 * TERABYTE, 200 * TERABYTE, NOON)
    step_with(other, need(L1))
    assert other.stages == {(L1, RAL)}


def test_a_recall_from_the_tape_of_the_same_site_comes_first():
    world = StagingWorld(L1=1.5, L2=0.5)
    world.put(L1, RAL, ReplicaState.ON_TAPE)
    world.put(L2, CAM)
    step_with(world, need(L1, L2))
    assert world.stages == {(L1, RAL), (L2, RAL)}
    assert {one.source for one in world.ledger.find(L1)} == {RAL}
    assert {one.source for one in world.ledger.find(L2)} == {None}


def test_the_tape_of_a_site_is_asked_once_in_a_window_for_all_jobs():
    world = StagingWorld(L1=1, L2=1, L3=1)
    for did in (L1, L2, L3):
        world.put(did, RAL, ReplicaState.ON_TAPE)
    step_with(world, need(L1), need(L2, user=BOB))
    assert len(world.stages) == 2
    step_with(world, need(L1), need(L2, user=BOB), need(L3))
    assert len(world.stages) == 2
    assert "the tape of RAL is asked for all waiting jobs together, next in 14 min" in world.reasons
    world.step(14 * MINUTE)
    assert len(world.stages) == 3


def test_a_thousand_jobs_of_two_users_on_one_dataset_make_one_request():
    world = StagingWorld(L1=1)
    world.queue(
        need(L1, jobs=600), need(L1, jobs=400, user=BOB, queued_since=NOON - 2 * HOUR), need("L1", jobs=1)
    )
    for _ in range(5):
        world.step()
    assert len(world.stager.rules) == 1
    assert world.stager.calls.count("ask") == 1
    [entry] = world.ledger.entries.values()
    assert entry.user == BOB  # the owner of the oldest job
    assert entry.job_count == 1001


def test_jobs_that_share_a_dataset_get_all_at_one_site():
    world = StagingWorld(L1=0.5, L2=1.5, L3=0.2)
    world.put(L3, OSO)
    step_with(world, need(L1, L2, queued_since=NOON - 2 * HOUR), need(L1, L3))
    assert world.stages == {(L1, CAM), (L2, CAM), (L3, CAM)}


def test_the_rule_of_another_account_is_joined():
    world = StagingWorld(L1=1, L2=1)
    world.stager.add_rule(L1, RAL, account="carl", state=RequestState.QUEUED)
    world.stager.rules["rule1"] = replace(world.stager.rules["rule1"])
    step_with(world, need(L1, L2))
    assert world.stages == {(L2, RAL)}
    assert world.overview.joined == {"lofar:L1 at RAL": "the rule rule1 of carl"}
    assert world.overview.totals.joined == 1
    world.step()
    assert world.overview.totals.joined == 1


def test_a_rule_that_claims_completeness_without_replicas_stops_the_request():
    world = StagingWorld(policy(site_modes={CAM: StagingMode.ASK}), L1=1)
    world.stager.add_rule(L1, CAM, state=RequestState.DONE)
    step_with(world, need(L1))
    assert world.stages == set()
    assert world.reasons == [
        "the rule rule1 of someone says that lofar:L1 is complete at CAM, but its replicas are not"
    ]


EXCEEDED = "2 TB would exceed the limit of 1 TB"
LIMITS = {
    "request": (StagingLimits(request_bytes=TERABYTE), "2 TB exceeds the limit of 1 TB for one request"),
    "user": (
        StagingLimits(user_bytes=TERABYTE),
        f"{EXCEEDED} in flight for ann@example.org: 0 B are taken",
    ),
    "site": (StagingLimits(site_bytes=TERABYTE), f"{EXCEEDED} in flight to CAM: 0 B are taken"),
    "total": (StagingLimits(total_bytes=TERABYTE), f"{EXCEEDED} of all requests: 0 B are taken"),
    "number": (StagingLimits(hour_requests=0), "0 requests were made in the last hour, the limit"),
    "floor": (
        StagingLimits(floor_bytes=99 * TERABYTE),
        "2 TB would leave less than 99 TB free at CAM: 100 TB are free, 0 B are reserved",
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_request_above_a_limit_is_not_made_and_says_why(name):
    limits, reason = LIMITS[name]
    world = world_with(need(L1), rules=policy(limits=limits), L1=2)
    assert world.stages == set()
    assert world.reasons == [reason]


def test_the_tape_of_a_site_has_a_limit_of_its_own():
    world = StagingWorld(policy(limits=StagingLimits(source_bytes=TERABYTE)), L1=2, L2=2)
    world.put(L1, RAL, ReplicaState.ON_TAPE)
    step_with(world, need(L1), need(L2))
    assert {did for did, _ in world.stages} == {L2}
    assert "in flight from the tape of RAL" in world.reasons[0]


def test_a_dataset_with_an_unknown_number_of_files_is_requested():
    world = StagingWorld(L1=1)
    world.stager.sizes[L1] = StagingSize(TERABYTE)
    step_with(world, need(L1))
    assert world.stages == {(L1, CAM)}


def test_bytes_in_flight_count_against_the_limit_until_they_arrived():
    world = StagingWorld(policy(limits=StagingLimits(user_bytes=3 * TERABYTE)), L1=2, L2=2)
    step_with(world, need(L1), need(L2))
    assert world.stages == {(L1, CAM)}
    world.step()
    assert world.stages == {(L1, CAM)}
    world.arrive()
    world.step()
    assert world.stages == {(L1, CAM), (L2, CAM)}


def test_a_full_site_is_passed_over():
    world = StagingWorld(L1=2)
    world.stager.space[CAM] = SiteSpace(4 * TERABYTE, 50 * TERABYTE, NOON)
    step_with(world, need(L1))
    assert world.stages == {(L1, OSO)}


def test_users_take_turns():
    limits = StagingLimits(hour_requests=3)
    world = StagingWorld(policy(limits=limits), **{f"D{n}": 1 for n in range(6)})
    datasets = [Did(f"lofar:D{n}") for n in range(6)]
    step_with(
        world,
        *(need(did, queued_since=NOON - 9 * HOUR + n * MINUTE) for n, did in enumerate(datasets[:4])),
        *(need(did, user=BOB, queued_since=NOON - HOUR + n * MINUTE) for n, did in enumerate(datasets[4:])),
    )
    assert {did for did, _ in world.stages} == {datasets[0], datasets[4], datasets[1]}


def test_a_small_request_overtakes_a_parked_large_one():
    world = StagingWorld(policy(limits=StagingLimits(site_bytes=4 * TERABYTE)), L1=3, L2=2, L3=1)
    world.queue(
        need(L1, queued_since=NOON - 3 * HOUR, sites=[CAM]),
        need(L2, queued_since=NOON - HOUR - MINUTE, sites=[CAM]),
        need(L3, sites=[CAM]),
    )
    limits = replace(world.policy.limits, approval_bytes=10 * TERABYTE)
    world.policy = replace(world.policy, limits=limits)
    world.restart()
    world.step()
    assert world.stages == {(L1, CAM), (L3, CAM)}
    assert world.reasons == ["2 TB would exceed the limit of 4 TB in flight to CAM: 3 TB are taken"]


def flood(world, hours: int) -> list[Did]:
    """Let a job for another 1 TB dataset arrive every 10 min; a transfer takes 2 h; return what was asked."""
    asked: list[Did] = []
    waiting, ends = [need(L1, sites=[CAM])], {}
    for number in range(6 * hours):
        small = Did(f"lofar:S{number}")
        world.add_dataset(small, 1)
        waiting.append(need(small, user=BOB, queued_since=world.clock.now - 11 * MINUTE, sites=[CAM]))
        step_with(world, *waiting, after=10 * MINUTE)
        for did, _ in sorted(world.stages):
            if did not in ends:
                asked.append(did)
                ends[did] = world.clock.now + 2 * HOUR
        if arrived := [did for did, at in ends.items() if at <= world.clock.now]:
            world.arrive(*arrived)
        moving = sum(one.bytes for one in world.ledger.entries.values() if one.is_in_flight)
        assert moving <= world.policy.limits.site_bytes
    return asked


def test_a_stream_of_small_requests_does_not_starve_a_large_one():
    limits = StagingLimits(site_bytes=5 * TERABYTE, approval_bytes=10 * TERABYTE)
    limits = replace(limits, hour_requests=1000, user_bytes=1000 * TERABYTE)
    world = StagingWorld(policy(limits=limits), L1=4, L2=3)
    step_with(world, need(L2, user=BOB, sites=[CAM]))  # 3 of 5 TB are taken when the large request comes
    asked = flood(world, hours=8)
    assert L1 in asked
    assert len(asked) > 15  # the small ones go on


def test_a_request_that_can_never_fit_keeps_no_room():
    limits = StagingLimits(site_bytes=2 * TERABYTE, approval_bytes=10 * TERABYTE)
    world = StagingWorld(policy(limits=limits), L1=3, L2=1)
    step_with(world, need(L1, queued_since=NOON - 9 * HOUR, sites=[CAM]), need(L2, sites=[CAM]))
    assert world.stages == {(L2, CAM)}


def test_what_is_kept_for_an_older_request_is_told():
    limits = StagingLimits(site_bytes=4 * TERABYTE, approval_bytes=10 * TERABYTE)
    world = StagingWorld(policy(limits=limits), L1=3, L2=2, L3=1)
    step_with(
        world,
        need(L1, queued_since=NOON - 9 * HOUR, sites=[CAM]),
        need(L2, queued_since=NOON - 8 * HOUR, sites=[CAM]),
        need(L3, sites=[CAM]),
    )
    assert world.stages == {(L1, CAM)}
    assert world.reasons[1] == (
        "1 TB would exceed the limit of 4 TB in flight to CAM: 3 TB are taken,"
        " and 2 TB are kept for a request that has waited for longer"
    )


def test_a_large_request_waits_for_a_person():
    world = world_with(need(L1, jobs=7), L1=3)
    assert world.stages == set()
    [row] = world.overview.planned
    assert row.needs_approval
    assert row.description == (f"3 TB in 1 dataset at CAM wait for `hydrator staging approve {row.batch}`")
    world.control.commands.append(StagingCommand("approve", row.batch))
    world.step()
    assert world.stages == {(L1, CAM)}
    assert world.ledger.approvals == {}


def test_an_approval_is_for_exactly_these_bytes():
    world = world_with(need(L1), L1=3)
    [row] = world.overview.planned
    world.control.commands.append(StagingCommand("approve", row.batch))
    world.add_dataset(L1, 4)
    world.step()
    assert world.stages == set()
    assert world.overview.planned[0].batch != row.batch


def test_a_rejected_request_is_not_made():
    world = StagingWorld(policy(site_modes={CAM: StagingMode.ASK}), L1=3)
    world.queue(need(L1))
    [row] = world.step().planned
    world.control.commands.append(StagingCommand("reject", row.batch))
    world.step()
    assert world.stages == set()
    assert world.overview.planned == ()
    assert world.reasons == [f"the operator rejected the request {row.batch} of 3 TB"]
    world.control.commands.append(StagingCommand("resume"))
    assert [each.batch for each in world.step().planned] == [row.batch]


def test_propose_shows_the_plan_and_sends_nothing():
    world = world_with(need(L1, jobs=3), rules=policy(StagingMode.PROPOSE), L1=1)
    [row] = world.overview.planned
    assert row.description == "would ask for 1 TB in 1 dataset at CAM; the mode is propose"
    assert (row.dids, row.bytes, row.job_count, row.needs_approval) == ((L1,), TERABYTE, 3, False)
    assert set(world.stager.calls) == {"look", "measure", "find_rules", "read_space"}
    assert world.ledger.entries == {}


@pytest.mark.parametrize(
    "rules",
    [
        policy(StagingMode.OFF),
        policy(site_modes={CAM: StagingMode.OFF}),
        policy(catalogues=frozenset({"other"})),
    ],
)
def test_with_the_mode_off_the_stager_is_never_called(rules):
    world = StagingWorld(rules, L1=1)
    world.queue(need(L1), run(L1))
    for _ in range(3):
        world.step()
    assert world.stager.calls == []


def test_a_site_in_propose_is_shown_while_another_is_asked():
    world = StagingWorld(policy(site_modes={CAM: StagingMode.PROPOSE, RAL: StagingMode.ASK}), L1=1, L2=1)
    step_with(world, need(L1, sites=[CAM]), need(L2, sites=[RAL]))
    assert world.stages == {(L2, RAL)}
    assert [row.site for row in world.overview.planned] == [CAM]


def test_overview_leaves_out_datasets_that_are_never_published():
    world = world_with(need(L1), need(L2), rules=policy(never=(L2,)), L1=1, L2=1)
    assert {row.did for row in world.overview.requests} == {L1}
    assert L2 not in str(world.overview)


def test_before_a_request_the_rules_are_read_again():
    world = world_with(need(L1), rules=policy(limits=StagingLimits(user_bytes=0)), L1=1)
    assert world.stager.calls.count("find_rules") == 1
    world.step()
    assert world.stager.calls.count("find_rules") == 1  # the facts of the last minutes serve
    world.stager.add_rule(L1, CAM, state=RequestState.UNAPPROVED, account="carl")
    world.policy = policy()
    facts = world.controller._facts
    world.restart()
    world.controller._facts = facts
    world.step()
    assert world.stages == set()
    assert world.reasons == ["the data is on its way to CAM by the rule rule1 of carl"]


@pytest.mark.parametrize(("seconds", "days"), [(None, 3), (86_400, 3), (2 * 86_400, 6), (30 * 86_400, 15)])
def test_the_lifetime_is_three_times_the_expected_transfer(seconds, days):
    assert choose_lifetime(seconds, StagingPermissions(), policy()) == timedelta(days=days)


def test_an_account_that_cannot_renew_asks_for_the_longest_lifetime():
    world = StagingWorld(L1=1)
    world.stager.permissions = StagingPermissions(True, False, False)
    step_with(world, need(L1))
    [entry] = world.ledger.entries.values()
    assert entry.lifetime == StagingTimes().max_lifetime
    world = StagingWorld(L1=1)
    world.stager.permissions = StagingPermissions(can_ask=False)
    step_with(world, need(L1))
    assert world.reasons == ["catalogue rucio does not allow this account to request data"]


def test_nothing_is_asked_on_the_facts_of_an_old_cycle():
    world = world_with(need(L1, queued_since=NOON), L1=1)
    world.clock.now += HOUR
    overview = world.controller.run_once(world.report)
    assert world.stages == set()
    assert [one.reason for one in overview.not_asked] == ["the last cycle began 1 h ago"]


def test_nothing_is_asked_while_another_daemon_publishes_on_the_pool():
    world = world_with(need(L1, queued_since=NOON), L1=1)
    report = replace(world.report, rivals={"collector": "the ad of CAM has a generation of another daemon"})
    world.clock.now += timedelta(minutes=4)
    overview = world.controller.run_once(report)
    assert world.stages == set()
    assert overview.not_asked[0].reason.startswith("another daemon publishes on this pool: the ad of CAM")


def test_without_a_cycle_nothing_is_asked():
    world = StagingWorld(L1=1)
    world.queue(need(L1))
    world.clock.now += HOUR
    world.controller.run_once(None)
    assert "ask" not in world.stager.calls
