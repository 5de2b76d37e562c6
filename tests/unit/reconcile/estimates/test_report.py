"""The saved form of estimates: what goes in comes out, also through JSON."""

import json

from hydrator.domain.ads.estimates import Estimates, JobQueue, Rate, SetEstimate, SiteEstimates
from hydrator.reconcile.estimates.estimate import Estimation
from hydrator.reconcile.estimates.report import (
    SavedEstimates,
    estimates_to_rows,
    parse_estimates,
    parse_run_times,
    run_times_to_rows,
)
from hydrator.reconcile.estimates.run_times import MAX_SAMPLES
from tests.factories import MINUTE, NOON
from tests.unit.reconcile.estimates.test_estimate import BASE
from tests.unit.reconcile.estimates.worlds import DE, UK, at, idle, key, running, staging


def read_back(estimates: Estimates | None, none_reason: str | None = None) -> SavedEstimates | None:
    return parse_estimates(json.loads(json.dumps(estimates_to_rows(estimates, none_reason, NOON))))


def test_saved_estimates_are_equal_after_a_restart() -> None:
    rate = Rate(1e8, "job history", NOON, 12)
    estimates = Estimates(
        NOON + MINUTE,
        {
            UK: SiteEstimates({key("t:a"): SetEstimate(0, 256, lone_read_seconds=0.0, queue_site=UK)}, 64),
            DE: SiteEstimates(
                {
                    key("t:a"): SetEstimate(512, 256, UK, 99.5, 3, 10**10, rate, UK),
                    key("t:b"): SetEstimate(None, 0, ready_at=NOON),
                },
                queue=JobQueue(2.5, 1.0, 8.0, 100.0),
            ),
        },
    )
    saved = read_back(estimates)
    assert saved == SavedEstimates(
        NOON,
        Estimates(
            NOON + MINUTE,
            {
                UK: SiteEstimates({key("t:a"): SetEstimate(0, 256, queue_site=UK)}, 64),
                DE: estimates.sites[DE],
            },
        ),
    )


def test_the_reason_of_no_estimates_is_saved() -> None:
    assert read_back(None, "no rates") == SavedEstimates(NOON, None, "no rates")


def test_rows_of_no_or_of_another_version_are_no_estimates() -> None:
    assert parse_estimates({}) is None
    assert parse_estimates({"at": 1, "until": 2, "none": None, "sites": {"UK": 3}}) is None
    assert parse_estimates({"at": "x", "until": None, "none": None, "sites": {}}) is None


def test_estimates_of_a_pool_are_saved_compactly() -> None:
    saved = read_back(BASE.with_(facts={DE: {"t:a": staging(1)}}).estimate().estimates)
    assert saved is not None
    assert saved.estimates is not None
    assert saved.estimates.sites[DE].by_key[key("t:a")].ready_at == NOON + MINUTE


def after_the_end_of_jobs(of_set: str = "t:a") -> Estimation:
    """Return an estimation that has learned of two jobs that ran for 400 s, as in test_estimate."""
    world = BASE.with_(idle=(idle(10, "t:a", seconds=None),))
    first = world.with_(running=(running(UK, of_set, ages=[390, 390], seconds=None),)).estimate()
    return world.estimate(previous=first, at=NOON + MINUTE / 3)


def test_learned_run_times_are_used_after_a_restart() -> None:
    """11 jobs of 400 s on 4 slots: 1,100 s; with the default of 1 h it would be 9,900 s."""
    before = after_the_end_of_jobs()
    rows = json.loads(json.dumps(run_times_to_rows(before)))
    restarted = Estimation(before.estimates, history=parse_run_times(rows))
    world = BASE.with_(idle=(idle(10, "t:a", seconds=None),))
    assert at(world.estimate(previous=restarted, at=NOON + MINUTE), DE).queue_seconds == 1024
    forgotten = Estimation()
    assert at(world.estimate(previous=forgotten, at=NOON + MINUTE), DE).queue_seconds == 8192


def test_saved_run_times_name_no_set_that_is_not_demanded() -> None:
    """A job can name a dataset that is never published. The page shows what the state has."""
    rows = json.dumps(run_times_to_rows(after_the_end_of_jobs("t:secret")))
    assert "secret" not in rows
    assert '"user"' in rows


def test_run_times_that_cannot_be_decoded_are_left_out() -> None:
    good = ["pool", "", "beside", [100.0, 7.5]]
    bad = (
        None, "x", ["pool", ""], ["pool", "", "beside", "long"], ["pool", "", "inside", [1.0]],
        ["x", "", "none", [1.0]], ["pool", 3, "beside", [1.0]], ["pool", "", "none", []],
        ["user", "a", "none", [1e300]], ["user", "b", "none", [True]], ["user", "c", "none", [float("nan")]],
    )  # fmt: skip
    history = parse_run_times({"samples": [*bad, good]})
    assert dict(history.samples) == {("pool", "", "beside"): (100.0, 7.5)}
    assert not parse_run_times({}).samples
    assert not parse_run_times({"samples": 3}).samples
    many = parse_run_times({"samples": [["pool", "", "beside", [1.0] * (MAX_SAMPLES + 1)]]})
    assert len(many.samples["pool", "", "beside"]) == MAX_SAMPLES
