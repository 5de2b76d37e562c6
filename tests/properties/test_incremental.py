"""A cycle that starts from what the last one worked out concludes what one that starts from nothing does.

Hypothesis chooses what happens between cycles: readings of every kind, failures, sites that come and go,
blindness, corrections, holds, approvals, other demand, time that runs, stands still, jumps past the bound
or goes back. After each, everything that leaves the core is compared.
"""

from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.model import (
    Demand,
    DemandEntry,
    Did,
    Origin,
    Provenance,
    Replica,
    ReplicaState,
    Seen,
    Site,
    Survey,
    Unseen,
)
from hydrator.reconcile.ads.site_ads import Budget
from hydrator.reconcile.evaluate import Evaluation, ReconcilePolicy, evaluate
from hydrator.reconcile.publish import Policy, plan
from hydrator.reconcile.snapshot.breaker import BreakerLimits
from hydrator.reconcile.state import ReconcileState
from tests.factories import HOUR, MINUTE, NOON, want

SITES = tuple(Site(name) for name in "ABC")
DIDS = tuple(Did(f"s:{name}") for name in ("one", "two", "Two", "three", "four", "a-long-one", "six"))
POLICY = Policy(refresh_after=5 * MINUTE, has_expiring_ads=True)
RULES = (
    ReconcilePolicy(
        breaker_limits=BreakerLimits(confirming_polls=2, min_datasets=2, poll_spacing=timedelta()),
        retired=frozenset({SITES[2]}),
    ),
    ReconcilePolicy(breaker_limits=BreakerLimits(confirming_polls=3, min_datasets=3), budget=Budget(95, 260)),
    ReconcilePolicy(breaker_limits=BreakerLimits(confirming_polls=0), budget=Budget(400, 170)),
)

moves = st.sampled_from(
    [timedelta(), timedelta(seconds=0.7), timedelta(seconds=0.7), MINUTE, MINUTE, HOUR, 7 * HOUR, -MINUTE]
)
told = st.sampled_from([Provenance(), Provenance(reason="why")])
replicas = st.builds(
    Replica,
    st.just(Did("")),
    st.sampled_from(SITES),
    st.sampled_from(ReplicaState),
    st.sampled_from([None, 0.25, 1.0]),
    st.sampled_from(["", "DISK"]),
    told,
)
readings = st.builds(
    lambda here, size, blind, twins: (tuple(here), size, blind, twins),
    st.lists(replicas, max_size=3),
    st.sampled_from([None, 5, 7]),
    st.frozensets(st.sampled_from(SITES), max_size=1) | st.just(frozenset()),
    st.frozensets(st.sampled_from([Did("s:ONE"), Did("s:Three")]), max_size=1) | st.just(frozenset()),
)


class World:
    """What the catalogues hold; answers are whole, and most of each is as it was."""

    def __init__(self, data):
        self.data = data
        self.now = NOON
        self.sites = dict.fromkeys(("one", "two"), frozenset(SITES))
        self.held_losses = {
            name: {did: ((), None, frozenset(), frozenset()) for did in DIDS} for name in self.sites
        }
        self.wants = tuple(((did,), did is DIDS[0]) for did in DIDS[:5])
        self.silent: set[Did] = set()
        self.down: set[str] = set()

    def turn(self):
        draw = self.data.draw
        self.now += draw(moves)
        for name in draw(st.lists(st.sampled_from(sorted(self.held_losses)), max_size=2)):
            self.held_losses[name][draw(st.sampled_from(DIDS))] = draw(readings)
        rarely = draw(st.integers(0, 9))
        if rarely == 0:
            self.sites["one"] = draw(st.frozensets(st.sampled_from(SITES)))
        elif rarely == 1:
            self.down = draw(st.sets(st.sampled_from(sorted(self.held_losses))))
        elif rarely == 2:
            self.silent = draw(st.sets(st.sampled_from(DIDS), max_size=2))
        elif rarely == 3:
            groups = st.lists(st.sampled_from(DIDS), min_size=1, max_size=3).map(
                lambda d: tuple(sorted({*d}))
            )
            wants = st.lists(st.tuples(groups, st.booleans()), max_size=6, unique_by=lambda want: want[0])
            self.wants = tuple(draw(wants))
        elif rarely == 4:
            name = draw(st.sampled_from(sorted(self.held_losses)))
            self.held_losses[name] = {did: ((), *rest) for did, (_, *rest) in self.held_losses[name].items()}

        elif rarely == 5:
            self.wants = tuple(draw(st.permutations(self.wants)))

    def answers(self):
        late = self.data.draw(st.sampled_from([timedelta(), timedelta(), MINUTE, -MINUTE]))
        return {
            name: Unseen("down")
            if name in self.down
            else Survey(name, self.now + late, self.sites[name], self.said(name, self.now + late))
            for name in self.held_losses
        }

    def said(self, name, at):
        found = {}
        for did, (here, size, blind, twins) in self.held_losses[name].items():
            mine = tuple(replace(replica, did=did) for replica in here if replica.site not in blind)
            found[did] = Unseen("timeout") if did in self.silent else Seen(at, mine, size, blind, twins)
        return found

    @property
    def demand(self):
        return Demand(tuple(want(*dids, at=self.now) for dids, _ in self.wants))


def think(state, answers, demand, *, now, rules=ReconcilePolicy(), last=None, **more) -> Evaluation:  # noqa: B008
    """One evaluation, that starts from *last*, or from nothing."""
    return evaluate(
        state, answers, demand, published_generations={}, policy=rules, now=now, previous=last, **more
    )


def leaves(thought: Evaluation, there, now):
    """All that leaves the core."""
    return {
        "state": thought.state,
        "sites": {site: (one.as_of, dict(one.facts)) for site, one in thought.snapshot.sites.items()},
        "unseen": thought.snapshot.unseen_reasons,
        "clashes": thought.snapshot.case_collisions,
        "sizes": thought.snapshot.bytes_total,
        "drafts": {
            site: (one.as_of, one.content, tuple(one.omitted_entries)) for site, one in thought.drafts.items()
        },
        "ads": thought.ads,
        "released": thought.released,
        "plan": plan(there, thought.ads, retired=frozenset(), now=now, policy=POLICY),
    }


def as_loaded(state: ReconcileState) -> ReconcileState:
    """The same, as it comes from disk: without a trace of how it came about."""
    plain = {name: replace(one, records=dict(one.records)) for name, one in state.memories.items()}
    return replace(state, memories=plain)


def compared(data, cycles: int, rules: ReconcilePolicy) -> None:
    world, state, last = World(data), ReconcileState(), None
    for _ in range(cycles):
        world.turn()
        answers, demand = world.answers(), world.demand
        held = sorted(state.held_losses)
        approved = {}
        if held and data.draw(st.integers(0, 3)) == 0:
            site = data.draw(st.sampled_from(held))
            approved = {site: frozenset(state.held_losses[site].missing_polls)}

        def thinks(state, last, answers=answers, demand=demand, approved=approved):
            return think(
                state, answers, demand, now=world.now, rules=rules, last=last,
                approved_losses=approved,
            )  # fmt: skip

        from_nothing, step = thinks(as_loaded(state), None), thinks(state, last)
        assert leaves(step, {}, world.now) == leaves(from_nothing, {}, world.now)
        state, last = step.state, step


@given(st.data(), st.sampled_from(RULES))
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_starting_from_the_last_cycle_changes_no_ad_no_plan_and_no_verdict(data, rules):
    compared(data, data.draw(st.integers(2, 8)), rules)


def test_a_state_that_the_last_cycle_did_not_leave_is_thought_through_as_a_whole():
    """After a restart, or when somebody else's thought is handed in, nothing of it is believed."""
    site = SITES[0]
    wanted = Demand((DemandEntry((DIDS[0],), 1, Origin.JOB, NOON, set_key((DIDS[0],))),))

    def poll(state, number, here, last=None):
        now = NOON + number * MINUTE
        replicas = (Replica(DIDS[0], site, ReplicaState.COMPLETE),) if here else ()
        answer = Survey("one", now, frozenset({site}), {DIDS[0]: Seen(now, replicas)})
        rules = ReconcilePolicy(breaker_limits=BreakerLimits(confirming_polls=0))
        return think(state, {"one": answer}, wanted, now=now, rules=rules, last=last)

    empty, full = poll(ReconcileState(), 0, here=False), poll(ReconcileState(), 0, here=True)
    after = poll(full.state, 1, here=False, last=empty)
    assert dict(after.ads[site].content)["AvailableDatasets"] == "{}"
    again = poll(empty.state, 1, here=True, last=full)
    assert dict(again.ads[site].content)["AvailableDatasets"] == '{"s:one"}'


def test_what_did_not_change_is_not_looked_at_again():
    """The law above would hold of a core that always starts from nothing; this one does not."""
    site, now = SITES[0], NOON
    wanted = Demand(
        tuple(DemandEntry((did,), 1, Origin.JOB, NOON, set_key((did,))) for did in (DIDS[0], DIDS[1]))
    )

    def answer(at, state):
        states = (state, ReplicaState.COMPLETE)
        found = {did: Seen(at, (Replica(did, site, one),)) for did, one in zip(DIDS, states, strict=False)}
        return {"one": Survey("one", at, frozenset({site}), found)}

    first = think(ReconcileState(), answer(now, ReplicaState.COMPLETE), wanted, now=now)
    now += MINUTE
    second = think(first.state, answer(now, ReplicaState.INCOMING), wanted, now=now, last=first)
    rows = second.state.memories["one"].records
    assert rows.changed_since_base == {DIDS[0]}
    assert rows.rows[DIDS[1]] is first.state.memories["one"].records.rows[DIDS[1]]
    assert second.reusable.merged_snapshot.changed_dids == {site: {DIDS[0]}}
    assert rows[DIDS[1]].facts[site].as_of == now, "and yet it was read just now"
