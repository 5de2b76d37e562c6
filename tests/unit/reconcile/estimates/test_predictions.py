"""Predictions against reality: which numbers are compared, and what is forgotten."""

from datetime import timedelta

import pytest

from hydrator.domain.ads.estimates import Estimates, SetEstimate, SiteEstimates
from hydrator.domain.ports import SiteSlots
from hydrator.reconcile.estimates import predictions as module
from hydrator.reconcile.estimates.predictions import EndedRun, EstimateKind, Predictions
from tests.factories import NOON
from tests.unit.reconcile.estimates.worlds import DE, GB, UK, World, idle, key

A = key("t:a")


def made(read_seconds: int | None, queue_seconds: int) -> Estimates:
    """Return estimates of ``t:a``, which is whole at UK."""
    sites = {
        UK: SiteEstimates({A: SetEstimate(0, queue_seconds)}),
        DE: SiteEstimates({A: SetEstimate(read_seconds, queue_seconds)}),
    }
    return Estimates(NOON, sites)


KNOWN = Predictions().update(made(512, 1024), 1000).update(made(2048, 4096), 2000)


@pytest.mark.parametrize(
    ("site", "submitted", "started", "read", "result"),
    [
        (UK, 1000, 1512, None, (EstimateKind.QUEUE, 2.0)),
        (UK, 1000, 3048, None, (EstimateKind.QUEUE, 2.0)),
        (UK, 1950, 6046, None, (EstimateKind.QUEUE, 1.0)),  # the estimate of 2000 is the first to count it
        (UK, 1000, 1001, None, (EstimateKind.QUEUE, 1024 / 60)),
        (UK, 500, 1500, None, None),  # no estimate yet
        (DE, 500, 1999, 128, (EstimateKind.READ, 4.0)),
        (DE, 500, 2000, 4096, (EstimateKind.READ, 2.0)),
        (DE, 500, 2000, None, None),
        (DE, 500, 999, 128, None),
    ],
)
def test_wait_beside_the_data_and_read_elsewhere_are_compared(site, submitted, started, read, result) -> None:
    assert KNOWN.compare(EndedRun(A, site, submitted, started, read)) == result


@pytest.mark.parametrize(("interval", "factor"), [(30, 1024 / 34), (4, 1024 / 8), (3600, 1024 / 60)])
def test_short_times_count_as_the_resolution_of_the_daemon(interval: float, factor: float) -> None:
    """A job that starts at once: the daemon cannot know it before its next query, nor below 4 s."""
    at_once = EndedRun(A, UK, 1000, 1001)
    assert KNOWN.with_resolution(interval).compare(at_once) == (EstimateKind.QUEUE, factor)
    later = KNOWN.with_resolution(interval).update(made(512, 0), 3000)
    assert later.compare(EndedRun(A, UK, 3000, 3001)) == (EstimateKind.QUEUE, 1.0)


def test_the_resolution_follows_the_interval_between_queries() -> None:
    world = World({UK: ["t:a"], DE: []}, (SiteSlots(UK, 1, 0, 4),), (idle(1, "t:a"),), sizes={"t:a": GB})
    brisk = world.estimate(query_interval=timedelta(seconds=5))
    assert brisk.predictions.resolution_seconds == 9


def test_no_seconds_are_compared_with_a_closed_source_or_an_unknown_set() -> None:
    closed = KNOWN.update(made(None, 4096), 3000)
    assert closed.compare(EndedRun(A, DE, 500, 3000, 128)) is None
    assert KNOWN.compare(EndedRun(key("t:b"), UK, 1000, 1512)) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Predictions()
    for cycle in range(100):
        known = known.update(made(cycle % 2, cycle), cycle)
    assert len(known.queues[A]) == module.MAX_CHANGES
    assert known.queues[A][-1] == (99, 99)
    monkeypatch.setattr(module, "MAX_NUMBERS", 1)
    sets = Estimates(NOON, {UK: SiteEstimates({A: SetEstimate(0, 4), key("t:b"): SetEstimate(0, 4)})})
    assert set(Predictions().update(sets, 1).queues) == {key("t:b")}
