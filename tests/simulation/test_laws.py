"""The laws find what they are about also where they make an exception."""

import pytest

from hydrator.domain.model import SiteAd, to_unix
from tests.factories import CAM, L1, L2, ad
from tests.simulation.faults import Fault
from tests.simulation.loop import Process
from tests.simulation.parts import SimulatedPublisher
from tests.simulation.scenario import make
from tests.simulation.world import EPOCH, World


def send(world: World, contents: SiteAd, generation: int) -> None:
    """Let the daemon of *world* send an ad to the collector, as its publisher does."""
    site_ad = SiteAd(CAM, world.clock(), generation, contents.content)
    world.laws.check_ad("collector", site_ad, world.shown_ad("collector", CAM))
    world.shelves["collector"].ads[CAM] = (site_ad, world.loop.now)


@pytest.mark.parametrize("missing", ["lost state", "unread publisher", "clock", None])
def test_a_generation_with_two_contents_is_excused_only_where_nothing_knew_it(missing):
    faults = [] if missing == "unread publisher" else [Fault("fail", "publisher collector", 10.0, 100.0)]
    scenario = make(1)
    world = World(1, scenario.truth, (), faults, scenario.configurations)
    SimulatedPublisher(world, Process("daemon"), "collector")
    generation = to_unix(EPOCH)
    send(world, ad(L1), generation)
    world.loop.now = 50.0
    if missing != "clock":
        world._clock_offset = -3600.0
    if missing != "lost state":
        world.laws.note_lost_state()
    world.laws.broken.clear()
    send(world, ad(L2), generation)
    assert ("generation" in dict(world.laws.broken)) == (missing is not None)


def test_a_state_from_the_future_is_lost_at_each_start_until_another_is_saved():
    scenario = make(1)
    world = World(1, scenario.truth, (), (), scenario.configurations)
    laws = world.laws
    laws.saved_at, world.loop.now = 10.0, 50.0
    laws.note_clock_step(-3600.0)
    for now in (60.0, 100.0):
        world.loop.now = now
        laws.note_start()
        assert laws.lost_at == now
    laws.saved_at, world.loop.now = 110.0, 140.0
    laws.note_start()
    assert laws.lost_at == 100.0


@pytest.mark.parametrize(("faults", "is_saved"), [((), True), ((Fault("full", "disk", 0.0, 100.0),), False)])
def test_laws_know_whether_the_state_is_on_disk(faults, is_saved):
    scenario = make(1)
    world = World(1, scenario.truth, (), faults, [dict(scenario.configurations[0])])
    world.run(100.0)
    assert (world.laws.saved_at > 0) == is_saved
