"""A test whose real part cannot be had is skipped with the reason; in CI it fails."""

import pytest

from testbed.cached import Unavailable
from tests.parts import NO_POOL, needs


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_missing_part_skips_its_test_and_fails_it_in_ci(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=f"{NO_POOL}.*no disk left"), needs(NO_POOL):
        raise Unavailable("no disk left")
