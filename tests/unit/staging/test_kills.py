"""Kills -9 at random moments: no duplicate, no leak, and ledger and catalogue are equal afterwards."""

import multiprocessing
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from hydrator.domain.staging_ports import RequestState
from hydrator.staging.ledger import EntryState
from hydrator.staging.policy import TERABYTE
from hydrator.state.store import Store
from tests.faults.length import chosen, seeded
from tests.unit.staging.staging_process import LIMITS, build_world, run_steps

pytestmark = pytest.mark.outside

KILLS = chosen(20, 500)
LONGEST = timedelta(days=15)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.unit.staging.staging_process"])


def kill_once(folder: Path, steps: int, delay: float, moment: int = 0) -> None:
    """Run a daemon's staging until it has made *steps* steps, and kill it *delay* seconds later.

    With a *moment* of a call (1 or more), run it until then, and kill it there.
    """
    reader, writer = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=run_steps, args=(folder, writer, moment))
    process.start()
    writer.close()
    try:
        for _ in range(0 if moment else steps):
            reader.recv()
        while moment and reader.recv() != "hangs":
            pass
        process.join(0 if moment else delay)
        assert process.is_alive(), "the process ended by itself"
    finally:
        process.kill()
        process.join()
        reader.close()


@contextmanager
def open_world(folder: Path):
    with Store.open_to_write(folder / "state") as store:
        yield build_world(folder, store)


def check_catalogue(folder: Path) -> bool:
    """Check the rules as the kill left them; return whether it cut a call or the record of its answer."""
    with open_world(folder) as world:
        alive = [row.rule for row in world.stager.own_rules()]
        targets = [(rule.did, rule.site) for rule in alive]
        moving = [rule.did for rule in alive if rule.state is RequestState.MOVING]
        assert len(targets) == len(set(targets)), "a rule twice"
        assert len(moving) == len(set(moving)), "a dataset on its way to two sites"
        assert len(alive) * TERABYTE <= LIMITS.total_bytes, "the limit is exceeded"
        assert all(rule.expires_at - world.clock.now <= LONGEST for rule in alive), "a rule lives too long"
        known = world.store.load().entries
        assert {rule.tag for rule in alive} <= known.keys(), "a rule that no entry announced"
        return any(entry.state is not EntryState.OPEN for entry in known.values())


def check_ledger(folder: Path) -> None:
    """Check that the ledger equals the catalogue after a step, and a look at what it changed."""
    with open_world(folder) as world:
        world.queue()
        world.step(timedelta(seconds=1))
        world.step(timedelta(seconds=1))
        entries = {
            entry.tag: (entry.handle, entry.expires_at)
            for entry in world.ledger.entries.values()
            if entry.handle
        }
        assert entries == {
            row.rule.tag: (row.rule.handle, row.rule.expires_at) for row in world.stager.own_rules()
        }


def check_end(folder: Path) -> None:
    """Check that no rule outlives the longest lifetime, also if no daemon runs, and that nothing is left."""
    with open_world(folder) as world:
        world.queue()
        world.clock.now += LONGEST
        assert world.stager.own_rules() == [], "a rule outlived its lifetime"
        world.step()
        assert world.ledger.entries == {}


def test_kills_at_random_moments_leave_no_duplicate_and_no_leak(tmp_path):
    chance, seed = seeded()
    in_call = unanswered = 0
    for number in range(KILLS):
        moment = 0 if number % 3 == 2 else chance.randint(1, 6)
        kill_once(tmp_path, chance.randint(1, 3), chance.random() * 0.2, moment)
        in_call += moment > 0
        unanswered += check_catalogue(tmp_path)
        if number % 5 == 4:
            check_ledger(tmp_path)
    check_ledger(tmp_path)
    check_end(tmp_path)
    print(
        f"HYDRATOR_SEED={seed}: {KILLS} kills, {in_call} during a call; {unanswered} left its outcome unknown"
    )
    assert in_call >= KILLS / 2
    assert unanswered >= KILLS / 4  # renewals leave no trace in the ledger


def test_a_kill_between_the_call_and_its_answer_is_adopted(tmp_path):
    kill_once(tmp_path, 1, 0.05)
    check_catalogue(tmp_path)
    check_ledger(tmp_path)
