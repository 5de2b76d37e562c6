"""The plan of a switchback experiment: balanced blocks, the same after a restart, and the mark in the ads."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.model import Demand, DemandEntry, Did, Origin, Seen, Site, Survey
from hydrator.reconcile.evaluate import ReconcilePolicy, evaluate
from hydrator.reconcile.publish.experiment import Experiment, ExperimentPolicy, advance_experiment
from hydrator.reconcile.state import ReconcileState
from hydrator.state.store import Store

START = datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
POLICY = ExperimentPolicy(seed=7)

policies = st.builds(
    ExperimentPolicy,
    st.integers(1, 48).map(lambda hours: hours * HOUR),
    st.integers(1, 30).map(lambda days: timedelta(days=days)),
    seed=st.integers(0, 2**63 - 1),
)


def begin(policy: ExperimentPolicy = POLICY, now: datetime = START) -> Experiment:
    experiment = advance_experiment(None, policy, now)
    assert experiment is not None
    return experiment


def blocks(experiment: Experiment) -> list[bool]:
    times = [experiment.started_at + n * experiment.block_time for n in range(experiment.block_count)]
    return [experiment.is_observing(time) for time in times]


@given(policies)
def test_each_pair_has_a_block_of_each_arm(policy):
    order = blocks(begin(policy))
    assert len(order) >= 2
    assert len(order) % 2 == 0
    assert all(first is not second for first, second in zip(order[::2], order[1::2], strict=True))


def test_order_of_the_pairs_is_random_and_from_the_seed():
    orders = Counter(tuple(blocks(begin(replace(POLICY, seed=seed)))[::2]) for seed in range(50))
    assert len(orders) == 50
    firsts = [first for order in orders for first in order]
    assert 0.45 < sum(firsts) / len(firsts) < 0.55
    assert blocks(begin()) == blocks(begin(now=START + 5 * HOUR))


@given(policies, st.floats(0, 1))
def test_any_time_is_in_the_block_that_contains_it(policy, share):
    experiment = begin(policy)
    block = experiment.block_at(START + share * 0.999 * (experiment.ends_at - START))
    assert block is not None
    assert block.ends_at - block.started_at == policy.block_time
    assert block.is_observing is blocks(experiment)[block.number]


def test_nothing_is_observed_before_the_start_and_after_the_end():
    experiment = begin(replace(POLICY, start=START + HOUR))
    assert experiment.block_at(START) is None
    assert experiment.block_at(experiment.ends_at) is None
    assert experiment.ends_at == START + HOUR + timedelta(days=14)


def test_plan_never_changes_until_the_operator_stops_it():
    experiment = begin()
    other = ExperimentPolicy(2 * HOUR, timedelta(days=1), seed=8)
    assert advance_experiment(experiment, other, START + 9 * HOUR) == experiment
    assert advance_experiment(experiment, other, START + 900 * HOUR) == experiment
    stopped = advance_experiment(experiment, None, START + 9 * HOUR)
    assert stopped is not None
    assert (stopped.ends_at, stopped.block_at(START + 9 * HOUR)) == (START + 9 * HOUR, None)
    assert advance_experiment(stopped, None, START + 10 * HOUR) == stopped
    again = advance_experiment(stopped, other, START + 11 * HOUR)
    assert again is not None
    assert (again.seed, again.started_at, again.stopped_at) == (8, START + 11 * HOUR, None)


def test_plan_is_the_same_after_a_restart(tmp_path):
    experiment = begin(replace(POLICY, seed=2**63 - 1))
    for one in (experiment, replace(experiment, stopped_at=START + HOUR), None):
        with Store.open_to_write(tmp_path) as store:
            store.save(ReconcileState(experiment=one))
        with Store.open_to_write(tmp_path) as store:
            assert store.load().experiment == one


def test_state_of_an_older_version_has_no_experiment(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        store._db.execute("drop table experiment")
        assert store.load().experiment is None


UK = Site("UK")
DEMAND = Demand((DemandEntry((Did("ska:a"),), 1, Origin.JOB, START),))


def cycle(state: ReconcileState, policy: ExperimentPolicy | None, now: datetime) -> ReconcileState:
    answers = {"file": Survey("file", now, frozenset({UK}), {Did("ska:a"): Seen(now, ())})}
    rules = ReconcilePolicy(experiment=policy)
    return evaluate(state, answers, DEMAND, published_generations={}, policy=rules, now=now).state


def test_each_change_of_block_is_one_new_generation_with_or_without_the_mark():
    state = ReconcileState()
    seen = []
    for minutes in range(0, 48 * 60, 20):
        now = START + timedelta(minutes=minutes)
        state = cycle(state, POLICY, now)
        ad = state.ads[UK]
        is_observing = ("DataLocalityObserve", "true") in ad.content
        assert state.experiment is not None
        assert is_observing is state.experiment.is_observing(now)
        assert ad.content[-1][0] == "DataLocalityVersion"
        seen.append((ad.generation, is_observing))
    changes = sum(one[1] is not other[1] for one, other in pairwise(seen))
    assert changes >= 4
    assert len({generation for generation, _ in seen}) == changes + 1
    assert "DataLocalityObserve" not in dict(cycle(state, None, START + 48 * HOUR).ads[UK].content)


def test_without_an_experiment_nothing_changes():
    state = cycle(ReconcileState(), None, START)
    assert state.experiment is None
    assert "DataLocalityObserve" not in dict(state.ads[UK].content)


def test_experiment_that_was_stopped_before_its_start_does_not_begin():
    planned = advance_experiment(None, replace(POLICY, start=START + 24 * HOUR), START)
    stopped = advance_experiment(planned, None, START + HOUR)
    for time in (START + HOUR, START + 48 * HOUR):
        assert stopped.describe(time).endswith("01:00 UTC, before it began")
        assert not stopped.is_observing(time)
