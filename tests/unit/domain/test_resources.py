"""Jobs that fit into a slot together, as a startd cuts it."""

import pytest

from hydrator.domain.ports import Resources

WHOLE = Resources(8, 16_000, 10**7, 1)


@pytest.mark.parametrize(
    ("request_", "slot", "jobs"),
    [
        (Resources(1), WHOLE, 8),
        (Resources(3), WHOLE, 2),
        (Resources(0.5), WHOLE, 8),
        (Resources(1, 2000), WHOLE, 7),  # 7 of 2048 MiB; the rest is too small
        (Resources(1, 2001), Resources(8, 2048), 1),
        (Resources(1, 1000), Resources(8, 1000), 1),  # the rounded request does not fit, the request does
        (Resources(1, 16), Resources(8, 300), 4),  # 2 of 128 MiB, and 2 of 16 MiB in the rest
        (Resources(1, 0, 1), Resources(8, 0, 4096), 4),
        (Resources(1, 0, 0, 1), WHOLE, 1),
        (Resources(9), WHOLE, 0),
        (Resources(1), Resources(0.0), 0),
    ],
)
def test_requests_are_rounded_up_while_the_rounded_ones_fit(request_, slot, jobs):
    assert request_.count_in(slot) == jobs
