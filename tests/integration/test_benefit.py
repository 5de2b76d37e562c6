"""The benefit experiment on real pools: throttled links, and one quick cell with the right sign."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.benefit import links, one
from benchmarks.benefit.arms import has_auto
from benchmarks.benefit.plan import estimate_seconds
from benchmarks.benefit.runs import RunKey, outcome
from benchmarks.benefit.workload import Cell, generate
from testbed.patience import wait_for

BYTES, RATE = 400_000, 800_000.0


@pytest.fixture(params=sorted({links.BUCKET, links.kind()}))
def throttled(request: pytest.FixtureRequest, tmp_path):
    with links.Links(("DE", "NL"), RATE, tmp_path, request.param) as running:
        yield running.sources


def test_lone_reader_gets_the_whole_link(throttled):
    def is_whole() -> bool:
        """Read once more where a busy machine delayed the read; no read may be faster than the link."""
        seconds = links.lone_read_seconds(throttled["DE"], BYTES)
        assert seconds > 0.9 * BYTES / RATE - 0.05
        return seconds < 1.5 * BYTES / RATE + 1

    wait_for(is_whole, 60, "a read at the rate of the link")


def test_readers_of_one_site_share_its_link(throttled):
    begun = time.monotonic()
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: links.lone_read_seconds(throttled["DE"], BYTES), range(3)))
    assert time.monotonic() - begun > 0.9 * 3 * BYTES / RATE - 0.1


def test_readers_of_other_sites_do_not_share_a_link(throttled):
    def are_apart() -> bool:
        begun = time.monotonic()
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda site: links.lone_read_seconds(throttled[site], 2 * BYTES), ("DE", "NL")))
        return time.monotonic() - begun < 1.8 * 2 * BYTES / RATE

    wait_for(are_apart, 60, "two reads, each at the rate of its link")


@pytest.mark.pool
@pytest.mark.timeout(600)
def test_pool_with_locality_is_faster_where_reads_are_as_long_as_jobs(htcondor_release):
    """Run the quick cell: x = 1, 62/32/6 %, some 90 s on an idle machine.

    The plan has to fit into 3 minutes; the measured time is not judged, because a busy machine takes longer.
    """
    cell, ours = Cell("62/32/6", "one", "batch", 1.0), "auto" if has_auto() else "require"
    keys = [RunKey(cell, arm, 1, 48) for arm in ("off", ours)]
    assert max(map(estimate_seconds, keys)) <= 180
    with ThreadPoolExecutor(2) as threads:
        runs = list(threads.map(lambda key: one.run(key, htcondor_release), keys))
    assert [run.failure for run in runs] == ["", ""]
    workload = generate(cell, 1, 48)
    stock, local = (outcome(run, workload) for run in runs)
    assert stock.makespan / local.makespan > 1.1, (stock, local)
    assert local.bytes_local > stock.bytes_local + 0.2, (stock, local)
    assert local.turnaround_mean < stock.turnaround_mean
    for run in runs:  # reads were throttled: a lone reader took the computing time of a job
        assert all(5.4 < seconds < 9 for seconds in run.machine["lone_seconds"]), run.machine
