"""Laws of staging, whatever happens: a few seeds of :mod:`.laws`, and the mode off."""

from datetime import timedelta

import pytest

from tests.factories import NOON
from tests.staging_world import SITES, StagingWorld, need, policy, run
from tests.unit.staging.laws import DATASETS, run_seed


@pytest.mark.parametrize("seed", range(12))
def test_no_seed_breaks_a_law(seed):
    run_seed(seed)


def test_with_the_mode_off_no_random_day_calls_the_catalogue():
    world = StagingWorld(policy("off"), **{f"D{n}": 1 for n in range(6)})
    for n in range(50):
        world.queue(need(DATASETS[n % 6]), run(DATASETS[(n + 1) % 6]))
        world.stager.add_rule(DATASETS[n % 6], SITES[n % 3], expires_at=NOON + timedelta(hours=n))
        world.step(timedelta(minutes=7 * n))
    assert world.stager.calls == []
