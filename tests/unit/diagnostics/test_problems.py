"""Problems that the daemon itself knows, as `check`, `status` and the page show them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.cli.output.tables import print_status
from hydrator.diagnostics.check.findings import Finding, Level
from hydrator.diagnostics.credential_expiry import Credential
from hydrator.diagnostics.overview.saved import Reload, Status
from hydrator.diagnostics.problems import (
    LAST_CYCLE,
    describe_dataset,
    examine_credential,
    find_problems,
    hung_after_seconds,
    silence_reason,
)
from hydrator.domain.model import DatasetState, Did, Site, Snapshot, to_unix
from hydrator.reconcile.snapshot.removal_guard import HeldLoss, HoldCause
from hydrator.reconcile.view import CatalogueView, DatasetView, FactView, PublisherView
from hydrator.server.pages.overview import render_overview
from hydrator.server.view import ServerState
from hydrator.staging.overview import StagingOverview
from tests.factories import CAM, HOUR, L1, L2, NOON, RAL, server_state
from tests.staging_world import StagingWorld, need

QUIET = server_state(snapshot=Snapshot({}))
SOON = NOON + timedelta(seconds=12)
REFUSED = PublisherView(name="cm", error="no token", rejected={})
SILENT = CatalogueView(name="rucio", error="timeout", failing_since=to_unix(SOON) - 1200)


def problems(state: ServerState, **more: object) -> list[Finding]:
    status = Status(state.cycle, state.staging, tuple(state.credentials), state.reload, None)
    return list(find_problems(replace(status, **more), SOON))


def commands(state: ServerState) -> list[str]:
    return [each.command for each in state.problems]


def with_demand(**odd: object) -> ServerState:
    return replace(QUIET, cycle=replace(QUIET.cycle, demand=replace(QUIET.cycle.demand, **odd)))


def test_a_daemon_that_is_well_or_before_its_first_cycle_has_no_problem():
    assert problems(QUIET) == []
    assert problems(replace(QUIET, cycle=None)) == []


@pytest.mark.parametrize(
    ("kind", "part", "seen"),
    [
        (
            "catalogues",
            CatalogueView(name="list", error="/srv/l: denied"),
            "catalogue list fails: /srv/l: denied",
        ),
        ("publishers", REFUSED, "publisher cm fails: no token"),
        ("catalogues", SILENT, "catalogue rucio fails for 20 min: timeout"),
    ],
)
def test_failure_of_a_part_is_a_failure_of_the_last_cycle(kind, part, seen):
    (found,) = problems(server_state(snapshot=Snapshot({}), **{kind: (part,)}))
    assert (found.level, found.subject, found.message) == (Level.FAIL, LAST_CYCLE, seen)
    assert found.failed_part in seen
    assert found.command == "hydrator check"


MANY = range(500)
WRONG_KEY = {"wrong_keys": {"c12.269@ap1": 3}}
WRONG_KEYS = {"wrong_keys": {f"sx{n}": 1 for n in range(10_000)} | {"sy": 5}}


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (
            {"misspelt": {f"x:l{n}": [f"X:L{n}"] for n in MANY}},
            "letter case: x:l0 (there X:L0), x:l1 (there X:L1),",
        ),
        ({"clashes": [[f"X:L{n}", f"x:l{n}"] for n in MANY]}, "only in letter case: X:L0, x:l0; X:L1, x:l1;"),
        (
            WRONG_KEY,
            "for the datasets of 3 jobs, because the DataLocalityKey does not stand for this list alone",
        ),
        (WRONG_KEY, "start where their data is not: c12.269@ap1 (3 jobs)"),
        (WRONG_KEYS, ": sy (5 jobs), sx0 (1 job), sx1 (1 job), and 9998 more"),
    ],
)
def test_names_and_keys_that_are_not_published_are_warnings(odd, words):
    (found,) = problems(with_demand(**odd))
    assert found.level is Level.WARN
    assert words in found.message


def test_publisher_without_its_ads_is_a_warning_with_the_sites():
    lacking = PublisherView(name="collector cm2:9618", not_read_back=(CAM, RAL), rejected={})
    (found,) = problems(server_state(snapshot=Snapshot({}), publishers=(lacking,)))
    assert found.level is Level.WARN
    assert "publisher collector cm2:9618 accepted these ads and does not show them: CAM, RAL" in found.message


LOCKED = "process 7 holds the lock of the state but completes no cycle"


@pytest.mark.parametrize(
    ("last", "owner", "begin"),
    [
        (12, "7", None),
        (None, "7", None),
        (12, None, "no daemon runs here; the last cycle was 12 s ago"),
        (None, None, "no daemon runs here; no cycle has ended yet"),
        (121, "7", f"{LOCKED}; the last cycle was 2 min 1 s ago"),
    ],
)
def test_hung_daemon_is_reported_after_two_polls_and_a_stopped_one_at_once(last, owner, begin):
    began = None if last is None else to_unix(NOON) - last
    reason = silence_reason(began, owner, NOON, hung_after_seconds(30))
    assert reason == begin
    assert [one.message for one in problems(QUIET, daemon_problem=reason)] == ([begin] if begin else [])


LOSS = HeldLoss(NOON, NOON, {L1: 1}, 3, HoldCause.SITE)


@pytest.mark.parametrize(
    ("facts", "needed"),
    [
        ({"held_losses": {Site("CAM X"): LOSS}}, ["hydrator approve 'CAM X'"]),
        ({"withheld_reasons": {CAM: "no answer yet"}}, []),
        ({"omitted_dids": {CAM: {L1}}}, ["hydrator status"]),
        ({"reload": Reload(to_unix(NOON), ("daemon.poll_seconds: use a number",))}, ["hydrator check"]),
    ],
)
def test_each_problem_has_the_command_that_ends_it(facts, needed):
    assert commands(server_state(snapshot=Snapshot({}), **facts)) == needed


def test_a_state_that_cannot_be_saved_is_a_failure():
    (found,) = problems(replace(QUIET, cycle=replace(QUIET.cycle, save_error="the disk is full")))
    assert (found.level, found.message, found.command) == (Level.FAIL, "the disk is full", "hydrator check")


def credential(name: str, left: timedelta) -> Credential:
    """Return a credential of 100 hours that ends after *left*."""
    return Credential(name, "x509", NOON + left, NOON + left - 100 * HOUR)


def test_credentials_that_end_soon_or_ended_are_problems_and_others_are_not(capsys):
    state = replace(
        QUIET,
        credentials=(
            credential("catalogue rucio: client_cert", 9 * HOUR),
            credential("catalogue dmapi: token_file", -HOUR),
            credential("publish.http.tls_certificate", 50 * HOUR),
        ),
    )
    assert [(one.level, one.subject) for one in state.problems] == [
        (Level.FAIL, "catalogue dmapi: token_file"),
        (Level.WARN, "catalogue rucio: client_cert"),
    ]
    ended, ending = state.problems
    assert ended.message == "catalogue dmapi: token_file ended 2026-11-21 11:00 UTC, 1 h ago"
    assert examine_credential(state.credentials[2], NOON).level is Level.OK
    assert ending.message == "catalogue rucio: client_cert ends 2026-11-21 21:00 UTC, in 9 h"
    assert ending.todo == "renew it: docs/operators/credentials.md#x509"
    print_status(Status(state.cycle, None, state.credentials, None, None), NOON)
    printed = " ".join(capsys.readouterr().out.split())
    assert [printed.count(one.name) for one in state.credentials] == [1, 1, 1]


def test_page_shows_the_problems_and_counts_them():
    ending = credential("IDTOKEN of pool.a", HOUR)
    state = server_state(snapshot=Snapshot({}), omitted_dids={RAL: {L1}}, hang_reason="no progress for 5 min")
    page = render_overview(replace(state, credentials=(ending,)))
    assert "<h1>3 things need you</h1>" in page
    shown = ("the daemon hangs: no progress for 5 min", ending.name, "the ad of RAL has no room")
    assert sorted(shown, key=page.index) == list(shown)
    assert ending.todo in page


@pytest.mark.parametrize(
    ("state", "kind", "summary"),
    [
        (QUIET, "well", "All is well"),
        (server_state(not_ready_reason="the first cycle has not ended yet"), "waiting", "The first cycle"),
    ],
)
def test_page_of_a_daemon_without_problems_says_so(state, kind, summary):
    assert f'class="{kind}"><h1>{summary}' in render_overview(state)


def test_a_request_that_waits_for_approval_has_the_command():
    world = StagingWorld(None, L2=3)
    world.queue(need(Did("lofar:L2")))
    world.step()
    (planned,) = world.overview.planned
    command = f"hydrator staging approve {planned.first.batch}"
    assert commands(replace(QUIET, staging=world.overview)) == [command]


def test_staging_that_the_operator_stopped_is_a_problem_and_that_before_the_first_cycle_is_not():
    stopped = StagingOverview(NOON, "request", "staging is stopped (space)")
    assert commands(replace(QUIET, staging=stopped)) == ["hydrator staging resume"]
    early = replace(QUIET, staging=stopped, not_ready_reason="the first cycle has not ended yet")
    assert commands(early) == []


DATASET = DatasetView(
    did=L1,
    demanded=True,
    jobs=1,
    kept_until=None,
    bytes=None,
    unseen=None,
    clashes_with=(),
    misspelt=False,
    private=False,
    left_out_at=(),
    similar_names=(),
    sites=(FactView(CAM, DatasetState.AVAILABLE, None, 1, {}),),
)


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({}, ""),
        ({"kept_until": to_unix(NOON + HOUR), "jobs": 0}, "no job names it any more; kept until"),
        ({"misspelt": True, "clashes_with": (L2,)}, f"names with other letter case exist: {L2}"),
        ({"clashes_with": (L2,)}, f"another dataset differs only in letter case: {L2}"),
        ({"unseen": "timeout", "sites": ()}, "no catalogue answered: timeout"),
        ({"demanded": False, "sites": ()}, "the daemon does not poll it"),
        ({"sites": (), "similar_names": (L2,)}, f"check the spelling; {L2} exists"),
        ({"left_out_at": (CAM, RAL)}, "no space in the ad of CAM, RAL"),
    ],
)
def test_a_dataset_has_one_sentence_on_what_is_odd_in_the_command_and_on_its_page(odd, words):
    row = replace(DATASET, **odd)
    assert words in describe_dataset(row, NOON)
    assert bool(describe_dataset(row, NOON)) == bool(odd)
