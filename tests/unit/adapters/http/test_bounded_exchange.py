"""Bounded HTTP exchanges against real servers on loopback that send endless or large answers."""

import gzip
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.http.client import HttpLimits, JsonClient
from hydrator.domain.errors import CatalogueError, CatalogueGarbled, CatalogueUnreachable
from testbed.hostile import ENDLESS, Hostile, answer, gzip_bomb, stream
from testbed.patience import wait_for

pytestmark = pytest.mark.outside

LIMITS = HttpLimits(
    timeout=timedelta(seconds=0.3), deadline=timedelta(seconds=0.8), attempts=1, max_bytes=300_000
)
PATIENT = replace(LIMITS, timeout=timedelta(seconds=60), deadline=timedelta(seconds=60))
LONGEST_SECONDS = 60.0
"""On a machine that does other things, too."""
PEAK_MB = 110
"""What one answer may add at its peak: the daemon has some 75 MB without."""


def ask(url, limits=PATIENT):
    server = JsonClient("sick", url, limits=limits)
    try:
        return server.get("/x")
    finally:
        server.close()


@pytest.mark.parametrize("way", ENDLESS)
def test_an_answer_without_end_ends_in_time_and_the_server_is_asked_again(way):
    with Hostile(ENDLESS[way]) as sick:
        begun = time.monotonic()
        server = JsonClient("sick", sick.url, limits=LIMITS)
        with pytest.raises(CatalogueError):
            server.get("/x")
        assert time.monotonic() - begun < LONGEST_SECONDS
        sick.answering = answer(b"[1]")
        assert wait_for(lambda: answered(server), 10, "an answer") == [1]
        server.close()


def answered(server):
    try:
        return server.get("/x").body
    except CatalogueUnreachable:  # too slow for the short limits
        return None


def test_a_caller_may_have_less_time_than_the_server_is_given():
    with Hostile(ENDLESS["a body, slowly"]) as sick:
        server = JsonClient("sick", sick.url, limits=replace(LIMITS, deadline=timedelta(hours=1)))
        begun = time.monotonic()
        with pytest.raises(CatalogueUnreachable, match="did not end in time"):
            server.get("/x", within_seconds=0.3)
        assert time.monotonic() - begun < LONGEST_SECONDS
        server.close()


def test_a_compressed_answer_is_decompressed():
    with Hostile(answer(gzip.compress(b'["a"]', mtime=0), "Content-Encoding: gzip")) as server:
        assert ask(server.url).body == ["a"]


@pytest.mark.parametrize(
    ("body", "packing", "words"),
    [
        (gzip_bomb(1_000_000), "gzip", "larger than 300000 bytes; the limit is max_answer_mb"),
        (
            gzip.compress(gzip_bomb(1_000_000), mtime=0),
            "gzip, gzip",
            "a Content-Encoding that was not asked for: 'gzip, gzip'",
        ),
        (b"", "br", "a Content-Encoding that was not asked for"),
        (gzip.compress(b"[1]", mtime=0)[:-9], "gzip", "the gzip data is incomplete"),
        (gzip.compress(b"[1]", mtime=0) + b"[2]", "gzip", "data after the end of the gzip data"),
        (b"[1]", "gzip", "cannot be decompressed"),
    ],
)
def test_a_compressed_answer_that_is_incomplete_or_too_large_is_refused(body, packing, words):
    packed = answer(body, f"Content-Encoding: {packing}")
    with Hostile(packed) as server, pytest.raises(CatalogueGarbled, match=words):
        ask(server.url)


# made in the test: to compress 1 GB takes seconds
BOMBS = {
    "empty lists": lambda: stream(b"[],", 49_000_000),
    "empty records": lambda: stream(b"{},", 49_000_000),
    "a stream of 1 GB": lambda: stream(b'{"name": "L1"},', 1_000_000_000),
    "1 GB, packed": lambda: answer(gzip_bomb(1_000_000_000), "Content-Encoding: gzip"),
    "as many values as are allowed": lambda: answer(b"[" + b'{"ab":"cd"},' * 240_000 + b"{}]"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_eight_bombs_at_once_take_no_more_memory_than_the_bounds_promise(bomb):
    code = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
from adapters.http.client import JsonClient
from hydrator.domain.errors import CatalogueError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
server = JsonClient("sick", sys.argv[1])
def ask(_):
    try:
        return server.get("/x", read=len).body
    except CatalogueError as error:
        return error.reason
before = peak()
with ThreadPoolExecutor(8) as pool:
    answers = set(pool.map(ask, range(8)))
print(peak() - before, answers)
"""
    with Hostile(BOMBS[bomb]()) as sick:
        said = subprocess.run(
            [sys.executable, "-c", code, sick.url], capture_output=True, text=True, check=True, timeout=300
        ).stdout
    assert float(said.split()[0]) < PEAK_MB, said


def test_large_answers_are_received_one_after_the_other():
    taken, most = [], []
    lock = threading.Lock()

    def read(body):
        with lock:
            taken.append(body)
            most.append(len(taken))
        time.sleep(0.05)  # time for the others to come, if they could
        with lock:
            taken.pop()

    with Hostile(answer(b'["' + b"a" * 1_100_000 + b'"]')) as server:
        client = JsonClient("large", server.url)
        threads = [threading.Thread(target=client.get, args=("/x",), kwargs={"read": read}) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.close()
    assert most == [1, 1, 1, 1]
