"""Memory of a process with many threads: the number of malloc arenas, and the return of free memory."""

import platform
import sys

import pytest

from testbed.processes import run_program

pytestmark = pytest.mark.outside

POOLS = """
import ctypes, sys, threading
from pathlib import Path
from hydrator.daemon.process import limit_arenas

libc = ctypes.CDLL(None)
if sys.argv[1] == "shared":
    limit_arenas(2)
together = threading.Barrier(12)
def take():
    together.wait()
    libc.malloc(1000)
    together.wait()
threads = [threading.Thread(target=take) for _ in range(12)]
for each in threads:
    each.start()
for each in threads:
    each.join()
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
print(Path(sys.argv[2]).read_text().count("<heap "))
"""


HOLES = """
import sys
from pathlib import Path
from hydrator.daemon.process import trim_heap

def resident_kib():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS:")))

blocks = [bytes(2000) for _ in range(20_000)]  # too large for Python's own pools
full = resident_kib()
blocks = blocks[::50]  # what is kept lies all over
if sys.argv[1] == "given back":
    trim_heap()
print(full - resident_kib())
"""
glibc_only = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps it so")


@glibc_only
@pytest.mark.parametrize(("how", "much"), [("given back", True), ("as it comes", False)])
def test_trim_heap_returns_free_memory_between_used_blocks(how, much):
    done = run_program([sys.executable, "-c", HOLES, how], check=True)
    assert (int(done.stdout) > 20_000) is much


@glibc_only
@pytest.mark.parametrize(("how", "few"), [("shared", True), ("as it comes", False)])
def test_threads_share_two_pools_of_memory(tmp_path, how, few):
    words = [sys.executable, "-c", POOLS, how, tmp_path / "pools"]
    done = run_program(words, check=True)
    assert (int(done.stdout) <= 2) is few
