"""Laws of staging, whatever happens: a few seeds of :mod:`.laws`."""

import pytest

from tests.unit.staging.laws import run_seed


@pytest.mark.parametrize("seed", range(12))
def test_no_seed_breaks_a_law(seed):
    run_seed(seed)
