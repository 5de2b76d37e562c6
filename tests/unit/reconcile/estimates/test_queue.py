"""Queues of two sites that share work: the search for equal starts leaves no errors that count as a job."""

import pytest

from hydrator.domain.model import Site
from hydrator.domain.ports import SiteSlots
from hydrator.reconcile.estimates.waits import QueuedWork, SiteQueues, assign_work

A, B = Site("A"), Site("B")


def work_of(at_a: int, at_both: int) -> list[QueuedWork]:
    """Return idle jobs of one core and 100 s: *at_a* for site A, *at_both* for either site."""
    rows = ((at_a, frozenset({A})), (at_both, frozenset({A, B})))
    return [QueuedWork(homes, count, count, 100.0 * count) for count, homes in rows if count]


@pytest.mark.parametrize(("at_a", "at_both"), [(1, 5), (2, 4), (3, 3), (1, 9), (2, 8), (5, 5), (5, 9)])
def test_an_error_of_the_search_is_no_job_that_others_wait_for(at_a: int, at_both: int) -> None:
    """Each site has two cores and an odd number of jobs: one more job completes a run of two."""
    queues = SiteQueues([SiteSlots(site, 1, 1, 2) for site in (A, B)], work_of(at_a, at_both), {}, {}, 100.0)
    runs = (at_a + at_both) // 4
    assert [queues.seconds(site, 1) for site in (A, B)] == pytest.approx([100.0 * runs] * 2)
    assert queues.describe(A).idle_jobs == pytest.approx((at_a + at_both) / 2)


@pytest.mark.parametrize("at_both", range(1, 30))
def test_a_site_that_gets_none_of_the_shared_work_has_no_work(at_both: int) -> None:
    """A frees so much sooner that B's part is an error of the search."""
    shares = assign_work(work_of(0, at_both), {A: (1.0, at_both + 1e-9), B: (1.0, 0.0)})
    assert shares.keys() == {A}
    assert shares[A].cores == at_both


@pytest.mark.parametrize("count", range(1, 30))
def test_jobs_of_two_cores_wait_for_two_cores_however_they_are_shared(count: int) -> None:
    work = [
        QueuedWork(frozenset({A}), 1, 2, 200.0),
        QueuedWork(frozenset({A, B}), count, 2 * count, 200.0 * count),
    ]
    queues = SiteQueues([SiteSlots(site, 3, 1, 2) for site in (A, B)], work, {}, {}, 100.0)
    assert [queues.own_seconds(site) for site in (A, B)] == [queues.seconds(site, 2) for site in (A, B)]


def test_idle_jobs_that_no_slot_of_the_site_can_run_delay_nobody_there() -> None:
    work = [QueuedWork(frozenset({A, B}), 2, 6, 600.0), QueuedWork(frozenset({A}), 3, 3, 300.0)]
    queues = SiteQueues([SiteSlots(A, 2, 0, 2), SiteSlots(B, 4, 0, 1)], work, {}, {}, 100.0)
    alone = SiteQueues([SiteSlots(A, 2, 0, 2), SiteSlots(B, 4, 0, 1)], work[1:], {}, {}, 100.0)
    assert queues.own_seconds(A) == alone.own_seconds(A) < 1000
    assert queues.describe(B).idle_jobs == 2


def test_more_running_jobs_than_busy_cores_count_in_part() -> None:
    """One core and two running jobs: the shorter one may run in a slot that is gone."""
    slots, busy = [SiteSlots(A, 1, 0, 1)], {A: [(10.0, 1.0), (4000.0, 1.0)]}
    both = SiteQueues(slots, [], busy, {A: 64.0}, 64.0).seconds(A, 1)
    ends = [SiteQueues(slots, [], {A: [one]}, {A: 64.0}, 64.0).seconds(A, 1) for one in busy[A]]
    assert ends == pytest.approx([10.0, 4000.0])
    assert ends[0] < both < ends[1]
