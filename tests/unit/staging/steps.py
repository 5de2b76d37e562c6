"""A step that most tests of staging take: other jobs in the queue, then a step of the daemon."""

from datetime import timedelta

from hydrator.staging.needs import DataNeed
from tests.factories import MINUTE
from tests.staging_world import StagingWorld


def step_with(world: StagingWorld, *needs: DataNeed, after: timedelta = MINUTE) -> None:
    """Let only *needs* be in the queue, and make a step."""
    world.queue(*needs)
    world.step(after)
