"""Laws of the replay: whatever the pool, the jobs and the policy, its schedule could have happened."""

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from hydrator.diagnostics.replay.expressions import TurnRules
from hydrator.diagnostics.replay.lines import FREE_VERDICT
from hydrator.diagnostics.replay.links import SharedLink
from hydrator.diagnostics.replay.model import (
    OFF,
    RECORDED,
    InputData,
    JobClass,
    PolicyChoice,
    PoolRules,
    PoolSite,
    Workload,
)
from hydrator.diagnostics.replay.statistics import summarize
from hydrator.domain.model import Site
from hydrator.reconcile.estimates.estimate import EstimatePolicy
from tests.unit.diagnostics.replay import worlds
from tests.unit.diagnostics.replay.worlds import play

NAMES = [Site(name) for name in "ABC"]
SITES = st.tuples(
    *(
        st.builds(
            PoolSite,
            st.just(name),
            st.integers(0, 3),
            st.integers(1, 3),
            st.sampled_from([None, 1.0, 50.0]),
            st.dictionaries(st.sampled_from(NAMES), st.sampled_from([2.0, 9.0]), max_size=2),
        )
        for name in NAMES
    )
)
DATA = st.builds(
    InputData,
    st.integers(0, 500),
    st.frozensets(st.sampled_from(NAMES), min_size=1),
    st.sampled_from(["d1", "d2"]),
)
MODES = st.sampled_from(
    [
        PolicyChoice("off", "off"),
        PolicyChoice("require", "require"),
        PolicyChoice("prefer", "prefer", 7, 5),
        PolicyChoice("wait", "wait", 40, 5),
        PolicyChoice("auto", "auto", 13, 5),
    ]
)
POLICIES = MODES | st.just(RECORDED)
CLASSES = st.builds(
    JobClass,
    st.sampled_from(["alice", "bob"]),
    st.integers(1, 3),
    st.lists(DATA, max_size=2).map(tuple),
    st.none() | MODES,
    st.none() | st.sampled_from([1.0, 600.0]),
)
TIMES = st.floats(0, 100, allow_nan=False).map(lambda value: round(value, 2))
JOBS = st.lists(
    st.tuples(TIMES, st.floats(0.5, 30).map(lambda value: round(value, 2)), CLASSES), min_size=1, max_size=25
)
RULES = st.builds(
    PoolRules,
    cycle_seconds=st.sampled_from([1.0, 7.0, 60.0]),
    cycle_delay_seconds=st.sampled_from([0.0, 5.0, 20.0]),
    publish_seconds=st.sampled_from([1.0, 11.0, 60.0]),
    delivery_seconds=st.sampled_from([0.0, 3.0, 150.0]),
    claim_worklife_seconds=st.sampled_from([0.0, 10.0, 1200.0]),
    gap_seconds=st.sampled_from([0.0, 1.0]),
    has_leftovers=st.booleans(),
    is_claim_kept_by_rank=st.booleans(),
    is_published_beforehand=st.booleans(),
    settle_seconds=st.sampled_from([0.0, 20.0, 600.0]),
    estimates=st.builds(
        EstimatePolicy,
        is_enabled=st.booleans(),
        max_readers_per_source=st.sampled_from([1, 10]),
        valid=st.sampled_from([timedelta(seconds=5), timedelta(minutes=10)]),
    ),
    has_learned_runs=st.booleans(),
    turns=st.sampled_from([None, TurnRules(4, 8), TurnRules()]),
)
ANY_WORLD = given(SITES, JOBS, POLICIES, RULES, st.integers(0, 3))
LAWS = settings(max_examples=150, deadline=None)


def workload(sites, *jobs) -> Workload:
    """Build a workload that begins at a time that differs with the jobs; waits are rounded by that time."""
    return replace(worlds.workload(sites, *jobs), begin_unix=1_700_000_000 + int(jobs[0][0] + jobs[0][1]))


def lone_read(sites, one: JobClass, site: PoolSite) -> tuple[int, float]:
    """Return what a job reads over links at *site*: the bytes, and the seconds of these reads without others.

    A read with a source of unknown rate takes no time, and needs no link.
    """
    linked, seconds = 0, 0.0
    for each in one.inputs:
        rates = [source.rate_to(site.name) for source in sites if source.name in each.holders]
        if site.name not in each.holders and all(rates):
            linked += each.byte_count
            seconds += each.byte_count / max(rates)
    return linked, seconds


@LAWS
@ANY_WORLD
def test_no_job_starts_before_its_submission_or_ends_before_it_has_read_and_computed(
    sites, jobs, policy, rules, seed
):
    jobs_ = workload(sites, *jobs)
    run = play(jobs_, policy, rules, seed)
    for job, site in enumerate(run.site_of):
        if site >= 0:
            assert run.started[job] >= jobs_.submitted[job]
            _, read = lone_read(sites, jobs_.classes[jobs_.class_of[job]], sites[site])
            assert run.ended[job] >= run.started[job] + read + jobs_.compute_seconds[job] - 1e-6


@LAWS
@ANY_WORLD
def test_no_machine_runs_more_jobs_than_it_has_cores(sites, jobs, policy, rules, seed):
    jobs_ = workload(sites, *jobs)
    run = play(jobs_, policy, rules, seed)
    changes = defaultdict(list)
    for job, site in enumerate(run.site_of):
        if site >= 0:
            cores = jobs_.classes[jobs_.class_of[job]].cores
            machine = run.machine_of[job]
            assert 0 <= machine < sites[site].machine_count
            changes[site, machine] += [
                (round(run.started[job], 6), cores),
                (round(run.ended[job], 6), -cores),
            ]
    for (site, _), each in changes.items():
        used = 0
        for _, change in sorted(each):
            used += change
            assert used <= sites[site].machine_cores


@LAWS
@ANY_WORLD
def test_bytes_are_conserved(sites, jobs, policy, rules, seed):
    jobs_ = workload(sites, *jobs)
    run = play(jobs_, policy, rules, seed)
    missing = sum(
        jobs_.classes[number].missing_at(sites[site].name)
        for number, site in zip(jobs_.class_of, run.site_of, strict=True)
        if site >= 0
    )
    assert run.bytes_moved == missing
    assert sum(run.links_bytes_read.values()) == sum(
        lone_read(sites, jobs_.classes[number], sites[site])[0]
        for number, site in zip(jobs_.class_of, run.site_of, strict=True)
        if site >= 0
    )
    total = sum(
        jobs_.classes[number].byte_count
        for number, site in zip(jobs_.class_of, run.site_of, strict=True)
        if site >= 0
    )
    result = summarize([run], "seeds")
    assert result.bytes_moved.value == missing
    assert result.share_of_bytes.value == (1 - missing / total if total else None)


@LAWS
@ANY_WORLD
def test_equal_seeds_give_equal_schedules(sites, jobs, policy, rules, seed):
    jobs_ = workload(sites, *jobs)
    one, other = play(jobs_, policy, rules, seed), play(jobs_, policy, rules, seed)
    assert (one.started, one.ended, one.site_of) == (other.started, other.ended, other.site_of)


@LAWS
@ANY_WORLD
def test_require_runs_jobs_only_at_their_data_and_moves_nothing(sites, jobs, policy, rules, seed):
    jobs_ = workload(sites, *jobs)
    run = play(jobs_, PolicyChoice("require", "require"), rules, seed)
    assert run.bytes_moved == 0
    for job, site in enumerate(run.site_of):
        one = jobs_.classes[jobs_.class_of[job]]
        fits = any(each.machine_count and each.machine_cores >= one.cores for each in sites)
        has_home = any(
            one.is_local_at(each.name) and each.machine_count and each.machine_cores >= one.cores
            for each in sites
        )
        assert (site >= 0) == (has_home if one.inputs else fits)


@LAWS
@ANY_WORLD
def test_every_job_that_may_run_anywhere_runs(sites, jobs, policy, rules, seed):
    run = play(workload(sites, *jobs), policy, rules, seed)
    for job, site in enumerate(run.site_of):
        one = run.workload.classes[run.workload.class_of[job]]
        fits = any(each.machine_count and each.machine_cores >= one.cores for each in sites)
        own = (one.policy or OFF) if policy.is_recorded else policy
        if own.mode in {"off", "prefer", "wait", "auto"} or not one.inputs:
            assert (site >= 0) == fits


@LAWS
@ANY_WORLD
def test_jobs_without_data_do_not_depend_on_the_policy(sites, jobs, policy, rules, seed):
    bare = [(at, compute, JobClass(one.user, one.cores)) for at, compute, one in jobs]
    jobs_ = workload(sites, *bare)
    one, other = play(jobs_, policy, rules, seed), play(jobs_, PolicyChoice("off", "off"), rules, seed)
    assert (one.started, one.site_of) == (other.started, other.site_of)
    assert one.evaluation_count == 0
    assert FREE_VERDICT.matches


@LAWS
@given(
    st.lists(st.tuples(TIMES, st.integers(1, 1000)), min_size=1, max_size=20),
    st.sampled_from([0.5, 10.0, 999.0]),
)
def test_link_transfers_all_bytes_at_its_rate_while_it_is_busy(reads, rate):
    link, arrivals, ends = SharedLink(rate), sorted(reads), []
    for job, (at, size) in enumerate(arrivals):
        while (end := link.next_end()) is not None and end <= at:
            ends.append((link.end_read(end), end))
        link.add_reader(job, size, at)
    while (end := link.next_end()) is not None:
        ends.append((link.end_read(end), end))
    total = sum(size for _, size in reads)
    assert link.bytes_read == total
    assert abs(link.busy_seconds * rate - total) <= 1e-6 * total
    assert all(before[1] <= after[1] + 1e-9 for before, after in pairwise(ends))
    assert Counter(job for job, _ in ends) == Counter(range(len(reads)))
    for job, end in ends:
        assert end >= arrivals[job][0] + arrivals[job][1] / rate - 1e-6
