"""Background queries to Rucio that no poll waits for (on a stand-in)."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace

import pytest

from adapters.rucio.background import BackgroundVerifier
from adapters.rucio.catalogue import RucioCatalogue
from hydrator.domain.errors import CatalogueUnreachable
from hydrator.domain.model import Did, ReplicaState, Seen, Unseen
from testbed.patience import wait_for
from testbed.rucio_standin import FILES, RucioStandIn
from tests.rucio_fixtures import catalogues

DIDS = [Did(f"lofar:L{n:02}") for n in range(40)]
SOON = timedelta(seconds=1)


class Spoiling(RucioStandIn):
    """A stand-in whose files go bad without a recount, and that delays requests with ``silent`` in them."""

    def __init__(self) -> None:
        super().__init__({"UK-DISK": "UK"})
        self.holdings = {did: {"UK-DISK": "available"} for did in DIDS}
        self.bad: set[str] = set()
        self.silent = "nothing"
        self.asked: list[str] = []
        self.over = threading.Event()
        self.held_up = threading.Event()

    def answer(self, path, query, body):
        self.asked.append(path)
        if self.silent in path:
            self.held_up.set()
            self.over.wait(60)
        status, rows = super().answer(path, query, body)
        if path.endswith("/datasets") and path.split("/")[3] in self.bad:
            rows = [{**row, "available_length": FILES - 1} for row in rows]
        return status, rows

    def heal(self) -> None:
        self.silent = "nothing"
        self.over.set()

    def counted(self) -> list[str]:
        return [path.split("/")[3] for path in self.asked if path.endswith("/datasets")]


@pytest.fixture
def server() -> Iterator[Spoiling]:
    with Spoiling() as started:
        yield started
        started.over.set()


@pytest.fixture
def asking(server, tmp_path):
    """Build a catalogue on the stand-in that verifies its counts every second; close it at the end."""
    usual = {"twins_every": None, "calls_per_second": 10_000, "verify_every": SOON}
    with catalogues(url=server.url, token_dir=tmp_path / "tokens", **usual) as make:
        yield make


def states(catalogue: RucioCatalogue) -> dict[Did, ReplicaState | None]:
    """Return the state of each dataset; None where it is unseen."""
    readings = catalogue.read(frozenset(DIDS)).readings
    return {did: seen.replicas[0].state if isinstance(seen, Seen) else None for did, seen in readings.items()}


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "rucio-background"]


@pytest.mark.outside
def test_a_poll_at_rest_counts_nothing_and_all_is_verified_beside_polls(asking, server):
    catalogue = asking()
    assert set(states(catalogue).values()) == {ReplicaState.COMPLETE}
    threading.Event().wait(SOON.total_seconds())  # now all is due
    server.asked.clear()
    assert set(states(catalogue).values()) == {ReplicaState.COMPLETE}
    asked = [path.endswith("/datasets") for path in server.asked]
    assert asked == sorted(asked), "counts begin after the poll"
    wait_for(lambda: set(server.counted()) == {did[6:] for did in DIDS}, 10, "each count is verified")


@pytest.mark.outside
def test_a_file_that_went_bad_without_a_recount_is_found_by_verifying(asking, server):
    catalogue = asking()
    states(catalogue)
    server.bad = {"L07"}
    wait_for(lambda: states(catalogue)["lofar:L07"] is ReplicaState.PARTIAL, 10, "the count is noticed")
    server.bad = set()
    assert set(states(catalogue).values()) == {ReplicaState.COMPLETE}, "what disagrees is counted in the poll"


@pytest.mark.outside
def test_a_count_never_reads_newer_than_the_poll_that_confirmed_it(asking, server):
    catalogue = asking()
    for _ in range(3):
        survey = catalogue.read(frozenset(DIDS))
        assert {reading.as_of for reading in survey.readings.values()} == {survey.started_at}
        threading.Event().wait(0.2)
    assert all(counted.counted_at <= catalogue._clock() for counted in catalogue._counter._counts.values())


@pytest.mark.outside
def test_the_background_starts_no_query_during_a_poll(asking, server):
    catalogue = asking()
    states(catalogue)
    states(catalogue)
    server.silent = "/rses"
    poll = threading.Thread(target=states, args=[catalogue])
    poll.start()
    assert server.held_up.wait(60)
    threading.Event().wait(0.3)  # for what was under way
    server.asked.clear()
    threading.Event().wait(0.5)
    assert server.counted() == []
    server.heal()
    poll.join(60)
    wait_for(server.counted, 10, "verification goes on after the poll")


@pytest.mark.outside
def test_a_single_poll_starts_no_background_thread(asking):
    states(asking())
    assert threads() == []


@pytest.mark.outside
def test_the_poll_counts_all_and_has_no_thread_if_verify_every_is_zero(asking, server):
    catalogue = asking(verify_every=timedelta(0))
    for _ in range(3):
        server.asked.clear()
        states(catalogue)
        assert len(server.counted()) == len(DIDS)
    assert threads() == []


@pytest.mark.outside
def test_a_silent_dataset_holds_up_one_poll_and_is_seen_again_when_it_answers(asking, server):
    server.silent = "/L07/datasets"
    catalogue = asking(timeout=timedelta(seconds=3))
    assert [did for did, state in states(catalogue).items() if state is None] == ["lofar:L07"]
    for _ in range(3):
        server.asked.clear()
        assert [did for did, state in states(catalogue).items() if state is None] == ["lofar:L07"]
        assert server.counted().count("L07") <= 1, "of the background"
    server.heal()
    catalogue._background._next_retry_at = 0
    for failing in catalogue._background._failed_queries.values():
        failing.retry_at = 0
    wait_for(lambda: states(catalogue)["lofar:L07"] is ReplicaState.COMPLETE, 20, "it is seen again")


@pytest.mark.outside
def test_a_failed_verification_makes_only_its_dataset_unseen(asking, server):
    catalogue = asking(timeout=timedelta(seconds=5))
    states(catalogue)
    server.silent = "/L07/datasets"
    wait_for(lambda: states(catalogue)["lofar:L07"] is None, 20, "its failure is noticed")
    server.asked.clear()
    wait_for(lambda: set(server.counted()) >= {did[6:] for did in DIDS if did != DIDS[7]}, 20, "others go on")
    found = catalogue.read(frozenset(DIDS)).readings
    assert [did for did, reading in found.items() if isinstance(reading, Unseen)] == ["lofar:L07"]
    # on a busy machine the socket's own time limit may end the wait before the limit of the whole answer
    limits = ("no complete answer within 5 s", "Read timed out")
    assert any(limit in found["lofar:L07"].reason for limit in limits)


# -- the schedule, on a clock of its own


class Turned:
    """A query runner and a clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.settings = SimpleNamespace(timeout=timedelta(seconds=30))
        self.connection = self
        self.pause_seconds = 0.0

    def start_poll(self, _seconds):
        return threading.Lock()

    def close(self) -> None:
        pass


def background(turned: Turned, verify, every=timedelta(seconds=100)) -> BackgroundVerifier:
    made = BackgroundVerifier(turned, verify, every, lambda: turned.now)
    made._thread = threading.Thread()  # the test is the thread
    return made


def test_counts_are_verified_evenly_over_the_time_and_oldest_first():
    turned, begun = Turned(), []
    made = background(turned, lambda _, thing: begun.append((turned.now, thing)))
    made.start_verifying([(("count", did), did) for did in DIDS[:10]])
    for _ in range(10):
        turned.now, job = made._earliest_job()
        job()
    assert begun == [(1000 + 10 * (n + 1), did) for n, did in enumerate(DIDS[:10])]


def test_verification_delayed_by_polls_is_caught_up_within_a_minute():
    turned, begun = Turned(), []
    made = background(turned, lambda _, thing: begun.append(thing))
    made.start_verifying([(("count", did), did) for did in DIDS])
    turned.now += 10_000
    while True:
        at, job = made._earliest_job()
        if at > turned.now or job is None:
            break
        job()
    assert 60 / 2.5 <= len(begun) <= 60 / 2.5 + 2


def test_three_failures_in_a_row_end_the_verifying_until_the_next_poll():
    turned = Turned()

    def fail(*_):
        raise CatalogueUnreachable("rucio", "no")

    made = background(turned, fail)
    things = [(("count", did), did) for did in DIDS]
    made.start_verifying(things)
    for _ in range(3):
        turned.now, job = made._earliest_job()
        job()
    assert made._earliest_job()[0] == pytest.approx(turned.now - 5 + 60, abs=0.1), (
        "only what failed comes next"
    )
    made.start_verifying(things)
    assert made._earliest_job()[0] <= turned.now + 2.5


def test_failed_queries_back_off_until_another_one_is_answered():
    turned, answers, asked = Turned(), [], []

    def ask(_):
        asked.append(turned.now)
        turned.now += 30
        if not answers:
            raise CatalogueUnreachable("rucio", "no")

    made = background(turned, lambda *_: None)
    for did in DIDS[:2]:
        made.retry_later(("count", did), CatalogueUnreachable("rucio", "no"), ask)
    for _ in range(20):
        at, job = made._earliest_job()
        turned.now = max(turned.now, at)
        job()
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert min(gaps) >= 30 * 5 - 1, "a fifth of the time at most"
    assert max(asked[n + 2] - asked[n] for n in range(18)) <= 3600 + 300
    answers.append(True)
    for _ in range(2):
        at, job = made._earliest_job()
        turned.now = max(turned.now, at)
        job()
    assert all(made.error_of(("count", did)) is None for did in DIDS[:2])
    assert asked[-1] - asked[-2] <= 30 * 5


@pytest.mark.outside
def test_a_bug_in_the_background_is_raised_in_the_next_poll_and_once(asking, server):
    catalogue = asking()
    states(catalogue)
    states(catalogue)
    catalogue._background._verify = lambda *_: 1 // 0
    wait_for(lambda: catalogue._background._unexpected_error, 10, "it was met")
    catalogue._background._verify = catalogue._verify
    with pytest.raises(ZeroDivisionError):
        states(catalogue)
    assert set(states(catalogue).values()) == {ReplicaState.COMPLETE}
