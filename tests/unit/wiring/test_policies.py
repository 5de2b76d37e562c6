"""Policies from the settings: values that follow from other sections."""

from datetime import timedelta

from hydrator.config import Settings
from hydrator.domain.model import Site
from hydrator.reconcile.openings import PacingPolicy
from hydrator.wiring import pacing_policy


def test_pacing_knows_the_interval_between_queries_and_excluded_sources() -> None:
    made = Settings(daemon={"poll_seconds": 7}, network={"excluded_sources": ["UK"]})
    assert pacing_policy(made) == PacingPolicy(timedelta(seconds=7), frozenset({Site("UK")}))
