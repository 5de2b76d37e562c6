"""Our expressions on the ClassAd engines of other releases: the bindings of 24.0 and 25.0, without a pool."""

import json
import os
import sys
from pathlib import Path

import pytest

from testbed.cached import built, install_wheels
from testbed.processes import run_program
from tests.expression_corpus import decisions, matches
from tests.parts import needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LOCKS = sorted((Path(__file__).parents[2] / "testbed").glob("bindings-*.lock"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_older_engine_makes_the_same_of_all_jobs_and_slots_and_ends(lock):
    """An engine before 25.13.2 evaluates a text that refers to itself without end."""
    with needs("bindings of another release"):
        folder = built(lock.stem, lock.read_bytes(), lambda home: install_wheels(home, lock, lock.stem))
    done = run_program(
        [sys.executable, "-W", "ignore", "-m", "tests.expression_corpus"],
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[2]}"},
        check=True,
        timeout=200,
    )
    found = json.loads(done.stdout)
    assert f" {lock.stem.partition('-')[2]}." in found["version"]
    assert found["jobs"] == decisions()
    assert found["matches"] == matches()
