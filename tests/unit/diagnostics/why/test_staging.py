"""`hydrator why` says what the daemon requested for a job's data, or why it requested nothing."""

from dataclasses import replace
from datetime import timedelta

from hydrator.diagnostics.why.query import ask_job
from hydrator.diagnostics.why.render import render_answer
from hydrator.staging.overview import explain_for_job
from tests.factories import L1, L2, NOON
from tests.staging_world import StagingWorld, need, policy
from tests.unit.diagnostics.test_why import IDLE, FakePool, asked


def explain(world: StagingWorld) -> list[str]:
    """Return what `hydrator why` prints for the idle jobs 7 that need L1."""

    def staging(dids, _):
        return explain_for_job(world.overview, dids, world.clock.now)

    query = replace(asked(FakePool({"a": IDLE})), explain_staging=staging)
    (answer,) = ask_job(query, 7, None, None).answers
    lines = render_answer(answer).lines
    assert set(answer.staging) <= set(lines)
    return list(answer.staging)


def world_with(terabytes: float, *, rules=None, jobs=3) -> StagingWorld:
    world = StagingWorld(rules, L1=terabytes, L2=1)
    world.queue(need(L1, jobs=jobs))
    world.step()
    return world


def test_why_shows_the_request_its_progress_and_its_jobs():
    world = world_with(1)
    (handle,) = world.stager.rules
    world.stager.set(handle, files_done=81)
    world.ready_at = NOON + timedelta(hours=3)
    world.step(timedelta(minutes=5))
    (line,) = explain(world)
    assert line.startswith(f"{L1}: asked ")
    for part in (f"request {handle}", "81 of 100 files", "ready about 15:00 UTC", "3 jobs need it"):
        assert part in line


def test_why_shows_the_limit_that_prevents_a_request():
    (line,) = explain(world_with(6.1))
    assert line.startswith("not asked: 6.1 TB")
    assert "5 TB" in line


def test_why_shows_what_the_mode_propose_would_request():
    (line,) = explain(world_with(1, rules=policy("propose")))
    assert "would ask for 1 TB" in line


def test_why_of_a_stopped_daemon_says_that_it_is_stopped():
    world = world_with(1)
    world.control.stop_reason = "stopped by the operator"
    world.step()
    assert any(line.startswith("stopped by the operator") for line in explain(world))


def test_why_has_no_requests_for_the_data_of_other_jobs():
    world = world_with(1)
    world.queue(need(L2))
    overview = replace(world.overview, requests=tuple(r for r in world.overview.requests if r.did == L2))
    world.overview = overview
    assert explain(world) == []
    (answer,) = ask_job(asked(FakePool({"a": IDLE})), 7, None, None).answers
    assert answer.staging == ()
