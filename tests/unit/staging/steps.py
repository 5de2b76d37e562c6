"""A step that most tests of staging take: other jobs in the queue, then a step of the daemon."""

from datetime import timedelta

from hydrator.domain.ports import DataNeed
from hydrator.staging.policy import StagingPolicy
from tests.factories import MINUTE
from tests.staging_world import StagingWorld


def step_with(world: StagingWorld, *needs: DataNeed, after: timedelta = MINUTE) -> None:
    """Let only *needs* be in the queue, and make a step."""
    world.queue(*needs)
    world.step(after)


def world_with(*needs: DataNeed, rules: StagingPolicy | None = None, **sizes: float) -> StagingWorld:
    """Return a world with datasets of these *sizes* (TB), after a step with *needs* in the queue."""
    world = StagingWorld(rules, **sizes)
    step_with(world, *needs)
    return world
