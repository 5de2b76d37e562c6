"""The tables of the daemon do not grow with time: what nobody names any more leaves them (decision 18)."""

from dataclasses import replace

from hydrator.domain.model import Did
from tests.simulation.scenario import make
from tests.simulation.truth import Truth
from tests.simulation.world import World

HOUR = 3600.0
DAYS = 3
CHANGES = "rows of site_change"
"""A table of the past, which has a limit of its own: MAX_CHANGES of a site."""
MAX_CHANGES = 200


def test_tables_are_as_long_after_three_days_as_after_two():
    scenario = make(1)
    settings = {
        "daemon": {"poll_seconds": 600},
        "removal_guard": {"confirm_polls": 3},
        "publish": {"http": {"enabled": True}},
        "demand": {"pins": [], "patterns": []},
    }
    changes = [(hour * HOUR, f"hour {hour}", at_hour(hour)) for hour in range(1, 24 * DAYS)]
    world = World(1, scenario.truth, changes, (), [settings])
    lengths = {}
    for day in (2, DAYS):
        world.at_times([(day * 24 * HOUR - 60, lambda day=day: lengths.update({day: measure(world)}))])
    world.run(DAYS * 24 * HOUR)
    assert world.laws.broken == []
    assert all(length > 0 for length in lengths[2].values())
    del lengths[2][CHANGES]
    row_count = lengths[DAYS].pop(CHANGES)
    assert lengths[DAYS] == lengths[2]
    assert row_count <= MAX_CHANGES * len(world.truth.all_sites)


def at_hour(hour: int):
    """Return a change after which there is another dataset, which is all that the jobs of a schedd name."""

    def change(truth: Truth) -> Truth:
        did, old = Did(f"lofar:H{hour}"), Did(f"lofar:H{hour - 30}")
        catalogue = min(truth.sites)
        site = min(truth.sites[catalogue])
        truth = replace(truth, sizes={**truth.sizes, did: 10**9}, queues={**truth.queues, "ap1": {(did,): 3}})
        return truth.with_share(catalogue, did, site, 1.0).with_share(catalogue, old, site, 0)

    return change


def measure(world: World) -> dict[str, int]:
    """Return the lengths of the daemon's tables, in memory and on disk."""
    assert world.daemon is not None
    state = world.daemon._context.state
    rows = world.store_rows()
    return {
        "demand": len(state.demand.entries),
        "records": sum(len(memory.records) for memory in state.memories.values()),
        "ads": sum(len(str(ad.content)) // 500 for ad in state.ads.values()),
        "changes on the page": len(world.daemon._context.recent_changes),
        **{f"rows of {name}": count for name, count in rows.items() if count},
    }
