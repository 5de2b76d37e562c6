"""The requests of data on the overview page."""

from dataclasses import replace

from hydrator.domain.model import Did, Snapshot
from hydrator.server.pages.overview import MAX_ARRIVALS, MAX_REQUESTS, render_overview
from tests.factories import CAM, L1, L2, L3, demand, server_state
from tests.staging_world import ANN, StagingWorld, need, policy
from tests.unit.server.pages.test_overview import HOSTILE, Parsed


def render(world: StagingWorld) -> str:
    state = server_state({}, Snapshot({}), demand(), None, world.clock.now, staging=world.overview)
    return render_overview(state)


def world_with(*, rules=None, **sizes: float) -> StagingWorld:
    world = StagingWorld(rules, **sizes)
    world.queue(*(need(Did(f"lofar:{name}")) for name in sizes))
    world.step()
    return world


def test_request_has_a_progress_bar_with_a_name_and_its_files():
    world = world_with(L1=1)
    (handle,) = world.stager.rules
    world.stager.set(handle, files_done=40)
    world.step()
    page = Parsed(render(world))
    bars = [each for each in page.attributes if each["tag"] == "progress"]
    labels = {each["aria-label"] for each in bars}
    assert labels == {f"{L1} at {CAM}", f"{L1} to {CAM}, data on its way"}
    assert {(each["value"], each["max"]) for each in bars} == {("40", "100")}
    row = next(row for row in page.rows if row[0] == L1)
    assert row[1:5] == [CAM, "stage", "1 TB", "40 of 100 files"]
    assert row[6] == "1"


def test_expected_end_is_shown_if_it_is_known():
    world = world_with(L1=1)
    (request,) = world.overview.requests
    assert [row[5] for row in Parsed(render(world)).rows if row[0] == L1] == ["not known"]
    world.overview = replace(world.overview, requests=(replace(request, ready_at=world.clock.now),))
    assert [row[5][-3:] for row in Parsed(render(world)).rows if row[0] == L1] == ["UTC"]


def test_proposal_has_its_bytes_and_its_reason():
    world = world_with(rules=policy("propose"), L1=1)
    (planned,) = world.overview.planned
    row = Parsed(render(world)).starting(planned.first.batch)
    assert row[1:4] == [L1, CAM, "1 TB"]
    assert "the mode is propose" in row[5]


def test_stuck_requests_come_first():
    world = world_with(L1=1, L2=1, L3=1)
    rows = {row.did: row for row in world.overview.requests}
    assert set(rows) == {L1, L2, L3}
    stuck = replace(rows[L3], is_stuck=True)
    world.overview = replace(world.overview, requests=(rows[L1], rows[L2], stuck))
    names = [row[0] for row in Parsed(render(world)).rows if row and row[0] in rows]
    assert names == [L3, L1, L2]


def test_stop_and_problems_are_shown():
    world = world_with(L1=1)
    world.overview = replace(world.overview, stop_reason="stopped by ops", problems={"rucio": HOSTILE})
    text = render(world)
    assert "Nothing is requested or renewed: stopped by ops." in text
    assert "<strong>rucio</strong>" in text
    assert HOSTILE not in text


def test_page_without_staging_has_no_section():
    world = world_with(rules=policy("off"), L1=1)
    assert "Requests of data" not in render(world)
    world.overview = None
    assert "Requests of data" not in render(world)


def test_page_names_no_user():
    world = world_with(L1=1, L2=3)
    text = render(world)
    assert L1 in text
    assert ANN not in text


def test_long_lists_are_cut_and_say_so():
    world = world_with(L1=1)
    world.step()
    (request,) = world.overview.requests
    rows = tuple(replace(request, did=Did(f"lofar:X{n}")) for n in range(MAX_REQUESTS + 7))
    world.overview = replace(world.overview, requests=rows)
    text = render(world)
    assert text.count("<progress") == MAX_REQUESTS + MAX_ARRIVALS
    assert "7 more: <code>hydrator staging list</code>" in text
