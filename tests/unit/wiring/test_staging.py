"""The parts of staging from a configuration, up to the controller of the daemon."""

import sys

import pytest

from hydrator.config import load
from hydrator.domain.errors import ConfigError
from hydrator.wiring.assembly import assemble
from tests.factories import NOON

BASE = """
[daemon]
state_dir = "state"
poll_seconds = 30
[[catalogue]]
type = "file"
path = "catalogue.toml"
[publish.collector]
enabled = false
"""
ON = f"""
[staging]
mode = "%s"
name = "lofar"
[staging.catalogues.file]
command = ["{sys.executable}", "-c", "pass"]
[staging.sites.CAM]
storage = "CAM_DISK"
[staging.sites.RAL]
mode = "propose"
[staging.limits]
site_tb = 0.5
"""


@pytest.fixture
def loaded(tmp_path):
    (tmp_path / "catalogue.toml").write_text('sites = ["CAM"]\n[datasets]\n')
    (tmp_path / "state").mkdir()

    def load_text(text: str):
        (tmp_path / "config.toml").write_text(BASE + text)
        return load(tmp_path / "config.toml")

    return load_text


@pytest.fixture
def built(loaded):
    made = []

    def build(text: str):
        parts = assemble(loaded(text), lambda: NOON)
        made.append(parts)
        return parts

    yield build
    for parts in made:
        parts.close()


def test_by_default_nothing_is_built_that_could_call_a_catalogue(built):
    parts = built("")
    assert parts.staging.stagers == {}
    assert parts.staging.queues is None


@pytest.mark.parametrize("mode", ["propose", "request"])
def test_a_mode_builds_the_parts(built, mode):
    parts = built(ON % mode)
    assert parts.staging.stagers.keys() == {"file"}
    assert parts.staging.queues in parts.closables


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[staging]\nmode = "request"\n',
            "staging.mode: nothing is switched on; add [staging.catalogues.NAME]",
        ),
        ("[staging.catalogues.rucio]\n", "staging.catalogues.rucio: no [[catalogue]] has this name"),
        ('[staging]\nmode = "on"\n', "staging.mode: input should be 'off', 'propose' or 'request'"),
        ("[staging.limits]\nsite_tb = -1\n", "staging.limits.site_tb: input should be greater than or equal"),
        (
            ON % "request" + "[demand]\nask_schedds = false\n",
            "staging.mode: the daemon must read the jobs' needs",
        ),
    ],
)
def test_a_problem_is_one_sentence_with_its_key(loaded, text, problem):
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    assert any(problem in each for each in caught.value.problems), caught.value.problems
