"""The laws of many cycles: whatever happens in whatever order, a witness finds nothing false.

Two catalogues, two schedds, a publisher that forgets and one that does not,
a real state on disk with its orders. Hypothesis chooses what happens:
catalogues fail, lie, shrink, go blind, lose sites; jobs come and go; publishers refuse
and expire; the daemon restarts, and loses its state; operators approve, roll back, retire.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hydrator.domain.model import (
    Did,
    QueuedJobs,
    Replica,
    ReplicaState,
    ScheddDemand,
    Site,
    Survey,
    Unseen,
    Withdraw,
)
from hydrator.reconcile.evaluate import ReconcilePolicy
from hydrator.reconcile.publish import Policy, PublishTarget, ads_to_send
from hydrator.reconcile.reconciler import Reconciler
from hydrator.reconcile.snapshot.breaker import BreakerLimits
from hydrator.reconcile.state import Approve
from hydrator.state.command_files import CommandQueue
from hydrator.state.store import Store
from tests.factories import HOUR, MINUTE, NOON
from tests.faults.length import chosen
from tests.memory import MemoryCatalogue, MemoryPublisher, MemoryQueues
from tests.properties.witness import Witness

pytestmark = pytest.mark.outside

SITES = tuple(Site(name) for name in "ABC")
DIDS = tuple(Did(f"s:{n}") for n in range(8))
SPEAKS_FOR = {"one": SITES[:2], "two": SITES[1:]}
KEEP = 2 * HOUR
RULES = ReconcilePolicy(
    keep_demand=KEEP,
    breaker_limits=BreakerLimits(confirming_polls=2, min_datasets=3, poll_spacing=MINUTE / 2),
)

catalogues = st.sampled_from(sorted(SPEAKS_FOR))
sites = st.sampled_from(SITES)
some_dids = st.frozensets(st.sampled_from(DIDS))
schedds = st.sampled_from(["ap1", "ap2"])
soon = st.sampled_from([MINUTE / 3, MINUTE, 2 * MINUTE])
later = st.sampled_from([10 * MINUTE, HOUR, 3 * HOUR, 7 * HOUR])


ROOM = next((path for path in ("/dev/shm",) if os.access(path, os.W_OK)), None)
"""In memory where that can be had, so that thousands of cycles wait for no disk."""


class Overheard(MemoryCatalogue):
    """A catalogue whose last answer can be looked at."""

    answer: Survey | None = None

    def read(self, dids):
        self.answer = None
        self.answer = super().read(dids)
        return self.answer


class Laws(RuleBasedStateMachine):
    """One daemon and its world."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=ROOM))
        self.now = NOON
        self.rules = RULES
        self.catalogues = {
            name: Overheard(name, sites=here, clock=lambda: self.now) for name, here in SPEAKS_FOR.items()
        }
        self.queues = MemoryQueues()
        self.collector = MemoryPublisher("collector", clock=lambda: self.now)
        self.files = MemoryPublisher("files", clock=lambda: self.now)
        self.witness = Witness()
        self.unheard: set[str] = set()
        self.lost_at: datetime | None = None
        self.shown_before: dict[tuple[str, Site], object] = {}
        self.jobs: dict[tuple[str, Did], datetime] = {}
        self.saved_jobs = dict(self.jobs)

    @initialize(patterns=st.booleans())
    def begin(self, patterns: bool) -> None:
        if patterns:
            self.rules = ReconcilePolicy(
                patterns=("s:*",), keep_demand=KEEP, breaker_limits=RULES.breaker_limits
            )
        for name in self.catalogues:
            self.recovers(name)
        self.queue("ap1", DIDS)
        self.start()
        self.poll()

    def start(self) -> None:
        self.store = Store.open_to_write(self.folder)
        self.orders = CommandQueue(self.folder)
        self.orders.prepare()
        self.reload()
        self.asks_schedds()

    def reload(self) -> None:
        """A new cycle over the state on disk, as at a start and after SIGHUP."""
        self.cycle = Reconciler(
            catalogues=list(self.catalogues.values()),
            queues=self.queues,
            targets=[
                PublishTarget(self.collector, Policy(refresh_after=5 * MINUTE, has_expiring_ads=True)),
                PublishTarget(self.files, Policy(refresh_after=MINUTE, has_expiring_ads=False)),
            ],
            policy=self.rules,
            clock=lambda: self.now,
            state=self.store.load(),
            store=self.store,
            commands=self.orders,
        )
        self.jobs = dict(self.saved_jobs)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.folder)

    # ---- polls, and the laws

    def poll(self, after: timedelta = MINUTE) -> None:
        self.now += after
        report = self.cycle.run()
        self.saved_jobs = dict(self.jobs)
        assert report.save_error is None
        assert self.store.load() == self.cycle.state
        assert self.wanted_by_jobs() <= report.demand.dids
        answers = {n: c.answer for n, c in self.catalogues.items() if c.answer and not c.is_broken}
        self.witness.hear(answers, report.demand.dids, self.now)
        self.witness.judge_departures(report, self.rules)
        self.witness.judge_holds(report)
        self.witness.judge_thought(report, self.rules)
        self.publishers_show_what_was_concluded(report)
        self.a_lost_state_spoils_no_ad(report)
        self.the_next_plan_rests(report)

    def publishers_show_what_was_concluded(self, report) -> None:
        for publisher, outcome in zip((self.collector, self.files), report.results, strict=True):
            self.witness.judge_shown(publisher.name, publisher.ads)
            if publisher.is_broken:
                assert outcome.error
                continue
            assert (outcome.error, outcome.unconfirmed_sites) == (None, ())
            for site, ad in report.evaluation.ads.items():
                shown = publisher.ads[site]
                assert (shown.generation, shown.content) == (ad.generation, ad.content)
            for site in (
                publisher.ads.keys() | set(self.witness.listed) - report.evaluation.withheld_reasons.keys()
            ):
                assert (site in publisher.ads) != self.rules.is_retired(site)

    def a_lost_state_spoils_no_ad(self, report) -> None:
        """What was shown stays while a schedd has not told what it wants since, for a bounded time."""
        if self.lost_at is None:
            return
        names = self.queues.queues.keys()
        if self.now - self.lost_at >= RULES.max_withhold or not self.unheard & names:
            self.lost_at, self.shown_before = None, {}
            return
        for publisher in (self.collector, self.files):
            for site, ad in publisher.ads.items():
                if (publisher.name, site) in self.shown_before and not publisher.is_broken:
                    assert ad.content == self.shown_before[publisher.name, site]

    def the_next_plan_rests(self, report) -> None:
        again = self.cycle.plan()
        if again.demand.dids != report.demand.dids:
            return  # a pattern finds less now than in the poll before, so other datasets are wanted
        assert {s: a.generation for s, a in again.evaluation.ads.items()} == {
            s: a.generation for s, a in report.evaluation.ads.items()
        }
        for outcome in again.results:
            assert not any(isinstance(action, Withdraw) for action in outcome.plan)
            assert not ads_to_send(outcome.plan)

    def wanted_by_jobs(self) -> set[Did]:
        return {did for _, did in self.jobs}

    @rule(after=soon, times=st.integers(1, 4))
    def polls(self, after, times) -> None:
        for _ in range(times):
            self.poll(after)

    @rule(after=later)
    def polls_much_later(self, after) -> None:
        self.poll(after)

    # ---- catalogues

    @rule(name=catalogues)
    def recovers(self, name) -> None:
        one = self.catalogues[name]
        one.is_broken, one.unseen_reasons, one.unreachable_sites = False, {}, frozenset()
        one.sites = frozenset(SPEAKS_FOR[name])
        one.replicas = tuple(
            Replica(did, site, ReplicaState.COMPLETE) for site in SPEAKS_FOR[name] for did in DIDS
        )

    @rule(name=catalogues, broken=st.booleans())
    def fails(self, name, broken) -> None:
        self.catalogues[name].is_broken = broken

    @rule(name=catalogues, dids=some_dids)
    def cannot_tell_of_datasets(self, name, dids) -> None:
        self.catalogues[name].unseen_reasons = dict.fromkeys(dids, "timeout")

    @rule(name=catalogues, blind=st.frozensets(sites, max_size=2))
    def cannot_tell_of_sites(self, name, blind) -> None:
        self.catalogues[name].unreachable_sites = blind & frozenset(SPEAKS_FOR[name])

    @rule(site=sites, keeps=some_dids | st.just(frozenset()))
    def shrinks(self, site, keeps) -> None:
        """Both catalogues list less at *site*; whether it is true they do not say."""
        for one in self.catalogues.values():
            one.replicas = tuple(r for r in one.replicas if r.site != site or r.did in keeps)
        self.poll()

    @rule(name=catalogues)
    def lists_nothing(self, name) -> None:
        self.catalogues[name].replicas = ()
        self.poll()

    @rule(name=catalogues, site=sites)
    def names_a_site_no_longer(self, name, site) -> None:
        one = self.catalogues[name]
        one.sites -= {site}
        one.replicas = tuple(r for r in one.replicas if r.site != site)
        self.poll()

    @rule(name=catalogues, site=sites, dids=some_dids, state=st.sampled_from(ReplicaState))
    def lists(self, name, site, dids, state) -> None:
        one = self.catalogues[name]
        if site in one.sites:
            stays = tuple(r for r in one.replicas if r.site != site or r.did not in dids)
            one.replicas = stays + tuple(Replica(did, site, state) for did in sorted(dids))

    # ---- jobs

    def queue(self, schedd, dids) -> None:
        wants = tuple(QueuedJobs((did,), 1) for did in sorted(dids))
        self.queues.queues = {**self.queues.queues, schedd: ScheddDemand(self.now, wants)}

    @rule(schedd=schedds, dids=some_dids)
    def jobs_are(self, schedd, dids) -> None:
        self.queue(schedd, dids)
        self.asks_schedds()

    @rule(schedd=schedds, for_long=st.booleans())
    def a_schedd_is_down(self, schedd, for_long) -> None:
        self.queues.queues = {**self.queues.queues, schedd: Unseen("down")}
        if for_long:
            self.asks_schedds()
            self.now += 2 * KEEP
            self.asks_schedds()
            self.poll()

    @rule(broken=st.booleans())
    def the_collector_names_no_schedds(self, broken) -> None:
        self.queues.is_broken = broken

    @rule()
    def asks_schedds(self) -> None:
        answers = {} if self.queues.is_broken else self.queues.queues
        for schedd, answer in answers.items():
            if isinstance(answer, ScheddDemand):
                self.queues.queues = {**self.queues.queues, schedd: ScheddDemand(self.now, answer.job_groups)}
        self.cycle.refresh_demand()
        self.unheard -= {schedd for schedd, answer in answers.items() if isinstance(answer, ScheddDemand)}
        self.note_jobs(answers)

    def note_jobs(self, answers: Mapping[str, ScheddDemand | Unseen]) -> None:
        """A dataset stays wanted for KEEP after a schedd last named it, longer while that cannot say."""
        for schedd, answer in answers.items():
            if isinstance(answer, ScheddDemand):
                for group in answer.job_groups:
                    self.jobs[schedd, Did(group.datasets[0])] = self.now
        if self.queues.is_broken:
            return
        for (schedd, did), named in list(self.jobs.items()):
            if isinstance(answers.get(schedd), ScheddDemand) and self.now - named >= KEEP:
                del self.jobs[schedd, did]

    @rule()
    def all_jobs_end_and_are_forgotten(self) -> None:
        self.queues.is_broken = False
        self.queues.queues = {name: ScheddDemand(self.now, ()) for name in ("ap1", "ap2")}
        self.now += KEEP
        self.asks_schedds()
        self.poll()

    # ---- publishers, and the daemon

    @rule(refuses=st.sampled_from(["collector", "files", "both", "none"]))
    def publishers_refuse(self, refuses) -> None:
        self.collector.is_broken = refuses in ("collector", "both")
        self.files.is_broken = refuses in ("files", "both")

    @rule()
    def the_collector_forgets(self) -> None:
        self.collector.ads = {}

    @rule()
    def restarts(self) -> None:
        self.store.close()
        self.start()
        self.poll()

    @rule()
    def loses_its_state(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.witness.forget_all()
        self.saved_jobs = {}
        shown = (self.collector, self.files)
        everywhere = set(self.collector.ads) & set(self.files.ads)
        refused = any(publisher.is_broken for publisher in shown)
        self.unheard, self.lost_at = set(self.queues.queues), None if refused else self.now
        self.shown_before = {(p.name, site): p.ads[site].content for p in shown for site in everywhere}
        self.start()
        self.poll()

    @rule(schedd=schedds)
    def loses_its_state_while_a_schedd_is_down(self, schedd) -> None:
        self.publishers_refuse("none")
        self.poll()
        self.a_schedd_is_down(schedd, for_long=False)
        self.loses_its_state()

    # ---- operators

    @precondition(lambda self: self.cycle.state.held_losses)
    @rule(data=st.data())
    def approves(self, data) -> None:
        held = self.store.load().held_losses
        site = data.draw(st.sampled_from(sorted(held)))
        self.orders.submit(Approve(site, frozenset(held[site].missing_polls)))

    @rule(retired=st.frozensets(sites, max_size=1))
    def retires(self, retired) -> None:
        self.rules = ReconcilePolicy(
            patterns=self.rules.patterns,
            retired=retired,
            keep_demand=KEEP,
            breaker_limits=self.rules.breaker_limits,
        )
        self.reload()


def test_whatever_happens_in_whatever_order_the_laws_hold():
    run_state_machine_as_test(
        Laws,
        settings=settings(
            max_examples=chosen(100, 3000),
            stateful_step_count=30,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
