"""A daemon's staging part as a process of its own, for tests that kill it.

The catalogue is one JSON file that only this process writes, in one step for each rule. So what the catalogue
has after a kill is what a server would have that answered, or did not answer, before the client died.
"""

import json
import random
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

from hydrator.domain.files import replace_file
from hydrator.domain.model import Site, from_unix
from hydrator.domain.staging_ports import ExistingRule, RequestState, StagingKind, StagingSize
from hydrator.staging.commands import StagingCommand
from hydrator.staging.policy import TERABYTE, StagingLimits
from hydrator.state.store import Store
from tests.factories import NOON
from tests.memory_stager import OUR_ACCOUNT, MemoryRule
from tests.staging_world import StagingWorld, need, policy

DATASETS = [f"lofar:D{n}" for n in range(12)]
ANSWER_SECONDS = 0.02
"""Longest time before a change reaches the catalogue, and again until its answer arrives."""
LIMITS = StagingLimits(total_bytes=8 * TERABYTE, hour_requests=10_000)


def load_rules(path: Path) -> dict[str, MemoryRule]:
    if not path.exists():
        return {}
    rules = {}
    for handle, did, site, state, tag, ends_at in json.loads(path.read_text()):
        rule = ExistingRule(
            did, Site(site), f"{site}_DISK", RequestState(state), OUR_ACCOUNT, handle, tag, from_unix(ends_at)
        )
        rules[handle] = MemoryRule(rule, StagingKind.STAGE, StagingSize(TERABYTE, 1))
    return rules


def save_rules(path: Path, rules: dict[str, MemoryRule]) -> None:
    rows = [
        [one.handle, one.did, one.site, one.state, one.tag, one.expires_at.timestamp()]
        for one in (row.rule for row in rules.values())
    ]
    replace_file(path, json.dumps(rows).encode())


class Hang:
    """A moment of a call at which the process stops for ever, and sends that it did: the time to kill it.

    Each call has two such moments: before its change reaches the catalogue, and before its answer arrives.
    """

    def __init__(self, writer: Connection, moment: int) -> None:
        self._writer = writer
        self._left = moment

    def pass_moment(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._writer.send("hangs")
            signal.pause()


def build_world(folder: Path, store: Store, pass_moment: Callable[[], None] = lambda: None) -> StagingWorld:
    """Return a world whose catalogue and ledger are in *folder*; *pass_moment* is called in each call."""
    world = StagingWorld(policy(limits=LIMITS))
    clock_file, rules_file = folder / "clock", folder / "rules"
    world.clock.now = from_unix(float(clock_file.read_text())) if clock_file.exists() else NOON
    for did in DATASETS:
        world.add_dataset(did, 1)
    world.stager.rules = load_rules(rules_file)
    world.stager._number = len(world.stager.rules) + round(world.clock.now.timestamp()) * 1000
    world.store = store.staging_ledger
    make, set_end = world.stager._make, world.stager._set_end

    def change_on_disk(change, *values):
        pass_moment()
        time.sleep(random.uniform(0, ANSWER_SECONDS))
        answer = change(*values)
        save_rules(rules_file, world.stager.rules)
        pass_moment()
        time.sleep(random.uniform(0, ANSWER_SECONDS))
        return answer

    world.stager._make = partial(change_on_disk, make)
    world.stager._set_end = partial(change_on_disk, set_end)
    world.restart()
    return world


def run_steps(folder: Path, writer: Connection, moment: int) -> None:
    """Make steps until a kill, or until a *moment* of a call (0: none); send the number of each step."""
    with Store.open_to_write(folder / "state") as store:
        world = build_world(folder, store, Hang(writer, moment).pass_moment)
        # a kill before a call took effect is a failed attempt; after three nothing would be asked any more
        world.control.commands.append(StagingCommand("resume"))
        for number in count():
            wanted = DATASETS[number % 5 : number % 5 + 6]
            world.queue(*(need(did) for did in wanted))
            now = world.clock.now + timedelta(minutes=20)
            replace_file(folder / "clock", str(now.timestamp()).encode())  # first: a clock never goes back
            world.step(timedelta(minutes=20))
            writer.send(number)
