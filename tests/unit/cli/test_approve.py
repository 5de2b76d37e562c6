"""`hydrator approve`, `status`, `plan`, `once` and `check` with a catalogue that is suddenly empty."""

import json
from pathlib import Path

import pytest

from tests.command_line import run_hydrator

DIDS = [f"lofar:L{n}" for n in range(6)]


class Place:
    """The folder of a daemon whose cycles the test runs one by one."""

    def __init__(self, folder: Path, ads: str = "ads") -> None:
        self.folder = folder
        pins = json.dumps(DIDS)
        (folder / "config.toml").write_text(
            f"""
            daemon = {{state_dir = "state", poll_seconds = 0.01}}
            catalogue = [{{type = "file", path = "catalogue.json"}}]
            demand = {{pins = {pins}, ask_schedds = false}}
            removal_guard.confirm_polls = 2
            publish.collector.enabled = false
            publish.http.enabled = false
            publish.file.directory = "{ads}"
            """
        )

    def holds(self, *dids: str, site: str = "CAM") -> None:
        listed = {did: {"sites": {site: "available"}} for did in dids}
        (self.folder / "catalogue.json").write_text(
            json.dumps({"sites": ["CAM", "RAL"], "count": len(listed), "datasets": listed})
        )

    def run(self, *words: str, status: int = 0) -> str:
        done = run_hydrator(*words, "-c", self.folder / "config.toml")
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == status, said
        assert "Traceback" not in said
        return said

    def json(self, *words: str, status: int = 0):
        return json.loads(self.run(*words, "--json", status=status))

    def ad(self, site: str = "CAM") -> str:
        return (self.folder / "ads" / f"{site}.ad").read_text()


@pytest.fixture
def emptied(tmp_path) -> Place:
    """Publish six datasets at CAM, then empty the list for one poll."""
    place = Place(tmp_path)
    place.holds(*DIDS)
    place.run("once")
    place.holds()
    place.run("once")
    return place


WHY = "6 of 6 datasets would leave the ad at once; 0 of 2 further polls confirm the loss"


def test_held_change_is_in_status_sites_plan_and_check(emptied):
    (site,) = [row for row in emptied.json("status")["cycle"]["sites"] if row["loss"]]
    assert (site["site"], site["held"]) == ("CAM", WHY)
    del site["loss"]["since"]
    assert site["loss"] == {
        "cause": "site",
        "datasets": 6,
        "listed_count": 6,
        "polls": 0,
        "polls_needed": 2,
        "examples": sorted(DIDS),
    }
    advice = "repair the catalogue, or run hydrator approve CAM: docs/operators/troubleshooting.md"
    assert f"a change at CAM is held: {WHY}; {advice}" in emptied.run("status")
    assert "(removal of 6 held back)" in emptied.run("sites")
    (row,) = [row for row in emptied.json("plan") if row["action"] == "held"]
    assert (row["site"], row["publisher"]) == ("CAM", None)
    assert "6 of 6 datasets would leave the ad at once" in row["why"]
    assert "hydrator approve SITE releases the held change" in emptied.run("plan")
    (warned,) = [found for found in emptied.json("check") if found["subject"] == "site CAM"]
    assert (warned["level"], warned["todo"]) == ("warn", advice)
    assert WHY in warned["message"]


def test_approved_change_is_applied_by_the_next_cycle(emptied):
    assert "CAM: the daemon's next cycle may remove 6 datasets" in emptied.run("approve", "CAM")
    assert any(did in emptied.ad() for did in DIDS), "approving alone changes nothing"
    emptied.run("once")
    assert not any(did in emptied.ad() for did in DIDS)
    assert list((emptied.folder / "state" / "orders").iterdir()) == []


def test_plan_shows_an_approved_change_and_leaves_the_order_to_the_daemon(emptied):
    assert "CAM: the daemon's next cycle may remove 6 datasets" in emptied.run("approve")
    assert [row["action"] for row in emptied.json("plan") if row["site"] == "CAM"] == ["publish"]
    assert len(list((emptied.folder / "state" / "orders").iterdir())) == 1


def test_approve_of_a_site_without_a_held_change_is_one_sentence(emptied, tmp_path):
    refused = emptied.run("approve", "RAL", status=2)
    assert "approve RAL: this site has no held change; sites with a held change: CAM" in refused
    emptied.holds(*DIDS)
    emptied.run("once")
    again = emptied.run("approve", "CAM", status=2)
    assert "approve CAM: this site has no held change; the daemon holds back no change" in again
    assert emptied.run("approve") == "hydrator: the daemon holds back no change\n"


def test_approve_without_a_state_names_the_missing_daemon(tmp_path):
    place = Place(tmp_path)
    place.holds(*DIDS)
    assert "no daemon has run with this state_dir yet" in place.run("approve", status=1)


def test_sites_lists_the_changes_of_a_site_with_reasons(emptied):
    emptied.run("approve")
    emptied.run("once")
    (row,) = emptied.json("sites", "CAM")
    assert len(row["changes"]) == 2 * len(DIDS)
    left, came = row["changes"][:6], row["changes"][6:]
    assert {(one["did"], one["before"], one["after"], one["why"]) for one in left} == {
        (did, "AVAILABLE", None, "gone, as the operator approved") for did in DIDS
    }
    assert {(one["did"], one["before"], one["after"]) for one in came} == {
        (did, None, "AVAILABLE") for did in DIDS
    }
    assert "gone, as the operator approved" in emptied.run("sites", "CAM")
    (row,) = emptied.json("sites", "RAL")
    assert row["changes"] == []


@pytest.mark.parametrize("command", ["once", "plan"])
def test_another_configuration_that_replaces_a_daemons_ads_says_so_and_exits_1(tmp_path, command):
    """Case S30 of cases/submit.md."""
    daemon = Place(tmp_path)
    daemon.holds(*DIDS)
    daemon.run("once")
    daemon.run(command)  # its own ads are no rival's
    (tmp_path / "other").mkdir()
    other = Place(tmp_path / "other", ads="../ads")
    other.holds(*DIDS[:1])
    assert "another daemon published 2 sites here" in other.run(command, status=1)


@pytest.mark.parametrize("words", [("datasets",), ("datasets", "--why"), ("why",)])
def test_text_that_is_no_dataset_has_one_exit_status_and_one_line_each(emptied, words):
    """Case S28 of cases/submit.md."""
    said = emptied.run(*words, "L1", "lofar:L1", "L2", status=2)
    assert [line.split("'")[1] for line in said.splitlines()] == ["L1", "L2"]


def test_check_of_a_missing_file_does_not_speak_of_credentials(tmp_path):
    """Case S28 of cases/submit.md."""
    (row,) = [
        row
        for row in Place(tmp_path).json("check", status=1)
        if row["subject"] == "file" and row["level"] == "fail"
    ]
    assert "catalogue.json" in row["message"]
    assert "credentials" not in row["todo"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("NOWHERE", "the daemon does not know this site; known sites: CAM, RAL"),
        ("NO\udcff", r"'NO\udcff' is not UTF-8 text"),
    ],
)
def test_an_unknown_site_is_one_sentence(emptied, name, sentence):
    said = emptied.run("sites", name, status=2)
    assert sentence in said
    assert said.count("\n") == 1
