"""The whole daemon in virtual time: whatever goes wrong, the laws hold; at the end the ads are the truth."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.simulation.faults import Fault
from tests.simulation.laws import EVENTS
from tests.simulation.run import run, shrink
from tests.simulation.scenario import make

SEEDS = 100
"""Seeds of one test; so many are enough to meet each of EVENTS."""


@pytest.mark.parametrize("first", [0, SEEDS])
def test_laws_hold_and_all_that_should_happen_happens(first):
    broken, events = {}, Counter[str]()
    for seed in range(first, first + SEEDS):
        outcome = run(make(seed))
        events += outcome.events
        if outcome.broken:
            broken[seed] = outcome.broken[0]
    assert not broken, f"python -m tests.simulation {min(broken)} tells the story"
    assert not {event for event in EVENTS if not events[event]}


def test_a_seed_is_a_story():
    scenario = make(8)
    assert run(scenario) == run(scenario)


def test_a_story_is_shrunk_to_the_fault_that_matters():
    never_again = Fault("fail", "publisher file", 0.0, 1e6)
    scenario = make(10)
    shrunk = shrink(replace(scenario, faults=(*scenario.faults, never_again)))
    assert shrunk.faults == (never_again,)
    assert shrunk.changes == ()
