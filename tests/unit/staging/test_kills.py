"""Kills -9 at random moments: no duplicate, no leak, and ledger and catalogue are equal afterwards."""

import os
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from hydrator.domain.ports.staging import RequestState
from hydrator.staging.policy import TERABYTE
from hydrator.state.store import Store
from tests.unit.staging.staging_process import LIMITS, build_world, load_rules

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("staging_process.py")
KILLS = int(os.environ.get("HYDRATOR_TEST_KILLS", "40"))
"""Kills of the slow test; set it to 500 for the goal of the staging part."""


def kill_once(folder: Path, steps: int, delay: float) -> None:
    """Run the process until it has made *steps* steps, and kill it *delay* seconds later."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": str(ROOT)},
    )
    try:
        for _ in range(steps):
            assert process.stdout.readline(), "the process ended by itself"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def check(folder: Path) -> None:
    """Check the catalogue as it is, and the ledger after one more step."""
    rules = load_rules(folder / "rules")
    with Store.open_to_write(folder / "state") as store:
        world = build_world(folder, store)
        alive = world.stager.own_rules()
        targets = [(row.rule.did, row.rule.site) for row in alive]
        moving = [row for row in alive if row.rule.state is RequestState.MOVING]
        assert len(targets) == len(set(targets)), "a rule twice"
        assert len({row.rule.did for row in moving}) == len(moving), "a dataset on its way to two sites"
        assert len(alive) * TERABYTE <= LIMITS.total_bytes, "the limit is exceeded"
        assert all(row.rule.expires_at - world.clock.now <= timedelta(days=15) for row in alive)
        world.queue()
        world.step(timedelta(seconds=1))
        entries = {entry.tag: entry.handle for entry in world.ledger.entries.values() if entry.handle}
        assert entries == {row.rule.tag: row.rule.handle for row in world.stager.own_rules()}
    assert rules or not alive


@pytest.mark.slow
def test_kills_at_random_moments_leave_no_duplicate_and_no_leak(tmp_path):
    chance = random.Random(20261123)
    for number in range(KILLS):
        kill_once(tmp_path, chance.randint(1, 3), chance.random() * 0.2)
        if number % 5 == 4:
            check(tmp_path)


def test_a_kill_between_the_call_and_its_answer_is_adopted(tmp_path):
    kill_once(tmp_path, 1, 0.05)
    check(tmp_path)
