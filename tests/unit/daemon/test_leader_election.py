"""Leader election: the heartbeats at the collector decide which daemon publishes."""

import random
from datetime import timedelta

import pytest

from hydrator.daemon.leader_election import LeaderElection
from hydrator.domain.pool_ports import Peer

AFTER = 30


class Pool:
    """A collector, a clock, and daemons that send a heartbeat when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.ads: dict[str, tuple[int, float]] = {}
        self.daemons: dict[str, LeaderElection] = {}

    def start(self, name: str) -> LeaderElection:
        clock = lambda: self.now  # noqa: E731
        self.daemons[name] = LeaderElection(name, timedelta(seconds=AFTER), clock, lambda: int(self.now))
        return self.daemons[name]

    def beat(self, *names: str) -> None:
        for name in names:
            one = self.daemons[name]
            announced_since = one.announced_leader_since
            self.ads[name] = (announced_since, self.now)
            peers = [Peer(n, since, self.now - heard) for n, (since, heard) in self.ads.items()]
            one.observe_peers(peers, announced_since=announced_since, sent_at=self.now)

    def go(self, *names: str, seconds: int) -> None:
        for _ in range(0, seconds, 10):
            self.now += 10
            self.beat(*names)

    def leaders(self, *names: str) -> list[str]:
        return [name for name in names or self.daemons if self.daemons[name].is_leader]


@pytest.fixture
def pool():
    return Pool()


def test_single_daemon_leads_after_one_lease_duration(pool):
    one = pool.start("a")
    pool.beat("a")
    assert (one.is_leader, one.standby_reason) == (
        False,
        "on standby: no daemon publishes now; this daemon will publish within 30 s",
    )
    pool.go("a", seconds=20)
    assert not one.is_leader
    pool.go("a", seconds=10)
    assert (one.is_leader, one.standby_reason) == (True, None)


def test_of_two_that_start_together_one_leads_and_the_other_names_it(pool):
    pool.start("a")
    other = pool.start("b")
    pool.go("b", "a", seconds=300)
    assert pool.leaders() == ["a"]
    assert other.standby_reason == "on standby: the daemon a publishes"


def test_the_other_takes_over_when_the_leader_is_silent_and_not_before(pool):
    pool.start("a")
    pool.start("b")
    pool.go("a", "b", seconds=100)
    pool.go("b", seconds=30)
    assert pool.leaders() == ["a"], "dead, though nobody can be sure yet"
    pool.go("b", seconds=40)
    assert pool.daemons["b"].is_leader


def test_former_leader_that_returns_stands_by(pool):
    pool.start("a")
    pool.start("b")
    pool.go("a", "b", seconds=100)
    pool.go("b", seconds=100)
    pool.start("a")
    pool.go("a", "b", seconds=300)
    assert pool.leaders() == ["b"]


def test_a_leader_that_was_cut_off_gives_way_to_the_one_that_took_over(pool):
    pool.start("a")
    pool.start("b")
    pool.go("a", "b", seconds=100)
    pool.go("b", seconds=100)
    assert pool.leaders() == ["a", "b"], "a could not know"
    pool.go("a", "b", seconds=10)
    assert pool.leaders() == ["b"]


def test_two_that_lead_at_once_become_one_the_one_that_led_first(pool):
    one, other = pool.start("a"), pool.start("b")
    one.leads_since, other.leads_since = 990, 980
    pool.go("a", "b", "a", seconds=10)
    assert pool.leaders() == ["b"]


def test_restarted_collector_without_ads_causes_no_immediate_takeover(pool):
    pool.start("a")
    pool.start("b")
    pool.go("a", "b", seconds=100)
    pool.ads.clear()
    pool.go("b", "a", seconds=20)
    assert pool.leaders() == ["a"]


def test_of_three_the_next_by_name_takes_over(pool):
    for name in "abc":
        pool.start(name)
    pool.go("c", "b", "a", seconds=100)
    pool.go("c", "b", seconds=200)
    assert pool.leaders("b", "c") == ["b"]


@pytest.mark.parametrize("seed", range(50))
def test_whoever_is_late_or_dies_in_the_end_exactly_one_leads(seed):
    chance, pool = random.Random(seed), Pool()
    for name in "abc":
        pool.start(name)
    for _ in range(100):
        pool.now += chance.choice([1, 10, 40])
        for name in chance.sample("abc", chance.randint(0, 3)):
            if chance.random() < 0.05:
                pool.start(name)
            pool.beat(name)
        if chance.random() < 0.05:
            pool.ads.clear()
    alive = chance.sample("abc", chance.randint(1, 3))
    pool.go(*alive, seconds=200)
    assert len(pool.leaders(*alive)) == 1
    pool.go(*alive, seconds=200)
    assert len(pool.leaders(*alive)) == 1


def test_two_daemons_never_hold_a_lease_at_the_same_time(pool):
    chance, held = random.Random(16), 0
    for name in ("a", "b", "c"):
        pool.start(name)
    for _ in range(3000):
        pool.now += chance.choice([1, 5, 10, 40])
        alive = [name for name in ("a", "b", "c") if chance.random() < 0.6]
        pool.beat(*alive)
        pool.now += chance.choice([0, 3])
        holders = [name for name, one in pool.daemons.items() if one.lease_seconds_left > 0]
        assert len(holders) <= 1, holders
        held += len(holders)
    assert held > 300


def test_the_lease_counts_from_before_the_heartbeat_was_sent(pool):
    one = pool.start("a")
    pool.go("a", seconds=30)
    assert one.is_leader
    assert one.lease_seconds_left <= 0  # it has not announced yet that it leads
    pool.go("a", seconds=10)
    assert one.lease_seconds_left == AFTER
    pool.now += 20
    # the collector took 8 s to answer
    one.observe_peers([], announced_since=one.announced_leader_since, sent_at=pool.now - 8)
    assert one.lease_seconds_left == AFTER - 8
    pool.now += 30
    assert one.is_leader
    assert one.lease_seconds_left < 0


def test_a_leader_knows_how_long_it_has_led(pool):
    one = pool.start("a")
    assert one.leads_for_seconds == 0
    pool.go("a", seconds=90)
    assert one.leads_for_seconds == 60
