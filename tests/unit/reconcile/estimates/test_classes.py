"""Classes of seconds: powers of two from 4, with hysteresis."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydrator.domain.ads.estimates import NO_QUEUE_SECONDS
from hydrator.reconcile.estimates.changes import to_class

SECONDS = st.floats(0, 1e9)
CLASSES = st.sampled_from([0, *(4 * 2**n for n in range(21))])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, 0), (1.9, 0), (2, 4), (4, 4), (5.6, 4), (5.7, 8), (60, 64), (100, 128), (3600, 4096)],
)
def test_a_class_is_the_nearest_power_of_two(seconds: float, expected: int) -> None:
    assert to_class(seconds) == expected


def test_an_endless_queue_has_the_largest_class() -> None:
    assert to_class(math.inf) == to_class(1e12) == NO_QUEUE_SECONDS


@pytest.mark.parametrize(
    ("seconds", "previous", "expected"),
    [
        (2.4, 0, 0), (2.6, 0, 4), (1.7, 4, 4), (1.5, 4, 0),
        (113, 64, 64), (114, 64, 128), (37, 64, 64), (36, 64, 32),
        (math.inf, NO_QUEUE_SECONDS, NO_QUEUE_SECONDS),
    ],
)  # fmt: skip
def test_a_class_stays_until_the_value_left_it_by_a_quarter(
    seconds: float, previous: int, expected: int
) -> None:
    assert to_class(seconds, previous) == expected


@given(SECONDS, SECONDS, st.none() | CLASSES)
def test_a_larger_value_never_has_a_smaller_class(one: float, other: float, previous: int | None) -> None:
    low, high = sorted((one, other))
    assert to_class(low, previous) <= to_class(high, previous)


@given(SECONDS, CLASSES)
def test_a_value_within_a_quarter_of_a_class_never_changes_it(seconds: float, previous: int) -> None:
    first = to_class(seconds, previous)
    assert to_class(seconds, first) == first
    assert to_class(seconds * 1.24, to_class(seconds)) == to_class(seconds)
    assert to_class(seconds / 1.24, to_class(seconds)) == to_class(seconds)


@given(st.floats(4, 1e6))
def test_a_class_is_within_a_factor_of_its_values(seconds: float) -> None:
    assert 1 / 1.5 < to_class(seconds) / seconds < 1.5
