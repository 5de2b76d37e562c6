"""Overall health: what needs a person, with the command, and what does not."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.diagnostics.credential_expiry import Credential, Renewer
from hydrator.diagnostics.overview.health import HealthStatus
from hydrator.domain.model import Did, Site, Snapshot, to_unix
from hydrator.reconcile.snapshot.removal_guard import HeldLoss, HoldCause
from hydrator.reconcile.view import CatalogueView
from hydrator.server.pages.overview import render_overview
from hydrator.server.view import ServerState
from hydrator.staging.overview import StagingOverview
from tests.factories import CAM, HOUR, L1, MINUTE, NOON, RAL, server_state
from tests.staging_world import StagingWorld, need

QUIET = server_state(snapshot=Snapshot({}))


def commands(state: ServerState) -> list[str]:
    return [each.command for each in state.health.needs]


def test_all_is_well_if_nothing_needs_a_person():
    health = QUIET.health
    assert (health.status, health.summary, health.needs) == (HealthStatus.WELL, "all is well", ())


def test_a_daemon_before_its_first_cycle_needs_nobody():
    health = server_state(not_ready_reason="the first cycle has not ended yet").health
    assert (health.status, health.summary) == (HealthStatus.WAITING, "the first cycle has not ended yet")


def test_two_needs_are_counted_and_the_most_urgent_is_first():
    state = server_state(snapshot=Snapshot({}), omitted_dids={RAL: {L1}}, hang_reason="no progress for 5 min")
    assert state.health.summary == "2 things need you"
    assert state.health.needs[0].text == "the daemon hangs: no progress for 5 min"


def test_a_failing_catalogue_is_named_once_with_the_time_of_its_failure():
    part = CatalogueView(name="rucio", error="timeout", failing_since=to_unix(NOON - 20 * MINUTE))
    state = server_state(snapshot=Snapshot({}), catalogues=(part,), troubles=("catalogue rucio: timeout",))
    assert state.health.summary == "1 thing needs you"
    assert state.health.needs[0].text == "catalogue rucio fails for 20 min: timeout"
    assert state.health.needs[0].command == "hydrator check"


@pytest.mark.parametrize(
    ("facts", "needed"),
    [
        (
            {"held_losses": {Site("CAM X"): HeldLoss(NOON, NOON, {L1: 1}, 3, HoldCause.SITE)}},
            ["hydrator approve 'CAM X'"],
        ),
        ({"withheld_reasons": {CAM: "no answer yet"}}, []),
        ({"omitted_dids": {CAM: {L1}}}, ["hydrator status"]),
        ({"reload_problems": ("daemon.poll_seconds: use a number",)}, ["hydrator check"]),
        ({"troubles": ("the state cannot be written",)}, ["hydrator check"]),
    ],
)
def test_each_need_has_the_command_that_ends_it(facts, needed):
    assert commands(server_state(snapshot=Snapshot({}), **facts)) == needed


def credential(name: str, left: timedelta, **changed: object) -> Credential:
    """Return a credential of 100 hours that ends after *left*."""
    one = Credential(name, "x509", Renewer.OPERATOR, NOON + left, NOON + left - 100 * HOUR)
    return replace(one, **changed)


def test_credentials_that_end_soon_or_ended_need_a_person_and_others_do_not():
    state = replace(
        QUIET,
        credentials=(
            credential("catalogue rucio: client_cert", 9 * HOUR),
            credential("catalogue dmapi: token_file", -HOUR),
            credential("publish.http.tls_certificate", 50 * HOUR),
            credential("catalogue rucio: login", MINUTE, renewed_by=Renewer.DAEMON),
        ),
    )
    needs = state.health.needs
    assert [(each.subject, each.command) for each in needs] == [
        ("credential catalogue dmapi: token_file", "hydrator check"),
        ("credential catalogue rucio: client_cert", "hydrator check"),
    ]
    assert needs[1].text == (
        "catalogue rucio: client_cert ends 2026-11-21 21:00 UTC, in 9 h; renew it:"
        " docs/operators/credentials.md#x509"
    )


def test_page_shows_a_credential_that_ends_soon():
    ending = credential("IDTOKEN of pool.a", HOUR)
    state = server_state(credentials=(ending,))
    (need,) = state.health.needs
    assert (need.subject, need.command) == (f"credential {ending.name}", "hydrator check")
    assert ending.name in render_overview(state)


def test_a_request_that_waits_for_approval_has_the_command():
    world = StagingWorld(None, L2=3)
    world.queue(need(Did("lofar:L2")))
    world.step()
    (planned,) = world.overview.planned
    command = f"hydrator staging approve {planned.first.batch}"
    assert commands(replace(QUIET, staging=world.overview)) == [command]


def test_staging_that_the_operator_stopped_is_a_need_and_that_before_the_first_cycle_is_not():
    stopped = StagingOverview(NOON, "request", "staging is stopped (space)")
    assert commands(replace(QUIET, staging=stopped)) == ["hydrator staging resume"]
    assert (
        commands(replace(QUIET, staging=stopped, not_ready_reason="the first cycle has not ended yet")) == []
    )
