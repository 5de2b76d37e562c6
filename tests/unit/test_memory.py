"""How many pools of memory a process with many threads has."""

import platform
import subprocess
import sys

import pytest

POOLS = """
import ctypes, sys, threading
from pathlib import Path
from hydrator.memory import share_arenas

libc = ctypes.CDLL(None)
if sys.argv[1] == "shared":
    share_arenas(2)
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has pools for threads")
@pytest.mark.parametrize(("how", "few"), [("shared", True), ("as it comes", False)])
def test_threads_share_two_pools_of_memory(tmp_path, how, few):
    words = [sys.executable, "-c", POOLS, how, tmp_path / "pools"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (int(done.stdout) <= 2) is few
