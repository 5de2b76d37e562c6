"""Laws of staging, whatever happens: limits, live demand, nothing of others, no duplicates, one lifetime."""

from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hydrator.domain.model import Did, ReplicaState, Unseen
from hydrator.domain.ports.staging import (
    RefusalKind,
    RequestState,
    StagingKind,
    StagingOutcomeUnknown,
    StagingRefused,
    StagingUnavailable,
)
from hydrator.staging.policy import TERABYTE, StagingLimits, StagingMode
from hydrator.testing.memory_stager import OUR_ACCOUNT, Fault
from tests.factories import NOON
from tests.staging_world import SITES, StagingWorld, need, policy, run

DATASETS = [Did(f"lofar:D{n}") for n in range(6)]
USERS = ["ann@x", "bob@x", "eve@x"]
SCHEDDS = ["ap1", "ap2"]
LIMITS = StagingLimits(
    request_bytes=3 * TERABYTE,
    user_bytes=4 * TERABYTE,
    site_bytes=5 * TERABYTE,
    source_bytes=3 * TERABYTE,
    total_bytes=8 * TERABYTE,
    hour_bytes=6 * TERABYTE,
    hour_requests=3,
    pin_bytes=3 * TERABYTE,
    pin_count=2,
    approval_bytes=100 * TERABYTE,
    approval_fraction=1.0,
)
ERRORS = [
    StagingOutcomeUnknown("rucio", "timeout"),
    StagingUnavailable("rucio", "connection refused"),
    StagingRefused("rucio", "quota", RefusalKind.QUOTA),
    StagingRefused("rucio", "odd"),
]
KEPT = st.sampled_from(["ask", "renew", "cancel", "look", "find_rules", "measure", "read_space"])


class Crash(BaseException):
    """The end of the process at this point."""


class StagingMachine(RuleBasedStateMachine):
    """Random jobs, catalogues, faults, crashes and times; the laws hold after each step."""

    @initialize(sizes=st.lists(st.integers(1, 30), min_size=6, max_size=6))
    def begin(self, sizes):
        self.world = StagingWorld(policy(limits=LIMITS))
        self.foreign = set()
        for did, tenths in zip(DATASETS, sizes, strict=True):
            self.world.add_dataset(did, tenths / 10)
        self.world.needs.needs = {schedd: [] for schedd in SCHEDDS}
        self.jobs = {schedd: [] for schedd in SCHEDDS}
        self.asked = set()
        ask = self.world.stager.ask

        def spy(orders):
            wanted = {did for needs in self.jobs.values() for one in needs for did in one.datasets}
            for order in orders:
                assert order.did in wanted, "asked without live demand"
                assert order.lifetime <= self.world.policy.times.max_lifetime
                assert order.tag in self.world.store.ledger.entries, "not written ahead"
            return ask(orders)

        self.world.stager.ask = spy

    @rule(
        schedd=st.sampled_from(SCHEDDS),
        dids=st.sets(st.sampled_from(DATASETS), min_size=1, max_size=3),
        user=st.sampled_from(USERS),
    )
    def submit(self, schedd, dids, user):
        since = self.world.clock.now - timedelta(hours=1)
        self.jobs[schedd].append(need(*sorted(dids), user=user, queued_since=since))
        self._share(schedd)

    @rule(schedd=st.sampled_from(SCHEDDS), did=st.sampled_from(DATASETS), site=st.sampled_from(SITES))
    def start(self, schedd, did, site):
        self.jobs[schedd].append(run(did, site=site))
        self._share(schedd)

    @rule(schedd=st.sampled_from(SCHEDDS))
    def finish(self, schedd):
        if self.jobs[schedd]:
            self.jobs[schedd].pop(0)
        self._share(schedd)

    @rule(schedd=st.sampled_from(SCHEDDS))
    def lose_schedd(self, schedd):
        self.world.needs.needs[schedd] = Unseen("timeout")

    def _share(self, schedd):
        self.world.queue(*self.jobs[schedd], schedd=schedd)

    @rule(
        did=st.sampled_from(DATASETS),
        site=st.sampled_from(SITES),
        state=st.sampled_from([RequestState.DONE, RequestState.MOVING, RequestState.STUCK]),
        hours=st.sampled_from([None, 5, 100]),
    )
    def add_foreign_rule(self, did, site, state, hours):
        now = self.world.clock.now
        ends = None if hours is None else now + timedelta(hours=hours)
        handle = self.world.stager.add_rule(did, site, account="carl", state=state, expires_at=ends)
        self.foreign.add(handle)
        if state is RequestState.DONE:
            self.world.put(did, site)

    @rule(did=st.sampled_from(DATASETS), site=st.sampled_from(SITES))
    def put_on_tape(self, did, site):
        if (did, site) not in self.world.disk:
            self.world.put(did, site, ReplicaState.ON_TAPE)

    @rule(call=KEPT, error=st.sampled_from(ERRORS), has_effect=st.booleans())
    def break_call(self, call, error, has_effect):
        is_certain = not isinstance(error, StagingOutcomeUnknown)
        self.world.stager.faults[call].append(Fault(error, has_effect and not is_certain))

    @rule()
    def arrive(self):
        self.world.arrive()

    @rule(n=st.integers(0, 5), state=st.sampled_from([RequestState.STUCK, RequestState.FAILED]))
    def get_stuck(self, n, state):
        rows = [row for row in self.world.stager.own_rules() if row.rule.state is RequestState.MOVING]
        if rows:
            self.world.stager.set_state(rows[n % len(rows)].rule.handle, state, 0, "checksum")

    @rule(minutes=st.sampled_from([1, 12, 61, 1500]))
    def step(self, minutes):
        self.world.step(timedelta(minutes=minutes))

    @rule(writes=st.integers(0, 3))
    def crash_in_a_step(self, writes):
        """End the process at a write of the ledger, just before it or after the call that follows."""
        left = [writes]

        def count_down():
            if left[0] == 0:
                raise Crash
            left[0] -= 1

        self.world.store.on_save = count_down
        try:
            self.world.step()
        except Crash:
            pass
        finally:
            self.world.store.on_save = lambda: None
        self.world.restart()

    @rule()
    def lose_the_state(self):
        self.world.store.ledger = type(self.world.store.ledger)()
        self.world.restart()

    @invariant()
    def no_limit_is_exceeded(self):
        if not hasattr(self, "world"):
            return
        rows = [row for row in self.world.stager.own_rules() if row.kind is StagingKind.STAGE]
        moving = [row for row in rows if row.rule.state is not RequestState.DONE]
        assert sum(row.size.bytes for row in rows) <= LIMITS.total_bytes
        for site in SITES:
            assert sum(row.size.bytes for row in moving if row.rule.site == site) <= LIMITS.site_bytes
        pins = [row for row in self.world.stager.own_rules() if row.kind is StagingKind.PIN]
        assert len(pins) <= LIMITS.pin_count
        assert sum(row.size.bytes for row in pins) <= LIMITS.pin_bytes

    @invariant()
    def no_user_and_no_hour_is_exceeded_in_the_ledger(self):
        if not hasattr(self, "world"):
            return
        ledger, now = self.world.ledger, self.world.clock.now
        for user in USERS:
            mine = [one for one in ledger.entries.values() if one.user == user and one.is_in_flight]
            assert sum(one.bytes for one in mine) <= LIMITS.user_bytes
        recent = [one for one in ledger.batches if now - one.asked_at < timedelta(hours=1)]
        assert len(recent) <= LIMITS.hour_requests
        assert sum(one.bytes for one in recent) <= LIMITS.hour_bytes

    @invariant()
    def no_dataset_has_two_requests_of_ours_in_flight(self):
        if not hasattr(self, "world"):
            return
        moving = [
            row.rule.did
            for row in self.world.stager.own_rules()
            if row.kind is StagingKind.STAGE and row.rule.state is RequestState.MOVING
        ]
        assert len(moving) == len(set(moving))

    @invariant()
    def nothing_of_others_is_touched(self):
        if not hasattr(self, "world"):
            return
        for handle in self.foreign & self.world.stager.rules.keys():
            assert self.world.stager.rules[handle].rule.account == "carl"
        assert all(row.rule.account == OUR_ACCOUNT for row in self.world.stager.own_rules())

    @invariant()
    def each_request_of_ours_ends(self):
        if not hasattr(self, "world"):
            return
        latest = self.world.clock.now + self.world.policy.times.max_lifetime
        for row in self.world.stager.own_rules():
            assert row.rule.expires_at is not None
            assert row.rule.expires_at <= latest


TestStagingMachine = StagingMachine.TestCase
TestStagingMachine.settings = settings(
    deadline=None, max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)


def test_with_the_mode_off_no_random_day_calls_the_catalogue():
    world = StagingWorld(policy(StagingMode.OFF), **{f"D{n}": 1 for n in range(6)})
    for n in range(50):
        world.queue(need(DATASETS[n % 6]), run(DATASETS[(n + 1) % 6]))
        world.stager.add_rule(DATASETS[n % 6], SITES[n % 3], expires_at=NOON + timedelta(hours=n))
        world.step(timedelta(minutes=7 * n))
    assert world.stager.calls == []
