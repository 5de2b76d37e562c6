"""Errors of the estimates: kept for the newest jobs, saved over a restart, and shown by `hydrator report`."""

from datetime import timedelta

import pytest

from hydrator.cli.commands.outcomes.job_report import error_sentence
from hydrator.daemon.background import EstimateErrorKeeper
from hydrator.diagnostics.prediction_errors import (
    MAX_COMPARED_JOBS,
    REPORT_NAME,
    ErrorFactors,
    ErrorSummary,
)
from hydrator.domain.errors import StateError
from hydrator.domain.model import to_unix
from hydrator.reconcile.estimates.predictions import EstimateKind
from hydrator.state.store import Store
from tests.factories import HOUR, NOON

QUEUE, READ = EstimateKind.QUEUE, EstimateKind.READ


def test_median_and_quantile_are_of_the_jobs_of_the_period():
    factors = ErrorFactors()
    factors.add([(QUEUE, 50.0)], NOON - 2 * HOUR)
    factors.add([(QUEUE, float(n)) for n in range(1, 11)], NOON)
    assert factors.summarize(NOON - HOUR) == {QUEUE: ErrorSummary(10, 5.0, 9.0), READ: ErrorSummary()}
    assert factors.summarize(NOON - 3 * HOUR)[QUEUE] == ErrorSummary(11, 6.0, 10.0)


def test_only_the_newest_jobs_count():
    factors = ErrorFactors()
    for number in range(MAX_COMPARED_JOBS + 5):
        factors.add([(READ, 1.0 + number)], NOON)
    assert min(factors.by_kind()[READ]) == 6.0
    assert len(factors.by_kind()[READ]) == MAX_COMPARED_JOBS


def test_saved_factors_are_read_again():
    factors = ErrorFactors()
    factors.add([(QUEUE, 1.23456), (READ, 2.0)], NOON)
    again = ErrorFactors.of_rows(factors.to_rows())
    assert again.by_kind(NOON) == {QUEUE: [1.235], READ: [2.0]}
    assert again.by_kind(NOON + timedelta(seconds=1)) == {QUEUE: [], READ: []}


@pytest.mark.parametrize(
    "row", [7, None, [], [1], [1, 2, 3], ["noon", 2.0], [0, "2"], [0, 0.5], [0, float("nan")], [-1, 2.0]]
)
def test_rows_of_another_version_are_left_out(row):
    got = ErrorFactors.of_rows({"queue": [row, [to_unix(NOON), 3.0]], "read": 7, "other": [[0, 1.0]]})
    assert got.by_kind() == {QUEUE: [3.0], READ: []}


def test_restarted_daemon_still_has_the_factors(tmp_path):
    with Store.open_to_write(tmp_path) as store:
        EstimateErrorKeeper(store).add([(QUEUE, 2.0)])
    with Store.open_to_write(tmp_path) as store:
        keeper = EstimateErrorKeeper(store)
        assert keeper.add() == {QUEUE: [2.0], READ: []}
        assert keeper.add([(QUEUE, 4.0)]) == {QUEUE: [2.0, 4.0], READ: []}
        assert ErrorFactors.of_rows(store.load_report(REPORT_NAME)).by_kind()[QUEUE] == [2.0, 4.0]


def test_state_that_fails_does_not_end_the_count():
    class Broken:
        def save_report(self, key, body):
            raise StateError("the disk is full")

        def load_report(self, key):
            raise StateError("the disk is full")

    keeper = EstimateErrorKeeper(Broken())
    assert keeper.add([(READ, 3.0)]) == {QUEUE: [], READ: [3.0]}


def test_report_has_one_line_on_the_errors():
    errors = {QUEUE: ErrorSummary(120, 1.44, 3.96), READ: ErrorSummary(1, 2.0, 2.0)}
    assert error_sentence(errors) == (
        "Predicted against real seconds, the median factor between them: wait beside the data 1.4"
        " (90 % at most 4.0; 120 samples), read from elsewhere 2.0 (90 % at most 2.0; 1 sample)."
    )
    assert "read" not in error_sentence({QUEUE: ErrorSummary(1, 1.0, 1.0)}).replace("Predicted", "")
    assert error_sentence({}) == "Predicted against real seconds: no sample in this time."
