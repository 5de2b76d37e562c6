"""Measurements of the benchmarks."""

import os
import time

from benchmarks.measure import cpu_with_children


def test_cpu_of_less_than_the_kernels_step_is_counted():
    before, begun = cpu_with_children(os.getpid()), time.process_time()
    while time.process_time() < begun + 0.002:
        pass
    time.sleep(0)  # the kernel adds the time of a thread when it looks at it
    assert cpu_with_children(os.getpid()) - before >= 0.001


def test_ended_children_are_counted():
    before = cpu_with_children(os.getpid())
    child = os.spawnlp(os.P_WAIT, "sh", "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    assert child == 0
    assert cpu_with_children(os.getpid()) > before
