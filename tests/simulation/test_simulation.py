"""The whole daemon in virtual time: whatever goes wrong, the laws hold; at the end the ads are the truth."""

from dataclasses import replace

import pytest

from tests.simulation.faults import Fault
from tests.simulation.run import run, shrink
from tests.simulation.scenario import make

SEEDS = 200


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_laws_hold(first):
    broken = {seed: laws for seed in range(first, first + 10) if (laws := run(make(seed)).broken)}
    assert not broken, f"python -m tests.simulation {min(broken)} tells the story"


def test_a_seed_is_a_story():
    scenario = make(7)
    assert run(scenario) == run(scenario)


def test_a_story_is_shrunk_to_the_fault_that_matters():
    never_again = Fault("fail", "catalogue rucio", 0.0, 1e6)
    scenario = make(7)
    shrunk = shrink(replace(scenario, faults=(*scenario.faults, never_again)))
    assert shrunk.faults == (never_again,)
    assert shrunk.changes == ()
