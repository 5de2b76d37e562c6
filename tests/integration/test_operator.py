"""`plan`, `approve` and `sites` beside a running daemon, as an operator uses them."""

import json

import pytest

from testbed.installation import wait_for
from tests.daemon import Running

DIDS = [f"lofar:L{n}" for n in range(6)]
PATIENCE = 60.0


@pytest.fixture
def daemon(daemon):
    daemon.configure("[breaker]\nconfirm_polls = 100000")
    daemon.catalogue({did: {"CAM": "available"} for did in DIDS})
    daemon.start()
    wait_for(lambda: all(did in daemon.ad() for did in DIDS), PATIENCE, "all datasets")
    return daemon


def said(daemon: Running, *words: str):
    done = daemon.command(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def held(daemon: Running) -> list[str]:
    return [row["site"] for row in said(daemon, "status")["held"]]


def listed(daemon: Running) -> set[str]:
    return {did for did in DIDS if did in daemon.ad()}


def test_held_change_is_listed_and_approved_beside_the_daemon(daemon):
    daemon.catalogue({})
    wait_for(lambda: held(daemon) == ["CAM"], PATIENCE, "the hold")
    assert listed(daemon) == set(DIDS)
    (row,) = [row for row in said(daemon, "plan") if row["action"] == "held"]
    assert (row["site"], "6 of 6 datasets would leave the ad at once" in row["why"]) == ("CAM", True)
    before = daemon.generation()

    assert said(daemon, "approve", "CAM") == {"CAM": 6}
    wait_for(lambda: listed(daemon) == set(), PATIENCE, "what was approved")
    wait_for(lambda: held(daemon) == [], PATIENCE, "the end of the hold")
    assert daemon.generation() > before

    (row,) = said(daemon, "sites", "CAM")
    assert {(c["did"], c["after"], c["why"]) for c in row["changes"][:6]} == {
        (did, None, "gone, as the operator approved") for did in DIDS
    }
