"""Completion estimates: a straight line through the samples."""

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.rucio.conclusions import estimate_completion
from tests.factories import MINUTE, NOON


def line(*shares: float) -> list:
    return [(NOON + n * MINUTE, share) for n, share in enumerate(shares)]


def test_steady_progress_ends_where_its_line_does():
    assert abs(estimate_completion(line(0.0, 0.1, 0.2)) - (NOON + 10 * MINUTE)) < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "samples",
    [
        [],
        line(0.1),
        line(0.1, 0.2),
        line(0.5, 0.5, 0.5),
        line(0.5, 0.4, 0.3),
        [(NOON, 0.1), (NOON, 0.2), (NOON, 0.3)],
        line(0.0, 0.0, 1e-9),
    ],
)
def test_too_little_or_no_progress_has_no_estimate(samples):
    assert estimate_completion(samples) is None


@example([0.0, 0.9, 0.95, 0.96])
@given(st.lists(st.floats(0, 1), min_size=3, max_size=60))
def test_an_estimate_is_never_before_the_last_sample(shares):
    found = estimate_completion(line(*shares))
    assert found is None or found >= NOON + (len(shares) - 1) * MINUTE
