"""The archive of the benefit experiment: its command, as the daemon runs it, and the mover of its data."""

import sys
import time
from datetime import timedelta

import pytest

from adapters.command.stager import CommandOptions, CommandStager
from benchmarks.benefit import archive
from benchmarks.benefit.archive import Mover
from hydrator.domain.model import Did, Site
from hydrator.domain.ports.staging import RequestState, StagingKind, StagingOrder
from testbed.patience import wait_for
from tests.factories import NOON

pytestmark = pytest.mark.outside

L1, L2, DE = Did("benefit:d001"), Did("benefit:d002"), Site("DE")
SIZES = {L1: 400, L2: 300}


@pytest.fixture
def moved(tmp_path):
    """The moves so far, the catalogue's states, and the stager with the real command."""
    moves: list[tuple[str, str]] = []
    states: dict[str, tuple[str, str]] = {}
    folder = tmp_path / "archive"
    mover = Mover(folder, SIZES, lambda did, site: moves.append((did, site)), states.update)
    words = (sys.executable, "-I", archive.__file__, str(folder))
    stager = CommandStager("embedded", CommandOptions(words), lambda: NOON)
    return mover, moves, states, stager


def order(did: Did, tag: str) -> StagingOrder:
    return StagingOrder(tag, "batch", StagingKind.STAGE, DE, did, SIZES[did], timedelta(days=3))


def test_requested_data_is_moved_once_and_listed_at_its_site(moved):
    mover, moves, states, stager = moved
    stager.ask([order(L1, "pool/1"), order(L2, "pool/2")])
    stager.ask([order(L1, "pool/1")])
    assert {each.state for each in stager.look(set(), "pool/").values()} == {RequestState.MOVING}
    with mover:
        wait_for(lambda: len(mover.staged) == 2, 30, "both datasets to be moved")
        wait_for(
            lambda: {each.state for each in stager.look(set(), "pool/").values()} == {RequestState.DONE},
            30,
            "both requests to end",
        )
    assert sorted(moves) == [(L1, DE), (L2, DE)]
    assert states == {L1: (DE, "available"), L2: (DE, "available")}


def test_command_knows_the_sizes_of_the_archive_and_leaves_other_rules_out(moved):
    _, _, _, stager = moved
    other = Did("benefit:d003")
    assert {did: each.bytes for did, each in stager.measure({L1, L2, other}).items()} == SIZES
    assert stager.read_space({DE})[DE].free_bytes == archive.ENOUGH_BYTES
    assert not stager.find_rules({L1}, {DE})
    assert stager.probe_permissions().can_ask


def test_mover_lists_data_as_staging_while_it_moves(tmp_path):
    states: list[dict[str, tuple[str, str]]] = []
    mover = Mover(
        tmp_path / "archive", SIZES, lambda _did, _site: time.sleep(0), lambda now: states.append({**now})
    )
    stager = CommandStager(
        "embedded",
        CommandOptions((sys.executable, "-I", archive.__file__, str(tmp_path / "archive"))),
        lambda: NOON,
    )
    stager.ask([order(L1, "pool/1")])
    with mover:
        wait_for(lambda: len(states) == 2, 30, "the end of the move")
    assert states == [{L1: (DE, "staging")}, {L1: (DE, "available")}]
