"""The benchmark of predicted against real seconds: its reading of ads, and its arithmetic."""

from dataclasses import replace

import pytest

from benchmarks.benefit.jobs import Record
from benchmarks.benefit.pools import Finished
from benchmarks.benefit.workload import Cell, generate
from benchmarks.predictions import Watcher, compare_queues, compare_reads, factors, figures
from hydrator.domain.ads.dataset_sets import set_key
from hydrator.domain.ads.estimates import Estimates, SetEstimate, SiteEstimates
from tests.factories import CAM, L1, RAL, facts, replica, want
from tests.unit.reconcile.ads.test_set_lines import BOTH, L2, UNTIL, lines

WORKLOAD = generate(Cell("62/32/6", "one", "stream", 1.0), 1, 4)
SUBMITTED = 1000.0
KEYS = [WORKLOAD.datasets[job.datasets[0]].did for job in WORKLOAD.jobs]


def record(number: int, began: float, *, read: float = 0.0, remote: int = 0) -> Record:
    return Record(number, "NL", "slot1", began, began + read, began + read + 6, remote)


def finished(*records: Record) -> Finished:
    return Finished(SUBMITTED, records, (), (), frozenset(), "25.14.1", {}, {})


def test_watcher_reads_the_queue_seconds_that_the_daemon_prints(tmp_path):
    one = SetEstimate(64, 128, RAL)
    given = Estimates(
        UNTIL,
        {
            CAM: SiteEstimates({BOTH: one}),
            RAL: SiteEstimates({BOTH: one, set_key([L1]): replace(one, queue_seconds=4)}),
        },
    )
    files = []
    for site in (CAM, RAL):
        ad = lines(facts(replica(L1)), want(L1, L2), want(L1), estimates=given, site=site)
        files.append(tmp_path / f"{site}.v2.ad")
        files[-1].write_text("".join(f"{name} = {literal}\n" for name, literal in ad.items()), "ascii")
    watcher = Watcher()
    watcher.read_once(files)
    ((_, entries),) = watcher.queues
    assert entries == {BOTH: 128, set_key([L1]): 4}


def test_wait_is_compared_from_the_first_estimate_of_a_job_that_is_still_idle():
    early, late, local, unknown = KEYS
    watcher = Watcher([(SUBMITTED + 5, {early: 8}), (SUBMITTED + 9, {early: 64, late: 32, local: 16})])
    done = finished(
        record(0, SUBMITTED + 35),
        record(1, SUBMITTED + 7),  # began before its first estimate
        record(2, SUBMITTED + 40, remote=10),
        record(3, SUBMITTED + 40),
    )
    assert unknown not in watcher.queues[1][1]
    assert list(compare_queues(done, WORKLOAD, watcher)) == [(8.0, 30.0)]


def test_read_is_compared_with_the_estimate_of_the_start():
    watcher = Watcher(starts={0: "read 16 s from NL, queue 64 s", 1: "local", 2: ""})
    done = finished(
        *(record(number, SUBMITTED, read=10.0, remote=remote) for number, remote in enumerate((5, 0, 5)))
    )
    assert list(compare_reads(done, watcher)) == [(16.0, 10.0)]


def test_factor_is_symmetric_and_short_times_count_as_the_resolution():
    assert factors("read", [(16, 8), (8, 16), (1, 2), (0, 8)]) == [2.0, 2.0, 1.0, 2.0]
    assert factors("queue", [(0, 7), (64, 4)]) == [1.0, 8.0]


@pytest.mark.parametrize(("real", "is_met"), [(32.0, True), (33.0, False)])
def test_median_beyond_a_factor_of_2_misses_the_goal(real, is_met):
    found = {figure.name: figure for figure in figures({"25.14.1, read, x = 1": [(16.0, real)]})}
    assert found["read seconds, all runs: median factor"].met is is_met
    assert found["read seconds, all runs: 0.9 quantile"].met is True
    assert not any(name.startswith("queue") for name in found)
