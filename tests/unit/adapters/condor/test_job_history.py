"""Queries of schedds: several at a time, for a bounded time, with backoff for those that do not answer."""

import threading
import time
from datetime import timedelta
from itertools import takewhile

import pytest
from structlog.testing import capture_logs

from adapters.condor.job_history import HistoryRounds, ReportBuffer
from adapters.condor.pool_load import CondorPool
from adapters.condor.schedd_rounds import MAX_CONCURRENT_SCHEDDS, ScheddRounds
from hydrator.domain.errors import PoolError
from hydrator.domain.model import Unseen, to_unix
from testbed.patience import wait_for
from tests.factories import L1, NOON

STALL = timedelta(milliseconds=20)
BUDGET = timedelta(milliseconds=200)
TIMEOUT = 0.4
"""Seconds after which a client gives a silent schedd up."""


class Pool:
    """Schedds of which some do not answer; counts the queries of each, and concurrent ones."""

    def __init__(self, *silent: str, well: int = 3) -> None:
        self.silent = set(silent)
        self.names = sorted([*silent, *(f"well{n}" for n in range(well))])
        self.asked: list[str] = []
        self.history: list[dict[str, object]] = []
        self.examined = 0
        self.timeout = TIMEOUT
        self.now = 0
        self.most = 0
        self.closed = 0
        self.lock = threading.Lock()

    def client(self) -> "Client":
        return Client(self)


class Client:
    """A stand-in for a CondorClient: one query at a time, each with a time limit."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._closing = threading.Event()

    def schedds(self):
        return [{"Name": name} for name in self.pool.names]

    def slots(self, attributes, constraint):
        return []

    def read_queue(self, schedd, site_attributes=()):
        self._ask(schedd)
        names = ("idle", "needs", "running", "reports")
        return {"queued": [((L1,), 1, "a key", True)], "clock_ahead": 0, **{name: [] for name in names}}

    def outcomes(self, schedd, since, sites, *, after_job_id=None, max_jobs, ended_before=None):
        self._ask(schedd)
        newer = list(takewhile(lambda job: job["GlobalJobId"] != after_job_id, self.pool.history))
        self.pool.examined = len(newer)
        return [
            job
            for job in newer
            if since <= job["EnteredCurrentStatus"]
            and (ended_before is None or job["EnteredCurrentStatus"] < ended_before)
        ][:max_jobs]

    def _ask(self, schedd):
        with self.pool.lock:
            self.pool.asked.append(schedd)
            self.pool.now += 1
            self.pool.most = max(self.pool.most, self.pool.now)
        try:
            if schedd in self.pool.silent:
                self._closing.wait(self.pool.timeout)
                raise PoolError(schedd, "no answer in time")
        finally:
            with self.pool.lock:
                self.pool.now -= 1

    def close(self):
        self._closing.set()
        self.pool.closed += 1


class Seconds:
    """A clock that never goes back; a test may advance it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def rounds(pool: Pool, *, more=True, **given) -> ScheddRounds:
    given = {"stall": STALL, "budget": BUDGET, **given}
    return ScheddRounds(pool.client(), pool.client if more else None, **given)


def question(client, schedd):
    return client.read_queue(schedd)["queued"]


@pytest.mark.outside
def test_schedds_that_answer_are_queried_in_turn_through_one_client():
    pool = Pool(well=40)
    answers = rounds(pool).ask(question)
    assert list(answers) == pool.names
    assert all(answer == [((L1,), 1, "a key", True)] for answer in answers.values())
    assert (pool.most, pool.closed) == (1, 0)


class Reported:
    """A display that counts its steps."""

    def __init__(self) -> None:
        self.steps: int | None = None
        self.done = 0

    def set_steps(self, count: int) -> None:
        self.steps = count

    def advance(self) -> None:
        self.done += 1


@pytest.mark.outside
def test_each_schedd_is_a_step_also_one_that_does_not_answer():
    reported = Reported()
    rounds(Pool("silent", well=3), reporter=reported).ask(question)
    assert (reported.steps, reported.done) == (4, 4)


@pytest.mark.outside
def test_schedds_without_an_answer_are_queried_in_parallel_and_block_no_other():
    pool = Pool(*(f"silent{n:02}" for n in range(6)))
    answers = rounds(pool, budget=timedelta(minutes=1)).ask(question)
    assert {name for name, answer in answers.items() if isinstance(answer, Unseen)} == pool.silent
    assert 2 <= pool.most <= 8
    assert pool.closed >= pool.most - 1  # those beyond the first end with the question


@pytest.mark.outside
def test_round_takes_one_time_limit_and_leaves_the_rest_to_the_next_round():
    pool = Pool(*(f"silent{n:02}" for n in range(38)), well=2)
    seconds = Seconds()
    asking = rounds(pool, monotonic=seconds)
    begun = seconds()
    for _ in range(12):
        asking.ask(question)
    assert {f"well{n}" for n in range(2)} <= set(pool.asked)
    assert set(pool.asked) == set(pool.names)
    assert seconds() - begun < 12 * (TIMEOUT + BUDGET.total_seconds() + 2)
    assert pool.most <= 8


@pytest.mark.outside
def test_backoff_of_a_schedd_without_an_answer_grows_and_others_have_none():
    pool, seconds = Pool("silent", well=1), Seconds()
    asking = rounds(pool, monotonic=seconds)
    rests = []
    for _ in range(4):
        asking.ask(question)
        before = len(pool.asked)
        answers = asking.ask(question)  # at once: the silent one rests
        assert pool.asked[before:] == ["well0"]
        assert answers["silent"] == Unseen("no answer in time")
        rests.append(asking._statuses["silent"].backoff_until - seconds())
        seconds.ahead += rests[-1] + 0.01
    assert rests[0] < rests[1] < rests[2] < rests[3] < 300
    pool.silent.clear()
    asking.ask(question)
    asking.ask(question)
    assert pool.asked[-2:].count("silent") == 1


@pytest.mark.outside
def test_schedds_that_answered_come_first_then_those_queried_longest_ago():
    pool, seconds = Pool("a", "b", well=1), Seconds()
    asking = rounds(pool, more=False, monotonic=seconds)
    for asked in (["a"], ["b"], ["well0", "a"], ["well0", "b"], ["well0", "a"]):  # at first none is known
        pool.asked.clear()
        asking.ask(question)
        assert pool.asked == asked
        seconds.ahead += 1000


def test_schedd_that_fails_at_once_has_no_backoff():
    pool = Pool(well=2)

    def refused(client, schedd):
        pool.asked.append(schedd)
        raise PoolError(schedd, "connection refused")

    asking = rounds(pool)
    for _ in range(3):
        assert asking.ask(refused)["well0"] == Unseen("connection refused")
    assert pool.asked.count("well0") == 3


def test_bug_in_one_query_fails_that_schedd_alone_and_is_logged_once():
    pool = Pool(well=2)

    def odd(client, schedd):
        if schedd == "well0":
            raise OverflowError("year 32000")
        return schedd

    asking = rounds(pool)
    with capture_logs() as logged:
        answers = [asking.ask(odd) for _ in range(2)]
    assert answers[1]["well1"] == "well1"
    assert answers[1]["well0"].reason.startswith("bug in query of schedd well0: OverflowError at ")
    assert [line["event"] for line in logged] == [
        "query of schedd well0 failed: this is a bug, please report it"
    ]


@pytest.mark.outside
def test_a_schedd_that_left_the_pool_is_forgotten():
    pool = Pool("silent", well=1)
    asking = rounds(pool)
    asking.ask(question)
    pool.names = ["well0"]
    assert list(asking.ask(question)) == ["well0"]
    assert asking._statuses.keys() == {"well0"}


@pytest.mark.outside
def test_closing_ends_a_round_that_waits_for_schedds():
    pool = Pool(*(f"silent{n}" for n in range(8)), well=0)
    queues = rounds(pool)
    ended = threading.Event()

    def ask():
        queues.ask(question)
        ended.set()

    thread = threading.Thread(target=ask)
    thread.start()
    queues.close()
    assert ended.wait(30)
    thread.join()


@pytest.mark.outside
def test_slow_schedd_delays_no_other_and_its_answer_comes_with_a_later_round():
    pool, released = Pool(well=3), [threading.Event(), threading.Event()]

    def slow(client, schedd):
        pool.asked.append(schedd)
        if schedd != "well1":
            return "now"
        number = pool.asked.count(schedd)
        released[number - 1].wait(60)
        return f"answer {number}"

    asking = rounds(pool)
    for _ in range(2):
        answers = asking.ask(slow, waits=False)
        assert answers == {"well0": "now", "well1": Unseen("no answer yet"), "well2": "now"}
    assert pool.asked.count("well1") == 1, "a schedd is asked one question at a time"
    released[0].set()
    answer = wait_for(
        lambda: one if isinstance(one := asking.ask(slow, waits=False)["well1"], str) else "", "an answer"
    )
    assert answer == "answer 1"
    released[1].set()
    asking.close()


@pytest.mark.outside
def test_rounds_that_do_not_wait_start_no_more_clients_while_many_schedds_hang():
    pool = Pool(*(f"silent{n:02}" for n in range(40)), well=0)
    pool.timeout = 60
    asking = rounds(pool, stall=timedelta(milliseconds=1), budget=timedelta(milliseconds=100))
    round_count = 4
    for _ in range(round_count):
        asking.ask(question, waits=False)
    asking.close()
    assert pool.most <= MAX_CONCURRENT_SCHEDDS + round_count, "each round asks one schedd at least"


def impatient_pool(pool: Pool) -> CondorPool:
    reader = CondorPool(pool.client(), lambda: NOON, (), pool.client)
    reader._stall_seconds, reader._budget_seconds = STALL.total_seconds(), BUDGET.total_seconds()
    return reader


@pytest.mark.outside
def test_slow_schedd_does_not_delay_the_first_snapshot_of_a_daemon():
    pool = Pool("slow", well=1)
    pool.timeout = 60
    reader = impatient_pool(pool)
    assert reader.read_snapshot().silent["slow"] == "no answer yet"
    reader.close()


@pytest.mark.outside
def test_snapshot_of_a_command_waits_for_each_schedd():
    pool = Pool("slow", well=1)
    assert impatient_pool(pool).read_snapshot(waits=True).silent == {"slow": "no answer in time"}


def ended_jobs(*ends: int) -> list[dict[str, object]]:
    """Return the history of jobs in the order in which they left the queue, the last one first."""
    return [
        {"GlobalJobId": f"s#{n}", "EnteredCurrentStatus": to_unix(NOON) + end} for n, end in enumerate(ends)
    ]


def read_history(history, **limits):
    pool = Pool(well=1)
    pool.history = history
    (found,) = HistoryRounds(pool.client(), lambda: NOON, (), **limits).read_ended_jobs(NOON).values()
    return found


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 23, 100])
def test_history_of_many_jobs_is_read_in_parts_each_job_once(count):
    # every third job stayed in the queue for a while after its end
    jobs = ended_jobs(*(10 * (count - n) - 45 * (n % 3 == 0) for n in range(count)))
    known = [job for job in jobs if job["EnteredCurrentStatus"] >= to_unix(NOON)]
    found = read_history(jobs, max_jobs=5)
    assert found.is_complete
    assert sorted(job["GlobalJobId"] for job in found.jobs) == sorted(job["GlobalJobId"] for job in known)


def test_history_with_too_many_jobs_in_one_second_or_in_all_is_not_complete():
    at_once = read_history(ended_jobs(*[7] * 9), max_jobs=5)
    assert (len(at_once.jobs), at_once.is_complete) == (5, False)
    many = read_history(ended_jobs(*range(100, 0, -1)), max_jobs=10, max_history_jobs=30)
    assert not many.is_complete
    assert 30 <= len(many.jobs) < 40
    assert [job["GlobalJobId"] for job in many.jobs[:3]] == ["s#0", "s#1", "s#2"]


def test_history_has_the_bytes_that_a_wrapper_read_at_the_jobs_last_site():
    reads = ["UK:70:1.0:1795000000:RAL", "UK:30:1.0:1795000000:RAL", "UK:5:1.0:1795000000:CAM", "an odd text"]
    jobs = [{**ended_jobs(5)[0], "site": "RAL", "reads": reads}, *ended_jobs(4)]
    assert [job["read_bytes"] for job in read_history(jobs).jobs] == [100, 0]


@pytest.mark.outside
def test_first_history_has_the_reports_of_a_day_and_the_jobs_since_the_start():
    pool, reports = Pool("silent", well=1), ReportBuffer()
    row = {"misses": ["a miss"], "reads": [], "User": "ann@x"}
    pool.history = [{**job, **row} for job in ended_jobs(5, -3600, -90_000)]
    history = HistoryRounds(pool.client(), lambda: NOON, (), buffers=[reports])
    answers = history.read_newly_ended_jobs()
    assert [job["GlobalJobId"] for job in answers["well0"].jobs] == ["s#0"]
    assert answers["well0"].is_complete
    assert isinstance(answers["silent"], Unseen)
    assert [job["GlobalJobId"] for job in reports.take()] == ["s#0", "s#1"]


@pytest.mark.parametrize("old_count", [0, 100])
def test_schedd_where_no_job_ended_lately_is_not_read_again_to_its_older_jobs(old_count):
    pool = Pool(well=1)
    pool.history = ended_jobs(*range(-200_000, -200_000 - old_count, -1))
    history = HistoryRounds(pool.client(), lambda: NOON, ())
    history.read_newly_ended_jobs()
    for jobs in [(), ("new",), ()]:
        pool.history = [*({**ended_jobs(5)[0], "GlobalJobId": job} for job in jobs), *pool.history]
        (answer,) = history.read_newly_ended_jobs().values()
        assert (tuple(job["GlobalJobId"] for job in answer.jobs), pool.examined) == (jobs, len(jobs))
    assert len(pool.asked) == 2 + 3, "the newest job of any age is looked for once"
