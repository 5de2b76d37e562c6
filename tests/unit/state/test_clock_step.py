"""The wall clock is set: it is noticed, and a state from the future is not used."""

from datetime import timedelta

import pytest

from hydrator.diagnostics.problems import silence_reason
from hydrator.domain.model import ActionKind, PublishedAd, to_unix
from hydrator.reconcile.publish import plan
from hydrator.reconcile.snapshot.merge import CatalogueMemory, apply_survey
from hydrator.reconcile.state import ReconcileState
from hydrator.state.clock_step import MIN_STEP, ClockStepDetector, seconds_ahead
from tests.factories import CAM, HOUR, L1, MINUTE, NOON, ad, holding, replica


class Clocks:
    """A wall clock that may be set, and one that never is."""

    def __init__(self) -> None:
        self.wall, self.seconds, self.slow = NOON, 1000.0, 0.0

    def now(self):
        self.pass_(self.slow)
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def pass_(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.seconds += seconds


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def watch(clocks):
    return ClockStepDetector(clocks.now, clocks.monotonic)


@pytest.mark.parametrize("step", [HOUR, -HOUR, MIN_STEP, -MIN_STEP])
def test_a_step_is_seen_with_its_size(clocks, watch, step):
    clocks.pass_(7)
    assert not watch.step
    clocks.wall += step
    clocks.pass_(1)
    assert watch.step == step
    clocks.pass_(3600)
    assert watch.step == step


def test_a_step_forward_and_one_back_before_anybody_looked_are_none(clocks, watch):
    clocks.wall += HOUR
    clocks.wall -= HOUR
    assert not watch.step


def test_small_steps_add_up(clocks, watch):
    for _ in range(3):
        clocks.wall += timedelta(seconds=1)
    assert watch.step == timedelta(seconds=3)


def test_a_thread_that_was_held_up_between_the_clocks_sees_no_step(clocks, watch):
    clocks.slow = 10
    assert not watch.step


def test_a_state_is_ahead_by_its_newest_time():
    held = holding(replica(L1), at=NOON, sites=(CAM,))
    memory = apply_survey(CatalogueMemory(), held, frozenset({L1}), now=NOON)
    for state in (ReconcileState(memories={"rucio": memory}), ReconcileState(ads={CAM: ad(L1, at=NOON)})):
        assert seconds_ahead(state, NOON - HOUR) == 3600
        assert seconds_ahead(state, NOON + MINUTE) == 0
    assert seconds_ahead(ReconcileState(), NOON) == 0


def test_a_published_ad_that_is_dated_in_the_future_is_sent_again_at_once():
    ours = ad(L1, at=NOON)

    def action(as_of):
        there = {CAM: PublishedAd(CAM, ours.generation, as_of, NOON)}
        return plan(there, {CAM: ours}, retired=frozenset(), now=NOON, refresh_after=5 * MINUTE)[0]

    assert action(NOON + HOUR).kind is ActionKind.KEEP
    assert action(NOON - MINUTE).kind is ActionKind.NOOP


def test_a_last_cycle_in_the_future_is_no_sign_of_life():
    assert "1 h in the future" in str(silence_reason(to_unix(NOON + HOUR), "7", NOON, 600))
