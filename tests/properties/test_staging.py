"""Laws of staging, whatever happens: limits, live demand, nothing of others, no duplicates, one lifetime."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hydrator.domain.model import Did, ReplicaState, Unseen
from hydrator.domain.staging_ports import (
    RefusalKind,
    RequestState,
    SiteSpace,
    StagingKind,
    StagingOutcomeUnknown,
    StagingRefused,
    StagingUnavailable,
)
from hydrator.staging.ledger import make_tag
from hydrator.staging.policy import TERABYTE, StagingLimits, StagingMode
from tests.factories import CAM, NOON
from tests.memory_stager import OUR_ACCOUNT, Fault
from tests.staging_world import SITES, StagingWorld, need, policy, run

pytestmark = pytest.mark.outside

DATASETS = [Did(f"lofar:D{n}") for n in range(6)]
USERS = ["ann@x", "bob@x", "eve@x"]
SCHEDDS = ["ap1", "ap2"]
LIMITS = StagingLimits(
    request_bytes=3 * TERABYTE,
    user_bytes=4 * TERABYTE,
    site_bytes=5 * TERABYTE,
    source_bytes=TERABYTE,
    total_bytes=8 * TERABYTE,
    hour_requests=3,
    pin_bytes=3 * TERABYTE,
    floor_bytes=10 * TERABYTE,
    approval_bytes=100 * TERABYTE,
)
SPACE = {site: SiteSpace((14 if site == CAM else 100) * TERABYTE, 200 * TERABYTE, NOON) for site in SITES}
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
        self.world.stager.space = dict(SPACE)
        self.foreign = {}
        for did, tenths in zip(DATASETS, sizes, strict=True):
            self.world.add_dataset(did, tenths / 10)
        self.world.needs.needs = {schedd: [] for schedd in SCHEDDS}
        self.jobs = {schedd: [] for schedd in SCHEDDS}
        self.violations = []
        stager = self.world.stager
        ask, renew, cancel = stager.ask, stager.renew, stager.cancel

        # an exception in these functions would end in the executor, as a call whose outcome is unknown
        def spy_ask(orders):
            self.violations += (text for order in orders for text in self.find_violations(order))
            return ask(orders)

        def spy_renew(request, lifetime):
            self.violations += self.find_foreign(request, "renewed")
            return renew(request, lifetime)

        def spy_cancel(request):
            self.violations += self.find_foreign(request, "cancelled")
            return cancel(request)

        stager.ask, stager.renew, stager.cancel = spy_ask, spy_renew, spy_cancel

    def find_foreign(self, request, verb):
        """Yield that *request* is not one of ours, if so."""
        row = self.world.stager.rules.get(request.handle)
        if request.handle in self.foreign or (row and row.rule.tag != request.tag):
            yield f"the rule {request.handle} of others was {verb}"

    def find_violations(self, order):
        """Yield the laws that *order* breaks."""
        catalogue = self.world.catalogue
        if catalogue.is_broken or catalogue.unreachable_sites or order.did in catalogue.unseen_reasons:
            yield f"{order.did} was asked for, and was not seen in this cycle"
        answers = [jobs for jobs in self.world.needs.needs.values() if not isinstance(jobs, Unseen)]
        if not any(order.did in one.datasets for jobs in answers for one in jobs):
            yield f"{order.did} was asked for without live demand"
        if order.lifetime > self.world.policy.times.max_lifetime:
            yield f"{order.did} was asked for with a lifetime of {order.lifetime}"
        if order.tag not in self.world.store.ledger.entries:
            yield f"{order.did} was asked for before the ledger had it"

    @rule(
        schedd=st.sampled_from(SCHEDDS),
        dids=st.sets(st.sampled_from(DATASETS), min_size=1, max_size=3),
        user=st.sampled_from(USERS),
        sites=st.sampled_from([SITES, (CAM,)]),
    )
    def submit(self, schedd, dids, user, sites):
        since = self.world.clock.now - timedelta(hours=1)
        self.jobs[schedd].append(need(*sorted(dids), user=user, queued_since=since, sites=sites))
        self._share(schedd)

    @rule(schedd=st.sampled_from(SCHEDDS))
    def submit_a_burst(self, schedd):
        """Submit a job of its own for each dataset, of all users."""
        for n, did in enumerate(DATASETS):
            self.submit(schedd, {did}, USERS[n % len(USERS)], SITES)

    @rule(schedd=st.sampled_from(SCHEDDS), did=st.sampled_from(DATASETS), site=st.sampled_from(SITES))
    def start(self, schedd, did, site):
        self.jobs[schedd].append(run(did, site=site))
        self._share(schedd)

    @rule(schedd=st.sampled_from(SCHEDDS))
    def finish(self, schedd):
        if self.jobs[schedd]:
            self.jobs[schedd].pop(0)
        self._share(schedd)

    @rule(schedd=st.sampled_from(SCHEDDS), did=st.sampled_from(DATASETS), is_lost=st.booleans())
    def leave_before_the_request(self, schedd, did, is_lost):
        """Let a new job be seen, and leave, or its schedd not answer, before it has waited long enough."""
        self.jobs[schedd].append(need(did, queued_since=self.world.clock.now))
        self._share(schedd)
        self.step(1)
        self.jobs[schedd].pop()
        self._share(schedd)
        if is_lost:
            self.lose_schedd(schedd)
        self.step(12)

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
        pool=st.sampled_from(["", "other"]),
    )
    def add_foreign_rule(self, did, site, state, hours, pool):
        """Add a rule of another person, or one of our account for another pool."""
        now = self.world.clock.now
        ends = None if hours is None else now + timedelta(hours=hours)
        tag = pool and make_tag(f"hydrator:{pool}:", StagingKind.STAGE, did, site)
        account = OUR_ACCOUNT if pool else "carl"
        handle = self.world.stager.add_rule(
            did, site, account=account, state=state, expires_at=ends, tag=tag, storage=f"{site}_DISK2"
        )
        self.foreign[handle] = account, ends, tag
        if state is RequestState.DONE:
            self.world.put(did, site)

    @rule(dids=st.sampled_from([*([did] for did in DATASETS), DATASETS]), site=st.sampled_from(SITES))
    def put_on_tape(self, dids, site):
        for did in dids:
            if (did, site) not in self.world.disk:
                self.world.put(did, site, ReplicaState.ON_TAPE)

    @rule(call=KEPT, error=st.sampled_from(ERRORS), has_effect=st.booleans())
    def break_call(self, call, error, has_effect):
        is_certain = not isinstance(error, StagingOutcomeUnknown)
        self.world.stager.faults[call].append(Fault(error, has_effect and not is_certain))

    @rule(
        kind=st.sampled_from(["catalogue", "site", "dataset", "none", "none"]), did=st.sampled_from(DATASETS)
    )
    def break_catalogue(self, kind, did):
        """Let the catalogue, one of its sites or one dataset not answer, or all of them again."""
        catalogue = self.world.catalogue
        catalogue.is_broken = kind == "catalogue"
        catalogue.unreachable_sites = frozenset({CAM} if kind == "site" else ())
        catalogue.unseen_reasons = {did: "timeout"} if kind == "dataset" else {}

    @rule()
    def arrive(self):
        self.world.arrive()

    @rule(n=st.integers(0, 5), state=st.sampled_from([RequestState.STUCK, RequestState.FAILED]))
    def get_stuck(self, n, state):
        rows = [row for row in self.own_rules() if row.rule.state is RequestState.MOVING]
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

    def own_rules(self):
        """Return our rules for this pool."""
        prefix = self.world.policy.prefix
        return [row for row in self.world.stager.own_rules() if row.rule.tag.startswith(prefix)]

    @invariant()
    def no_order_breaks_a_law(self):
        assert not getattr(self, "violations", [])

    @invariant()
    def no_limit_is_exceeded(self):
        if not hasattr(self, "world"):
            return
        rows = [row for row in self.own_rules() if row.kind is StagingKind.STAGE]
        moving = [row for row in rows if row.rule.state is not RequestState.DONE]
        assert sum(row.size.bytes for row in rows) <= LIMITS.total_bytes
        for site in SITES:
            to_site = [row.size for row in moving if row.rule.site == site]
            assert sum(size.bytes for size in to_site) <= LIMITS.site_bytes
            assert SPACE[site].free_bytes - sum(size.bytes for size in to_site) >= LIMITS.floor_bytes
        pins = [row for row in self.own_rules() if row.kind is StagingKind.PIN]
        assert sum(row.size.bytes for row in pins) <= LIMITS.pin_bytes

    @invariant()
    def no_user_no_tape_and_no_hour_is_exceeded_in_the_ledger(self):
        if not hasattr(self, "world"):
            return
        ledger, now = self.world.ledger, self.world.clock.now
        for site in SITES:
            from_tape = [one for one in ledger.entries.values() if one.source == site and one.is_in_flight]
            assert sum(one.bytes for one in from_tape) <= LIMITS.source_bytes
        for user in USERS:
            mine = [one for one in ledger.entries.values() if one.user == user and one.is_in_flight]
            assert sum(one.bytes for one in mine) <= LIMITS.user_bytes
        recent = [one for one in ledger.batches if now - one.asked_at < timedelta(hours=1)]
        assert len(recent) <= LIMITS.hour_requests

    @invariant()
    def no_dataset_has_two_requests_of_ours_in_flight(self):
        if not hasattr(self, "world"):
            return
        moving = [
            row.rule.did
            for row in self.own_rules()
            if row.kind is StagingKind.STAGE and row.rule.state is RequestState.MOVING
        ]
        assert len(moving) == len(set(moving))

    @invariant()
    def nothing_of_others_is_touched(self):
        if not hasattr(self, "world"):
            return
        self.world.stager.own_rules()  # ends the rules whose lifetime is over
        now, rules = self.world.clock.now, self.world.stager.rules
        alive = {handle for handle, (_, ends, _) in self.foreign.items() if ends is None or now < ends}
        assert self.foreign.keys() & rules.keys() == alive
        for handle in alive:
            rule = rules[handle].rule
            assert (rule.account, rule.expires_at, rule.tag) == self.foreign[handle]

    @invariant()
    def each_request_of_ours_ends(self):
        if not hasattr(self, "world"):
            return
        latest = self.world.clock.now + self.world.policy.times.max_lifetime
        for row in self.own_rules():
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
