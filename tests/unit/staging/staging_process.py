"""A daemon's staging part as a process of its own, for tests that kill it: python staging_process.py FOLDER.

The catalogue is one JSON file that only this process writes, in one step for each rule. So what the catalogue
has after a kill is what a server would have that answered, or did not answer, before the client died.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

from hydrator.domain.files import replace_file
from hydrator.domain.model import Site, from_unix
from hydrator.domain.ports.staging import ExistingRule, RequestState, StagingKind, StagingSize
from hydrator.staging.policy import TERABYTE, StagingLimits
from hydrator.state.store import Store
from hydrator.testing.memory_stager import OUR_ACCOUNT, MemoryRule
from tests.factories import NOON
from tests.staging_world import StagingWorld, need, policy

DATASETS = [f"lofar:D{n}" for n in range(12)]
LIMITS = StagingLimits(total_bytes=8 * TERABYTE, hour_requests=10_000, hour_bytes=10_000 * TERABYTE)


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


def build_world(folder: Path, store: Store) -> StagingWorld:
    """Return a world whose catalogue and ledger are in *folder*."""
    world = StagingWorld(policy(limits=LIMITS))
    clock_file, rules_file = folder / "clock", folder / "rules"
    world.clock.now = from_unix(float(clock_file.read_text())) if clock_file.exists() else NOON
    for did in DATASETS:
        world.add_dataset(did, 1)
    world.stager.rules = load_rules(rules_file)
    world.stager._number = len(world.stager.rules) + round(world.clock.now.timestamp()) * 1000
    world.store = store.staging_ledger
    make, set_end = world.stager._make, world.stager._set_end

    def make_on_disk(order):
        answer = make(order)
        save_rules(rules_file, world.stager.rules)
        return answer

    def set_end_on_disk(request, end):
        set_end(request, end)
        save_rules(rules_file, world.stager.rules)

    world.stager._make, world.stager._set_end = make_on_disk, set_end_on_disk
    world.restart()
    return world


def main(folder: Path) -> None:
    with Store.open_to_write(folder / "state") as store:
        world = build_world(folder, store)
        for number in range(10_000):
            wanted = DATASETS[number % 5 : number % 5 + 6]
            world.queue(*(need(did) for did in wanted))
            world.step(timedelta(minutes=20))
            replace_file(folder / "clock", str(world.clock.now.timestamp()).encode())
            print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
