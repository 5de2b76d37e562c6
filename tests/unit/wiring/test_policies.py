"""Policies from the settings: values that follow from other sections."""

from datetime import timedelta

import pytest

from hydrator.config import Settings
from hydrator.wiring import estimate_policy, pool_policy


@pytest.mark.parametrize(("demand", "seconds"), [({}, 600), ({"settle_seconds": 330}, 330)])
def test_auto_jobs_settle_as_long_as_new_sets(demand: dict, seconds: int) -> None:
    settings = Settings(demand=demand)
    assert pool_policy(settings).auto_settle == timedelta(seconds=seconds)


def test_estimates_know_the_interval_between_queries() -> None:
    assert estimate_policy(Settings(daemon={"poll_seconds": 7})).query_interval == timedelta(seconds=7)
