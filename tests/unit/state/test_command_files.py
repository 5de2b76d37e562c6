"""Orders to a running daemon: given by one process, followed by another, once."""

import sys

import pytest

from hydrator.domain.errors import StateError
from hydrator.domain.model import Site
from hydrator.reconcile.state import Approve
from hydrator.state.command_files import CommandQueue
from testbed.processes import run_program
from tests.factories import CAM, L1, L2, RAL


@pytest.fixture
def orders(tmp_path) -> CommandQueue:
    made = CommandQueue(tmp_path)
    made.prepare()
    return made


def told(orders: CommandQueue) -> list:
    return [order for _, order in orders.read_pending().commands]


def test_orders_come_back_as_they_were_given_one_after_the_other(orders):
    given = [Approve(CAM, frozenset({L1, L2})), Approve(RAL, frozenset())]
    for order in given:
        orders.submit(order)
    assert told(orders) == told(orders) == given


def test_what_was_followed_is_gone_and_what_came_meanwhile_is_not(orders):
    orders.submit(Approve(CAM, frozenset({L1})))
    seen = orders.read_pending()
    orders.submit(Approve(RAL, frozenset({L1})))
    orders.remove_processed(seen)
    orders.remove_processed(seen)
    assert told(orders) == [Approve(RAL, frozenset({L1}))]


def test_a_site_may_have_any_name(orders):
    odd = Site("a/b ../ü'\"")
    orders.submit(Approve(odd, frozenset()))
    assert told(orders) == [Approve(odd, frozenset())]


BAD = [
    b"",
    b"\xff",
    b"[]",
    b"7",
    b'{"site": "CAM"}',
    b'{"site": 7, "datasets": []}',
    b'{"site": "CAM", "datasets": 7}',
    b'{"site": "CAM", "datasets": ["no did"]}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_order_is_told_set_aside_and_hinders_no_other(orders, tmp_path, text):
    (tmp_path / "orders" / "000000-bad.json").write_bytes(text)
    orders.submit(Approve(CAM, frozenset({L1})))
    waiting = orders.read_pending()
    assert told(orders) == [Approve(CAM, frozenset({L1}))]
    (problem,) = waiting.problems
    assert "000000-bad.json: is not a command" in problem
    orders.remove_processed(waiting)
    assert orders.read_pending().problems == []
    assert [path.name for path in (tmp_path / "orders").iterdir()] == ["000000-bad.refused"]


def test_a_link_is_not_followed(orders, tmp_path):
    (tmp_path / "elsewhere").write_text('{"site": "CAM", "datasets": []}')
    (tmp_path / "orders" / "1.json").symlink_to(tmp_path / "elsewhere")
    assert told(orders) == []


def test_where_no_daemon_has_run_there_is_nothing_to_follow_and_nobody_to_tell(tmp_path):
    assert told(CommandQueue(tmp_path)) == []
    with pytest.raises(StateError, match="no daemon has created it yet"):
        CommandQueue(tmp_path).submit(Approve(CAM, frozenset()))
    assert list(tmp_path.iterdir()) == []


LOOK = """
import os, sys
from pathlib import Path
from hydrator.state.command_files import CommandQueue
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
waiting = CommandQueue(Path(sys.argv[1])).read_pending()
print(len(waiting.commands), waiting.problem)
"""


@pytest.mark.outside
def test_orders_that_could_not_be_taken_away_are_not_followed(open_folder):
    orders = CommandQueue(open_folder)
    orders.prepare()
    orders.submit(Approve(CAM, frozenset()))
    (open_folder / "orders").chmod(0o555)
    done = run_program([sys.executable, "-c", LOOK, open_folder])
    problem = f"{open_folder}/orders is not writable: the daemon executes no commands"
    assert done.stdout == f"0 {problem}\n", done.stderr
    (open_folder / "orders").chmod(0o755)


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path):
    (tmp_path / "orders").touch()
    with pytest.raises(StateError, match="the daemon must be able to write into this folder"):
        CommandQueue(tmp_path).prepare()
