"""The policy of the pool's configuration, from the daemon's configuration."""

import tomllib
from pathlib import Path

from hydrator.config import parse
from hydrator.wiring import pool_policy

SETTINGS = """
[[catalogue]]
type = "file"
path = "catalogue.json"
[publish]
never = ["embargo:*"]
"""


def test_names_that_are_never_published_are_known_to_the_schedd():
    settings = parse(tomllib.loads(SETTINGS), folder=Path("/"), origin="config.toml")
    assert pool_policy(settings).never == ("embargo:*",)
