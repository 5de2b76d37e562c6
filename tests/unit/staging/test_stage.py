"""Stage requests: which data is asked for, where, in which order, and why not."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.domain.model import DatasetState, Did, Site, Unseen
from hydrator.domain.staging_ports import RefusalKind, RequestState, StagingFailed
from hydrator.staging.table import StagingCommand
from tests.factories import CAM, HOUR, L1, L2, L3, MINUTE, NOON, OSO, RAL
from tests.memory_stager import Fault
from tests.staging_world import BOB, SITES, TERABYTE, StagingWorld, need, policy, run, world_with

DAY = timedelta(days=1)


def test_data_that_no_site_has_is_asked_for_at_one_site():
    world = world_with(need(L1, L2), L1=0.5, L2=1)
    assert world.stages == {(L1, CAM), (L2, CAM)}
    assert {rule.expires_at for rule in world.stager.own_rules()} == {world.clock.now + 15 * DAY}
    [row, _] = world.overview.requests
    assert row.description == "asked 12:01 UTC at CAM, request rule1, 1 job needs it"


def test_a_job_must_wait_before_its_data_is_asked_for():
    world = world_with(need(L1, queued_since=NOON), L1=1)
    assert world.stages == set()
    assert world.reasons == ["the jobs have waited for 1 min; asked in 9 min"]
    world.step(9 * MINUTE)
    assert world.stages == {(L1, CAM)}


@pytest.mark.parametrize(
    ("missing", "reasons"),
    [(False, []), (None, ["it is unknown whether the jobs wait for anything but data"])],
)
def test_only_jobs_that_wait_for_nothing_but_data_count(missing, reasons):
    world = world_with(need(L1, is_data_missing=missing), L1=1)
    assert world.stages == set()
    assert world.reasons == reasons


@pytest.mark.parametrize("state", [DatasetState.AVAILABLE, DatasetState.STAGING])
@pytest.mark.parametrize(
    ("is_bound", "listed", "sites", "reason"),
    [
        (True, [CAM], SITES, "the data is {} RAL"),
        (False, [CAM], [CAM], "the data is {} RAL"),
        (
            True,
            [CAM, RAL],
            [CAM],
            "the data is {} RAL, which does not match the rest of the jobs' requirements",
        ),
    ],
)
def test_data_where_jobs_may_read_or_will_start_is_not_asked_for(state, is_bound, listed, sites, reason):
    """Jobs in the mode auto read it from there, and a site that may get data has slots at times."""
    world = StagingWorld(policy(sites=listed), L1=1)
    world.put(L1, RAL, state)
    world.step_with(need(L1, sites=sites, is_bound=is_bound))
    assert world.stages == set()
    word = "complete at" if state is DatasetState.AVAILABLE else "on its way to"
    assert world.reasons == [reason.format(word)]
    assert world.overview.not_asked[0].is_waiting is ("which" not in reason)


def test_data_at_a_site_where_no_job_can_start_is_asked_for_where_they_can():
    """Its storage has no slots, and jobs in the mode require never read from elsewhere."""
    world = StagingWorld(policy(sites=[CAM]), L1=1, L2=1)
    world.put(L1, RAL)
    world.put(L2, RAL, DatasetState.STAGING)
    world.step_with(need(L1, sites=[CAM], is_bound=True), need(L2, sites=[CAM], is_bound=True))
    assert world.stages == {(L1, CAM)}
    text = "lofar:L2 is on its way to RAL, which does not match the rest of the jobs' requirements"
    assert world.reasons == [text]
    world.arrive()
    world.step_with(need(L1, sites=[CAM], is_bound=True))
    assert world.reasons == ["the data is complete at CAM"]  # the copy at RAL is of no use


@pytest.mark.parametrize(
    "break_it",
    [
        lambda world: setattr(world.catalogue, "is_broken", True),
        lambda world: setattr(world.catalogue, "unseen_reasons", {L1: "timeout"}),
        lambda world: setattr(world.catalogue, "unreachable_sites", frozenset({RAL})),
        lambda world: setattr(world.stager, "is_broken", True),
    ],
    ids=["catalogue", "dataset", "site", "stager"],
)
def test_nothing_is_asked_on_what_was_not_seen(break_it):
    world = StagingWorld(L1=1)
    world.queue(need(L1))
    break_it(world)
    world.step()
    world.step()
    assert "request" not in world.stager.calls
    assert world.overview.not_asked or world.overview.problems


def test_nothing_is_asked_while_any_schedd_is_silent():
    """Its jobs may need the data at another site."""
    world = StagingWorld(L1=1)
    world.queue(need(L1))
    world.needs["ap2"] = Unseen("timeout")
    world.step()
    world.step()
    assert (world.stages, world.reasons) == (set(), ["schedd ap2 did not answer: timeout"])
    del world.needs["ap2"]
    world.step(DAY)
    assert world.stages == {(L1, CAM)}


def test_a_site_that_is_not_listed_is_not_chosen():
    world = StagingWorld(policy(sites=[RAL]), L1=1, L2=1)
    world.step_with(need(L1), need(L2, sites=[CAM]))
    assert world.stages == {(L1, RAL)}
    assert world.reasons == ["RAL does not match the rest of the jobs' requirements"]


def test_a_small_dataset_is_copied_to_the_large_one():
    world = StagingWorld(L1=0.00001, L2=0.5, L3=0.001)
    world.put(L2, RAL)
    world.put(L1, CAM)
    world.put(L3, OSO, DatasetState.PARTIAL, 0.9)
    world.step_with(need(L1, L2, L3))
    assert world.stages == {(L1, RAL), (L3, RAL)}


def test_of_equal_sites_the_one_with_the_fastest_transfer_is_chosen_then_the_free_space():
    world = StagingWorld(L1=1)
    world.put(L1, Site("ARCHIVE"), DatasetState.NEARLINE)
    world.restart(find_rate=lambda _, destination: 1e9 if destination == OSO else 1e8)
    world.step_with(need(L1))
    assert world.stages == {(L1, OSO)}
    other = StagingWorld(L1=1)
    other.stager.spaces[RAL] = 150 * TERABYTE
    other.step_with(need(L1))
    assert other.stages == {(L1, RAL)}


def test_a_recall_from_the_tape_of_the_same_site_comes_first():
    world = StagingWorld(L1=1.5, L2=0.5)
    for site in (OSO, RAL):
        world.put(L1, site, DatasetState.NEARLINE)
    world.put(L2, CAM)
    world.step_with(need(L1, L2, sites=[CAM, RAL]))
    assert world.stages == {(L1, RAL), (L2, RAL)}
    assert {one.did: one.source for one in world.table.requests} == {L1: RAL, L2: None}


def test_the_rule_of_another_account_is_joined():
    world = StagingWorld(L1=1, L2=1)
    world.stager.add_rule(L1, RAL, "carl", state=RequestState.QUEUED)
    world.step_with(need(L1, L2, sites=[RAL]))
    assert world.stages == {(L2, RAL)}
    assert world.overview.joined == {"lofar:L1 at RAL": "the rule rule1 of carl"}


def test_data_whose_rule_is_done_and_that_no_cycle_has_seen_yet_is_not_asked_for_elsewhere():
    world = world_with(need(L1), L1=1)
    world.stager.set("rule1", state=RequestState.DONE)
    world.stager.spaces[CAM] = 50 * TERABYTE  # a new request would go to OSO
    world.step()  # the replicas are not in the catalogue's answer yet, or never will be
    assert world.stages == {(L1, CAM)}
    rest = "which is complete, but its replicas were not seen there yet"
    assert world.reasons == [f"the data is on its way to CAM by our request rule1, {rest}"]


@pytest.mark.parametrize(
    "more", [{}, {"state": RequestState.STUCK, "is_whole": True, "stuck_since": NOON - 30 * DAY}]
)
def test_a_rule_that_claims_completeness_without_replicas_stops_the_request(more):
    world = StagingWorld(policy(sites=[CAM]), L1=1)
    world.stager.add_rule(L1, CAM, **more)
    world.step_with(need(L1))
    assert world.stages == set()
    rest = "which is complete, but its replicas were not seen there yet"
    assert world.reasons == [f"the data is on its way to CAM by the rule rule1 of someone, {rest}"]


def test_a_dataset_of_two_candidates_is_asked_for_once_and_all_come_to_one_site():
    world = StagingWorld(L1=0.5, L2=1, L3=0.2)
    world.put(L3, OSO)
    world.step_with(need(L1, queued_since=NOON - 2 * HOUR), need(L1, L2), need(L1, L3))
    assert world.stages == {(L1, CAM), (L2, CAM), (L3, CAM)}
    assert world.stager.calls.count("request") == 3
    assert {row.name: row.used for row in world.overview.limits} == {
        "total_tb": 1.7 * TERABYTE, "hour_requests": 3, "site_tb": 1.7 * TERABYTE
    }  # fmt: skip


EXCEEDED = "2 TB at CAM would exceed the limit of 1 TB"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"request_tb": 1}, f"{EXCEEDED} for one request"),
        ({"site_tb": 1}, f"{EXCEEDED} on the way to CAM"),
        ({"total_tb": 1}, f"{EXCEEDED} of all requests and pins"),
        ({"hour_requests": 0}, "0 requests were made in the last hour, the limit"),
        (
            {"floor_tb": 99},
            "2 TB would leave less than 99 TB free at CAM: 100 TB are free, 0 B are on their way",
        ),
    ],
)
def test_a_request_above_a_limit_is_not_made_and_says_why(limits, reason):
    world = world_with(need(L1), rules=policy(limits=limits), L1=2)
    assert world.stages == set()
    assert world.reasons == [reason]


def test_bytes_count_on_the_way_until_they_arrived_and_in_all_until_rucio_lists_them_no_more():
    world = StagingWorld(policy(limits={"site_tb": 3, "total_tb": 5}), L1=2, L2=2, L3=2)
    at_cam = [need(did, sites=[CAM]) for did in (L1, L2, L3)]
    world.step_with(*at_cam)
    world.step()
    assert world.stages == {(L1, CAM)}
    world.arrive()
    world.step()
    assert world.stages == {(L1, CAM), (L2, CAM)}
    world.arrive()
    for _ in range(70):
        world.step_with(*at_cam[2:])
    assert (L3, CAM) not in world.stages
    world.step_with(*at_cam[2:], after=5 * DAY)  # the two had four days after their last job
    world.step_with(*at_cam[2:])
    assert (L3, CAM) in world.stages


def test_the_space_that_the_operator_gives_shrinks_by_what_has_arrived():
    rules = policy(sites={CAM: {"space_tb": 6}})
    world = StagingWorld(rules, L1=2, L2=1.5)
    world.stager.spaces.clear()
    world.step_with(need(L1))
    world.arrive()
    world.step_with(need(L2))
    assert world.stages == {(L1, CAM)}
    assert world.reasons == [
        "1.5 TB would leave less than 3 TB free at CAM: 4 TB are free, 0 B are on their way"
    ]


def test_users_take_turns():
    world = StagingWorld(policy(limits={"hour_requests": 3}), **{f"D{n}": 1 for n in range(6)})
    datasets = [Did(f"lofar:D{n}") for n in range(6)]
    world.step_with(
        *(need(did, queued_since=NOON - 9 * HOUR + n * MINUTE) for n, did in enumerate(datasets[:4])),
        *(need(did, user=BOB, queued_since=NOON - HOUR + n * MINUTE) for n, did in enumerate(datasets[4:])),
    )
    assert {did for did, _ in world.stages} == {datasets[0], datasets[4], datasets[1]}


def test_a_stream_of_small_requests_does_not_starve_a_large_one():
    limits = {"site_tb": 5, "approval_tb": 10, "hour_requests": 1000}
    world = StagingWorld(policy(limits=limits), L1=4, L2=3, **{f"S{n}": 1 for n in range(48)})
    small = [need(f"S{n}", user=BOB, sites=[CAM]) for n in range(48)]
    world.step_with(need(L2, user=BOB, sites=[CAM]))  # 3 of 5 TB are taken when the large request comes
    for n in range(20):
        world.step_with(need(L1, queued_since=NOON - 2 * HOUR, sites=[CAM]), *small[: n + 1])
        if n % 4 == 3:
            world.arrive()
    assert (L1, CAM) in world.stages
    assert len(world.stages) > 10  # the small ones go on


def test_a_request_that_can_never_fit_keeps_no_room():
    world = StagingWorld(policy(limits={"site_tb": 2, "approval_tb": 10}), L1=3, L2=1)
    world.step_with(need(L1, queued_since=NOON - 9 * HOUR, sites=[CAM]), need(L2, sites=[CAM]))
    assert world.stages == {(L2, CAM)}


def test_a_large_request_waits_for_a_person_and_its_approval_lasts_until_success():
    world = world_with(need(L1, jobs=7), L1=3)
    assert world.stages == set()
    [row] = world.overview.planned
    assert (
        row.description == f"3 TB in 1 dataset at CAM wait for `hydrator staging approve {row.first.batch}`"
    )
    world.answer("approve", row)
    world.stager.refusals[L1] = ("other", "the database is locked")
    world.step()
    assert world.stages == set()
    world.stager.refusals.clear()
    world.step(61 * MINUTE)
    assert world.stages == {(L1, CAM)}
    assert world.table.decisions == {}


@pytest.mark.parametrize("failing", [L1, L2])
@pytest.mark.parametrize("error", ["refused", "no answer"])
def test_an_approval_of_several_datasets_lasts_until_each_has_its_rule(failing, error):
    """The rest is above the limit, too; after a silence it includes the datasets that were not asked for."""
    world = world_with(need(L1, L2, L3, sites=[CAM]), L1=2.1, L2=2.1, L3=0.5)
    world.answer("approve", world.overview.planned[0])
    if error == "refused":
        world.stager.refusals[failing] = (RefusalKind.OTHER, "the database is locked")
    else:
        world.stager.faults["request"] = [Fault(StagingFailed("rucio", "timeout"))]
    world.step()
    assert len(world.stages) == (2 if error == "refused" else 0)
    world.stager.refusals.clear()
    world.step(61 * MINUTE)
    world.step()
    assert (world.stages, world.overview.planned) == ({(L1, CAM), (L2, CAM), (L3, CAM)}, ())
    assert world.table.decisions == {}


@pytest.mark.parametrize(("size", "jobs"), [(4, need(L1)), (3, need(L1, L2))])
def test_an_approval_is_for_exactly_these_bytes(size, jobs):
    world = world_with(need(L1), L1=3, L2=1)
    [row] = world.overview.planned
    world.answer("approve", row)
    world.add_dataset(L1, size)
    world.step_with(jobs)
    assert world.stages == set()
    assert world.overview.planned[0].first.batch != row.first.batch


def test_a_rejected_request_is_not_made_before_the_operator_resumes():
    world = StagingWorld(policy(sites=[CAM]), L1=3)
    [row] = world.step_with(need(L1)).planned
    world.answer("reject", row)
    world.step()
    assert world.overview.planned == ()
    assert world.reasons == [f"the operator rejected the request {row.first.batch} of 3 TB at CAM"]
    world.control.commands.append(StagingCommand("resume"))
    assert [each.first.batch for each in world.step().planned] == [row.first.batch]


def test_propose_shows_the_plan_and_sends_nothing():
    world = StagingWorld(policy("propose"), L1=1, L2=1)
    world.hold(L2, RAL, expires_at=NOON + HOUR)
    world.step_with(need(L1, jobs=3), run(L2, site=RAL))
    pin, row = world.overview.planned
    assert pin.description == "would pin 1 TB in 1 dataset at RAL; the mode is propose"
    assert row.description == "would ask for 1 TB in 1 dataset at CAM; the mode is propose"
    assert (row.bytes, row.first.job_count, row.mode) == (TERABYTE, 3, "propose")
    assert set(world.stager.calls) == {"list"}
    assert world.table.requests == ()


@pytest.mark.parametrize(
    "rules", [policy("off"), policy(sites={CAM: {"mode": "off"}}), policy(catalogues={"other": {}})]
)
def test_with_the_mode_off_the_stager_is_never_called(rules):
    datasets = [Did(f"lofar:D{n}") for n in range(6)]
    world = StagingWorld(rules, **{f"D{n}": 1 for n in range(6)})
    for n in range(50):
        world.queue(need(datasets[n % 6]), run(datasets[(n + 1) % 6]))
        world.stager.add_rule(datasets[n % 6], (CAM, OSO, RAL)[n % 3], expires_at=NOON + n * HOUR)
        world.step(7 * n * MINUTE)
    assert world.stager.calls == []


def test_a_site_in_propose_is_shown_while_another_is_asked():
    world = StagingWorld(policy(sites={CAM: {"mode": "propose"}, RAL: {}}), L1=1, L2=1)
    world.step_with(need(L1, sites=[CAM]), need(L2, sites=[RAL]))
    assert world.stages == {(L2, RAL)}
    assert [row.first.site for row in world.overview.planned] == [CAM]


@pytest.mark.parametrize("mode", ["request", "off"])
def test_overview_leaves_out_datasets_that_are_never_published(mode):
    world = StagingWorld(L1=1, L2=1)
    world.step_with(need(L1), need(L2))
    world.settings = policy(mode)
    world.restart(never=(L2,))
    world.step()
    assert {row.did for row in world.overview.requests} == {L1}
    assert L2 not in str(world.overview)


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (None, ["no cycle has ended yet"]),
        ({}, ["the last cycle began 1 h ago"]),
        (
            {"started_at": NOON + HOUR},
            ["lofar:L1 was not seen in this cycle: catalogue rucio: its answer is too old"],
        ),
        (
            {"rivals": {"a": "of another daemon"}},
            ["another daemon publishes on this pool: of another daemon"],
        ),
    ],
)
def test_nothing_is_asked_without_a_cycle_on_an_old_one_or_beside_another_daemon(change, reasons):
    world = world_with(need(L1, queued_since=NOON), L1=1)
    world.clock.now += MINUTE if change and "rivals" in change else HOUR
    overview = world.controller.run_once(None if change is None else replace(world.report, **change))
    assert world.stages == set()
    assert [one.reason for one in overview.not_asked] == reasons


def test_nothing_is_asked_for_a_dataset_of_which_the_last_cycle_did_not_know():
    world = world_with(L1=1)
    world.queue(need(L1, queued_since=NOON - HOUR))
    overview = world.controller.run_once(world.report)
    assert world.stages == set()
    [reason] = [one.reason for one in overview.not_asked]
    assert "lofar:L1 was not seen in this cycle" in reason


def test_data_on_its_way_to_a_site_that_was_removed_is_not_asked_for_elsewhere():
    world = world_with(need(L1), L1=1)
    world.is_stale = True  # no cycle has seen that it moves
    world.settings = policy(sites=[RAL])
    world.restart()
    world.step()
    assert world.stages == {(L1, CAM)}
    assert world.reasons == ["lofar:L1 is on its way to CAM, where no data may be requested"]
