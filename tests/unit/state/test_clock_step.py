"""The wall clock is set: it is noticed, and nothing that was read ever looks newer than it is."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hydrator.diagnostics.check.last_cycle import check_last_cycle
from hydrator.domain.model import DatasetState, Hold, NoOp, PublishedAd, Unseen, to_unix
from hydrator.reconcile.ads.site_ads import facts_of, shift_ad_times
from hydrator.reconcile.audit.ledger import Audit, AuditTally, Claim, Correction, VerificationMethod
from hydrator.reconcile.demand import DemandMemory, RememberedJobs
from hydrator.reconcile.evaluate import ReconcilePolicy, evaluate
from hydrator.reconcile.publish.plan import Policy, plan
from hydrator.reconcile.snapshot.breaker import HeldLoss, HoldCause
from hydrator.reconcile.snapshot.update import CatalogueMemory, apply_survey
from hydrator.reconcile.state import ReconcileState
from hydrator.state.clock_step import MIN_STEP, ClockStepDetector, clamp_to_now, shift_back
from hydrator.state.store import Store
from tests.factories import CAM, HOUR, L1, L2, MINUTE, NOON, RAL, ad, demand, holding, replica, seen, survey

BOUND = timedelta(hours=6)
RULES = ReconcilePolicy(pins=frozenset({L1, L2}), max_age=BOUND)


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
def test_a_step_is_seen_with_its_size_until_it_is_taken(clocks, watch, step):
    clocks.pass_(7)
    assert not watch.pending_step
    clocks.wall += step
    clocks.pass_(1)
    assert watch.pending_step == step
    clocks.pass_(3600)
    assert watch.pending_step == step
    watch.acknowledge(step)
    assert not watch.pending_step


def test_a_step_forward_and_one_back_before_anybody_looked_are_none(clocks, watch):
    clocks.wall += HOUR
    clocks.wall -= HOUR
    assert not watch.pending_step


def test_small_steps_add_up(clocks, watch):
    for _ in range(3):
        clocks.wall += timedelta(seconds=1)
    assert watch.pending_step == timedelta(seconds=3)


def test_a_thread_that_was_held_up_between_the_clocks_sees_no_step(clocks, watch):
    clocks.slow = 10
    assert not watch.pending_step


def known(at) -> CatalogueMemory:
    """One catalogue's memory: CAM has both; L2 was last read an hour before *at*."""
    wanted = frozenset({L1, L2})
    first = holding(replica(L1), replica(L2), at=at - HOUR, sites=(CAM,))
    second = survey((L1, seen(replica(L1), at=at)), (L2, Unseen("timeout")), at=at, sites=(CAM,))
    memory = apply_survey(CatalogueMemory(), first, wanted, now=at - HOUR)
    return apply_survey(memory, second, wanted, now=at)


def everything(at) -> ReconcileState:
    return ReconcileState(
        memories={"rucio": replace(known(at), last_read_at={RAL: at})},
        demand=DemandMemory((RememberedJobs("ap1", (L1,), 3, at),)),
        ads={CAM: thought(ReconcileState(memories={"rucio": known(at)}), at).ads[CAM]},
        held_losses={CAM: HeldLoss(at, at, {L1: 1}, 9, HoldCause.SITE)},
        audit=Audit(
            {CAM: AuditTally({to_unix(at) // 3600: (1, 1)}, 0.5, at)},
            {(Claim("rucio", L1, CAM), VerificationMethod.FILES): Correction(at, at - HOUR, repeated_at=at)},
        ),
    )


def thought(state: ReconcileState, now, answers=None):
    answers = answers or {"rucio": Unseen("down")}
    return evaluate(state, answers, demand(L1, L2), published_generations={}, policy=RULES, now=now)


def test_what_is_moved_back_is_as_if_it_had_been_read_earlier():
    moved, expected = shift_back(everything(NOON), 2 * HOUR), everything(NOON - 2 * HOUR)
    for field in ("memories", "demand", "held_losses", "audit"):
        assert getattr(moved, field) == getattr(expected, field), field
    assert facts_of(moved.ads[CAM]) == facts_of(expected.ads[CAM])
    assert moved.ads[CAM].as_of == expected.ads[CAM].as_of
    assert moved.ads[CAM].content == expected.ads[CAM].content


def test_an_ad_whose_content_is_moved_is_another_generation_and_no_other_is():
    older = thought(ReconcileState(memories={"rucio": known(NOON)}), NOON).ads[CAM]
    assert shift_ad_times(older, HOUR).generation == older.generation + 1
    plain = ad(L1)
    assert shift_ad_times(plain, HOUR) == replace(plain, as_of=plain.as_of - HOUR)


def test_a_moved_state_is_saved_as_it_is(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store.save(everything(NOON))
        moved = shift_back(store.load(), HOUR)
        store.save(moved)
        again = store.load()
        assert again.memories == moved.memories
        assert (again.ads, again.held_losses, again.demand) == (moved.ads, moved.held_losses, moved.demand)


def test_after_the_clock_was_set_back_an_unread_fact_keeps_its_age():
    """Without being moved it would count as read now in every cycle for the length of the step."""
    state = ReconcileState(memories={"rucio": known(NOON)})
    now = NOON - 2 * HOUR + 10 * MINUTE  # ten minutes after the reading, by a clock two hours earlier
    after = thought(shift_back(state, 2 * HOUR), now)
    assert after.ads[CAM].as_of == now - 10 * MINUTE
    assert after.snapshot.sites[CAM].facts[L2].as_of == now - 70 * MINUTE


@pytest.mark.parametrize("ahead", [timedelta(seconds=10), 3 * HOUR])
def test_a_state_from_the_future_is_dated_so_that_nothing_counts_as_fresh(ahead):
    state = everything(NOON)
    now = NOON - ahead
    dated, by = clamp_to_now(state, now, BOUND)
    assert by == ahead
    after = thought(dated, now)
    assert after.ads[CAM].as_of <= now
    states = {fact.state for fact in after.snapshot.sites[CAM].facts.values()}
    assert states == ({DatasetState.UNKNOWN} if ahead == 3 * HOUR else {DatasetState.AVAILABLE})
    assert dated.demand.entries[0].last_demanded_at <= now


def test_a_state_from_the_past_stays_as_it_is():
    state = everything(NOON)
    assert clamp_to_now(state, NOON + MINUTE, BOUND) == (state, timedelta())
    assert clamp_to_now(ReconcileState(), NOON, BOUND) == (ReconcileState(), timedelta())


def test_a_published_ad_that_is_dated_in_the_future_is_sent_again_at_once():
    ours = ad(L1, at=NOON)
    policy = Policy(refresh_after=5 * MINUTE, has_expiring_ads=True)

    def action(as_of):
        there = {CAM: PublishedAd(CAM, ours.generation, as_of, NOON)}
        return plan(there, {CAM: ours}, retired=frozenset(), now=NOON, policy=policy)[0]

    assert isinstance(action(NOON + HOUR), Hold)
    assert isinstance(action(NOON - MINUTE), NoOp)


def test_a_last_cycle_in_the_future_is_no_sign_of_life():
    told = {"at": to_unix(NOON + HOUR), "catalogues": {}, "publishers": {}}
    (finding,) = check_last_cycle(told, NOON, 600)
    assert finding.level == "warn"
    assert "1 h in the future" in finding.message
