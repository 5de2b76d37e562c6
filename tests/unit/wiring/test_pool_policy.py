"""The policy of the pool's configuration, from the daemon's configuration."""

import tomllib
from pathlib import Path

from hydrator.config import parse
from hydrator.wiring import pool_policy

SETTINGS = """
[[catalogue]]
type = "file"
path = "catalogue.json"
[estimates]
max_readers_per_source = 24
"""


def test_readers_of_the_pools_texts_are_those_of_the_daemon():
    settings = parse(tomllib.loads(SETTINGS), folder=Path("/"), origin="config.toml")
    assert pool_policy(settings).readers == 24
