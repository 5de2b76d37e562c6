"""Estimates of the model against those that the daemon computes for the same pool."""

from dataclasses import dataclass

from hypothesis import event, given, settings
from hypothesis import strategies as st

from hydrator.diagnostics.replay.estimates import ModelEstimates
from hydrator.diagnostics.replay.expressions import Matcher
from hydrator.diagnostics.replay.lines import AdBatch, EntryNumbers, JobLine, SiteState, VerdictCache
from hydrator.diagnostics.replay.links import SharedLink, build_link
from hydrator.diagnostics.replay.matching import LineTable
from hydrator.diagnostics.replay.model import InputData, JobClass, PoolRules, PoolSite
from hydrator.domain.model import Site, to_unix
from hydrator.domain.pool_ports import IdleJobs, RunningJobs, SiteSlots
from hydrator.reconcile.estimates.estimate import EstimatePolicy, Estimation
from tests.factories import NOON
from tests.unit.reconcile.estimates import worlds as daemon

from .worlds import AUTO, evaluator, workload

NAMES = tuple(Site(name) for name in "ABC")
RUN = 100
SIZES = (3 * 10**9, 11 * 10**9, 40 * 10**9)
"""Sizes that are far from each other, so that each set has a group of its own."""


@dataclass(frozen=True)
class Pool:
    """A pool in words that both sides understand: machines and cores, homes of the sets, and jobs.

    ``running`` has sites, sets and ages; ``waiting`` the number of jobs by set; ``rates`` those of pairs.
    """

    machines: tuple[int, ...]
    machine_jobs: int
    cores: int
    homes: tuple[frozenset[Site], ...]
    running: tuple[tuple[Site, int, int], ...]
    waiting: tuple[int, ...]
    rates: dict[tuple[Site, Site], float | None]

    def room(self, site: Site) -> int:
        return self.machines[NAMES.index(site)] * self.machine_jobs


@st.composite
def pools(draw) -> Pool:
    # each set has other homes: the model adds up the jobs of equal homes, which rounds in another order
    places = st.frozensets(st.sampled_from(NAMES), min_size=1)
    homes = draw(st.lists(places, min_size=1, max_size=3, unique=True))
    machines = draw(st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(0, 4)))
    machine_jobs = draw(st.integers(1, 2))
    running = []
    for site, count in zip(NAMES, machines, strict=True):
        for _ in range(draw(st.integers(0, count * machine_jobs))):
            number = draw(st.integers(0, len(homes) - 1))
            # a job elsewhere has just begun to read
            running.append((site, number, draw(st.integers(0, 85)) if site in homes[number] else 0))
    pairs = [(one, other) for one in NAMES for other in NAMES if one != other]
    return Pool(
        machines,
        machine_jobs,
        draw(st.integers(1, 2)),
        tuple(homes),
        tuple(running),
        tuple(draw(st.integers(0, 40)) for _ in homes),
        {pair: draw(st.sampled_from([None, 1e7, 1e8, 1e9])) for pair in pairs},
    )


POLICY = EstimatePolicy(max_readers_per_source=3, portion=3.0)


def told_by_daemon(pool: Pool) -> Estimation:
    """Return what the daemon computes of *pool*, with a dataset for each set."""
    names = [f"t:{number}" for number in range(len(pool.homes))]
    slots = []
    for site in NAMES:
        busy = sum(each[0] == site for each in pool.running)
        for _ in range(pool.machines[NAMES.index(site)]):
            used = min(busy, pool.machine_jobs)
            busy -= used
            slots.append(
                SiteSlots(site, pool.machine_jobs * pool.cores, (pool.machine_jobs - used) * pool.cores)
            )
    world = daemon.World(
        {
            site: [name for name, home in zip(names, pool.homes, strict=True) if site in home]
            for site in NAMES
        },
        tuple(slots),
        tuple(
            IdleJobs(count, daemon.key(name), (), "ann", pool.cores, RUN)
            for name, count in zip(names, pool.waiting, strict=True)
            if count
        ),
        tuple(
            RunningJobs((to_unix(NOON) - age,), site, daemon.key(names[number]), (), "ann", pool.cores, RUN)
            for site, number, age in pool.running
        ),
        dict(zip(names, SIZES, strict=False)),
        tuple((name,) for name in names),
    )
    rates = daemon.Rates(None, pool.rates)
    return world.estimate(rates, max_readers_per_source=3, portion=3.0)


def line_table(sites: list[PoolSite], *classes: JobClass) -> LineTable:
    verdicts = VerdictCache(EntryNumbers(), lambda mode: Matcher(evaluator(), mode))
    return LineTable(workload(sites, *[(0, RUN, one) for one in classes]), AUTO, verdicts)


def told_by_model(pool: Pool) -> tuple[AdBatch, list[JobLine]]:
    """Return the model's ads of *pool*, and the line of each set."""
    sites = [
        PoolSite(
            name,
            pool.machines[index],
            pool.machine_jobs * pool.cores,
            None,
            {other: rate for (source, other), rate in pool.rates.items() if source == name and rate},
        )
        for index, name in enumerate(NAMES)
    ]
    classes = [
        JobClass("ann", pool.cores, (InputData(size, homes, str(size)),), None, RUN)
        for size, homes in zip(SIZES, pool.homes, strict=False)
    ]
    lines = line_table(sites, *classes)
    states = [
        SiteState(
            number,
            site,
            build_link(site),
            dict.fromkeys(range(site.machine_count), site.machine_cores),
            site.cores,
        )
        for number, site in enumerate(sites)
    ]
    rules = PoolRules(estimates=POLICY, has_learned_runs=False)
    model = ModelEstimates(states, rules, 3600.0)
    for job, (name, number, age) in enumerate(pool.running):
        site, line = states[NAMES.index(name)], lines.line_of_class[number]
        machine = next(one for one, free in site.free_cores.items() if free)
        site.free_cores[machine] -= pool.cores
        site.free_total -= pool.cores
        model.begin_run(line, site, -age)
        if name not in pool.homes[number]:
            read(pool, states, job, name, number)
    for line, count in zip(lines.line_of_class, pool.waiting, strict=True):
        line.waiting.extend(range(count))
        line.user.lines += [line] if count else []
    users, groups = lines.users.values(), [line.group for line in lines.lines]
    return model.publish(0.0, users, groups, are_sets_new=True), lines.line_of_class


def read(pool: Pool, states: list[SiteState], job: int, name: Site, number: int) -> None:
    """Let *job* read the set *number* at *name* from the source that the daemon would conclude."""
    rates = {home: pool.rates[home, name] for home in pool.homes[number]}
    known = [(rate, home) for home, rate in rates.items() if rate]
    if known:
        link = states[NAMES.index(max(known)[1])].link
        assert link is not None
        link.add_reader(job, SIZES[number], 0.0)


@settings(max_examples=300, deadline=None)
@given(pools())
def test_model_publishes_what_the_daemon_publishes(pool):
    theirs = told_by_daemon(pool).estimates
    if theirs is None:  # no rate at all: the model has no estimates either, see test_cases.py
        assert not any(pool.rates.values())
        return
    ads, lines = told_by_model(pool)
    for index, site in enumerate(NAMES):
        daemons, models = theirs.sites[site], ads.estimates[index]
        assert models.own_queue_seconds == daemons.own_queue_seconds
        for number, line in enumerate(lines):
            one, other = daemons.by_key.get(daemon.key(f"t:{number}")), models.by_key.get(line.group.key)
            event(f"known: {one is not None}, read: {one is not None and one.read_seconds is not None}")
            assert (one is None) == (other is None)
            if one is not None and other is not None and site not in pool.homes[number]:
                assert other.read_seconds == one.read_seconds
                # the daemon supposes one core of a job that it has not seen; the model knows all classes
                if pool.waiting[number] or pool.cores == 1:
                    assert other.queue_seconds == one.queue_seconds


def test_busy_pool_at_rest_keeps_its_reads():
    """Readers that come and go use up the stock of changes; then the ads keep the class of the reads."""
    sites = [PoolSite(NAMES[0], 1, 1, 1e8), PoolSite(NAMES[1], 9, 1)]
    one = JobClass("ann", 1, (InputData(SIZES[0], frozenset({NAMES[0]}), "one"),), None, RUN)
    line = line_table(sites, one).lines[0]
    states = [SiteState(n, each, None, {0: each.cores}, each.cores) for n, each in enumerate(sites)]
    model = ModelEstimates(states, PoolRules(publish_seconds=1.0), RUN)
    reads = []
    for cycle in range(40):
        link = states[0].link = SharedLink(1e8)
        for job in range(6 * (cycle % 2)):
            link.add_reader(job, SIZES[0], 0.0)
        ads = model.publish(float(cycle), [], [line.group], are_sets_new=False)
        reads.append(ads.estimates[1].by_key[line.group.key].read_seconds)
    assert len({*reads[:3]}) > 1
    assert len({*reads[10:]}) == 1
    # without waiting jobs of the group, its set stays in the ads, so its return rewrites nothing
    states[0].link = SharedLink(1e8)
    model.publish(40.0, [], [], are_sets_new=False)
    ads = model.publish(41.0, [], [line.group], are_sets_new=False)
    assert ads.estimates[1].by_key[line.group.key].read_seconds == reads[-1] > reads[0]
