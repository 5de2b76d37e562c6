"""Connection pool: several queries at a time keep the promises of a single one (on a stand-in)."""

import stat
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from adapters.rucio.catalogue import RucioCatalogue, RucioSettings
from adapters.rucio.session.queries import ConnectionPool, QueryRunner
from hydrator.domain.errors import CatalogueUnreachable
from hydrator.domain.model import Did, Seen
from testbed.rucio_standin import RucioStandIn
from tests.rucio_fixtures import catalogues

pytestmark = pytest.mark.outside

DIDS = [Did(f"lofar:L{n}") for n in range(8)]
PATIENCE = 60  # seconds, for what must happen


class Crowded(RucioStandIn):
    """A stand-in that records its concurrent queries; *expected* queries wait for each other."""

    def __init__(self) -> None:
        super().__init__({"UK-DISK": "UK"})
        self.holdings = {did: {"UK-DISK": "available"} for did in DIDS}
        self.expected = 1
        self.now = self.most = 0
        self.changed = threading.Condition()
        self.failing: dict[str, tuple[int, str]] = {}
        self.counted: list[str] = []

    def answer(self, path, query, body):
        with self.changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
            if path.endswith("/datasets"):
                self.counted.append(path.split("/")[3])
                assert self.changed.wait_for(lambda: self.most >= self.expected, PATIENCE)
            self.now -= 1
        for part, (status, error) in self.failing.items():
            if part in f"{path} {body}":
                return status, {"ExceptionClass": error, "ExceptionMessage": "no"}
        return super().answer(path, query, body)


@pytest.fixture
def server() -> Iterator[Crowded]:
    with Crowded() as started:
        yield started


@pytest.fixture
def asking(server, tmp_path):
    """Build a catalogue on the stand-in; close it at the end."""
    folder = tmp_path / "tokens"
    with catalogues(url=server.url, token_dir=folder, twins_every=None, calls_per_second=10_000) as make:
        yield make


def seen(catalogue: RucioCatalogue) -> set[Did]:
    readings = catalogue.read(frozenset(DIDS)).readings
    assert readings.keys() == set(DIDS)
    return {did for did, reading in readings.items() if isinstance(reading, Seen)}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_concurrent_queries_are_limited_to_concurrent_calls(asking, server, number):
    server.expected = number
    assert seen(asking(concurrent_calls=number)) == set(DIDS)
    assert server.most == number
    assert sorted(server.counted) == sorted(did.split(":")[1] for did in DIDS)


def test_a_failed_query_makes_only_its_own_dids_unseen(asking, server):
    server.failing = {"/replicas/lofar/L3/datasets": (500, "DatabaseException")}
    assert seen(asking(concurrent_calls=3)) == set(DIDS) - {"lofar:L3"}
    server.failing = {"'name': 'L5'": (503, "ServiceUnavailable")}
    assert seen(asking(concurrent_calls=3, batch=1)) == set(DIDS) - {"lofar:L5"}


def test_a_name_that_makes_a_batch_fail_is_isolated(asking, server):
    server.failing = {"'name': 'L5', 'type'": (400, "InvalidObject")}
    assert seen(asking(concurrent_calls=3, batch=4)) == set(DIDS) - {"lofar:L5"}


def test_all_connections_share_one_budget(asking, server):
    assert len(seen(asking(concurrent_calls=3, deep_calls=4))) == 4
    assert len(server.counted) == 4


def test_each_connection_has_its_own_token_file_until_it_closes(asking, server, tmp_path):
    server.expected = 2
    catalogue = asking(concurrent_calls=2)
    seen(catalogue)
    files = [file for file in (tmp_path / "tokens").iterdir() if file.suffix != ".exp"]
    assert len(files) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    catalogue.close()
    assert not any(file.exists() for file in files)


def test_a_server_that_hangs_on_every_connection_is_left_at_the_deadline(asking, server):
    server.expected = 99
    catalogue = asking(concurrent_calls=2, deadline=timedelta(seconds=3), timeout=timedelta(seconds=PATIENCE))
    try:
        readings = catalogue.read(frozenset({*DIDS, Did("lofar:nothing")})).readings
        whys = [readings[Did(f"lofar:{name}")].reason for name in server.counted]
        assert not any(isinstance(readings[did], Seen) for did in DIDS)
    except CatalogueUnreachable as late:  # on a slow machine before anything was counted
        whys = [str(late)]
    finally:
        with server.changed:
            server.expected = 0
            server.changed.notify_all()
    assert len(server.counted) <= 2
    assert all("no complete answer within 3 s" in why for why in whys)


# -- while an answer is thought through


class Wire:
    """A replacement of a connection that answers at once, whatever *client* is."""

    def __init__(self, client: object = None) -> None:
        self.client = client
        self.asked = 0

    def with_shared_deadline(self, _: int) -> "Wire":
        return Wire(self.client)

    def ask(self, call):
        self.asked += 1
        return call(self.client)

    def close(self) -> None:
        pass


def lines(number: int) -> ConnectionPool:
    return ConnectionPool(Wire(), number)


def test_the_next_query_starts_before_the_consumer_uses_an_answer():
    begun = {n: threading.Event() for n in range(4)}
    answers = lines(2).map_concurrently([3, 2, 1, 0], lambda n: begun[n].set())
    next(answers)
    assert begun[2].wait(PATIENCE)
    next(answers)
    assert begun[3].wait(PATIENCE)
    assert len(list(answers)) == 2


def test_no_query_starts_after_a_failure_until_the_consumer_has_seen_it():
    release, begun = threading.Event(), []

    def do(n: int) -> None:
        begun.append(n)
        if n == 1:
            assert release.wait(PATIENCE)
        if n == 0:
            raise CatalogueUnreachable("rucio", "no")

    jobs = [3, 2, 1, 0]
    answers = lines(2).map_concurrently(jobs, do)
    assert next(answers)[0] == 0
    jobs.clear()
    release.set()
    assert [job for job, _ in answers] == [1]
    assert sorted(begun) == [0, 1]


def test_a_background_query_uses_its_own_connection():
    release, first = threading.Event(), Wire()
    several = ConnectionPool(first, 2)
    with several.run_in_background(lambda: several.run(lambda _: release.wait(PATIENCE))) as meanwhile:
        assert not meanwhile.is_done
        assert several.run(lambda _: "asked beside") == "asked beside"
        release.set()
        assert meanwhile.result() is True
        assert meanwhile.is_done
    assert first.asked == 1


def test_a_background_query_on_one_connection_runs_once_at_its_first_use():
    one = Wire()
    only = ConnectionPool(one, 1)
    with only.run_in_background(lambda: only.run(lambda _: "learned")) as meanwhile:
        assert (meanwhile.is_done, one.asked) == (False, 0)
        assert [meanwhile.result(), meanwhile.result()] == ["learned"] * 2
        assert one.asked == 1


@pytest.mark.parametrize("number", [1, 2])
def test_a_failed_background_query_raises_at_each_use(number):
    def fail() -> None:
        raise CatalogueUnreachable("rucio", "no")

    with lines(number).run_in_background(fail) as meanwhile:
        for _ in range(2):
            with pytest.raises(CatalogueUnreachable):
                meanwhile.result()


def asker(tmp_path) -> QueryRunner:
    settings = RucioSettings(name="rucio", url="http://nowhere", account="a", token_dir=tmp_path)
    return QueryRunner(settings, Wire())


def test_rows_of_a_long_answer_are_there_before_its_end(tmp_path):
    read = threading.Event()

    def rows(_) -> Iterator[int]:
        yield from range(500)
        assert read.wait(PATIENCE), "nobody reads before the end"
        yield 500

    coming = asker(tmp_path).stream(rows, iter)
    assert next(coming) == list(range(500))
    read.set()
    assert list(coming) == [[500]]


def test_an_answer_that_breaks_off_yields_its_rows_and_then_fails(tmp_path):
    def rows(_) -> Iterator[int]:
        yield from range(500)
        raise CatalogueUnreachable("rucio", "it broke off")

    coming = asker(tmp_path).stream(rows, iter)
    assert next(coming) == list(range(500))
    with pytest.raises(CatalogueUnreachable, match="broke off"):
        next(coming)
