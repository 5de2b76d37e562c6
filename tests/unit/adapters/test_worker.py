"""Supervision of a worker process, with a stand-in that misbehaves."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapters import worker
from adapters.worker import Worker, WorkerFailed
from testbed.patience import wait_for
from testbed.processes import is_running, run_program

pytestmark = pytest.mark.outside

STANDIN = Path(__file__).parents[2] / "worker_standin.py"
ROOT = Path(__file__).parents[3]


class Bench:
    """A maker of workers; it reads which processes they started."""

    def __init__(self, folder: Path) -> None:
        self._starts = folder / "starts"
        self._starts.touch()
        self.workers: list[Worker] = []

    def command(self, *mode: str) -> tuple[str, ...]:
        return (sys.executable, str(STANDIN), str(self._starts), *mode)

    def worker(self, *mode: str, limit_bytes: int = 200_000_000, max_answers: int | None = None) -> Worker:
        self.workers.append(Worker(self.command(*mode), limit_bytes=limit_bytes, max_answers=max_answers))
        return self.workers[-1]

    @property
    def started(self) -> list[int]:
        return [int(pid) for pid in self._starts.read_text().split()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for one in made.workers:
        one.close()


def ask(
    one: Worker, what: str, seconds: float = 30, on_part: Callable[[object], None] | None = None
) -> object:
    return one.exchange({"call": what}, seconds, on_part)["ok"]["seen"]


def blocks_signals(pid: int) -> bool:
    blocked = Path(f"/proc/{pid}/status").read_text().partition("SigBlk:")[2].split()[0]
    return bool(int(blocked, 16) >> signal.SIGIO - 1 & 1)


def ignores_signals(pid: int) -> bool:
    ignored = int(Path(f"/proc/{pid}/status").read_text().partition("SigIgn:")[2].split()[0], 16)
    return any(ignored >> one - 1 & 1 for one in (signal.SIGINT, signal.SIGTERM))


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("hang", "no answer within 2 s"),
        ("hang, ignoring signals", "no answer within 2 s"),
        ("die", "killed by SIGKILL"),
        ("exit", "ended with status 0"),
        ("allocate", "needs more than 200 MB"),
        ("reserve", "needs more than 200 MB"),
        ("share", "needs more than 200 MB"),
        ("flood", "a line of more than"),
    ],
)
def test_worker_that_misbehaves_is_replaced(bench: Bench, what: str, told: str):
    one = bench.worker()
    assert (one.pid, bench.started) == (None, []), "no process is started before it is needed"
    assert ask(one, "fine") == "fine"
    with pytest.raises(WorkerFailed, match=told):
        ask(one, what, 2 if "hang" in what else 60)
    assert not exists(bench.started[0])
    assert ask(one, "fine") == "fine"
    assert one.restart_count == 1


def test_worker_that_prints_much_does_not_fill_the_disk(bench: Bench):
    one = bench.worker()
    for _ in range(3):
        ask(one, "print much")
    ask(one, "fine")
    assert Path(f"/proc/{one.pid}/fd/2").stat().st_size < 1_000_000


def test_worker_that_leaks_is_replaced_at_its_limit(bench: Bench):
    one, failures = bench.worker(), 0
    for _ in range(12):
        try:
            ask(one, "leak")
        except WorkerFailed:
            failures += 1
    assert 1 <= failures <= 3
    assert len(bench.started) == 1 + failures


def test_worker_beside_a_large_one_has_the_same_limit_of_its_own(bench: Bench):
    one = bench.worker()
    for _ in range(3):
        ask(one, "leak")
    second = one.beside()
    bench.workers.append(second)
    for _ in range(3):
        assert ask(second, "leak")
    with pytest.raises(WorkerFailed, match="needs more than"):
        ask(second, "allocate", 60)
    assert ask(one, "fine") == "fine"
    assert (one.restart_count, len(bench.started)) == (0, 2)


def test_each_part_gives_more_time(bench: Bench):
    parts: list[int] = []
    assert ask(bench.worker(), "parts", 1.5, parts.append) == "parts"
    assert parts == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_error_in_a_part_costs_the_worker(bench: Bench, error: type[BaseException]):
    def fail(_: object) -> None:
        raise error

    one = bench.worker()
    with pytest.raises(error):
        ask(one, "parts", 30, fail)
    assert not exists(bench.started[0])


def test_what_a_worker_started_ends_with_it(bench: Bench):
    one = bench.worker()
    other = ask(one, "start a process")
    with pytest.raises(WorkerFailed):
        ask(one, "die")
    wait_for(lambda: not is_running(other), "the end of the process that the worker started")


def test_signals_end_what_a_worker_started_but_not_the_worker(bench: Bench):
    one = bench.worker()
    assert not ignores_signals(ask(one, "start a process"))
    for sent in (signal.SIGINT, signal.SIGTERM):
        os.kill(one.pid, sent)
    assert ask(one, "fine") == "fine"
    assert len(bench.started) == 1


def test_worker_after_its_last_answer_is_replaced_without_counting_as_a_restart(bench: Bench):
    one = bench.worker(max_answers=3)
    for _ in range(7):
        ask(one, "fine")
    assert len(bench.started) == 3
    assert one.restart_count == 0
    assert not any(exists(pid) for pid in bench.started[:-1])


def test_worker_that_ended_between_two_calls_costs_no_call(bench: Bench):
    one = bench.worker()
    ask(one, "fine")
    os.kill(bench.started[0], signal.SIGKILL)
    wait_for(lambda: not is_running(bench.started[0]), "the end of the worker")
    assert ask(one, "fine") == "fine"


def test_worker_that_never_starts_is_an_error_each_time(bench: Bench):
    one = bench.worker("stillborn")
    for _ in range(3):
        with pytest.raises(WorkerFailed, match="ended with status 7"):
            ask(one, "fine")
    assert one.restart_count == 2
    assert not any(exists(pid) for pid in bench.started)
    with pytest.raises(WorkerFailed, match="could not be started"):
        ask(Worker(["/no/such/program"], limit_bytes=1), "fine")


def test_worker_that_cannot_be_ended_is_named_and_not_doubled(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    one = bench.worker()
    ask(one, "fine")
    monkeypatch.setattr(worker, "END_SECONDS", 0.1)
    with monkeypatch.context() as dead_file_server:
        dead_file_server.setattr(os, "killpg", lambda *_: None)
        with pytest.raises(WorkerFailed, match="no answer"):
            ask(one, "hang", 0.5)
        with pytest.raises(WorkerFailed, match=f"process {bench.started[0]} does not end"):
            ask(one, "fine")
    assert len(bench.started) == 1
    assert ask(one, "fine") == "fine"


def test_calls_from_many_threads_each_get_their_own_answer(bench: Bench):
    one = bench.worker()
    names = [f"schedd{n}" for n in range(40)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda name: ask(one, name), names)) == names
    assert len(bench.started) == 1


def test_worker_outlives_the_thread_that_first_needed_it(bench: Bench):
    one = bench.worker()
    thread = threading.Thread(target=ask, args=(one, "fine"))
    thread.start()
    thread.join()
    assert ask(one, "again") == "again"
    assert len(bench.started) == 1


@pytest.mark.parametrize("how", ["hang", "hang, ignoring signals"])
def test_closing_does_not_wait_for_a_call_that_hangs(bench: Bench, how: str):
    one = bench.worker()
    ask(one, "fine")
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(ask, one, how, 100)
        wait_for(hanging.running, "the call to hang")
        if "ignoring" in how:
            wait_for(lambda: blocks_signals(one.pid), "the worker to ignore signals")
        began = time.monotonic()
        one.close()
        with pytest.raises(WorkerFailed):
            hanging.result(timeout=120)
    one.close()
    assert time.monotonic() - began < 60
    assert not exists(bench.started[0])
    with pytest.raises(WorkerFailed, match="closed"):
        ask(one, "fine")


class NotedLock:
    """A lock that records in ``is_wanted`` that a thread waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_wanted = threading.Event()

    def acquire(self, blocking: bool = True) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        if blocking:
            self.is_wanted.set()
        return blocking and self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def test_closing_ends_a_process_that_another_thread_starts(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker, "START_SECONDS", 20)
    lock = NotedLock()
    with ThreadPoolExecutor(1) as threads:

        def close_meanwhile() -> None:
            threads.submit(one.close)
            assert lock.is_wanted.wait(60), "close waits, and has seen no process"

        one = Worker(bench.command("slow"), limit_bytes=200_000_000, env=close_meanwhile)
        one._lock = lock
        with pytest.raises(WorkerFailed, match="SIGKILL"):
            ask(one, "fine")


def test_idle_worker_removes_its_files_when_it_is_closed(bench: Bench, tmp_path: Path):
    one = bench.worker()
    ask(one, "note the end")
    one.close()
    assert (tmp_path / "starts.end").exists()
    assert not exists(bench.started[0])


PARENT = """
import sys, time
from adapters.worker import Worker
one = Worker(sys.argv[2:], limit_bytes=200_000_000)
print(one.exchange({"call": "start a process"}, 60)["ok"]["seen"], one.pid, flush=True)
one.exchange({"call": sys.argv[1]}, 3600) if sys.argv[1] != "idle" else time.sleep(3600)
"""


@pytest.mark.parametrize("busy", ["idle", "hang, ignoring signals"])
def test_worker_and_what_it_started_end_with_a_daemon_that_is_killed(bench: Bench, busy: str):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, busy, *bench.command()], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert all(map(is_running, pids))
        if busy != "idle":
            wait_for(lambda: blocks_signals(pids[1]), "the worker to ignore signals")
        parent.kill()
    wait_for(lambda: not any(map(is_running, pids)), "the end of the worker")


FIRST_PROCESS = """
import ctypes, os, sys, time
from adapters.worker import Worker, WorkerFailed
ctypes.CDLL(None).prctl(36, 1)  # as PID 1, it inherits the processes whose parents have ended
one = Worker(sys.argv[1:], limit_bytes=200_000_000)
orphan = one.exchange({"call": "leave an orphan"}, 60)["ok"]["seen"]
while "zombie" not in open(f"/proc/{orphan}/status").read():
    time.sleep(0.01)
one.exchange({"call": "fine"}, 60)
pids = [orphan, one.exchange({"call": "start a process"}, 60)["ok"]["seen"], one.pid]
print(*(os.path.exists(f"/proc/{pid}") for pid in pids), one.restart_count)
try:
    one.exchange({"call": "die"}, 60)
except WorkerFailed:
    print(*(os.path.exists(f"/proc/{pid}") for pid in pids))
"""


def test_first_process_of_a_container_keeps_no_zombie_of_a_worker(bench: Bench):
    done = run_program([sys.executable, "-c", FIRST_PROCESS, *bench.command()], cwd=ROOT, check=True)
    assert done.stdout.splitlines() == ["False True True 0", "False False False"]


class Pauses(threading.Event):
    """An event that records how long somebody waits for it, and waits no time."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return False


def test_worker_that_fails_again_and_again_is_started_with_growing_pauses(bench: Bench):
    one = bench.worker("stillborn")
    one._close_event = pauses = Pauses()
    for _ in range(9):
        with pytest.raises(WorkerFailed):
            ask(one, "fine")
    assert pauses.seconds == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
