"""Background work beside the cycles: a turn with a bug fails alone and runs again."""

import pytest

from hydrator.daemon.background import BackgroundWorker
from hydrator.daemon.runtime import Turns
from tests.unit.daemon.contexts import context_with


class Slots(BackgroundWorker):
    """Turns of one kind."""

    def schedule(self, runtime) -> None:
        """Schedule nothing."""


@pytest.mark.parametrize("error", [OverflowError("year 33000"), SystemExit(3), KeyboardInterrupt()])
def test_turn_that_raises_is_reported_and_runs_again(error):
    bugs, runs = [], []
    slots, turns = Slots(context_with(bugs=bugs.append)), Turns()

    def look():
        runs.append(1)
        raise error

    for _ in range(2):
        slots._run_turn(turns, "slots", look)
    assert (len(runs), bugs) == (2, ["the turn of slots"] * 2)
