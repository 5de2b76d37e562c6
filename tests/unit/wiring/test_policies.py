"""Policies from the settings: values that follow from other sections."""

from datetime import timedelta

import pytest

from hydrator.config import Settings
from hydrator.domain.model import Site
from hydrator.reconcile.openings import PacingPolicy
from hydrator.wiring import pacing_policy


@pytest.mark.parametrize(("poll", "length"), [(7, 60), (90, 90)])
def test_round_of_the_pacing_has_a_minute_and_a_poll(poll: int, length: int) -> None:
    made = Settings(daemon={"poll_seconds": poll}, network={"excluded_sources": ["UK"]})
    assert pacing_policy(made) == PacingPolicy(timedelta(seconds=length), frozenset({Site("UK")}))
